"""Cycles on a board, in all and per layer, read from its own counter over the serial line.

They are those of the run with the fewest. Firmware with the hook calls it after every layer: that is part of them, some ten
instructions a layer. Between the runs the inputs are sent again, since a run overwrites them in the arena.
"""

from __future__ import annotations

from dataclasses import replace

from intaglio.errors import AnswerIsNo
from intaglio.ir.graph import Array
from intaglio.package.manifest import FirmwareInfo, Manifest
from intaglio.run.emulator.measure import bare_layer, bare_total, need_firmware
from intaglio.run.loaded import LoadedPackage
from intaglio.run.serial.device import SerialDevice
from intaglio.run.serial.runs import ESTIMATED, BoardRun
from intaglio.run.timing import OnBoard, Profile

RUNS = 3
COUNTER = 1 << 32
FASTEST_HZ = 1e9  # of a core whose clock nobody tells


def measure(package: LoadedPackage, inputs: list[Array], runs: int | None) -> Profile:
    device = package.serial_device
    firmware = need_firmware(package)
    total, layers = _least(device, inputs, runs or RUNS)
    board = OnBoard(firmware.board, device.clock_mhz, runs or RUNS, device.info.emulated)
    return profile_of(package.manifest, firmware, total, layers, board)


def profile_of(manifest: Manifest, firmware: FirmwareInfo, total: int | None, layers: list[int] | None, board: OnBoard) -> Profile:
    """Cycles that a board told, as a profile."""
    clock = board.clock_mhz

    def ms(cycles: int | None) -> float | None:
        return None if cycles is None or clock is None else cycles / clock / 1000

    found: list[int | None] = [None] * len(manifest.layers) if layers is None else [*layers]
    rows = [
        replace(bare_layer(manifest, layer, None, clock), cycles=cycles, time_ms=ms(cycles))
        for layer, cycles in zip(manifest.layers, found, strict=True)
    ]
    whole = replace(bare_total(manifest, firmware, None, clock, None), cycles=total, time_ms=ms(total))
    return Profile(manifest.target, whole, tuple(rows), serial=board)


def profile_of_run(package: LoadedPackage, run: BoardRun) -> Profile:
    """What is in a file, as if it was measured now."""
    layers = [layer.cycles for layer in run.layers] if run.layers else None
    board = OnBoard(run.board, run.clock_mhz, run.runs, run.source == ESTIMATED)
    return profile_of(package.manifest, need_firmware(package), run.cycles, layers, board)


def _least(device: SerialDevice, inputs: list[Array], runs: int) -> tuple[int | None, list[int] | None]:
    found = []
    for _ in range(runs):
        device.reset()
        device.run(inputs)
        _check_counter(device)
        found.append((device.cycles, device.layer_cycles()))
    total, layers = min(found, key=lambda run: run[0])
    return (total, layers) if total else (None, None)  # 0: there is no counter


def _check_counter(device: SerialDevice) -> None:
    """It has 32 bits: what takes longer than they last would be told too short."""
    clock = device.clock_mhz
    most = COUNTER / (clock * 1e6 if clock else FASTEST_HZ)
    if device.cycles and not device.info.emulated and device.seconds > most:
        what = f"an inference takes {device.seconds:.1f} s; the cycle counter of the board counts for {most:.1f} s"
        what += "" if clock else ", if its core is as fast as 1 GHz"
        slower = f"define a `{device.manifest.name}_cycles` that counts slower, and tell its clock with `--clock`"
        hint = slower if clock else "tell the clock: `--clock MHZ`"
        raise AnswerIsNo("counter-wrapped", what, hint=hint)
