"""The small passes that run again and again: constants, identities, common subexpressions, dead code."""

from __future__ import annotations

import math

import numpy as np

from intaglio.ir.graph import Graph, Node, Value, needed_counts
from intaglio.ir.sizes import names_of
from intaglio.ir.text import print_fields
from intaglio.ir.types import DType, Layout
from intaglio.ops.activation import Clip
from intaglio.ops.base import Op
from intaglio.ops.binary import Add, Div, Mul, Sub
from intaglio.ops.control import Copy
from intaglio.ops.convert import Cast
from intaglio.ops.move import Concat, Expand, Pad, Reshape, Slice, Tile, Transpose
from intaglio.ops.resize import Resize
from intaglio.passes.context import Context
from intaglio.passes.rewriting import Editor, scalar_of

_FOLD_LIMIT = 1 << 24  # elements: what constants may grow to
_FOLD_BYTES = 256 << 20
_FOLD_MACS = 2_000_000_000


def fold_constants(graph: Graph, context: Context) -> Graph:
    """Compute at compile time what does not depend on the input.

        a = mul(w, s)  with constants w, s      ->      const a

    Skipped when the result would be larger than 16 M elements (an `expand` of a constant belongs on the device), and once all of
    it together has taken two billion multiply-adds, or memory far beyond that of the weights."""
    edit = Editor(graph)
    macs, room = _FOLD_MACS, _FOLD_BYTES + 3 * sum(v.type.bytes for v in graph.constants())
    outputs = set(graph.outputs) | {s.output for s in graph.states}
    for node in graph.nodes:
        edit.take(node)
        known = all(v is None or v.is_const for v in node.inputs) and not node.op.EFFECT
        if known and graph.bounds is not None:
            known = not names_of(node.op)  # what depends on sizes of the caller is computed at run time
        if not known or any(o in outputs for o in node.outputs) or node.output.type.elements > _FOLD_LIMIT:
            edit.keep(node)
            continue
        types = [None if v is None else v.type for v in node.inputs]
        macs -= node.op.macs(types, node.output.type)
        room -= sum(o.type.bytes for o in node.outputs)
        if macs < 0 or room < 0:
            edit.keep(node)
            continue
        arrays = [None if v is None else v.data for v in node.inputs]
        results = node.op.evaluate(arrays, types)
        for out, data in zip(node.outputs, results, strict=True):
            out.data = np.ascontiguousarray(data).reshape(out.shape)
        edit.changed = True
    return edit.finish()


def remove_identities(graph: Graph, context: Context) -> Graph:
    """Drop operators that change nothing, and join reshapes of reshapes.

        a = transpose(x, perm=(0,1,2))          (nothing)
        b = reshape(a, shape=(2,3))      ->     b = reshape(x, shape=(2,3))
        c = mul(b, 1.0)

    An operator that makes an output of an input or of a constant stays: an output needs memory of its own."""
    edit = Editor(graph)
    special = set(graph.outputs) | {s.output for s in graph.states}
    fed = set(graph.inputs)
    for node in graph.nodes:
        edit.take(node)
        source = node.inputs[0] if node.inputs else None
        same = _identity(node.op, node)
        if same is not None:
            value = node.inputs[same]
            assert value is not None
            before = edit.made.get(value)
            whole = value.type == node.output.type and not value.is_const
            guarded = before is not None and before.when is not node.when
            if whole and not guarded and (node.output not in special or (value not in fed and value not in special)):
                if not value.origin:
                    value.origin = node.output.origin
                if node.output in special:
                    special.add(value)
                    if node.output.type.layout is Layout.TEXT:  # bytes that callers read as strings
                        value.type = node.output.type
                edit.replace(node, value)
                continue
        if isinstance(node.op, Reshape) and source is not None and source in edit.made:
            earlier = edit.made[source]
            if isinstance(earlier.op, Reshape) and earlier.when is node.when:
                node.inputs[0] = earlier.inputs[0]
                edit.changed = True
        edit.keep(node)
    return edit.finish()


def _identity(op: Op, node: Node) -> int | None:
    """The operand that this operator passes through, or None."""
    first = node.inputs[0] if node.inputs else None
    if first is None:
        return None
    match op:
        case Reshape() | Expand() | Copy() | Tile() | Slice() | Pad():
            same = first.shape == node.output.shape and (not isinstance(op, Slice) or all(s > 0 for s in op.steps))
            return 0 if same else None
        case Transpose():
            return 0 if op.perm == tuple(range(len(op.perm))) else None
        case Concat():
            present = [n for n, v in enumerate(node.inputs) if v is not None and v.type.elements != 0]
            return present[0] if len(present) == 1 else None
        case Cast():
            return 0 if first.dtype is op.to else None
        case Clip():
            return 0 if op.low == -math.inf and op.high == math.inf else None
        case Resize():
            exact = first.shape == node.output.shape and all(op.taps(a, n).is_identity for a, n in enumerate(first.shape))
            return 0 if exact else None
        case Mul() | Div() | Add() | Sub():
            neutral = 1.0 if isinstance(op, (Mul, Div)) else 0.0
            if scalar_of(node.inputs[1]) == neutral and first.shape == node.output.shape:
                return 0
            second = node.inputs[1]
            if (
                isinstance(op, (Mul, Add))
                and scalar_of(first) == neutral
                and second is not None
                and second.shape == node.output.shape
            ):
                return 1
    return None


def common_subexpressions(graph: Graph, context: Context) -> Graph:
    """Compute equal things once.

        a = relu(x)             a = relu(x)
        b = relu(x)      ->     c = add(a, a)
        c = add(a, b)

    Under one guard only, and outputs stay where they are."""
    edit = Editor(graph)
    seen: dict[tuple[object, ...], Node] = {}
    special = set(graph.outputs) | {s.output for s in graph.states}
    for node in graph.nodes:
        edit.take(node)
        key = (type(node.op), tuple(print_fields(node.op)), tuple(id(v) for v in node.inputs), id(node.when))
        twin = seen.get(key)
        if twin is not None and not node.op.EFFECT and not any(o in special for o in node.outputs):
            for mine, theirs in zip(node.outputs, twin.outputs, strict=True):
                edit.renamed[mine] = theirs
            edit.changed = True
            continue
        seen.setdefault(key, node)
        edit.keep(node)
    return edit.finish()


def dead_code(graph: Graph, context: Context) -> Graph:
    """Drop what nobody reads.

        a = conv(x, w)
        b = relu(x)             b = relu(x)
        output b         ->     output b

    Operators with an effect (assertions) stay."""
    needed: set[Value] = set(graph.outputs) | {s.output for s in graph.states}
    kept: list[Node] = []
    for node in reversed(graph.nodes):
        if node.op.EFFECT or any(o in needed for o in node.outputs):
            kept.append(node)
            needed.update(node.operands())
            needed |= needed_counts(node, graph.counts)
    graph.nodes = kept[::-1]
    return graph


def is_float(value: Value) -> bool:
    return value.dtype in (DType.F32, DType.F64)
