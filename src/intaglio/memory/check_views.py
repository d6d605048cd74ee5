"""What the checker knows of views: which value stands for which, when all parts of a whole are there, where they must lie, and
which bytes each of them has. Rows side by side have no byte in common, though they lie between each other."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from intaglio.errors import OurFault
from intaglio.ir.choices import Choices
from intaglio.ir.graph import Graph, Node, Value
from intaglio.ir.placement import ARENA, STATE, Address, Kind, Placement, Region
from intaglio.ir.program import K, Program, ValueArg
from intaglio.ir.views import row_widths, starts_bytes


class Span(NamedTuple):
    """The bytes of a value: all from the first to the last, or rows of `width` bytes that are `stride` apart."""

    at: int
    bytes: int
    width: int = 0
    stride: int = 0


def meet(a: Span | tuple[int, int], b: Span | tuple[int, int]) -> bool:
    """Is a byte in both? Of rows at different distances, yes, if one could be."""
    if not (a[0] < b[0] + b[1] and b[0] < a[0] + a[1]):
        return False
    if not isinstance(a, Span) or not isinstance(b, Span) or not a.stride or a.stride != b.stride:
        return True
    between = (b.at - a.at) % a.stride
    return between < a.width or between + b.width > a.stride


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
        self._rows = _rows_of(self._nodes)

    def span(self, value: Value, at: int) -> Span:
        """The bytes of a value that starts there."""
        if (rows := self._rows.get(value)) is None:
            return Span(at, value.type.bytes)
        width, stride = (n * value.dtype.bytes for n in rows)
        return Span(at, (value.type.bytes // width - 1) * stride + width, width, stride)

    def join(self, owner: dict[Value, Span], where: Callable[[Value], int | None]) -> None:
        """A whole owns its bytes as soon as every part of it owns its own. One that loses them to another value loses the whole."""
        for node in list(self._waiting):
            parts = [self.renamed.get(v, v) for v in node.inputs if v is not None]
            if all(part in owner for part in parts):
                self._waiting.remove(node)
                if (at := where(node.output)) is not None:
                    owner[node.output] = self.span(node.output, at)

    def again(self, nodes: set[Node]) -> None:
        """A loop makes another turn: the wholes that these nodes are have to be put together again."""
        self._waiting += [n for n in self._nodes if n in nodes and len(n.inputs) > 1 and n not in self._waiting]

    def check_addresses(self) -> None:
        """Views lie where the values are that they are views of, with the distance from row to row that the widest one has."""
        named = {value.name: value for value in self._graph.values()}
        for node in self._nodes:
            whole = starts_bytes(node)
            at = whole or _columns(node)
            if at is None:
                raise OurFault("bad-plan", f"`{node.output.name}` is not a view: its operator must copy")
            cut = any(v is None or v.type.bytes != node.output.type.bytes for v in node.inputs)
            if whole is not None and cut and any(v in self._rows for v in [*node.operands(), *node.outputs]):
                raise OurFault("bad-plan", f"`{node.output.name}` is a view of rows that are not in one piece")
            here = self._spot(node.output, named)
            for value, start in zip(node.inputs, at, strict=True):
                there = None if value is None or not value.type.bytes else self._spot(value, named)
                if value is not None and here and there and there != (here[0], here[1] + start):
                    raise OurFault("bad-plan", f"`{node.output.name}` is a view of `{value.name}`, which is elsewhere")
        for value in named.values():
            address, rows = self._placement.of(value), self._rows.get(value)
            if address is not None and address.stride != (0 if rows is None else rows[1] * value.dtype.bytes):
                raise OurFault("bad-plan", f"the rows of `{value.name}` are not as far apart as its address says")

    def check_kernels(self, program: Program[K]) -> None:
        """Every kernel knows which of its arguments are not in one piece, and how far apart their rows are."""
        for index, layer in enumerate(program.layers):
            arguments = [(n, a.value) for n, a in enumerate(layer.arguments) if isinstance(a, ValueArg)]
            wanted = tuple((n, *self._rows[value]) for n, value in arguments if value in self._rows)
            if layer.kernel.pitches != wanted:
                raise OurFault("bad-plan", f"layer {index} `{layer.name}` is for rows with another distance")
            apart = any(v in self._rows for v in [*layer.node.operands(), *layer.node.outputs])
            if apart and (program.stripe_at(index) is not None or program.asynchronous or not wanted):
                raise OurFault("bad-plan", f"layer {index} `{layer.name}` needs tensors in one piece")

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


def _columns(node: Node) -> tuple[int, ...] | None:
    """Where the rows of each operand start in a row of the result, in bytes."""
    widths = row_widths(node)
    return None if widths is None else tuple(sum(widths[:n]) * node.output.dtype.bytes for n in range(len(widths)))


def _rows_of(nodes: list[Node]) -> dict[Value, tuple[int, int]]:
    """Elements in a row and from row to row, of values that are not in one piece. All that is put side by side, directly or with
    others, has the distance of the widest; another name for all of a value has its rows."""
    sides = {node: sizes for node in nodes if (sizes := row_widths(node)) is not None}
    widths: dict[Value, int] = {}
    groups: list[set[Value]] = []

    def has(value: Value, width: int) -> None:
        if widths.setdefault(value, width) != width:
            raise OurFault("bad-plan", f"`{value.name}` has rows of {width} elements, and others")

    for node, sizes in sides.items():
        for value, width in zip([*node.operands(), node.output], [*sizes, sum(sizes)], strict=True):
            has(value, width)
    names = [(v, n.output) for n in nodes if n not in sides and (v := n.inputs[0]) and v.type.bytes == n.output.type.bytes]
    for one, other in [*names, *reversed(names), *names] if sides else []:
        if one in widths or other in widths:
            width = widths[one] if one in widths else widths[other]
            has(one, width)
            has(other, width)
    for tied in [{*node.operands(), node.output} for node in sides] + [{*pair} for pair in names if sides]:
        groups = [g for g in groups if not g & tied] + [tied.union(*(g for g in groups if g & tied))]
    found: dict[Value, tuple[int, int]] = {}
    for group in groups:
        stride = max(widths.get(value, 0) for value in group)
        found |= {value: (widths[value], stride) for value in group if widths.get(value, stride) < stride}
    return found
