"""`intaglio tune --scheduler`: layers measured by workers of Dask, recorded by the processor that they have."""

from __future__ import annotations

from pathlib import Path

import pytest

from intaglio.errors import ToolError
from intaglio.fleet.tuning import slots_of
from intaglio.run.tuning.database import read_database
from intaglio.targets.target import processor_name
from support.commands import DIGITS, Intaglio


class Client:
    """A scheduler whose workers are on machines of two processors."""

    def __init__(self, told: dict[str, tuple[str, str, tuple[int, ...]]]) -> None:
        self.told = told

    def run(self, _: object) -> dict[str, tuple[str, str, tuple[int, ...]]]:
        return self.told


TOLD = {
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
