"""Would a device use an entry of a program cache? Every field of the key must be equal, one by one."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from intaglio.run.opencl.answers import OpenCLDevice
from intaglio.run.opencl.cache_contents import Entry
from intaglio.run.opencl.cache_file import FIELDS, TUNING_FIELDS, Program, Tuning

OF_THE_DEVICE = FIELDS[2:]


@dataclass(frozen=True, slots=True)
class PackageProgram:
    """A program of a package, as its manifest says: the digest of its source, and options before those of the device."""

    source: str
    options: str
    kind: str = ""  # `tuned`: what a search chose for a device


@dataclass(frozen=True, slots=True)
class Compared:
    name: str
    entry: str
    here: str | None  # None: nothing to compare with
    equal: bool | None


@dataclass(frozen=True, slots=True)
class Match:
    entry: Entry
    fields: tuple[Compared, ...]

    @property
    def other(self) -> tuple[str, ...]:
        """Names of the fields that differ."""
        return tuple(field.name for field in self.fields if field.equal is False)

    @property
    def usable(self) -> bool:
        """A package would hand the binary to the driver."""
        return not self.other and self.entry.state in ("checked", "unchecked")


def device_fields(device: OpenCLDevice) -> tuple[str, ...]:
    """What the device says, in the order of OF_THE_DEVICE."""
    return (
        device.platform_name, device.platform_version, device.name, device.vendor, device.version, device.driver_version,
        str(device.address_bits),
    )  # fmt: skip


def match(entry: Entry, program: Program, device: OpenCLDevice, package: Sequence[PackageProgram] | None) -> Match:
    compared = [*_of_package(program, package)]
    for name, here in zip(OF_THE_DEVICE, device_fields(device), strict=True):
        compared.append(Compared(name, program.field(name), here, program.field(name) == here))
    return Match(entry, tuple(compared))


def _of_package(program: Program, package: Sequence[PackageProgram] | None) -> tuple[Compared, Compared]:
    source, options = program.field("source"), program.field("options")
    if package is None:
        return Compared("source", source, None, None), Compared("options", options, None, None)
    same = [p for p in package if p.source == source]
    if not same:
        return Compared("source", source, "none of the package's programs", False), Compared("options", options, None, None)
    # The device adds options of its own behind those of the package.
    fits = [p for p in same if options == p.options or options.startswith(f"{p.options} ")]
    return Compared("source", source, source, True), Compared("options", options, (fits or same)[0].options, bool(fits))


def is_of_device(program: Program, device: OpenCLDevice) -> bool:
    """Of this very device and driver."""
    return tuple(program.field(name) for name in OF_THE_DEVICE) == device_fields(device)


def is_tuning_of(tuning: Tuning, device: OpenCLDevice) -> bool:
    """Whatever the driver: a tuning outlives it."""
    return tuning.fields[1:] == (device.platform_name, device.name, device.vendor)


def is_left_over(
    program: Program, package: Sequence[PackageProgram], tunings: Sequence[Tuning], programs: Sequence[Program]
) -> bool:
    """Of a source that is none of the package's. Not so where the device was tuned elsewhere, and its programs came with
    `intaglio cache merge`: the manifest does not know what the tuning chose."""
    sources = {p.source: p.kind for p in package}
    if program.field("source") in sources:
        return False
    device = tuple(program.field(name) for name in TUNING_FIELDS[1:])
    known = any(
        sources.get(other.field("source")) == "tuned" and tuple(other.field(name) for name in TUNING_FIELDS[1:]) == device
        for other in programs
    )
    return known or not any(tuning.fields[1:] == device for tuning in tunings)


def is_former_driver(program: Program, devices: Sequence[OpenCLDevice]) -> bool:
    """Of a device that is here, and of a driver that no device here has any more."""
    of = ("platform name", "device name", "device vendor")
    same = [d for d in devices if [program.field(name) for name in of] == [d.platform_name, d.name, d.vendor]]
    now = [program.field(name) for name in OF_THE_DEVICE]
    return bool(same) and not any(list(device_fields(device)) == now for device in same)


def package_programs(folder: Path) -> tuple[PackageProgram, ...] | None:
    """`opencl.programs` of a package's manifest. None where it says nothing about that, or nothing that makes sense."""
    try:
        manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    opencl = manifest.get("opencl") if isinstance(manifest, dict) else None
    listed = opencl.get("programs") if isinstance(opencl, dict) else None
    if not isinstance(listed, list):
        return None
    return tuple(
        PackageProgram(program["source"], *(program[f] if isinstance(program.get(f), str) else "" for f in ("options", "kind")))
        for program in listed
        if isinstance(program, dict) and isinstance(program.get("source"), str)
    )
