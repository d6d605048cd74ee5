"""Functions of real numbers, a row each: what it means in numpy, its C, its OpenCL, its body for vectors and the error of that.

    fn_erf     one lane: erff(x) of C's library; a vector: ig_verf(x), the body below as an inline function; OpenCL: erf(x)

Everything else is derived from these rows: the printers, the interpreter and the tests ask here, and an operator with the name of
a function needs no row in `expressions.py`.

Range reduction and polynomials of exp and log for vectors are those of Cephes (S. Moshier). Results of exp below 2^-125 flush to
zero, denormal operands of log count as 2^-126.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache

import numpy as np

from intaglio.ir.graph import Array
from intaglio.kernels.builder import Builder
from intaglio.kernels.isa import ISAS, Isa
from intaglio.kernels.lanes import Lanes
from intaglio.kernels.loop import Expr, Let, Num, Op, Stmt, Type, Var
from intaglio.ops.activation import Sigmoid, Tanh
from intaglio.ops.base import Elementwise
from intaglio.ops.unary import (
    Acos,
    Acosh,
    Asin,
    Asinh,
    Atan,
    Atanh,
    Ceil,
    Cos,
    Cosh,
    Erf,
    Erfc,
    Exp,
    Expm1,
    Floor,
    Log,
    Log1p,
    Round,
    Sin,
    Sinh,
    Sqrt,
    Tan,
)

Body = Callable[[Lanes, Builder, Expr], Expr]


_CALLED, _NUMBER = re.compile(r"\b[a-z]\w*(?=\()"), re.compile(r"(?<![\w.])\d+\.\d+(?:e-?\d+)?")


@dataclass(frozen=True, slots=True)
class ScalarFunction:
    """`fn_NAME` in loop IR.

    `c` names a function of C's library, or is an expression of x in doubles, such as `1.0 / (1.0 + exp(-x))`; the text for floats
    is derived. OpenCL has C's functions for floats, halves and vectors; `opencl` names a function that only OpenCL has.
    """

    name: str
    meaning: Callable[..., Array]  # on float64; the caller rounds
    c: str
    opencl: str = ""
    vector: Body | None = None  # of f32; with neither this nor an instruction (`INSTRUCTIONS`), one lane at a time
    bound: float = 0.0  # the largest relative error of `vector` against float64, measured on a million numbers and rounded up

    def is_call(self) -> bool:
        """Is it a function of C's library, and not an expression?"""
        return self.c.isidentifier()

    def c_text(self, kind: str) -> str:
        """The name of the function, or the expression, for f32 or f64."""
        if kind == "f64":
            return self.c
        return f"{self.c}f" if self.is_call() else _NUMBER.sub(r"\g<0>f", _CALLED.sub(r"\g<0>f", self.c))

    def builtin(self) -> str:
        """The function of OpenCL; empty where there is none."""
        return self.opencl or (self.c if self.is_call() else "")

    def opencl_text(self, number: str = "{}f") -> str:
        """The expression in OpenCL, for numbers and vectors; `number` is how a constant is written."""
        return _NUMBER.sub(lambda found: number.format(found[0]), self.c)


@dataclass(frozen=True, slots=True)
class VectorFunction:
    name: str
    param: Var
    body: tuple[Stmt, ...]
    result: Expr

    def needs(self) -> tuple[str, ...]:
        """Other functions that it calls."""
        values = [*(stmt.value for stmt in self.body if isinstance(stmt, Let)), self.result]
        return tuple(dict.fromkeys(name for value in values for name in _called(value)))


def _called(expr: Expr) -> Iterator[str]:
    if isinstance(expr, Op):
        if expr.op.startswith("fn_"):
            yield expr.op[3:]
        for argument in expr.args:
            yield from _called(argument)


# Bodies for vectors -------------------------------------------------------------------------------------------------------

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


def _expm1(e: Lanes, k: Builder, x: Expr) -> Expr:
    """W. Kahan's way: what rounding does to u = exp(x) it does to log(u) too, so that their quotient is right."""
    u = k.let("u", e.call("exp", x))
    low = k.let("low", e.sub(u, e.const(1.0)))
    y = k.let("y", e.mul(low, e.div(x, e.call("log", u))))
    y = k.let("y", e.choose(e.compare("eq", low, e.const(0.0)), x, y))
    y = k.let("y", e.choose(e.compare("eq", low, e.const(-1.0)), low, y))
    return e.choose(e.compare("eq", u, e.const(float("inf"))), u, y)


def _log1p(e: Lanes, k: Builder, x: Expr) -> Expr:
    """In the same way, with u = 1 + x."""
    u = k.let("u", e.add(e.const(1.0), x))
    low = k.let("low", e.sub(u, e.const(1.0)))
    y = k.let("y", e.mul(e.call("log", u), e.div(x, low)))
    y = k.let("y", e.choose(e.compare("eq", low, e.const(0.0)), x, y))
    return e.choose(e.compare("eq", u, e.const(float("inf"))), u, y)


def _odd_ratio(e: Lanes, k: Builder, x: Expr, limit: float, above: list[float], below: list[float]) -> Expr:
    """x P(x^2) / Q(x^2), between -1 and 1. From the limit on, where the function is 1 in f32 or nearly so, it is exactly 1: GELU
    multiplies what is left of 1 with x."""
    low = k.let("low", e.highest(e.const(-limit), x))
    bounded = k.let("bounded", e.lowest(e.const(limit), low))
    z = k.let("z", e.mul(bounded, bounded))
    p = k.let("p", e.mul(_polynomial(e, k, z, above), bounded))
    ratio = k.let("ratio", e.div(p, _polynomial(e, k, z, below)))
    within = k.let("within", e.lowest(e.const(1.0), k.let("least", e.highest(e.const(-1.0), ratio))))
    above_limit = k.let("high", e.choose(e.compare("ge", x, e.const(limit)), e.const(1.0), within))
    return e.choose(e.compare("le", x, e.const(-limit)), e.const(-1.0), above_limit)


def _tanh(e: Lanes, k: Builder, x: Expr) -> Expr:
    """Ratio of degrees 11 and 6, fitted to the smallest relative error by weighted least squares (Lawson)."""
    above = [2.07233404e-11, -1.37187078e-08, 9.57366692e-06, 2.95386958e-03, 1.29498836e-01, 9.99999966e-01]
    return _odd_ratio(e, k, x, 8.5, above, [2.32702115e-04, 2.38982662e-02, 4.62831869e-01, 1.0])


def _erf(e: Lanes, k: Builder, x: Expr) -> Expr:
    """Ratio of degrees 13 and 8, fitted in the same way."""
    above = [2.0148088e-08, -1.96319102e-06, 1.40597502e-04, 3.6322274e-03, 5.03447363e-02, 1.98180927e-01, 1.12837911e00]
    return _odd_ratio(e, k, x, 3.9, above, [9.40566532e-04, 1.42077476e-02, 1.14280333e-01, 5.08965019e-01, 1.0])


# The table ----------------------------------------------------------------------------------------------------------------


def _operator(op: Elementwise, c: str = "", opencl: str = "", vector: Body | None = None, bound: float = 0.0) -> ScalarFunction:
    """The function that an operator of the same name applies; the operator's class has its meaning."""
    return ScalarFunction(op.NAME, op.compute, c or op.NAME, opencl, vector, bound)


def _library(name: str, meaning: Callable[..., Array]) -> ScalarFunction:
    """A function of C's library that operators are made of."""
    return ScalarFunction(name, meaning, name)


_ROWS = (
    _operator(Exp(), vector=_exp, bound=1.2e-7),
    _operator(Log(), vector=_log, bound=8e-8),
    _operator(Sigmoid(), c="1.0 / (1.0 + exp(-x))", vector=_sigmoid, bound=1.8e-7),
    _operator(Tanh(), vector=_tanh, bound=3.0e-7),
    _operator(Erf(), vector=_erf, bound=3.0e-7),
    _operator(Erfc()),
    _operator(Sqrt()),
    _operator(Floor()),
    _operator(Ceil()),
    _operator(Round(), c="rint(x)"),
    _operator(Sin()),
    _operator(Cos()),
    _operator(Tan()),
    _operator(Asin()),
    _operator(Acos()),
    _operator(Atan()),
    _operator(Sinh()),
    _operator(Cosh()),
    _operator(Asinh()),
    _operator(Acosh()),
    _operator(Atanh()),
    _operator(Expm1(), vector=_expm1, bound=4.0e-7),
    _operator(Log1p(), vector=_log1p, bound=3.0e-7),
    _library("trunc", np.trunc),
    _library("pow", np.power),
    _library("fmod", np.fmod),
)
FUNCTIONS = {row.name: row for row in _ROWS}


# What others derive from it -----------------------------------------------------------------------------------------------


def function_of(op: Op) -> ScalarFunction | None:
    """The row of an operation of loop IR, where it is a function."""
    return FUNCTIONS.get(op.op.removeprefix("fn_")) if op.op.startswith("fn_") else None


def vector_function(name: str, isa: Isa) -> VectorFunction:
    body = FUNCTIONS[name].vector
    assert body is not None, f"no vector function {name}"
    e = Lanes(isa, isa.lanes)
    k = Builder()
    x = Var(k.fresh("x"), e.type)
    result = body(e, k, x)
    return VectorFunction(name, x, k.body(), result)


@cache
def with_needs(name: str) -> tuple[str, ...]:
    """A vector function after those that it calls, in the order in which C wants them."""
    needed = [each for other in vector_function(name, ISAS["vec4"]).needs() for each in with_needs(other)]
    return tuple(dict.fromkeys([*needed, name]))
