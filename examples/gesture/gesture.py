"""The experiment: a hand-gesture network, trained in PyTorch, on a Cortex-M4F, with and without an accelerator.

    train -> export -> int8 -> C for nucleo-l4r5zi, the core alone and the core with the NPU -> every test recording, emulated

`make example-gesture` runs it. Everything that it makes is in build/gesture; `--page` also writes the page of the docs.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import network
import numpy as np
import torch
from device import live_firmware, quantised, recognised
from recordings import Recordings, load

import intaglio
from intaglio.run.timing import LayerTime, Profile

ROOT = Path(__file__).resolve().parents[2]
DATA = ROOT.parent / "shared" / "models" / "data" / "wand5"
WORK = ROOT / "build" / "gesture"
BOARD, CLOCK_MHZ = "nucleo-l4r5zi", 120.0
# The core at 120 MHz: 110 uA/MHz at 3.3 V, running (data sheet of the STM32L4R5, LDO). The NPU does not exist: a MAC array of this
# size in a 40 nm process is taken to need 10 mW while it works.
CORE_MW, NPU_MW = 0.110 * CLOCK_MHZ * 3.3, 10.0
# For the same data, int8, with TFLite Micro on a Cortex-M4F at 64 MHz, as published with it.
PUBLISHED_MS, PUBLISHED_RAM, PUBLISHED_MHZ = 33.9, 9.4e3, 64.0


@dataclass(frozen=True, slots=True)
class Machine:
    """A package on the board, and what was measured of it."""

    name: str
    package: intaglio.Package
    profile: Profile
    correct: int
    same: bool  # every result as on the host

    @property
    def time_ms(self) -> float:
        return (self.profile.total.cycles or 0) / CLOCK_MHZ / 1e3

    @property
    def energy_uj(self) -> float:
        """While the NPU works the core waits, at its full power: it is not put to sleep here."""
        busy = sum(layer.cycles or 0 for layer in on_npu(self)) / CLOCK_MHZ / 1e3
        return self.time_ms * CORE_MW + busy * NPU_MW


def on_npu(machine: Machine) -> list[LayerTime]:
    where = {layer.name: layer.accelerator for layer in machine.package.manifest.layers}
    return [layer for layer in machine.profile.layers if where[layer.name]]


@dataclass(frozen=True, slots=True)
class Experiment:
    data: Recordings
    float_correct: int
    host_correct: int
    machines: tuple[Machine, ...]
    seconds: float

    @property
    def count(self) -> int:
        return len(self.data.test_labels)


def experiment(data: Recordings) -> Experiment:
    begun = time.perf_counter()
    torch.set_num_threads(2)
    note(f"training on {data.about}")
    model = network.trained(data)
    float_correct = network.correct(model, data.test, data.test_labels)
    WORK.mkdir(parents=True, exist_ok=True)
    note("exporting, and calibrating int8 on the recordings that were learned from")
    example = (torch.zeros(1, *data.train.shape[1:]),)
    torch.export.save(torch.export.export(model, example), WORK / "gesture.pt2")
    host = compiled(data, "host")
    given = host.manifest.inputs[0].name
    guesses = [int(next(iter(host.run({given: one[None]}).values())).argmax()) for one in quantised(host, data.test)]
    machines = []
    for name, accelerators in (("core", ()), ("npu", ("example_npu",))):
        note(f"compiling for {BOARD}{', with the NPU' if accelerators else ''}; {len(data.test)} recordings in the emulator")
        package = compiled(data, name, board=BOARD, accelerators=accelerators)
        elf = live_firmware(package, data.names)
        found = recognised(package, elf, data.test)
        correct = int((np.asarray(found) == data.test_labels).sum())
        profile = package.profile()
        machines.append(Machine(name, package, profile, correct, found == guesses))
    host_correct = int((np.asarray(guesses) == data.test_labels).sum())
    return Experiment(data, float_correct, host_correct, tuple(machines), time.perf_counter() - begun)


def compiled(data: Recordings, name: str, board: str | None = None, accelerators: Sequence[str] = ()) -> intaglio.Package:
    """The exported network in whole numbers, inputs and outputs too."""
    return intaglio.compile(
        WORK / "gesture.pt2", output=WORK / name, force=True, board=board, accelerators=accelerators, quantize="int8",
        calibrate={"samples": data.train[:, None]}, integer_io=True,
    )  # fmt: skip


def note(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description="The hand-gesture experiment.")
    parser.add_argument("--data", type=Path, default=DATA, help="a folder with `train` and `test`")
    parser.add_argument("--page", action="store_true", help="write docs/guides/gesture.md and its picture")
    words = parser.parse_args()
    from tables import print_tables, write_page

    if words.data is not None and words.data != DATA and not (words.data / "train").is_dir():
        print(f"there is no folder `train` in {words.data}", file=sys.stderr)
        return 2
    made = experiment(load(words.data))
    print_tables(made)
    if words.page:
        write_page(made, ROOT / "docs" / "guides")
    return 0 if all(m.same and m.correct == made.host_correct for m in made.machines) else 1


if __name__ == "__main__":
    sys.exit(main())
