"""Layers in front of a network: crops of images, their contrast, numbers of intervals, and categories as vectors."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np

from intaglio.errors import quoted
from intaglio.frontends.building import cast, part, reshape, unsqueeze
from intaglio.frontends.keras.rows.convolution import spatial
from intaglio.frontends.keras.rows.shaping import cut_to_ratio, resized
from intaglio.frontends.keras.vocabulary import Key, tokens
from intaglio.frontends.keras.walk import KerasCall, Result, layer
from intaglio.frontends.lookup import place_of_number, place_of_text, text_table
from intaglio.frontends.onnx.faults import Fault, unsupported
from intaglio.ir.graph import Value
from intaglio.ir.sizes import moves
from intaglio.ir.types import DType, Layout
from intaglio.ops.activation import Clip
from intaglio.ops.binary import Add, Div, Equal, Less, LessEqual, LogicalOr, Mod, Mul, Sub, Where
from intaglio.ops.control import AssertTrue
from intaglio.ops.index import Gather
from intaglio.ops.reduce import Reduce
from intaglio.ops.unary import IsNan, Neg

_MOST = 1 << 24  # comparisons of one layer


@layer("CenterCrop", "RandomCrop")
def center_crop(call: KerasCall) -> Result:
    """What lies in the middle; an image that is smaller is first cut to the shape that is asked for, and then made larger."""
    x = cast(call, call.x, call.dtype)
    sizes, wanted = spatial(call, x, 2), (call.whole("height"), call.whole("width"))
    if min(wanted) < 1:
        raise Fault("bad-attribute", f"it crops to {list(wanted)}")
    if moves(sizes):
        raise unsupported("a crop out of an image whose size the caller says is not supported", "give the image a size")
    first = 2 if call.channels_first else 1
    over = [n - w for n, w in zip(sizes, wanted, strict=True)]
    if call.layer.kind == "RandomCrop" and any(over):
        reason = f"what becomes of {list(sizes)} when the model is used depends on the version of Keras"
        raise unsupported(reason, "use `CenterCrop` or `Resizing`, or give it images of its own size")
    if min(over) >= 0:
        for n, (more, size) in enumerate(zip(over, wanted, strict=True)):
            x = part(call, x, first + n, more // 2, size)
        return x
    return resized(call, cut_to_ratio(call, x, wanted), wanted, "bilinear")


@layer("AutoContrast")
def auto_contrast(call: KerasCall) -> Result:
    """The darkest value of each channel becomes black, the brightest white, also when the model is used."""
    x = call.x
    spatial(call, x, 2)
    told: Any = call.option("value_range", [0, 255])
    if not isinstance(told, list) or len(told) != 2 or not all(isinstance(n, (int, float)) for n in told) or told[0] == told[1]:
        raise Fault("bad-attribute", f"`value_range` is {quoted(str(told))}, which is not valid")
    if call.channels_first:
        raise unsupported("`AutoContrast` with the channels first is not supported")
    low, high = map(float, told)
    scaled = _ranged(call, cast(call, x, call.dtype), (low, high), (0.0, 255.0))
    least, most = (call.emit(Reduce(kind, (1, 2), True), scaled) for kind in ("min", "max"))
    factor = call.emit(Div(), call.like(255.0, scaled), call.emit(Sub(), most, least))
    offset = call.emit(Mul(), call.emit(Neg(), least), factor)
    stretched = call.emit(Add(), call.emit(Mul(), scaled, factor), offset)
    y = _ranged(call, call.emit(Clip(0.0, 255.0), stretched), (0.0, 255.0), (low, high))
    return call.emit(Where(), call.emit(IsNan(), y), cast(call, x, call.dtype), y)


def _ranged(call: KerasCall, x: Value, before: tuple[float, float], after: tuple[float, float]) -> Value:
    if before == after:
        return x
    part_of = call.emit(Div(), call.emit(Sub(), x, call.like(before[0], x)), call.like(before[1] - before[0], x))
    return call.emit(Add(), call.emit(Mul(), part_of, call.like(after[1] - after[0], x)), call.like(after[0], x))


@layer("Discretization")
def discretization(call: KerasCall) -> Result:
    """How many boundaries a number has reached: comparisons with all of them, and a sum."""
    told: Any = call.option("bin_boundaries")
    if not isinstance(told, list) or not told or not all(isinstance(n, (int, float)) for n in told):
        raise unsupported("it has no boundaries", "call `adapt` before the model is saved")
    x = call.x
    if math.prod(x.shape[1:]) * len(told) > _MOST:
        raise unsupported(f"{len(told)} boundaries for {list(x.shape)} are not supported")
    wide = x if x.dtype.is_float else cast(call, x, DType.F32)
    reached = call.emit(LessEqual(), call.constant(np.asarray(told, np.float32), wide.dtype), unsqueeze(call, wide, x.type.rank))
    count = call.emit(Reduce("sum", (x.type.rank,), False), cast(call, reached, DType.I32))
    return _encoded(call, count, len(told) + 1, DType.I32)


@layer("CategoryEncoding")
def category_encoding(call: KerasCall) -> Result:
    depth = call.whole("num_tokens")
    if depth < 1:
        raise Fault("bad-attribute", f"`num_tokens` is {depth}")
    x, *rest = call.tensors()
    weights = call.kwargs.get("count_weights", rest[0] if rest else None)
    return _encoded(call, x, depth, call.dtype, weights if isinstance(weights, Value) else None)


@layer("IntegerLookup", "StringLookup")
def lookup(call: KerasCall) -> Result:
    """The number of a word or of a number in a list; with `invert`, what has this number."""
    x, strings = call.x, call.layer.kind == "StringLookup"
    keys, first = tokens(call.layer, call.walk.weights)
    mask, others = call.option("mask_token"), call.whole("num_oov_indices", 1)
    if math.prod(x.shape[1:]) * len(keys) > _MOST and not strings:
        raise unsupported(f"{len(keys)} numbers for {list(x.shape)} are not supported")
    if call.flag("invert"):
        return _back(call, x, keys, first)
    if strings and x.type.layout is not Layout.TEXT:
        raise Fault("shape-mismatch", f"it takes strings, got {x.type}")
    if strings:
        place = place_of_text(call, x, [str(key) for key in keys])
    else:
        x = cast(call, x, DType.I64)
        place = place_of_number(call, x, np.array(keys, np.int64))
    masks = int(mask is not None and call.option("output_mode", "int") == "int")
    known = call.emit(Less(), place, call.like(len(keys), place))
    if others > 1 and (strings or call.option("oov_method", "floormod") != "floormod"):
        raise unsupported("several numbers for words that are not in the list need a hash that is not supported")
    other = call.like(masks, place)
    if others > 1:
        other = call.emit(Add(), call.emit(Mod(), x, call.like(others, place)), other)
    made = call.emit(Where(), known, call.emit(Add(), place, call.like(first, place)), other)
    hidden: Value | None = None
    if mask is not None:
        hidden = _is_mask(call, x, mask, strings)
        made = call.emit(Where(), hidden, call.like(0 if masks else -1, made), made)
    if others == 0:
        fits = known if hidden is None else call.emit(LogicalOr(), known, hidden)
        every = call.emit(Reduce("all", tuple(range(fits.type.rank)), False), fits)
        call.emit(AssertTrue("an input is not in the vocabulary, which has no number for others"), reshape(call, every, (1,)))
    size = call.option("max_tokens") if call.flag("pad_to_max_tokens") else first + len(keys)
    if type(size) is not int:
        raise Fault("bad-attribute", f"`max_tokens` is {quoted(str(size))}")
    return _encoded(call, made, size, DType.I64, to=DType.I64)


def _is_mask(call: KerasCall, x: Value, mask: Any, strings: bool) -> Value:
    if strings:
        found = place_of_text(call, x, [str(mask)])
        return call.emit(Equal(), found, call.like(0, found))
    return call.emit(Equal(), x, call.like(int(mask), x))


def _back(call: KerasCall, x: Value, keys: list[Key], first: int) -> Value:
    """`oov_token` where a number stands for nothing in the list."""
    mask, other = call.option("mask_token"), call.option("oov_token")
    if other is None:
        raise unsupported("it has no `oov_token`", "save the model with one")
    rows = [mask, *keys, other] if mask is not None else [*keys, other]
    numbers = np.array([*([0] if mask is not None else []), *range(first, first + len(keys))], np.int64)
    place = place_of_number(call, cast(call, x, DType.I64), numbers)
    if call.layer.kind == "IntegerLookup":
        return call.emit(Gather(0), call.constant(np.array(rows, np.int64)), place)
    words = call.emit(Gather(0), text_table(call, [str(row) for row in rows]), place)
    words.type = replace(words.type, layout=Layout.TEXT)
    return words


def _encoded(
    call: KerasCall, x: Value, depth: int, whole: DType, weights: Value | None = None, to: DType | None = None
) -> Value:
    """Categories as numbers, or as vectors of `depth` elements: one per element, or one for those along an axis together."""
    mode = {"binary": "multi_hot"}.get(str(call.option("output_mode", "int")), call.option("output_mode", "int"))
    if mode == "int":
        return cast(call, x, whole)
    if mode not in ("one_hot", "multi_hot", "count"):
        raise Fault("bad-attribute", f"`output_mode` is {quoted(str(mode))}, which is not valid")
    if call.flag("sparse"):
        raise unsupported("a sparse result is not supported", "save the model with `sparse=False`")
    if math.prod(x.shape[1:]) * depth > _MOST:
        raise unsupported(f"{depth} categories for {list(x.shape)} are not supported")
    rank = x.type.rank
    if mode == "one_hot" and rank > 1 and x.shape[-1] == 1:
        x = reshape(call, x, x.shape[:-1])
    ids = cast(call, x, DType.I64)
    same = call.emit(Equal(), unsqueeze(call, ids, x.type.rank), call.constant(np.arange(depth, dtype=np.int64)))
    found = cast(call, same, to or call.dtype)
    if mode == "one_hot":
        return found
    if weights is not None and mode == "count":
        found = call.emit(Mul(), found, unsqueeze(call, cast(call, weights, call.dtype), weights.type.rank))
    return call.emit(Reduce("max" if mode == "multi_hot" else "sum", (1 if rank > 1 else 0,), False), found)
