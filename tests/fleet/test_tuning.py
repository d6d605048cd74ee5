"""`intaglio tune --scheduler`: layers measured by workers of Dask, recorded by the processor that they have."""

from __future__ import annotations

from pathlib import Path

import pytest

from intaglio.errors import ToolError
from intaglio.fleet.pieces import Piece, Result
from intaglio.fleet.slots import About, shared
from intaglio.fleet.tuning import slots_of
from intaglio.run.tuning.database import read_database
from intaglio.targets.target import processor_name
from support.commands import DIGITS, Intaglio
from support.fleet_work import piece


class Future:
    """Of a worker that died, nothing is heard ever."""

    def __init__(self, outcome: list[Result] | None) -> None:
        self.outcome, self.status = outcome, "pending" if outcome is None else "finished"

    def done(self) -> bool:
        return self.outcome is not None

    def result(self, timeout: float) -> list[Result] | None:
        return self.outcome

    def cancel(self) -> None:
        self.status = "cancelled"


class Client:
    """A scheduler whose workers are on machines of two processors."""

    status = "running"

    def __init__(self, told: dict[str, About]) -> None:
        self.told, self.asked = dict(told), list[str]()
        self.dies: dict[str, str] = {}  # when it is given work: what takes its place

    def scheduler_info(self, n_workers: int) -> dict[str, dict[str, None]]:
        return {"workers": dict.fromkeys(self.told)}

    def submit(self, _: object, one: Piece, timeout_s: float, *, workers: list[str], pure: bool) -> Future:
        (address,) = workers
        self.asked.append(f"{address} {one.key}")
        if address in self.dies:
            told, other = self.told.pop(address), self.dies[address]
            self.told |= {other: told} if other else {}
            return Future(None)
        return Future([Result(one.key, "ok", address)])

    def run(self, _: object, workers: list[str] | None = None, on_error: str = "raise") -> dict[str, About]:
        assert on_error == "ignore", "a worker that dies while it is asked must not end all"
        return {address: self.told[address] for address in workers or self.told}


TOLD: dict[str, About] = {
    "tcp://a:1": ("Alpha 1", "a", (0, 1)),
    "tcp://a:2": ("Alpha 1", "a", (0, 1)),
    "tcp://a:3": ("Alpha 1", "a", (0, 1)),  # one more than there are cores
    "tcp://b:1": ("Alpha 1", "b", (5,)),
    "tcp://c:1": ("Beta 2", "c", (0, 1)),
}


def test_one_worker_for_each_core_and_processors_apart() -> None:
    slots = slots_of(Client(TOLD), None)
    assert {name: [(s.address, s.core) for s in found] for name, found in slots.items()} == {
        "Alpha 1": [("tcp://a:1", 0), ("tcp://a:2", 1), ("tcp://b:1", 5)],
        "Beta 2": [("tcp://c:1", 0)],
    }
    assert list(slots_of(Client(TOLD), "beta")) == ["Beta 2"]
    with pytest.raises(ToolError, match="no worker has this processor") as caught:
        slots_of(Client(TOLD), "gamma")
    assert caught.value.slug == "no-workers" and "`Alpha 1`, `Beta 2`" in caught.value.hint
    with pytest.raises(ToolError, match="has no workers"):
        slots_of(Client({}), None)


@pytest.mark.parametrize(
    ("dies", "done_by"),
    [
        ({}, {"tcp://a:1", "tcp://a:2", "tcp://b:1"}),
        ({"tcp://a:1": ""}, {"tcp://a:2", "tcp://b:1", "tcp://a:3"}),  # the one in reserve takes its core
        ({"tcp://a:1": "tcp://a:9", "tcp://a:2": "", "tcp://a:3": "", "tcp://b:1": ""}, {"tcp://a:9"}),  # its nanny starts it again
    ],
)
def test_what_a_dead_worker_had_is_measured_by_another(
    dies: dict[str, str], done_by: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("intaglio.fleet.slots.LOOK_S", 0.0)
    client = Client({address: about for address, about in TOLD.items() if about[0] == "Alpha 1"})
    client.dies = dies
    slots = slots_of(client, None)["Alpha 1"]
    texts = [f"layer {n}" for n in range(9)]
    found = list(shared(client, slots, texts, lambda slot, text: piece("fine", f"{text} on core {slot.core}"), print))
    assert sorted(text for _, text, _ in found) == texts and {result.reason for _, _, result in found} <= done_by
    assert all(slot.core in TOLD.get(slot.address, TOLD["tcp://a:1"])[2] for slot, _, _ in found)


def test_without_workers_the_wait_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("intaglio.fleet.slots.LOOK_S", 0.0)
    monkeypatch.setattr("intaglio.fleet.slots.NO_WORKER_S", 0.1)
    client = Client({"tcp://b:1": TOLD["tcp://b:1"]})
    client.dies = {"tcp://b:1": ""}
    slots = slots_of(client, None)["Alpha 1"]
    with pytest.raises(ToolError, match="no worker of `Alpha 1` is left"):
        list(shared(client, slots, ["a"], lambda slot, text: piece("fine", text), print))
    client = Client({"tcp://b:1": TOLD["tcp://b:1"]})
    monkeypatch.setattr(client, "scheduler_info", lambda n_workers: {})  # as Dask does when the scheduler has gone
    client.dies = {"tcp://b:1": ""}
    with pytest.raises(ToolError, match="does not answer: the connection is lost") as caught:
        list(shared(client, slots, ["a"], lambda slot, text: piece("fine", text), print))
    assert caught.value.slug == "no-scheduler"
    deadly = {f"tcp://b:{n}": f"tcp://b:{n + 1}" for n in range(1, 9)}
    client = Client({"tcp://b:1": TOLD["tcp://b:1"]})
    client.dies = deadly
    ((_, _, result),) = shared(client, slots, ["a"], lambda slot, text: piece("fine", text), print)
    assert result.state == "failed" and "3 workers ended" in result.reason


@pytest.mark.slow
def test_layers_are_measured_by_workers_and_merged(intaglio: Intaglio, tmp_path: Path) -> None:
    distributed = pytest.importorskip("distributed", reason="the extra `fleet` is not installed")
    file = tmp_path / "times.txt"
    with distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster:
        words = ("tune", DIGITS, "--tuning", file, "--scheduler", cluster.scheduler_address)
        said = intaglio(*words, "--json")
        assert said.code == 0, said.err
        (one,) = said.json["processors"]
        assert one["processor"] == processor_name() and one["new"] == one["shapes"] > 1 and one["known"] == 0
        assert [place.processor for place in read_database(file).places] == [processor_name()]
        again = intaglio(*words, "--json").json["processors"][0]
        assert again["new"] == 0 and again["known"] == one["shapes"]
    assert intaglio("compile", DIGITS, "--tuning", file, "-o", tmp_path / "p").code == 0


def test_what_workers_cannot_do(intaglio: Intaglio) -> None:
    said = intaglio("tune", DIGITS, "--scheduler", "tcp://127.0.0.1:1", "--threads", "2")
    assert said.code == 2 and "error[bad-option]" in said.err and "on one core" in said.err
