"""From the numbers of a tensor to the range that its integers cover."""

from __future__ import annotations

from functools import cache

import numpy as np

from intaglio.ir.graph import Array
from intaglio.ir.types import DType

_BINS, _LEVELS = 2048, 128


def range_of(method: str, numbers: Array, low: float, high: float, dtype: DType) -> tuple[float, float]:
    """The range, 0 included; it never leaves what was seen."""
    low, high = min(low, 0.0), max(high, 0.0)
    if low == high or method == "minmax" or numbers.size < 16:
        return low, high
    match method:
        case "percentile":
            first, last = np.percentile(numbers, (0.005, 99.995))
        case "entropy":
            limit = _entropy_limit(numbers)
            first, last = max(low, -limit), min(high, limit)
        case "mse":
            first, last = _least_error(numbers, low, high, dtype)
        case _:
            raise AssertionError(method)
    return max(low, min(float(first), 0.0)), min(high, max(float(last), 0.0))


def grid(low: float, high: float, dtype: DType) -> tuple[np.float32, int]:
    """(scale, zero point): asymmetric in 8 bits, symmetric in 16."""
    if low == high:
        low, high = min(low, 0.0), max(high, low + 1.0)
    info = np.iinfo(dtype.numpy)
    if dtype is DType.I16:
        return np.float32(max(max(-low, high) / info.max, 1e-30)), 0
    scale = np.float32(max((high - low) / 255.0, 1e-30))
    zero = round(info.min - low / float(scale))
    return scale, int(min(max(zero, info.min), info.max))


def rounded(numbers: Array, scale: np.float32, zero: int, dtype: DType) -> Array:
    """The numbers as they come back from the grid."""
    info = np.iinfo(dtype.numpy)
    steps = np.clip(np.rint(numbers / scale) + zero, info.min, info.max)
    return np.asarray((steps - zero) * scale, np.float32)


def _least_error(numbers: Array, low: float, high: float, dtype: DType) -> tuple[float, float]:
    """Both ends drawn in together, then each alone, as long as the mean square error shrinks."""

    def error(a: float, b: float) -> float:
        difference = rounded(numbers, *grid(a, b, dtype), dtype) - numbers
        return float(np.mean(difference.astype(np.float64) ** 2))

    best = (error(low, high), low, high)
    for share in np.geomspace(0.98, 0.05, 48):
        for a, b in ((low * share, high * share), (low * share, best[2]), (best[1], high * share)):
            best = min(best, (error(a, b), a, b))
    return best[1], best[2]


def _entropy_limit(numbers: Array) -> float:
    """The size beyond which numbers are clipped so that what is left of their distribution loses the least information."""
    sizes = np.abs(numbers)
    top = float(sizes.max())
    counts, _ = np.histogram(sizes, bins=_BINS, range=(0.0, top))
    counts = counts.astype(np.float64)
    counts[0] = 0.0 if counts[1:].any() else counts[0]  # a peak at zero says nothing about the range
    # The sum of p log(p / q), for all limits at once: p = counts / total, the last bin that is used with all beyond it, and
    # q = the mean of its level / made.
    used, edges = _edges()
    filled = counts > 0
    below, own = _running(counts), _running(counts * np.log(np.where(filled, counts, 1.0)))[used]
    sums, numbers_of = np.diff(below[edges]), np.maximum(np.diff(_running(filled.astype(np.float64))[edges]), 1.0)
    total, made = below[-1], below[used]
    levels = np.sum(sums * np.log(np.where(sums > 0, sums / numbers_of, 1.0)), axis=1)
    with np.errstate(all="ignore"):
        lost = (own - levels + made * np.log(made / total)) / total
        last, beyond, q = counts[used - 1], total - made, sums[:, -1] / numbers_of[:, -1] / made

        def part(count: Array) -> Array:
            return np.where(count > 0, count / total * np.log(count / total / q), 0.0)

        lost += np.where(last > 0, part(last + beyond) - part(last), 10.0 * beyond / total)  # nothing tells of those beyond
    lost = np.where(made > 0, lost, np.inf)
    best = int(np.argmin(lost))
    return top * int(used[best]) / _BINS if np.isfinite(lost[best]) else top


@cache
def _edges() -> tuple[Array, Array]:
    """How many bins are used, and where their levels start and end."""
    used = np.arange(_LEVELS, _BINS + 1, 16)
    return used, np.stack([np.linspace(0, n, _LEVELS + 1).astype(int) for n in used])


def _running(values: Array) -> Array:
    return np.concatenate([np.zeros(1), np.cumsum(values)])
