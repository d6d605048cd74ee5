"""The queue: what is taken is answered, in both ways of computing; what is more is refused."""

from __future__ import annotations

import asyncio
import threading
import time

import numpy as np
import pytest

from intaglio.ir.graph import Array
from intaglio.serve.lane import Full, Lane


class Doubler:
    """Takes a while, and must not be used by two threads at once."""

    def __init__(self, seconds: float = 0.0) -> None:
        self.seconds, self.busy, self.count = seconds, threading.Lock(), 0

    def reset(self) -> None: ...

    def run_into(self, inputs: list[Array], outputs: list[Array]) -> None: ...

    def run(self, inputs: list[Array]) -> list[Array]:
        assert self.busy.acquire(blocking=False)
        time.sleep(self.seconds)
        self.count += 1
        self.busy.release()
        if inputs[0][0] < 0:
            raise ValueError("negative")
        return [inputs[0] * 2]


@pytest.mark.parametrize("quick", [True, False])
def test_every_request_that_is_taken_gets_its_own_answer(quick: bool) -> None:
    async def go() -> None:
        runners = [Doubler(0.0001) for _ in range(1 if quick else 3)]
        lane = Lane(list(runners), 500, quick=quick)
        tickets = [lane.submit([np.array([n])]) for n in range(500)]
        with pytest.raises(Full):
            lane.submit([np.array([0])])
        answers = await asyncio.gather(*(ticket.answer for ticket in tickets))
        assert [int(a[0][0]) for a in answers] == [2 * n for n in range(500)]
        await lane.drained()
        assert lane.pending == 0 and sum(r.count for r in runners) == 500
        lane.submit([np.array([1])])
        lane.end()

    asyncio.run(go())


@pytest.mark.parametrize("quick", [True, False])
def test_one_that_fails_and_one_whose_client_has_gone_stop_no_other(quick: bool) -> None:
    async def go() -> None:
        lane = Lane([Doubler(0.001)], 10, quick=quick)
        bad, gone, good = (lane.submit([np.array([n])]) for n in (-1, 1, 2))
        gone.answer.cancel()
        with pytest.raises(ValueError, match="negative"):
            await bad.answer
        assert (await good.answer)[0][0] == 4
        await lane.drained()
        assert lane.pending == 0
        lane.end()

    asyncio.run(go())


def test_threads_end_after_what_they_have() -> None:
    async def go() -> list[int]:
        lane = Lane([Doubler(0.002), Doubler(0.002)], 100, quick=False)
        tickets = [lane.submit([np.array([n])]) for n in range(20)]
        lane.end()
        return [int((await ticket.answer)[0][0]) for ticket in tickets]

    assert asyncio.run(go()) == list(range(0, 40, 2))
