"""What a contraction computes: one geometry for convolutions, products and pools, made in one place.

    problem_of(job)      conv 3x3, 8 -> 16 channels, 32x32 -> 16x16, stride 2x2, group 1
    Problem.matrix(...)  a product [rows, depth] x [depth, columns]: an image one pixel high

Images are NHWC, weights [O, I / group, kh, kw].
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import product

import numpy as np

from intaglio.ir.graph import Array
from intaglio.ir.sizes import Size, Undecided, largest, most, moves, names_of, pinned
from intaglio.kernels.builder import Builder
from intaglio.kernels.contraction.tile import spread_out
from intaglio.kernels.job import Job, fact
from intaglio.kernels.loop import Expr, Num, both, idx, imax, imin
from intaglio.ops.conv import Conv
from intaglio.ops.hybrid import HybridConv
from intaglio.ops.pool import Pool
from intaglio.ops.quantised import QConv
from intaglio.ops.quantised_rows import QAveragePool

Pair = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Problem:
    batch: int
    height: int
    width: int
    channels: int
    out_height: int
    out_width: int
    out_channels: int
    kernel: Pair = (1, 1)
    strides: Pair = (1, 1)
    pads: Pair = (0, 0)  # top, left
    dilations: Pair = (1, 1)
    group: int = 1

    @staticmethod
    def matrix(rows: int, depth: int, columns: int, height: int = 1) -> Problem:
        """`height` times `rows` rows of `depth` numbers, each multiplied by the same columns."""
        return Problem(1, height, rows, depth, height, rows, columns)

    @property
    def moves(self) -> bool:
        """Does the caller say how large the image is?"""
        return moves((self.batch, self.height, self.width))

    def most(self) -> Problem:
        """The largest, for estimates."""
        if not self.moves:
            return self
        batch, height, width, out_height, out_width = largest(
            (self.batch, self.height, self.width, self.out_height, self.out_width)
        )
        return replace(self, batch=batch, height=height, width=width, out_height=out_height, out_width=out_width)

    def some(self, count: int) -> list[Problem]:
        """About `count` of the problems that this one is for the sizes that a caller may give, from the least to the largest."""
        moving = [n for n in (self.batch, self.height, self.width) if isinstance(n, Size)]
        ranges = {name: span for n in moving for name, span in n.bounds.ranges.items() if name in names_of(self)}
        each = max(2, round(count ** (1 / max(1, len(ranges)))))
        points = [spread_out([*span.numbers], each) for span in ranges.values()]
        found = [pinned(self, dict(zip(ranges, sizes, strict=True))) for sizes in product(*points)]
        return [problem for problem in found if problem.rows]

    @property
    def depth(self) -> int:
        """Input channels of a group."""
        return self.channels // self.group

    @property
    def columns(self) -> int:
        """Output channels of a group."""
        return self.out_channels // self.group

    @property
    def rows(self) -> int:
        """Output pixels."""
        return self.batch * self.out_height * self.out_width

    @property
    def taps(self) -> int:
        """Products of one output."""
        return self.kernel[0] * self.kernel[1] * self.depth

    @property
    def pointwise(self) -> bool:
        """Is every pixel multiplied for itself? Then the image is a matrix."""
        same = (self.height, self.width) == (self.out_height, self.out_width)
        return self.kernel == self.strides == (1, 1) and self.pads == (0, 0) and same and self.group == 1

    @property
    def depthwise(self) -> bool:
        """One output channel for each input channel?"""
        return self.group > 1 and self.depth == self.columns == 1

    @property
    def joined(self) -> bool:
        """Does a row of the window lie side by side in memory?"""
        return self.dilations[1] == 1 and self.group == 1

    # Where windows are ----------------------------------------------------------------------------------------------

    def all_inside(self, first: int, count: int) -> bool:
        """Do all taps of `count` pixels from output column `first` on lie inside the image?"""
        low = first * self.strides[1] - self.pads[1]
        high = (first + count - 1) * self.strides[1] - self.pads[1] + (self.kernel[1] - 1) * self.dilations[1]
        return low >= 0 and high < self.width

    def valid_rows(self, first: int, count: int, kw: int) -> list[int]:
        """Which of `count` pixels from output column `first` on have their tap `kw` inside the image."""
        at = [(first + r) * self.strides[1] - self.pads[1] + kw * self.dilations[1] for r in range(count)]
        return [r for r in range(count) if 0 <= at[r] < self.width]

    def reaches_over(self, axis: int) -> bool:
        """Do windows reach over the bottom (axis 0) or right (axis 1) border?"""
        size, out = ((self.height, self.out_height), (self.width, self.out_width))[axis]
        last = (out - 1) * self.strides[axis] - self.pads[axis] + (self.kernel[axis] - 1) * self.dilations[axis]
        return most(last - size) >= 0  # for some sizes, where the caller says what they are

    @property
    def padded(self) -> bool:
        return any(self.pads) or self.reaches_over(0) or self.reaches_over(1)

    @property
    def share_inside(self) -> float:
        """How many of the rows of all windows are inside the image: a direct convolution leaves out the others. Columns that it
        leaves out save little, since such a tile has fewer sums at a time."""
        (step, _), (top, _), (apart, _) = self.strides, self.pads, self.dilations
        rows = [row * step + tap * apart - top for row in range(self.out_height) for tap in range(self.kernel[0])]
        return sum(0 <= row < self.height for row in rows) / len(rows)

    def inside(self, top: Expr, left: Expr, count: int = 1) -> Expr | bool:
        """Do the whole windows of `count` columns from `left` on lie inside the image? An expression where only the running
        program knows."""
        test: Expr | bool = True
        right = left + (count - 1) * self.strides[1]
        axes = ((top, top, self.height, self.out_height), (left, right, self.width, self.out_width))
        for axis, (at, end, size, out) in enumerate(axes):
            room = size - (self.kernel[axis] - 1) * self.dilations[axis]
            first, last = self.pads[axis] == 0, (out - 1) * self.strides[axis] - self.pads[axis]
            if isinstance(at, Num) and isinstance(end, Num):
                first, last = at.value >= 0, int(end.value)
            if most(room) <= 0 or (isinstance(at, Num) and not (first and last < most(room))):
                return False
            over = most(last - room) >= 0  # for some sizes, where the caller says what they are
            for needed, part in ((not first, at.compare("ge", 0)), (over, end.compare("lt", room))):
                if needed:
                    test = part if isinstance(test, bool) else both(test, part)
        return test

    def inner_and_edges(self, count: int) -> tuple[list[int], list[int]]:
        """First columns of the tiles of `count` pixels that lie inside with all their taps, and of those that do not."""
        if isinstance(self.out_width, Size):
            raise Undecided(f"the width of the result is a size of the caller, {self.out_width}")
        stride, pad = self.strides[1], self.pads[1]
        low = max(0, -(-pad // (stride * count)))  # the first tile whose windows start inside
        room = self.width - 1 + pad - (self.kernel[1] - 1) * self.dilations[1] - (count - 1) * stride
        high = min(room // (stride * count), self.out_width // count - 1)  # the last one that ends there
        low, high = (low, high + 1) if high >= low else (0, 0)
        tiles = -(-self.out_width // count)
        return [c * count for c in range(low, high)], [c * count for c in (*range(low), *range(high, tiles))]

    def window_rows(self, k: Builder, oh: Expr) -> tuple[Expr, Expr, Expr]:
        """The top of the windows of output row `oh`, and the rows of the window inside the image: first, behind the last."""
        top = k.let("top", oh * self.strides[0] - self.pads[0])
        return top, *self.rows_inside(k, top)

    def rows_inside(self, k: Builder, top: Expr) -> tuple[Expr, Expr]:
        """The rows of a window from `top` on that are inside the image: first, behind the last."""
        return self._taps_inside(k, top, 0, "kh")

    def columns_inside(self, k: Builder, left: Expr) -> tuple[Expr, Expr]:
        """The columns of a window from `left` on that are inside the image: first, behind the last."""
        return self._taps_inside(k, left, 1, "kw")

    def _taps_inside(self, k: Builder, at: Expr, axis: int, name: str) -> tuple[Expr, Expr]:
        step, size = self.dilations[axis], (self.height, self.width)[axis]
        low, high = idx(0), idx(self.kernel[axis])
        if self.pads[axis]:
            low = k.let(f"{name}_first", imax(0, (0 - at + (step - 1)) // step if step > 1 else 0 - at))
        if self.reaches_over(axis):
            high = k.let(f"{name}_last", imin(self.kernel[axis], (idx(size + step - 1) - at) // step))
        return low, high

    # Other forms of the same ------------------------------------------------------------------------------------------

    def upright(self) -> Problem:
        """An image one pixel wide is a row: the same memory, and tiles go along it."""
        if not (self.width == self.out_width == self.kernel[1] == 1 and self.pads[1] == 0):
            return self
        return replace(
            self, height=1, width=self.height, out_height=1, out_width=self.out_height, kernel=self.kernel[::-1],
            strides=self.strides[::-1], pads=(0, self.pads[0]), dilations=self.dilations[::-1],
        )  # fmt: skip

    def matrices(self, weights: Array) -> list[Array]:
        """Weights [O, I, kh, kw] as [kh, kw, I, columns] for each group: views, which are copied when they are packed."""
        return [part.transpose(2, 3, 1, 0) for part in np.split(weights, self.group)]

    # How it is called -------------------------------------------------------------------------------------------------

    def stem(self, name: str, *, apart: bool = False) -> str:
        """The name of its kernel in C, such as `conv3x3_8_16`; channels are `apart` in depthwise convolutions and pools."""
        (kh, kw) = self.kernel
        outs = "" if apart else f"_{self.out_channels}"
        return f"{name}{kh}x{kw}_{self.channels}{outs}"

    def title(self, name: str, *, apart: bool = False) -> str:
        """The first line of its comment."""
        (kh, kw), (sh, sw) = self.kernel, self.strides
        channels = f"{self.channels}" if apart else f"{self.channels} -> {self.out_channels}"
        sizes = f"{self.height}x{self.width} -> {self.out_height}x{self.out_width}"
        groups = "" if apart else f", group {self.group}"
        return f"{name} {kh}x{kw}, {channels} channels, {sizes}, stride {sh}x{sw}{groups}"


def _pair(values: tuple[int, ...]) -> Pair:
    return values[0], values[1]


@fact
def problem_of(job: Job) -> Problem:
    """The geometry of a convolution or pool of an NHWC image."""
    op = job.node.op
    n, h, w, c = job.type(0).shape
    _, oh, ow, outs = job.node.output.shape
    match op:
        case Conv() | QConv() | HybridConv():
            kernel, dilations, group = job.type(1).shape[2:], op.dilations, op.group
        case Pool():
            kernel, dilations, group = op.kernel, op.dilations, c
        case QAveragePool():
            kernel, dilations, group = op.kernel, (1, 1), c
        case _:
            raise AssertionError(op)
    return Problem(n, h, w, c, oh, ow, outs, _pair(kernel), _pair(op.strides), _pair(op.pads), _pair(dilations), group)
