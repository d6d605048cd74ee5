"""3x3 convolution with stride 1 by Winograd's F(2x2, 3x3): 16 products where the direct way has 36.

    1  every 4x4 patch of the input, two apart:   V = B' d B          -> scratch [16][tiles][channels]
    2  16 matrix products                         M = V U             -> scratch [16][tiles][out channels]
    3  2x2 results per tile                       y = A' M A + bias, and the fused steps

U = G g G' is computed at compile time; the transforms are those of `contraction/transform.py`. Worth it for many channels and many
pixels; the scratch is part of the plan.
"""

from __future__ import annotations

import math

import numpy as np

from intaglio.ir.types import DType
from intaglio.kernels.builder import Builder
from intaglio.kernels.contraction.problem import Problem, problem_of
from intaglio.kernels.contraction.transform import transform
from intaglio.kernels.epilogue import Epilogue, epilogue_of
from intaglio.kernels.job import Job, Lowered
from intaglio.kernels.lanes import Lanes
from intaglio.kernels.loop import Buffer, Expr, Op, both
from intaglio.kernels.opencl.conv import image_conv, packed_bias
from intaglio.kernels.opencl.isa import vector
from intaglio.kernels.opencl.launch import Launch, Variant, device_kernel, global_id, group_for, launch_of
from intaglio.kernels.opencl.matmul import Product, product_variants
from intaglio.kernels.opencl.tiles import block_width, pack_blocks
from intaglio.ops.conv import Conv

LEAST_CHANNELS, LEAST_TILES, MOST_SCRATCH = 32, 49, 16 << 20
_LANES = 4
_WAY = transform(2)


def _tiles(geo: Problem) -> tuple[int, int]:
    """Tiles of 2x2 results in an image: rows, columns."""
    return -(-geo.out_height // 2), -(-geo.out_width // 2)


def winograd_applies(job: Job) -> str | None:
    if reason := image_conv(job):
        return reason
    geo, weights = problem_of(job), job.node.inputs[1]
    assert weights is not None
    if job.asked and "winograd" not in job.asked:
        return "the IR file asks for another kernel"
    if job.target.exact:
        return "it changes rounding, and `--exact` is set"
    if job.target.optimize == "size":
        return "it needs scratch memory, and `--optimize size` is set"
    if geo.group != 1 or (geo.kernel, geo.strides, geo.dilations) != ((3, 3), (1, 1), (1, 1)):
        return "it is not 3x3 with stride 1, dilation 1 and one group"
    if weights.dtype is not DType.F32:
        return f"the weights are {weights.dtype.value}, not f32"
    if geo.channels % _LANES or geo.out_channels % _LANES:
        return f"the channels are not a multiple of {_LANES}"
    return None if "winograd" in job.asked else _not_worth_it(geo)


def _not_worth_it(geo: Problem) -> str | None:
    tiles = geo.batch * math.prod(_tiles(geo))
    if min(geo.channels, geo.out_channels) < LEAST_CHANNELS:
        return f"there are fewer than {LEAST_CHANNELS} channels, so that direct convolution is faster"
    if tiles < LEAST_TILES:
        return f"there are fewer than {LEAST_TILES} tiles, so that direct convolution is faster"
    scratch = 16 * tiles * (geo.channels + geo.out_channels) * 4
    return f"it needs {scratch} bytes of scratch memory, more than {MOST_SCRATCH} bytes" if scratch > MOST_SCRATCH else None


def winograd(job: Job) -> Lowered:
    op, node, geo = job.node.op, job.node, problem_of(job)
    assert isinstance(op, Conv)
    weights = node.inputs[1]
    assert weights is not None and weights.data is not None
    high, across = _tiles(geo)
    tiles = geo.batch * high * across
    x = job.operand(0, "x")
    wide = block_width(geo.out_channels)
    packed = [pack_blocks(m.astype(np.float32), wide) for m in _WAY.turned(weights.data)]
    u = job.packed(np.concatenate(packed), "u")
    b = packed_bias(job, op, wide)
    epilogue = epilogue_of(job, op.epilogue, [v for v in node.inputs[3:] if v is not None], node.output.shape)
    v = job.scratch(16 * tiles * geo.channels, "v")
    m = job.scratch(16 * tiles * geo.out_channels, "m")
    y = job.writes()
    about = (
        f"conv 3x3 by Winograd F(2x2, 3x3), {geo.channels} -> {geo.out_channels} channels, {geo.height}x{geo.width} -> "
        f"{geo.out_height}x{geo.out_width}" + "".join(f" + {s.op.NAME}" for s in op.epilogue)
    )
    product = Product(
        tiles, geo.channels, geo.out_channels, v, u, None, m, Epilogue((), ()), (16,), (tiles * geo.channels,), (packed[0].size,)
    )
    first = _input(job, geo, x, v, high, across, f"{about}\nV = B' d B")
    last = _output(job, geo, m, b, y, epilogue, high, across, f"{about}\ny = A' M A")
    variants = [
        Variant(f"winograd_{way.label}", (first, *_only(way, v, u, m), last), way.cpu)
        for way in product_variants(job, product, f"{about}\n16 matrix products M = V U")
    ]
    return device_kernel(job, f"winograd_{geo.channels}_{geo.out_channels}", about, variants, epilogue.over)


def _only(way: Variant, *params: Buffer) -> tuple[Launch, ...]:
    for launch in way.launches:
        launch.params = params
    return way.launches


def _input(job: Job, geo: Problem, x: Buffer, v: Buffer, high: int, across: int, about: str) -> Launch:
    k = Builder()
    k.reserve("x", "v")
    parts, tiles = geo.channels // _LANES, geo.batch * high * across
    part, tile = k.let("part", global_id(0)), k.let("tile", global_id(1))
    e = vector(_LANES)
    with k.when(both(part.compare("lt", parts), tile.compare("lt", tiles))):
        c = k.let("c", part * _LANES)
        left, top = _corner(k, tile, high, across)
        row0, column0 = k.let("row0", top - geo.pads[0]), k.let("column0", left - geo.pads[1])
        n = k.let("n", tile // (high * across))
        d: list[list[Expr]] = []
        for i in range(4):
            row = k.let("row", row0 + i)
            line = []
            for j in range(4):
                spot = column0 + j
                inside = both(
                    both(row.compare("ge", 0), row.compare("lt", geo.height)),
                    both(spot.compare("ge", 0), spot.compare("lt", geo.width)),
                )
                value = e.load(x, ((n * geo.height + row) * geo.width + spot) * geo.channels + c)
                line.append(k.let(f"d{i}{j}", Op("select", (inside, value, e.const(0.0)), value.type)))
            d.append(line)
        columns = [_WAY.of_input(k, e, [d[i][j] for i in range(4)], f"t{j}_") for j in range(4)]  # along rows
        for i in range(4):
            for j, value in enumerate(_WAY.of_input(k, e, [columns[j][i] for j in range(4)], f"u{i}_")):
                k.store(v, ((4 * i + j) * tiles + tile) * geo.channels + c, value)
    size = (parts, tiles)
    return launch_of(k, "winograd_in", [x, v], size, group_for(size, 64, 16), group_for(size, 64, 16), about=about)


def _corner(k: Builder, tile: Expr, high: int, across: int) -> tuple[Expr, Expr]:
    return k.let("left", (tile % across) * 2), k.let("top", (tile // across) % high * 2)


def _output(
    job: Job, geo: Problem, m: Buffer, b: Buffer | None, y: Buffer, epilogue: Epilogue, high: int, across: int, about: str
) -> Launch:
    k = Builder()
    params = [p for p in job.params if p not in (job.params[0],) and p.name not in ("u", "v")]
    k.reserve(*(p.name for p in params))
    parts, tiles = geo.out_channels // _LANES, geo.batch * high * across
    part, tile = k.let("part", global_id(0)), k.let("tile", global_id(1))
    e = vector(_LANES)
    with k.when(both(part.compare("lt", parts), tile.compare("lt", tiles))):
        c = k.let("c", part * _LANES)
        at = [
            [k.let(f"m{i}{j}", e.load(m, ((4 * i + j) * tiles + tile) * geo.out_channels + c)) for j in range(4)] for i in range(4)
        ]
        columns = [_WAY.of_products(k, e, [at[i][j] for i in range(4)], f"t{j}_") for j in range(4)]
        left, top = _corner(k, tile, high, across)
        n = k.let("n", tile // (high * across))
        bias = k.let("bias", e.load(b, c)) if b is not None else None
        for i in range(2):
            for j, value in enumerate(_WAY.of_products(k, e, [columns[j][i] for j in range(4)], f"y{i}_")):
                result = k.let("sum", e.add(value, bias)) if bias is not None else value
                place = k.let("to", ((n * geo.out_height + top + i) * geo.out_width + left + j) * geo.out_channels + c)
                tests = [(top + i).compare("lt", geo.out_height)] if i and geo.out_height % 2 else []
                tests += [(left + j).compare("lt", geo.out_width)] if j and geo.out_width % 2 else []
                _write(k, e, epilogue, y, result, c, place, tests)
    size = (parts, tiles)
    return launch_of(k, "winograd_out", params, size, group_for(size, 64, 16), group_for(size, 64, 16), about=about)


def _write(k: Builder, e: Lanes, epilogue: Epilogue, y: Buffer, value: Expr, c: Expr, place: Expr, tests: list[Expr]) -> None:
    def store() -> None:
        final = epilogue.finish(k, e, value, c, place, e.lanes) if epilogue.steps else value
        k.store(y, place, final)

    if not tests:
        store()
        return
    with k.when(tests[0] if len(tests) == 1 else both(tests[0], tests[1])):
        store()
