"""Winograd's transforms of 3x3 convolutions, for every target: F(m x m, 3x3) computes m x m results from (m + 2)^2 products.

    y = A' [ (G g G') * (B' d B) ] A        d: a patch of the input, (m + 2) x (m + 2), patches lie m apart;  g: the 3x3 weights

The matrices come from points p (Toom and Cook), and infinity as the last one: a polynomial of degree m + 1 is known by its values
there. Points in pairs +p and -p share half of the work: even and odd terms are summed once and added and subtracted. F(4x4) has
points 3/4 and 3/2 instead of the usual 1 and 2: all constants are exact in f32, and rounding errors are a quarter.

Integers have the points 1 and 2, and whole numbers everywhere: G is multiplied by what it divides by, so results come multiplied
by a known number (`WholeTransform`). Nothing is rounded.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache, reduce
from math import gcd, isqrt, lcm, prod
from typing import Protocol

import numpy as np

from intaglio.ir.graph import Array
from intaglio.kernels.builder import Builder
from intaglio.kernels.loop import Expr

Row = tuple[Fraction, ...]
POINTS: dict[int, tuple[Fraction, ...]] = {  # one of each pair; 0 and infinity are always there
    2: (Fraction(1),),
    4: (Fraction(3, 4), Fraction(3, 2)),
}
WHOLE_POINTS: dict[int, tuple[Fraction, ...]] = {2: (Fraction(1),), 4: (Fraction(1), Fraction(2))}
TAPS = 3
EPSILON = 2.0**-24


class Arithmetic(Protocol):
    """What a transform needs of vectors: `Lanes` of floats, or whole numbers."""

    def const(self, value: float) -> Expr: ...

    def add(self, a: Expr, b: Expr) -> Expr: ...

    def sub(self, a: Expr, b: Expr) -> Expr: ...

    def mul(self, a: Expr, b: Expr) -> Expr: ...

    def fma(self, a: Expr, b: Expr, c: Expr) -> Expr: ...


def _combined(factors: Sequence[float], parts: Array) -> Array:
    """The sum of `parts` along their first axis, each times its factor."""
    terms = [part if factor == 1.0 else part * factor for factor, part in zip(factors, parts, strict=True) if factor]
    return reduce(np.add, terms)


@dataclass(frozen=True, slots=True)
class Transform:
    """`forward` is B' (of the input), `weights` is G, `back` is A' (of the products), as exact numbers."""

    size: int  # m: results per axis
    forward: tuple[Row, ...]
    weights: tuple[Row, ...]
    back: tuple[Row, ...]

    @property
    def reach(self) -> int:
        """Inputs per axis, and products."""
        return self.size + TAPS - 1

    @property
    def amplification(self) -> float:
        """Largest sum of absolute values of what a result is added from, relative to max |x| max |w| of one channel. A direct sum
        has 9. Rounding errors are at most in proportion to it."""
        sums = [sum(map(abs, b)) * sum(map(abs, g)) for b, g in zip(self.forward, self.weights, strict=True)]
        return float(max(sum(abs(a) * s for a, s in zip(row, sums, strict=True)) for row in self.back)) ** 2

    def bound(self, channels: int) -> float:
        """Largest rounding error of a result before its bias, relative to max |x| max |w|: every product passes two transforms on
        either side, each at most `reach` additions, and the sum over channels."""
        return EPSILON * self.amplification * channels * (4 * self.reach + channels)

    def turned(self, weights: Array) -> Array:
        """Weights [O, I, 3, 3] as matrices [reach^2, I, O], computed in doubles and in this order on every machine."""
        g = [[float(value) for value in row] for row in self.weights]
        taps = np.ascontiguousarray(weights.transpose(2, 3, 1, 0), np.float64)
        rows = [_combined(row, taps) for row in g]
        return np.stack([_combined(row, of) for of in rows for row in g])

    def of_input(self, k: Builder, e: Arithmetic, d: Sequence[Expr], name: str) -> list[Expr]:
        """B' times a column. Rows of a pair of points have the same even terms, and the same odd ones but for the sign."""
        out: list[Expr | None] = [None] * self.reach
        for n in range(1, self.reach - 1, 2):
            even = k.let(f"{name}even", weighted(e, self.forward[n][0::2], d[0::2]))
            lead = self.forward[n][self.reach - 3]  # of the highest odd power
            odd = k.let(f"{name}odd", weighted(e, [c / lead for c in self.forward[n][1::2]], d[1::2]))
            out[n] = weighted(e, (Fraction(1), lead), (even, odd))
            out[n + 1] = weighted(e, (Fraction(1), -lead), (even, odd))
        for n in (0, self.reach - 1):
            out[n] = weighted(e, self.forward[n], d)
        return [k.let(f"{name}{n}", value) for n, value in enumerate(out) if value is not None]

    def of_products(self, k: Builder, e: Arithmetic, m: Sequence[Expr], name: str) -> list[Expr]:
        """A' times a column. Sums and differences of a pair are named where more than one result has them."""
        terms: list[tuple[list[Fraction], Expr]] = []  # the coefficients of a term in all results
        columns = [[row[n] for row in self.back] for n in range(self.reach)]
        if self.size <= 2:
            terms = list(zip(columns, m, strict=True))
        else:
            terms.append((columns[0], m[0]))
            for n in range(1, self.reach - 1, 2):
                both = k.let(f"{name}sum", e.add(m[n], m[n + 1])), k.let(f"{name}diff", e.sub(m[n], m[n + 1]))
                terms += [([c if i % 2 == odd else Fraction(0) for i, c in enumerate(columns[n])], both[odd]) for odd in (0, 1)]
            terms.append((columns[-1], m[-1]))
        values = [value for _, value in terms]
        return [k.let(f"{name}{i}", weighted(e, [c[i] for c, _ in terms], values)) for i in range(self.size)]


def weighted(e: Arithmetic, factors: Sequence[Fraction], values: Sequence[Expr]) -> Expr:
    """The sum of values times constants, those without a factor first."""
    terms = [(c, v) for c, v in zip(factors, values, strict=True) if c]
    terms.sort(key=lambda term: abs(term[0]) != 1)
    if terms[0][0] < 0 and any(c == 1 for c, _ in terms):
        terms.sort(key=lambda term: term[0] != 1)
    (factor, value), *rest = terms
    total = value if factor == 1 else e.mul(e.const(float(factor)), value)
    for factor, value in rest:
        if abs(factor) == 1:
            total = e.add(total, value) if factor > 0 else e.sub(total, value)
        else:
            total = e.fma(e.const(float(factor)), value, total)
    return total


@dataclass(frozen=True, slots=True)
class WholeTransform:
    """`way` has whole numbers only; its results are `factor` times those of the convolution."""

    way: Transform
    factor: int

    @property
    def growth(self) -> int:
        """How much larger than the input its transform can be."""
        return int(max(sum(map(abs, row)) for row in self.way.forward)) ** 2


@cache
def transform(size: int) -> Transform:
    return _of_points(size, POINTS[size])


@cache
def whole_transform(size: int) -> WholeTransform:
    """What G divides by goes into the weights, as far as 16 bits allow; A' has the rest, where it costs products."""
    way = _of_points(size, WHOLE_POINTS[size])
    factor = lcm(*(value.denominator for row in way.weights for value in row))
    scaled = [[int(value * factor) for value in row] for row in way.weights]
    shares = [_share(row) for row in scaled]
    weights = tuple(tuple(Fraction(v, share) for v in row) for row, share in zip(scaled, shares, strict=True))
    back = tuple(tuple(value * share for value, share in zip(row, shares, strict=True)) for row in way.back)
    return WholeTransform(Transform(size, way.forward, weights, back), factor**2)


def _share(row: Sequence[int]) -> int:
    """What a row of G has to be divided by, so that transformed weights of 8 bits fit 16."""
    most = isqrt(32767 // 128)
    return next(n for n in range(1, max(map(abs, row)) + 1) if gcd(*row) % n == 0 and sum(map(abs, row)) <= most * n)


def _of_points(size: int, pairs: Sequence[Fraction]) -> Transform:
    points = [Fraction(0), *(sign * p for p in pairs for sign in (1, -1))]
    reach = size + TAPS - 1
    forward, weights = [], []
    for n, p in enumerate(points):
        others = points[:n] + points[n + 1 :]
        forward.append((*_polynomial(others), Fraction(0)))
        weights.append(tuple(p**j / prod(p - q for q in others) for j in range(TAPS)))
    forward.append(_polynomial(points))
    weights.append((Fraction(0), Fraction(0), Fraction(1)))
    back = tuple((*(p**i for p in points), Fraction(i == size - 1)) for i in range(size))
    assert len(points) + 1 == reach
    return Transform(size, tuple(forward), tuple(weights), back)


def _polynomial(roots: Sequence[Fraction]) -> Row:
    """The coefficients of a polynomial with these roots, the lowest power first; the highest one has 1."""
    found = [Fraction(1)]
    for root in roots:
        found = [up - root * here for up, here in zip([Fraction(0), *found], [*found, Fraction(0)], strict=True)]
    return tuple(found)
