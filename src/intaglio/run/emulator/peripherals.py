"""Accelerators on the bus of an emulated core: their plug-ins serve the registers."""

from __future__ import annotations

from functools import cached_property

from intaglio.errors import ToolError, quoted
from intaglio.package.manifest import Manifest
from intaglio.run.costs import Coster
from intaglio.run.emulator.core import Core
from intaglio.targets.accelerator import Device
from intaglio.targets.plugins import Plugin, find_accelerator


class CoreBus:
    """Memory and time of a core, as a device sees them (`accelerator.Bus`)."""

    def __init__(self, core: Core, kind: str) -> None:
        self._core, self._kind = core, kind

    @cached_property
    def _coster(self) -> Coster:
        return Coster(self._kind, self._core.read, riscv=self._core.image.riscv)

    def read(self, address: int, size_bytes: int) -> bytes:
        return self._core.read(address, size_bytes)

    def write(self, address: int, data: bytes) -> None:
        self._core.write(address, data)

    def now(self) -> int:
        counts = self._core.counts()
        return 0 if counts is None else self._coster.add(counts).cycles

    def stall(self, cycles: int) -> None:
        self._core.stall(cycles)


class Guarded:
    """A device whose plug-in cannot take the emulator down: what goes wrong is kept, and told when the core has stopped."""

    def __init__(self, plugin: Plugin, device: Device) -> None:
        self._plugin, self._device = plugin, device
        self.address, self.bytes = device.address, device.bytes

    def load(self, offset: int, size_bytes: int) -> int:
        value = self._plugin.guarded("load", lambda: self._device.load(offset, size_bytes))
        if not isinstance(value, int):
            raise ToolError("plugin-garbage", f"the accelerator {quoted(self._plugin.name)} gave {value!r} for a register")
        return value & ((1 << 8 * size_bytes) - 1)

    def store(self, offset: int, size_bytes: int, value: int) -> None:
        self._plugin.guarded("store", lambda: self._device.store(offset, size_bytes, value))


def attach_accelerators(core: Core, manifest: Manifest, kind: str) -> None:
    for name in manifest.accelerators:
        plugin = find_accelerator(name)
        device = plugin.device(CoreBus(core, kind))
        if device is not None:
            core.attach(Guarded(plugin, device))
