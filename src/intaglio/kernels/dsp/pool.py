"""Pools of bytes on the DSP extension, four channels at a time.

    max:      SSUB8 compares four bytes, SEL takes the larger of each
    average:  SXTAB16 adds two bytes to two sums of 16 bits, which hold up to 256 pixels

Windows at the border are cut by the bounds of their loops.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from intaglio.ir.graph import Array
from intaglio.ir.types import Layout
from intaglio.kernels.dsp.scaling import C_TYPES
from intaglio.kernels.integer_conv import BYTES
from intaglio.kernels.integer_pool import all_inside, pool_windows
from intaglio.kernels.job import Job, Lowered
from intaglio.kernels.loop import Expr, Place
from intaglio.kernels.routines import Routine, family
from intaglio.ops.pool import MaxPool
from intaglio.ops.quantised_rows import QAveragePool

MOST_PIXELS = 256


def _window(x: Array, channels: int, rows: int, cols: int, row: int) -> Array:
    return np.stack([x[i * row + j * channels :][:channels] for i in range(rows) for j in range(cols)]).astype(np.int64)


@family("highest")
def highest(kind: str) -> Routine:
    t = C_TYPES[kind]
    text = f"""\
/* The largest of each channel in a window of rows times cols pixels, `row` bytes from one row to the next */
IG_ROUTINE void ig_highest_{kind}(const {t} *x, ptrdiff_t channels, ptrdiff_t rows, ptrdiff_t cols, ptrdiff_t row, {t} *y)
{{
    ptrdiff_t c = 0;
    for (; c + 4 <= channels; c += 4) {{
        int32_t best = ig_word(x + c);
        for (ptrdiff_t i = 0; i < rows; i++)
            for (ptrdiff_t j = 0; j < cols; j++)
                best = ig_max4_{kind}(best, ig_word(x + i * row + j * channels + c));
        ig_put_word(y + c, best);
    }}
    for (; c < channels; c++) {{
        {t} best = x[c];
        for (ptrdiff_t i = 0; i < rows; i++)
            for (ptrdiff_t j = 0; j < cols; j++)
                best = x[i * row + j * channels + c] > best ? x[i * row + j * channels + c] : best;
        y[c] = best;
    }}
}}"""

    def meaning(x: Array, channels: int, rows: int, cols: int, row: int, y: Array) -> None:
        y[:channels] = _window(x, channels, rows, cols, row).max(axis=0)

    return Routine(text, meaning, ("base", "put", f"max4_{kind}"))


@family("max4")
def max4(kind: str) -> Routine:
    t, letter = C_TYPES[kind], "s" if kind == "i8" else "u"
    text = f"""\
/* The larger of each of four bytes */
IG_INLINE int32_t ig_max4_{kind}(int32_t a, int32_t b)
{{
#ifdef IG_DSP
    int32_t result;
    __asm__("{letter}sub8 %0, %1, %2\\n\\tsel %0, %1, %2" : "=&r"(result) : "r"(a), "r"(b) : "cc");
    return result;
#else
    uint32_t result = 0;
    for (int i = 0; i < 32; i += 8) {{
        const {t} x = ({t})((uint32_t)a >> i), y = ({t})((uint32_t)b >> i);
        result |= (uint32_t)(uint8_t)(x > y ? x : y) << i;
    }}
    return (int32_t)result;
#endif
}}"""
    return Routine(text, lambda *_: None, ("base",))


@family("average")
def average(kind: str) -> Routine:
    t, letter = C_TYPES[kind], "s" if kind == "i8" else "u"
    half = "int16_t" if kind == "i8" else "uint16_t"
    text = f"""\
/* The mean of each channel in a window of at most {MOST_PIXELS} pixels, rounded half away from zero */
IG_ROUTINE void ig_average_{kind}(const {t} *x, ptrdiff_t channels, ptrdiff_t rows, ptrdiff_t cols, ptrdiff_t row, ptrdiff_t low,
    ptrdiff_t high, {t} *y)
{{
    const int32_t count = (int32_t)(rows * cols), half = count / 2;
    for (ptrdiff_t c = 0; c < channels; c += 4) {{
        int32_t sums[4] = {{0, 0, 0, 0}};
        if (c + 4 <= channels) {{
            int32_t even = 0, odd = 0; /* channels 0 and 2, 1 and 3 */
            for (ptrdiff_t i = 0; i < rows; i++)
                for (ptrdiff_t j = 0; j < cols; j++) {{
                    const int32_t four = ig_word(x + i * row + j * channels + c);
                    even = ig_{letter}xtab16(even, four);
                    odd = ig_{letter}xtab16_odd(odd, four);
                }}
            sums[0] = ({half})even;
            sums[1] = ({half})odd;
            sums[2] = ({half})((uint32_t)even >> 16);
            sums[3] = ({half})((uint32_t)odd >> 16);
        }} else {{
            for (ptrdiff_t i = 0; i < rows; i++)
                for (ptrdiff_t j = 0; j < cols; j++)
                    for (ptrdiff_t d = 0; d < channels - c; d++)
                        sums[d] += x[i * row + j * channels + c + d];
        }}
        for (ptrdiff_t d = 0; d < 4 && c + d < channels; d++) {{
            const int32_t mean = (sums[d] > 0 ? sums[d] + half : sums[d] - half) / count;
            y[c + d] = ({t})(mean < low ? (int32_t)low : mean > high ? (int32_t)high : mean);
        }}
    }}
}}"""

    def meaning(x: Array, channels: int, rows: int, cols: int, row: int, low: int, high: int, y: Array) -> None:
        total, count = _window(x, channels, rows, cols, row).sum(axis=0), rows * cols
        lifted = np.where(total > 0, total + count // 2, total - count // 2)
        mean = np.sign(lifted) * (np.abs(lifted) // count)
        y[:channels] = np.clip(mean, low, high)

    return Routine(text, meaning, ("base", f"op_{letter}xtab16", f"op_{letter}xtab16_odd"))


def _takes(job: Job, kernel: tuple[int, ...], strides: tuple[int, ...], pads: tuple[int, ...]) -> bool:
    shape = job.type(0).shape
    bytes_ = job.isa.dsp and job.type(0).dtype in BYTES and len(shape) == 4 and job.node.output.type.elements > 0
    return bytes_ and all_inside(job, kernel, strides, pads)


def max_pool_dsp(job: Job) -> Lowered | None:
    op, k = job.node.op, job.k
    assert isinstance(op, MaxPool)
    if op.layout is not Layout.NHWC or any(d != 1 for d in op.dilations) or not _takes(job, op.kernel, op.strides, op.pads):
        return None
    x, y = job.operand(0, "x"), job.writes()
    _, _, w, c = job.type(0).shape

    def window(out: Expr, rows: tuple[Expr, Expr], cols: tuple[Expr, Expr], pixel: Callable[[Expr, Expr], Expr]) -> None:
        first = Place(x, pixel(rows[0], cols[0]))
        k.call(f"highest_{x.dtype.value}", first, c, rows[1] - rows[0], cols[1] - cols[0], w * c, Place(y, out))

    pool_windows(job, op.kernel, op.strides, op.pads, window)
    about = f"max_pool {list(op.kernel)}, {list(job.type(0).shape)} -> {list(job.node.output.shape)}, four channels at a time"
    return job.done("max_pool", about, "max_pool_dsp")


def qaverage_pool_dsp(job: Job) -> Lowered | None:
    op, k = job.node.op, job.k
    assert isinstance(op, QAveragePool)
    if not _takes(job, op.kernel, op.strides, op.pads) or math.prod(op.kernel) > MOST_PIXELS:
        return None
    x, y = job.operand(0, "x"), job.writes()
    _, _, w, c = job.type(0).shape

    def window(out: Expr, rows: tuple[Expr, Expr], cols: tuple[Expr, Expr], pixel: Callable[[Expr, Expr], Expr]) -> None:
        first = Place(x, pixel(rows[0], cols[0]))
        counts = (rows[1] - rows[0], cols[1] - cols[0])
        k.call(f"average_{x.dtype.value}", first, c, *counts, w * c, op.low, op.high, Place(y, out))

    pool_windows(job, op.kernel, op.strides, op.pads, window)
    about = f"qaverage_pool {list(op.kernel)}, {list(job.type(0).shape)} -> {list(job.node.output.shape)}, four channels at a time"
    return job.done("qaverage_pool", about, "qaverage_pool_dsp")
