"""Arithmetic of sizes, which are numbers here; and what only checks."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable

from intaglio.frontends.onnx.faults import Fault, unsupported
from intaglio.frontends.torch.call import Answer, Item, TorchCall, row
from intaglio.ir.sizes import Size, larger, smaller, whole
from intaglio.ops.base import widen

PYTHON: dict[str, Callable[..., Item]] = {
    "add": operator.add, "sub": operator.sub, "mul": operator.mul, "floordiv": operator.floordiv, "truediv": operator.truediv,
    "mod": operator.mod, "neg": operator.neg, "eq": operator.eq, "ne": operator.ne, "lt": operator.lt, "le": operator.le,
    "gt": operator.gt, "ge": operator.ge, "and_": operator.and_, "or_": operator.or_, "not_": operator.not_, "pos": operator.pos,
    "sym_not": operator.not_, "sym_max": larger, "sym_min": smaller, "sym_int": whole, "sym_float": float, "sym_sum": sum,
    "abs": abs,
    "trunc": math.trunc, "ceil": math.ceil, "floor": math.floor, "round": round, "_sym_sqrt": math.sqrt, "sqrt": math.sqrt,
    "sym_ite": lambda b, t, f: t if b else f,
}  # fmt: skip


@row(*PYTHON, namespace="python")
def python(call: TorchCall) -> Answer:
    items = list(call.arguments.values())
    numbers = (int, float, Size)
    if not all(isinstance(i, numbers) or (isinstance(i, list) and all(isinstance(v, (int, Size)) for v in i)) for i in items):
        raise unsupported(f"`{call.op}` of a number that depends on data", "make it a constant when exporting")
    result = PYTHON[call.op](*items)
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


@row("item", "_local_scalar_dense")
def item(call: TorchCall) -> Answer:
    x = call.first()
    if x.data is None or x.type.elements != 1:
        raise unsupported("the graph depends on a number that is computed from data", "make it a constant when exporting")
    return widen(x.data, x.dtype).reshape(-1)[0].item()


@row("_assert_async", "_assert_scalar", "sym_constrain_range", "sym_constrain_range_for_size", "_assert_tensor_metadata",
     "_functional_assert_async", "_functional_assert_scalar", "_print", "_functional_sym_constrain_range",
     "_functional_sym_constrain_range_for_size", "_assert_scalar_msg")  # fmt: skip
def checks(call: TorchCall) -> Answer:
    return None
