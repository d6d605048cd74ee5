"""3x3 convolution with stride 1 of floats by Winograd's F(m x m, 3x3): a quarter of the products (m = 4), or 4/9 of them (m = 2).

    for each block of patches, few enough to stay in the cache:
      each patch, each vector of channels      V = B' d B                        -> scratch [(m+2)^2][patches][channels]
      (m+2)^2 products by register tiles       M = V U                           -> scratch [(m+2)^2][patches][out channels]
      each patch, each vector of channels      y = A' M A + bias, fused steps

U = G g G' is computed and packed at compile time (`transform.py`). A patch that reaches over the border is copied first, with zeros
around it. A transform runs along rows into a small buffer and then along columns, so that it fits the registers and is short text.

Does not apply with `--exact`, since results are rounded differently from a direct sum; nor where memory has a limit, since weights
grow by 4 (m = 4) or 16/9 (m = 2). Layers with many channels and few pixels stay direct for that reason: see `estimates`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from intaglio.ir.types import DType
from intaglio.kernels.contraction.fma import Fma, computed, direct_us, not_float_image, pack_bias, pack_panels
from intaglio.kernels.contraction.problem import Problem, problem_of
from intaglio.kernels.contraction.tile import Tile, choose_tile, cycles, parse_tile, possible_tiles
from intaglio.kernels.contraction.tiles import Tiles
from intaglio.kernels.contraction.transform import POINTS, TAPS, Transform, transform
from intaglio.kernels.epilogue import Epilogue, epilogue_of, steps_text
from intaglio.kernels.estimate import micros
from intaglio.kernels.job import Job, Lowered, fact
from intaglio.kernels.loop import Buffer, Expr, idx, imax, imin
from intaglio.ops.conv import Conv
from intaglio.targets import Target

LINE = 16  # numbers of a cache line: planes of scratch memory start in different sets of the cache
MOST_SCRATCH = 4 << 20
TRANSFORM_CYCLES = 6.0  # per product, patch and vector. With AVX2, 36 products (m = 4) took 170 to 210, 16 (m = 2) took 65 to 90
EVEN = 1.12  # tiles of the thread that has most, of the mean: above it, threads divide the products instead
GAIN = 7 / 8  # the estimate must be this much better, for the memory and the rounding that it costs


# How it is cut ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Plan:
    """Patches of the images, and how many of them go through the scratch memory at a time."""

    way: Transform
    down: int
    across: int
    patches: int
    tile: Tile
    block: int
    wide: int  # output channels, padded to whole vectors
    own: bool = True  # each thread has patches of its own; or all share one block, and divide its products

    @property
    def products(self) -> int:
        return self.way.reach**2

    def windows(self, p: Problem) -> Problem:
        """The patches as windows over the image."""
        reach, size = self.way.reach, self.way.size
        return replace(p, kernel=(reach, reach), strides=(size, size), out_height=self.down, out_width=self.across)


def plan_of(p: Problem, target: Target, lanes: int, size: int, asked: Tile | None = None) -> Plan:
    way = transform(size)
    down, across = -(-p.out_height // size), -(-p.out_width // size)
    patches = p.batch * down * across
    wide = -(-p.out_channels // lanes) * lanes
    tile = asked or choose_tile(target, patches, wide, p.channels, lanes)
    tiles, threads, product_bytes = -(-patches // tile.rows), target.threads, way.reach**2 * 4
    own = -(-tiles // threads) * threads <= EVEN * tiles or tiles * tile.rows * product_bytes * (p.channels + wide) > MOST_SCRATCH
    if own:
        share = patches if threads == 1 else -(-tiles // threads) * tile.rows
        block = _block(share, tile.rows, product_bytes, p.channels, wide, target.l2_bytes)
    else:
        block = tiles * tile.rows
    return Plan(way, down, across, patches, tile, block, wide, own)


def _block(patches: int, rows: int, product_bytes: int, channels: int, wide: int, l2_bytes: int) -> int:
    """The number of patches that moves the fewest bytes behind L2. All weights are read for each block; what goes through the
    scratch memory is written and read, unless it stays in L2."""
    each = product_bytes * (channels + wide)
    most = max(1, -(-patches // rows))
    best, least = 1, float("inf")
    for count in range(1, most + 1):  # tiles
        if count > 1 and count * rows * each > MOST_SCRATCH:
            break
        kept = count * rows * each <= l2_bytes * 3 // 4
        blocks = -(-most // count)
        moved = blocks * product_bytes * channels * wide + (0 if kept else 2 * patches * each)
        if moved < least:
            best, least = -(-most // blocks), moved  # evenly, in as many blocks
    return best * rows


# Whether it pays ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Estimates:
    """Microseconds of one layer: the direct convolution, and F(m x m, 3x3) by m."""

    direct: float
    by_size: dict[int, float]

    @property
    def best(self) -> int:
        return min(self.by_size, key=lambda size: self.by_size[size])

    def __str__(self) -> str:
        ways = ", ".join(f"F({m}x{m}) {time:.0f} us" for m, time in self.by_size.items())
        return f"estimated {self.direct:.0f} us direct, {ways}"


@fact
def estimates(job: Job) -> Estimates:
    p = problem_of(job)
    return Estimates(direct_us(p, job.target, job.vector.lanes), {size: _micros(job, p, size) for size in POINTS})


def _micros(job: Job, p: Problem, size: int, asked: Tile | None = None) -> float:
    target, lanes = job.target, job.vector.lanes
    plan = plan_of(p, target, lanes, size, asked)
    vectors = -(-p.channels // lanes) + plan.wide // lanes
    steps = plan.products * (
        cycles(target, plan.tile, plan.patches, plan.wide, p.channels, lanes) + TRANSFORM_CYCLES * vectors * plan.patches
    )
    return micros(target, lanes, steps, plan.products * p.channels * plan.wide * DType.F32.bytes)


def winograd_ways(job: Job) -> list[str]:
    """The best size first; none where the user's wishes speak against it."""
    if _not_wished(job):
        return []
    p, lanes = problem_of(job), job.vector.lanes
    ways = []
    for size in sorted(POINTS, key=lambda size: size != estimates(job).best):
        plan = plan_of(p, job.target, lanes, size)
        tiles = possible_tiles(job.target, plan.patches, plan.wide, lanes, plan.tile)
        ways += [f"winograd(m={size},tile={tile})" for tile in tiles]
    return ways


def winograd_estimate(job: Job) -> float:
    return _micros(job, problem_of(job), _asked_size(job) or estimates(job).best, parse_tile(job.asked))


def winograd_applies(job: Job) -> str | None:
    return not_float_image(job) or computed(job) or _not_possible(job) or _not_wanted(job)


def _not_possible(job: Job) -> str | None:
    p, target = problem_of(job), job.target
    if target.bare or target.device or not job.vector.vector:
        return "it is for processors with vectors of floats"
    if p.group != 1 or (p.kernel, p.strides, p.dilations) != ((TAPS, TAPS), (1, 1), (1, 1)):
        return "it is not 3x3 with stride 1, dilation 1 and one group"
    if job.type(1).dtype is not DType.F32:
        return f"the weights are {job.type(1).dtype.value}, not f32"
    if target.exact:
        return "it changes rounding, and `--exact` is set"
    size = _asked_size(job)
    return f"m is one of {', '.join(map(str, POINTS))}" if size not in (None, *POINTS) else None


def _asked_size(job: Job) -> int | None:
    """The m of an edited `using winograd(m=4,tile=6x2)`."""
    found = re.match(r"winograd\(m=(\d+)\b", job.asked)
    return int(found[1]) if found else None


def _not_wanted(job: Job) -> str | None:
    if job.asked.partition("(")[0] == "winograd":
        return None
    if reason := _not_wished(job):
        return reason
    found = estimates(job)
    if found.by_size[found.best] <= GAIN * found.direct:
        return None
    clear = found.by_size[found.best] >= found.direct
    return f"{'direct convolution is faster' if clear else 'it gains too little to pay for its weights'}: {found}"


def _not_wished(job: Job) -> str | None:
    if job.target.optimize == "size":
        return "its weights are larger, and `--optimize size` is set"
    if job.target.wasm:
        return "its weights are larger, and a page has to load them"
    if job.target.limited:
        return "its weights are larger and it needs scratch memory, and memory has a limit"
    return None


def why_winograd(job: Job) -> str:
    return str(estimates(job))


# The kernel ---------------------------------------------------------------------------------------------------------------


def winograd(job: Job) -> Lowered:
    op, node, p = job.node.op, job.node, problem_of(job)
    weights, bias = node.inputs[1], job.optional(2)
    assert isinstance(op, Conv) and weights is not None and weights.data is not None
    size = _asked_size(job) or estimates(job).best
    plan = plan_of(p, job.target, job.vector.lanes, size, parse_tile(job.asked))
    x = job.operand(0, "x")
    matrices = plan.way.turned(weights.data).astype(np.float32)
    u = pack_panels(job, list(np.pad(matrices, ((0, 0), (0, 0), (0, plan.wide - p.out_channels)))), plan.tile, "u")
    b = pack_bias(job, None if bias is None else bias.data, 1, plan.tile)
    epilogue = epilogue_of(job, op.epilogue, [v for v in node.inputs[3:] if v is not None], node.output.shape)
    before, after = Before(job, p, plan, x), After(job, p, plan, b, epilogue)
    k, count = job.k, plan.products
    matrix = Problem.matrix(plan.block, p.channels, plan.wide)
    tiles = Tiles(k, matrix, plan.tile, Fma(job.vector, u, None, after.planes.buffer, Epilogue((), ())))
    low, high = job.share("first", plan.patches, plan.tile.rows) if plan.own else (idx(0), idx(plan.patches))
    with k.loop("first", low, high, plan.block) as first:
        there = k.let("there", imin(plan.block, high - first))
        with k.loop("patch", 0, there) as at:
            before.write(at, first + at)
        with k.loop("product", 0, count) as n:
            tiles.x_base, tiles.y_base = n * before.planes.pitch, n * after.planes.pitch
            tiles.w_base = n * (p.channels * plan.wide)
            tiles.first_rows(before.planes.buffer, there, plan.patches % plan.tile.rows)
        with k.loop("patch", 0, there) as at:
            after.write(at, first + at)
    about = (
        f"{p.title('conv')}{steps_text(op.epilogue)}\n"
        f"Winograd F({size}x{size}, 3x3), NHWC, {plan.block} patches at a time, "
        f"{plan.tile.about(plan.patches, 'row', job.vector.lanes, 'channels')}, "
        f"weights packed [product][block][ic][{plan.tile.vectors * job.vector.lanes}]"
    )
    return job.done(p.stem("winograd"), about, f"winograd(m={size},tile={plan.tile})", over=epilogue.over)


@dataclass(frozen=True, slots=True)
class Planes:
    """Scratch memory with a matrix for each product: a row of `columns` numbers per patch, matrices `pitch` numbers apart."""

    buffer: Buffer
    columns: int
    pitch: int


def _planes(job: Job, plan: Plan, name: str, columns: int) -> Planes:
    pitch = plan.block * columns + LINE
    return Planes(job.scratch(plan.products * pitch, name, own=plan.own), columns, pitch)


def _place(job: Job, plan: Plan, which: Expr) -> tuple[Expr, Expr, Expr]:
    """Image, row and column of the first result of a patch."""
    k, size = job.k, plan.way.size
    n = k.let("n", which // (plan.down * plan.across))
    return n, k.let("oh", which // plan.across % plan.down * size), k.let("ow", which % plan.across * size)


def _each_vector(job: Job, channels: int, body: Callable[[Expr, int], None]) -> None:
    """Call `body` for all channels, a vector at a time: the first one and how many."""
    k, lanes = job.k, job.vector.lanes
    whole = channels // lanes * lanes
    with k.loop("c", 0, whole, lanes) as c:
        body(c, lanes)
    if channels > whole:
        with k.block():
            body(idx(whole), channels - whole)


class Before:
    """The transform of the input: V = B' d B."""

    def __init__(self, job: Job, p: Problem, plan: Plan, x: Buffer) -> None:
        self.job, self.p, self.plan, self.x = job, p, plan, x
        self.windows = plan.windows(p)
        self.planes = _planes(job, plan, "v", p.channels)
        self.half = job.scratch(plan.products * job.vector.lanes, "half", own=True)
        self.padded = job.scratch(plan.products * p.channels, "padded", own=True) if self.windows.padded else None

    def write(self, at: Expr, which: Expr) -> None:
        """Patch number `which` of all, number `at` of its block."""
        k, p = self.job.k, self.p
        n, oh, ow = _place(self.job, self.plan, which)
        top, left = k.let("top", oh - p.pads[0]), k.let("left", ow - p.pads[1])
        start = k.let("start", ((n * p.height + top) * p.width + left) * p.channels)
        inside = self.windows.inside(top, left)
        if self.padded is None:
            self._channels(self.x, start, p.width, at)
        elif isinstance(inside, bool):
            self._border(self.padded, top, left, start, at)
        else:
            with k.when(inside):
                self._channels(self.x, start, p.width, at)
            with k.otherwise():
                self._border(self.padded, top, left, start, at)

    def _border(self, padded: Buffer, top: Expr, left: Expr, start: Expr, at: Expr) -> None:
        """A copy of the patch, with zeros where it is outside the image."""
        k, e, p, reach = self.job.k, self.job.vector, self.p, self.plan.way.reach
        _each_vector(self.job, self.plan.products * p.channels, lambda z, count: k.store(padded, z, e.const(0.0), count))
        first, last = k.let("first_column", imax(0, 0 - left)), k.let("last_column", imin(reach, p.width - left))
        with k.loop("i", imax(0, 0 - top), imin(reach, p.height - top)) as i, k.loop("j", first, last) as j:
            k.copy(padded, (i * reach + j) * p.channels, self.x, start + (i * p.width + j) * p.channels, p.channels)
        self._channels(padded, idx(0), reach, at)

    def _channels(self, source: Buffer, start: Expr, width: int, at: Expr) -> None:
        """`width`: pixels in a row of the source."""
        channels = self.p.channels
        _each_vector(
            self.job, channels, lambda c, count: self._vector(source, start + c, width * channels, at * channels + c, count)
        )

    def _vector(self, source: Buffer, start: Expr, pitch: int, to: Expr, count: int) -> None:
        k, e, way, half, planes = self.job.k, self.job.vector, self.plan.way, self.half, self.planes
        reach = way.reach
        with k.loop("i", 0, reach) as i:
            line = k.let("line", start + i * pitch)
            row = [k.let(f"d{j}", e.load(source, line + j * self.p.channels, count)) for j in range(reach)]
            for n, value in enumerate(way.of_input(k, e, row, "t")):
                k.store(half, (i * reach + n) * e.lanes, value)
        with k.loop("j", 0, reach) as j:
            column = [k.let(f"d{i}", e.load(half, (j + i * reach) * e.lanes)) for i in range(reach)]
            for n, value in enumerate(way.of_input(k, e, column, "t")):
                k.store(planes.buffer, to + (j + n * reach) * planes.pitch, value, count)


class After:
    """The transform of the products: y = A' M A + bias, and the fused steps."""

    def __init__(self, job: Job, p: Problem, plan: Plan, bias: Buffer | None, epilogue: Epilogue) -> None:
        self.job, self.p, self.plan, self.bias, self.epilogue = job, p, plan, bias, epilogue
        self.planes = _planes(job, plan, "m", plan.wide)
        self.half = job.scratch(plan.way.size * plan.way.reach * job.vector.lanes, "halves", own=True)
        self.y = job.writes()

    def write(self, at: Expr, which: Expr) -> None:
        k, p, size = self.job.k, self.p, self.plan.way.size
        n, oh, ow = _place(self.job, self.plan, which)
        start = k.let("start", ((n * p.out_height + oh) * p.out_width + ow) * p.out_channels)
        rows = k.let("rows", imin(size, p.out_height - oh)) if p.out_height % size else idx(size)
        whole, rest = p.out_width // size, p.out_width % size
        if not (whole and rest):
            self._channels(at, start, rows, rest or size)
            return
        with k.when(ow.compare("lt", whole * size)):
            self._channels(at, start, rows, size)
        with k.otherwise():
            self._channels(at, start, rows, rest)

    def _channels(self, at: Expr, start: Expr, rows: Expr, columns: int) -> None:
        """The first rows and columns of the results are inside the image."""
        wide = self.planes.columns

        def vector(c: Expr, count: int) -> None:
            self._columns(at * wide + c)
            self._rows(start + c, c, rows, columns, count)

        _each_vector(self.job, self.p.out_channels, vector)

    def _columns(self, start: Expr) -> None:
        k, e, way, planes = self.job.k, self.job.vector, self.plan.way, self.planes
        with k.loop("j", 0, way.reach) as j:
            places = [start + (j + i * way.reach) * planes.pitch for i in range(way.reach)]
            column = [k.let(f"d{i}", e.load(planes.buffer, place)) for i, place in enumerate(places)]
            for i, value in enumerate(way.of_products(k, e, column, "t")):
                k.store(self.half, (i * way.reach + j) * e.lanes, value)

    def _rows(self, start: Expr, c: Expr, rows: Expr, columns: int, count: int) -> None:
        k, e, p, way = self.job.k, self.job.vector, self.p, self.plan.way
        bias = None if self.bias is None else k.let("bias", e.load(self.bias, c))
        with k.loop("i", 0, rows) as i:
            row = [k.let(f"d{j}", e.load(self.half, (i * way.reach + j) * e.lanes)) for j in range(way.reach)]
            for j, value in enumerate(way.of_products(k, e, row, "t")[:columns]):
                to = k.let("to", start + (i * p.out_width + j) * p.out_channels)
                total = value if bias is None else k.let("total", e.add(value, bias))
                k.store(self.y, to, self.epilogue.finish(k, e, total, c, to, count), count)
