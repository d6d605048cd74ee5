"""Small models as firmware, and their self-test on the emulated core."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from intaglio import compile
from intaglio.package.manifest import Manifest, board_of, read_manifest
from intaglio.run.emulator.core import Core
from intaglio.run.emulator.device import DEFAULT, EmulatedDevice, start
from intaglio.run.emulator.image import read_image
from intaglio.run.package import Package
from intaglio.targets.target import find_target
from support.strict import CLANG
from support.tflite_models import Tensor, one_operator

CORES = ("cortex-m0+", "cortex-m3", "cortex-m4", "cortex-m4f", "cortex-m7", "cortex-m33", "rv32imc", "rv32imafc")
# For `--memory`: an arena in each of two RAMs.
SEVERAL = """
[[memory]]
name = "flash"
kind = "flash"
address = 0
bytes = 65536
[[memory]]
name = "fast"
kind = "ram"
address = 0x20000000
bytes = 2048
bytes_per_cycle = 8
holds = ["arena"]
[[memory]]
name = "slow"
kind = "ram"
address = 0x20010000
bytes = 65536
"""


def integer_model(folder: Path, channels: int = 8, seed: int = 0) -> Path:
    """A fully connected layer of bytes."""
    weights = np.random.default_rng(seed).integers(-127, 128, (channels, 16)).astype(np.int8)
    bias = np.arange(channels, dtype=np.int32)
    constants = [Tensor(weights.shape, "int8", 0.01, 0, weights), Tensor(bias.shape, "int32", 0.0005, 0, bias)]
    inputs = [Tensor((1, 16), "int8", 0.05, -5), *constants]
    data = one_operator("FULLY_CONNECTED", inputs, Tensor((1, channels), "int8", 0.1, 3), "FullyConnectedOptions", version=4)
    path = folder / f"dense{channels}.tflite"
    path.write_bytes(data)
    return path


def firmware(model: Path, output: Path, **words: object) -> Package:
    pytest.importorskip("unicorn")
    words.setdefault("board", None if "target" in words else "mps2-an386")
    words.setdefault("cflags", CLANG)
    return compile(model, output=output, **words)  # type: ignore[arg-type]


def booted(folder: Path, elf: Path, manifest: Manifest) -> Core:
    target = find_target(manifest.target)
    return start(read_image(elf, ()), board_of(manifest, target), target, DEFAULT)


def selftest(core: Core, name: str) -> tuple[int, str]:
    """What it returns, and what it prints."""
    said: list[str] = []
    core.write(core.image.address("semihosting_absent"), b"\1")
    printing = {core.image.address(f"{name}_putchar"): lambda: said.append(chr(core.argument(0)))}
    return core.call(f"{name}_app_test", 1 << 32, printing), "".join(said)


def package_selftest(package: Package) -> tuple[int, str]:
    manifest = read_manifest(package.folder)
    core = EmulatedDevice(package.folder, manifest).core
    try:
        return selftest(core, manifest.name)
    finally:
        core.close()
