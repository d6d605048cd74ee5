"""Complex numbers, of which the IR has none: a tensor of them is two of real ones, and a transform is a product with waves."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from intaglio.ir.graph import Array, Value


@dataclass(frozen=True, slots=True)
class Complex:
    """A tensor of complex numbers, as two of real ones."""

    re: Value
    im: Value


def waves(n: int, bins: int) -> Array:
    """[2 * bins, n]: cosines, then negative sines."""
    angle = 2 * np.pi * ((np.arange(bins)[:, None] * np.arange(n)[None, :]) % n) / n
    return np.concatenate([np.cos(angle), -np.sin(angle)])


def waves_back(n: int, bins: int) -> Array:
    """[2 * bins, n]: from the real and the imaginary parts of half a spectrum to what it is of, times n."""
    twice = np.full(bins, 2.0)
    twice[0] = 1
    if n % 2 == 0:
        twice[-1] = 1
    return np.asarray(waves(n, bins) * np.tile(twice, 2)[:, None])


def whole_waves(n: int, *, back: bool = False) -> Array:
    """[2 * n, 2 * n]: from real and imaginary parts to those of the whole spectrum; `back`: to what it is of, times n."""
    cos, sin = np.split(waves(n, n), 2)
    sin = -sin if back else sin
    return np.block([[cos, sin], [-sin, cos]])
