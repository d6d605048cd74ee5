"""Workers of Dask that each have a core of their machine for themselves, and what they do until nothing is left to do.

    tcp://a:1  core 0   conv 3x3      it dies: its layer goes to another worker
    tcp://a:2  core 1   conv 1x1
    tcp://a:3           in reserve    its machine has two cores; it gets core 0 now

A worker that is gone comes back under another address, so nothing waits for an address: who is there is looked up every other
second. Every wait has an end."""

from __future__ import annotations

import os
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from intaglio.errors import ToolError, printable, quoted
from intaglio.fleet.pieces import FAILED, MOST_REASON, Piece, Result
from intaglio.fleet.worker import LATE, perform_guarded
from intaglio.targets.target import processor_name

if TYPE_CHECKING:
    from distributed import Client

TIMEOUT_S = 600.0  # of a piece, on its worker
LATE_S = TIMEOUT_S + 60  # after which a worker that says nothing is given up
ASK_S = 60.0  # for an answer of the scheduler
NO_WORKER_S = 60.0  # without any worker
LOOK_S, TURN_S = 2.0, 0.02
TRIES = 3  # of a piece whose workers end
About = tuple[str, str, tuple[int, ...]]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Slot:
    """A worker that measures on this core of its machine."""

    address: str
    processor: str
    core: int
    machine: str = ""


def _about() -> About:
    return processor_name(), os.uname().nodename, tuple(sorted(os.sched_getaffinity(0)))


def told_by(client: Client, workers: list[str] | None = None) -> dict[str, About]:
    """Of those that answer: one that dies while it is asked is left out."""
    told: dict[str, About] = _within(lambda: client.run(_about, workers=workers, on_error="ignore"))
    return told


def _within(ask: Callable[[], T]) -> T:
    """In a thread: some questions to a scheduler that stands still have no limit of time."""
    found: list[T] = []
    wrong: list[Exception] = []

    def run() -> None:
        try:
            found.append(ask())
        except Exception as error:
            wrong.append(error)

    asking = threading.Thread(target=run, daemon=True)
    asking.start()
    asking.join(ASK_S)
    if found:
        return found[0]
    raise _gone(wrong[0] if wrong else f"no answer within {ASK_S:g} s")


def _gone(why: object) -> ToolError:
    first = printable((str(why).splitlines() or [""])[0], MOST_REASON) or "no reason"
    hint = "see whether it runs; what was measured stays, and the same command goes on"
    return ToolError("no-scheduler", f"the Dask scheduler does not answer: {first}", hint=hint)


def shared(
    client: Client, slots: Sequence[Slot], texts: Iterable[str], piece: Callable[[Slot, str], Piece], say: Callable[[str], None]
) -> Iterator[tuple[Slot, str, Result]]:
    """`piece` of each text, by whoever is free. What had no worker to its end is done by another; after `TRIES` it has failed."""
    crew = _Slots(client, slots)
    left, tries = deque(texts), Counter[str]()
    running: dict[Any, tuple[Slot, str, float]] = {}
    looked = since_worker = time.monotonic()
    while left or running:
        while left and crew.free:
            slot, text = crew.free.popleft(), left.popleft()
            running[_submitted(client, piece(slot, text), slot)] = (slot, text, time.monotonic())
        ended = [future for future in running if future.done()]
        lost = []
        for future in ended:
            slot, text, _ = running.pop(future)
            result = _result(future)
            if result is None:
                lost.append((slot, text))
            else:
                crew.free.append(slot)
                yield slot, text, result
        now = time.monotonic()
        if lost and client.status != "running":
            raise _gone("the connection is lost")
        if not ended and now - looked >= LOOK_S:
            looked = now
            alive = crew.look(slot for slot, _, _ in running.values())
            for future, (slot, text, since) in list(running.items()):
                if slot.address not in alive or now - since > LATE_S:
                    running.pop(future)
                    future.cancel()
                    lost.append((slot, text))
                    crew.given_up.add(slot.address)
        for slot, text in lost:
            tries[text] += 1
            if tries[text] < TRIES:
                say(f"the worker {slot.address} is gone: its layer is measured by another")
                left.appendleft(text)
            else:
                yield slot, text, Result("", FAILED, f"{TRIES} workers ended while they measured it")
        if running or crew.free:
            since_worker = now
        elif left and now - since_worker > NO_WORKER_S:
            what = f"no worker of {quoted(slots[0].processor)} is left"
            raise ToolError("no-workers", what, hint="start some, and then this command: what was measured stays")
        if not ended:
            time.sleep(TURN_S)


class _Slots:
    """Those that are free now. Workers that come later, or were one too many, take the cores of those that went."""

    def __init__(self, client: Client, slots: Sequence[Slot]) -> None:
        self._client, self._processor = client, slots[0].processor
        self.free = deque(slots)
        self.given_up: set[str] = set()
        self._about: dict[str, About] = {}

    def look(self, busy: Iterable[Slot]) -> set[str]:
        found = _within(lambda: self._client.scheduler_info(n_workers=-1))
        if self._client.status != "running" or "workers" not in found:
            raise _gone("the connection is lost")
        alive = set(found["workers"])
        self.free = deque(slot for slot in self.free if slot.address in alive)
        taken = [*self.free, *(slot for slot in busy if slot.address in alive)]
        if new := sorted(alive - set(self._about) - {slot.address for slot in taken}):
            self._about |= told_by(self._client, new)
        for address in sorted(alive - self.given_up - {slot.address for slot in taken}):
            processor, machine, cores = self._about.get(address, ("", "", ()))
            unused = [core for core in cores if (machine, core) not in {(slot.machine, slot.core) for slot in taken}]
            if processor == self._processor and unused:
                taken.append(Slot(address, processor, unused[0], machine))
                self.free.append(taken[-1])
        return alive


def _submitted(client: Client, piece: Piece, slot: Slot) -> Any:
    try:
        return client.submit(perform_guarded, piece, TIMEOUT_S, workers=[slot.address], pure=False)
    except Exception as error:  # whatever a client without a scheduler says
        raise _gone(error) from None


def _result(future: Any) -> Result | None:
    """None: its worker ended."""
    if future.status == "finished":
        try:
            outcome = future.result(timeout=ASK_S)
        except Exception:  # its worker ended with the answer
            return None
        if isinstance(outcome, str):
            return Result("", outcome, f"it took longer than {TIMEOUT_S:g} s" if outcome == LATE else "its process ended")
        found: Result = outcome[0]
        return found
    if future.status != "error":
        return None
    error = future.exception(timeout=ASK_S)
    if type(error).__name__ == "KilledWorker":
        return None
    return Result("", FAILED, f"{type(error).__name__}: {printable(str(error), MOST_REASON)}")


__all__ = ["Slot", "shared", "told_by"]
