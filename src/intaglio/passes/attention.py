"""Attention as exporters write it, two products around a softmax, becomes one operator."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from intaglio.ir.graph import Graph, Node, Value
from intaglio.ir.sizes import most
from intaglio.ir.types import DType, Shape
from intaglio.ops.attention import Attention
from intaglio.ops.base import BadOperator, normal_axes
from intaglio.ops.binary import Add, Equal, Mul, Where
from intaglio.ops.matmul import MatMul
from intaglio.ops.move import Reshape, Slice, Transpose
from intaglio.ops.reduce import Reduce, Softmax
from intaglio.passes.context import Context
from intaglio.passes.rewriting import Editor, constant, count_readers, scalar_of
from intaglio.passes.strided import Strided

_Move = Reshape | Transpose | Slice
_FEWEST_ROWS = 4  # below, keys are read once or twice: bringing them into another order costs more than the products
_LEAST_MASK = -1e9  # a fill that is added instead of chosen: no score changes it


def fuse_attention(graph: Graph, context: Context) -> Graph:
    """Scores, masks, softmax and the sum of values are one operator, which reads queries, keys and values where they are.

        q = transpose(reshape(a, ...), perm=(0,2,1,3));  k = transpose(..., perm=(0,2,3,1));  v = ...
        s = matmul(q, k);    t = mul(s, 0.125);   u = add(t, mask)
        p = softmax(u);      c = matmul(p, v)                            ->     y = attention(a, b, c, mask, sizes=..., joined=true)
        y = transpose(c, perm=(0,2,1,3))

    Looks through reshapes, transposes, slices and factors in front of the products, through masks that are added or chosen by
    `where`, and through reshapes of the scores. Skipped when somebody else reads the scores or the weights, for few rows, for other
    types than f32, across guards, and on targets without vectors or without an operating system."""
    target = context.target
    if target.lanes == 1 or target.bare or target.device or context.stream is not None:
        return graph
    edit = Editor(graph)
    readers = count_readers(graph)
    for node in graph.nodes:
        edit.take(node)
        if isinstance(node.op, MatMul) and (found := _attention(edit, node, readers)) is not None:
            _put(edit, node, *found)
        elif not (isinstance(node.op, Transpose) and _join(edit, node, readers)):
            edit.keep(node)
    return edit.finish()


@dataclass(frozen=True, slots=True)
class _Side:
    """Where an operand is in a value."""

    value: Value
    view: Strided
    factor: float = 1.0

    def walk(self) -> tuple[int, ...]:
        """The first number, then the steps of each axis; an axis of one has none."""
        steps = [0 if n == 1 else s for n, s in zip(self.view.shape, self.view.steps, strict=True)]
        return (self.view.start, *steps)

    def spread(self, shape: Shape) -> _Side:
        """Repeated along axes of one, as numpy does it."""
        return replace(self, view=self.view.spread(shape))

    def shaped(self, shape: Shape) -> _Side | None:
        """The same numbers in another shape, where that takes no copy."""
        view = self.view.shaped(shape)
        return None if view is None else replace(self, view=view)


def _whole(value: Value) -> _Side:
    return _Side(value, Strided.of(value.shape))


@dataclass(frozen=True, slots=True)
class _Scores:
    product: Node
    factor: float = 1.0
    masks: tuple[_Side, ...] = ()


def _made(edit: Editor, value: Value | None, node: Node) -> Node | None:
    producer = edit.made.get(value) if value is not None else None
    return producer if producer is not None and producer.when is node.when else None


def _plain_product(node: Node | None) -> bool:
    """A product of two computed matrices of f32, with nothing behind it."""
    if node is None or not isinstance(node.op, MatMul) or node.op.transpose_a or node.op.epilogue:
        return False
    given = [value for value in node.inputs if value is not None]
    return len(given) == 2 and all(value.dtype is DType.F32 and value.data is None for value in given)


def _attention(edit: Editor, node: Node, readers: dict[Value, int]) -> tuple[Attention, list[Value]] | None:
    if not _plain_product(node) or most(node.output.shape[-2]) < _FEWEST_ROWS or node.output.type.elements == 0:
        return None
    softmax = _made(edit, node.inputs[0], node)
    emptied = softmax if softmax is not None and isinstance(softmax.op, Where) and readers.get(softmax.output) == 1 else None
    if emptied is not None:
        softmax = _made(edit, emptied.inputs[2], node)
    if softmax is None or not isinstance(softmax.op, Softmax) or readers.get(softmax.output) != 1:
        return None
    shape = softmax.output.shape
    if softmax.op.axis % len(shape) != len(shape) - 1 or shape[:-2] != node.output.shape[:-2]:
        return None
    scores = _scores(edit, softmax.inputs[0], node, readers)
    if scores is None or (emptied is not None and not _empties(edit, emptied, node, scores)):
        return None
    lead = (math.prod(shape[:-3]), shape[-3]) if len(shape) > 2 else (1, 1)
    return _described(edit, node, scores, lead, emptied is not None)


def _empties(edit: Editor, chosen: Node, node: Node, scores: _Scores) -> bool:
    """Is this `where(c, 0, weights)` with c true for the rows that the only mask hides, as the body of ONNX `Attention` has it?"""
    equal = _made(edit, chosen.inputs[0], node)
    if scalar_of(chosen.inputs[1]) != 0.0 or equal is None or not isinstance(equal.op, Equal) or len(scores.masks) != 1:
        return False
    for n in (0, 1):
        largest = _made(edit, equal.inputs[n], node)
        if largest is None or not isinstance(largest.op, Reduce) or scalar_of(equal.inputs[1 - n]) != -math.inf:
            continue
        mask, op = largest.inputs[0], largest.op
        assert mask is not None
        return mask is scores.masks[0].value and (op.kind, op.keepdims, normal_axes(op.axes, mask.type.rank)) == (
            "max", True, (mask.type.rank - 1,),
        )  # fmt: skip
    return False


def _described(edit: Editor, node: Node, scores: _Scores, lead: Shape, zero: bool) -> tuple[Attention, list[Value]] | None:
    """The operator and its operands, with so many batches and heads."""
    product, (rows, keys) = scores.product, scores.product.output.shape[-2:]
    q = _side(edit, product, 0, node, lead)
    k = _side(edit, product, 1, node, lead)
    v = _side(edit, node, 1, node, lead)
    masks = [mask.shaped((*lead, rows, keys)) for mask in scores.masks]
    found = [side for side in (q, k, v, *masks) if side is not None]
    if q is None or k is None or len(found) < 3 + len(masks):
        return None
    walks = [side.walk() for side in found]
    walks[1] = (*walks[1][:3], walks[1][4], walks[1][3])  # [keys, depth]
    for n in (0, 2):  # of one number, the next one is as good as any
        walks[n] = (*walks[n][:4], walks[n][4] or 1)
    depth, width = q.view.shape[-1], node.output.shape[-1]
    scale = scores.factor * q.factor * k.factor
    op = Attention((*lead, rows, keys, depth, width), walks[0], walks[1], walks[2], tuple(walks[3:]), scale, False, zero)
    values = [side.value for side in found]
    try:
        op.infer(*[value.type for value in values])
    except BadOperator:  # masks whose rows are not neighbours in memory
        return None
    return op, values


def _side(edit: Editor, product: Node, which: int, node: Node, lead: Shape) -> _Side | None:
    """An operand of a product as [batch, head, row, column], from as far back as its numbers can be read where they are."""
    value, op = product.inputs[which], product.op
    assert value is not None and isinstance(op, MatMul)
    turned = which == 1 and op.transpose_b
    for side in _sources(edit, value, node, factors=product is not node):
        if turned:
            side = replace(side, view=side.view.turned())
        last = side.view.shape[-2:]
        found = side.spread((*product.output.shape[:-2], *last)).shaped((*lead, *last))
        if found is None or (most(found.walk()[4]) > 1 and not (which == 1 and product is not node)):
            continue  # rows of queries and values must be neighbours; keys are turned anyway
        return found
    return None


def _sources(edit: Editor, value: Value, node: Node, factors: bool) -> list[_Side]:
    """The value as a view of values before it, the furthest first. `factors`: multiplications by a number may lie between."""
    places: list[tuple[Value, float]] = [(value, 1.0)]
    moves: list[_Move | None] = []
    while True:
        value, factor = places[-1]
        producer = _made(edit, value, node)
        if producer is None:
            break
        source = producer.inputs[0]
        if isinstance(producer.op, Mul) and factors and value.dtype is DType.F32:
            numbers = [scalar_of(v) for v in producer.inputs]
            n = next((n for n, number in enumerate(numbers) if number is not None), 0)
            source, number = producer.inputs[1 - n], numbers[n]
            if number is None or source is None or source.shape != value.shape:
                break
            factor *= number
            moves.append(None)
        elif isinstance(producer.op, _Move) and not (isinstance(producer.op, Slice) and min(producer.op.steps) < 1):
            moves.append(producer.op)
        else:
            break
        assert source is not None
        places.append((source, factor))
    found = (_viewed(source, factor, moves[:n]) for n, (source, factor) in reversed(list(enumerate(places))))
    return [side for side in found if side is not None]


def _viewed(source: Value, factor: float, moves: list[_Move | None]) -> _Side | None:
    """A value after moves, the last one first; None where one of them has to copy."""
    side: _Side | None = replace(_whole(source), factor=factor)
    for op in reversed(moves):
        if side is None:
            return None
        match op:
            case Reshape():
                side = side.shaped(op.shape)
            case Transpose():
                side = replace(side, view=side.view.transposed(op.perm))
            case Slice():
                side = replace(side, view=side.view.cut(op.starts, op.steps, op.shape))
    return side


def _scores(edit: Editor, value: Value | None, node: Node, readers: dict[Value, int]) -> _Scores | None:
    """The product that makes the scores, with what happens to them up to `value`."""
    producer = _made(edit, value, node)
    if producer is None or value is None or readers.get(value) != 1:
        return None
    match producer.op:
        case MatMul():
            return _Scores(producer) if _plain_product(producer) else None
        case Reshape():
            return _reshaped(edit, producer, node, readers)
        case Mul() | Add():
            for n in (0, 1):
                inner, other = producer.inputs[n], producer.inputs[1 - n]
                if inner is None or other is None or inner.shape != value.shape or other.dtype is not DType.F32:
                    continue
                found = _scores(edit, inner, node, readers)
                number = scalar_of(other)
                if found is not None and isinstance(producer.op, Add):
                    return replace(found, masks=(*found.masks, _whole(other).spread(value.shape)))
                if found is not None and number is not None and not found.masks:
                    return replace(found, factor=found.factor * number)
        case Where():
            return _chosen(edit, producer, node, readers)
    return None


def _reshaped(edit: Editor, producer: Node, node: Node, readers: dict[Value, int]) -> _Scores | None:
    inner, shape = producer.inputs[0], producer.output.shape
    if inner is None or inner.shape[-2:] != shape[-2:]:
        return None
    found = _scores(edit, inner, node, readers)
    if found is None:
        return None
    masks = [mask.shaped(shape) for mask in found.masks]
    there = tuple(mask for mask in masks if mask is not None)
    return replace(found, masks=there) if len(there) == len(masks) else None


def _chosen(edit: Editor, producer: Node, node: Node, readers: dict[Value, int]) -> _Scores | None:
    """`where(c, scores, -inf)` or `where(c, -inf, scores)`: zeros and the fill as a mask that is added."""
    condition, *sides = producer.inputs
    for n in (0, 1):
        inner, fill = sides[n], scalar_of(sides[1 - n])
        if condition is None or inner is None or fill is None or fill > _LEAST_MASK or inner.shape != producer.output.shape:
            continue
        found = _scores(edit, inner, node, readers)
        if found is None:
            continue
        numbers = np.array([0.0, fill] if n == 0 else [fill, 0.0], np.float32)
        if condition.data is not None:
            mask = constant(edit.graph, "mask", np.where(condition.data, numbers[0], numbers[1]))
        else:
            yes, no = (constant(edit.graph, "fill", np.asarray(number)) for number in numbers)
            mask = edit.emit(Where(), [condition, yes, no], producer, "mask")
        return replace(found, masks=(*found.masks, _whole(mask).spread(producer.output.shape)))
    return None


def _put(edit: Editor, node: Node, op: Attention, values: list[Value]) -> None:
    inputs: list[Value | None] = [*values]
    if op.infer(*[value.type for value in values])[0].shape == node.output.shape:
        node.op, node.inputs = op, inputs
    else:
        node.op, node.inputs = Reshape(node.output.shape), [edit.emit(op, inputs, node)]
    edit.changed = True
    edit.keep(node)


def _join(edit: Editor, node: Node, readers: dict[Value, int]) -> bool:
    """Let attention write its result with the heads of a row side by side, where a transpose does that now."""
    source = node.inputs[0]
    producer = _made(edit, source, node)
    if producer is None or source is None or readers.get(source) != 1:
        return False
    assert isinstance(node.op, Transpose)
    if isinstance(producer.op, Attention) and node.op.perm == (0, 2, 1, 3) and not producer.op.joined:
        producer.op, producer.outputs = replace(producer.op, joined=True), [node.output]
        edit.made[node.output] = producer
        return True
    made = _made(edit, producer.inputs[0], node) if isinstance(producer.op, Reshape) else None
    if made is None or not isinstance(made.op, Attention) or made.op.joined or node.op.perm != (1, 0, 2):
        return False
    batch, heads, rows, _, _, width = made.op.sizes
    if batch != 1 or source.shape != (heads, rows, width):
        return False
    made.op = replace(made.op, joined=True)
    made.output.type = made.op.infer(*[None if v is None else v.type for v in made.inputs])[0]
    edit.nodes.remove(producer)
    node.op, node.inputs = Reshape(node.output.shape), [made.output]
    edit.keep(node)
    return True
