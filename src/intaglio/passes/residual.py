"""A convolution adds what runs beside it before it stores its result."""

from __future__ import annotations

from dataclasses import replace

from intaglio.ir.graph import Graph, Node, Value
from intaglio.ir.types import DType
from intaglio.ops.base import Step
from intaglio.ops.quantised import QAdd, QConv
from intaglio.passes.context import Context
from intaglio.passes.rewriting import Editor, count_readers


def fuse_sum(graph: Graph, context: Context) -> Graph:
    """Let an integer convolution add the other side of a sum, so that its own result needs no memory.

        a = qconv(x, w, b, m, s)
        y = qadd(a, r, ...)        ->      y = qconv(x, w, b, m, s, r, epilogue=[qadd(0,1, ...)])

    Only on cores of microcontrollers without vectors, whose kernels write the sum over `r`. Skipped when `a` has another reader,
    when `r` has another shape, for depthwise convolutions, and without the DSP extension for weights that its kernel does not
    take."""
    target = context.target
    dsp = target.isa.startswith("dsp")
    small = target.bare and (target.arch == "riscv32" or (target.arch == "arm" and target.isa == "scalar"))
    if not dsp and not small:
        return graph
    edit = Editor(graph)
    readers = count_readers(graph)
    for node in graph.nodes:
        edit.take(node)
        if not _join(edit, node, readers, dsp):
            edit.keep(node)
    return edit.finish()


def _join(edit: Editor, node: Node, readers: dict[Value, int], dsp: bool) -> bool:
    if not isinstance(node.op, QAdd) or node.op.subtract or len(node.inputs) != 2:
        return False
    places = {id(n): i for i, n in enumerate(edit.nodes)}
    found = [v for v in node.inputs if v is not None and _takes(edit.made.get(v), v, node, readers, dsp)]
    if not found or node.inputs[0] is node.inputs[1]:
        return False
    value = max(found, key=lambda v: places[id(edit.made[v])])  # the later of two: what the other made is there when it runs
    producer = edit.made[value]
    other = next(v for v in node.inputs if v is not None and v is not value)
    if other.shape != node.output.shape or other.dtype is not value.dtype:
        return False
    if other in edit.made and places[id(edit.made[other])] > places[id(producer)]:
        edit.nodes.remove(producer)  # its only reader is here: it may run this late
        edit.nodes.append(producer)
    assert isinstance(producer.op, QConv)
    args = tuple(0 if v is value else 1 for v in node.inputs)
    producer.op = replace(producer.op, epilogue=(Step(node.op, args),))
    producer.inputs = [*producer.inputs, other]
    del edit.made[value]
    producer.outputs = [node.output]
    edit.made[node.output] = producer
    edit.changed = True
    return True


def _takes(producer: Node | None, value: Value, node: Node, readers: dict[Value, int], dsp: bool) -> bool:
    if producer is None or not isinstance(producer.op, QConv) or producer.op.epilogue or producer.when is not node.when:
        return False
    weights = producer.inputs[1]
    if weights is None or not (dsp or _symmetric(weights)):
        return False
    deep = weights.shape[1] > 1 or producer.op.group == 1
    return deep and readers.get(value, 0) == 1 and value.shape == node.output.shape


def _symmetric(weights: Value) -> bool:
    """Bytes without -128: two of them would exceed 16 bits where pixels share a multiplication."""
    return weights.dtype is DType.I8 and weights.data is not None and int(weights.data.min(initial=0)) > -128
