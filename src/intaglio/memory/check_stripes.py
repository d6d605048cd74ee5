"""The checker's part for stripes: every step is done in thought, with the rows that each byte holds.

Nothing is taken from the order that made the stripe but the steps themselves. Which rows a step needs follows from the operator;
they must be where the step reads, unharmed by every roll, write and piece of working memory before it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic

from intaglio.errors import OurFault
from intaglio.ir.graph import Value
from intaglio.ir.program import Argument, K, Layer, Program
from intaglio.ir.stripes import Action, Rows, Stripe
from intaglio.ops.rows import access_of, need, row_bytes, rows_of

Span = tuple[int, int]  # first byte, bytes
Where = Callable[[Value], int | None]  # None: memory of the caller


def meet(a: Span, b: Span) -> bool:
    return a[0] < b[0] + b[1] and b[0] < a[0] + a[1]


@dataclass(slots=True)
class StripeCheck(Generic[K]):
    """`where` finds a value; `wrote` is called for every span that is written, `held` for values that are there at the end."""

    program: Program[K]
    stripe: Stripe[K, Argument]
    where: Where
    scratch: Callable[[Layer[K]], int]
    wrote: Callable[[Span], None]
    holds: Callable[[Value], bool]

    def run(self) -> list[Value]:
        """The whole values that the stripe made. Raises OurFault."""
        rows: dict[tuple[Value, int], Span] = {}
        stripe, layers = self.stripe, self.program.layers
        inside = {out for n in range(stripe.first, stripe.last + 1) for out in layers[n].node.outputs}
        for n in range(stripe.first, stripe.last + 1):
            for value in layers[n].node.inputs:
                if value is not None and not value.is_const and value not in inside and value not in stripe.windows:
                    self._enter(rows, value, layers[n].name)
        done: dict[int, int] = {}
        times: dict[int, int] = {}
        for number in stripe.order:
            action = stripe.actions[number]
            self._step(rows, action, done, times.get(action.layer, 0))
            times[action.layer] = times.get(action.layer, 0) + 1
        whole = [v for v in inside if v not in stripe.windows]
        for value in whole:
            place = self.where(value)
            size = row_bytes(value, stripe.axis)
            for row in range(rows_of(value, stripe.axis) if place is not None else 0):
                assert place is not None
                if rows.get((value, row)) != (place + row * size, size):
                    raise OurFault("bad-plan", f"row {row} of `{value.name}` is not in memory when its stripe ends")
        return whole

    def _enter(self, rows: dict[tuple[Value, int], Span], value: Value, layer: str) -> None:
        place = self.where(value)
        if place is None:
            return
        if not self.holds(value):
            raise OurFault("bad-plan", f"layer `{layer}` reads `{value.name}`, whose memory was given away")
        if value.type.rank <= self.stripe.axis:
            rows[value, -1] = (place, value.type.bytes)
            return
        size = row_bytes(value, self.stripe.axis)
        for row in range(rows_of(value, self.stripe.axis)):
            rows[value, row] = (place + row * size, size)

    def _write(self, rows: dict[tuple[Value, int], Span], span: Span) -> None:
        if not span[1]:
            return
        for key in [key for key, place in rows.items() if meet(place, span)]:
            del rows[key]
        self.wrote(span)

    def _step(self, rows: dict[tuple[Value, int], Span], action: Action[K, Argument], done: dict[int, int], time: int) -> None:
        stripe, program = self.stripe, self.program
        taken = action.layer < 0
        layer = None if taken else program.layers[action.layer]
        result = next(v for v in stripe.windows if v in program.graph.inputs) if layer is None else layer.node.output
        made = action.rows[result]
        if action.roll:
            self._roll(rows, result, action.roll)
        reads: list[Span] = []
        first = done.get(action.layer, 0)
        total = rows_of(result, stripe.axis)
        actual = total - first - made.count if stripe.spec.up else first
        done[action.layer] = first + made.count
        if first + made.count > total:
            raise OurFault("bad-plan", f"`{result.name}` has more rows than it should")
        if layer is not None:
            if layer.scratch_bytes:
                scratch: Span = (self.scratch(layer), layer.scratch_bytes)
                self._write(rows, scratch)
                reads.append(scratch)
            reads += self._reads(rows, layer, action, actual, made.count, time)
        place = self.where(result)
        if place is None:
            self._position(made, actual, time, result)
            return
        size = row_bytes(result, stripe.axis)
        at = made.at + made.step * time
        if result in stripe.windows:
            if not 0 <= at <= stripe.windows[result].bytes - made.count * size:
                raise OurFault("bad-plan", f"rows of `{result.name}` are written outside of their window")
        else:
            self._position(made, actual, time, result)
        span: Span = (place + at, made.count * size)
        if any(meet(span, other) for other in reads):
            raise OurFault("bad-plan", f"a step of `{result.name}` writes over what it reads")
        self._write(rows, span)
        for n in range(made.count):
            rows[result, actual + n] = (span[0] + n * size, size)

    def _position(self, made: Rows, actual: int, time: int, value: Value) -> None:
        """Whole values are written and read where the row belongs."""
        if made.at + made.step * time != actual * row_bytes(value, self.stripe.axis):
            raise OurFault("bad-plan", f"row {actual} of `{value.name}` is read from the wrong place")

    def _roll(self, rows: dict[tuple[Value, int], Span], value: Value, by: int) -> None:
        place, window = self.where(value), self.stripe.windows[value]
        assert place is not None
        shift = by if self.stripe.spec.up else -by
        moved = {key: (s[0] + shift, s[1]) for key, s in rows.items() if key[0] is value}
        self._write(rows, (place, window.bytes))
        for key, span in moved.items():
            if place <= span[0] and span[0] + span[1] <= place + window.bytes:
                rows[key] = span

    def _reads(
        self, rows: dict[tuple[Value, int], Span], layer: Layer[K], action: Action[K, Argument], first: int, count: int, time: int
    ) -> list[Span]:
        node, found = layer.node, []
        for value, access in zip(node.inputs, access_of(node, self.stripe.axis), strict=True):
            if value is None or value.is_const:
                continue
            place = self.where(value)
            if access is None:
                wholly = [key for key in rows if key[0] is value]
                expected = rows_of(value, self.stripe.axis) if value.type.rank > self.stripe.axis else 1
                if place is not None and len(wholly) != expected:
                    raise OurFault("bad-plan", f"`{layer.name}` reads `{value.name}`, a part of which was overwritten")
                found += [rows[key] for key in wholly]
                continue
            wanted = need(access, first, count, rows_of(value, self.stripe.axis))
            read = action.rows[value]
            if (wanted.high - wanted.low, wanted.top, wanted.bottom) != (read.count, read.top, read.bottom):
                raise OurFault("bad-plan", f"`{layer.name}` reads {read.count} rows of `{value.name}`, but needs others")
            if place is None or value not in self.stripe.windows:
                self._position(read, wanted.low, time, value)
            if place is None:
                continue
            size = row_bytes(value, self.stripe.axis)
            for n, row in enumerate(range(wanted.low, wanted.high)):
                span = (place + read.at + read.step * time + n * size, size)
                if rows.get((value, row)) != span:
                    raise OurFault("bad-plan", f"`{layer.name}` reads row {row} of `{value.name}`, which is not in memory")
                found.append(span)
        return found
