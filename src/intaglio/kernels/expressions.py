"""Elementwise operators as expressions: a row each, written once for one lane of any type and for a vector of f32.

A row gets the builder (to name what it uses twice), the lanes, the operator and its operands, and returns the result.
Rows of operators that say `VECTOR` use only what vectors have; the others run one lane at a time. An operator that is a function of
`scalar_functions.py` needs no row here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from intaglio.ir.types import DType
from intaglio.kernels.builder import Builder
from intaglio.kernels.lanes import Lanes
from intaglio.kernels.loop import BOOL, Expr, Num, Op, Type, both, cast, either, select
from intaglio.kernels.quantised_expressions import QUANTISED
from intaglio.kernels.scalar_functions import FUNCTIONS
from intaglio.ops.activation import Celu, Clip, Elu, Gelu, HardSigmoid, LeakyRelu, Selu, Shrink, ThresholdedRelu
from intaglio.ops.base import REGISTRY, Elementwise, Step, runs_in_vectors
from intaglio.ops.binary import Comparison, Mod, Where
from intaglio.ops.convert import Cast
from intaglio.ops.small import FORMATS, NarrowFloat
from intaglio.ops.unary import IsInf

Row = Callable[[Builder, Lanes, Elementwise, Sequence[Expr]], Expr]
ROWS: dict[str, Row] = {}


def row(name: str) -> Callable[[Row], Row]:
    def register(fn: Row) -> Row:
        ROWS[name] = fn
        return fn

    return register


def _function(name: str) -> Row:
    return lambda k, e, op, a: e.call(name, a[0])


for _name in FUNCTIONS:
    if _name in REGISTRY:  # a row of its own below replaces it: `pow` has one
        ROWS[_name] = _function(_name)

ROWS["add"] = lambda k, e, op, a: e.add(a[0], a[1])
ROWS["sub"] = lambda k, e, op, a: e.sub(a[0], a[1])
ROWS["mul"] = lambda k, e, op, a: e.mul(a[0], a[1])
ROWS["div"] = lambda k, e, op, a: e.div(a[0], a[1])
ROWS["neg"] = lambda k, e, op, a: e.neg(a[0])
ROWS["abs"] = lambda k, e, op, a: e.abs(a[0])
ROWS["relu"] = lambda k, e, op, a: e.highest(e.const(0), a[0])
ROWS["reciprocal"] = lambda k, e, op, a: e.div(e.const(1), a[0])
ROWS["softsign"] = lambda k, e, op, a: e.div(a[0], e.add(e.const(1), e.abs(a[0])))
ROWS["silu"] = lambda k, e, op, a: e.mul(a[0], e.call("sigmoid", a[0]))
ROWS["logical_not"] = lambda k, e, op, a: Op("eq", (a[0], Num(0, BOOL)), BOOL)
ROWS["logical_xor"] = lambda k, e, op, a: Op("ne", (a[0], a[1]), BOOL)
ROWS["logical_and"] = lambda k, e, op, a: Op("and", (_true(a[0]), _true(a[1])), BOOL)
ROWS["logical_or"] = lambda k, e, op, a: Op("or", (_true(a[0]), _true(a[1])), BOOL)
ROWS["bitwise_not"] = lambda k, e, op, a: Op("bit_not", (a[0],), e.type)
ROWS["shift_left"] = lambda k, e, op, a: Op("shift_left", (a[0], a[1]), e.type)
ROWS["shift_right"] = lambda k, e, op, a: Op("shift_right", (a[0], a[1]), e.type)
ROWS["is_nan"] = lambda k, e, op, a: Op("ne", (a[0], a[0]), BOOL)


def _true(value: Expr) -> Expr:
    return Op("ne", (value, Num(0, BOOL)), BOOL)


def _comparison(name: str) -> Row:
    return lambda k, e, op, a: e.compare(name, a[0], a[1])


for _name, _op in {"equal": "eq", "less": "lt", "less_equal": "le", "greater": "gt", "greater_equal": "ge"}.items():
    ROWS[_name] = _comparison(_op)


def _bitwise(name: str) -> Row:
    return lambda k, e, op, a: Op(name, (a[0], a[1]), e.type)


for _name in ("and", "or", "xor"):
    ROWS[f"bitwise_{_name}"] = _bitwise(f"bit_{_name}")


@row("min")
def _min(k: Builder, e: Lanes, op: Elementwise, a: Sequence[Expr]) -> Expr:
    low = e.lowest(a[0], a[1])
    return e.choose(e.compare("ne", a[0], a[0]), a[0], low) if e.is_float else low


@row("max")
def _max(k: Builder, e: Lanes, op: Elementwise, a: Sequence[Expr]) -> Expr:
    high = e.highest(a[0], a[1])
    return e.choose(e.compare("ne", a[0], a[0]), a[0], high) if e.is_float else high


@row("where")
def _where(k: Builder, e: Lanes, op: Elementwise, a: Sequence[Expr]) -> Expr:
    cond = a[0] if a[0].type.kind == "mask" else _true(a[0])
    return e.choose(cond, a[1], a[2])


@row("sign")
def _sign(k: Builder, e: Lanes, op: Elementwise, a: Sequence[Expr]) -> Expr:
    zero = e.const(0)
    if e.kind.startswith("u"):
        return e.choose(e.compare("gt", a[0], zero), e.const(1), zero)
    negative = e.choose(e.compare("lt", a[0], zero), e.const(-1), a[0] if e.is_float else zero)
    return e.choose(e.compare("gt", a[0], zero), e.const(1), negative)


@row("is_inf")
def _is_inf(k: Builder, e: Lanes, op: Elementwise, a: Sequence[Expr]) -> Expr:
    assert isinstance(op, IsInf)
    checks = [v for v, wanted in ((float("inf"), op.positive), (float("-inf"), op.negative)) if wanted]
    found: Expr = Num(0, BOOL)
    for n, value in enumerate(checks):
        test = e.compare("eq", a[0], e.const(value))
        found = test if n == 0 else Op("or", (found, test), BOOL)
    return found


@row("prelu")
def _prelu(k: Builder, e: Lanes, op: Elementwise, a: Sequence[Expr]) -> Expr:
    return e.choose(e.compare("lt", a[0], e.const(0)), e.mul(a[0], a[1]), a[0])


@row("leaky_relu")
def _leaky_relu(k: Builder, e: Lanes, op: Elementwise, a: Sequence[Expr]) -> Expr:
    assert isinstance(op, LeakyRelu)
    return e.choose(e.compare("lt", a[0], e.const(0)), e.mul(a[0], e.const(op.alpha)), a[0])


def _exp_minus_one(e: Lanes, x: Expr) -> Expr:
    """libm is exact near zero; the vector version is exact to one unit of 1.0, which is what elu adds to."""
    return e.sub(e.call("exp", x), e.const(1)) if e.vector else e.call("expm1", x)


@row("elu")
def _elu(k: Builder, e: Lanes, op: Elementwise, a: Sequence[Expr]) -> Expr:
    assert isinstance(op, Elu)
    return e.choose(e.compare("lt", a[0], e.const(0)), e.mul(e.const(op.alpha), _exp_minus_one(e, a[0])), a[0])


@row("selu")
def _selu(k: Builder, e: Lanes, op: Elementwise, a: Sequence[Expr]) -> Expr:
    assert isinstance(op, Selu)
    bent = e.mul(e.const(op.alpha), _exp_minus_one(e, a[0]))
    return e.mul(e.const(op.gamma), e.choose(e.compare("gt", a[0], e.const(0)), a[0], bent))


@row("celu")
def _celu(k: Builder, e: Lanes, op: Elementwise, a: Sequence[Expr]) -> Expr:
    assert isinstance(op, Celu)
    bent = e.mul(e.const(op.alpha), _exp_minus_one(e, e.div(a[0], e.const(op.alpha))))
    return e.choose(e.compare("gt", a[0], e.const(0)), a[0], bent)


@row("thresholded_relu")
def _thresholded_relu(k: Builder, e: Lanes, op: Elementwise, a: Sequence[Expr]) -> Expr:
    assert isinstance(op, ThresholdedRelu)
    return e.choose(e.compare("gt", a[0], e.const(op.alpha)), a[0], e.const(0))


@row("hard_sigmoid")
def _hard_sigmoid(k: Builder, e: Lanes, op: Elementwise, a: Sequence[Expr]) -> Expr:
    assert isinstance(op, HardSigmoid)
    line = e.fma(a[0], e.const(op.alpha), e.const(op.beta))
    return e.lowest(e.const(1), e.highest(e.const(0), line))


@row("hard_swish")
def _hard_swish(k: Builder, e: Lanes, op: Elementwise, a: Sequence[Expr]) -> Expr:
    line = e.fma(a[0], e.const(1 / 6), e.const(0.5))
    return e.mul(a[0], e.lowest(e.const(1), e.highest(e.const(0), line)))


@row("gelu")
def _gelu(k: Builder, e: Lanes, op: Elementwise, a: Sequence[Expr]) -> Expr:
    assert isinstance(op, Gelu)
    half = e.mul(a[0], e.const(0.5))
    if op.approximate:
        cube = e.mul(e.mul(a[0], a[0]), a[0])
        inner = e.mul(e.const(0.7978845608028654), e.fma(cube, e.const(0.044715), a[0]))
        return e.mul(half, e.add(e.const(1), e.call("tanh", inner)))
    return e.mul(half, e.add(e.const(1), e.call("erf", e.mul(a[0], e.const(0.7071067811865476)))))


def _soft_plus(k: Builder, e: Lanes, x: Expr) -> Expr:
    """log(1 + exp(-|x|)) + max(x, 0): does not overflow."""
    small = e.call("exp", e.neg(e.abs(x)))
    grown = e.call("log", e.add(e.const(1), small)) if e.vector else e.call("log1p", small)
    return e.add(grown, e.highest(e.const(0), x))


@row("softplus")
def _softplus(k: Builder, e: Lanes, op: Elementwise, a: Sequence[Expr]) -> Expr:
    return _soft_plus(k, e, a[0])


@row("mish")
def _mish(k: Builder, e: Lanes, op: Elementwise, a: Sequence[Expr]) -> Expr:
    return e.mul(a[0], e.call("tanh", _soft_plus(k, e, a[0])))


@row("shrink")
def _shrink(k: Builder, e: Lanes, op: Elementwise, a: Sequence[Expr]) -> Expr:
    assert isinstance(op, Shrink)
    if not e.is_float:  # thresholds and bias are floating point whatever the input is
        wide = Lanes.scalar("f64")
        return cast(_shrink(k, wide, op, [cast(a[0], wide.type)]), e.type)
    below = e.choose(e.compare("lt", a[0], e.const(-op.lambd)), e.add(a[0], e.const(op.bias)), e.const(0))
    return e.choose(e.compare("gt", a[0], e.const(op.lambd)), e.sub(a[0], e.const(op.bias)), below)


@row("clip")
def _clip(k: Builder, e: Lanes, op: Elementwise, a: Sequence[Expr]) -> Expr:
    assert isinstance(op, Clip)
    value = a[0]
    if op.low != float("-inf"):
        value = e.highest(e.const(op.low if e.is_float else int(op.low)), value)
    if op.high != float("inf"):
        value = e.lowest(e.const(op.high if e.is_float else int(op.high)), value)
    return value


@row("mod")
def _mod(k: Builder, e: Lanes, op: Elementwise, a: Sequence[Expr]) -> Expr:
    assert isinstance(op, Mod)
    rest = e.call("fmod", a[0], a[1]) if e.is_float else Op("mod", (a[0], a[1]), e.type)
    if op.fmod or e.kind.startswith("u"):
        return rest
    rest = k.let("rest", rest)
    zero = e.const(0)
    differ = Op("ne", (e.compare("lt", rest, zero), e.compare("lt", a[1], zero)), BOOL)
    adjust = Op("and", (e.compare("ne", rest, zero), differ), BOOL)
    return select(adjust, e.add(rest, a[1]), rest)


@row("pow")
def _pow(k: Builder, e: Lanes, op: Elementwise, a: Sequence[Expr]) -> Expr:
    base, exponent = a
    if e.is_float:
        return e.call("pow", base, cast(exponent, e.type))
    if exponent.type.kind in ("f32", "f64"):
        wide = Type("f64")
        return cast(Op("fn_pow", (cast(base, wide), cast(exponent, wide)), wide), e.type)
    return Op("fn_ipow", (base, cast(exponent, e.type)), e.type)


@row("narrow_float")
def _narrow_float(k: Builder, e: Lanes, op: Elementwise, a: Sequence[Expr]) -> Expr:
    """How many powers of two are reached says the exponent, and how far apart numbers are there."""
    assert isinstance(op, NarrowFloat)
    f, x = FORMATS[op.format], a[0]
    size = k.let("size", e.abs(x))
    scale, base = e.const(2.0 ** (f.mantissa - f.least)), e.const(0.0)
    for power in f.ladder:
        reached = e.compare("ge", size, e.const(power))
        scale = k.let("scale", e.choose(reached, e.mul(scale, e.const(0.5)), scale))
        base = k.let("base", e.choose(reached, e.add(base, e.const(1 << f.mantissa)), base))
    steps = e.call("round", e.lowest(e.mul(size, scale), e.const(1 << 20)))
    code = k.let("code", e.add(base, steps))
    beyond = Op("not", (e.compare("le", code, e.const(f.most)),), BOOL)
    whole = k.let("whole", e.choose(beyond, e.const(f.most if op.saturate else f.over), code))
    zero = e.const(0)
    negative = either(e.compare("lt", x, zero), both(e.compare("eq", x, zero), e.compare("lt", e.div(e.const(1), x), zero)))
    if f.one_zero:
        some = e.compare("ne", whole, e.const(0))
        negative = both(negative, some if op.saturate else both(some, e.compare("le", code, e.const(f.most))))
    signed = k.let("signed", e.choose(negative, e.add(whole, e.const(f.sign)), whole))
    return cast(e.choose(e.compare("ne", x, x), e.const(f.nan), signed), Type("u8"))


@row("cast")
def _cast(k: Builder, e: Lanes, op: Elementwise, a: Sequence[Expr]) -> Expr:
    assert isinstance(op, Cast)
    return cast(a[0], Type(op.to.value))


ROWS |= QUANTISED


def vectorizable(steps: Sequence[Step], operands: Sequence[DType]) -> bool:
    """Can these steps run on f32 vectors? Conditions may only be made and used inside, as the first operand of `where`."""
    if any(d is not DType.F32 for d in operands):
        return False
    conditions: set[int] = set()
    for n, step in enumerate(steps):
        if not runs_in_vectors(step.op):
            return False
        cond = step.args[:1] if isinstance(step.op, Where) else ()
        if any(a in conditions for a in step.args[len(cond) :]) or any(a not in conditions for a in cond):
            return False
        if isinstance(step.op, Comparison):
            conditions.add(len(operands) + n)
    return not steps or len(operands) + len(steps) - 1 not in conditions


def computed_in(dtype: DType) -> str:
    """The type arithmetic happens in: stored formats are widened."""
    return "f32" if dtype in (DType.F16, DType.BF16) else dtype.value


def apply(k: Builder, e: Lanes, steps: Sequence[Step], operands: Sequence[Expr]) -> Expr:
    """The value of a fused expression; each step gets a name, so nothing is computed twice."""
    values = [
        cast(v, Type(computed_in(DType(v.type.kind)))) if v.type.lanes == 1 and v.type.kind not in ("idx", "mask") else v
        for v in operands
    ]
    for n, step in enumerate(steps):
        assert isinstance(step.op, Elementwise)
        args = [values[i] for i in step.args]
        lanes = e if e.vector else Lanes.scalar(_kind_for(step.op, args))
        result = ROWS[step.op.NAME](k, lanes, step.op, args)
        values.append(result if n == len(steps) - 1 else k.let("t", result))
    return values[-1]


def _kind_for(op: Elementwise, args: Sequence[Expr]) -> str:
    if isinstance(op, Where):
        return args[1].type.kind
    return args[0].type.kind
