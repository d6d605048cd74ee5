"""Steps of optimisers (ai.onnx.preview.training): plain arithmetic on a rate, a count, and lists of tensors with their states."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from intaglio.frontends.building import cast
from intaglio.frontends.onnx.call import Answer, OnnxCall, importer
from intaglio.frontends.onnx.faults import Fault
from intaglio.ir.graph import Value
from intaglio.ops.base import Op
from intaglio.ops.binary import Add, Div, Greater, Mul, Pow, Sub, Where
from intaglio.ops.unary import Sqrt

DOMAIN = "ai.onnx.preview.training"


class Arithmetic:
    """Numbers and tensors of one type."""

    def __init__(self, call: OnnxCall) -> None:
        self.call, self.rate = call, call.value(0)
        self.count = cast(call, call.value(1), self.rate.dtype)

    def of(self, op: Op, a: Value | float, b: Value | float) -> Value:
        first, second = (v if isinstance(v, Value) else self.call.like(v, self.rate) for v in (a, b))
        return self.call.emit(op, first, second)

    def root(self, x: Value) -> Value:
        return self.call.emit(Sqrt(), x)

    def from_the_second(self, then: Value, at_first: Value | float) -> Value:
        """`then` where the count is above 0."""
        other = at_first if isinstance(at_first, Value) else self.call.like(at_first, self.rate)
        return self.call.emit(Where(), self.of(Greater(), self.count, 0.0), then, other)

    def regular(self, x: Value, gradient: Value) -> Value:
        """The gradient with that of the norm."""
        return self.of(Add(), self.of(Mul(), x, self.call.real("norm_coefficient", 0.0)), gradient)


def _each(call: OnnxCall, lists: int, step: Callable[..., tuple[Value, ...]]) -> Answer:
    """Tensors come as `lists` lists one after the other, and so do results."""
    count, rest = divmod(len(call.inputs) - 2, lists)
    if rest or count < 1:
        raise Fault("bad-graph", f"`{call.op}` has {len(call.inputs)} operands", "export the model again")
    rows = [step(*(call.value(2 + n + k * count) for k in range(lists))) for n in range(count)]
    return [row[k] for k in range(len(rows[0])) for row in rows]


@importer("Adagrad", domain=DOMAIN)
def adagrad(call: OnnxCall) -> Answer:
    a = Arithmetic(call)
    slower = a.of(Add(), a.of(Mul(), a.count, call.real("decay_factor", 0.0)), 1.0)
    rate = a.of(Div(), a.rate, slower)

    def step(x: Value, gradient: Value, squares: Value) -> tuple[Value, ...]:
        g = a.regular(x, gradient)
        h = a.of(Add(), squares, a.of(Mul(), g, g))
        size = a.of(Add(), a.root(h), call.real("epsilon", 0.0))
        return a.of(Sub(), x, a.of(Div(), a.of(Mul(), rate, g), size)), h

    return _each(call, 3, step)


@importer("Momentum", domain=DOMAIN)
def momentum(call: OnnxCall) -> Answer:
    a, alpha, mode = Arithmetic(call), call.real("alpha", 0.0), call.text("mode")
    if mode not in ("standard", "nesterov"):
        raise Fault("bad-attribute", f"`Momentum` in the mode `{mode}` is not valid")
    beta = a.from_the_second(call.like(call.real("beta", 0.0), a.rate), 1.0)

    def step(x: Value, gradient: Value, speed: Value) -> tuple[Value, ...]:
        g = a.regular(x, gradient)
        v = a.of(Add(), a.of(Mul(), speed, alpha), a.of(Mul(), beta, g))
        way = v if mode == "standard" else a.of(Add(), g, a.of(Mul(), v, alpha))
        return a.of(Sub(), x, a.of(Mul(), a.rate, way)), v

    return _each(call, 3, step)


@importer("Adam", domain=DOMAIN)
def adam(call: OnnxCall) -> Answer:
    a, alpha, beta = Arithmetic(call), call.real("alpha", 0.9), call.real("beta", 0.999)
    left = [a.of(Sub(), 1.0, a.of(Pow(), float(np.float32(n)), a.count)) for n in (alpha, beta)]
    rate = a.from_the_second(a.of(Div(), a.of(Mul(), a.rate, a.root(left[1])), left[0]), a.rate)

    def step(x: Value, gradient: Value, speed: Value, squares: Value) -> tuple[Value, ...]:
        g = a.regular(x, gradient)
        v = a.of(Add(), a.of(Mul(), speed, alpha), a.of(Mul(), g, 1 - alpha))
        h = a.of(Add(), a.of(Mul(), squares, beta), a.of(Mul(), a.of(Mul(), g, g), 1 - beta))
        size = a.of(Add(), a.root(h), call.real("epsilon", 0.0))
        new = a.of(Sub(), x, a.of(Div(), a.of(Mul(), rate, v), size))
        return a.of(Mul(), new, 1 - call.real("norm_coefficient_post", 0.0)), v, h

    return _each(call, 4, step)
