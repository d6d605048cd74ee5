"""3x3 convolution with stride 1 of bytes by Winograd's F(m x m, 3x3): a quarter of the products (m = 4), or 4/9 of them (m = 2).

    V = B' d B                   numbers of 16 bits: x grows at most by 4 (m = 2) or 100 (m = 4)
    M = V U                      U = G g G' in 16 bits, products of two (`vdot2`) added in 32, which wrap
    f * sum = A' M A             f = 4 or 576, modulo 2^32
    y = bytes(sum + bias)        the sum itself: times the inverse of the odd part of f, shifted by the rest

All transforms are whole numbers (`transform.py`), and additions that wrap are exact where the end result fits. So this is no
approximation: sums are those of `dots.py`, bit for bit. What has to fit is checked when a model is compiled: V and U in 16 bits,
the largest sum in what the shift leaves of 32.

Where the caller says how large the image is, patches are counted when it runs; all else is planned for the largest one.

For instruction sets whose only exact product of bytes is `vdot2` or one of pairs: where four bytes are multiplied at once, direct
convolution has half as many instructions per product. Does not apply to input channels that are no whole vectors, or where memory
has a limit, since weights grow by 8 (m = 4) or 32/9 (m = 2).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from intaglio.ir.graph import Array
from intaglio.ir.types import DType
from intaglio.kernels.builder import Builder
from intaglio.kernels.contraction.dots import (
    Dots,
    Facts,
    Rows,
    Runs,
    arranged,
    dots_of,
    dots_us,
    pack_weights,
    ranked,
)
from intaglio.kernels.contraction.listed import GAIN as OF_ESTIMATE
from intaglio.kernels.contraction.listed import listed_us, possible
from intaglio.kernels.contraction.micro import Column
from intaglio.kernels.contraction.patches import After, Before, Plan, Sizes, by_patches, cut
from intaglio.kernels.contraction.problem import Problem, problem_of
from intaglio.kernels.contraction.scaling import Bytes, Factor, factor_of, i32, splat
from intaglio.kernels.contraction.tile import Block, Tile, parse_tile
from intaglio.kernels.contraction.transform import TAPS, WHOLE_POINTS, WholeTransform, whole_transform
from intaglio.kernels.contraction.winograd import Estimates, mean_of, not_wished
from intaglio.kernels.estimate import micros
from intaglio.kernels.isa import Dot, Isa
from intaglio.kernels.job import Job, Lowered, fact
from intaglio.kernels.loop import Buffer, Expr, Load, Num, Op, Operand, Type, idx
from intaglio.ops.quantised import QConv

NAME = "qwinograd"
GAIN = 7 / 8  # the estimate must be this much better, for the memory that it costs
PRODUCTS = 0.7  # of the estimate of `dots.py`: weights are not widened
INPUT_CYCLES, OUTPUT_CYCLES = 3.0, 4.0  # per product, patch and vector: of 16 bits before, of 32 bits after the products


# Numbers ------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class WholeLanes:
    """Vectors of numbers of 16 or 32 bits, which wrap."""

    isa: Isa
    dtype: DType

    @property
    def lanes(self) -> int:
        return self.isa.lanes * (4 // self.dtype.bytes)

    @property
    def type(self) -> Type:
        return Type(self.dtype.value, self.lanes)

    def load(self, buffer: Buffer, index: Operand, count: int = 0) -> Expr:
        """Bytes are widened."""
        assert count in (0, self.lanes)
        loaded = Load(buffer, idx(index), Type(buffer.dtype.value, self.lanes))
        return loaded if buffer.dtype is self.dtype else Op(f"vwiden_{buffer.dtype.value}", (loaded,), self.type)

    def const(self, value: float) -> Expr:
        name = "vsplat_i16" if self.dtype is DType.I16 else "visplat"
        return Op(name, (Num(int(value), Type(self.dtype.value)),), self.type)

    def _binary(self, name: str, a: Expr, b: Expr) -> Expr:
        return Op(f"v{name}_i16" if self.dtype is DType.I16 else f"vi{name}", (a, b), self.type)

    def add(self, a: Expr, b: Expr) -> Expr:
        return self._binary("add", a, b)

    def sub(self, a: Expr, b: Expr) -> Expr:
        return self._binary("sub", a, b)

    def mul(self, a: Expr, b: Expr) -> Expr:
        return self._binary("mul", a, b)

    def fma(self, a: Expr, b: Expr, c: Expr) -> Expr:
        return self.add(self.mul(a, b), c)


# What is known before anything is built -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Possible:
    """The transforms that are exact, by their size, with weights as matrices [products, out channels, channels]."""

    facts: Facts
    problem: Problem
    dot: Dot
    weights: dict[int, Array]


def _exact(whole: WholeTransform, known: Facts) -> Array | None:
    """Transformed weights, where nothing is lost; None where a number may not fit."""
    numbers, info = known.numbers, np.iinfo(known.numbers.x.numpy)
    most = max(int(info.max), -int(info.min))
    sums = int(np.abs(numbers.weights).reshape(numbers.outs, -1).sum(axis=1).max()) * most
    turned = np.rint(whole.way.turned(numbers.weights)).astype(np.int64).transpose(0, 2, 1)
    fits = whole.growth * most <= 32767 and int(np.abs(turned).max()) <= 32767 and sums < 2**31 >> _ending(whole)[1]
    return turned if fits else None


def _ending(whole: WholeTransform) -> tuple[int, int]:
    """How a result is divided by its factor: what it is multiplied by modulo 2^32, and shifted by."""
    shift = (whole.factor & -whole.factor).bit_length() - 1
    inverse = pow(whole.factor >> shift, -1, 2**32)
    return inverse - 2**32 if inverse >= 2**31 else inverse, shift


@fact
def winograd_of(job: Job) -> Possible | str:
    """What a kernel needs, or why there is none."""
    known, op = dots_of(job), job.node.op
    if isinstance(known, str):
        return known
    assert isinstance(op, QConv)
    p, dots = problem_of(job), job.isa.integers.dots
    shorts = next((dot for dot in dots if dot.narrow_weights and dot.group == 2), None)
    if shorts is None or "vmul_i16" not in job.isa.table or any(dot.group >= 4 and not dot.pairs for dot in dots):
        return "the target has better products of bytes"
    if p.group != 1 or (p.kernel, p.strides, p.dilations) != ((TAPS, TAPS), (1, 1), (1, 1)):
        return "it is not 3x3 with stride 1, dilation 1 and one group"
    if p.channels % (2 * job.isa.lanes):
        return f"the input channels are no multiple of {2 * job.isa.lanes}"
    turned = {size: _exact(whole_transform(size), known) for size in WHOLE_POINTS}
    exact = {size: weights for size, weights in turned.items() if weights is not None}
    return Possible(known, p, shorts, exact) if exact else "transformed numbers may not fit 16 bits, or sums 32"


def _possible(job: Job) -> Possible:
    found = winograd_of(job)
    assert not isinstance(found, str)
    return found


def _plan(job: Job, p: Problem, size: int, asked: Tile | None = None) -> Plan:
    sizes = Sizes(DType.I16.bytes, DType.I16.bytes, DType.I32.bytes)
    return cut(p, job.target, whole_transform(size).way, asked or _ranked(job, p, size)[0], _wide(job, p), sizes)


def _wide(job: Job, p: Problem) -> int:
    """Output channels, padded to whole vectors of 16 bits."""
    return -(-p.out_channels // (2 * job.isa.lanes)) * 2 * job.isa.lanes


def _ranked(job: Job, p: Problem, size: int) -> list[Tile]:
    return ranked(_runs(job, p.most(), size), job.target.registers)


def _runs(job: Job, p: Problem, size: int) -> Runs:
    patches = p.batch * -(-p.out_height // size) * -(-p.out_width // size)
    return Runs(patches, whole_transform(size).way.reach**2, _wide(job, p), p.channels // 2, job.isa.lanes, 1)


def _micros(job: Job, p: Problem, size: int, asked: Tile | None = None) -> float:
    plan, lanes = _plan(job, p, size, asked), job.isa.lanes
    turning = INPUT_CYCLES * p.channels / (2 * lanes) + OUTPUT_CYCLES * plan.wide / lanes
    steps = PRODUCTS * _runs(job, p, size).cycles(plan.tile) + plan.products * plan.patches * turning
    return micros(job.target, lanes, steps, plan.products * p.channels * plan.wide * DType.I16.bytes)


@fact
def estimates(job: Job) -> Estimates:
    """By the kernel that would be taken otherwise. Of a range, all sizes that are looked at count alike, as those of floats do."""
    known, listed = _possible(job), possible(job)
    direct = [OF_ESTIMATE * dots_us(job, one) for one in known.facts.some()]
    if not isinstance(listed, str):
        direct = [min(pair) for pair in zip(direct, (listed_us(job, one) for one in listed.some()), strict=True)]
    times = [{size: _micros(job, one.problem, size) for size in known.weights} for one in known.facts.some()]
    found = [Estimates(*both) for both in zip(direct, times, strict=True)]
    return mean_of(found) if known.problem.moves else found[0]


def _asked_size(job: Job) -> int | None:
    """The m of an edited `using qwinograd(m=4,tile=6x2)`."""
    found = re.match(rf"{NAME}\(m=(\d+)\b", job.asked)
    return int(found[1]) if found else None


def qwinograd_applies(job: Job) -> str | None:
    known = winograd_of(job)
    if isinstance(known, str):
        return known
    if job.asked.partition("(")[0] == NAME:
        size, sizes = _asked_size(job), ", ".join(map(str, known.weights))
        return None if size in (None, *known.weights) else f"m is one of {sizes}"
    if reason := not_wished(job):
        return reason
    found = estimates(job)
    if found.by_size[found.best] <= GAIN * found.direct:
        return None
    return f"it gains too little to pay for its weights: {found}"


def why_qwinograd(job: Job) -> str:
    return str(estimates(job))


def qwinograd_ways(job: Job) -> list[str]:
    """The best size first; none where the user's wishes speak against it."""
    if not_wished(job):
        return []
    found = estimates(job)
    ways = []
    for size in sorted(found.by_size, key=lambda size: found.by_size[size]):
        ways += [f"{NAME}(m={size},tile={tile})" for tile in _ranked(job, _possible(job).problem, size)]
    return ways


def qwinograd_estimate(job: Job) -> float:
    p, size = _possible(job).problem, _asked_size(job) or estimates(job).best
    return _micros(job, p.most(), size, parse_tile(job.asked) or _ranked(job, p, size)[0])


# The kernel ---------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ToSums:
    """Sums start from nothing and are stored as they are."""

    isa: Isa
    y: Buffer

    def first(self, k: Builder, rows: int, block: Block, at: Column) -> list[list[Expr]]:
        return [[splat(self.isa, 0)] * block.vectors] * rows

    def finish(self, k: Builder, sums: Rows, block: Block, at: Column, places: list[Expr]) -> None:
        for row, place in zip(sums, places, strict=True):
            for v, total in enumerate(row):
                k.store(self.y, place + v * self.isa.lanes, total)


@dataclass(frozen=True, slots=True)
class Divided:
    """Results of a transform as bytes: divided by its factor, with bias, scaled; two vectors at a time."""

    e: WholeLanes
    whole: WholeTransform
    bias: Buffer
    factor: Factor
    bytes: Bytes
    y: Buffer

    @property
    def vectors(self) -> int:
        return 2

    def constants(self, k: Builder, c: Expr) -> Sequence[Expr | None]:
        found: list[Expr | None] = []
        for v in range(self.vectors):
            at = c + v * self.e.lanes
            found += [k.let(f"bias{v}", self.e.load(self.bias, at)), *self.factor.constants(k, at, str(v))]
        return found

    def store(self, k: Builder, values: list[Expr], constants: Sequence[Expr | None], c: Expr, to: Expr, count: int) -> None:
        inverse, shift = _ending(self.whole)
        each, scaled = len(constants) // self.vectors, []
        for v, value in enumerate(values):
            bias, *rest = constants[v * each : (v + 1) * each]
            assert bias is not None
            total = value if inverse == 1 else self.e.mul(value, self.e.const(inverse))
            total = Op("vishift_right", (total, self.e.const(shift)), i32(self.e.isa))
            scaled.append(self.factor.apply(k, k.let("total", self.e.add(total, bias)), rest))
        self.bytes.store(k, self.y, to, count, scaled)


def qwinograd(job: Job) -> Lowered:
    known = _possible(job)
    size = _asked_size(job) or estimates(job).best
    p, whole = known.problem, whole_transform(size)
    plan = _plan(job, p, size, parse_tile(job.asked))
    numbers, x = known.facts.numbers, job.operand(0, "x")
    wide = np.pad(known.weights[size], ((0, 0), (0, plan.wide - p.out_channels), (0, 0)))
    grouped = wide.reshape(plan.products, plan.wide, 1, p.channels // 2, 2)
    u = pack_weights(job, known.dot, grouped, plan.tile)

    def arrange(values: Array) -> Array:
        return arranged(values, 1, p.out_channels, 2 * job.isa.lanes)

    bias, factor = job.packed(arrange(numbers.starts(numbers.x_zero)), "b"), factor_of(job, known.facts.scaling, arrange)
    bytes_ = Bytes(job.isa, numbers.y_zero, numbers.low, numbers.high, numbers.to)
    shorts, sums = WholeLanes(job.isa, DType.I16), WholeLanes(job.isa, DType.I32)
    padding = Op(f"vsplat_{x.dtype.value}", (Num(numbers.x_zero, Type(x.dtype.value)),), Type(x.dtype.value, 2 * job.isa.lanes))
    before = Before(job, p, plan, x, shorts, padding)
    after = After(job, p, plan, sums, Divided(sums, whole, bias, factor, bytes_, job.writes()))
    by_patches(job, p, plan, before, after, Dots(job.isa, known.dot, u, ToSums(job.isa, after.planes.buffer)))
    about = (
        f"{p.title('qconv')}, {x.dtype.value}\n"
        f"Winograd F({size}x{size}, 3x3) of whole numbers, {plan.block} patches at a time, "
        f"{plan.tile.about(plan.patches, 'row', job.isa.lanes, 'channels')}, "
        f"weights packed [product][block][ic/2][{plan.tile.vectors * job.isa.lanes}][2], {known.dot.name}"
    )
    return job.done(p.stem(NAME), about, f"{NAME}(m={size},tile={plan.tile})")
