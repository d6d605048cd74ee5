"""Elementwise work joins the loop that makes its operand."""

from __future__ import annotations

from dataclasses import replace

from intaglio.ir.graph import Graph, Node, Value
from intaglio.ir.types import DType, Layout, Shape
from intaglio.ops.base import Chain, Elementwise, Step, runs_in_vectors
from intaglio.ops.binary import Comparison, Where
from intaglio.ops.conv import Conv
from intaglio.ops.convert import Cast
from intaglio.ops.matmul import MatMul
from intaglio.passes.context import Context
from intaglio.passes.rewriting import Editor, count_readers

_MAX_STEPS = 24
_MAX_OPERANDS = 8


def fuse_epilogue(graph: Graph, context: Context) -> Graph:
    """Let a convolution or a matrix product apply what follows it before it stores its result.

        a = conv(x, w, b)
        c = add(a, r)            y = conv(x, w, b, r, epilogue=[add(0,1), relu(2)])
        y = relu(c)       ->

    Skipped when `a` has another reader (it would have to be computed twice), when an operand broadcasts in another way than per
    number, per channel or in full, and for operators that vectors cannot do."""
    edit = Editor(graph)
    readers = count_readers(graph)
    for node in graph.nodes:
        edit.take(node)
        if not _join_producer(edit, node, readers):
            edit.keep(node)
    return edit.finish()


def fits_epilogue(shape: Shape, out: Shape) -> bool:
    """One number, one per channel, or the whole output: what an epilogue can load."""
    core = tuple(d for d in shape)
    while core and core[0] == 1:
        core = core[1:]
    full = out
    while full and full[0] == 1:
        full = full[1:]
    return (
        not core
        or (core == full and len(shape) <= len(out))
        or (len(core) == 1 and bool(out) and core[0] == out[-1])
        or all(d == 1 for d in shape)
    )


def _join_producer(edit: Editor, node: Node, readers: dict[Value, int]) -> bool:
    op = node.op
    if not isinstance(op, Elementwise) or isinstance(op, Chain) or not op.VECTOR or node.output.dtype is not DType.F32:
        return False
    if isinstance(op, (Where, Comparison)):
        return False
    best: Node | None = None
    for value in node.inputs:
        producer = edit.made.get(value) if value is not None else None
        if producer is None or value is None or not isinstance(producer.op, (Conv, MatMul)):
            continue
        if isinstance(producer.op, Conv) and producer.op.layout is not Layout.NHWC:
            continue
        if isinstance(producer.op, MatMul) and producer.op.transpose_a:
            continue
        uses = sum(v is value for v in node.inputs)
        if readers.get(value, 0) != uses or producer.when is not node.when or value.shape != node.output.shape:
            continue
        if producer.output.dtype is not DType.F32 or len(producer.op.epilogue) >= _MAX_STEPS:
            continue
        best = producer  # the later of two: everything the other needs exists when it runs
    if best is None:
        return False
    extras = [v for v in node.inputs if v is not None and v is not best.output]
    out = node.output.shape
    if any(v.dtype is not DType.F32 or not fits_epilogue(v.shape, out) for v in extras) or not _made_before(edit, best, extras):
        return False
    _append(best, node)
    edit.made.pop(best.output, None)
    best.outputs = [node.output]
    edit.made[node.output] = best
    edit.changed = True
    return True


def _made_before(edit: Editor, producer: Node, extras: list[Value]) -> bool:
    """Are the extra operands there when the producer runs? It may move behind them as long as nothing reads it before."""
    places = {id(n): i for i, n in enumerate(edit.nodes)}
    at = places[id(producer)]
    late = [edit.made[v] for v in extras if v in edit.made and places[id(edit.made[v])] > at]
    if not late:
        return True
    last = max(places[id(n)] for n in late)
    edit.nodes.insert(last + 1, producer)  # the producer's only reader is the node that joins it
    del edit.nodes[at]
    return True


def _append(producer: Node, node: Node) -> None:
    """Add the node as a step; new operands go behind the old extras, so earlier step numbers move up."""
    op = producer.op
    assert isinstance(op, (Conv, MatMul)) and isinstance(node.op, Elementwise)
    while len(producer.inputs) < 3:
        producer.inputs.append(None)
    old = producer.inputs[3:]
    fresh: list[Value] = []
    for value in node.inputs:
        if value is not None and value is not producer.output and not any(value is v for v in [*old, *fresh]):
            fresh.append(value)
    grown, count = len(fresh), len(old)
    moved = [Step(s.op, tuple(a + grown if a > count else a for a in s.args)) for s in op.epilogue]
    extras = [*old, *fresh]
    last = len(extras) + len(moved)  # the result so far: the accumulator when there is no step yet
    places = {id(v): n + 1 for n, v in enumerate(extras)}
    args = tuple(last if v is producer.output else places[id(v)] for v in node.inputs)
    if not moved:
        args = tuple(0 if v is producer.output else places[id(v)] for v in node.inputs)
    producer.op = replace(op, epilogue=(*moved, Step(node.op, args)))
    producer.inputs = [*producer.inputs[:3], *extras]


def fuse_elementwise(graph: Graph, context: Context) -> Graph:
    """Elementwise operators in a row run in one loop.

        a = mul(x, s)
        b = add(a, t)       ->      y = chain(x, s, t, steps=[mul(0,1), add(3,2), relu(4)])
        y = relu(b)

    Skipped when a value in between has another reader, when it is smaller than the result (a row would be computed again for
    every repetition), and across guards."""
    edit = Editor(graph)
    readers = count_readers(graph)
    for node in graph.nodes:
        edit.take(node)
        if isinstance(node.op, Elementwise):
            while _absorb(edit, node, readers):
                pass
        edit.keep(node)
    return edit.finish()


def _absorb(edit: Editor, node: Node, readers: dict[Value, int]) -> bool:
    """Take the producer of one operand into the node's chain."""
    for n, value in enumerate(node.inputs):
        producer = edit.made.get(value) if value is not None else None
        if producer is None or value is None or not isinstance(producer.op, Elementwise) or producer.when is not node.when:
            continue
        uses = sum(v is value for v in node.inputs)
        if readers.get(value, 0) != uses or value.shape != node.output.shape or value.dtype in (DType.F16, DType.BF16):
            continue
        steps, operands = _joined(producer, node, n)
        if len(steps) > _MAX_STEPS or len(operands) > _MAX_OPERANDS:
            continue
        if isinstance(node.op, Cast) and node.op.to in (DType.F16, DType.BF16):
            continue
        if _mixes(steps, operands, node.output.dtype):
            continue
        node.op, node.inputs = Chain(steps), list(operands)
        edit.nodes.remove(producer)
        del edit.made[value]
        edit.changed = True
        return True
    return False


def _mixes(steps: tuple[Step, ...], operands: list[Value], out: DType) -> bool:
    """Would joining take work out of the vectors? All f32 and vector steps, or none of the parts could use vectors anyway."""
    plain = all(v.dtype is DType.F32 for v in operands) and out is DType.F32
    vector = [runs_in_vectors(s.op) for s in steps]
    return plain and any(vector) and not all(vector)


def _joined(producer: Node, node: Node, at: int) -> tuple[tuple[Step, ...], list[Value]]:
    """Steps and operands of both, the producer's first."""
    value = node.inputs[at]
    operands: list[Value] = []
    for v in [*producer.inputs, *node.inputs]:
        if v is not None and v is not value and not any(v is o for o in operands):
            operands.append(v)
    place = {id(v): n for n, v in enumerate(operands)}
    count = len(operands)
    steps: list[Step] = []
    for source in (producer, node):
        ins = [v for v in source.inputs if v is not None]
        assert isinstance(source.op, Elementwise)
        own = source.op.steps if isinstance(source.op, Chain) else (Step(source.op, tuple(range(len(ins)))),)
        first = count + len(steps)
        result = first - 1  # of the producer, when this is the node
        for step in own:
            args = tuple(
                (result if ins[a] is value else place[id(ins[a])]) if a < len(ins) else first + a - len(ins) for a in step.args
            )
            steps.append(Step(step.op, args))
    return tuple(steps), operands


__all__ = ["fuse_elementwise", "fuse_epilogue"]
