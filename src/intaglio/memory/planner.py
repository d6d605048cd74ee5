"""Offsets in the arena: gap-filling placement in several orders, a seeded search, then an exact one, until a bound is met.

Placing a buffer looks at those already placed whose lifetimes meet its own and takes the lowest gap that is wide enough. The
order decides the result, so a few good ones are tried (largest first, longest-lived first, by the busiest layer), then a buffer
that touches the top is moved forward in the order at random (hill climbing, as in TVM's USMP). The first lower bound is the
largest sum of sizes alive at once; what is still above it goes to `exact`, which finds a better plan or raises the bound.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from intaglio.memory.exact import Piece, best_offsets
from intaglio.memory.lifetimes import Buffer, align

_STARTS, _ROUNDS, _TRIES = 3, 6, 400
_WORK = 20_000_000  # pairs of buffers looked at: some seconds

Apart = Mapping[tuple[Buffer, Buffer], int]  # (lower, upper) -> how far apart they are at least, where they may overlap


@dataclass(frozen=True, slots=True)
class Plan:
    """The height of a plan, and a proven bound: no plan of these buffers is below it, wherever they are pinned."""

    bytes: int
    bound: int

    @property
    def optimal(self) -> bool:
        return self.bytes == self.bound


def lower_bound(buffers: list[Buffer], alignment: int, apart: Apart = MappingProxyType({})) -> int:
    """The largest sum alive at once, less what buffers that may overlap can share."""
    load = _load(buffers, alignment)
    for layer, shared in sharing(apart, alignment).items():
        load[layer] -= shared
    return max(load.values(), default=0)


def sharing(apart: Apart, alignment: int) -> dict[int, int]:
    """How much less each layer needs because a result may lie over an operand. Of several results of one operand, which are alive
    together, only one lies over it."""
    best: dict[tuple[Buffer, int], int] = {}
    for (lower, upper), distance in apart.items():
        source = min(lower, upper, key=lambda b: b.first)
        shared = shared_bytes(lower, upper, distance, alignment)
        for layer in range(max(lower.first, upper.first), min(lower.last, upper.last) + 1):
            best[source, layer] = max(best.get((source, layer), 0), shared)
    total: dict[int, int] = {}
    for (_, layer), shared in best.items():
        total[layer] = total.get(layer, 0) + shared
    return total


def shared_bytes(lower: Buffer, upper: Buffer, distance: int, alignment: int) -> int:
    """How much two buffers can share that are at least so far apart."""
    low, high = align(lower.bytes, alignment), align(upper.bytes, alignment)
    return max(0, low + high - max(low, high, high + distance // alignment * alignment))


def place_buffers(buffers: list[Buffer], alignment: int, *, search: bool = True, apart: Apart = MappingProxyType({})) -> Plan:
    """Set every offset that is not pinned. Without `search` it is the best of the orders, at once."""
    if not buffers:
        return Plan(0, 0)
    packing = _Packing(buffers, alignment, apart)
    bound = lower_bound(buffers, alignment, apart) // alignment
    goal = max([bound, *(packing.pinned[n] + packing.sizes[n] for n, b in enumerate(buffers) if b.pinned)])
    starts = sorted((packing.place(order) for order in _orders(buffers, alignment)), key=lambda found: found.top)
    best = starts[0]
    if search and best.top > goal:
        best = packing.climb(starts, goal)
    if search and best.top > bound and not apart and not any(b.pinned for b in buffers):
        exact = best_offsets([Piece(b.first, b.last, align(b.bytes, alignment) // alignment) for b in buffers], best.top, bound)
        bound = exact.bound
        if exact.offsets is not None:
            best = _Placed(packing.top(exact.offsets), best.order, exact.offsets)
    for buffer, offset in zip(buffers, best.offsets, strict=True):
        buffer.offset = offset * alignment
    return Plan(best.top * alignment, bound * alignment)


@dataclass(frozen=True, slots=True)
class _Placed:
    top: int
    order: list[int]
    offsets: list[int]


class _Packing:
    """Buffers as numbers, in steps of the alignment: what is placed thousands of times has to be fast."""

    def __init__(self, buffers: list[Buffer], alignment: int, apart: Apart) -> None:
        self.sizes = [align(b.bytes, alignment) // alignment for b in buffers]
        self.pinned = [b.offset // alignment if b.pinned else -1 for b in buffers]
        self.meets = _neighbours(buffers)
        number = {b: n for n, b in enumerate(buffers)}
        self.above: list[dict[int, int]] = [{} for _ in buffers]  # how far above n the other has to be
        self.below: list[dict[int, int]] = [{} for _ in buffers]
        for (lower, upper), distance in apart.items():
            self.above[number[lower]][number[upper]] = self.below[number[upper]][number[lower]] = -(-distance // alignment)

    def top(self, offsets: list[int]) -> int:
        return max(at + size for at, size in zip(offsets, self.sizes, strict=True))

    def place(self, order: list[int]) -> _Placed:
        sizes, offsets = self.sizes, list(self.pinned)
        for n in order:
            if offsets[n] >= 0:
                continue
            size, at = sizes[n], 0
            above, below = self.above[n], self.below[n]
            taken = [  # offsets between these two are too close to m
                (offsets[m] - above.get(m, size), offsets[m] + below.get(m, sizes[m])) for m in self.meets[n] if offsets[m] >= 0
            ]
            for low, high in sorted(taken):
                if low >= at:
                    break
                if high > at:
                    at = high
            offsets[n] = at
        return _Placed(self.top(offsets), order, offsets)

    def climb(self, starts: list[_Placed], goal: int) -> _Placed:
        """Move a buffer that touches the top, or one that it meets, earlier in the order; keep what is not worse."""
        best = starts[0]
        tries = max(20, min(_TRIES, _WORK // (_ROUNDS * _STARTS * (sum(map(len, self.meets)) + len(self.sizes)))))
        now = starts[:_STARTS]
        for seed in range(_ROUNDS):
            for n, start in enumerate(now):
                rng = random.Random(seed)
                for _ in range(tries):
                    if best.top <= goal:
                        return best
                    trial = self.place(self._moved(start, rng))
                    if trial.top <= start.top or rng.random() < 0.02:
                        start = trial
                    if trial.top < best.top:
                        best = trial
                now[n] = start
        return best

    def _moved(self, placed: _Placed, rng: random.Random) -> list[int]:
        pick = rng.choice([n for n, at in enumerate(placed.offsets) if at + self.sizes[n] == placed.top])
        if self.meets[pick] and rng.random() < 0.5:
            pick = rng.choice(self.meets[pick])
        order = list(placed.order)
        at = order.index(pick)
        order.insert(rng.randrange(at + 1), order.pop(at))
        return order


def _neighbours(buffers: list[Buffer]) -> list[list[int]]:
    """Who is alive at the same time, by one sweep over the layers."""
    meets: list[list[int]] = [[] for _ in buffers]
    alive: list[int] = []
    for n in sorted(range(len(buffers)), key=lambda n: buffers[n].first):
        alive = [m for m in alive if buffers[m].last >= buffers[n].first]
        for m in alive:
            meets[n].append(m)
            meets[m].append(n)
        alive.append(n)
    return meets


def _load(buffers: list[Buffer], alignment: int) -> dict[int, int]:
    load: dict[int, int] = {}
    for buffer in buffers:
        for layer in range(buffer.first, buffer.last + 1):
            load[layer] = load.get(layer, 0) + align(buffer.bytes, alignment)
    return load


def _orders(buffers: list[Buffer], alignment: int) -> list[list[int]]:
    load = _load(buffers, alignment)
    pressure = {b: max(load[n] for n in range(b.first, b.last + 1)) for b in buffers}
    keys: list[Callable[[Buffer], tuple[int, ...]]] = [
        lambda b: (-b.bytes, b.first, b.scratch_of),
        lambda b: (-b.bytes * (b.last - b.first + 1), b.first, b.scratch_of),
        lambda b: (-b.bytes * b.bytes * (b.last - b.first + 1), b.first, b.scratch_of),
        lambda b: (-pressure[b], -b.bytes, b.first, b.scratch_of),
        lambda b: (-pressure[b], -(b.last - b.first), -b.bytes, b.first, b.scratch_of),
        lambda b: (-(b.last - b.first), -b.bytes, b.first, b.scratch_of),
        lambda b: (b.first, -b.bytes, b.scratch_of),
        lambda b: (-pressure[b], b.first, -b.bytes, b.scratch_of),
    ]
    return [sorted(range(len(buffers)), key=lambda n: key(buffers[n])) for key in keys]
