"""Depthwise convolution, max and average pooling in NHWC: each channel for itself, channels in the lanes.

    for oh, for ow step 4, for c step 8:           4 output pixels of 8 channels
      for kh:  load the (4-1)*stride + kw input columns once, use each in every window that covers it

Windows at the left and right border are written out without the taps outside; rows above and below are skipped by the bounds of
the loop over kh. The divisor of an average is a constant, or a table of reciprocals where windows overhang.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from intaglio.ir.sizes import Size, most
from intaglio.ir.types import DType
from intaglio.kernels.builder import Builder
from intaglio.kernels.contraction.fma import computed, not_float_image
from intaglio.kernels.contraction.gather import Line
from intaglio.kernels.contraction.pieces import Inside, pieces
from intaglio.kernels.contraction.problem import Problem, problem_of
from intaglio.kernels.contraction.tile import parse_pixels
from intaglio.kernels.epilogue import Epilogue, epilogue_of, steps_text
from intaglio.kernels.estimate import micros
from intaglio.kernels.job import Job, Lowered
from intaglio.kernels.lanes import Lanes
from intaglio.kernels.loop import Buffer, Expr, Num, Operand, Var, cast, idx
from intaglio.ops.conv import Conv
from intaglio.ops.pool import AveragePool, Pool

FEW_COLUMNS, MOST_COLUMNS = 4, 6
LINE_COLUMNS = 2  # where a vector is a whole line of the cache. Xeon, AVX-512: 2 pixels take 0.77 to 1.06 of the time of 6
MOST_TAPS = 160  # of a row of all narrow images over a range that have code of their own
MULTIPLY_CYCLES, LOAD_CYCLES, END_CYCLES = 0.6, 0.5, 3.0  # of a vector: a tap, a column of the image, start and end of a pixel


@dataclass(frozen=True, slots=True)
class Window:
    """How a window is reduced: `kind` is depthwise, max or average."""

    kind: str
    x: Buffer
    y: Buffer
    weights: Buffer | None
    bias: Buffer | None
    reciprocals: Buffer | None
    scale: float
    epilogue: Epilogue
    only_inside: bool = False  # an average is divided by the number of taps that are inside the image
    pitch: int = 0  # numbers in a row of weights: small ones are loaded as whole vectors


def depthwise_applies(job: Job) -> str | None:
    if reason := not_float_image(job):
        return reason
    p = problem_of(job)
    if p.depth > 1 or p.columns > 1:
        return "it is not depthwise"
    return computed(job)


def depthwise(job: Job) -> Lowered:
    op, node, p = job.node.op, job.node, problem_of(job)
    weights, bias = node.inputs[1], job.optional(2)
    assert isinstance(op, Conv) and weights is not None and weights.data is not None
    channels, lanes = p.channels, job.isa.lanes
    x = job.operand(0, "x")
    taps = weights.data.reshape(channels, -1).T  # [kh*kw, C]
    pitch = channels if weights.dtype is DType.F32 else -(-channels // lanes) * lanes
    w = job.packed(np.pad(taps, ((0, 0), (0, pitch - channels))).reshape(-1), "w")
    b = job.packed(bias.data.astype(np.float32), "b") if bias is not None and bias.data is not None else None
    epilogue = epilogue_of(job, op.epilogue, [v for v in node.inputs[3:] if v is not None], node.output.shape)
    window = Window("depthwise", x, job.writes(), w, b, None, 1.0, epilogue, pitch=pitch)
    columns = _columns(job, p)
    _write(job, p, window, columns)
    about = (
        f"{p.title('depthwise conv', apart=True)}{steps_text(op.epilogue)}\n"
        f"NHWC, {columns} pixels x {lanes} channels at a time, weights packed [kh][kw][c]"
    )
    return job.done(p.stem("depthwise", apart=True), about, f"depthwise_nhwc(pixels={columns})", over=epilogue.over)


def pool_window(job: Job) -> Window:
    """A max or average pool; the reciprocals are those of windows that reach over the border."""
    op, p = job.node.op, problem_of(job)
    assert isinstance(op, Pool)
    x = job.operand(0, "x")
    reciprocals: Buffer | None = None
    scale = 1.0
    only_inside = isinstance(op, AveragePool) and p.moves and p.padded and not op.count_include_pad
    if isinstance(op, AveragePool) and p.moves and (not p.padded or only_inside or _all_counted(op, p)):
        scale = 1.0 / (p.kernel[0] * p.kernel[1])
    elif isinstance(op, AveragePool):
        counts = np.broadcast_to(op.counts((p.height, p.width)), (p.out_height, p.out_width))
        if counts.min() == counts.max():
            scale = 1.0 / float(counts.flat[0])
        else:
            reciprocals = job.packed((1.0 / np.maximum(counts, 1)).astype(np.float32).reshape(-1), "r")
    kind = "average" if isinstance(op, AveragePool) else "max"
    return Window(kind, x, job.writes(), None, None, reciprocals, scale, Epilogue((), ()), only_inside)


def _all_counted(op: AveragePool, p: Problem) -> bool:
    """Do all windows end within the padding, which counts? They may reach over it where the size of the result is rounded up."""
    if not op.count_include_pad or (op.counted_pads and op.counted_pads != op.pads):
        return False
    sizes = ((p.height, p.out_height), (p.width, p.out_width))
    ends = [(out - 1) * p.strides[n] - p.pads[n] + (p.kernel[n] - 1) * p.dilations[n] - size for n, (size, out) in enumerate(sizes)]
    return all(most(end) < op.pads[n + 2] for n, end in enumerate(ends))


def pool_nhwc(job: Job) -> Lowered:
    p, window = problem_of(job), pool_window(job)
    kind, columns = window.kind, _columns(job, p)
    _write(job, p, window, columns)
    about = f"{p.title(f'{kind} pool', apart=True)}\nNHWC, {columns} pixels x {job.isa.lanes} channels at a time"
    return job.done(p.stem(f"{kind}_pool", apart=True), about, f"{kind}_pool_nhwc(pixels={columns})")


def _columns(job: Job, p: Problem) -> int:
    """Output pixels at a time: of depthwise convolutions as many as fit, except on small cores, where code is short."""
    possible = _possible_columns(job, p)
    limit = MOST_COLUMNS if isinstance(job.node.op, Conv) and not job.target.bare else FEW_COLUMNS
    if isinstance(job.node.op, Conv) and job.isa.lanes * DType.F32.bytes >= 64:
        limit = LINE_COLUMNS
    return parse_pixels(job.asked, possible) or max(columns for columns in possible if columns <= limit)


def _possible_columns(job: Job, p: Problem) -> list[int]:
    """Accumulators and the input columns that they share must fit the registers."""
    found = [1]
    for columns in range(2, MOST_COLUMNS + 1):
        span = (columns - 1) * p.strides[1] + (p.kernel[1] - 1) * p.dilations[1] + 1
        if columns + min(span, p.kernel[1] * columns) + 1 <= job.target.registers and columns <= most(p.out_width):
            found.append(columns)
    return found


def depthwise_ways(job: Job) -> list[str]:
    """The usual number of pixels first."""
    p = problem_of(job)
    usual = _columns(job, p)
    return [f"depthwise_nhwc(pixels={n})" for n in sorted(_possible_columns(job, p), key=lambda n: (n != usual, n))]


def depthwise_estimate(job: Job) -> float:
    """Per vector of channels and pixel: its taps, and the columns that pixels share."""
    p, lanes = problem_of(job).most(), job.isa.lanes
    columns = _columns(job, p)
    span = (columns - 1) * p.strides[1] + p.kernel[1]
    each = p.kernel[0] * (p.kernel[1] * MULTIPLY_CYCLES + span / columns * LOAD_CYCLES) + END_CYCLES
    vectors = -(-p.channels // lanes)
    return micros(job.target, lanes, p.rows * vectors * each * p.share_inside, p.taps * p.channels * DType.F32.bytes)


@dataclass(frozen=True, slots=True)
class Spot:
    """Some output pixels of a row: the first column, how many, and the pixels whose taps are inside the image where not all are.
    `side`: a pixel of whose window only the running program knows that."""

    ow: Expr
    count: int
    inside: Inside | None
    oh: Expr
    line: Line  # of the input
    out: Expr  # where the row of the result starts
    side: tuple[Expr, Expr] | None = None  # columns of its window that are inside: first, behind the last


def _write(job: Job, p: Problem, window: Window, columns: int) -> None:
    k = job.k
    with k.loop("n", 0, p.batch) as n, k.loop("oh", 0, p.out_height) as oh:
        top, low, high = p.window_rows(k, oh)
        line = Line(k.let("line", (n * p.height + top) * (p.width * p.channels)), low, high)
        out = k.let("out", (n * p.out_height + oh) * (p.out_width * p.channels))
        if isinstance(p.out_width, Size):
            for piece in pieces(p, k, columns, 0 if job.target.bare else MOST_TAPS):
                side = p.columns_inside(k, k.let("left", piece.column * p.strides[1] - p.pads[1])) if piece.side else None
                _pixels(job, p, window, Spot(piece.column, piece.count, piece.inside, oh, line, out, side))
            return
        inner, edges = p.inner_and_edges(columns)
        for c in sorted([*inner[:1], *edges]):
            if c in edges:
                with k.block():
                    count = min(columns, p.out_width - c)
                    inside = [p.valid_rows(c, count, kw) for kw in range(p.kernel[1])]
                    _pixels(job, p, window, Spot(idx(c), count, inside, oh, line, out))
            else:
                with k.loop("ow", inner[0], inner[-1] + columns, columns) as ow:
                    _pixels(job, p, window, Spot(ow, columns, None, oh, line, out))


def _pixels(job: Job, p: Problem, window: Window, spot: Spot) -> None:
    k, lanes = job.k, job.isa.lanes
    whole = p.channels // lanes * lanes
    with k.loop("c", 0, whole, lanes, rolled=job.target.bare) as c:
        _vector(k, job.vector, p, window, spot, c, lanes)
    if p.channels > whole:
        with k.block():
            _vector(k, job.vector, p, window, spot, idx(whole), p.channels - whole)


def _vector(k: Builder, e: Lanes, p: Problem, window: Window, spot: Spot, c: Expr, lanes: int) -> None:
    """All taps of some pixels, `lanes` channels from `c` on."""
    part = lanes if e.vector else 0
    first: Expr = e.const(0.0)
    if window.kind == "max":
        first = e.const(float("-inf"))
    elif window.bias is not None:
        first = k.let("bias", e.load(window.bias, c, part))
    acc = [k.var(f"acc{r}", first, e.type) for r in range(spot.count)]
    with k.loop("kh", spot.line.low, spot.line.high) as kh:
        left = (spot.ow * p.strides[1] - p.pads[1]) * p.channels
        start = k.let("start", spot.line.start + kh * (p.dilations[0] * p.width * p.channels) + left + c)
        loaded: dict[int, Expr] = {}

        def weight(name: str, kw: Operand) -> Expr | None:
            if window.weights is None:
                return None
            some = part if window.pitch == p.channels else 0
            return k.let(name, e.load(window.weights, (kh * p.kernel[1] + kw) * window.pitch + c, some))

        if spot.side is not None:
            with k.loop("kw", *spot.side) as tap:
                x = e.load(window.x, start + tap * (p.dilations[1] * p.channels), part)
                k.assign(acc[0], combine(e, window.kind, acc[0], x, weight("w", tap)))
        for kw in range(p.kernel[1] if spot.side is None else 0):
            inside = range(spot.count) if spot.inside is None else spot.inside[kw]
            column = weight(f"w{kw}", kw) if inside else None
            for r in inside:
                at = r * p.strides[1] + kw * p.dilations[1]
                if at not in loaded:
                    loaded[at] = k.let(f"x{at}", e.load(window.x, start + at * p.channels, part))
                k.assign(acc[r], combine(e, window.kind, acc[r], loaded[at], column))
    for r in range(spot.count):
        place = spot.out + (spot.ow + r) * p.channels + c
        k.store(window.y, place, _result(k, e, p, window, spot, acc[r], r, c, place, lanes), part)


def _result(
    k: Builder, e: Lanes, p: Problem, window: Window, spot: Spot, acc: Expr, r: int, c: Expr, place: Expr, lanes: int
) -> Expr:
    if window.kind == "average":
        scale = e.const(window.scale)
        if window.reciprocals is not None:
            scale = e.splat(Lanes.scalar().load(window.reciprocals, spot.oh * p.out_width + spot.ow + r))
        elif window.only_inside:
            scale = _share(k, e, p, spot, r)
        acc = e.mul(acc, scale)
    return window.epilogue.finish(k, e, acc, c, place, lanes) if window.epilogue.steps else acc


def _share(k: Builder, e: Lanes, p: Problem, spot: Spot, r: int) -> Expr:
    """1 / taps of pixel `r` that are inside the image, whose size the caller gives."""
    one, low, high = Lanes.scalar(), spot.line.low, spot.line.high
    across = idx(p.kernel[1]) if spot.inside is None else idx(sum(r in rows for rows in spot.inside))
    if spot.side is not None:
        across = spot.side[1] - spot.side[0]
    taps = (high - low) * across
    if isinstance(taps, Num):
        return e.const(1.0 / max(1.0, float(taps.value)))
    count = one.highest(cast(taps, one.type), one.const(1.0))
    return e.splat(k.let("share", one.div(one.const(1.0), count)))


def combine(e: Lanes, kind: str, acc: Var, x: Expr, weight: Expr | None) -> Expr:
    if weight is not None:
        return e.fma(x, weight, acc)
    return e.highest(acc, x) if kind == "max" else e.add(acc, x)
