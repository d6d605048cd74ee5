"""The OpenCL devices of this machine, and which one is meant: the same words as for `NAME_set_device` in a package."""

from __future__ import annotations

import os
import re

from intaglio.errors import ToolError, UserError, install_hint, quoted
from intaglio.run.opencl.answers import OpenCLDevice, Platform
from intaglio.run.opencl.loader import HINT, find_loader

__all__ = ["OpenCLDevice", "Platform", "find_device", "list_devices", "list_platforms"]

VARIABLE = "INTAGLIO_OPENCL_DEVICE"
KINDS = ("gpu", "accelerator", "cpu")  # the first of these that is there is the default


def list_platforms() -> tuple[Platform, ...]:
    return find_loader().answer.platforms


def list_devices() -> tuple[OpenCLDevice, ...]:
    return find_loader().answer.devices


def find_device(which: str | None = None) -> OpenCLDevice:
    """`gpu`, `cpu`, `accelerator`, `P.D` (numbers of platform and device) or a part of a device's or platform's name, in any case.

    Without it $INTAGLIO_OPENCL_DEVICE, else the first GPU, else accelerator, else CPU."""
    devices = list_devices()
    if not devices:
        problems = [f"{quoted(p.name)}: {p.problem}" for p in list_platforms() if p.problem]
        text = "; ".join(["no OpenCL driver of this machine has a device", *problems])
        raise ToolError("no-opencl-device", text, hint=HINT)
    wanted = which or os.environ.get(VARIABLE) or ""
    found = [device for device in devices if _is(device, wanted)] if wanted else _by_kind(devices)
    found.sort(key=lambda device: bool(device.compiler_problem))  # one whose compiler refuses everything comes last
    if not found:
        listed = ", ".join(f"`{d.place}` {d.name} ({d.kind}, {d.platform_name})" for d in devices)
        hint = "use `gpu`, `cpu`, `accelerator`, numbers such as `0.0`, or a part of a name"
        source = "" if which else f" (from ${VARIABLE})"
        raise UserError("no-opencl-device", f"unknown OpenCL device {quoted(wanted)}{source}; available: {listed}", hint=hint)
    if found[0].compiler_problem:
        name, said = found[0].platform_name, found[0].compiler_problem.removeprefix("error: ")
        hint = f"{install_hint('opencl-intel')} installs Intel's driver, which runs on CPUs of all makers; or use another device"
        raise ToolError("opencl-compiler", f"the compiler of {quoted(name)} does not know this processor: {said}", hint=hint)
    return found[0]


def _is(device: OpenCLDevice, wanted: str) -> bool:
    low = wanted.lower()
    if low in KINDS:
        return device.kind == low
    if re.fullmatch(r"\d+\.\d+", wanted):
        return device.place == wanted
    return low in device.name.lower() or low in device.platform_name.lower()


def _by_kind(devices: tuple[OpenCLDevice, ...]) -> list[OpenCLDevice]:
    return sorted(devices, key=lambda device: (*KINDS, device.kind).index(device.kind))
