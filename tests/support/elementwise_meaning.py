"""The test row of an elementwise operator of floats: what it means, in Python's own mathematics, and where.

`tests/ops/test_meaning.py` compares the operator's class with it, and the kernel tests take their operators from it: a row here is
the interpreter on every instruction set, the compiled C and the OpenCL kernel of that operator.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from intaglio.ir.graph import Array
from intaglio.ops.activation import (
    Celu,
    Clip,
    Elu,
    Gelu,
    HardSigmoid,
    HardSwish,
    LeakyRelu,
    Mish,
    Relu,
    Selu,
    Shrink,
    Sigmoid,
    Silu,
    Softplus,
    Softsign,
    Tanh,
    ThresholdedRelu,
)
from intaglio.ops.base import Elementwise
from intaglio.ops.binary import Add, Div, Equal, Greater, GreaterEqual, Less, LessEqual, Max, Min, Mod, Mul, Prelu, Sub
from intaglio.ops.unary import (
    Abs,
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
    IsInf,
    IsNan,
    Log,
    Log1p,
    Neg,
    Reciprocal,
    Round,
    Sign,
    Sin,
    Sinh,
    Sqrt,
    Tan,
)


def anywhere(x: Array) -> Array:
    return x


def positive(x: Array) -> Array:
    return np.add(np.absolute(x), 0.1)


def above_one(x: Array) -> Array:
    return np.add(np.absolute(x), 1.1)


def inside_one(x: Array) -> Array:
    return np.multiply(np.tanh(x), 0.9)


@dataclass(frozen=True)
class Meaning:
    op: Elementwise
    formula: Callable[..., float]
    domain: Callable[[Array], Array] = anywhere  # takes any numbers to numbers that the formula is for


def _softplus(x: float) -> float:
    return math.log1p(math.exp(x))


_ROWS = (
    Meaning(Exp(), math.exp),
    Meaning(Log(), math.log, positive),
    Meaning(Expm1(), math.expm1),
    Meaning(Log1p(), math.log1p, inside_one),
    Meaning(Sqrt(), math.sqrt, positive),
    Meaning(Floor(), math.floor),
    Meaning(Ceil(), math.ceil),
    Meaning(Round(), round),
    Meaning(Sin(), math.sin),
    Meaning(Cos(), math.cos),
    Meaning(Tan(), math.tan),
    Meaning(Asin(), math.asin, inside_one),
    Meaning(Acos(), math.acos, inside_one),
    Meaning(Atan(), math.atan),
    Meaning(Sinh(), math.sinh),
    Meaning(Cosh(), math.cosh),
    Meaning(Asinh(), math.asinh),
    Meaning(Acosh(), math.acosh, above_one),
    Meaning(Atanh(), math.atanh, inside_one),
    Meaning(Erf(), math.erf),
    Meaning(Erfc(), math.erfc),
    Meaning(Tanh(), math.tanh),
    Meaning(Sigmoid(), lambda x: 1 / (1 + math.exp(-x))),
    Meaning(Add(), lambda a, b: a + b),
    Meaning(Sub(), lambda a, b: a - b),
    Meaning(Mul(), lambda a, b: a * b),
    Meaning(Div(), lambda a, b: a / b),
    Meaning(Neg(), lambda x: -x),
    Meaning(Abs(), abs),
    Meaning(Relu(), lambda x: max(x, 0)),
    Meaning(Reciprocal(), lambda x: 1 / x),
    Meaning(Softsign(), lambda x: x / (1 + abs(x))),
    Meaning(Silu(), lambda x: x / (1 + math.exp(-x))),
    Meaning(IsNan(), math.isnan),
    Meaning(Equal(), lambda a, b: a == b),
    Meaning(Less(), lambda a, b: a < b),
    Meaning(LessEqual(), lambda a, b: a <= b),
    Meaning(Greater(), lambda a, b: a > b),
    Meaning(GreaterEqual(), lambda a, b: a >= b),
    Meaning(Min(), min),
    Meaning(Max(), max),
    Meaning(Sign(), lambda x: (x > 0) - (x < 0)),
    Meaning(IsInf(), math.isinf),
    Meaning(Prelu(), lambda x, slope: x if x > 0 else slope * x),
    Meaning(LeakyRelu(0.2), lambda x: x if x > 0 else 0.2 * x),
    Meaning(Elu(0.7), lambda x: x if x > 0 else 0.7 * math.expm1(x)),
    Meaning(Selu(1.7, 1.1), lambda x: 1.1 * (x if x > 0 else 1.7 * math.expm1(x))),
    Meaning(Celu(1.3), lambda x: x if x > 0 else 1.3 * math.expm1(x / 1.3)),
    Meaning(ThresholdedRelu(0.3), lambda x: x if x > 0.3 else 0),
    Meaning(HardSigmoid(0.3, 0.4), lambda x: min(max(0.3 * x + 0.4, 0), 1)),
    Meaning(HardSwish(), lambda x: x * min(max(x + 3, 0), 6) / 6),
    Meaning(Gelu(), lambda x: x * (1 + math.erf(x / math.sqrt(2))) / 2),
    Meaning(Softplus(), _softplus),
    Meaning(Mish(), lambda x: x * math.tanh(_softplus(x))),
    Meaning(Shrink(0.1, 0.4), lambda x: x - 0.1 if x > 0.4 else x + 0.1 if x < -0.4 else 0),
    Meaning(Clip(-0.5, 0.75), lambda x: min(max(x, -0.5), 0.75)),
    Meaning(Mod(), lambda a, b: a % b),
)
MEANINGS = {row.op.NAME: row for row in _ROWS}
