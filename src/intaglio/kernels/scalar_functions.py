"""Vector functions that C does not have: exp, log, tanh, sigmoid, erf on f32 vectors, as loop IR.

Range reduction and polynomials after Cephes (S. Moshier); `BOUNDS` has the largest error of each. Results of exp below 2^-125
flush to zero, denormal operands of log count as 2^-126. One lane uses libm.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from intaglio.ir.graph import Array
from intaglio.kernels.isa import Isa
from intaglio.kernels.lanes import Lanes
from intaglio.kernels.loop import Builder, Expr, Num, Op, Stmt, Type, Var


@dataclass(frozen=True, slots=True)
class VectorFunction:
    name: str
    param: Var
    body: tuple[Stmt, ...]
    result: Expr


def _polynomial(e: Lanes, k: Builder, x: Expr, coefficients: list[float]) -> Expr:
    """Horner's rule, highest power first."""
    p = e.const(coefficients[0])
    for c in coefficients[1:]:
        p = k.let("p", e.fma(p, x, e.const(c)))
    return p


def _exp(e: Lanes, k: Builder, x: Expr) -> Expr:
    ints = Type("i32", e.lanes)
    low = k.let("low", e.highest(e.const(-87.3), x))
    bounded = k.let("bounded", e.lowest(e.const(88.7228), low))
    n = k.let("n", Op("vround", (e.mul(bounded, e.const(1.44269504088896341)),), e.type))
    r = k.let("r", e.fma(n, e.const(-0.693359375), bounded))
    r = k.let("r", e.fma(n, e.const(2.12194440e-4), r))
    p = _polynomial(e, k, r, [1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1])
    p = k.let("p", e.fma(p, e.mul(r, r), e.add(r, e.const(1.0))))
    # 2^n as 2^(n-1) * 2: n reaches 128, whose exponent does not fit
    biased = Op("viadd", (Op("vtoint", (n,), ints), Op("visplat", (Num(126, Type("i32")),), ints)), ints)
    power = k.let("power", Op("vasfloat", (Op("vishl23", (biased,), ints),), e.type))
    scaled = k.let("scaled", e.mul(e.mul(p, power), e.const(2.0)))
    big = e.choose(e.compare("gt", x, e.const(88.7228)), e.const(float("inf")), scaled)
    return e.choose(e.compare("lt", x, e.const(-87.3)), e.const(0.0), big)


def _log(e: Lanes, k: Builder, x: Expr) -> Expr:
    ints = Type("i32", e.lanes)

    def splat(value: int) -> Expr:
        return Op("visplat", (Num(value, Type("i32")),), ints)

    safe = k.let("safe", e.highest(e.const(1.17549435e-38), x))
    bits = k.let("bits", Op("vasint", (safe,), ints))
    exponent = Op("visub", (Op("vishr23", (bits,), ints), splat(126)), ints)
    power = k.let("power", Op("vtofloat", (exponent,), e.type))
    mantissa_bits = Op("vior", (Op("viand", (bits, splat(0x007FFFFF)), ints), splat(0x3F000000)), ints)
    m = k.let("m", Op("vasfloat", (mantissa_bits,), e.type))  # in [0.5, 1)
    small = k.let("small", e.compare("lt", m, e.const(0.707106781186547524)))
    power = k.let("power", e.sub(power, e.choose(small, e.const(1.0), e.const(0.0))))
    m = k.let("m", e.sub(e.add(m, e.choose(small, m, e.const(0.0))), e.const(1.0)))
    z = k.let("z", e.mul(m, m))
    p = _polynomial(
        e, k, m,
        [7.0376836292e-2, -1.1514610310e-1, 1.1676998740e-1, -1.2420140846e-1, 1.4249322787e-1,
         -1.6668057665e-1, 2.0000714765e-1, -2.4999993993e-1, 3.3333331174e-1],
    )  # fmt: skip
    y = k.let("y", e.mul(e.mul(p, m), z))
    y = k.let("y", e.fma(power, e.const(-2.12194440e-4), y))
    y = k.let("y", e.fma(z, e.const(-0.5), y))
    y = k.let("y", e.fma(power, e.const(0.693359375), e.add(m, y)))
    y = k.let("y", e.choose(e.compare("eq", x, e.const(0.0)), e.const(float("-inf")), y))
    y = k.let("y", e.choose(e.compare("eq", x, e.const(float("inf"))), x, y))
    return e.choose(e.compare("ge", x, e.const(0.0)), y, e.const(float("nan")))


def _sigmoid(e: Lanes, k: Builder, x: Expr) -> Expr:
    return e.div(e.const(1.0), e.add(e.const(1.0), e.call("exp", e.neg(x))))


def _tanh(e: Lanes, k: Builder, x: Expr) -> Expr:
    size = k.let("size", e.abs(x))
    z = k.let("z", e.mul(x, x))
    p = _polynomial(e, k, z, [-5.70498872745e-3, 2.06390887954e-2, -5.37397155531e-2, 1.33314422036e-1, -3.33332819422e-1])
    near = k.let("near", e.fma(e.mul(p, z), x, x))
    t = k.let("t", e.call("exp", e.add(size, size)))
    far = k.let("far", e.sub(e.const(1.0), e.div(e.const(2.0), e.add(t, e.const(1.0)))))
    far = k.let("far", e.choose(e.compare("lt", x, e.const(0.0)), e.neg(far), far))
    return e.choose(e.compare("lt", size, e.const(0.625)), near, far)


def _erf(e: Lanes, k: Builder, x: Expr) -> Expr:
    size = k.let("size", e.abs(x))
    z = k.let("z", e.mul(x, x))
    p = _polynomial(
        e, k, z,
        [7.853861353153693e-5, -8.010193625184903e-4, 5.188327685732524e-3, -2.685381193529856e-2,
         1.128358514861418e-1, -3.761262582423300e-1, 1.128379165726710e0],
    )  # fmt: skip
    near = k.let("near", e.mul(p, x))
    # Abramowitz and Stegun 7.1.26: absolute error 1.5e-7
    t = k.let("t", e.div(e.const(1.0), e.fma(e.const(0.3275911), size, e.const(1.0))))
    q = _polynomial(e, k, t, [1.061405429, -1.453152027, 1.421413741, -0.284496736, 0.254829592])
    far = k.let("far", e.sub(e.const(1.0), e.mul(e.mul(q, t), e.call("exp", e.neg(z)))))
    far = k.let("far", e.choose(e.compare("lt", x, e.const(0.0)), e.neg(far), far))
    return e.choose(e.compare("lt", size, e.const(1.0)), near, far)


_BODIES: Mapping[str, Callable[[Lanes, Builder, Expr], Expr]] = {
    "exp": _exp,
    "log": _log,
    "sigmoid": _sigmoid,
    "tanh": _tanh,
    "erf": _erf,
}
# The largest relative error against float64 over the float range, measured on a million numbers and rounded up.
BOUNDS: Mapping[str, float] = {"exp": 1.2e-7, "log": 8e-8, "sigmoid": 1.8e-7, "tanh": 1.5e-7, "erf": 2.2e-7}
NEEDS: Mapping[str, tuple[str, ...]] = {"sigmoid": ("exp",), "tanh": ("exp",), "erf": ("exp",)}
VECTOR_FUNCTIONS = frozenset(_BODIES)


def vector_function(name: str, isa: Isa) -> VectorFunction:
    e = Lanes(isa, isa.lanes)
    k = Builder()
    x = Var(k.fresh("x"), e.type)
    result = _BODIES[name](e, k, x)
    return VectorFunction(name, x, k.body(), result)


def _erf_exact(x: Array) -> Array:
    from math import erf

    return np.asarray([erf(float(v)) for v in np.atleast_1d(x)], np.float64).reshape(np.shape(x))


# What functions mean, for the interpreter: computed in float64, rounded by the caller.
FUNCTION_MEANING: Mapping[str, Callable[..., Array]] = {
    "exp": np.exp,
    "log": np.log,
    "sigmoid": lambda x: 1.0 / (1.0 + np.exp(-x)),
    "tanh": np.tanh,
    "erf": _erf_exact,
    "sqrt": np.sqrt,
    "floor": np.floor,
    "ceil": np.ceil,
    "round": np.rint,
    "trunc": np.trunc,
    "sin": np.sin,
    "cos": np.cos,
    "tan": np.tan,
    "asin": np.arcsin,
    "acos": np.arccos,
    "atan": np.arctan,
    "sinh": np.sinh,
    "cosh": np.cosh,
    "asinh": np.arcsinh,
    "acosh": np.arccosh,
    "atanh": np.arctanh,
    "log1p": np.log1p,
    "expm1": np.expm1,
    "pow": lambda a, b: np.power(a, b),
    "fmod": lambda a, b: np.fmod(a, b),
    "isnan": np.isnan,
    "isinf": np.isinf,
}
