"""The columns of an output row whose number the caller gives, in tiles.

    columns 0 and 1                  a tile that leaves out the taps to the left of the image
    for column in 2..width-2 step 4  whole tiles, then one for the columns that are left
    columns width-2 and width-1      a tile that leaves out the taps to the right, counted from the end

So windows at the border are written out as they are for one size. Images that are too narrow for this, whose windows reach over
both borders, have code of their own for each width, as long as that is little; a loop computes the others pixel by pixel.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from intaglio.ir.sizes import Undecided, values_of
from intaglio.kernels.builder import Builder
from intaglio.kernels.contraction.problem import Problem
from intaglio.kernels.loop import Expr, both, idx, select

Inside = list[list[int]]  # for each column of a window, the pixels of a tile whose tap is inside the image


@dataclass(frozen=True, slots=True)
class Piece:
    """Some columns side by side. `inside` is None where all taps are inside the image; of a `side`, a single pixel, only the
    running program knows."""

    column: Expr
    count: int
    inside: Inside | None = None
    side: bool = False

    @property
    def whole(self) -> bool:
        return self.inside is None and not self.side


@dataclass(frozen=True, slots=True)
class _Borders:
    """`left` columns reach over the left border, and `right` over the right one. This depends on how far the last window ends from
    it, which is one of a few numbers."""

    left: int
    right: dict[int, int]
    narrow: tuple[tuple[int, int], ...]  # widths of images that are too narrow, and of their results
    rest: tuple[int, ...]  # columns between the borders that may be left


def pieces(p: Problem, k: Builder, count: int, most_taps: int) -> Iterator[Piece]:
    """Tiles of `count` columns or fewer; narrow images have at most `most_taps` taps in all."""
    borders, width = _borders(p, count), idx(p.width)
    taps, static = 0, 0
    for wide, out in borders.narrow:
        taps += out * min(p.kernel[1], wide)
        if taps > most_taps:
            break
        static += 1
        with k.when(width.compare("eq", wide)):
            yield from _static(replace(p, width=wide, out_width=out), k, count)
    if static < len(borders.narrow):
        low, high = borders.narrow[static][0], borders.narrow[-1][0]
        test = width.compare("le", high)
        with k.when(both(width.compare("ge", low), test) if static else test), k.loop("side", 0, p.out_width) as column:
            yield Piece(column, 1, side=True)
    if not borders.right:
        return
    if not borders.narrow:
        yield from _wide(p, k, count, borders)
        return
    with k.when(width.compare("gt", borders.narrow[-1][0])):
        yield from _wide(p, k, count, borders)


def _borders(p: Problem, count: int) -> _Borders:
    stride, pad, reach = p.strides[1], p.pads[1], (p.kernel[1] - 1) * p.dilations[1]
    left = -(-pad // stride)
    wide, out = np.broadcast_arrays(np.asarray(values_of(p.width)), np.asarray(values_of(p.out_width)))
    end = wide - stride * out
    right = np.maximum(0, (reach - end - pad) // stride)
    last = int(wide[out < left + right].max(initial=-1))  # the widest that is too narrow
    narrow = sorted({(int(w), int(o)) for w, o in zip(wide[wide <= last], out[wide <= last], strict=True)})
    if len(narrow) > len({width for width, _ in narrow}):
        raise Undecided(f"`{p.width}` does not tell how wide the result is, `{p.out_width}`")
    others = wide > last
    rest = np.unique((out - right - left)[others] % count)
    return _Borders(
        left, {int(e): int(r) for e, r in sorted(set(zip(end[others].tolist(), right[others].tolist(), strict=True)))},
        tuple(narrow), tuple(int(n) for n in rest if n),
    )  # fmt: skip


def _static(p: Problem, k: Builder, count: int) -> Iterator[Piece]:
    """An image whose width is known."""
    inner, edges = p.inner_and_edges(count)
    for c in sorted([*inner[:1], *edges]):
        if c in edges:
            pixels = min(count, p.out_width - c)
            with k.block():
                yield Piece(idx(c), pixels, [p.valid_rows(c, pixels, kw) for kw in range(p.kernel[1])])
        else:
            with k.loop("ow", inner[0], inner[-1] + count, count) as ow:
                yield Piece(ow, count)


def _wide(p: Problem, k: Builder, count: int, borders: _Borders) -> Iterator[Piece]:
    stride, pad, taps = p.strides[1], p.pads[1], [kw * p.dilations[1] for kw in range(p.kernel[1])]
    end = idx(p.width - p.out_width * stride)
    for first in range(0, borders.left, count):
        pixels = range(min(count, borders.left - first))
        with k.block():
            yield Piece(idx(first), len(pixels), [[r for r in pixels if (first + r) * stride - pad + at >= 0] for at in taps])
    (_, right), *others = borders.right.items()
    behind = idx(right)
    for value, columns in others:
        behind = select(end.compare("eq", value), idx(columns), behind) if columns != right else behind
    last = k.let("inner_end", idx(p.out_width) - behind)
    whole = k.let("whole_end", (last - borders.left) // count * count + borders.left)
    with k.loop("ow", borders.left, whole, count) as ow:
        yield Piece(ow, count)
    for rest in borders.rest:
        with k.when((last - whole).compare("eq", rest)):
            yield Piece(whole, rest)
    for value, columns in borders.right.items():
        if not columns:
            continue
        with k.when(end.compare("eq", value)) if others else k.block():
            for m in range(columns, 0, -count):  # from the end
                pixels = range(min(count, m))
                room = [value + (m - r) * stride + pad for r in pixels]
                with k.block():
                    inside = [[r for r in pixels if at < room[r]] for at in taps]
                    yield Piece(k.let("ow", idx(p.out_width) - m), len(pixels), inside)
