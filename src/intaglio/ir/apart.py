"""Two shapes that should be the same and are not, for some sizes of the caller: what to say, and which sizes would do.

    `(H-2)//2*2` and `H` differ for H=17 (equal for H=16; H=18; H=20; ...); `--dim H=16..128:2` takes these
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from intaglio.ir.sizes import Bounds, Size, values_of
from intaglio.ir.spans import Span

MOST_STEP = 256
STEPS, LIST = "takes these", "`--dim NAME=N,M` takes a list of sizes"


def apart(one: Sequence[int], other: Sequence[int]) -> str:
    """Of two shapes that should be the same, why they are not for all sizes; "" where sizes of the caller have no part in it."""
    for a, b in zip(one, other, strict=False):
        if a == b or not (isinstance(a, Size) or isinstance(b, Size)):
            continue
        same = np.asarray(values_of(a) == values_of(b))
        size = a if isinstance(a, Size) else b
        assert isinstance(size, Size)
        wrong = _example(size.bounds, same.shape, tuple(np.argwhere(~same)[0]))
        right = [_example(size.bounds, same.shape, tuple(at)) for at in np.argwhere(same)[:3]]
        if not right:
            return f": `{a}` and `{b}` are equal for no size"
        told = "; ".join(right) + ("; ..." if same.sum() > len(right) else "")
        way = _in_steps(size.bounds, same) or LIST
        return f": `{a}` and `{b}` differ for {wrong} (equal for {told}); {way}"
    return ""


def hint_of(reason: str) -> str:
    """Where a reason ends with sizes that would do; "" where it does not."""
    return "give sizes for which the shapes fit together, as above" if reason.endswith((STEPS, LIST)) else ""


def _moving(bounds: Bounds, shape: tuple[int, ...]) -> dict[str, int]:
    """The sizes that an array of values depends on, with their axes."""
    axes = {name: len(shape) + bounds.axis(name) for name in bounds.ranges}
    return {name: axis for name, axis in axes.items() if axis >= 0 and shape[axis] > 1}


def _example(bounds: Bounds, shape: tuple[int, ...], at: tuple[int, ...]) -> str:
    """The sizes at a place of values."""
    return ", ".join(f"{name}={bounds.ranges[name].numbers[int(at[axis])]}" for name, axis in _moving(bounds, shape).items())


def _in_steps(bounds: Bounds, same: np.ndarray[tuple[int, ...], np.dtype[np.bool_]]) -> str:
    """Of the ranges in steps, multiples of the step, the one with the most sizes for which the shapes are the same."""
    moving = _moving(bounds, same.shape)
    for step in range(2, MOST_STEP + 1):
        chosen, ranges = same, []
        for name, axis in moving.items():
            numbers = bounds.ranges[name].numbers
            places = [place for place, n in enumerate(numbers) if n % step == 0 and n > 0]
            if len(places) < 2:
                return ""
            chosen = chosen.take(places, axis)
            ranges.append(f"`--dim {name}={Span(numbers[places[0]], numbers[places[-1]], step)}`")
        if chosen.all():
            return f"{' '.join(ranges)} {STEPS}"
    return ""
