"""Interpolation, sampling at a grid, and boxes."""

from __future__ import annotations

import math

import numpy as np

from intaglio.frontends.building import one_factor, other_elements, reshape, scaled_size
from intaglio.frontends.onnx.faults import Fault, unsupported
from intaglio.frontends.resize_ranges import Way, resized
from intaglio.frontends.torch.call import Answer, TorchCall, row
from intaglio.frontends.torch.rows.windows import batched
from intaglio.ir.graph import Value
from intaglio.ir.sizes import Size, least, most, moves
from intaglio.ops.index import Gather
from intaglio.ops.matmul import MatMul
from intaglio.ops.resize import Resize
from intaglio.ops.sample import GridSample

NAMES = {
    "upsample_nearest1d": 1, "upsample_nearest2d": 2, "upsample_nearest3d": 3, "_upsample_nearest_exact1d": 1,
    "_upsample_nearest_exact2d": 2, "_upsample_nearest_exact3d": 3, "upsample_linear1d": 1, "upsample_bilinear2d": 2,
    "upsample_trilinear3d": 3, "upsample_bicubic2d": 2, "_upsample_bilinear2d_aa": 2, "_upsample_bicubic2d_aa": 2,
}  # fmt: skip


@row(*NAMES)
def upsample(call: TorchCall) -> Answer:
    rank = NAMES[call.op]
    return batched(call, call.first(), rank, lambda x: _resized(call, x, rank))


def _resized(call: TorchCall, x: Value, rank: int) -> Value:
    """Where a scale is given, coordinates follow it and not the sizes, as in torch."""
    given = _scales(call, rank)
    sizes = call.maybe_ints("output_size") or call.maybe_ints("size")
    spatial = x.shape[2:]
    if sizes is None:
        if any(s is None for s in given):
            raise Fault("bad-attribute", f"`{call.op}` has neither sizes nor scales")
        sizes = [_scaled(n, float(s or 1)) for n, s in zip(spatial, given, strict=True)]
    call.bounded(most(sum(sizes)))
    if len(sizes) != rank or min(map(least, (*sizes, *spatial))) < 1:
        raise Fault("bad-attribute", f"`{call.op}` of {list(spatial)} to {sizes} is not valid")
    x, given = _over_ranges(call, x, sizes, given)
    spatial = x.shape[2:]
    if tuple(sizes) == spatial and moves(spatial):
        return x
    scales = [1.0, 1.0]
    for n, size, scale in zip(spatial, sizes, given, strict=True):
        scales.append(scale if scale is not None else one_factor(size, n) or size / n)
    if not all(math.isfinite(s) and s > 0 for s in scales):
        raise Fault("bad-attribute", f"`{call.op}` by the scales {scales[2:]} is not valid")
    exact = "exact" in call.op
    mode = "nearest" if "nearest" in call.op else "cubic" if "cubic" in call.op else "linear"
    if mode == "nearest":
        coordinate, rounding = ("half_pixel", "round_prefer_ceil") if exact else ("asymmetric", "floor")
    else:
        coordinate = "align_corners" if call.flag("align_corners") else "half_pixel"
        rounding = "round_prefer_floor"
    shape = (*x.shape[:2], *sizes)
    aa = call.op.endswith("_aa")
    if coordinate == "align_corners":
        scales = [1.0, 1.0, *[one_factor(size, n) or size / n for n, size in zip(spatial, sizes, strict=True)]]
    # Antialiasing in torch is Pillow's: its cubic has a = -0.5, and what lies outside does not count.
    op = Resize(shape, tuple(scales), (), mode, coordinate, rounding, -0.5 if aa else -0.75, aa, 0.0, aa)
    if mode == "nearest" and not moves((*spatial, *sizes)):
        factors = {n + 2: 1 / scale if scale is not None else spatial[n] / sizes[n] for n, scale in enumerate(given)}
        tables = other_elements(x, op, factors, 0.5 if exact else 0.0)
        for axis, table in tables.items():
            x = call.emit(Gather(axis), x, call.constant(table))
        return x if tables else call.emit(op, x)
    return call.emit(op, x)


def _over_ranges(call: TorchCall, x: Value, sizes: list[int], given: list[float | None]) -> tuple[Value, list[float | None]]:
    """Along the axes whose places are computed when it runs; and the scales of what is left."""
    left = list(given)
    exact = "exact" in call.op
    mode = "nearest" if "nearest" in call.op else "linear" if "linear" in call.op and not call.op.endswith("_aa") else call.op
    corners = mode != "nearest" and call.flag("align_corners")
    coordinate = "align_corners" if corners else "half_pixel" if exact or mode != "nearest" else "asymmetric"
    ways = {axis: Way(mode, coordinate, "floor", scale, torch=True) for axis, scale in enumerate(given, 2)}
    x, done = resized(call, x, dict(enumerate(sizes, 2)), ways)
    for axis in done:
        left[axis - 2] = 1.0
    return x, left


def _scaled(size: int, scale: float) -> int:
    """floor(input * scale) in doubles, as in torch."""
    if not isinstance(size, Size):
        return math.floor(size * scale)
    return scaled_size(size, scale, np.floor(size.values * scale).astype(np.int64))


def _scales(call: TorchCall, rank: int) -> list[float | None]:
    factors = call.get("scale_factors")
    if isinstance(factors, list) and factors:
        return [float(f) for f in factors]
    names = {1: ("scales",), 2: ("scales_h", "scales_w"), 3: ("scales_d", "scales_h", "scales_w")}[rank]
    return [None if call.get(name) is None else call.real(name) for name in names]


@row("grid_sampler", "grid_sampler_2d", "grid_sampler_3d")
def grid_sample(call: TorchCall) -> Answer:
    x, grid = call.tensor("input"), call.tensor("grid")
    mode = {0: "linear", 1: "nearest", 2: "cubic"}.get(call.integer("interpolation_mode", 0), "")
    padding = {0: "zeros", 1: "border", 2: "reflection"}.get(call.integer("padding_mode", 0), "")
    return call.emit(GridSample(mode, padding, call.flag("align_corners")), x, grid)


@row("affine_grid_generator")
def affine_grid(call: TorchCall) -> Answer:
    """theta [N,d,d+1] times the homogeneous coordinates of a grid, which are constants."""
    theta, size = call.tensor("theta"), call.ints("size")
    align, spatial = call.flag("align_corners"), size[2:]
    if len(spatial) not in (2, 3) or min(size) < 1 or math.prod(spatial) > 1 << 22:
        raise unsupported(f"`affine_grid` for the size {size} is not supported")
    lines = []
    for n in spatial:
        centres = (np.arange(n) * 2 + 1) / n - 1
        lines.append(centres if not align else np.linspace(-1, 1, n) if n > 1 else np.zeros(n))
    mesh = np.meshgrid(*lines, indexing="ij")
    points = np.stack([*[m.reshape(-1) for m in mesh[::-1]], np.ones(math.prod(spatial))], axis=1)
    y = call.emit(MatMul(transpose_b=True), call.constant(points, theta.dtype), theta)
    return reshape(call, y, (size[0], *spatial, len(spatial)))
