"""A proof that weights which are read into the arena are safe there: from the start of the read until their layer is done, nothing
else that is alive or written lies on them. It trusts addresses and the order of layers, like `checker`."""

from __future__ import annotations

from collections.abc import Callable

from intaglio.errors import OurFault
from intaglio.ir.graph import Value
from intaglio.ir.program import K, Program
from intaglio.memory.weights_read import WeightsRead, plan_reads

Span = tuple[int, int]  # where it starts, bytes


def check_reads(
    program: Program[K], place: Callable[[WeightsRead], int], room: Callable[[Value], int | None], scratch: Callable[[int], int]
) -> list[tuple[WeightsRead, Span]]:
    """`place`, `room`, `scratch`: where weights, values and the working memory of layers are. Returns the spans of weights."""
    reads = plan_reads(program)
    spans = [(read, (place(read), read.bytes)) for read in reads]
    alive = _lives(program)
    for n, (read, span) in enumerate(spans):
        what = f"the weights of layer {read.layer} `{program.layers[read.layer].name}`"
        for value, (first, last) in alive.items():
            at = room(value)
            window = program.window_of(value)
            size = value.type.bytes if window is None else window.bytes
            if at is not None and size and first <= read.last and read.first <= last and _meet(span, (at, size)):
                raise OurFault("bad-plan", f"{what} and `{value.name}` are in the same place")
        for index in range(read.first, read.last + 1):
            size = program.layers[index].scratch_bytes
            if size and _meet(span, (scratch(index), size)):
                raise OurFault("bad-plan", f"{what} and the scratch of layer {index} are in the same place")
        for other, place_of_it in spans[:n]:  # they began before
            if read.first <= other.last and _meet(span, place_of_it):
                raise OurFault("bad-plan", f"{what} and those of layer {other.layer} are in the same place")
    return spans


def _lives(program: Program[K]) -> dict[Value, tuple[int, int]]:
    """From the layer that writes a value to the last that touches it, or any other name of it; inputs are there from the start,
    what leaves the network to the end."""
    end = len(program.layers)
    alive: dict[Value, tuple[int, int]] = dict.fromkeys(program.graph.inputs, (0, 0))
    for index, layer in enumerate(program.layers):
        first, last = program.span(index)
        for value in layer.node.outputs:
            alive[value] = (first, last)
        for value in layer.node.operands():
            before = alive.get(value, (first, last))
            alive[value] = (before[0], max(before[1], last))
    for value in [*program.graph.outputs, *(s.output for s in program.graph.states)]:
        alive[value] = (alive[value][0] if value in alive else end, end)  # another name for what some layer writes: see below
    for node in program.choices.views(program.graph):  # another name of the same memory was written with what it is a view of
        names = [*node.operands(), *node.outputs]
        known = [alive[v] for v in names if v in alive]
        span = (min((a for a, _ in known), default=end), max((b for _, b in known), default=end))
        alive |= dict.fromkeys(names, span)
    return alive


def _meet(a: Span, b: Span) -> bool:
    return a[0] < b[0] + b[1] and b[0] < a[0] + a[1]
