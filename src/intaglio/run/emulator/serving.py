"""A package's firmware on an emulated core, with its UART on a pseudo-terminal: a rehearsal for a board on a serial line."""

from __future__ import annotations

import tempfile
from pathlib import Path

from intaglio.errors import ToolError, UserError
from intaglio.package.manifest import board_of, target_of
from intaglio.run.emulator.device import EmulatedDevice, EmulatorOptions
from intaglio.run.emulator.measure import firmware_toolchain
from intaglio.run.emulator.peripherals import CoreBus
from intaglio.run.emulator.uart import Terminal, TraceUnit, UartDevice
from intaglio.run.emulator.unicorn_core import UnicornCore
from intaglio.run.firmware import build_serial
from intaglio.run.loaded import LoadedPackage


class NoDebugger:
    """The other end of semihosting, which such firmware does not use."""

    def read(self) -> bytes:
        return b""

    def write(self, data: bytes) -> None:
        return


class ServingFirmware:
    """It has booted; `serve` lets it answer."""

    def __init__(self, package: LoadedPackage, cc: str | None = None) -> None:
        manifest, target = package.manifest, target_of(package.manifest)
        if not package.bare:
            what = f"`{package.name}` is for `{manifest.target}`, not firmware"
            raise UserError("bad-option", what, hint="compile it with `--board` or for a core: `intaglio targets` lists them")
        uart = board_of(manifest, target).uart
        if uart is None:
            hint = "name a `[uart]` in the board's file, or compile with `--target` and no board: then there is one"
            raise UserError("no-uart", f"the emulator does not know the UART of the board of `{package.name}`", hint=hint)
        with tempfile.TemporaryDirectory(prefix="intaglio-serial-") as folder:
            elf = Path(folder) / f"{package.name}.elf"
            build_serial(package.folder, elf, manifest, target, firmware_toolchain(manifest, target, cc), fits=False)
            device = EmulatedDevice(package.folder, manifest, EmulatorOptions(package.emulator), elf)
        core = device.core
        if not isinstance(core, UnicornCore):
            device.close()
            raise ToolError("no-emulator", "QEMU is not connected to a serial line", hint="Unicorn is: omit `--emulator qemu`")
        self._core, self._line = core, Terminal()
        self.path = self._line.path
        core.attach(UartDevice(uart, self._line))
        if core.image.riscv:  # its mcycle is the time of this machine
            core.answer_for(f"{package.name}_cycles", CoreBus(core, target.core).now)
        elif target.core != "cortex-m0+":  # which has no counter
            core.attach(TraceUnit(core, target.core))
        core.write(core.image.address("semihosting_absent"), b"\1")
        core.write(core.image.address(f"{package.name}_app_emulated"), b"\1")

    def serve(self) -> None:
        """Until `stop`, or Ctrl-C."""
        try:
            self._core.serve(NoDebugger())
        finally:
            self._line.hang_up()

    def stop(self) -> None:
        """From another thread."""
        self._line.hang_up()
        self._core.stop()

    def close(self) -> None:
        self._core.close()
        self._line.close()
