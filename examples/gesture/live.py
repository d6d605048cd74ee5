"""A wand, live: samples go into the emulated microcontroller one by one, gestures come out as they are recognised.

    python examples/gesture/live.py                    the test recordings, with pauses between them, as fast as the sensor would
    python examples/gesture/live.py --fast             at once
    python examples/gesture/live.py --listen 5555      from a socket: a line of six numbers (g, degrees per second) per sample

`gesture.py` (make example-gesture) has to have run before: it makes the firmware.
"""

from __future__ import annotations

import argparse
import socket
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from device import converse, sensor
from gesture import DATA, WORK
from recordings import AXES, RANGES, Floats, load

from intaglio import Package

SAMPLES_PER_SECOND = 119
PAUSE = 40  # samples of a hand at rest, before each recording


def at_rest(count: int, rng: np.random.Generator) -> Floats:
    """Gravity, and the noise of the sensor."""
    still = np.zeros((count, AXES), np.float32)
    still[:, 2] = 1 / RANGES[2]
    return still + rng.normal(0, 0.003, still.shape).astype(np.float32)


class Wand:
    """Both ends of the conversation: bytes of samples to the device, its words to the screen."""

    def __init__(self, samples: Iterator[Floats], *, pace: bool) -> None:
        self._samples, self._pace = samples, pace
        self._pending = b""
        self._next = time.monotonic()
        self.said: list[str] = []
        self._line = ""

    def read(self) -> bytes:
        if not self._pending:
            sample = next(self._samples, None)
            if sample is None:
                return b""
            if self._pace:
                self._next += 1 / SAMPLES_PER_SECOND
                time.sleep(max(0.0, self._next - time.monotonic()))
            self._pending = sensor(sample).astype("<i2").tobytes()
        first, self._pending = self._pending[:1], self._pending[1:]
        return first

    def write(self, data: bytes) -> None:
        text = data.decode("ascii", "replace")
        self._line += text
        if text == "\n":
            print(f"  recognised: {self._line.strip()}", flush=True)
            self.said.append(self._line.strip())
            self._line = ""


def played(recordings: Floats, names: list[str], *, quiet: bool = False) -> Iterator[Floats]:
    """Recordings with pauses; the name of each before it begins."""
    rng = np.random.default_rng(0)
    for recording, name in zip(recordings, names, strict=True):
        yield from at_rest(PAUSE, rng)
        if not quiet:
            print(f"{name}:", flush=True)
        yield from recording


def heard(port: int) -> Iterator[Floats]:
    """Samples from a socket of this machine, one line each, until it is closed."""
    server = socket.create_server(("127.0.0.1", port))
    print(f"listening on port {port}: a line of six numbers per sample", file=sys.stderr)
    return _lines(server)


def _lines(server: socket.socket) -> Iterator[Floats]:
    with server:
        connection, _ = server.accept()
        with connection, connection.makefile("r", encoding="ascii", errors="replace") as lines:
            for line in lines:
                try:
                    numbers = [float(word) for word in line.replace(",", " ").split()]
                except ValueError:
                    numbers = []
                if len(numbers) != AXES or not (np.abs(numbers) < 1e6).all():
                    print(f"not a sample: {line.strip()[:60]}", file=sys.stderr)
                    continue
                yield np.asarray(numbers, np.float32) / RANGES


def main() -> int:
    parser = argparse.ArgumentParser(description="Samples into the emulated device, gestures out.")
    parser.add_argument("--npu", action="store_true", help="the device that has the NPU")
    parser.add_argument("--fast", action="store_true", help="do not wait between samples")
    parser.add_argument("--listen", type=int, metavar="PORT", choices=range(1, 65536), help="take samples from a socket")
    parser.add_argument("--recordings", type=int, choices=range(1, 26), default=10, metavar="N", help="how many to play, up to 25")
    parser.add_argument("--data", type=Path, default=DATA)
    words = parser.parse_args()
    folder = WORK / ("npu" if words.npu else "core")
    if not (folder / "bin" / "gesture_live.elf").is_file():
        print("there is no firmware yet: `make example-gesture` makes it", file=sys.stderr)
        return 2
    package = Package(folder)
    if words.listen is not None:
        try:
            wand = Wand(heard(words.listen), pace=False)
        except OSError as error:
            print(f"cannot listen on port {words.listen}: {error.strerror}", file=sys.stderr)
            return 2
    elif words.data != DATA and not (words.data / "train").is_dir():
        print(f"there is no folder `train` in {words.data}", file=sys.stderr)
        return 2
    else:
        data = load(words.data)
        print(data.about, file=sys.stderr)
        order = np.random.default_rng(2).permutation(len(data.test))[: words.recordings]
        names = [data.names[data.test_labels[n]] for n in order]
        wand = Wand(played(data.test[order], names), pace=not words.fast)
    return converse(package, folder / "bin" / "gesture_live.elf", wand)


if __name__ == "__main__":
    sys.exit(main())
