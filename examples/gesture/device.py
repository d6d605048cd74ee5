"""The device: the package's firmware with the live application in it, on an emulated core, with or without the NPU."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import numpy.typing as npt
from recordings import AXES, RANGES, SAMPLES, Floats

from intaglio import Package
from intaglio.package.manifest import QuantInfo, target_of
from intaglio.run.emulator.device import EmulatedDevice
from intaglio.run.emulator.unicorn_core import Host, UnicornCore
from intaglio.run.firmware import build_firmware
from intaglio.run.firmware_tools import find_firmware_toolchain

START_G = 2.25  # a gesture begins when the sum of accelerations is more
SENSOR_BITS = 32768
Bytes = npt.NDArray[np.int8]


def quantised(package: Package, recordings: Floats) -> Bytes:
    """As the device does it: 16-bit numbers of the sensor to the 8 bits of the model, in whole numbers."""
    factor, zero = _factor(package)
    scaled = ((sensor(recordings).astype(np.int64) * factor + (1 << 19)) >> 20) + zero
    made: Bytes = np.clip(scaled, -128, 127).astype(np.int8)
    return made


def sensor(recordings: Floats) -> npt.NDArray[np.int16]:
    return np.clip(np.rint(recordings * SENSOR_BITS), -SENSOR_BITS, SENSOR_BITS - 1).astype(np.int16)


def _factor(package: Package) -> tuple[int, int]:
    quant = package.manifest.inputs[0].quant
    assert isinstance(quant, QuantInfo)
    return round((1 << 20) / (quant.scale[0] * SENSOR_BITS)), quant.zero_point[0]


def live_firmware(package: Package, names: tuple[str, ...]) -> Path:
    """The package's firmware, with live.c in place of the self-test. Its other functions are the same."""
    folder = package.folder
    shutil.copyfile(Path(__file__).with_name("live.c"), folder / "firmware" / "live.c")
    (folder / "firmware" / "live_config.h").write_text(_config(package, names))
    elf = folder / "bin" / "gesture_live.elf"
    target = target_of(package.manifest)
    build_firmware(folder, elf, package.name, target, find_firmware_toolchain(None, target), ("-Wall", "-Wextra", "-Werror"))
    return elf


def _config(package: Package, names: tuple[str, ...]) -> str:
    given, made = package.manifest.inputs[0], package.manifest.outputs[0]
    factor, zero = _factor(package)
    start = round(START_G / float(RANGES[0]) * SENSOR_BITS)
    listed = "\n".join(f'    "{name}",' for name in names)
    return f"""/* What live.c needs to know of the model. Written by device.py. */
#ifndef LIVE_CONFIG_H
#define LIVE_CONFIG_H

#define LIVE_AXES {AXES}
#define LIVE_SAMPLES {SAMPLES}
#define LIVE_GESTURES {len(names)}
#define LIVE_START {start} /* {START_G} g */
#define LIVE_FACTOR {factor} /* / 2^20: from parts of the sensor's range to steps of the input */
#define LIVE_ZERO {zero}
#define LIVE_INPUT_OFFSET GESTURE_INPUT_{given.field.upper()}_OFFSET
#define LIVE_OUTPUT_OFFSET GESTURE_OUTPUT_{made.field.upper()}_OFFSET

static const char *const live_names[LIVE_GESTURES] = {{
{listed}
}};

#endif
"""


def recognised(package: Package, elf: Path, recordings: Floats) -> list[int]:
    """One after the other in the emulator, by the function that the live application calls."""
    device = EmulatedDevice(package.folder, package.manifest, elf=elf)
    try:
        return [int(device.run([one[None]])[0].argmax()) for one in quantised(package, recordings)]
    finally:
        device.close()


def converse(package: Package, elf: Path, host: Host) -> int:
    """The live application, with `host` as its sensor and its screen, until there are no more samples."""
    device = EmulatedDevice(package.folder, package.manifest, elf=elf)
    try:
        assert isinstance(device.core, UnicornCore)
        return device.core.serve(host)
    finally:
        device.close()
