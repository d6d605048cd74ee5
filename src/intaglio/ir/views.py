"""Which values share memory because one is another name for the other, or for a part of it (`using view`).

a: f32[2,8] @arena+0 = relu(x) using chain
b: f32[3,8] @arena+64 = exp(z) using chain
c: f32[5,8] @arena+0 = concat(a, b) using view         `a` and `b` are written where they are parts of `c`
d: f32[8] @arena+64 = reshape(e) using view            all of `e`
e: f32[1,8] @arena+64 = slice(c, ...) using view       a part of `c`
"""

from __future__ import annotations

from collections.abc import Iterable

from intaglio.ir.choices import Choices
from intaglio.ir.graph import Graph, Node, Value


def storage_places(graph: Graph, choices: Choices) -> dict[Value, tuple[Value, int]]:
    """Everything that lives in the memory of another value: which one, and how many bytes from its start."""
    parent: dict[Value, tuple[Value, int]] = {}
    for node in choices.views(graph):
        join(parent, node)
    return {value: find(parent, value) for value in parent}


def storage_roots(graph: Graph, choices: Choices) -> dict[Value, Value]:
    """Everything that lives in the memory of another value, and which one that is."""
    return {value: root for value, (root, _) in storage_places(graph, choices).items()}


def join(parent: dict[Value, tuple[Value, int]], node: Node) -> None:
    """One more view: a result goes into the memory of its operand, several operands go into that of the result."""
    at = starts_bytes(node)
    operands = [v for v in node.inputs if v is not None]
    assert at is not None, f"{node!r} cannot be a view"
    if len(operands) == 1 and at[0] <= 0:
        parent[node.output] = (operands[0], -at[0])
        return
    for value, start in zip(operands, at, strict=True):
        root, inside = find(parent, value)
        parent[root] = (node.output, start - inside)


def find(parent: dict[Value, tuple[Value, int]], value: Value) -> tuple[Value, int]:
    offset = 0
    while value in parent:
        value, more = parent[value]
        offset += more
    return value, offset


def starts_bytes(node: Node) -> tuple[int, ...] | None:
    """Where each operand starts, relative to the result; None when it cannot be a view."""
    if any(v is None for v in node.inputs) or len(node.outputs) != 1:
        return None
    at = node.op.overlay([None if v is None else v.type for v in node.inputs], node.output.type)
    return None if at is None else tuple(n * node.output.dtype.bytes for n in at)


STEP_BYTES = 4  # kernels load words of small elements; they may be anywhere, but are fast here


class ViewRules:
    """Which nodes can be views beside those that are: a concat whose operands are made where they belong, a slice."""

    def __init__(self, graph: Graph, views: Iterable[Node]) -> None:
        self._graph = graph
        self._parent: dict[Value, tuple[Value, int]] = {}
        self._guarded = {out for node in graph.nodes if node.when is not None for out in node.outputs}
        for node in views:
            self.add(node)

    def add(self, node: Node) -> None:
        join(self._parent, node)

    def allow(self, node: Node) -> bool:
        """Memory of an input or an output is the caller's: a result that has to be there is made there, not elsewhere."""
        at, graph, out = starts_bytes(node), self._graph, node.output
        if at is None or node.when is not None or not out.type.bytes or out in self._parent:
            return False
        if any(n % max(STEP_BYTES, out.dtype.bytes) for n in at):
            return False
        operands = [v for v in node.inputs if v is not None]
        if any(v.is_const or v in self._guarded for v in operands):
            return False
        homes = [find(self._parent, v) for v in operands]
        outputs = {find(self._parent, v)[0] for v in graph.outputs}
        following = {find(self._parent, s.output)[0] for s in graph.states}
        if len(operands) == 1 and at[0] <= 0:
            return out not in outputs and not (out in following and homes[0][0] in graph.inputs)
        roots = [root for root, _ in homes]
        whole = all(inside == 0 and root.type.bytes == v.type.bytes for (root, inside), v in zip(homes, operands, strict=True))
        taken = {*graph.inputs, *outputs, *following, *self._guarded}
        return whole and len(set(roots)) == len(roots) and not any(root in taken or root.is_const for root in roots)
