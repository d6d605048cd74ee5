"""Best offsets by branch and bound, for problems that heuristics leave open.

In some best plan every buffer rests on the ground or on another one, as if gravity pulled it down. Placing buffers in the order
of their offsets builds such a plan: each goes to the top of what already lies below its lifetime, and nothing goes below the
one placed last. The search for a plan of a given height tries these orders (canonical positions, as in minimalloc, Moffitt 2023)
and leaves out

- an order of two buffers at equal offsets, or of two equal buffers, that was tried the other way round;
- a buffer that would leave a hole below it which another one fills by itself;
- everything in which the buffers that wait at some layer cannot stay below the height any more.

What is left often falls apart into times that have no buffer in common; each of them is solved by itself. Work is counted, not
timed, so the same problem gives the same plan on every machine.
"""

from __future__ import annotations

from dataclasses import dataclass

MOST_BUFFERS = 400  # the search is as deep
WORK = 600_000  # buffers looked at: some seconds


@dataclass(frozen=True, slots=True, order=True)
class Piece:
    """A buffer in steps of the alignment, alive from `first` to `last`, both included."""

    first: int
    last: int
    size: int


@dataclass(frozen=True, slots=True)
class Best:
    """`offsets` are None when the plan that is known already is as good; no plan is lower than `bound`."""

    offsets: list[int] | None
    bound: int


def best_offsets(blocks: list[Piece], top: int, bound: int, work: int = WORK) -> Best:
    """A plan lower than `top`, if there is one and the work suffices. It is known that none is below `bound`.

        >>> best_offsets([Block(0, 1, 2), Block(1, 2, 1), Block(2, 3, 2)], top=5, bound=3)
        Best(offsets=[0, 2, 0], bound=3)

    Half of the work is for the bound itself, which is met nearly always; then the gap is halved again and again.
    """
    best: list[int] | None = None
    height = bound
    while bound < top and len(blocks) <= MOST_BUFFERS and work > 0:
        search = _Search(blocks, height, work // 2)
        found = search.run()
        work -= work // 2 - max(search.work, 0)
        if found is not None:
            best = found
            top = max((at + b.size for at, b in zip(found, blocks, strict=True)), default=0)
        elif search.work >= 0:
            bound = height + 1
        elif height == top - 1:
            break
        low = height if found is None else bound
        height = (low + top) // 2
    return Best(best, bound)


class _Search:
    """One search: where blocks are placed, and the lowest place of those that wait."""

    def __init__(self, blocks: list[Piece], height: int, work: int) -> None:
        self.height, self.work = height, work
        self.order = sorted(range(len(blocks)), key=lambda n: blocks[n])
        self.sizes = [b.size for b in blocks]
        # Only times at which something starts can be the busiest: between them, blocks only end.
        starts = sorted({b.first for b in blocks})
        index = {t: n for n, t in enumerate(starts)}
        self.first = [index[b.first] for b in blocks]
        self.last = [sum(t <= b.last for t in starts) - 1 for b in blocks]
        self.meets = [
            [m for m, o in enumerate(blocks) if m != n and b.first <= o.last and o.first <= b.last] for n, b in enumerate(blocks)
        ]
        load = [0] * len(starts)
        for n, b in enumerate(blocks):
            for t in range(self.first[n], self.last[n] + 1):
                load[t] += b.size
        self.pressure = [max(load[self.first[n] : self.last[n] + 1]) for n in range(len(blocks))]
        self.rank = [(-(self.last[n] - self.first[n]), -b.size, n) for n, b in enumerate(blocks)]
        self.twin = _twins(blocks, self.order)
        self.floors = [0] * len(blocks)
        self.offsets = [-1] * len(blocks)
        self.placed = [False] * len(blocks)

    def run(self) -> list[int] | None:
        """Offsets; None when there are none, or when the work ran out (it is negative then)."""
        return self.offsets if self.solve(self.order, 0, -1) else None

    def solve(self, waiting: list[int], low: int, previous: int) -> bool:
        """Place what waits, in order of `first`, at `low` or above: every time that stands alone by itself, the fullest first."""
        parts: list[list[int]] = []
        end = -1
        for n in waiting:
            if self.first[n] > end:
                parts.append([])
            parts[-1].append(n)
            end = max(end, self.last[n])
        if len(parts) > 1:
            parts.sort(key=lambda part: -max(self.pressure[n] for n in part))
        return all(self.fill(part, low, previous) for part in parts)

    def fill(self, part: list[int], low: int, previous: int) -> bool:
        self.work -= len(part)
        if self.work < 0 or not self.hopeful(part, low):
            return False
        floors, sizes = self.floors, self.sizes
        filled = min(floors[n] + sizes[n] for n in part)
        choices = [
            n
            for n in part
            if low <= floors[n] < filled
            and not (floors[n] == low and n < previous)
            and (self.twin[n] < 0 or self.placed[self.twin[n]])
        ]
        for n in sorted(choices, key=lambda n: (floors[n], self.rank[n])):
            at, before = floors[n], [floors[m] for m in part]
            top = at + sizes[n]
            for m in self.meets[n]:
                if not self.placed[m] and floors[m] < top:
                    floors[m] = top
            self.offsets[n], self.placed[n] = at, True
            if self.solve([m for m in part if m != n], at, n):
                return True
            for m, floor in zip(part, before, strict=True):  # some times may have been solved before another was not
                self.placed[m], floors[m] = False, floor
            if self.work < 0:
                return False
        return False

    def hopeful(self, part: list[int], low: int) -> bool:
        """Can every time stay below the height? What waits at a time starts no lower than the lowest of its floors."""
        begin = self.first[part[0]]
        count = max(self.last[n] for n in part) - begin + 1
        load, ground = [0] * count, [self.height] * count
        for n in part:
            size, floor = self.sizes[n], max(self.floors[n], low)
            if floor + size > self.height:
                return False
            for t in range(self.first[n] - begin, self.last[n] - begin + 1):
                load[t] += size
                if floor < ground[t]:
                    ground[t] = floor
        return all(at + waits <= self.height for at, waits in zip(ground, load, strict=True))


def _twins(blocks: list[Piece], order: list[int]) -> list[int]:
    """For each block an equal one that is placed before it; -1 where there is none."""
    seen: dict[Piece, int] = {}
    found = [-1] * len(blocks)
    for n in order:
        found[n] = seen.get(blocks[n], -1)
        seen[blocks[n]] = n
    return found
