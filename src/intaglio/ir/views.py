"""Which values share memory because one is another name for the other, or for a part of it (`using view`).

a: f32[2,8] @arena+0 = relu(x) using chain
b: f32[3,8] @arena+64 = exp(z) using chain
c: f32[5,8] @arena+0 = concat(a, b) using view         `a` and `b` are written where they are parts of `c`
d: f32[8] @arena+64 = reshape(e) using view            all of `e`
e: f32[1,8] @arena+64 = slice(c, ...) using view       a part of `c`
"""

from __future__ import annotations

from intaglio.ir.graph import Graph, Node, Value


def storage_places(graph: Graph) -> dict[Value, tuple[Value, int]]:
    """Everything that lives in the memory of another value: which one, and how many bytes from its start."""
    parent: dict[Value, tuple[Value, int]] = {}
    for node in graph.nodes:
        if node.using == "view":
            join(parent, node)
    return {value: find(parent, value) for value in parent}


def storage_roots(graph: Graph) -> dict[Value, Value]:
    """Everything that lives in the memory of another value, and which one that is."""
    return {value: root for value, (root, _) in storage_places(graph).items()}


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
