"""Operators that exporters spell out are put together again."""

from __future__ import annotations

import math

from intaglio.ir.graph import Graph, Node, Value
from intaglio.ir.sizes import moves
from intaglio.ir.types import DType
from intaglio.ops.base import normal_axes
from intaglio.ops.binary import Add, Div, Mul, Sub
from intaglio.ops.norm import LayerNorm
from intaglio.ops.reduce import Reduce
from intaglio.ops.unary import Reciprocal, Sqrt
from intaglio.passes.context import Context
from intaglio.passes.rewriting import Editor, constant, count_readers, scalar_of


def recognise_layer_norm(graph: Graph, context: Context) -> Graph:
    """Mean, difference, variance, quotient over the last axes are one operator.

        m = reduce(x, kind="mean", axes=(2))
        d = sub(x, m);  q = mul(d, d);  v = reduce(q, kind="mean", axes=(2))
        s = sqrt(add(v, 1e-5));  y = div(d, s)                                 ->     y = layer_norm(x, axis=2, epsilon=1e-5)

    Without the difference it is RMS norm: `layer_norm(x, centred=false)`. Scale and bias that follow are joined by
    `join_norm_scale`."""
    edit = Editor(graph)
    for node in graph.nodes:
        edit.take(node)
        found = _quotient(edit, node)
        if found is not None and (found[1].centred or not context.target.bare):
            node.op, node.inputs = found[1], [found[0]]
            edit.changed = True
        edit.keep(node)
    return edit.finish()


def join_norm_scale(graph: Graph, context: Context) -> Graph:
    """A norm applies the constant scale and bias that follow it.

        a = layer_norm(x, axis=2)
        b = mul(a, s);  y = add(b, t)        ->      y = layer_norm(x, s, t, axis=2)

    Skipped when a value in between has another reader, for constants that are larger than what is normalised, on OpenCL devices
    and without an operating system: there they run in the chain after it."""
    if context.target.bare or context.target.device:
        return graph
    edit = Editor(graph)
    readers = count_readers(graph)
    for node in graph.nodes:
        edit.take(node)
        if isinstance(node.op, (Mul, Add)):
            _join_scale(edit, node, readers)
        edit.keep(node)
    return edit.finish()


def _join_scale(edit: Editor, node: Node, readers: dict[Value, int]) -> None:
    place = 1 if isinstance(node.op, Mul) else 2
    for n in (0, 1):
        norm, other, source = _producer(edit, node.inputs[n], LayerNorm), node.inputs[1 - n], node.inputs[n]
        if norm is None or other is None or source is None or other.data is None or norm.when is not node.when:
            continue
        given = [*norm.inputs, None, None][:3]
        if readers.get(source) != 1 or source.shape != node.output.shape or any(v is not None for v in given[place:]):
            continue
        if other.dtype is not DType.F32 or source.dtype is not DType.F32:
            continue
        assert isinstance(norm.op, LayerNorm)
        normal = source.shape[norm.op.axis % source.type.rank :]
        if moves(normal) and other.type.elements != 1:  # it would have to be spread out over a size that only the caller knows
            continue
        shape = other.shape[max(0, len(other.shape) - len(normal)) :]
        if other.type.elements != math.prod(shape) or any(d not in (1, m) for d, m in zip(shape[::-1], normal[::-1], strict=False)):
            continue
        given[place] = other if other.shape == shape else constant(edit.graph, other.name, other.data.reshape(shape))
        node.op, node.inputs = norm.op, given[: place + 1]
        edit.changed = True
        return


def _producer(edit: Editor, value: Value | None, kind: type) -> Node | None:
    node = edit.made.get(value) if value is not None else None
    return node if node is not None and isinstance(node.op, kind) else None


def _quotient(edit: Editor, node: Node) -> tuple[Value, LayerNorm] | None:
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


def _centred(edit: Editor, far: Value, variance: Node, epsilon: float) -> tuple[Value, LayerNorm] | None:
    square = _producer(edit, variance.inputs[0], Mul)
    difference = _producer(edit, far, Sub)
    if square is None or square.inputs[0] is not square.inputs[1]:
        return None
    squared = square.inputs[0]
    if difference is None:
        axes = _last_axes([variance], far) if squared is far else None
        return (far, LayerNorm(axes[0], epsilon, centred=False)) if axes else None
    twin = _producer(edit, squared, Sub)
    if squared is not far and (twin is None or twin.inputs != difference.inputs):
        return None
    x = difference.inputs[0]
    mean = _producer(edit, difference.inputs[1], Reduce)
    if x is None or mean is None or mean.inputs[0] is not x:
        return None
    axes = _last_axes([mean, variance], x)
    return (x, LayerNorm(axes[0], epsilon)) if axes else None


def _last_axes(means: list[Node], x: Value) -> tuple[int, ...] | None:
    """The axes over which all of these take the mean, where they are the last ones."""
    ops = [node.op for node in means if isinstance(node.op, Reduce)]
    if not all(o.kind == "mean" and o.keepdims for o in ops):
        return None
    axes = [normal_axes(o.axes, x.type.rank) for o in ops]
    if any(a != axes[0] for a in axes) or axes[0] != tuple(range(x.type.rank - len(axes[0]), x.type.rank)) or not axes[0]:
        return None
    return axes[0]
