"""The loops of Winograd's method, for floats (`winograd.py`) and whole numbers (`qwinograd.py`).

    for each block of patches, few enough to stay in the cache:
      each patch, each vector of channels      V = B' d B                        -> scratch [(m+2)^2][patches][channels]
      (m+2)^2 products by register tiles       M = V U                           -> scratch [(m+2)^2][patches][out channels]
      each patch, each vector of channels      y = A' M A, and what the end of the kernel makes of it

A patch that reaches over the border is copied first, with what padding is around it. A transform runs along rows into a small
buffer and then along columns, so that it fits the registers and is short text.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Protocol

from intaglio.ir.sizes import Size, most
from intaglio.ir.types import DType
from intaglio.kernels.builder import Builder
from intaglio.kernels.contraction.micro import MicroKernel
from intaglio.kernels.contraction.problem import Problem
from intaglio.kernels.contraction.tile import Tile
from intaglio.kernels.contraction.tiles import Tiles, far_weights
from intaglio.kernels.contraction.transform import Arithmetic, Transform
from intaglio.kernels.job import Job
from intaglio.kernels.loop import Buffer, Expr, Operand, idx, imax, imin
from intaglio.targets import Target

LINE_BYTES = 64  # of the cache: planes of scratch memory start in different sets of it
MOST_SCRATCH = 4 << 20
EVEN = 1.12  # tiles of the thread that has most, of the mean: above it, threads divide the products instead


# How it is cut ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Sizes:
    """Bytes of a number: of a transformed patch, of a weight, of a product."""

    patch: int
    weight: int
    product: int


@dataclass(frozen=True, slots=True)
class Plan:
    """Patches of the images, and how many of them go through the scratch memory at a time. Where the caller says how large the
    image is, `down`, `across` and `patches` are what it says; all else is for the largest."""

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


def cut(p: Problem, target: Target, way: Transform, tile: Tile, wide: int, sizes: Sizes) -> Plan:
    """`wide`: output channels, padded to whole vectors."""
    down, across = -(-p.out_height // way.size), -(-p.out_width // way.size)
    patches, products = p.batch * down * across, way.reach**2
    each = products * (p.channels * sizes.patch + wide * sizes.product)
    tiles, threads = -(-most(patches) // tile.rows), 1 if p.moves else target.threads
    own = -(-tiles // threads) * threads <= EVEN * tiles or tiles * tile.rows * each > MOST_SCRATCH
    if own:
        share = most(patches) if threads == 1 else -(-tiles // threads) * tile.rows
        block = _block(share, tile.rows, each, products * p.channels * wide * sizes.weight, target.l2_bytes)
    else:
        block = tiles * tile.rows
    return Plan(way, down, across, patches, tile, block, wide, own)


def _block(patches: int, rows: int, each: int, weights: int, l2_bytes: int) -> int:
    """The number of patches, of `each` so many bytes, that moves the fewest bytes behind L2. All weights are read for each block;
    what goes through the scratch memory is written and read, unless it stays in L2."""
    most = max(1, -(-patches // rows))
    best, least = 1, float("inf")
    for count in range(1, most + 1):  # tiles
        if count > 1 and count * rows * each > MOST_SCRATCH:
            break
        kept = count * rows * each <= l2_bytes * 3 // 4
        blocks = -(-most // count)
        moved = blocks * weights + (0 if kept else 2 * patches * each)
        if moved < least:
            best, least = -(-most // blocks), moved  # evenly, in as many blocks
    return best * rows


# Loops --------------------------------------------------------------------------------------------------------------------


class Vectors(Arithmetic, Protocol):
    """Vectors that transforms compute in."""

    @property
    def lanes(self) -> int: ...

    @property
    def dtype(self) -> DType:
        """Of transformed numbers in memory."""

    def load(self, buffer: Buffer, index: Operand, count: int = 0) -> Expr: ...


class Ends(Protocol):
    """What becomes of results, `vectors` side by side at a time."""

    @property
    def vectors(self) -> int: ...

    def constants(self, k: Builder, c: Expr) -> Sequence[Expr | None]:
        """Numbers of the channels from `c` on."""

    def store(self, k: Builder, values: list[Expr], constants: Sequence[Expr | None], c: Expr, to: Expr, count: int) -> None: ...


def by_patches(job: Job, p: Problem, plan: Plan, before: Before, after: After, micro: MicroKernel) -> None:
    """All of the layer; `micro` multiplies, with weights packed [product][block][channel]."""
    k = job.k
    far = far_weights(job.target, plan.products * p.channels * plan.wide * micro.w.dtype.bytes)
    tiles = Tiles(k, Problem.matrix(plan.block, p.channels, plan.wide), plan.tile, micro, far=far)
    fixed = not isinstance(plan.patches, Size)
    low, high = job.share("first", plan.patches, plan.tile.rows) if plan.own and fixed else (idx(0), idx(plan.patches))
    with k.loop("first", low, high, plan.block) if fixed or most(plan.patches) > plan.block else nullcontext(low) as first:
        there = k.let("there", imin(plan.block, high - first))
        with k.loop("patch", 0, there) as at:
            before.write(at, first + at)
        with k.loop("product", 0, plan.products) as n:
            tiles.x_base, tiles.y_base = n * before.planes.pitch, n * after.planes.pitch
            tiles.w_base = n * (p.channels * plan.wide)
            tiles.first_rows(before.planes.buffer, there, plan.patches % plan.tile.rows)
        with k.loop("patch", 0, there) as at:
            after.write(at, first + at)


@dataclass(frozen=True, slots=True)
class Planes:
    """Scratch memory with a matrix for each product: a row of `columns` numbers per patch, matrices `pitch` numbers apart."""

    buffer: Buffer
    columns: int
    pitch: int


def _planes(job: Job, plan: Plan, name: str, columns: int, dtype: DType) -> Planes:
    pitch = plan.block * columns + LINE_BYTES // dtype.bytes
    return Planes(job.scratch(plan.products * pitch, name, dtype, own=plan.own), columns, pitch)


def _place(job: Job, plan: Plan, which: Expr) -> tuple[Expr, Expr, Expr]:
    """Image, row and column of the first result of a patch."""
    k, size = job.k, plan.way.size
    if isinstance(plan.patches, Size):  # divisions that take a while: as few as possible
        row = k.let("row", which // plan.across)
        column, single = k.let("ow", (which - row * plan.across) * size), plan.patches == plan.down * plan.across
        n = idx(0) if single else k.let("n", row // plan.down)
        return n, k.let("oh", (row - n * plan.down) * size), column
    n = k.let("n", which // (plan.down * plan.across))
    return n, k.let("oh", which // plan.across % plan.down * size), k.let("ow", which % plan.across * size)


def _each_vector(k: Builder, lanes: int, channels: int, body: Callable[[Expr, int], None]) -> None:
    """Call `body` for all channels, `lanes` at a time: the first one and how many."""
    whole = channels // lanes * lanes
    with k.loop("c", 0, whole, lanes) as c:
        body(c, lanes)
    if channels > whole:
        with k.block():
            body(idx(whole), channels - whole)


class Before:
    """The transform of the input: V = B' d B. `zeros`: a vector of x as padding has it."""

    def __init__(self, job: Job, p: Problem, plan: Plan, x: Buffer, e: Vectors, zeros: Expr) -> None:
        self.job, self.p, self.plan, self.x, self.e, self.zeros = job, p, plan, x, e, zeros
        self.windows = plan.windows(p)
        self.planes = _planes(job, plan, "v", p.channels, e.dtype)
        self.half = job.scratch(plan.products * e.lanes, "partial", e.dtype, own=True)
        self.padded = job.scratch(plan.products * p.channels, "padded", x.dtype, own=True) if self.windows.padded else None

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
        """A copy of the patch, with padding where it is outside the image."""
        k, p, reach = self.job.k, self.p, self.plan.way.reach
        lanes = self.zeros.type.lanes
        _each_vector(k, lanes, self.plan.products * p.channels, lambda z, count: k.store(padded, z, self.zeros, count))
        first, last = k.let("first_column", imax(0, 0 - left)), k.let("last_column", imin(reach, p.width - left))
        with k.loop("i", imax(0, 0 - top), imin(reach, p.height - top)) as i, k.loop("j", first, last) as j:
            k.copy(padded, (i * reach + j) * p.channels, self.x, start + (i * p.width + j) * p.channels, p.channels)
        self._channels(padded, idx(0), reach, at)

    def _channels(self, source: Buffer, start: Expr, width: int, at: Expr) -> None:
        """`width`: pixels in a row of the source."""
        channels = self.p.channels

        def vector(c: Expr, count: int) -> None:
            self._vector(source, start + c, width * channels, at * channels + c, count)

        _each_vector(self.job.k, self.e.lanes, channels, vector)

    def _vector(self, source: Buffer, start: Expr, pitch: int, to: Expr, count: int) -> None:
        k, e, way, half, planes = self.job.k, self.e, self.plan.way, self.half, self.planes
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
    """The transform of the products: A' M A, and what `ends` makes of it."""

    def __init__(self, job: Job, p: Problem, plan: Plan, e: Vectors, ends: Ends) -> None:
        self.job, self.p, self.plan, self.e, self.ends = job, p, plan, e, ends
        self.planes = _planes(job, plan, "m", plan.wide, e.dtype)
        self.each = plan.way.size * plan.way.reach * e.lanes
        self.half = job.scratch(ends.vectors * self.each, "partial_results", e.dtype, own=True)

    def write(self, at: Expr, which: Expr) -> None:
        k, p, size = self.job.k, self.p, self.plan.way.size
        n, oh, ow = _place(self.job, self.plan, which)
        start = k.let("start", ((n * p.out_height + oh) * p.out_width + ow) * p.out_channels)
        rows = k.let("rows", imin(size, p.out_height - oh)) if p.out_height % size != 0 else idx(size)
        whole, rest = p.out_width // size, p.out_width % size
        if whole == 0 or rest == 0:
            k.one_of(rest if whole == 0 else size, lambda columns: self._channels(at, start, rows, columns))
            return
        with k.when(ow.compare("lt", whole * size)):
            self._channels(at, start, rows, size)
        with k.otherwise():
            k.one_of(rest, lambda columns: self._channels(at, start, rows, columns))

    def _channels(self, at: Expr, start: Expr, rows: Expr, columns: int) -> None:
        """The first rows and columns of the results are inside the image."""
        wide, lanes, vectors = self.planes.columns, self.e.lanes, self.ends.vectors

        def vector(c: Expr, count: int) -> None:
            for v in range(vectors):
                self._columns(at * wide + (c + v * lanes), v * self.each)
            self._rows(start + c, c, rows, columns, count)

        _each_vector(self.job.k, vectors * lanes, self.p.out_channels, vector)

    def _columns(self, start: Expr, to: int) -> None:
        k, e, way, planes = self.job.k, self.e, self.plan.way, self.planes
        with k.loop("j", 0, way.reach) as j:
            places = [start + (j + i * way.reach) * planes.pitch for i in range(way.reach)]
            column = [k.let(f"d{i}", e.load(planes.buffer, place)) for i, place in enumerate(places)]
            for i, value in enumerate(way.of_products(k, e, column, "t")):
                k.store(self.half, (i * way.reach + j) * e.lanes + to, value)

    def _rows(self, start: Expr, c: Expr, rows: Expr, columns: int, count: int) -> None:
        k, p, ends = self.job.k, self.p, self.ends
        constants = ends.constants(k, c)
        with k.loop("i", 0, rows) as i:
            found = [self._row(i, v) for v in range(ends.vectors)]
            for j in range(columns):
                to = k.let("to", start + (i * p.out_width + j) * p.out_channels)
                ends.store(k, [values[j] for values in found], constants, c, to, count)

    def _row(self, i: Expr, v: int) -> list[Expr]:
        """Results of a row of a patch, vector `v` of those that go together."""
        k, e, way = self.job.k, self.e, self.plan.way
        row = [k.let(f"d{j}", e.load(self.half, (i * way.reach + j) * e.lanes + v * self.each)) for j in range(way.reach)]
        return way.of_products(k, e, row, "t")
