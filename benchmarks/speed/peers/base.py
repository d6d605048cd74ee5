"""What every runtime here can do: hold a model on one thread, run it, give its outputs and, where it has one, its profile."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import numpy as np

from figures import LayerTime


class Missing(Exception):
    """Why a runtime has no figure for a model."""


@dataclass(frozen=True, slots=True)
class Work:
    """A model with the inputs to measure it on. `files` by format (`onnx`, `tflite`) hold the same network; we take the first."""

    name: str
    kind: str  # float or int8
    files: dict[str, Path]
    inputs: list[np.ndarray]
    folder: Path  # for what a runtime converts the model to
    expected: list[np.ndarray] = field(default_factory=list)  # recorded outputs, where there are any

    def file(self, format: str) -> Path | None:
        return self.files.get(format)

    @property
    def path(self) -> Path:
        return next(iter(self.files.values()))


class Session(Protocol):
    def run(self) -> None: ...
    def outputs(self) -> list[np.ndarray]: ...
    def layers(self) -> list[LayerTime]:
        """Time per layer; empty where the runtime has no profile."""
        ...


def convert(command: list[str], folder: Path, made: Path, timeout_seconds: int = 600) -> None:
    """Run another project's converter, which writes `made`; what is there already is kept."""
    if made.exists():
        return
    folder.mkdir(parents=True, exist_ok=True)
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=timeout_seconds, check=False)
    except subprocess.TimeoutExpired:
        raise Missing(f"conversion took more than {timeout_seconds} s") from None
    except OSError as error:
        raise Missing(f"no converter: {error}") from None
    if done.returncode != 0 or not made.exists():
        made.unlink(missing_ok=True)
        if done.returncode < 0:
            raise Missing(f"its converter crashed with signal {-done.returncode}")
        said = [line for line in (done.stdout + "\n" + done.stderr).splitlines() if line.strip()]
        raise Missing(f"conversion failed: {said[-1].strip() if said else done.returncode}")


def tool(name: str) -> str:
    """A program that was installed beside this Python."""
    return str(Path(sys.executable).parent / name)
