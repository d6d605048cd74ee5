"""Recordings of a wand: 119 samples of accelerometer and gyroscope each, five gestures.

The data is that of https://github.com/nanguoyu/Magic_Wand_Data (MIT), a folder `train` and a folder `test` with a CSV file per
gesture. Where it is not there, gestures of the same shape are generated, so that everything runs: the figures are others then.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

SAMPLES, AXES = 119, 6
RANGES = np.array([4, 4, 4, 500, 500, 500], np.float32)  # of the sensor, in g and degrees per second: inputs are parts of these
Floats = npt.NDArray[np.float32]
Labels = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Recordings:
    names: tuple[str, ...]
    train: Floats  # [n, 119, 6], as parts of the ranges
    train_labels: Labels
    test: Floats
    test_labels: Labels
    about: str


def load(folder: Path | None) -> Recordings:
    if folder is None or not (folder / "train").is_dir():
        return _generated()
    names = tuple(sorted(path.stem for path in (folder / "train").glob("*.csv")))
    parts = [_read(folder / split, names) for split in ("train", "test")]
    about = f"{len(parts[0][1])} recordings for training, {len(parts[1][1])} for testing"
    return Recordings(names, *parts[0], *parts[1], about=about)


def _read(folder: Path, names: tuple[str, ...]) -> tuple[Floats, Labels]:
    recordings, labels = [], []
    for label, name in enumerate(names):
        rows = np.loadtxt(folder / f"{name}.csv", delimiter=",", skiprows=1, dtype=np.float32)
        several = rows[: len(rows) // SAMPLES * SAMPLES].reshape(-1, SAMPLES, AXES)
        recordings.append(several / RANGES)
        labels += [label] * len(several)
    return np.concatenate(recordings).astype(np.float32), np.asarray(labels)


def _generated() -> Recordings:
    """Five figures in the air, each with its own rhythm on each axis, done a little differently every time."""
    rng = np.random.default_rng(5)
    time = np.linspace(0, 1, SAMPLES, dtype=np.float32)
    rhythms, phases = rng.uniform(0.5, 4, (5, AXES)), rng.uniform(0, 6, (5, AXES))

    def some(count: int) -> tuple[Floats, Labels]:
        made, labels = [], []
        for n in range(count):
            label = n % 5
            speed, size = rng.normal(1, 0.08), rng.normal(0.5, 0.1)
            wave = np.sin(6.28 * time[:, None] * speed * rhythms[label] + phases[label] + rng.normal(0, 0.15, AXES))
            made.append(size * wave + rng.normal(0, 0.05, (SAMPLES, AXES)))
            made[-1][0, :3] = [0.3, -0.3, 0.3]  # a gesture starts with a jerk
            labels.append(label)
        return np.clip(np.asarray(made), -1, 1).astype(np.float32), np.asarray(labels)

    names = ("Circle", "Hook", "Slash", "Wave", "Zigzag")
    return Recordings(names, *some(100), *some(25), about="generated gestures: the real recordings are not here")
