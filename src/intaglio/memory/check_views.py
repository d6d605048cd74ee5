"""What the checker knows of views: which value stands for which, when all parts of a whole are there, and where they must lie."""

from __future__ import annotations

from collections.abc import Callable

from intaglio.errors import OurFault
from intaglio.ir.choices import Choices
from intaglio.ir.graph import Graph, Node, Value
from intaglio.ir.placement import ARENA, STATE, Address, Kind, Placement, Region
from intaglio.ir.views import starts_bytes


class Views:
    """A view of one value (reshape, slice) is read by reading that one. One of several (concat) is there when they are."""

    def __init__(self, graph: Graph, choices: Choices, placement: Placement) -> None:
        self._graph, self._placement = graph, placement
        self._nodes = choices.views(graph)
        self.renamed: dict[Value, Value] = {}
        self._waiting: list[Node] = []
        for node in self._nodes:
            if len(node.inputs) > 1:
                self._waiting.append(node)
            elif (source := node.inputs[0]) is not None:
                self.renamed[node.output] = self.renamed.get(source, source)

    def join(self, owner: dict[Value, tuple[int, int]], where: Callable[[Value], int | None]) -> None:
        """A whole owns its bytes as soon as every part of it owns its own. One that loses them to another value loses the whole."""
        for node in list(self._waiting):
            parts = [self.renamed.get(v, v) for v in node.inputs if v is not None]
            if all(part in owner for part in parts):
                self._waiting.remove(node)
                if (at := where(node.output)) is not None:
                    owner[node.output] = (at, node.output.type.bytes)

    def check_addresses(self) -> None:
        """Views lie where the values are that they are views of."""
        named = {value.name: value for value in self._graph.values()}
        for node in self._nodes:
            at = starts_bytes(node)
            if at is None:
                raise OurFault("bad-plan", f"`{node.output.name}` is not a view: its operator must copy")
            here = self._spot(node.output, named)
            for value, start in zip(node.inputs, at, strict=True):
                there = None if value is None or not value.type.bytes else self._spot(value, named)
                if value is not None and here and there and there != (here[0], here[1] + start):
                    raise OurFault("bad-plan", f"`{node.output.name}` is a view of `{value.name}`, which is elsewhere")

    def _spot(self, value: Value, named: dict[str, Value]) -> tuple[Region | Address, int] | None:
        """A region and a place in it; each input and each output is a region of its own."""
        address = self._placement.of(value)
        if address is None or not value.type.bytes:
            return None
        if address.region.kind is Kind.PART:
            whole = self._spot(named[address.region.name], named)
            return None if whole is None else (whole[0], whole[1] + address.offset)
        if address.slot is not None:
            return address, 0
        return ARENA if address.region == STATE else address.region, address.offset
