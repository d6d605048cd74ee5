"""Complex numbers, of which the IR has none: a tensor of them is two of real ones, and a transform is a product with waves."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from intaglio.frontends.building import concat, part, reshape, transpose
from intaglio.frontends.emitting import Emits
from intaglio.ir.graph import Array, Value
from intaglio.ops.matmul import MatMul


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


def along(call: Emits, x: Value, axis: int, matrix: Array) -> Value:
    """[..., n, ...] times [n, m]."""
    rank = len(x.shape)
    order = [*(n for n in range(rank) if n != axis), axis]
    turned = transpose(call, x, order)
    rows = reshape(call, turned, (-(-x.type.elements // max(turned.shape[-1], 1)), turned.shape[-1]))
    y = reshape(call, call.emit(MatMul(), rows, call.constant(matrix, x.dtype)), (*turned.shape[:-1], matrix.shape[1]))
    return transpose(call, y, [order.index(n) for n in range(rank)])


def spectrum(call: Emits, x: Value, axis: int, size: int, bins: int, factor: float = 1.0) -> Complex:
    """Of real numbers: `bins` waves of the spectrum, half of which says the rest."""
    both = along(call, x, axis, waves(size, bins).T * factor)
    return Complex(*(part(call, both, axis, n * bins, bins) for n in (0, 1)))


def whole(call: Emits, x: Complex, axis: int, size: int, back: bool, factor: float = 1.0) -> Complex:
    """Of complex numbers, forth or back."""
    both = along(call, concat(call, [x.re, x.im], axis), axis, whole_waves(size, back=back) * factor)
    return Complex(*(part(call, both, axis, n * size, size) for n in (0, 1)))


def from_half(call: Emits, x: Complex, axis: int, size: int, factor: float = 1.0) -> Value:
    """The real numbers that half of a spectrum is of."""
    return along(call, concat(call, [x.re, x.im], axis), axis, waves_back(size, size // 2 + 1) * factor)
