"""Layers that move data: flatten, reshape, pad, crop, upsample."""

from __future__ import annotations

import math
from typing import Any

from intaglio.errors import quoted
from intaglio.frontends.building import expand, one_factor, other_elements, padded, part, reshape, resolved_shape, transpose
from intaglio.frontends.keras.rows.convolution import spatial
from intaglio.frontends.keras.walk import KerasCall, Result, layer
from intaglio.frontends.onnx.faults import Fault, unsupported
from intaglio.frontends.resize_ranges import Way
from intaglio.frontends.resize_ranges import resized as over_ranges
from intaglio.ir.graph import Value
from intaglio.ir.sizes import moves
from intaglio.ops.index import Gather
from intaglio.ops.resize import Resize


@layer("Flatten")
def flatten(call: KerasCall) -> Result:
    x = call.x
    if call.channels_first and x.type.rank > 2:
        x = transpose(call, x, (0, *range(2, x.type.rank), 1))
    return reshape(call, x, (x.shape[0], math.prod(x.shape[1:])))


@layer("Reshape")
def reshape_layer(call: KerasCall) -> Result:
    target = call.option("target_shape")
    if not isinstance(target, list) or not all(type(n) is int or n is None for n in target):
        raise Fault("bad-attribute", f"`target_shape` is {quoted(str(target))}, which is not valid")
    x = call.x
    wanted = [-1 if n is None else n for n in target]
    return reshape(call, x, resolved_shape(call, x, [x.shape[0], *wanted], True))


@layer("Permute")
def permute(call: KerasCall) -> Result:
    dims, x = call.option("dims"), call.x
    if not isinstance(dims, list) or sorted(dims) != list(range(1, x.type.rank)):
        raise Fault("bad-attribute", f"`dims` is {quoted(str(dims))} for {x.type.rank - 1} axes")
    return transpose(call, x, (0, *dims))


@layer("RepeatVector")
def repeat_vector(call: KerasCall) -> Result:
    x, count = call.x, call.whole("n")
    if x.type.rank != 2 or count < 1:
        raise Fault("shape-mismatch", f"{list(x.shape)} cannot be repeated {count} times")
    return expand(call, reshape(call, x, (x.shape[0], 1, x.shape[1])), (x.shape[0], count, x.shape[1]))


def _sides(call: KerasCall, name: str, count: int) -> list[tuple[int, int]]:
    """`padding` and `cropping`: one number, one per axis, or two per axis."""
    told: Any = call.option(name, 1)
    if type(told) is int:
        told = [[told, told]] * count
    elif count == 1:
        told = [told]
    sides = []
    for side in told:
        pair = [side, side] if type(side) is int else side
        if len(pair) != 2 or not all(type(n) is int and 0 <= n < 2**31 for n in pair):
            raise Fault("bad-attribute", f"`{name}` is {quoted(str(told))}, which is not valid")
        sides.append((pair[0], pair[1]))
    if len(sides) != count:
        raise Fault("bad-attribute", f"`{name}` is {quoted(str(told))} for {count} axes")
    return sides


def _edges(call: KerasCall, x: Value, sides: list[tuple[int, int]], sign: int) -> Value:
    spatial(call, x, len(sides))
    first = 2 if call.channels_first else 1
    pads = [0] * (2 * x.type.rank)
    for n, (before, after) in enumerate(sides):
        pads[first + n], pads[x.type.rank + first + n] = sign * before, sign * after
    return padded(call, x, pads)


@layer("ZeroPadding1D", "ZeroPadding2D", "ZeroPadding3D")
def zero_padding(call: KerasCall) -> Result:
    return _edges(call, call.x, _sides(call, "padding", int(call.layer.kind[-2])), 1)


@layer("Cropping1D", "Cropping2D", "Cropping3D")
def cropping(call: KerasCall) -> Result:
    return _edges(call, call.x, _sides(call, "cropping", int(call.layer.kind[-2])), -1)


def resized(call: KerasCall, x: Value, sizes: tuple[int, ...], mode: str, antialias: bool = False) -> Value:
    first = 2 if call.channels_first else 1
    shape = list(x.shape)
    for n, size in enumerate(sizes):
        if size < 1 or size >= 2**31:
            raise Fault("bad-attribute", f"it would be {size} wide or high")
        shape[first + n] = size
    if moves((*x.shape, *shape)):
        way = Way("antialias" if antialias else {"bilinear": "linear"}.get(mode, mode), "half_pixel", "floor", torch=True)
        axes = range(first, first + len(sizes))
        x, _ = over_ranges(call, x, {n: shape[n] for n in axes}, dict.fromkeys(axes, way))
    scales = tuple(1.0 if new == old else one_factor(new, old) or new / old for new, old in zip(shape, x.shape, strict=True))
    match mode:
        case "nearest":
            op = Resize(tuple(shape), scales, (), "nearest", "half_pixel", "round_prefer_ceil")
        case "bilinear":
            op = Resize(tuple(shape), scales, (), "linear", "half_pixel", antialias=antialias)
        case _:
            reason = f"the interpolation {quoted(str(mode))} is not supported (its kernel differs between the backends of Keras)"
            raise unsupported(reason, "use `nearest` or `bilinear`")
    if tuple(shape) == x.shape:
        return x
    factors = {n: 1 / scales[n] for n in range(first, first + len(sizes))}
    tables = other_elements(x, op, factors, 0.5) if mode == "nearest" else {}
    for axis, table in tables.items():
        x = call.emit(Gather(axis), x, call.constant(table))
    return x if tables else call.emit(op, x)


@layer("UpSampling1D", "UpSampling2D", "UpSampling3D")
def upsampling(call: KerasCall) -> Result:
    count, x = int(call.layer.kind[-2]), call.x
    factors = call.wholes("size", count, 2)
    sizes = tuple(n * f for n, f in zip(spatial(call, x, count), factors, strict=True))
    return resized(call, x, sizes, call.option("interpolation", "nearest"))


def _of_ratio(sizes: tuple[int, ...], wanted: tuple[int, ...]) -> list[int]:
    """How high an image would be for its width, and how wide for its height."""
    if min(wanted) < 1:
        raise Fault("bad-attribute", f"it makes an image of {list(wanted)}")
    if moves(sizes):
        raise unsupported("keeping the aspect ratio of an image whose size the caller says is not supported", "give it a size")
    return [int(float(sizes[1 - n] * wanted[n]) / wanted[1 - n]) for n in (0, 1)]


def cut_to_ratio(call: KerasCall, x: Value, wanted: tuple[int, ...]) -> Value:
    """The middle of the image, of the shape that is asked for."""
    sizes, first = spatial(call, x, 2), 2 if call.channels_first else 1
    for n, (size, keep) in enumerate(zip(sizes, _of_ratio(sizes, wanted), strict=True)):
        keep = max(min(size, keep), 1)
        x = part(call, x, first + n, int(float(size - keep) / 2), keep)
    return x


def _filled_to_ratio(call: KerasCall, x: Value, wanted: tuple[int, ...]) -> Value:
    """`fill_value` on two sides, as many rows or columns on both."""
    if call.option("fill_mode", "constant") != "constant":
        raise Fault("bad-attribute", f"`fill_mode` is {quoted(str(call.option('fill_mode')))}, which is not valid")
    sizes, first, rank = spatial(call, x, 2), 2 if call.channels_first else 1, x.type.rank
    pads = [0] * (2 * rank)
    for n, (size, all_) in enumerate(zip(sizes, _of_ratio(sizes, wanted), strict=True)):
        pads[first + n] = pads[rank + first + n] = int(float(max(size, all_) - size) / 2)
    return padded(call, x, pads, "constant", call.number("fill_value", 0.0))


@layer("Resizing")
def resizing(call: KerasCall) -> Result:
    x = call.x
    spatial(call, x, 2)
    sizes = (call.whole("height"), call.whole("width"))
    if call.flag("crop_to_aspect_ratio"):
        x = cut_to_ratio(call, x, sizes)
    elif call.flag("pad_to_aspect_ratio"):
        x = _filled_to_ratio(call, x, sizes)
    return resized(call, x, sizes, call.option("interpolation", "bilinear"), call.flag("antialias"))
