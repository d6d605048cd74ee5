"""A region of the graph that an accelerator computes: one node outside, the nodes of the model inside.

    a: i8[1,8,8,16] = qconv(x, w1, b1, ...) on npu.0  # /conv1
    y: i8[1,8,8,16] = qadd(a, x, ...) on npu.0        # /add

In the text every node keeps its line and says where it runs. In memory the lines of `npu.0` are the body of one `Offload` node,
whose inputs are what they read from outside and whose outputs are what others read: `a` has no memory of the arena.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from intaglio.ir.graph import Array, Graph, Node, Value
from intaglio.ir.operator import REGISTRY, BadOperator, Op
from intaglio.ir.types import TensorType


@dataclass(frozen=True, slots=True)
class Offload(Op):
    """`body` in order of execution; `inputs` and `outputs` of the body are those of the node, in the same order."""

    NAME: ClassVar[str] = "offload"
    accelerator: str = ""
    number: int = 0
    body: tuple[Node, ...] = ()
    inputs: tuple[Value, ...] = ()
    outputs: tuple[Value, ...] = ()

    @property
    def place(self) -> str:
        return f"{self.accelerator}.{self.number}"

    def infer(self, *types: TensorType | None) -> tuple[TensorType, ...]:
        for node in self.body:
            for out, type in zip(node.outputs, node.op.infer(*[None if v is None else v.type for v in node.inputs]), strict=False):
                if (out.dtype, out.shape) != (type.dtype, type.shape):
                    raise BadOperator(f"`{out.name}` is declared {out.type}, its operator gives {type}")
        return tuple(v.type for v in self.outputs)

    def reference(self, *arrays: Array | None) -> tuple[Array, ...]:
        raise NotImplementedError("its nodes are evaluated one by one")

    def evaluate(self, arrays: list[Array | None], types: list[TensorType | None]) -> tuple[Array, ...]:
        values = {v: a for v, a in zip(self.inputs, arrays, strict=True) if a is not None}
        return evaluate_nodes(self.body, values, self.outputs)

    def macs(self, types: list[TensorType | None], out: TensorType) -> int:
        return sum(n.op.macs([None if v is None else v.type for v in n.inputs], n.output.type) for n in self.body)


del REGISTRY[Offload.NAME]  # no operator of the text: see above


def evaluate_nodes(nodes: Iterable[Node], values: dict[Value, Array], wanted: Sequence[Value]) -> tuple[Array, ...]:
    """Some nodes by the references of their operators."""
    known = dict(values)
    for node in nodes:
        arrays = [None if v is None else v.data if v.data is not None else known[v] for v in node.inputs]
        results = node.op.evaluate(arrays, [None if v is None else v.type for v in node.inputs])
        known.update(zip(node.outputs, results, strict=False))
    return tuple(known[v] for v in wanted)


def flat_nodes(nodes: Iterable[Node]) -> list[Node]:
    """The nodes of the model, those inside of regions too."""
    found: list[Node] = []
    for node in nodes:
        found += node.op.body if isinstance(node.op, Offload) else (node,)
    return found


def offloaded(graph: Graph, accelerator: str, number: int, body: Sequence[Node]) -> Node:
    """The node that stands for these: what they read of others first, then constants; what others read."""
    inside = {v for node in body for v in node.outputs}
    read: dict[Value, None] = {}
    for node in body:
        for value in node.operands():
            if value not in inside:
                read.setdefault(value)
    inputs = (*(v for v in read if not v.is_const), *(v for v in read if v.is_const))
    members = set(body)
    needed = {v for node in graph.nodes if node not in members for v in flat_operands(node)}
    needed |= {*graph.outputs, *(s.output for s in graph.states)}
    outputs = tuple(v for node in body for v in node.outputs if v in needed)
    source = ", ".join(dict.fromkeys(n.source for n in body if n.source))
    op = Offload(accelerator, number, tuple(body), inputs, outputs)
    return Node(op, list(inputs), list(outputs), source)


def flat_operands(node: Node) -> Iterable[Value]:
    for each in node.op.body if isinstance(node.op, Offload) else (node,):
        yield from each.operands()


def gather(graph: Graph, places: dict[Node, tuple[str, int]]) -> None:
    """Nodes with the same place become one node, where the last of them was: its operands are all made by then. A node that is
    not of the region but needs its results comes after it (the order is mended), and one that the region needs comes before."""
    if not places:
        return
    bodies: dict[tuple[str, int], list[Node]] = {}
    for node in graph.nodes:
        if node in places:
            bodies.setdefault(places[node], []).append(node)
    made: dict[tuple[str, int], Node] = {key: offloaded(graph, *key, body) for key, body in bodies.items()}
    order: list[Node] = []
    for node in graph.nodes:
        if node not in places:
            order.append(node)
        elif node is bodies[places[node]][0]:
            order.append(made[places[node]])
    graph.nodes = ordered(order)


def ordered(nodes: list[Node]) -> list[Node]:
    """A topological order that keeps the given one where it can. Raises ValueError where there is none."""
    maker = {v: n for n, node in enumerate(nodes) for v in node.outputs}
    needs = [{maker[v] for v in node.operands() if v in maker} - {n} for n, node in enumerate(nodes)]
    readers: list[list[int]] = [[] for _ in nodes]
    for n, wanted in enumerate(needs):
        for maker_of in wanted:
            readers[maker_of].append(n)
    missing = [len(wanted) for wanted in needs]
    ready = [n for n, count in enumerate(missing) if not count]  # sorted, which is a heap
    out: list[Node] = []
    while ready:
        n = heapq.heappop(ready)
        out.append(nodes[n])
        for reader in readers[n]:
            missing[reader] -= 1
            if not missing[reader]:
                heapq.heappush(ready, reader)
    if len(out) != len(nodes):
        raise ValueError("regions wait for each other")
    return out
