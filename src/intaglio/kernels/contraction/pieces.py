"""The columns of an output row whose number the caller gives, in tiles.

    columns 0 to 3                   a tile that leaves out the taps to the left of the image
    for column in 4.. step 6         whole tiles
    the columns that are left        a tile for each number of them that there can be, which leaves out the taps to the right

So windows at the border are written out as they are for one size, together with their neighbours: a tile of one pixel takes as long
as one of three. Narrow images have code of their own for each width, as long as that is little. Those that are wider, and still
have windows that reach over both borders, are computed pixel by pixel.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from intaglio.ir.sizes import Undecided, values_of
from intaglio.kernels.builder import Builder
from intaglio.kernels.contraction.problem import Problem
from intaglio.kernels.loop import Expr, both, idx, select

LEAD = 4  # columns of the first tile, or more where more of them reach over the border
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
    """`lead` columns have taps to the left of the image, or are beside those that do. `rest` are the columns behind whole tiles:
    how far the last window ends from the border, which is one of a few numbers, and how many there are."""

    lead: int
    rest: tuple[tuple[int, int], ...]
    static: tuple[tuple[int, int], ...]  # widths of images that have code of their own, and of their results
    narrow: int  # the widest image whose windows reach over both borders


def pieces(p: Problem, k: Builder, count: int, most_taps: int) -> Iterator[Piece]:
    """Tiles of `count` columns or fewer; the images that have code of their own have at most `most_taps` taps in all."""
    borders, width = _borders(p, count, most_taps), idx(p.width)
    for wide, out in borders.static:
        with k.when(width.compare("eq", wide)):
            yield from _static(replace(p, width=wide, out_width=out), k, count)
    done = borders.static[-1][0] if borders.static else -1
    if borders.narrow > done:
        test = width.compare("le", borders.narrow)
        with k.when(both(width.compare("gt", done), test) if done >= 0 else test), k.loop("side", 0, p.out_width) as column:
            yield Piece(column, 1, side=True)
        done = borders.narrow
    if borders.rest:
        with k.when(width.compare("gt", done)) if done >= 0 else k.block():
            yield from _wide(p, k, count, borders)


def _borders(p: Problem, count: int, most_taps: int) -> _Borders:
    stride, pad, reach = p.strides[1], p.pads[1], (p.kernel[1] - 1) * p.dilations[1]
    left = -(-pad // stride)
    lead = max(left, min(count, LEAD)) if left else 0
    wide, out = (a.reshape(-1) for a in np.broadcast_arrays(np.asarray(values_of(p.width)), np.asarray(values_of(p.out_width))))
    end = wide - stride * out
    right = np.maximum(0, (reach - end - pad) // stride)
    narrow = int(wide[out < lead + right].max(initial=-1))
    forms = sorted({(int(w), int(o)) for w, o in zip(wide, out, strict=True)})
    if len(forms) > len({width for width, _ in forms}):
        raise Undecided(f"`{p.width}` does not tell how wide the result is, `{p.out_width}`")
    taps = np.cumsum([o * min(p.kernel[1], w) for w, o in forms])
    few = forms[: int(np.searchsorted(taps, most_taps, "right"))] if narrow >= 0 else []
    static = tuple(form for form in few if form[0] <= narrow or form[1] < lead + count)
    others = wide > max(narrow, static[-1][0] if static else -1)
    behind = (out - lead - right)[others] % count + right[others]
    rest = sorted(set(zip(end[others].tolist(), behind.tolist(), strict=True)))
    return _Borders(lead, tuple(rest), static, narrow)


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
    reach, ends = taps[-1], sorted({end for end, _ in borders.rest})
    for first, pixels in _evened(borders.lead, count):
        with k.block():
            yield Piece(idx(first), pixels, [[r for r in range(pixels) if (first + r) * stride - pad + at >= 0] for at in taps])
    end, out = k.let("end", p.width - p.out_width * stride), idx(p.out_width)
    right = {value: max(0, (reach - value - pad) // stride) for value in ends}  # columns that reach over the right border
    over = idx(right[ends[0]])
    for value in ends[1:]:
        over = select(end.compare("eq", value), idx(right[value]), over) if right[value] != right[ends[0]] else over
    whole = k.let("whole_end", (out - over - borders.lead) // count * count + borders.lead)
    with k.loop("ow", borders.lead, whole, count) as ow:
        yield Piece(ow, count)
    rest = k.let("rest", out - whole)
    apart = len(ends) > 1 and any(right.values())  # do the same columns have other taps for other ends?
    for value, columns in sorted({(value if apart else ends[0], columns) for value, columns in borders.rest if columns}):
        test = rest.compare("eq", columns)
        with k.when(both(end.compare("eq", value), test) if apart else test):
            for first, pixels in _evened(columns, count):
                room = [value + (columns - first - r) * stride + pad for r in range(pixels)]
                inside = [[r for r in range(pixels) if at < room[r]] for at in taps]
                all_of_them = all(len(rows) == pixels for rows in inside)
                with k.block():
                    yield Piece(k.let("ow", whole + first), pixels, None if all_of_them else inside)


def _evened(columns: int, count: int) -> list[tuple[int, int]]:
    """Tiles of at most `count` columns that are about as wide as each other: the first column of each, and how many there are."""
    tiles = -(-columns // count)
    bounds = [n * columns // max(1, tiles) for n in range(tiles + 1)]
    return [(low, high - low) for low, high in pairwise(bounds)]
