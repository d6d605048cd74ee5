"""Loops in a graph. There is no subgraph: a loop is the nodes between its start and its end, which depend on what it carries.

    c, h = loop_start(true, x)                 c and h have memory of their own
    a = tanh(h)                                the body: everything that depends on a result of `loop_start`
    d = less(a, 0.5)
    c2, y = loop_end(c, h, d, a)               writes `d` over `c` and `a` over `h`; while `c` holds, the body runs again

`y` is `h` after the last turn, in the same memory, also where the body never ran. What does not depend on a result of `loop_start`
is not part of the loop, wherever it stands: it is computed once, in front of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from intaglio.ir.graph import Graph, Node, Value, needed_counts


@dataclass(frozen=True, slots=True)
class Loop:
    """Where the start and the end of a loop are in a list of nodes or of layers."""

    start: int
    end: int

    def __contains__(self, position: int) -> bool:
        return self.start < position <= self.end


def has_loops(nodes: Iterable[Node]) -> bool:
    return any(node.op.LOOP for node in nodes)


def loops_of(nodes: Sequence[Node]) -> list[Loop]:
    """In order of their starts: an outer loop comes before those inside of it."""
    starts = {node.outputs[0]: n for n, node in enumerate(nodes) if node.op.LOOP == "start"}
    found = [
        Loop(starts[first], n)
        for n, node in enumerate(nodes)
        if node.op.LOOP == "end" and (first := node.inputs[0]) is not None and first in starts
    ]
    return sorted(found, key=lambda loop: (loop.start, -loop.end))


def shared_memory(graph: Graph) -> dict[Value, Value]:
    """Results that operators write into the memory of an operand, whatever the plan of memory is, and the value that has it."""
    found: dict[Value, Value] = {}
    for node in graph.nodes:
        for out, operand in node.op.shares(len(node.inputs)):
            if (source := node.inputs[operand]) is not None:
                found[node.outputs[out]] = found.get(source, source)
    return found


def body_of(graph: Graph, start: Node, end: Node) -> set[Node]:
    """The nodes of a loop between its start and its end."""
    known = set(start.outputs)
    after = set(end.outputs)
    found: set[Node] = set()
    for node in graph.nodes:
        read = {*node.operands(), *needed_counts(node, graph.counts)}
        if node is end or read & after:
            after.update(node.outputs)
        elif read & known:
            found.add(node)
            known.update(node.outputs)
    return found


def gather_nodes(graph: Graph) -> list[Node]:
    """All nodes, in an order in which the body of a loop, and nothing else, stands between its start and its end."""
    nodes = list(graph.nodes)
    for start in [node for node in nodes if node.op.LOOP == "start"]:
        end = next(n for n in nodes if n.op.LOOP == "end" and n.inputs[0] is start.outputs[0])
        body = body_of(graph, start, end)
        first, last = nodes.index(start), nodes.index(end)
        before = [n for n in nodes[:last] if n not in body and n is not start]
        after = [n for n in nodes[last + 1 :] if n not in body]
        nodes = [*before, start, *(n for n in nodes if n in body), end, *after]
        assert first <= last
    return nodes


def read_in_turns(graph: Graph) -> set[Value]:
    """Values from outside of a loop that its body reads: in every turn again."""
    position = {out: n for n, node in enumerate(graph.nodes) for out in node.outputs}
    found: set[Value] = set()
    for loop in loops_of(graph.nodes):
        for node in graph.nodes[loop.start + 1 : loop.end]:
            found |= {v for v in node.operands() if not v.is_const and position.get(v, -1) < loop.start}
    return found
