"""Cheaper operators for the same result."""

from __future__ import annotations

import math

import numpy as np

from intaglio.ir.graph import Array, Graph, Node, Value
from intaglio.ir.types import DType
from intaglio.ops.activation import Clip, HardSigmoid, HardSwish, Relu, Sigmoid, Silu
from intaglio.ops.binary import Add, Div, Max, Min, Mul, Pow, Where
from intaglio.ops.move import Expand, Tile, Transpose
from intaglio.ops.move import Reshape as ReshapeOp
from intaglio.ops.unary import Reciprocal, Sqrt
from intaglio.passes.context import Context
from intaglio.passes.rewriting import Editor, constant, scalar_of


def reduce_strength(graph: Graph, context: Context) -> Graph:
    """Single operators that have a cheaper equal, and activations that were spelled out.

        pow(x, 2.0)                                  mul(x, x)
        pow(x, 0.5), pow(x, -1.0)                    sqrt(x), reciprocal(x)
        div(x, 8.0)                          ->      mul(x, 0.125)
        clip(x, low=0), max(x, 0)                    relu(x)
        mul(x, sigmoid(x))                           silu(x)
        mul(x, clip(x + 3, 0, 6)) / 6                hard_swish(x)
        transpose that moves only axes of size 1     reshape
        where(true everywhere, a, b)                 a

    Division by a constant becomes a multiplication only for f32 and f64; the result may differ in the last bit."""
    edit = Editor(graph)
    for node in graph.nodes:
        edit.take(node)
        new = _cheaper(edit, node)
        if new is None:
            edit.keep(node)
        elif isinstance(new, Node):
            edit.changed = True
            edit.keep(new)
    return edit.finish()


def _cheaper(edit: Editor, node: Node) -> Node | None:
    """The node, changed in place, or None when nothing applies."""
    first = node.inputs[0] if node.inputs else None
    real = first is not None and first.dtype in (DType.F32, DType.F64)
    match node.op:
        case Pow() if real:
            return _power(edit, node)
        case Div() if real:
            return _division(edit, node)
        case Clip() if node.op.low == 0.0 and node.op.high == math.inf:
            node.op = Relu()
            return node
        case Clip() if first is not None and isinstance(_made(edit, first), Relu) and node.op.low <= 0.0:
            producer = edit.made[first]
            if producer.when is node.when:
                node.op, node.inputs = Clip(0.0, node.op.high), list(producer.inputs)
                return node
        case Max() | Min():
            return _bound(node)
        case Mul() if real:
            return _activation(edit, node)
        case Where() if first is not None and first.data is not None and first.data.size:
            return _known_choice(node, first.data)
        case Transpose() if first is not None:
            moved = [p for p in node.op.perm if first.shape[p] != 1]
            if moved == sorted(moved):
                node.op = ReshapeOp(node.output.shape)
                return node
        case Expand() | Tile() if first is not None and first.type.elements == node.output.type.elements:
            node.op = ReshapeOp(node.output.shape)
            return node
    return None


def _made(edit: Editor, value: Value | None) -> object:
    node = edit.made.get(value) if value is not None else None
    return node.op if node is not None else None


def _power(edit: Editor, node: Node) -> Node | None:
    x, exponent = node.inputs[0], scalar_of(node.inputs[1])
    if x is None or x.shape != node.output.shape:
        return None
    if exponent == 2.0:
        node.op, node.inputs = Mul(), [x, x]
    elif exponent == 0.5:
        node.op, node.inputs = Sqrt(), [x]
    elif exponent == -1.0:
        node.op, node.inputs = Reciprocal(), [x]
    elif exponent == 3.0:
        square = edit.emit(Mul(), [x, x], node)
        node.op, node.inputs = Mul(), [square, x]
    elif exponent == 1.0:
        node.op, node.inputs = ReshapeOp(x.shape), [x]
    else:
        return None
    return node


def _division(edit: Editor, node: Node) -> Node | None:
    divisor = node.inputs[1]
    if divisor is None or divisor.data is None or not np.all(np.isfinite(divisor.data)) or np.any(divisor.data == 0):
        return None
    inverse = (1.0 / divisor.data.astype(np.float64)).astype(divisor.data.dtype)
    if not np.all(np.isfinite(inverse)) or np.any(np.abs(inverse) < np.finfo(inverse.dtype).tiny):  # a denormal has few digits
        return None
    node.op, node.inputs = Mul(), [node.inputs[0], constant(edit.graph, divisor.name, inverse)]
    return node


def _known_choice(node: Node, condition: Array) -> Node | None:
    """`where` whose condition is the same everywhere."""
    side = node.inputs[1 if condition.flat[0] else 2]
    if side is None or side.shape != node.output.shape or not np.all(condition == condition.flat[0]):
        return None
    node.op, node.inputs = ReshapeOp(side.shape), [side]
    return node


def _bound(node: Node) -> Node | None:
    for n in (0, 1):
        limit, other = scalar_of(node.inputs[n]), node.inputs[1 - n]
        if limit is None or other is None or other.shape != node.output.shape or other.dtype is not DType.F32 or math.isnan(limit):
            continue
        if isinstance(node.op, Max):
            node.op = Relu() if limit == 0.0 else Clip(low=limit)
        else:
            node.op = Clip(high=limit)
        node.inputs = [other]
        return node
    return None


def _activation(edit: Editor, node: Node) -> Node | None:
    """x * sigmoid(x), x * hard_sigmoid(x), (x * clip(x + 3, 0, 6)) * (1/6) and x * (clip(x + 3, 0, 6) * (1/6))."""
    for n in (0, 1):
        x, gate = node.inputs[n], node.inputs[1 - n]
        if x is None or gate is None or gate not in edit.made or gate.shape != node.output.shape:
            continue
        producer = edit.made[gate]
        if producer.when is not node.when:
            continue
        if isinstance(producer.op, Sigmoid) and producer.inputs[0] is x:
            node.op, node.inputs = Silu(), [x]
            return node
        if (
            isinstance(producer.op, HardSigmoid)
            and producer.inputs[0] is x
            and math.isclose(producer.op.alpha, 1 / 6, rel_tol=1e-6)
            and producer.op.beta == 0.5
        ):
            node.op, node.inputs = HardSwish(), [x]
            return node
        sixth = scalar_of(x)
        if sixth is not None and math.isclose(sixth, 1 / 6, rel_tol=1e-6) and isinstance(producer.op, Mul):
            for m in (0, 1):
                inner, relu6 = producer.inputs[m], producer.inputs[1 - m]
                if inner is not None and _relu6_of(edit, relu6, inner):
                    node.op, node.inputs = HardSwish(), [inner]
                    return node
        if isinstance(producer.op, Mul):
            for m in (0, 1):
                factor, relu6 = scalar_of(producer.inputs[m]), producer.inputs[1 - m]
                if factor is not None and math.isclose(factor, 1 / 6, rel_tol=1e-6) and _relu6_of(edit, relu6, x):
                    node.op, node.inputs = HardSwish(), [x]
                    return node
    return None


def _relu6_of(edit: Editor, value: Value | None, x: Value) -> bool:
    """Is this clip(x + 3, 0, 6)?"""
    clip = edit.made.get(value) if value is not None else None
    if clip is None or not isinstance(clip.op, Clip) or (clip.op.low, clip.op.high) != (0.0, 6.0):
        return False
    add = edit.made.get(clip.inputs[0]) if clip.inputs[0] is not None else None
    if add is None or not isinstance(add.op, Add):
        return False
    return any(add.inputs[n] is x and scalar_of(add.inputs[1 - n]) == 3.0 for n in (0, 1))
