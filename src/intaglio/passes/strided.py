"""Where the numbers of a view are in memory: the first one, and the step of each axis. As numpy's views, without an array, so that
dimensions may be sizes that the caller gives."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from intaglio.ir.sizes import most
from intaglio.ir.types import Shape, strides_of


@dataclass(frozen=True, slots=True)
class Strided:
    start: int
    shape: Shape
    steps: Shape

    @staticmethod
    def of(shape: Shape) -> Strided:
        """A tensor in one piece."""
        return Strided(0, shape, strides_of(shape))

    def transposed(self, perm: Sequence[int]) -> Strided:
        return replace(self, shape=tuple(self.shape[a] for a in perm), steps=tuple(self.steps[a] for a in perm))

    def turned(self) -> Strided:
        """The last two axes exchanged."""
        last = len(self.shape)
        return self.transposed([*range(last - 2), last - 1, last - 2])

    def cut(self, starts: Shape, steps: Shape, shape: Shape) -> Strided:
        start = self.start + sum(at * step for at, step in zip(starts, self.steps, strict=True))
        return Strided(start, shape, tuple(every * step for every, step in zip(steps, self.steps, strict=True)))

    def spread(self, shape: Shape) -> Strided:
        """Repeated along axes of one, as numpy does it."""
        lead = len(shape) - len(self.shape)
        steps = [0] * lead + [0 if n == 1 else step for n, step in zip(self.shape, self.steps, strict=True)]
        return Strided(self.start, shape, tuple(steps))

    def shaped(self, shape: Shape) -> Strided | None:
        """The same numbers in another shape, where that takes no copy."""
        axes = [(n, step) for n, step in zip(self.shape, self.steps, strict=True) if n != 1]
        steps: list[int] = []
        wanted = list(shape)
        while wanted:
            if wanted[0] == 1:
                steps.append(0)
                del wanted[0]
                continue
            group = _group(axes, wanted)
            if group is None:
                return None
            old, new = group
            if any(a[1] != b[0] * b[1] for a, b in itertools.pairwise(axes[:old])):
                return None
            last = axes[old - 1][1]
            steps += [inner * last for inner in strides_of(tuple(wanted[:new]))]
            del axes[:old], wanted[:new]
        return None if axes else Strided(self.start, shape, tuple(steps))


def _group(axes: list[tuple[int, int]], wanted: list[int]) -> tuple[int, int] | None:
    """The fewest axes before and after that have as many numbers."""
    old = new = 1
    while old <= len(axes) and new <= len(wanted):
        before, after = math.prod(n for n, _ in axes[:old]), math.prod(wanted[:new])
        if before == after:
            return old, new
        if most(before) < most(after):
            old += 1
        else:
            new += 1
    return None
