"""3x3 convolution with stride 1 of floats by Winograd's F(m x m, 3x3): a quarter of the products (m = 4), or 4/9 of them (m = 2).

    y = A' [ U * (B' d B) ] A + bias, fused steps        for each patch d of the input: `patches.py`

U = G g G' is computed and packed at compile time (`transform.py`).

Where the caller says how large the image is, patches are counted when it runs; all else is planned for the largest one.

Does not apply with `--exact`, since results are rounded differently from a direct sum; nor where memory has a limit, since weights
grow by 4 (m = 4) or 16/9 (m = 2). Layers with many channels and few pixels stay direct for that reason: see `estimates`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from statistics import geometric_mean

import numpy as np

from intaglio.ir.sizes import most
from intaglio.ir.types import DType
from intaglio.kernels.builder import Builder
from intaglio.kernels.contraction.fma import Fma, computed, direct_us, not_float_image, pack_bias, pack_panels
from intaglio.kernels.contraction.patches import After, Before, Plan, Sizes, by_patches, cut
from intaglio.kernels.contraction.problem import Problem, problem_of
from intaglio.kernels.contraction.tile import Tile, choose_tile, cycles, parse_tile, possible_tiles
from intaglio.kernels.contraction.transform import POINTS, TAPS, transform
from intaglio.kernels.epilogue import Epilogue, epilogue_of, steps_text
from intaglio.kernels.estimate import micros
from intaglio.kernels.job import Job, Lowered, fact
from intaglio.kernels.lanes import Lanes
from intaglio.kernels.loop import Buffer, Expr
from intaglio.ops.conv import Conv
from intaglio.targets import Target

TRANSFORM_CYCLES = 6.0  # per product, patch and vector. With AVX2, 36 products (m = 4) took 170 to 210, 16 (m = 2) took 65 to 90
MOST_SIZES = 16  # of a range, that the estimate looks at
GAIN = 7 / 8  # the estimate must be this much better, for the memory and the rounding that it costs


# How it is cut ------------------------------------------------------------------------------------------------------------


def plan_of(p: Problem, target: Target, lanes: int, size: int, asked: Tile | None = None) -> Plan:
    way, wide, number = transform(size), -(-p.out_channels // lanes) * lanes, DType.F32.bytes
    patches = p.batch * -(-p.out_height // size) * -(-p.out_width // size)
    tile = asked or choose_tile(target, most(patches), wide, p.channels, lanes)
    return cut(p, target, way, tile, wide, Sizes(number, number, number))


# Whether it pays ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Estimates:
    """Microseconds of one layer: the direct convolution, and F(m x m, 3x3) by m. `over_range`: as parts of what the direct one
    takes, the geometric mean of all sizes that were looked at: twice and half the time even out."""

    direct: float
    by_size: dict[int, float]
    over_range: bool = False

    @property
    def best(self) -> int:
        return min(self.by_size, key=lambda size: self.by_size[size])

    def __str__(self) -> str:
        if self.over_range:
            ways = ", ".join(f"F({m}x{m}) {part:.2g}" for m, part in self.by_size.items())
            return f"estimated over the range, as a part of direct: {ways}"
        ways = ", ".join(f"F({m}x{m}) {time:.3g} us" for m, time in self.by_size.items())
        return f"estimated {self.direct:.3g} us direct, {ways}"


def mean_of(found: Sequence[Estimates]) -> Estimates:
    """Of the sizes of a range."""
    parts = {size: geometric_mean(one.by_size[size] / one.direct for one in found) for size in found[0].by_size}
    return Estimates(1.0, parts, over_range=True)


@fact
def estimates(job: Job) -> Estimates:
    """For one thread, whatever the number of threads is: bits of a result do not depend on it."""
    p, alone = problem_of(job), replace(job.target, threads=1)
    if not p.moves:
        return _estimated(alone, job.vector.lanes, p)
    return mean_of([_estimated(alone, job.vector.lanes, one) for one in p.some(MOST_SIZES)])


@lru_cache(1024)
def _estimated(target: Target, lanes: int, p: Problem) -> Estimates:
    return Estimates(direct_us(p, target, lanes), {size: _micros(target, lanes, p, size) for size in POINTS})


def _micros(target: Target, lanes: int, p: Problem, size: int, asked: Tile | None = None) -> float:
    plan = plan_of(p, target, lanes, size, asked)
    vectors = -(-p.channels // lanes) + plan.wide // lanes
    steps = plan.products * (
        cycles(target, plan.tile, plan.patches, plan.wide, p.channels, lanes) + TRANSFORM_CYCLES * vectors * plan.patches
    )
    return micros(target, lanes, steps, plan.products * p.channels * plan.wide * DType.F32.bytes)


def winograd_ways(job: Job) -> list[str]:
    """The best size first; none where the user's wishes speak against it."""
    if not_wished(job):
        return []
    p, lanes = problem_of(job), job.vector.lanes
    ways = []
    for size in sorted(POINTS, key=lambda size: size != estimates(job).best):
        plan = plan_of(p, job.target, lanes, size)
        tiles = possible_tiles(job.target, plan.patches, plan.wide, lanes, plan.tile)
        ways += [f"winograd(m={size},tile={tile})" for tile in tiles]
    return ways


def winograd_estimate(job: Job) -> float:
    p, size = problem_of(job).most(), _asked_size(job) or estimates(job).best
    return _micros(job.target, job.vector.lanes, p, size, parse_tile(job.asked))


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
    if reason := not_wished(job):
        return reason
    found = estimates(job)
    if found.by_size[found.best] <= GAIN * found.direct:
        return None
    clear = found.by_size[found.best] >= found.direct
    return f"{'direct convolution is faster' if clear else 'it gains too little to pay for its weights'}: {found}"


def not_wished(job: Job) -> str | None:
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
    e = job.vector
    before = Before(job, p, plan, x, e, e.const(0.0))
    after = After(job, p, plan, e, Activated(e, b, epilogue, job.writes()))
    by_patches(job, p, plan, before, after, Fma(e, u, None, after.planes.buffer, Epilogue((), ())))
    about = (
        f"{p.title('conv')}{steps_text(op.epilogue)}\n"
        f"Winograd F({size}x{size}, 3x3), NHWC, {plan.block} patches at a time, "
        f"{plan.tile.about(plan.patches, 'row', job.vector.lanes, 'channels')}, "
        f"weights packed [product][block][ic][{plan.tile.vectors * job.vector.lanes}]"
    )
    return job.done(p.stem("winograd"), about, f"winograd(m={size},tile={plan.tile})", over=epilogue.over)


@dataclass(frozen=True, slots=True)
class Activated:
    """Results with bias and fused steps."""

    e: Lanes
    bias: Buffer | None
    epilogue: Epilogue
    y: Buffer

    @property
    def vectors(self) -> int:
        return 1

    def constants(self, k: Builder, c: Expr) -> Sequence[Expr | None]:
        return [None if self.bias is None else k.let("bias", self.e.load(self.bias, c))]

    def store(self, k: Builder, values: list[Expr], constants: Sequence[Expr | None], c: Expr, to: Expr, count: int) -> None:
        (value,), (bias,) = values, constants
        total = value if bias is None else k.let("total", self.e.add(value, bias))
        k.store(self.y, to, self.epilogue.finish(k, self.e, total, c, to, count), count)
