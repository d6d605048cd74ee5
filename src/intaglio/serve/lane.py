"""The queue of one version of one model, and who computes.

At most `depth` requests are waiting or computed; one more is refused (429). All of this is called on the event loop, so counts need
no lock.

    quick model     computed on the event loop, as many as have come in since: a thread would cost more than the model
    others          `workers` threads, each with an arena of its own, over one library. A package with `--threads N` has N of them:
                    a request alone is computed by N threads, N at once by one each (docs/guides/threads.md)

A worker takes several requests at a time when many wait, and hands results over together, but keeps none for longer than FLUSH_S.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from queue import Empty, SimpleQueue

from intaglio.ir.graph import Array
from intaglio.run.host import Runner

QUICK_S = 0.001  # of a run: below, it is computed on the event loop
SLICE_S = 0.002  # the event loop computes for so long before it looks at its sockets again
FLUSH_S = 0.001
MOST_AT_ONCE = 32
Result = list[Array] | Exception


@dataclass(slots=True, eq=False)
class Ticket:
    """A request that was taken: it gets an answer. `waited_s`: in the queue."""

    inputs: list[Array]
    answer: asyncio.Future[list[Array]]
    taken: float
    waited_s: float = 0.0


class Full(Exception):
    pass


class Lane:
    def __init__(self, runners: list[Runner], depth: int, *, quick: bool) -> None:
        self.depth, self.quick = depth, quick
        self.pending = 0  # taken, and not answered
        self._runners = runners
        self._loop = asyncio.get_running_loop()
        self._here: deque[Ticket] = deque()
        self._there: SimpleQueue[Ticket | None] = SimpleQueue()
        self._waiting: list[asyncio.Future[None]] = []  # for the end of what is pending
        self._threads: list[threading.Thread] = []
        if not quick:
            self._threads = [threading.Thread(target=self._work, args=(r,), daemon=True) for r in runners]
            for thread in self._threads:
                thread.start()

    def submit(self, inputs: list[Array]) -> Ticket:
        if self.pending >= self.depth:
            raise Full
        ticket = Ticket(inputs, self._loop.create_future(), time.perf_counter())
        self.pending += 1
        if not self.quick:
            self._there.put(ticket)
        else:
            if not self._here:
                self._loop.call_soon(self._compute)
            self._here.append(ticket)
        return ticket

    async def drained(self) -> None:
        """When everything that was taken is answered."""
        if self.pending:
            self._waiting.append(self._loop.create_future())
            await self._waiting[-1]

    def end(self) -> None:
        """Threads end after what they have."""
        for _ in self._threads:
            self._there.put(None)

    # On the event loop ------------------------------------------------------------------------------------------------

    def _compute(self) -> None:
        until = time.perf_counter() + SLICE_S
        runner = self._runners[0]
        while self._here:
            ticket = self._here[0]
            now = time.perf_counter()
            if now > until:
                self._loop.call_soon(self._compute)
                return
            ticket.waited_s = now - ticket.taken
            self._answer(ticket, _result(runner, ticket))
            self._here.popleft()

    def _answer(self, ticket: Ticket, result: Result) -> None:
        self.pending -= 1
        if self._waiting and self.pending == 0:
            for one in self._waiting:
                if not one.done():
                    one.set_result(None)
            self._waiting.clear()
        if ticket.answer.done():  # the client has gone
            return
        if isinstance(result, Exception):
            ticket.answer.set_exception(result)
        else:
            ticket.answer.set_result(result)

    def _answer_all(self, done: list[tuple[Ticket, Result]]) -> None:
        for ticket, result in done:
            self._answer(ticket, result)

    # On a thread ------------------------------------------------------------------------------------------------------

    def _work(self, runner: Runner) -> None:
        ends = False
        while not ends:
            first = self._there.get()
            taken, ends = self._more(first)
            done: list[tuple[Ticket, Result]] = []
            since = time.perf_counter()
            for ticket in taken:
                now = time.perf_counter()
                if done and now - since > FLUSH_S:
                    self._hand_over(done)
                    done, since = [], now
                ticket.waited_s = now - ticket.taken
                done.append((ticket, _result(runner, ticket)))
            if done:
                self._hand_over(done)

    def _more(self, first: Ticket | None) -> tuple[list[Ticket], bool]:
        """A fair share of what waits; and whether that is the end."""
        if first is None:
            return [], True
        taken = [first]
        share = min(MOST_AT_ONCE, 1 + self._there.qsize() // len(self._runners))
        while len(taken) < share:
            try:
                ticket = self._there.get_nowait()
            except Empty:
                break
            if ticket is None:
                return taken, True
            taken.append(ticket)
        return taken, False

    def _hand_over(self, done: list[tuple[Ticket, Result]]) -> None:
        try:
            self._loop.call_soon_threadsafe(self._answer_all, done)
        except RuntimeError:  # the loop has ended: nobody waits any more
            return


def _result(runner: Runner, ticket: Ticket) -> Result:
    if ticket.answer.cancelled():
        return []
    try:
        return runner.run(ticket.inputs)
    except Exception as error:  # told to the client, whatever it is: the server goes on
        return error


def time_of(run: Callable[[], object], times: int = 5) -> float:
    """The least of several runs, in seconds."""
    best = float("inf")
    for _ in range(times):
        start = time.perf_counter()
        run()
        best = min(best, time.perf_counter() - start)
    return best


__all__ = ["QUICK_S", "Full", "Lane", "Ticket", "time_of"]
