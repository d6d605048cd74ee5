"""Windows as columns of numbers of 16 bits, in pairs, for `tiles.py`.

    bytes of a run      0 1 2 3  4 5 6 7  8 9 10
    pairs               (0,2) (1,3) (4,6) (5,7) (8,9) (10,-)

Four bytes are one load and two SXTB16, which take out bytes 0 and 2, then 1 and 3: weights are packed in that order, so nothing
is shuffled. A run is what lies side by side in memory: the columns of a window row with all their channels, or the channels of one
pixel where columns are dilated or channels grouped. `edge` is for windows that reach over the border: what is outside counts as
zero point.
"""

from __future__ import annotations

import numpy as np

from intaglio.ir.graph import Array
from intaglio.kernels.routines import Routine, family

_C_TYPES = {"i8": "int8_t", "u8": "uint8_t"}


def pairs_of(length: int) -> list[tuple[int, int]]:
    """Which numbers of a run stand in a pair; -1: none."""
    whole = length // 4 * 4
    pairs = [pair for q in range(0, whole, 4) for pair in ((q, q + 2), (q + 1, q + 3))]
    return pairs + [(i, i + 1 if i + 1 < length else -1) for i in range(whole, length, 2)]


def paired(run: Array) -> Array:
    """The last axis as [pairs, 2]; a place without a number is 0."""
    order = np.asarray(pairs_of(run.shape[-1])).reshape(-1, 2)
    return np.where(order >= 0, run[..., order], 0)


def _put(to: Array, columns: int, at: int, run: Array) -> int:
    """A run at pair `at`; what is in no pair stays as it is. The next pair."""
    for n, (a, b) in enumerate(pairs_of(run.size)):
        to[2 * columns * (at + n)] = run[a]
        if b >= 0:
            to[2 * columns * (at + n) + 1] = run[b]
    return at + len(pairs_of(run.size))


def _gather(columns: int, kind: str) -> Routine:
    take = "sxtb16" if kind == "i8" else "uxtb16"
    text = f"""\
/* `rows` runs of `length` bytes, `row` apart, as pairs in one of {columns} column(s) */
IG_ROUTINE void ig_gather{columns}_{kind}(const {_C_TYPES[kind]} *x, ptrdiff_t row, ptrdiff_t rows, ptrdiff_t length, int16_t *to)
{{
    for (; rows > 0; rows--, x += row) {{
        const {_C_TYPES[kind]} *from = x;
        ptrdiff_t n = length;
        for (; n >= 8; n -= 8, from += 8, to += {8 * columns}) {{
            const int32_t low = ig_word(from), high = ig_word(from + 4);
            ig_put_word(to, ig_{take}(low));
            ig_put_word(to + {2 * columns}, ig_{take}_odd(low));
            ig_put_word(to + {4 * columns}, ig_{take}(high));
            ig_put_word(to + {6 * columns}, ig_{take}_odd(high));
        }}
        if (n >= 4) {{
            const int32_t four = ig_word(from);
            ig_put_word(to, ig_{take}(four));
            ig_put_word(to + {2 * columns}, ig_{take}_odd(four));
            n -= 4, from += 4, to += {4 * columns};
        }}
        for (; n > 0; n -= 2, from += 2, to += {2 * columns}) {{
            to[0] = from[0];
            if (n > 1)
                to[1] = from[1];
        }}
    }}
}}"""

    def meaning(x: Array, row: int, rows: int, length: int, to: Array) -> None:
        at = 0
        for r in range(rows):
            at = _put(to, columns, at, x[r * row : r * row + length].astype(np.int16))

    return Routine(text, meaning, ("base", "put", f"op_{take}", f"op_{take}_odd"))


@family("put")
def _put_word(_: str) -> Routine:
    text = """\
IG_INLINE void ig_put_word(void *p, int32_t bits)
{
    __builtin_memcpy(p, &bits, sizeof bits);
}"""
    return Routine(text, lambda *_: None)


def _edge(columns: int, kind: str) -> Routine:
    take = "sxtb16" if kind == "i8" else "uxtb16"
    text = f"""\
/* A window that may reach over the border, as pairs in one of {columns} column(s).
 * A run is a row of the window (`joint`) or a pixel. */
IG_ROUTINE void ig_edge{columns}_{kind}(const {_C_TYPES[kind]} *x, ptrdiff_t top, ptrdiff_t left, ptrdiff_t height, ptrdiff_t width,
    ptrdiff_t channels, ptrdiff_t rows, ptrdiff_t cols, ptrdiff_t down, ptrdiff_t across, ptrdiff_t depth, ptrdiff_t joint,
    ptrdiff_t zero, int16_t *to)
{{
    const int32_t fill = (int32_t)(0x01010101u * (uint8_t)zero);
    const ptrdiff_t length = joint ? cols * depth : depth, whole = length - length % 4;
    for (ptrdiff_t i = 0; i < rows; i++) {{
        const ptrdiff_t h = top + i * down;
        ptrdiff_t at = 0; /* in the run */
        for (ptrdiff_t j = 0; j < cols; j++) {{
            const ptrdiff_t w = left + j * across;
            const int inside = h >= 0 && h < height && w >= 0 && w < width;
            const {_C_TYPES[kind]} *from = inside ? x + (h * width + w) * channels : x;
            if (depth % 4 == 0) {{
                for (ptrdiff_t c = 0; c < depth; c += 4, to += {4 * columns}) {{
                    const int32_t four = inside ? ig_word(from + c) : fill;
                    ig_put_word(to, ig_{take}(four));
                    ig_put_word(to + {2 * columns}, ig_{take}_odd(four));
                }}
                continue;
            }}
            for (ptrdiff_t c = 0; c < depth; c++, at++) {{
                const ptrdiff_t quad = at % 4, place = at < whole ? at - quad + 2 * (quad % 2) : at - at % 2;
                to[{columns} * place + (at < whole ? quad / 2 : at % 2)] = inside ? from[c] : (int16_t)zero;
            }}
            if (!joint || j + 1 == cols) {{
                to += {2 * columns} * ((length + 1) / 2);
                at = 0;
            }}
        }}
    }}
}}"""

    def meaning(
        x: Array, top: int, left: int, height: int, width: int, channels: int, rows: int, cols: int, down: int, across: int,
        depth: int, joint: int, zero: int, to: Array,
    ) -> None:  # fmt: skip
        at = 0
        for i in range(rows):
            run = np.full((cols, depth), zero, np.int16)
            for j in range(cols):
                h, w = top + i * down, left + j * across
                if 0 <= h < height and 0 <= w < width:
                    start = (h * width + w) * channels
                    run[j] = x[start : start + depth]
            for part in [run.reshape(-1)] if joint else list(run):
                at = _put(to, columns, at, part)

    return Routine(text, meaning, ("base", "put", f"op_{take}", f"op_{take}_odd"))


@family("gather4")
def gather4(kind: str) -> Routine:
    return _gather(4, kind)


@family("gather2")
def gather2(kind: str) -> Routine:
    return _gather(2, kind)


@family("gather1")
def gather1(kind: str) -> Routine:
    return _gather(1, kind)


@family("edge4")
def edge4(kind: str) -> Routine:
    return _edge(4, kind)


@family("edge2")
def edge2(kind: str) -> Routine:
    return _edge(2, kind)


@family("edge1")
def edge1(kind: str) -> Routine:
    return _edge(1, kind)
