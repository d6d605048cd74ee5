"""The gesture example: its parts on generated data, the whole on the real recordings where these are."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from support.shared import SHARED, needs_shared

ROOT = Path(__file__).parents[2]
REAL = SHARED / "data" / "wand5"


@pytest.fixture(autouse=True)
def example(outside: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The scripts of the example can be imported, and write into a folder of the test."""
    monkeypatch.syspath_prepend(str(ROOT / "examples" / "gesture"))
    import gesture

    monkeypatch.setattr(gesture, "WORK", tmp_path / "work")


@pytest.mark.slow
def test_samples_go_in_one_by_one_and_gestures_come_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """The live application says what the same firmware says of the recordings one by one, with and without the NPU."""
    import gesture
    import live
    import network
    import recordings
    from device import converse, recognised

    monkeypatch.setattr(network, "EPOCHS", 6)
    data = recordings.load(None)
    made = gesture.experiment(data)
    assert [m.name for m in made.machines] == ["core", "npu"]
    for machine in made.machines:
        assert machine.same and machine.correct == made.host_correct
        elf = machine.package.folder / "bin" / "gesture_live.elf"
        wand = live.Wand(live.played(data.test[:3], [""] * 3, quiet=True), pace=False)
        assert converse(machine.package, elf, wand) == 0
        names = [line.split()[0] for line in wand.said]
        wanted = recognised(machine.package, elf, data.test[:3])
        assert names == [data.names[n] for n in wanted]
    assert 5 * (made.machines[1].profile.total.instructions or 0) < (made.machines[0].profile.total.instructions or 0)


def test_a_hand_at_rest_starts_nothing() -> None:
    import live
    from device import START_G, sensor
    from recordings import RANGES

    still = live.at_rest(500, np.random.default_rng(1))
    assert (np.abs(still[:, :3] * RANGES[:3]).sum(1) < START_G).all()
    assert sensor(np.asarray([[-1.0, 1.0, 0.5]], np.float32)).tolist() == [[-32768, 32767, 16384]]


@pytest.mark.slow
@needs_shared
def test_the_figures_of_the_experiment() -> None:
    import gesture
    import recordings
    from tables import against_published

    made = gesture.experiment(recordings.load(REAL))
    core = made.machines[0]
    assert made.count == 25
    assert all(m.same and m.correct >= 22 for m in made.machines)
    firmware = core.package.manifest.firmware
    assert firmware is not None and 2 * firmware.ram_bytes <= gesture.PUBLISHED_RAM
    assert 3 * (core.profile.total.cycles or 0) / gesture.PUBLISHED_MHZ / 1e3 <= gesture.PUBLISHED_MS
    assert "of the RAM" in against_published(made)
