"""Trees compare whole numbers where their features are whole numbers of at most 16 bits."""

from __future__ import annotations

import numpy as np

from intaglio.ir.graph import Array, Graph, Node, Value
from intaglio.ir.types import DType
from intaglio.ops.base import Elementwise
from intaglio.ops.trees import CHILDREN, FEATURES, MISSING, THRESHOLDS, WHOLE, TreeEnsemble
from intaglio.passes.context import Context
from intaglio.passes.rewriting import Editor, constant


def compare_whole_features(graph: Graph, context: Context) -> Graph:
    """Let trees read what their features were computed from, with thresholds to match.

        f: f32[1,30] = cast(x)                        # x: i16
        d: f32[1,30] = sub(f, mean)            ->
        y = tree_ensemble(d, ..., 0.31, ...)          y = tree_ensemble(x, ..., 312, ...)

    What is between x and the trees is computed, column by column, for every value that x can have. It must not fall from one value
    to the next: then the values on the left side of a threshold are those up to a whole number, and a row reaches the same leaf.

    Skipped where x has more than 16 bits, or where a column falls."""
    edit = Editor(graph)
    for node in graph.nodes:
        edit.keep(edit.take(node))
        if isinstance(node.op, TreeEnsemble) and all(v is not None and v.data is not None for v in node.inputs[1:]):
            _compare_whole(edit, node)
    return edit.finish()


def _compare_whole(edit: Editor, node: Node) -> None:
    chain = _chain(edit, node)
    if not chain:
        return
    x = _operand(chain[0])
    given = [v.data for v in node.inputs if v is not None and v.data is not None]
    features, thresholds, children = (given[n - 1] for n in (FEATURES, THRESHOLDS, CHILDREN))
    if x is None or (features.size and not 0 <= int(features.min()) <= int(features.max()) < x.shape[1]):
        return
    values = np.arange(np.iinfo(x.dtype.numpy).min, np.iinfo(x.dtype.numpy).max + 1, dtype=x.dtype.numpy)
    last = np.full(len(features), -1, np.int64)  # the largest value on the left side; -1: there is none
    for column in np.unique(features).tolist():
        computed = _computed(chain, values, column)
        if computed is None:
            return
        at = np.flatnonzero((features == column) & ~np.isnan(thresholds))
        last[at] = np.searchsorted(computed, thresholds[at], "right") - 1
    never = last < 0
    new = {
        0: x,
        THRESHOLDS: constant(edit.graph, "thresholds", values[np.maximum(last, 0)], x.dtype),
        CHILDREN: constant(edit.graph, "children", np.where(never[:, None], children[:, 1:], children).astype(children.dtype)),
        MISSING: constant(edit.graph, "missing", np.zeros(len(features), bool)),
    }
    node.inputs = [new.get(n, v) for n, v in enumerate(node.inputs)]
    edit.changed = True


def _operand(node: Node) -> Value | None:
    """The one input that is not a constant, or None where there are several."""
    found = [v for v in node.inputs if v is not None and v.data is None]
    return found[0] if len(found) == 1 else None


def _chain(edit: Editor, node: Node) -> list[Node]:
    """The nodes between whole numbers and the trees, first to last; none where there are no such numbers."""
    chain: list[Node] = []
    at = node.inputs[0]
    while at is not None and at.dtype not in WHOLE:
        producer = edit.made.get(at)
        if producer is None or not isinstance(producer.op, Elementwise) or producer.when is not node.when:
            return []
        if at.dtype is DType.BF16:  # its bits stand in an array of whole numbers
            return []
        chain.insert(0, producer)
        at = _operand(producer)
        if at is None or at.shape != producer.output.shape or not all(_of_columns(v) for v in producer.inputs if v is not at):
            return []
    return chain if at is not None else []


def _of_columns(value: Value | None) -> bool:
    """Is this constant the same for all rows?"""
    return value is None or (value.dtype is not DType.BF16 and all(n == 1 for n in value.shape[:-1]))


def _computed(chain: list[Node], values: Array, column: int) -> Array | None:
    """What the trees are given in this column for each of the values, or None where it falls or is not a finite float."""
    found: Array = values.reshape(-1, 1)
    with np.errstate(all="ignore"):
        for node in chain:
            inner = _operand(node)
            operands = [found if v is inner else _of_column(v, column) for v in node.inputs]
            found = node.op.reference(*operands)[0]
    rises = found.shape == (len(values), 1) and np.isfinite(found).all() and (found[1:] >= found[:-1]).all()
    return found[:, 0] if rises else None


def _of_column(value: Value | None, column: int) -> Array | None:
    data = None if value is None else value.data
    return data[..., column : column + 1] if data is not None and data.ndim and data.shape[-1] > 1 else data
