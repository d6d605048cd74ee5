"""What must hold of a graph before any node is looked at: names defined once, no cycle, nothing missing.

Also finds the nodes that matter for the outputs. All nodes are checked, only live ones are imported."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from intaglio.errors import quoted
from intaglio.frontends.onnx.container import MAX_GRAPH_DEPTH
from intaglio.frontends.onnx.faults import Fault, need_text

GRAPH, GRAPHS = 5, 10


def subgraphs(node: Any) -> Iterator[Any]:
    for attribute in node.attribute:
        if attribute.type == GRAPH:
            yield attribute.g
        elif attribute.type == GRAPHS:
            yield from attribute.graphs


def graphs_in(graph: Any) -> Iterator[Any]:
    """The graph itself, and those of its loops and branches."""
    yield graph
    for node in graph.node:
        for inner in subgraphs(node):
            yield from graphs_in(inner)


def captured(graph: Any, depth: int = 1) -> dict[str, None]:
    """Names that a subgraph reads from outside, in order of appearance."""
    if depth > MAX_GRAPH_DEPTH:
        raise Fault("bad-graph", f"subgraphs are nested more than {MAX_GRAPH_DEPTH} deep")
    inside = {v.name for v in graph.input} | {t.name for t in graph.initializer}
    inside |= {t.values.name for t in graph.sparse_initializer}
    for node in graph.node:
        inside.update(node.output)
    free: dict[str, None] = {}
    for node in graph.node:
        for name in reads(node, depth):
            if name not in inside:
                free.setdefault(name)
    for out in graph.output:
        if out.name not in inside:
            free.setdefault(out.name)
    return free


def reads(node: Any, depth: int = 0) -> Iterable[str]:
    """Everything a node needs: its operands and what its subgraphs capture."""
    names = [n for n in node.input if n]
    for attribute in node.attribute:
        if attribute.type == GRAPH:
            names.extend(captured(attribute.g, depth + 1))
        elif attribute.type == GRAPHS:
            for g in attribute.graphs:
                names.extend(captured(g, depth + 1))
    return names


def ordered_live_nodes(graph: Any, outside: set[str], nested: bool) -> list[int]:
    """Indices of the nodes that the outputs need, in order of execution."""
    given = {v.name for v in graph.input} | {t.name for t in graph.initializer}
    given |= {t.values.name for t in graph.sparse_initializer}
    need_text(*given, *[v.name for v in graph.output])
    if len({v.name for v in graph.input}) != len(graph.input):
        raise Fault("bad-graph", "two inputs have the same name", "give each tensor its own name")
    if len({t.name for t in graph.initializer}) != len(graph.initializer):
        raise Fault("bad-graph", "two initializers have the same name", "give each tensor its own name")
    if not graph.output and not nested:
        raise Fault("bad-graph", "the graph has no outputs", "export the model again, with its outputs")
    producer: dict[str, int] = {}
    needs: list[Iterable[str]] = []
    in_order = True
    # This loop sees every node, dead ones too: a million of them must pass within seconds.
    for index, node in enumerate(graph.node):
        required = tuple(filter(None, node.input))  # a tuple of strings is nothing to the garbage collector
        if node.attribute:
            required = tuple(reads(node))
        needs.append(required)
        for name in required:
            if name not in producer and name not in given and name not in outside:
                in_order = False
                need_text(name)
        for name in node.output:
            if not name:
                continue
            if name in producer or name in given:
                need_text(name)
                other = "node" if name in producer else "input or initializer"
                raise Fault(
                    "bad-graph",
                    f"node {index} computes {quoted(name)}, which another {other} already defines",
                    "each tensor must have one producer",
                )
            producer[name] = index
    if not in_order:
        for index, names in enumerate(needs):
            for name in names:
                if name not in producer and name not in given and name not in outside:
                    op = graph.node[index].op_type
                    raise Fault("bad-graph", f"`{op}` in node {index} reads {quoted(name)}, which nothing defines",
                                "the model is damaged or was edited; export it again")  # fmt: skip
    for out in graph.output:
        if out.name not in producer and out.name not in given and out.name not in outside:
            raise Fault("bad-graph", f"no node computes the output {quoted(out.name)}", "export the model again")
    order = range(len(needs)) if in_order else _sorted(needs, producer, graph)
    return _live(order, needs, producer, graph)


def _sorted(needs: list[Iterable[str]], producer: dict[str, int], graph: Any) -> list[int]:
    """Kahn's algorithm; nodes that are left over are in a cycle."""
    waiting = [0] * len(needs)
    readers: dict[int, list[int]] = {}
    for index, required in enumerate(needs):
        sources = {producer[n] for n in required if n in producer}
        waiting[index] = len(sources)
        for source in sources:
            readers.setdefault(source, []).append(index)
    ready = [i for i, count in enumerate(waiting) if count == 0]
    order: list[int] = []
    while ready:
        index = ready.pop()
        order.append(index)
        for reader in readers.get(index, ()):
            waiting[reader] -= 1
            if waiting[reader] == 0:
                ready.append(reader)
    if len(order) != len(needs):
        stuck = next(i for i, count in enumerate(waiting) if count)
        name = graph.node[stuck].name or f"{graph.node[stuck].op_type}_{stuck}"
        raise Fault("bad-graph", f"the graph has a cycle through node {quoted(name)}", "export the model again")
    return order


def _live(order: Iterable[int], needs: list[Iterable[str]], producer: dict[str, int], graph: Any) -> list[int]:
    live: set[int] = set()
    pending = [producer[out.name] for out in graph.output if out.name in producer]
    while pending:
        index = pending.pop()
        if index in live:
            continue
        live.add(index)
        pending.extend(producer[n] for n in needs[index] if n in producer)
    return [i for i in order if i in live]
