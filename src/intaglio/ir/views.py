"""Which values share memory because one is another name for the other, or for a part of it (`using view`).

a: f32[2,8] @arena+0 = relu(x) using chain
b: f32[3,8] @arena+64 = exp(z) using chain
c: f32[5,8] @arena+0 = concat(a, b) using view         `a` and `b` are written where they are parts of `c`
d: f32[8] @arena+64 = reshape(e) using view            all of `e`
e: f32[1,8] @arena+64 = slice(c, ...) using view       a part of `c`

Along an inner axis the parts of a concat are rows side by side, each part with a pitch: its rows are as far apart as those of the
whole. All that is put together once more has the pitch of the outermost value.

a: f32[4,8] @arena+0/80 = relu(x) using chain          rows of 8 elements, 80 bytes apart
b: f32[4,12] @arena+32/80 = exp(z) using chain
c: f32[4,20] @arena+0 = concat(a, b, axis=1) using view
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from intaglio.ir.choices import Choices
from intaglio.ir.graph import Graph, Node, Value
from intaglio.ir.loops import shared_memory
from intaglio.ir.sizes import Size


@dataclass(frozen=True, slots=True)
class Pitch:
    """Rows of `width` elements, `stride` elements apart."""

    width: int
    stride: int

    def extent(self, value: Value) -> int:
        """Bytes from the first of a value to the end of its last row."""
        return value.type.bytes + (value.type.elements // self.width - 1) * (self.stride - self.width) * value.dtype.bytes


@dataclass(frozen=True, slots=True)
class Part:
    """Where a value lies in another one: bytes from its start; without a pitch, in one piece."""

    whole: Value
    at: int
    pitch: Pitch | None = None


Parts = dict[Value, Part]


class NoPart(Exception):
    """Rows of rows: no single pitch says where the elements are."""


def storage_parts(graph: Graph, choices: Choices) -> Parts:
    """Everything that lives in the memory of another value, and where in it. That value lives in no other one."""
    return parts_of(choices.views(graph), graph)


def parts_of(views: Iterable[Node], graph: Graph | None = None) -> Parts:
    """With a graph, also what a loop carries and collects, whose memory is that of an operand."""
    parent: Parts = {} if graph is None else {out: Part(source, 0) for out, source in shared_memory(graph).items()}
    for node in views:
        join(parent, node)
    return {value: find(parent, value) for value in parent}


def storage_places(graph: Graph, choices: Choices) -> dict[Value, tuple[Value, int]]:
    """Everything that lives in the memory of another value: which one, and how many bytes from its start."""
    return {value: (part.whole, part.at) for value, part in storage_parts(graph, choices).items()}


def storage_roots(graph: Graph, choices: Choices) -> dict[Value, Value]:
    """Everything that lives in the memory of another value, and which one that is."""
    return {value: part.whole for value, part in storage_parts(graph, choices).items()}


def storage_pitches(graph: Graph, choices: Choices) -> dict[Value, Pitch]:
    """Values that do not lie in one piece."""
    return pitches_of(choices.views(graph))


def pitches_of(views: Iterable[Node]) -> dict[Value, Pitch]:
    return {value: part.pitch for value, part in parts_of(views).items() if part.pitch is not None}


def join(parent: Parts, node: Node) -> None:
    """One more view: a result goes into the memory of its operand, several operands go into that of the result."""
    at = starts_bytes(node)
    operands = [v for v in node.inputs if v is not None]
    if at is None:
        _join_rows(parent, node, operands)
        return
    if len(operands) == 1 and at[0] <= 0:
        parent[node.output] = Part(operands[0], -at[0])
        return
    for value, start in zip(operands, at, strict=True):
        found = find(parent, value)
        parent[found.whole] = Part(node.output, start - found.at)


def _join_rows(parent: Parts, node: Node, operands: list[Value]) -> None:
    """Rows side by side. Where they already are, in a concat that has these operands and more, the result is there too."""
    widths = row_widths(node)
    assert widths is not None, f"{node!r} cannot be a view"
    size, stride = node.output.dtype.bytes, sum(widths)
    starts = [size * sum(widths[:n]) for n in range(len(widths))]
    found = [find(parent, v) for v in operands]
    if (there := _side_by_side(found, widths, starts)) is not None:
        parent[node.output] = there
        return
    for part, width, start in zip(found, widths, starts, strict=True):
        parent[part.whole] = Part(node.output, start - part.at, Pitch(width if part.pitch is None else part.pitch.stride, stride))


def _side_by_side(found: list[Part], widths: tuple[int, ...], starts: list[int]) -> Part | None:
    """The part of their common whole that operands already are."""
    first = found[0]
    if first.pitch is None:
        return None
    stride = first.pitch.stride
    wanted = [Part(first.whole, first.at + start, Pitch(width, stride)) for width, start in zip(widths, starts, strict=True)]
    if found != wanted:
        return None
    return Part(first.whole, first.at, Pitch(sum(widths), stride) if sum(widths) < stride else None)


def find(parent: Parts, value: Value) -> Part:
    """Raises NoPart."""
    found, at, pitch = value, 0, None
    while (outer := parent.get(found)) is not None:
        if outer.pitch is not None:
            whole = pitch is None and not at and value.type.bytes == found.type.bytes
            if not whole and (pitch is None or pitch.stride != outer.pitch.width):
                raise NoPart
            pitch = outer.pitch if pitch is None else Pitch(pitch.width, outer.pitch.stride)
        found, at = outer.whole, outer.at + at
    return Part(found, at, pitch)


def starts_bytes(node: Node) -> tuple[int, ...] | None:
    """Where each operand starts, relative to the result; None when they cannot be in one piece."""
    if any(v is None for v in node.inputs) or len(node.outputs) != 1:
        return None
    at = node.op.overlay([None if v is None else v.type for v in node.inputs], node.output.type)
    if at is None or any(isinstance(n, Size) for n in at):  # addresses are numbers
        return None
    return tuple(n * node.output.dtype.bytes for n in at)


def row_widths(node: Node) -> tuple[int, ...] | None:
    """The elements that each operand has in a row of the result; None where rows are not put side by side."""
    if any(v is None for v in node.inputs) or len(node.outputs) != 1 or starts_bytes(node) is not None:
        return None
    if node.output.type.moves:
        return None
    return node.op.row_widths([None if v is None else v.type for v in node.inputs], node.output.type)


STEP_BYTES = 4  # kernels load words of small elements; they may be anywhere, but are fast here


class ViewRules:
    """Which nodes can be views beside those that are: a concat whose operands are made where they belong, a slice."""

    def __init__(self, graph: Graph, views: Iterable[Node]) -> None:
        self._graph = graph
        self._parent: Parts = {}
        self._together: dict[Value, set[Value]] = {}  # by the value that has the memory: all that live in it
        self._guarded = {out for node in graph.nodes if node.when is not None for out in node.outputs}
        shared = shared_memory(graph)  # these stay where they are
        self._guarded |= shared.keys() | set(shared.values())
        self._parent = {out: Part(source, 0) for out, source in shared.items()}
        for node in views:
            self.add(node)

    def copy(self) -> ViewRules:
        """To try more views on."""
        made = ViewRules(self._graph, ())
        made._parent, made._together = dict(self._parent), dict(self._together)
        return made

    def add(self, node: Node) -> None:
        roots = self._roots(node)
        members = self._members(roots)
        join(self._parent, node)
        for root in roots:
            self._together.pop(root, None)
        self._together[find(self._parent, node.output).whole] = members

    def _roots(self, node: Node) -> set[Value]:
        return {find(self._parent, v).whole for v in [*(v for v in node.inputs if v is not None), node.output]}

    def _members(self, roots: set[Value]) -> set[Value]:
        return {value for root in roots for value in self._together.get(root, {root})}

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
        outputs = {find(self._parent, v).whole for v in graph.outputs}
        following = {find(self._parent, s.output).whole for s in graph.states}
        if len(operands) == 1 and at[0] <= 0:
            free = out not in outputs and not (out in following and homes[0].whole in graph.inputs)
            return free and self._has_places(node)
        roots = [home.whole for home in homes]
        whole = all(h.at == 0 and h.whole.type.bytes == v.type.bytes for h, v in zip(homes, operands, strict=True))
        taken = {*graph.inputs, *outputs, *following, *self._guarded}
        free = len(set(roots)) == len(roots) and not any(root in taken or root.is_const for root in roots)
        return whole and free and self._has_places(node)

    def allow_rows(self, node: Node) -> bool:
        """The same for a concat along an inner axis. Operands that are parts of another such concat take it along, so they have to
        be all of it: what else is there would lie on other operands."""
        widths, graph, out = row_widths(node), self._graph, node.output
        operands = [v for v in node.inputs if v is not None]
        if widths is None or node.when is not None or not all(widths) or len(operands) < 2 or not out.type.bytes:
            return False
        size, stride = out.dtype.bytes, sum(widths)
        starts = [size * sum(widths[:n]) for n in range(len(widths))]
        if any(n % max(STEP_BYTES, size) for n in (*starts, stride * size)):
            return False
        if any(v.is_const or v in self._guarded for v in operands):
            return False
        homes = [find(self._parent, v) for v in operands]
        ends = {find(self._parent, v).whole for v in [*graph.outputs, *(s.output for s in graph.states)]}
        taken = {*graph.inputs, *ends, *self._guarded}
        roots = {home.whole for home in homes}
        if find(self._parent, out).whole in roots or any(root in taken or root.is_const for root in roots):
            return False
        if _side_by_side(homes, widths, starts) is not None:
            return out not in self._parent and out not in ends and self._has_places(node)
        for root in roots:
            mine = [(h, v, w, s) for h, v, w, s in zip(homes, operands, widths, starts, strict=True) if h.whole is root]
            if len(mine) == 1 and mine[0][0] == Part(root, 0) and root.type.bytes == mine[0][1].type.bytes:
                continue
            pitches = {None if h.pitch is None else h.pitch.stride for h, _, _, _ in mine}
            shifts = {s - h.at for h, _, _, s in mine}
            rows = all(h.pitch is not None and h.pitch.width == w for h, _, w, _ in mine)
            if not rows or len(pitches) != 1 or len(shifts) != 1 or min(shifts) < 0 or {sum(w for _, _, w, _ in mine)} != pitches:
                return False
        return self._has_places(node)

    def _has_places(self, node: Node) -> bool:
        """Has every value still a place that can be told?"""
        trial = dict(self._parent)
        join(trial, node)
        try:
            for value in self._members(self._roots(node)):
                find(trial, value)
        except NoPart:
            return False
        return True
