"""An independent proof that a plan is sound: it shares no code with the planner and trusts only addresses and layers.

Every layer is walked in order; for each byte range we know which value was written there last. A read of a value whose bytes
were overwritten since, or that lie outside of the arena, is an error. So is a write into the state, which is read until the end
of a run and only then becomes the next one; what it becomes must still be there.

Arenas in several memories are far apart in one row of addresses (`_flat`): what lies beyond the end of one is in none.
"""

from __future__ import annotations

from typing import assert_never

import numpy as np

from intaglio.errors import OurFault
from intaglio.ir.graph import Value, needed_counts
from intaglio.ir.placement import ARENA, STATE, Address, Kind, Slot
from intaglio.ir.program import Argument, K, Layer, Program, ValueArg
from intaglio.ir.sizes import most, names_of, values_of
from intaglio.ir.stripes import Stripe
from intaglio.memory.check_loops import check_loops, own_memory, turns
from intaglio.memory.check_parts import check_parts
from intaglio.memory.check_reads import check_reads
from intaglio.memory.check_stripes import StripeCheck
from intaglio.memory.check_views import Span, Views, meet
from intaglio.memory.check_waits import check_waits
from intaglio.memory.weights_read import WeightsRead

_APART = 1 << 48  # no arena is as large


def _check_sizes(program: Program[K]) -> None:
    """Sizes that data has are found before a layer uses them."""
    unknown = {out for layer in program.layers for out in layer.node.outputs}
    for index, layer in enumerate(program.layers):
        if late := needed_counts(layer.node, program.graph.counts) & unknown:
            raise OurFault("bad-plan", f"layer {index} `{layer.name}` has the size `{late.pop().name}`, which is found after it")
        unknown -= {*layer.node.outputs}


def check(program: Program[K]) -> None:
    """Raises OurFault on the first thing that is wrong."""
    _check_sizes(program)
    owner: dict[Value, Span] = {}  # value -> its bytes, while they are its own
    placement = program.placement
    views = Views(program.graph, program.choices, placement)
    renamed = views.renamed
    state = [(at.offset, s.input.type.bytes) for s in program.graph.states if (at := placement.of(s.input)) is not None]
    for n, stripe in enumerate(program.stripes):  # where rows are fed, the position in the order outlives a call too
        if (feed := _slot(program, ("feed", n))) is not None:
            state.append((feed, stripe.feed_bytes))
    fed = _check_inputs(program, owner, state)
    for index in turns(program, owner, views):
        layer = program.layers[index]
        views.join(owner, lambda value: _room(program, value))
        if (inside := program.stripe_at(index)) is not None:
            if index == inside.first:
                _check_stripe(program, inside, owner, renamed, state)
            continue
        scratch, scratch_at = layer.scratch_bytes, _scratch(program, layer)
        if scratch:
            _inside(program, scratch_at, scratch, f"scratch of layer {layer.name}")
            _clear_of_state(state, scratch_at, scratch, f"scratch of layer {layer.name}")
            _overwrite(owner, Span(scratch_at, scratch))
        for value in layer.node.operands():
            root = renamed.get(value, value)
            if not root.is_const and (root in fed or _has_room(program, root)) and root.type.bytes and root not in owner:
                raise OurFault("bad-plan", f"layer {index} `{layer.name}` reads `{value.name}`, whose memory was given away")
        reads = [renamed.get(v, v) for v in layer.node.operands()]
        for out in layer.node.outputs:
            address = placement.of(out)
            if address is not None and address.region == STATE:
                _check_rolled(program, index, out)
            room = _room(program, out)
            if room is None or not out.type.bytes:
                continue
            place = views.span(out, room)
            _inside(program, place.at, place.bytes, f"`{out.name}`")
            _clear_of_state(state, place.at, place.bytes, f"`{out.name}`")
            shared = [r for r in reads if r in owner and meet(owner[r], place)]
            same = all(owner[r] == place for r in shared)
            own = same and shared == own_memory(layer.node, out)
            if shared and not own and not (layer.kernel.in_place and same and _allowed(layer, shared, renamed)):
                raise OurFault("bad-plan", f"layer {index} `{layer.name}` writes over what it reads: `{shared[0].name}`")
            if scratch and meet((scratch_at, scratch), place):
                raise OurFault("bad-plan", f"layer {index} `{layer.name}`: scratch and output overlap")
            _overwrite(owner, place)
            owner[out] = place
    views.join(owner, lambda value: _room(program, value))
    _check_outputs(program, owner, renamed, fed)
    _check_next_states(program, owner, renamed)
    views.check_addresses()
    views.check_kernels(program)
    check_loops(program)
    _check_weights(program, state)
    check_parts(program, lambda value: _place(program, value), lambda layer: _scratch(program, layer))
    if program.asynchronous:
        check_waits(
            program, lambda value: _place(program, value), lambda n: _scratch(program, program.layers[n])
        )  # fmt: skip


def _check_inputs(program: Program[K], owner: dict[Value, Span], state: list[tuple[int, int]]) -> set[Value]:
    """Those that have room in the arena."""
    fed = set()
    for n, value in enumerate(program.graph.inputs):
        if (offset := _slot(program, ("input", n))) is not None:
            fed.add(value)
            _inside(program, offset, value.type.bytes, f"input `{value.name}`")
            _clear_of_state(state, offset, value.type.bytes, f"input `{value.name}`")
            _overwrite(owner, Span(offset, value.type.bytes))
            owner[value] = Span(offset, value.type.bytes)
    return fed


def _check_next_states(program: Program[K], owner: dict[Value, Span], renamed: dict[Value, Value]) -> None:
    """What becomes the next state is still there at the end."""
    for following in [renamed.get(s.output, s.output) for s in program.graph.states]:
        if not following.is_const and _has_room(program, following) and following.type.bytes and following not in owner:
            raise OurFault("bad-plan", f"the next state `{following.name}` is overwritten before the run ends")


def _place(program: Program[K], value: Value) -> int | None:
    """Of a value, or of an input that has room in the arena."""
    if value in program.graph.inputs and program.window_of(value) is None:
        return _slot(program, ("input", program.graph.inputs.index(value)))
    return _room(program, value)


def _check_weights(program: Program[K], state: list[tuple[int, int]]) -> None:
    """Weights that are read into the arena."""

    def place(read: WeightsRead) -> int:
        at = _slot(program, read.slot)
        if at is None:
            raise OurFault("bad-plan", f"the weights of layer {read.layer} have no place")
        return at

    def scratch(index: int) -> int:
        return _scratch(program, program.layers[index])

    for read, span in check_reads(program, place, lambda value: _place(program, value), scratch):
        _inside(program, *span, f"the weights of layer {read.layer}")
        _clear_of_state(state, *span, f"the weights of layer {read.layer}")


def _check_rolled(program: Program[K], index: int, out: Value) -> None:
    """A result in the state: the kernel may work in place there, and nobody reads the old state from now on."""
    layer = program.layers[index]
    old = layer.node.inputs[0]
    whose = [s for s in program.graph.states if s.output is out]
    same = old is not None and program.placement.of(old) == program.placement.of(out)
    sound = layer.kernel.over == 0 and same and len(whose) == 1 and whose[0].input is old
    late = [other for other in program.layers[index + 1 :] if any(v is old for v in other.node.operands())]
    if not sound or late or any(v is old for v in layer.node.inputs[1:]) or out in program.graph.outputs:
        raise OurFault("bad-plan", f"layer {index} `{layer.name}` writes into the state")


def _check_stripe(
    program: Program[K], stripe: Stripe[K, Argument], owner: dict[Value, Span], renamed: dict[Value, Value],
    state: list[tuple[int, int]],
) -> None:  # fmt: skip
    """Its steps one by one; what they made is there afterwards."""
    what = f"a step of the stripe from `{stripe.spec.first}`"

    def where(value: Value) -> int | None:
        if value in program.graph.inputs and value not in stripe.windows:
            return _slot(program, ("input", program.graph.inputs.index(value)))
        return _room(program, value)

    def wrote(span: tuple[int, int]) -> None:
        _inside(program, *span, what)
        _clear_of_state(state, *span, what)
        _overwrite(owner, Span(*span))

    def scratch(layer: Layer[K]) -> int:
        return _scratch(program, layer)

    for value in StripeCheck(program, stripe, where, scratch, wrote, lambda value: renamed.get(value, value) in owner).run():
        if (place := where(value)) is not None:
            owner[value] = Span(place, value.type.bytes)


def _check_outputs(program: Program[K], owner: dict[Value, Span], renamed: dict[Value, Value], fed: set[Value]) -> None:
    """What becomes an output is still there at the end; no output with room in the arena lies on another, or on what is copied."""
    roots = [renamed.get(v, v) for v in program.graph.outputs]
    for value, root in zip(program.graph.outputs, roots, strict=True):
        if not root.is_const and (root in fed or _has_room(program, root)) and root.type.bytes and root not in owner:
            raise OurFault("bad-plan", f"the output `{value.name}` is overwritten before the run ends")
    _check_within_outputs(program)
    slots = [_slot(program, ("output", n)) for n in range(len(program.graph.outputs))]
    places = [None if at is None else Span(at, v.type.bytes) for at, v in zip(slots, program.graph.outputs, strict=True)]
    for n, place in enumerate(places):
        if place is None:
            continue
        name = program.graph.outputs[n].name
        _inside(program, place.at, place.bytes, f"output `{name}`")
        others = [p for m, p in enumerate(places) if m != n and p is not None] + [owner[r] for r in roots if r in owner]
        if any(meet(place, other) for other in others if other != place):
            raise OurFault("bad-plan", f"the output `{name}` shares memory with another")


def _check_within_outputs(program: Program[K]) -> None:
    """What is computed in the memory of an output is no larger than the output, for every size that the caller may give. What is
    found in data has room for the most."""
    for value in program.graph.values():
        address = program.placement.of(value)
        if address is None or address.region.kind is not Kind.OUTPUT:
            continue
        out = program.graph.outputs[address.offset]
        open_ = names_of(out.type.shape) & program.graph.counts.keys()
        room = most(out.type.elements) if open_ else out.type.elements
        needed = values_of(most(value.type.elements) if open_ else value.type.elements)
        if np.any(needed * value.dtype.bytes > values_of(room) * out.dtype.bytes):
            raise OurFault("bad-plan", f"`{value.name}` is larger than the output `{out.name}`, whose memory it has")


def _allowed(layer: Layer[K], shared: list[Value], renamed: dict[Value, Value]) -> bool:
    """Some kernels may write over one of their arguments only."""
    argument = layer.arguments[layer.kernel.over] if layer.kernel.over >= 0 else None
    if argument is None:
        return True
    touched = [a for a in layer.arguments if isinstance(a, ValueArg) and renamed.get(a.value, a.value) in shared]
    return len(touched) == 1 and touched[0] is argument


def _room(program: Program[K], value: Value) -> int | None:
    """Where in the arena a value lies: its own address, or the room that an output has there."""
    address = program.placement.of(value)
    if address is None:
        return None
    match address.region.kind:
        case Kind.PART:  # of an output
            whole = next(v for v in program.graph.values() if v.name == address.region.name)
            at = _room(program, whole)
            return None if at is None else at + address.offset
        case Kind.OUTPUT:
            return _slot(program, ("output", address.offset))
        case Kind.ARENA:
            return _flat(program, address)
        case Kind.STATE | Kind.INPUT | Kind.WEIGHTS | Kind.UNKNOWN:
            return None
        case kind:
            assert_never(kind)


def _slot(program: Program[K], slot: Slot) -> int | None:
    address = program.placement.slots.get(slot)
    return None if address is None else _flat(program, address)


def _scratch(program: Program[K], layer: Layer[K]) -> int:
    """Of a layer that has working memory; a place in no arena for one that should have some and has not."""
    address = program.placement.scratch.get(layer.name)
    return -1 if address is None else _flat(program, address)


def _flat(program: Program[K], address: Address) -> int:
    """A place in any arena as one number."""
    sizes = program.placement.arena_sizes()
    if address.region not in sizes:
        raise OurFault("bad-plan", f"there is no region `{address.region}`")
    return list(sizes).index(address.region) * _APART + address.offset


def _has_room(program: Program[K], value: Value) -> bool:
    return _room(program, value) is not None


def _overwrite(owner: dict[Value, Span], written: Span) -> None:
    for value in [v for v, place in owner.items() if meet(place, written)]:
        del owner[value]


def _clear_of_state(state: list[tuple[int, int]], offset: int, size: int, what: str) -> None:
    if any(meet(place, (offset, size)) for place in state):
        raise OurFault("bad-plan", f"{what} lies in the state")


def _inside(program: Program[K], offset: int, size: int, what: str) -> None:
    arenas = list(program.placement.arena_sizes().items())
    region, room = arenas[offset // _APART] if 0 <= offset < _APART * len(arenas) else (ARENA, 0)
    if offset < 0 or offset % _APART + size > room:
        raise OurFault("bad-plan", f"{what} lies outside of the {region}: {offset % _APART}+{size} of {room}")
