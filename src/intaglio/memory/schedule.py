"""The order of tasks in which least is alive at once: exact where it can be, a beam search where it cannot.

A task runs when those that it needs have run. It touches rooms of memory: a room is taken when the first task writes it, and
given back when the last one that touches it has run. What is alive after a set of tasks has run does not depend on their order, so
the search is over sets: always the one whose way there had the lowest peak is extended (Dijkstra with max for plus), and

- a task that frees at least as much as it takes, and does not raise the peak while it runs, is run at once. It would free as much
  or more later, so no order is lost;
- a task that all others come before or after splits the problem in two;
- a set whose way there is as high as the best order known is left.

Work is counted, not timed, so the same problem gives the same order on every machine. A chain has one order: no work at all.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass

WORK = 250_000  # tasks tried: about a second
_WIDTH = 32


@dataclass(frozen=True, slots=True)
class Room:
    """`touched` and `written` are sets of tasks, as bits. A room that is kept is never given back."""

    bytes: int
    touched: int
    written: int = 0
    first: bool = False  # it is taken before the first task
    kept: bool = False


@dataclass(frozen=True, slots=True)
class Task:
    """`over`: pairs of rooms, of which the second may take the memory of the first if that is touched here for the last time."""

    needs: int
    rooms: tuple[int, ...]
    scratch: int = 0
    over: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Flow:
    """Tasks in an order that works."""

    tasks: tuple[Task, ...]
    rooms: tuple[Room, ...]

    def start(self) -> int:
        return sum(room.bytes for room in self.rooms if room.first)

    def run(self, task: int, done: int, live: int) -> tuple[int, int]:
        """The bytes alive while a task runs, and after it."""
        rooms, here = self.rooms, self.tasks[task]
        after = done | 1 << task
        freed = 0
        for n in here.rooms:
            room = rooms[n]
            if not room.first and room.written >> task & 1 and not room.written & done:
                live += room.bytes
            if not room.kept and not room.touched & ~after:
                freed += room.bytes
        saved = 0
        for taken, made in here.over:
            if not rooms[taken].kept and not rooms[taken].touched & ~after:
                saved = rooms[made].bytes
                break
        return live + here.scratch - saved, live - freed


def peak_of(flow: Flow, order: list[int]) -> int:
    """The most that is alive at once."""
    done, live = 0, flow.start()
    peak = live
    for task in order:
        most, live = flow.run(task, done, live)
        peak = max(peak, most)
        done |= 1 << task
    return peak


def best_order(flow: Flow, work: int = WORK) -> list[int]:
    """An order with the lowest peak that is found; the given one when there is none below it."""
    search = _Search(flow, work)
    return search.run()


@dataclass(slots=True)
class _Segment:
    first: int
    stop: int
    peak: int


class _Search:
    def __init__(self, flow: Flow, work: int) -> None:
        self.flow, self.work = flow, work
        count = len(flow.tasks)
        self.before = [0] * count
        self.followers: list[list[int]] = [[] for _ in flow.tasks]
        for n, task in enumerate(flow.tasks):
            needs, gathered = task.needs, task.needs
            while needs:
                bit = needs & -needs
                gathered |= self.before[bit.bit_length() - 1]
                self.followers[bit.bit_length() - 1].append(n)
                needs ^= bit
            self.before[n] = gathered
        self.behind = [0] * count
        for n in reversed(range(count)):
            needs = flow.tasks[n].needs
            while needs:
                bit = needs & -needs
                self.behind[bit.bit_length() - 1] |= self.behind[n] | 1 << n
                needs ^= bit

    def run(self) -> list[int]:
        """Pieces between tasks that all others come before or after, the highest first; nothing is gained below `floor`."""
        order = list(range(len(self.flow.tasks)))
        pieces = self._segments()
        floor = max([self.flow.start(), *(self._least(n) for n in order)])
        for piece in sorted(pieces, key=lambda s: (-s.peak, s.first)):
            if piece.peak > floor and piece.stop - piece.first > 1:
                found = self._solve(piece, floor)
                if found is not None:
                    order[piece.first : piece.stop], piece.peak = found
            floor = max(floor, piece.peak)
        return order

    def _segments(self) -> list[_Segment]:
        count, whole = len(self.flow.tasks), (1 << len(self.flow.tasks)) - 1
        pieces: list[_Segment] = []
        done, live, first, peak = 0, self.flow.start(), 0, 0
        for n in range(count):
            most, live = self.flow.run(n, done, live)
            peak = max(peak, most)
            done |= 1 << n
            if self.before[n] | self.behind[n] | 1 << n == whole or n == count - 1:
                pieces.append(_Segment(first, n + 1, peak))
                first, peak = n + 1, 0
        return pieces

    def _least(self, task: int) -> int:
        """What is alive while a task runs, in any order: what comes from before it and is touched by it or behind it."""
        here, rooms = self.flow.tasks[task], self.flow.rooms
        before, behind = self.before[task] | 1 << task, self.behind[task] | 1 << task
        total = here.scratch
        for room in rooms:
            if (room.first or room.written & before) and (room.kept or room.touched & behind):
                total += room.bytes
        free = [
            rooms[made].bytes for taken, made in here.over if not rooms[taken].kept and not rooms[taken].touched & self.behind[task]
        ]
        return total - max(free, default=0)

    def _solve(self, piece: _Segment, floor: int) -> tuple[list[int], int] | None:
        """A better order of one piece, if there is one."""
        done = (1 << piece.first) - 1
        live = self.flow.start()
        for n in range(piece.first):
            live = self.flow.run(n, (1 << n) - 1, live)[1]
        ready = [n for n in range(piece.first, piece.stop) if not self.flow.tasks[n].needs & ~done]
        state = _State(floor, live, done, tuple(ready), None, ())
        best = self._beam(state, piece, piece.peak, _WIDTH // 8, self.work // 4)
        exact, complete = self._exact(state, piece, piece.peak if best is None else best[1], self.work // 2)
        best = exact or best
        if not complete:
            best = self._beam(state, piece, piece.peak if best is None else best[1], _WIDTH, self.work) or best
        return best

    def _next(self, state: _State, task: int, piece: _Segment) -> _State:
        most, live = self.flow.run(task, state.done, state.live)
        done = state.done | 1 << task
        tasks = self.flow.tasks
        ready = [n for n in state.ready if n != task]
        ready += [n for n in self.followers[task] if n < piece.stop and not tasks[n].needs & ~done]
        return _State(max(state.peak, most), live, done, tuple(ready), state, (task,))

    def _settled(self, state: _State, piece: _Segment) -> _State:
        """Run at once what frees and does not raise the peak."""
        waiting = state.ready
        while waiting:
            before = state
            for task in waiting:
                self.work -= 1
                most, live = self.flow.run(task, state.done, state.live)
                if most <= state.peak and live <= state.live:
                    state = self._next(state, task, piece)
            waiting = state.ready if state is not before else ()
        return state

    def _exact(self, start: _State, piece: _Segment, below: int, work: int) -> tuple[tuple[list[int], int] | None, bool]:
        """An order below what is known, and whether the work sufficed to say that there is no better one."""
        whole, least = (1 << piece.stop) - 1, self.work - work
        seen: set[int] = set()
        tie = 0
        heap = [(start.peak, 0, start.live, tie, start)]
        while heap:
            state = self._settled(heapq.heappop(heap)[-1], piece)
            if state.done in seen:
                continue
            seen.add(state.done)
            if state.done == whole:
                return (state.path(), state.peak), True
            for made in self._followers(state, piece, below):
                if made.done not in seen:
                    tie += 1
                    heapq.heappush(heap, (made.peak, -made.done.bit_count(), made.live, tie, made))
            if self.work < least:
                return None, False
        return None, True

    def _beam(self, start: _State, piece: _Segment, below: int, width: int, work: int) -> tuple[list[int], int] | None:
        """The best few sets of each size, only the best one when the work runs out; None when none ends below what is known."""
        least = self.work - work
        levels: dict[int, dict[int, _State]] = {}

        def keep(state: _State) -> None:
            there = levels.setdefault(state.done.bit_count(), {})
            other = there.get(state.done)
            if other is None or (state.peak, state.live) < (other.peak, other.live):
                there[state.done] = state

        keep(start)
        for size in range(piece.first, piece.stop):
            level = sorted(levels.pop(size, {}).values(), key=lambda s: (s.peak, s.live, s.done))
            for state in level[: width if self.work > least else 1]:
                settled = self._settled(state, piece)
                if settled is not state:
                    keep(settled)
                    continue
                for made in self._followers(state, piece, below):
                    keep(made)
        best = min(levels.get(piece.stop, {}).values(), key=lambda s: s.peak, default=None)
        return None if best is None or best.peak >= below else (best.path(), best.peak)

    def _followers(self, state: _State, piece: _Segment, below: int) -> list[_State]:
        self.work -= len(state.ready)
        made = []
        for task in state.ready:
            if self.flow.run(task, state.done, state.live)[0] < below:
                made.append(self._next(state, task, piece))
        return made


@dataclass(slots=True, eq=False)
class _State:
    """A set of tasks that have run: the peak on the way here, what is alive, what can run next."""

    peak: int
    live: int
    done: int
    ready: tuple[int, ...]
    before: _State | None
    ran: tuple[int, ...]

    def path(self) -> list[int]:
        order: list[int] = []
        state: _State | None = self
        while state is not None:
            order += state.ran
            state = state.before
        return order[::-1]
