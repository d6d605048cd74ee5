"""The checker's part for stripes: every step is done in thought, with the rows that each byte holds.

Nothing is taken from the order that made the stripe but the steps themselves. Which rows a step needs follows from the operator;
they must be where the step reads, unharmed by every roll, write and piece of working memory before it.

Where the length of a row depends on sizes of the caller, every position is an array with a number for each combination of them, and
all are walked at once. Where the number of rows does, the walk is that of the largest, and each smaller one leaves it where its own
end begins; what was done until then must not have come to the end of its rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import product
from typing import Any, Generic

import numpy as np

from intaglio.errors import OurFault
from intaglio.ir.graph import Value
from intaglio.ir.program import Argument, K, Layer, Program
from intaglio.ir.sizes import Bounds, Size, most, names_of, pinned
from intaglio.ir.stripes import Action, Rows, Stripe
from intaglio.ops.rows import access_of, need, row_bytes

Span = tuple[int, int]  # first byte, bytes
Where = Callable[[Value], int | None]  # None: memory of the caller
Numbers = np.ndarray[Any, np.dtype[np.int64]]  # one for each combination of sizes
MOST_COMBINATIONS = 16_384


@dataclass(slots=True)
class _Held:
    """Rows of one value: where each of them starts, how long it is, and whether it is there."""

    start: Numbers  # [rows, combinations]
    there: np.ndarray[Any, np.dtype[np.bool_]]
    size: Numbers
    room: Span  # it is nowhere else

    def forget(self, first: Numbers, end: Numbers) -> None:
        """These bytes were written."""
        if self.room[0] < int(end.max()) and int(first.min()) < sum(self.room):
            self.there &= (self.start >= end) | (self.start + self.size <= first)

    def of(self, columns: list[int]) -> _Held:
        return _Held(self.start[:, columns], self.there[:, columns].copy(), self.size[columns], self.room)


@dataclass(slots=True)
class _State:
    """After some steps: rows that are in memory, rows that each layer has made, and how often it was at work."""

    held: dict[Value, _Held] = field(default_factory=dict)
    done: dict[int, int] = field(default_factory=dict)
    times: dict[int, int] = field(default_factory=dict)
    sizes: dict[str, int] = field(default_factory=dict)  # the number of rows that is walked; the largest, where nothing is said
    columns: list[int] = field(default_factory=list)
    furthest: dict[Value, int] = field(default_factory=dict)  # behind the last row that was read

    def reach(self, value: Value, row: int) -> None:
        self.furthest[value] = max(self.furthest.get(value, row), row)

    def leaving(self, sizes: dict[str, int], columns: list[int]) -> _State:
        held = {v: h.of([self.columns.index(c) for c in columns]) for v, h in self.held.items()}
        return _State(held, dict(self.done), dict(self.times), sizes, columns)


@dataclass(slots=True)
class StripeCheck(Generic[K]):
    """`where` finds a value; `wrote` is called for every span that is written, `held` for values that are there at the end."""

    program: Program[K]
    stripe: Stripe[K, Argument]
    where: Where
    scratch: Callable[[Layer[K]], int]
    wrote: Callable[[Span], None]
    holds: Callable[[Value], bool]
    _combinations: list[dict[str, int]] = field(default_factory=list)
    _known: dict[object, Numbers] = field(default_factory=dict)

    def run(self) -> list[Value]:
        """The whole values that the stripe made. Raises OurFault."""
        stripe, layers = self.stripe, self.program.layers
        inside = {out: None for n in range(stripe.first, stripe.last + 1) for out in layers[n].node.outputs}
        self._combinations = self._find_combinations(inside)
        state = _State(columns=list(range(len(self._combinations))))
        for n in range(stripe.first, stripe.last + 1):
            for value in layers[n].node.inputs:
                if value is not None and not value.is_const and value not in inside and value not in stripe.windows:
                    self._enter(state, value, layers[n].name)
        whole = [v for v in inside if v not in stripe.windows]
        leaving: dict[int, list[int]] = {}
        for number, end in stripe.ends.items():
            leaving.setdefault(end.upto, []).append(number)
        for step in range(len(stripe.order) + 1):
            for number in leaving.pop(step, []):
                self._leave(state, number, whole)
            if step < len(stripe.order):
                self._step(state, stripe.actions[stripe.order[step]])
        if leaving:
            raise OurFault("bad-plan", "an end of a stripe begins behind its order")
        self._at_the_end(state, whole)
        return whole

    def _find_combinations(self, inside: Iterable[Value]) -> list[dict[str, int]]:
        """Of the sizes that the length of a row depends on."""
        stripe = self.stripe
        values = {*inside, *stripe.windows, *(v for a in stripe.actions for v in a.rows)}
        names = sorted({name for v in values for name in names_of(v.shape[stripe.axis + 1 :])})
        bounds = self.program.graph.bounds
        ranges = {} if bounds is None else {name: bounds.ranges[name] for name in names}
        count = Bounds.combinations(ranges)
        if count > MOST_COMBINATIONS:
            raise OurFault("bad-plan", f"rows of a stripe have {count} lengths, more than can be checked")
        return [dict(zip(ranges, each, strict=True)) for each in product(*(s.numbers for s in ranges.values()))]

    def _numbers(self, item: int, state: _State) -> Numbers:
        """For each combination that is looked at."""
        key = (item, len(state.columns), state.columns[0])
        if key not in self._known:
            columns = [self._combinations[c] for c in state.columns]
            self._known[key] = np.array([item.at(c) if isinstance(item, Size) else item for c in columns], np.int64)
        return self._known[key]

    def _rows(self, value: Value, state: _State) -> int:
        return most(pinned(value.shape[self.stripe.axis], state.sizes))

    def _leave(self, state: _State, number: int, whole: list[Value]) -> None:
        """The way of a smaller number of rows. Nothing beyond them was read, nor padding below them as if more came."""
        stripe, sizes = self.stripe, {self.stripe.size: number}
        if any(furthest > most(pinned(v.shape[stripe.axis], sizes)) for v, furthest in state.furthest.items()):
            raise OurFault("bad-plan", f"with {stripe.size}={number}, a stripe goes on beyond the last row")
        columns = [c for c in state.columns if self._combinations[c].get(stripe.size, number) == number]
        own = state.leaving(sizes, columns)
        for step in stripe.ends[number].order:
            self._step(own, stripe.actions[step])
        self._at_the_end(own, whole)

    def _at_the_end(self, state: _State, whole: list[Value]) -> None:
        for value in whole:
            place = self.where(value)
            rows = self._rows(value, state)
            layer = next(n for n, each in enumerate(self.program.layers) if value in each.node.outputs)
            if state.done.get(layer, 0) != rows:
                raise OurFault("bad-plan", f"`{value.name}` has {state.done.get(layer, 0)} of {rows} rows when its stripe ends")
            if place is None or not rows:
                continue
            size = self._numbers(row_bytes(value, self.stripe.axis), state)
            held = state.held[value]
            right = held.there[:rows] & (held.start[:rows] == place + np.arange(rows)[:, None] * size)
            if not right.all():
                row = int(np.argmin(right.all(axis=1)))
                raise OurFault("bad-plan", f"row {row} of `{value.name}` is not in memory when its stripe ends")

    def _enter(self, state: _State, value: Value, layer: str) -> None:
        place = self.where(value)
        if place is None:
            return
        if not self.holds(value):
            raise OurFault("bad-plan", f"layer `{layer}` reads `{value.name}`, whose memory was given away")
        room = (place, value.type.bytes)
        if value.type.rank <= self.stripe.axis:
            size = self._numbers(value.type.bytes, state)
            state.held[value] = _Held(np.full((1, len(size)), place, np.int64), np.ones((1, len(size)), np.bool_), size, room)
            return
        size, rows = self._numbers(row_bytes(value, self.stripe.axis), state), self._rows(value, state)
        start = place + np.arange(rows, dtype=np.int64)[:, None] * size
        state.held[value] = _Held(start, np.ones(start.shape, np.bool_), size, room)

    def _write(self, state: _State, first: Numbers, size: Numbers) -> None:
        if not size.any():
            return
        end = first + size
        for held in state.held.values():
            held.forget(first, end)
        low = int(first.min())
        self.wrote((low, int(end.max()) - low))

    def _step(self, state: _State, action: Action[K, Argument]) -> None:
        stripe, program = self.stripe, self.program
        layer = None if action.layer < 0 else program.layers[action.layer]
        result = next(v for v in stripe.windows if v in program.graph.inputs) if layer is None else layer.node.output
        made = action.rows[result]
        if names_of(action.roll) or action.roll:
            self._roll(state, result, action.roll)
        reads: list[tuple[Numbers, Numbers]] = []
        first, time = state.done.get(action.layer, 0), state.times.get(action.layer, 0)
        total = self._rows(result, state)
        actual = total - first - made.count if stripe.spec.up else first
        state.done[action.layer], state.times[action.layer] = first + made.count, time + 1
        if not 0 < made.count <= total - first:
            raise OurFault("bad-plan", f"a step makes {made.count} rows of `{result.name}`, of which {total - first} are not made")
        if layer is not None:
            if layer.scratch_bytes:
                scratch = self._numbers(self.scratch(layer), state), self._numbers(layer.scratch_bytes, state)
                self._write(state, *scratch)
                reads.append(scratch)
            reads += self._reads(state, layer, action, actual, made.count, time)
        place = self.where(result)
        if place is None:
            self._position(state, made, actual, time, result)
            return
        size = self._numbers(row_bytes(result, stripe.axis), state)
        at = self._numbers(made.at, state) + self._numbers(made.step, state) * time
        if result in stripe.windows:
            if (at < 0).any() or (at > stripe.windows[result].bytes - made.count * size).any():
                raise OurFault("bad-plan", f"rows of `{result.name}` are written outside of their window")
        else:
            self._position(state, made, actual, time, result)
        start, length = place + at, made.count * size
        if any(((start < low + more) & (low < start + length)).any() for low, more in reads):
            raise OurFault("bad-plan", f"a step of `{result.name}` writes over what it reads")
        self._write(state, start, length)
        held = self._held(state, result, place, size)
        held.start[actual : actual + made.count] = start + np.arange(made.count)[:, None] * size
        held.there[actual : actual + made.count] = True

    def _held(self, state: _State, value: Value, place: int, size: Numbers) -> _Held:
        if value not in state.held:
            window = self.stripe.windows.get(value)
            shape = (self._rows(value, state), len(size))
            room = (place, value.type.bytes if window is None else window.bytes)
            state.held[value] = _Held(np.zeros(shape, np.int64), np.zeros(shape, np.bool_), size, room)
        return state.held[value]

    def _position(self, state: _State, made: Rows, actual: int, time: int, value: Value) -> None:
        """Whole values are written and read where the row belongs."""
        at = self._numbers(made.at, state) + self._numbers(made.step, state) * time
        if (at != actual * self._numbers(row_bytes(value, self.stripe.axis), state)).any():
            raise OurFault("bad-plan", f"row {actual} of `{value.name}` is read from the wrong place")

    def _roll(self, state: _State, value: Value, by: int) -> None:
        place, window = self.where(value), self.stripe.windows[value]
        assert place is not None
        size = self._numbers(row_bytes(value, self.stripe.axis), state)
        held = self._held(state, value, place, size)
        shift = self._numbers(by, state) * (1 if self.stripe.spec.up else -1)
        there, start, room = held.there.copy(), held.start + shift, window.rows * size
        self._write(state, self._numbers(place, state), room)
        held.start[:] = start
        held.there[:] = there & (start >= place) & (start + size <= place + room)

    def _reads(
        self, state: _State, layer: Layer[K], action: Action[K, Argument], first: int, count: int, time: int
    ) -> list[tuple[Numbers, Numbers]]:
        node = layer.node
        found: list[tuple[Numbers, Numbers]] = []
        for value, access in zip(node.inputs, access_of(node, self.stripe.axis), strict=True):
            if value is None:
                continue
            place = self.where(value)
            if access is None:
                if place is None:  # a constant, or memory of the caller
                    continue
                held = state.held.get(value)
                expected = self._rows(value, state) if value.type.rank > self.stripe.axis else 1
                if held is None or not held.there[:expected].all():
                    raise OurFault("bad-plan", f"`{layer.name}` reads `{value.name}`, a part of which was overwritten")
                found.append((self._numbers(place, state), held.size * expected))
                continue
            wanted = need(access, first, count, self._rows(value, state))
            state.reach(value, wanted.high)
            read = action.rows[value]
            if (wanted.high - wanted.low, wanted.top, wanted.bottom) != (read.count, read.top, read.bottom):
                raise OurFault("bad-plan", f"`{layer.name}` reads {read.count} rows of `{value.name}`, but needs others")
            if place is None:
                self._position(state, read, wanted.low, time, value)
                continue
            size = self._numbers(row_bytes(value, self.stripe.axis), state)
            start = place + self._numbers(read.at, state) + self._numbers(read.step, state) * time
            held, rows = state.held.get(value), slice(wanted.low, wanted.high)
            places = start + np.arange(read.count)[:, None] * size
            right = np.False_ if held is None else held.there[rows] & (held.start[rows] == places)
            if not np.all(right):
                row = wanted.low if held is None else wanted.low + int(np.argmin(np.all(right, axis=-1)))
                raise OurFault("bad-plan", f"`{layer.name}` reads row {row} of `{value.name}`, which is not in memory")
            found.append((start, read.count * size))
        return found
