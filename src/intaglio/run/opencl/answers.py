"""What the drivers of this machine say about themselves, as values. `query` asks them, in a process of its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

TYPES = {1 << 1: "cpu", 1 << 2: "gpu", 1 << 3: "accelerator"}
ANSWER_SECONDS = 60
CORRECTLY_ROUNDED = 1 << 7  # CL_FP_CORRECTLY_ROUNDED_DIVIDE_SQRT


@dataclass(frozen=True, slots=True)
class OpenCLDevice:
    """`place` is `P.D`: the numbers of platform and device. Texts are the driver's, byte for byte: they are parts of keys."""

    place: str
    platform_name: str
    platform_version: str
    name: str
    vendor: str
    version: str
    driver_version: str
    c_version: str
    kind: str  # "cpu", "gpu", "accelerator" or "custom"
    address_bits: int
    compute_units: int
    clock_mhz: int
    work_group_size: int
    work_item_sizes: tuple[int, ...]
    memory_bytes: int
    allocation_bytes: int
    local_memory_bytes: int
    alignment_bits: int
    unified_memory: bool
    available: bool
    compiler_available: bool
    single_fp_config: int
    half_fp_config: int
    extensions: tuple[str, ...]
    compiler_problem: str = ""  # why its compiler refuses every kernel; asked of PoCL alone

    @property
    def has_half(self) -> bool:
        return "cl_khr_fp16" in self.extensions

    @property
    def rounds_division(self) -> bool:
        return bool(self.single_fp_config & CORRECTLY_ROUNDED)


@dataclass(frozen=True, slots=True)
class Platform:
    number: int
    name: str
    vendor: str
    version: str
    profile: str
    devices: tuple[OpenCLDevice, ...]
    problem: str = ""  # why its devices cannot be listed


@dataclass(frozen=True, slots=True)
class Answer:
    """`problem`: the library could not be loaded or asked. `crash`: it took the asking process down."""

    platforms: tuple[Platform, ...] = ()
    problem: str = ""
    crash: str = ""

    @property
    def devices(self) -> tuple[OpenCLDevice, ...]:
        return tuple(device for platform in self.platforms for device in platform.devices)

    @property
    def whole(self) -> bool:
        """Do all devices that it shows take kernels?"""
        return bool(self.platforms) and not any(device.compiler_problem for device in self.devices)


def ask(library: str, environment: Mapping[str, str]) -> Answer:
    """What the loader `library` shows, when it runs with these variables beside those of this process."""
    command = [sys.executable, "-I", "-S", str(Path(__file__).with_name("query.py")), library]
    try:
        done = subprocess.run(
            command, capture_output=True, env={**os.environ, **environment}, timeout=ANSWER_SECONDS, stdin=subprocess.DEVNULL
        )
    except subprocess.TimeoutExpired:
        return Answer(crash=f"it did not answer within {ANSWER_SECONDS} s")
    except OSError as error:
        return Answer(problem=str(error))
    if done.returncode != 0:
        last = done.stderr.decode("utf-8", "replace").strip().splitlines()[-1:] or [""]
        return Answer(crash=f"{_ending(done.returncode)}{': ' if last[0] else ''}{last[0]}")
    try:
        return _parsed(json.loads(done.stdout))
    except ValueError:
        return Answer(crash="its answer makes no sense")


def _ending(code: int) -> str:
    if code < 0:
        try:
            return signal.Signals(-code).name
        except ValueError:
            return f"signal {-code}"
    return f"exit code {code}"


def _parsed(answer: object) -> Answer:
    if not isinstance(answer, dict) or "error" in answer or not isinstance(answer.get("platforms"), list):
        return Answer(problem=_text(answer, "error") or "no answer")
    return Answer(tuple(_platform(n, told) for n, told in enumerate(answer["platforms"])))


def _platform(number: int, told: object) -> Platform:
    listed = told.get("devices") if isinstance(told, dict) else None
    devices = tuple(_device(f"{number}.{n}", told, device) for n, device in enumerate(listed if isinstance(listed, list) else ()))
    texts = [_text(told, key) for key in ("name", "vendor", "version", "profile")]
    return Platform(number, texts[0], texts[1], texts[2], texts[3], devices, _text(told, "error"))


def _device(place: str, platform: object, told: object) -> OpenCLDevice:
    kinds = _number(told, "type")
    sizes = told.get("work_item_sizes") if isinstance(told, dict) else None
    return OpenCLDevice(
        place=place,
        platform_name=_text(platform, "name"),
        platform_version=_text(platform, "version"),
        name=_text(told, "name"),
        vendor=_text(told, "vendor"),
        version=_text(told, "version"),
        driver_version=_text(told, "driver_version"),
        c_version=_text(told, "c_version"),
        kind=next((kind for bit, kind in TYPES.items() if kinds & bit), "custom"),
        address_bits=_number(told, "address_bits"),
        compute_units=_number(told, "compute_units"),
        clock_mhz=_number(told, "clock_mhz"),
        work_group_size=_number(told, "work_group_size"),
        work_item_sizes=tuple(int(size) for size in sizes) if isinstance(sizes, list) else (),
        memory_bytes=_number(told, "memory_bytes"),
        allocation_bytes=_number(told, "allocation_bytes"),
        local_memory_bytes=_number(told, "local_memory_bytes"),
        alignment_bits=_number(told, "alignment_bits"),
        unified_memory=bool(_number(told, "unified_memory")),
        available=bool(_number(told, "available")),
        compiler_available=bool(_number(told, "compiler_available")),
        single_fp_config=_number(told, "single_fp_config"),
        half_fp_config=_number(told, "half_fp_config"),
        extensions=tuple(_text(told, "extensions").split()),
        compiler_problem=_text(told, "compiler_error"),
    )


def _text(told: object, key: str) -> str:
    value = told.get(key) if isinstance(told, dict) else None
    return value if isinstance(value, str) else ""


def _number(told: object, key: str) -> int:
    value = told.get(key) if isinstance(told, dict) else None
    return value if isinstance(value, int) else 0
