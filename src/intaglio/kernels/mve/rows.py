"""Rows of bytes times channels: VMLADAVA multiplies sixteen bytes by sixteen and adds all products to a sum in a general register.

    x0, x1 = 16 bytes of two rows;  w0, w1 = 16 bytes of two channels
    s00 += x0 . w0;  s01 += x0 . w1;  s10 += x1 . w0;  s11 += x1 . w1

The last bytes of a row are loaded under a predicate, the rest of the vector is zeros: rows need no padding. Activations without a
sign are moved by 128 on their way (the zero point of the records moves along). Sums become bytes as in `dsp/scaling.py`.
"""

from __future__ import annotations

import numpy as np

from intaglio.ir.graph import Array
from intaglio.kernels.dsp.scaling import C_TYPES, DOUBLED, WORDS, finished
from intaglio.kernels.routines import Routine, family


def _finish(variant: str, total: str, channel: int) -> str:
    words = ", ".join(f"scale[{channel * WORDS + i}]" for i in (1, 2, 3))
    doubled = variant.split("_")[0] in DOUBLED
    return f"({C_TYPES[variant.split('_')[1]]})ig_finish_{variant}({total}{' * 2' if doubled else ''}, {words})"


def _step(rows: int, source: str) -> str:
    flip = "" if source == "i8" else " ^ 0x80"
    lines = [
        "#ifdef IG_MVE",
        "        for (ptrdiff_t k = 0; k < depth; k += 16) {",
        "            const mve_pred16_t some = vctp8q((uint32_t)(depth - k));",
        "            const int8x16_t w0 = vldrbq_z_s8(w + k, some), w1 = vldrbq_z_s8(v + k, some);",
    ]
    for r in range(rows):
        load = f"vldrbq_z_s8(x{r} + k, some)"
        if source == "u8":
            load = f"vreinterpretq_s8_u8(veorq_u8(vldrbq_z_u8(x{r} + k, some), vdupq_n_u8(0x80)))"
        lines.append(f"            const int8x16_t a{r} = {load};")
    for r in range(rows):
        lines += [f"            s{r}{c} = vmladavaq_s8(s{r}{c}, a{r}, w{c});" for c in (0, 1)]
    lines += ["        }", "#else", "        IG_UNROLL", "        for (ptrdiff_t k = 0; k < depth; k++) {"]
    for r in range(rows):
        value = f"x{r}[k]" if source == "i8" else f"(int8_t)(x{r}[k]{flip})"
        lines += [f"            s{r}{c} += {value} * {name}[k];" for c, name in ((0, "w"), (1, "v"))]
    return "\n".join([*lines, "        }", "#endif"])


def _rows(name: str) -> Routine:
    """`2_i8_twice_i8`: rows at a time, type of x, scaling."""
    count, source, variant = name.split("_", 2)
    rows = int(count)
    x_type, y_type = C_TYPES[source], C_TYPES[variant.split("_")[1]]
    pointers = "".join(f"    const {x_type} *const x{r} = x + {r} * x_step;\n" for r in range(1, rows))
    sums = ", ".join(f"s{r}{c} = scale[{c * WORDS}]" for r in range(rows) for c in (0, 1))
    first = "\n".join(f"        y[{r} * y_step] = {_finish(variant, f's{r}0', 0)};" for r in range(rows))
    second = "\n".join(f"            y[{r} * y_step + 1] = {_finish(variant, f's{r}1', 1)};" for r in range(rows))
    unused = "    (void)x_step;\n    (void)y_step;\n" if rows == 1 else ""
    text = f"""\
/* {rows} row(s) of `depth` bytes, times channels two by two. */
IG_ROUTINE void ig_rows_{name}(const int8_t *w, const int32_t *scale, const {x_type} *x, ptrdiff_t depth, ptrdiff_t x_step,
    ptrdiff_t outs, {y_type} *y, ptrdiff_t y_step)
{{
    const {x_type} *const x0 = x;
{pointers}{unused}    for (ptrdiff_t o = 0; o < outs; o += 2, scale += {2 * WORDS}, y += 2, w += 2 * depth) {{
        const int8_t *const v = w + depth; /* the second channel */
        int32_t {sums};
{_step(rows, source)}
{first}
        if (o + 1 < outs) {{
{second}
        }}
    }}
}}"""

    def meaning(w: Array, scale: Array, x: Array, depth: int, x_step: int, outs: int, y: Array, y_step: int) -> None:
        weights = w[: outs * depth].reshape(outs, depth).astype(np.int64)
        records = scale[: outs * WORDS].reshape(outs, WORDS)
        for r in range(rows):
            row = x[r * x_step : r * x_step + depth].astype(np.int64) - (128 if source == "u8" else 0)
            y[r * y_step : r * y_step + outs] = finished(weights @ row + records[:, 0], records, variant)

    return Routine(text, meaning, ("base", "mve", f"finish_{variant}"))


@family("rows")
def rows(name: str) -> Routine:
    return _rows(name)


@family("mve")
def _mve(_: str) -> Routine:
    text = """\
#if defined(__ARM_FEATURE_MVE)
#include <arm_mve.h>
#define IG_MVE 1
#endif"""
    return Routine(text, lambda *_: None)


_WINDOW = """\
/* A window, byte by byte, in the order of the weights; what is outside of the image counts as its zero point. */
IG_ROUTINE void ig_window_{kind}(const {type} *x, ptrdiff_t top, ptrdiff_t left, ptrdiff_t height, ptrdiff_t width,
    ptrdiff_t channels, ptrdiff_t rows, ptrdiff_t cols, ptrdiff_t down, ptrdiff_t across, ptrdiff_t depth, ptrdiff_t zero,
    {type} *to)
{{
    for (ptrdiff_t i = 0; i < rows; i++) {{
        const ptrdiff_t h = top + i * down;
        for (ptrdiff_t j = 0; j < cols; j++, to += depth) {{
            const ptrdiff_t w = left + j * across;
            if (h >= 0 && h < height && w >= 0 && w < width)
                memcpy(to, x + (h * width + w) * channels, (size_t)depth);
            else
                memset(to, (int)zero, (size_t)depth);
        }}
    }}
}}"""


@family("window")
def window(kind: str) -> Routine:
    def meaning(
        x: Array, top: int, left: int, height: int, width: int, channels: int, rows: int, cols: int, down: int, across: int,
        depth: int, zero: int, to: Array,
    ) -> None:  # fmt: skip
        for i in range(rows):
            for j in range(cols):
                h, w = top + i * down, left + j * across
                inside = 0 <= h < height and 0 <= w < width
                at = (i * cols + j) * depth
                start = (h * width + w) * channels
                to[at : at + depth] = x[start : start + depth] if inside else zero

    return Routine(_WINDOW.format(kind=kind, type=C_TYPES[kind]), meaning, ("base",))
