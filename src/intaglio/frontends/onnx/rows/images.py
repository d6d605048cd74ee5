"""Resize in all its versions, and sampling."""

from __future__ import annotations

import math

import numpy as np

from intaglio.frontends.building import one_factor, scaled_size
from intaglio.frontends.onnx.call import Answer, OnnxCall, importer
from intaglio.frontends.onnx.faults import Fault
from intaglio.frontends.resize_ranges import Way, resized
from intaglio.ir.graph import Value
from intaglio.ir.sizes import Size, is_size, least
from intaglio.ops.resize import Resize
from intaglio.ops.sample import GridSample, RoiAlign


def _scales(call: OnnxCall, values: list[float], rank: int) -> list[float]:
    if len(values) != rank or not all(math.isfinite(s) and 0 < s < 1e6 for s in values):
        raise Fault("bad-attribute", f"`{call.op}` has the scales {values}")
    return values


def _sized(x: Value, scales: list[float]) -> tuple[int, ...]:
    """floor(input * scale) in single precision, as ONNX Runtime does: 10 * 0.7f is 7."""
    return tuple(_scaled(n, s) for n, s in zip(x.shape, scales, strict=True))


def _scaled(size: int, scale: float) -> int:
    if not isinstance(size, Size):
        return int(np.float32(size) * np.float32(scale))
    return scaled_size(size, float(np.float32(scale)), (size.values.astype(np.float32) * np.float32(scale)).astype(np.int64))


@importer("Upsample")
def upsample(call: OnnxCall) -> Answer:
    x = call.value(0)
    values = call.floats("scales")
    if values is None:
        values = [float(v) for v in call.numbers(1, "scales").reshape(-1).tolist()]
    scales = _scales(call, values, len(x.shape))
    mode = call.text("mode", "nearest").replace("bilinear", "linear")
    op = Resize(_sized(x, scales), tuple(scales), (), mode, "asymmetric", "simple")
    return call.emit(op, x)


@importer("Resize")
def resize(call: OnnxCall) -> Answer:
    x = call.value(0)
    rank = len(x.shape)
    mode = call.text("mode", "nearest")
    if call.version < 11:
        scales = _scales(call, [float(v) for v in call.numbers(1, "scales").reshape(-1).tolist()], rank)
        return call.emit(Resize(_sized(x, scales), tuple(scales), (), mode, "asymmetric", "simple"), x)
    given = call.maybe_numbers(2, "scales")
    wanted = call.maybe_int_list(3, "sizes")
    axes = call.checked_axes(call.ints("axes") or list(range(rank)), rank)
    full_scales = [1.0] * rank
    shape = list(x.shape)
    if given is not None and given.size:
        part = _scales(call, [float(v) for v in given.reshape(-1).tolist()], len(axes))
        for axis, scale in zip(axes, part, strict=True):
            full_scales[axis] = scale
        shape = list(_sized(x, full_scales))
        ways = {axis: _way(call, full_scales[axis]) for axis in axes}
        x, done = resized(call, x, {axis: shape[axis] for axis in axes}, ways)
        for axis in done:
            full_scales[axis] = 1.0
        if x is not call.value(0) and tuple(shape) == x.shape:
            return x
    elif wanted:
        x = _over_ranges(call, x, axes, wanted)
        shape, full_scales = _by_sizes(call, x, axes, wanted)
        if x is not call.value(0) and tuple(shape) == x.shape:
            return x
    else:
        raise Fault("bad-attribute", "`Resize` has neither scales nor sizes")
    coordinate = call.text("coordinate_transformation_mode", "half_pixel")
    roi: tuple[float, ...] = ()
    if coordinate == "tf_crop_and_resize":
        region = [float(v) for v in call.numbers(1, "region").reshape(-1).tolist()]
        starts, ends = [0.0] * rank, [1.0] * rank
        if len(region) != 2 * len(axes):
            raise Fault("bad-attribute", f"`Resize` has a region of {len(region)} numbers")
        for i, axis in enumerate(axes):
            starts[axis], ends[axis] = region[i], region[i + len(axes)]
        roi = (*starts, *ends)
    op = Resize(
        tuple(shape), tuple(full_scales), roi, mode, coordinate, call.text("nearest_mode", "round_prefer_floor"),
        call.real("cubic_coeff_a", -0.75), bool(call.integer("exclude_outside")),
        call.real("extrapolation_value", 0.0), bool(call.integer("antialias")),
    )  # fmt: skip
    return call.emit(op, x)


def _over_ranges(call: OnnxCall, x: Value, axes: tuple[int, ...], wanted: list[int]) -> Value:
    """Along the axes for which there is no one factor."""
    if len(wanted) != len(axes) or call.text("keep_aspect_ratio_policy", "stretch") != "stretch":
        return x
    return resized(call, x, dict(zip(axes, wanted, strict=True)), dict.fromkeys(axes, _way(call)))[0]


def _way(call: OnnxCall, scale: float | None = None) -> Way:
    mode = "antialias" if call.integer("antialias") else call.text("mode", "nearest")
    coordinate = call.text("coordinate_transformation_mode", "half_pixel")
    return Way(mode, coordinate, call.text("nearest_mode", "round_prefer_floor"), scale)


def _ratio(size: int, before: int) -> float:
    found = one_factor(size, before) if is_size(before) and least(before) > 0 else None
    return size / before if found is None else found


def _by_sizes(call: OnnxCall, x: Value, axes: tuple[int, ...], wanted: list[int]) -> tuple[list[int], list[float]]:
    if len(wanted) != len(axes) or any(n < 0 for n in wanted):
        raise Fault("bad-attribute", f"`Resize` to the sizes {wanted} is not valid")
    shape, scales = list(x.shape), [1.0] * len(x.shape)
    policy = call.text("keep_aspect_ratio_policy", "stretch")
    if any(x.shape[a] == 0 for a in axes):
        raise Fault("shape-mismatch", f"`Resize` of the empty {list(x.shape)} is not valid")
    if policy == "stretch":
        for axis, size in zip(axes, wanted, strict=True):
            shape[axis], scales[axis] = size, 1.0 if size == 0 else _ratio(size, x.shape[axis])
        return shape, scales
    ratios = [_ratio(size, x.shape[axis]) for axis, size in zip(axes, wanted, strict=True)]
    scale = min(ratios) if policy == "not_larger" else max(ratios)
    for axis in axes:
        shape[axis], scales[axis] = math.floor(scale * x.shape[axis] + 0.5), scale
    return shape, scales


@importer("GridSample")
def grid_sample(call: OnnxCall) -> Answer:
    mode = call.text("mode", "linear").replace("bilinear", "linear").replace("bicubic", "cubic")
    op = GridSample(mode, call.text("padding_mode", "zeros"), bool(call.integer("align_corners")))
    return call.emit(op, call.value(0), call.value(1))


@importer("RoiAlign")
def roi_align(call: OnnxCall) -> Answer:
    default = "half_pixel" if call.version >= 16 else "output_half_pixel"
    coordinate = call.text("coordinate_transformation_mode", default)
    op = RoiAlign(
        call.integer("output_height", 1), call.integer("output_width", 1), call.integer("sampling_ratio"),
        call.real("spatial_scale", 1.0), call.text("mode", "avg"), coordinate == "half_pixel",
    )  # fmt: skip
    return call.emit(op, call.value(0), call.value(1), call.value(2))
