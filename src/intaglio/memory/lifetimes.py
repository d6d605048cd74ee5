"""Who lives when: every piece of memory in the arena with its first and last layer.

Values that are views of each other or of parts of each other, and outputs that take over the memory of an operand (in place), are
one buffer.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from intaglio.ir.graph import Value
from intaglio.ir.loops import loops_of
from intaglio.ir.placement import ARENA, INPUT, OUTPUT, STATE, Address, Region, Slot, part_of
from intaglio.ir.program import K, Layer, Program, ValueArg
from intaglio.ir.views import storage_parts
from intaglio.memory.weights_read import plan_reads
from intaglio.ops.move import Roll


@dataclass(slots=True, eq=False)
class Buffer:
    """A piece of the arena from layer `first` to layer `last`, both included."""

    name: str
    bytes: int
    first: int
    last: int
    values: list[Value] = field(default_factory=list)
    scratch_of: int = -1  # the layer whose scratch this is
    slot: Slot | None = None  # which input or output has room here, if the caller wants it in the arena
    offset: int = -1
    pinned: bool = False  # the user said where it is
    region: Region = ARENA  # which arena, where there are several
    parts: dict[Value, int] = field(default_factory=dict)  # values that do not start where the buffer does

    def meets(self, other: Buffer) -> bool:
        return self.first <= other.last and other.first <= self.last


@dataclass(slots=True)
class Storage:
    """Where each value lives: in a buffer of the arena, or with the caller."""

    buffers: list[Buffer]
    outside: dict[Value, Address]  # of inputs, outputs, states and their parts
    state_bytes: int
    in_place: dict[str, str]
    apart: dict[tuple[Buffer, Buffer], int] = field(default_factory=dict)  # (lower, upper), may overlap: least distance
    strides: dict[Value, int] = field(default_factory=dict)  # of values that do not lie in one piece: bytes from row to row


def find_storage(program: Program[K], alignment: int, *, in_place: bool = True, slots: bool = False) -> Storage:
    """`slots`: the arena has room for inputs and outputs too, for as long as they are needed."""
    graph = program.graph
    parts = storage_parts(graph, program.choices)
    roots = {view: part.whole for view, part in parts.items()}
    outside, state_bytes = _outside(program, alignment, roots)
    buffers: dict[Value, Buffer] = {}
    home: dict[Value, Buffer] = {}
    scratch: list[Buffer] = []
    took: dict[str, str] = {}
    last_read = _last_reads(program, roots)
    for value in graph.inputs:  # rows of it come one by one
        if (window := program.window_of(value)) is not None:
            home[value] = buffers[value] = Buffer(value.name, window.bytes, window.first, window.last, [value])
    for index, layer in enumerate(program.layers):
        start, end = program.span(index)
        if layer.scratch_bytes:
            until = program.waits().get(index, index)
            scratch.append(Buffer(f"{layer.name}_scratch", layer.scratch_bytes, index, until, scratch_of=index))
        for out in layer.node.outputs:
            root = roots.get(out, out)
            if root in outside:
                continue
            if (window := program.window_of(out)) is not None:
                home[out] = buffers[out] = Buffer(out.name, window.bytes, window.first, window.last, [out])
                continue
            alone = in_place and root is out and program.stripe_at(index) is None and _reads_last(program, index, end)
            buffer = _taken_over(layer, (index, end), out, roots, home, last_read) if alone else home.get(root)
            if buffer is None:
                buffer = buffers[root] = Buffer(root.name, root.type.bytes, start, end)
            elif root is out:
                took[out.name] = buffer.values[-1].name if buffer.values else buffer.name
            if root is out:
                buffer.values.append(out)
            buffer.last = max(buffer.last, end, last_read.get(root, index))
            home[root] = buffer
    strides = {v: part.pitch.stride * v.dtype.bytes for v, part in parts.items() if part.pitch is not None}
    for view, part in parts.items():
        root = part.whole
        if root in home:
            home[root].values.append(view)
            if part.at:
                home[root].parts[view] = part.at
        elif root in outside:
            outside[view] = _part(root, outside[root], view, part.at, strides.get(view, 0))
    for root, buffer in home.items():  # what is put together of parts is written by no layer
        if root not in buffer.values:
            buffer.values.insert(0, root)
    room = _slots(program, outside, roots, last_read) if slots else []
    end = len(program.layers)
    room += [Buffer("rows_fed", s.feed_bytes, 0, end, slot=("feed", n)) for n, s in enumerate(program.stripes) if s.spec.fed]
    for read in plan_reads(program):
        room.append(Buffer(f"{program.layers[read.layer].name}_weights", read.bytes, read.first, read.last, slot=read.slot))
    every = [b for b in [*buffers.values(), *scratch, *room] if b.bytes]
    return Storage(every, outside, state_bytes, took, _overlaps(program, home, room, roots, outside), strides)


def _outside(program: Program[K], alignment: int, roots: dict[Value, Value]) -> tuple[dict[Value, Address], int]:
    """Inputs and outputs, which are the caller's, and the state with its size."""
    graph = program.graph
    outside: dict[Value, Address] = {}
    state_bytes = 0
    fed = {s.input for s in graph.states}
    for n, value in enumerate(graph.inputs):
        if value in fed:
            outside[value] = Address(STATE, state_bytes)
            state_bytes += align(value.type.bytes, alignment)
        elif program.window_of(value) is None:
            outside[value] = Address(INPUT, n)
    for n, value in enumerate(graph.outputs):
        outside.setdefault(roots.get(value, value), Address(OUTPUT, n))
    for value, state in rolled_states(program).items():
        outside.setdefault(value, outside[state])
    return outside, state_bytes


def _slots(
    program: Program[K], outside: dict[Value, Address], roots: dict[Value, Value], last_read: dict[Value, int]
) -> list[Buffer]:
    """Room for inputs until they are read for the last time, and for outputs since they are written."""
    graph, end = program.graph, len(program.layers)
    kept = {roots.get(v, v) for v in [*graph.outputs, *(s.output for s in graph.states)]}
    written: dict[Value, int] = {}
    for n, layer in enumerate(program.layers):
        for out in layer.node.outputs:  # or the first part of it
            written.setdefault(roots.get(out, out), program.span(n)[0])
    found = []
    for n, value in enumerate(graph.inputs):
        if outside.get(value) == Address(INPUT, n):
            last = end if value in kept else last_read.get(value, 0)
            found.append(Buffer(f"{value.name}_input", value.type.bytes, 0, last, slot=("input", n)))
    for n, value in enumerate(graph.outputs):
        root = roots.get(value, value)
        first = written.get(root, end) if outside.get(root) == Address(OUTPUT, n) else end
        found.append(Buffer(f"{value.name}_output", value.type.bytes, first, end, slot=("output", n)))
    return found


def _part(root: Value, home: Address, view: Value, at: int, stride: int) -> Address:
    if home.region == STATE:
        return Address(STATE, home.offset + at, stride)
    return Address(part_of(root), at, stride) if at or view.type.bytes != root.type.bytes else home


def rolled_states(program: Program[K]) -> dict[Value, Value]:
    """Results that are the next state and are made in the memory of the state itself, which nobody else reads."""
    following = {s.output: s.input for s in program.graph.states}
    readers: dict[Value, int] = {}
    for node in program.graph.nodes:
        for value in node.operands():
            readers[value] = readers.get(value, 0) + 1
    found = {}
    for layer in program.layers:
        out, first = layer.node.output, layer.node.inputs[0] if layer.node.inputs else None
        if not isinstance(layer.node.op, Roll) or first is None or layer.node.when is not None:
            continue
        kept = out in program.graph.outputs or first in program.graph.outputs
        if following.get(out) is first and readers[first] == 1 and not kept:
            found[out] = first
    return found


def _overlaps(
    program: Program[K], home: dict[Value, Buffer], room: list[Buffer], roots: dict[Value, Value],
    outside: dict[Value, Address],
) -> dict[tuple[Buffer, Buffer], int]:  # fmt: skip
    """In a stripe, rows of a result may be written where rows of an operand were that nobody needs any more."""
    slots = {b.slot: b for b in room}

    def buffer_of(value: Value) -> Buffer | None:
        root = roots.get(value, value)
        address = outside.get(root)
        found = home.get(root) or slots.get(None if address is None else address.slot)
        return None if found is None or found.parts.get(value) or root.type.bytes != value.type.bytes else found

    found = {}
    for stripe in program.stripes:
        for (lower, upper), distance in stripe.apart.items():
            low, high = buffer_of(lower), buffer_of(upper)
            if low is None or high is None or low is high:
                continue
            source, result = (low, high) if stripe.spec.up else (high, low)
            if source.last == stripe.last and result.first == stripe.first:
                found[low, high] = distance
    return found


def align(size: int, alignment: int) -> int:
    return -(-size // alignment) * alignment


def _last_reads(program: Program[K], roots: dict[Value, Value]) -> dict[Value, int]:
    """The last layer that reads each root, guards included; what becomes the next state lives to the end, and what the body of a
    loop reads and does not make itself, until the loop ends."""
    last: dict[Value, int] = {}
    loops = loops_of([layer.node for layer in program.layers])
    made: dict[Value, int] = {}
    for index, layer in enumerate(program.layers):
        for out in layer.node.outputs:
            made.setdefault(roots.get(out, out), index)
        for value in layer.node.operands():
            if not value.is_const:
                root = roots.get(value, value)
                ends = [loop.end for loop in loops if index in loop and made.get(root, -1) < loop.start]
                last[root] = max(last.get(root, -1), program.span(index)[1], *ends)
    end = len(program.layers)
    for state in program.graph.states:
        last[roots.get(state.output, state.output)] = end
    return last


def _reads_last(program: Program[K], index: int, end: int) -> bool:
    """Nobody reads what this layer reads while an accelerator is at work on it: it may be written over."""
    mine = set(program.layers[index].node.operands())
    return not any(v in mine for layer in program.layers[index + 1 : end + 1] for v in layer.node.operands())


def _taken_over(
    layer: Layer[K],
    span: tuple[int, int],
    out: Value,
    roots: dict[Value, Value],
    home: dict[Value, Buffer],
    last_read: dict[Value, int],
) -> Buffer | None:
    """The buffer of an operand that dies here and has the shape of the output. Elements are read before they are written, so
    the operand must be walked like the output, and no other operand may lie in the same memory. `span`: the layer, and the one
    before which it is done."""
    if not layer.kernel.in_place or layer.node.when is not None or len(layer.node.outputs) != 1:
        return None
    over = layer.kernel.over
    operands = [a.value for a in layer.arguments if isinstance(a, ValueArg) and a.value is not out]
    wanted = [a.value for n, a in enumerate(layer.arguments) if n == over and isinstance(a, ValueArg)] if over >= 0 else operands
    for value in wanted:
        root = roots.get(value, value)
        buffer = home.get(root)
        if buffer is None or buffer.last != span[1] or last_read.get(root) != span[1]:
            continue
        if value.shape != out.shape or value.dtype.bytes != out.dtype.bytes or buffer.bytes != out.type.bytes:
            continue
        others = [v for v in operands if v is not value and home.get(roots.get(v, v)) is buffer]
        alone = not others and operands.count(value) == 1
        if all(v.shape == out.shape for v in others) and (alone or over < 0):
            return buffer
    return None


__all__ = ["Buffer", "Storage", "align", "find_storage"]
