"""How far a quantised result is from that of floats, also where rounding changes how many things are found."""

from __future__ import annotations

import numpy as np

from intaglio.ir.graph import Array
from intaglio.quantize.settings import OutputError


def side_by_side(want: Array, got: Array) -> tuple[Array, Array]:
    """Two results in one shape. Where a count depends on data, one may have more rows: these stand beside zeros. So what both have
    in common is compared, and what only one side found is wrong by all of its size. Ranges that find too much or too little have
    a large error then, which grows with the number of rows, but never more than both results together."""
    want, got = want.astype(np.float64), got.astype(np.float64)
    if want.size == got.size:
        return want, got.reshape(want.shape)
    if want.ndim != got.ndim:
        want, got = want.reshape(-1), got.reshape(-1)
    shape = tuple(max(pair) for pair in zip(want.shape, got.shape, strict=True))
    return _with_zeros(want, shape), _with_zeros(got, shape)


def _with_zeros(array: Array, shape: tuple[int, ...]) -> Array:
    return np.pad(array, [(0, whole - own) for whole, own in zip(shape, array.shape, strict=True)])


def relative(want: Array, got: Array) -> float:
    """Root mean square of the difference over that of the float result."""
    want, got = side_by_side(want, got)
    if not want.size:
        return 0.0
    size = float(np.sqrt(np.mean(np.square(want))))
    difference = float(np.sqrt(np.mean(np.square(got - want))))
    return difference / size if size > 0 else difference


def output_error(name: str, pairs: list[tuple[Array, Array]]) -> OutputError:
    """Of one output over all samples: what floats give and what integers give."""
    both = [side_by_side(want, got) for want, got in pairs]
    want, got = (np.concatenate([pair[n].reshape(-1) for pair in both]) for n in (0, 1))
    size, length = float(np.sqrt(np.sum(want**2))), float(np.sqrt(np.sum(got**2)))
    difference = float(np.sqrt(np.sum((got - want) ** 2)))
    cosine = float(np.sum(want * got) / (size * length)) if size > 0 and length > 0 else float(difference == 0.0)
    return OutputError(name, difference / size if size > 0 else difference, cosine, float(np.abs(got - want).max(initial=0.0)))
