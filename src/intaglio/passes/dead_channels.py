"""Channels that are constant for every input, or that nobody needs, are not computed."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from intaglio.ir.graph import Array, Graph, Node, Value
from intaglio.ir.types import DType, Layout, TensorType
from intaglio.ops.conv import Conv
from intaglio.ops.move import Reshape
from intaglio.ops.quantised import Lookup, QConv, QMatMul
from intaglio.passes.channels import Span, keeps_channels, repeats, spans
from intaglio.passes.context import Context
from intaglio.passes.rewriting import constant


def drop_dead_channels(graph: Graph, context: Context) -> Graph:
    """Channels that are the same number for every input are folded into the layers that read them, bit for bit.

        a = qconv(x, w[8,...])        channels 2 and 5 of `a` saturate for any x
        y = qconv(a, v[16,8,...])     ->     a = qconv(x, w[6,...]);  y = qconv(a, v[16,6,...], bias + what 2 and 5 add)

    Backwards, a channel goes when nobody reads it any more. Skipped where the padding of a reader would show a constant that is
    not its zero, and for floats that are not 0: a sum in another order is another sum."""
    known = spans(graph)
    if not any(bool(np.any(s.constant)) for s in known.values()):
        return graph
    needed = _needed(graph, known)
    kept: dict[Value, Array] = {v: np.flatnonzero(n) for v, n in needed.items() if not n.all()}
    if kept:
        text = _note(graph, kept)
        _Cut(graph, known, kept).run()
        context.report(text)
    return graph


def _note(graph: Graph, kept: dict[Value, Array]) -> str:
    """In channels of the layers that have weights."""
    results = [node.output for node in graph.nodes if isinstance(node.op, (QConv, Conv, QMatMul))]
    total, gone = sum(v.shape[-1] for v in results), sum(v.shape[-1] - len(kept[v]) for v in results if v in kept)
    why = "they never change, or nothing needs them"
    return f"{gone:,} of {total:,} channels removed: {why} (`--disable-pass drop_dead_channels` keeps them)"


def _is_depthwise(node: Node) -> bool:
    op, weights = node.op, node.inputs[1] if len(node.inputs) > 1 else None
    source = node.inputs[0]
    if not isinstance(op, (QConv, Conv)) or weights is None or source is None:
        return False
    return op.group == source.shape[-1] == weights.shape[0] and weights.shape[1] == 1


def _weights(node: Node) -> Array | None:
    """[out, in] of a convolution or product in one group: which weight is not zero; None where it cannot be cut."""
    op, w = node.op, node.inputs[1] if len(node.inputs) > 1 else None
    if w is None or w.data is None or any(v is not None and v.data is None for v in node.inputs[2:]) or node.when is not None:
        return None
    match op:
        case QConv(group=1):
            return np.asarray((w.data.astype(np.int64) - op.w_zero != 0).any(axis=(2, 3)))
        case Conv(group=1, epilogue=()) if op.layout is Layout.NHWC and w.type.rank == 4 and w.dtype is DType.F32:
            return np.asarray((w.data != 0).any(axis=(2, 3)))
        case QMatMul() if w.type.rank == 2:
            single = node.inputs[3] is None or node.inputs[3].type.elements == 1
            table = (w.data if op.transpose_b else w.data.T).astype(np.int64) - op.b_zero != 0
            return None if single and node.output.shape[-1] > 1 else np.asarray(table)
    return None


def _zero(op: object) -> int:
    return op.x_zero if isinstance(op, QConv) else op.a_zero if isinstance(op, QMatMul) else 0


def _foldable(node: Node, span: Span) -> Array:
    """Input channels that are constant and that the bias can take over."""
    is_zero = span.constant & (span.low == _zero(node.op))
    if isinstance(node.op, Conv):
        return np.asarray(is_zero)
    if isinstance(node.op, QConv) and any(node.op.pads):
        return np.asarray(is_zero)
    bias = node.inputs[2]
    whole = bias is None or bias.dtype in (DType.I32, DType.I64)
    return np.asarray(span.constant if whole else is_zero)


def _cuttable(node: Node) -> bool:
    """Channel by channel, and its constants can be cut with it."""
    if node.when is not None or any(
        v is not None and v.data is not None for v in node.inputs[1:] if not isinstance(node.op, Lookup)
    ):
        return False
    return keeps_channels(node)


def _can_cut_depthwise(node: Node) -> bool:
    op = node.op
    plain = isinstance(op, QConv) or (isinstance(op, Conv) and op.layout is Layout.NHWC and not op.epilogue)
    return (
        node.when is None
        and plain
        and all(v is not None or n > 1 for n, v in enumerate(node.inputs))
        and all(v is None or v.data is not None for v in node.inputs[1:])
    )


def _needed(graph: Graph, known: dict[Value, Span]) -> dict[Value, Array]:
    """Which channels of each tensor must be there, by going back from the outputs until nothing changes."""
    need: dict[Value, Array] = {v: np.zeros(v.shape[-1], bool) for v in known}
    outputs = [*graph.outputs, *(s.output for s in graph.states), *(s.input for s in graph.states), *graph.inputs]
    for value in outputs:
        if value in need:
            need[value][:] = True
    _spread(graph, known, need)
    while empty := [n for n in need.values() if not n.any()]:  # a tensor of no channels is no tensor
        for n in empty:
            n[0] = True
        _spread(graph, known, need)
    return need


def _spread(graph: Graph, known: dict[Value, Span], need: dict[Value, Array]) -> None:
    changed = True
    while changed:
        changed = False
        for node in reversed(graph.nodes):
            for value, wanted in _wants(node, known, need):
                more = wanted & ~need[value]
                if more.any():
                    need[value] |= more
                    changed = True


def _wants(node: Node, known: dict[Value, Span], need: dict[Value, Array]) -> list[tuple[Value, Array]]:
    """What a node asks of the tensors around it."""
    reals = [v for v in node.inputs if v is not None and v in need]
    out = node.output
    if not reals or out not in need or len(node.outputs) != 1:
        return [(v, np.ones_like(need[v])) for v in (*reals, *(o for o in node.outputs if o in need))]
    source = reals[0]
    if _is_depthwise(node) and _can_cut_depthwise(node) and len(reals) == 1:
        return [(source, need[out]), (out, need[source])]
    table = _weights(node)
    if table is not None and node.inputs[0] is source and len(reals) == 1:
        rows = table[_at_least_one(need[out])]
        return [(source, np.asarray(rows.any(axis=0) & ~_foldable(node, known[source])))]
    if isinstance(node.op, Reshape) and (times := repeats(node)) is not None and node.when is None:
        folded = np.asarray(need[out].reshape(times, -1).any(axis=0))
        return [(source, folded), (out, np.tile(need[source], times))]
    if _cuttable(node):
        every = need[out].copy()
        for v in reals:
            every |= need[v]
        return [(v, every) for v in (*reals, out)]
    return [(v, np.ones_like(need[v])) for v in reals] + [(out, np.ones_like(need[out]))]


def _at_least_one(needed: Array) -> Array:
    if needed.any():
        return needed
    first = needed.copy()
    first[0] = True
    return first


class _Cut:
    """Takes the channels out of weights, biases and shapes."""

    def __init__(self, graph: Graph, known: dict[Value, Span], kept: dict[Value, Array]) -> None:
        self.graph, self.known, self.kept = graph, known, kept
        self.shapes = {v: v.shape for v in known}

    def run(self) -> None:
        for node in self.graph.nodes:
            source = node.inputs[0] if node.inputs else None
            ins = self.kept.get(source) if source is not None else None
            outs = self.kept.get(node.output) if len(node.outputs) == 1 else None
            if ins is None and outs is None:
                continue
            if isinstance(node.op, (QConv, Conv, QMatMul)):
                self._product(node, ins, outs)
            elif isinstance(node.op, Reshape):
                node.op = Reshape((*node.output.shape[:-1], self._count(node.output)))
            if outs is not None:
                old = node.output.type
                node.output.type = TensorType(old.dtype, (*old.shape[:-1], len(outs)), old.layout, old.quant)

    def _count(self, value: Value) -> int:
        return len(self.kept[value]) if value in self.kept else value.shape[-1]

    def _const(self, value: Value, data: Array) -> Value:
        return constant(self.graph, value.name, np.ascontiguousarray(data), value.dtype)

    def _product(self, node: Node, ins: Array | None, outs: Array | None) -> None:
        weights = node.inputs[1]
        source = node.inputs[0]
        assert weights is not None and weights.data is not None and source is not None
        data = weights.data
        turned = isinstance(node.op, QMatMul) and not node.op.transpose_b
        data = data.T if turned else data
        if _was_depthwise(node, self.shapes[source]):
            assert isinstance(node.op, (QConv, Conv)) and outs is not None
            self._cut_constants(node, 1, outs)
            node.op = replace(node.op, group=len(outs))
            return
        if ins is not None:
            self._fold(node, data, ins)
            data = data[:, ins]
        if outs is not None:
            data = data[outs]
            self._cut_constants(node, 2, outs)
        node.inputs[1] = self._const(weights, data.T if turned else data)

    def _cut_constants(self, node: Node, first: int, outs: Array) -> None:
        """Weights, biases and factors from operand `first` on have an entry per output channel."""
        for n, value in enumerate(node.inputs):
            if n >= first and value is not None and value.data is not None:
                node.inputs[n] = self._const(value, value.data[outs])

    def _fold(self, node: Node, data: Array, ins: Array) -> None:
        """What the constant channels that go away have added to every sum."""
        source = node.inputs[0]
        if isinstance(node.op, Conv) or source is None:
            return  # zeros
        span = self.known[source]
        gone = np.setdiff1d(np.arange(span.low.size), ins)
        steps = np.where(span.constant, span.low, _zero(node.op))[gone] - _zero(node.op)
        w_zero = node.op.w_zero if isinstance(node.op, QConv) else node.op.b_zero if isinstance(node.op, QMatMul) else 0
        w = data[:, gone].astype(np.int64) - w_zero
        w = w.sum(axis=(2, 3)) if w.ndim == 4 else w
        added = w @ steps
        if not added.any():
            return
        bias = node.inputs[2]
        wide = source.dtype is DType.I16 and (bias is None or bias.dtype is DType.I64)
        old = np.zeros(data.shape[0], np.int64) if bias is None or bias.data is None else bias.data.astype(np.int64)
        total = (old + added).astype(np.int64 if wide else np.int32)
        node.inputs[2] = constant(self.graph, bias.name if bias is not None else f"{node.output.name}_bias", total)


def _was_depthwise(node: Node, shape: tuple[int, ...]) -> bool:
    op, weights = node.op, node.inputs[1]
    assert weights is not None
    return isinstance(op, (QConv, Conv)) and op.group == shape[-1] == weights.shape[0] and weights.shape[1] == 1 and op.group > 1
