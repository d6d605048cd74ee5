"""Operators that exporters spell out are put together again."""

from __future__ import annotations

from intaglio.ir.graph import Graph, Node, Value
from intaglio.ir.types import DType
from intaglio.ops.base import normal_axes
from intaglio.ops.binary import Add, Div, Mul, Sub
from intaglio.ops.norm import LayerNorm
from intaglio.ops.reduce import Reduce
from intaglio.ops.unary import Reciprocal, Sqrt
from intaglio.passes.context import Context
from intaglio.passes.rewriting import Editor, scalar_of


def recognise_layer_norm(graph: Graph, context: Context) -> Graph:
    """Mean, difference, variance, quotient over the last axes are one operator.

        m = reduce(x, kind="mean", axes=(2))
        d = sub(x, m);  q = mul(d, d);  v = reduce(q, kind="mean", axes=(2))
        s = sqrt(add(v, 1e-5));  y = div(d, s)                                 ->     y = layer_norm(x, axis=2, epsilon=1e-5)

    Scale and bias that follow stay as they are: they run in the chain after it."""
    edit = Editor(graph)
    for node in graph.nodes:
        edit.take(node)
        found = _quotient(edit, node)
        if found is not None:
            x, axis, epsilon = found
            node.op, node.inputs = LayerNorm(axis, epsilon), [x]
            edit.changed = True
        edit.keep(node)
    return edit.finish()


def _producer(edit: Editor, value: Value | None, kind: type) -> Node | None:
    node = edit.made.get(value) if value is not None else None
    return node if node is not None and isinstance(node.op, kind) else None


def _quotient(edit: Editor, node: Node) -> tuple[Value, int, float] | None:
    if node.output.dtype is not DType.F32:
        return None
    if isinstance(node.op, Div):
        far, root = node.inputs
        deviation = _producer(edit, root, Sqrt)
    elif isinstance(node.op, Mul):
        for n in (0, 1):
            turned = _producer(edit, node.inputs[n], Reciprocal)
            if turned is not None:
                far = node.inputs[1 - n]
                deviation = _producer(edit, turned.inputs[0], Sqrt)
                break
        else:
            return None
    else:
        return None
    if deviation is None or far is None:
        return None
    shifted = _producer(edit, deviation.inputs[0], Add)
    if shifted is None:
        return None
    for n in (0, 1):
        epsilon, variance = scalar_of(shifted.inputs[n]), _producer(edit, shifted.inputs[1 - n], Reduce)
        if epsilon is not None and variance is not None:
            return _centred(edit, far, variance, epsilon)
    return None


def _centred(edit: Editor, far: Value, variance: Node, epsilon: float) -> tuple[Value, int, float] | None:
    square = _producer(edit, variance.inputs[0], Mul)
    difference = _producer(edit, far, Sub)
    if square is None or difference is None or square.inputs[0] is not square.inputs[1]:
        return None
    squared = square.inputs[0]
    twin = _producer(edit, squared, Sub)
    if squared is not far and (twin is None or twin.inputs != difference.inputs):
        return None
    x = difference.inputs[0]
    mean = _producer(edit, difference.inputs[1], Reduce)
    if x is None or mean is None or mean.inputs[0] is not x:
        return None
    ops = (mean.op, variance.op)
    if not all(isinstance(o, Reduce) and o.kind == "mean" and o.keepdims for o in ops):
        return None
    axes = [normal_axes(o.axes, x.type.rank) for o in ops if isinstance(o, Reduce)]
    if axes[0] != axes[1] or axes[0] != tuple(range(x.type.rank - len(axes[0]), x.type.rank)) or not axes[0]:
        return None
    return x, axes[0][0], epsilon
