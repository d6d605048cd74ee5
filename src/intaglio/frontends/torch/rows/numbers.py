"""Arithmetic of sizes, which are numbers here; and what only checks."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable

from intaglio.errors import printable, quoted
from intaglio.frontends.building import cast, reshape
from intaglio.frontends.onnx.faults import Fault, unsupported
from intaglio.frontends.torch.call import Answer, Item, TorchCall, promoted, row
from intaglio.ir.graph import Value
from intaglio.ir.sizes import Size, Undecided, larger, smaller, whole
from intaglio.ir.types import DType
from intaglio.ops.base import Op
from intaglio.ops.binary import Add, Equal, Greater, GreaterEqual, Less, LessEqual, LogicalAnd, LogicalOr, Max, Min, Mul, Sub
from intaglio.ops.control import AssertTrue
from intaglio.ops.unary import LogicalNot

PYTHON: dict[str, Callable[..., Item]] = {
    "add": operator.add, "sub": operator.sub, "mul": operator.mul, "floordiv": operator.floordiv, "truediv": operator.truediv,
    "mod": operator.mod, "neg": operator.neg, "eq": operator.eq, "ne": operator.ne, "lt": operator.lt, "le": operator.le,
    "gt": operator.gt, "ge": operator.ge, "and_": operator.and_, "or_": operator.or_, "not_": operator.not_, "pos": operator.pos,
    "sym_not": operator.not_, "sym_max": larger, "sym_min": smaller, "sym_int": whole, "sym_float": float, "sym_sum": sum,
    "abs": abs,
    "trunc": math.trunc, "ceil": math.ceil, "floor": math.floor, "round": round, "_sym_sqrt": math.sqrt, "sqrt": math.sqrt,
    "sym_ite": lambda b, t, f: t if b else f,
}  # fmt: skip


COMPARED: dict[str, Op] = {
    "eq": Equal(), "ne": Equal(), "lt": Less(), "le": LessEqual(), "gt": Greater(), "ge": GreaterEqual(),
}  # fmt: skip
COMPUTED: dict[str, Op] = {
    **COMPARED, "add": Add(), "sub": Sub(), "mul": Mul(), "and_": LogicalAnd(), "or_": LogicalOr(), "not_": LogicalNot(),
    "sym_not": LogicalNot(), "sym_max": Max(), "sym_min": Min(),
}  # fmt: skip


def _computed(call: TorchCall, items: list[Item]) -> Value:
    """Numbers that only the running program knows."""
    if call.op == "sym_float" and isinstance(items[0], Value):
        return call.floats(items[0])
    if call.op not in COMPUTED or not all(isinstance(i, (Value, bool, int, float, Size)) for i in items):
        raise call.needs_bound(f"`{call.op}` of a number")
    dtype = promoted(*items)
    result = call.emit(COMPUTED[call.op], *[call.typed(item, dtype) for item in items])
    return call.emit(LogicalNot(), result) if call.op == "ne" else result


@row(*PYTHON, namespace="python")
def python(call: TorchCall) -> Answer:
    items = list(call.arguments.values())
    numbers = (int, float, Size)
    if any(isinstance(i, Value) for i in items):
        return _computed(call, items)
    if not all(isinstance(i, numbers) or (isinstance(i, list) and all(isinstance(v, (int, Size)) for v in i)) for i in items):
        raise call.needs_bound(f"`{call.op}` of a number")
    try:
        result = PYTHON[call.op](*items)
    except Undecided:
        if call.op not in COMPARED:
            raise
        return _computed(call, items)  # the running program knows
    if isinstance(result, int) and abs(result) > 2**63:
        raise Fault("bad-attribute", f"`{call.op}` gives a number that is too large")
    return result


@row("pow", namespace="python")
def power(call: TorchCall) -> Answer:
    a, b = call.arguments.values()
    if not isinstance(a, (int, float)) or not isinstance(b, (int, float)) or abs(b) > 64 or abs(a) > 2**31:
        raise Fault("bad-attribute", f"`pow` of {a!r} and {b!r} is not valid")
    return a**b


@row("getitem", namespace="python")
def getitem(call: TorchCall) -> Answer:
    items, index = call.arguments.values()
    if not isinstance(items, list) or not isinstance(index, int):
        raise unsupported("it reads an element of a value that is not a list")
    return items[index]


@row("sym_size")
def sym_size(call: TorchCall) -> Answer:
    x = call.first()
    return list(x.shape) if call.get("dim") is None else x.shape[call.dim("dim", len(x.shape))]


@row("sym_numel", "numel")
def numel(call: TorchCall) -> Answer:
    return call.first().type.elements


@row("_assert_scalar", "_assert_scalar_msg", "_functional_assert_scalar")
def assert_scalar(call: TorchCall) -> Answer:
    """A check that sizes decide now, or that the running program does."""
    item, message = call.get("self"), printable(call.text("assert_msg", "a check of the model fails"), 120)
    if isinstance(item, Value) and item.data is None:
        call.emit(AssertTrue(message), cast(call, reshape(call, item, ()), DType.BOOL))
    elif item is False:
        raise Fault("bad-attribute", f"a check of the model fails: {quoted(message)}", "give other sizes, or export it again")
    return None


@row("_assert_async", "sym_constrain_range", "sym_constrain_range_for_size", "_assert_tensor_metadata",
     "_functional_assert_async", "_print", "_functional_sym_constrain_range",
     "_functional_sym_constrain_range_for_size")  # fmt: skip
def checks(call: TorchCall) -> Answer:
    return None
