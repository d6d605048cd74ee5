"""Firmware on qemu-system-arm, driven through the port that it has for debuggers: the firmware needs nothing for it.

Needed for the Cortex-M55, whose vectors Unicorn does not have. A machine of QEMU has its own memories: firmware for another
board runs where its addresses happen to be there. Instructions are counted by a small plug-in of QEMU.
"""

from __future__ import annotations

import re
import shutil
import socket
import subprocess
import tempfile
import time
from pathlib import Path

import numpy as np

from intaglio.errors import ToolError, UserError
from intaglio.run.emulator.core import BOOT_BYTES, Stops, fault, memory_of
from intaglio.run.emulator.counting import LEAST_ROWS, ROW, BasicBlock, Counts, Times
from intaglio.run.emulator.gdb import Closed, Debugger
from intaglio.run.emulator.image import Image
from intaglio.run.emulator.machines import machine_of, missing, what_runs
from intaglio.run.emulator.native import compiled
from intaglio.targets.accelerator import Device
from intaglio.targets.board import Board

SP, LR, PC, XPSR = 13, 14, 15, 25
THUMB = 1 << 24
VECTOR_TABLE = 0xE000ED08  # the register that says where it is
FAULTS = ("HardFault", "MemManage", "BusFault", "UsageFault", "SecureFault")  # from entry 3 of the vector table
START_SECONDS = 30.0
BYTES_PER_SECOND = 1 << 27  # of code, at least: what is slower does not end
PLUGIN_VERSIONS = (1, 2, 4)


class QemuCore:
    def __init__(self, image: Image, board: Board, core: str) -> None:
        self.image, self.board = image, board
        self._folder = tempfile.TemporaryDirectory(prefix="intaglio-qemu-")
        self._rows: np.ndarray[tuple[int], np.dtype[np.void]] | None = None
        self._process: subprocess.Popen[bytes] | None = None
        try:
            machine = machine_of(board, core)
            _check_memories(machine, image, board, core)
            program = need_qemu(core, machine)
            self.about = _version(program)
            self._debugger = self._start(program, machine)
            self._boot()
        except Closed as error:
            raise self._lost(error) from None
        except BaseException:
            self.close()
            raise

    # Starting ---------------------------------------------------------------------------------------------------------

    def _start(self, program: str, machine: str) -> Debugger:
        """With the plug-in that counts, of the version that this QEMU takes; without one where none is taken."""
        said = ""
        for version in (*PLUGIN_VERSIONS, None):
            plugin = () if version is None else self._plugin(version)
            if version is not None and not plugin:
                continue
            port = Path(self._folder.name) / "gdb"
            port.unlink(missing_ok=True)
            command = (
                program, "-machine", machine, "-kernel", str(self.image.path), "-S", "-gdb", f"unix:{port},server=on,wait=off",
                "-display", "none", "-serial", "none", "-monitor", "none", *plugin,
            )  # fmt: skip
            log = Path(self._folder.name) / "log"
            with open(log, "wb") as file:
                self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=file, stderr=file)
            connection = self._connect(port)
            if connection is not None:
                if version is None:
                    self._rows = None
                return Debugger(connection)
            said = log.read_text(errors="replace").strip().splitlines()[-1:][0] if log.stat().st_size else "it ended"
        raise ToolError("emulator-failed", f"`{program}` does not start: {said}", hint="it may be older than QEMU 5, or broken")

    def _connect(self, port: Path) -> socket.socket | None:
        assert self._process is not None
        end = time.monotonic() + START_SECONDS
        while self._process.poll() is None and time.monotonic() < end:
            connection = socket.socket(socket.AF_UNIX)
            try:
                connection.connect(str(port))
                return connection
            except OSError:
                connection.close()
                time.sleep(0.01)
        self._end()
        return None

    def _plugin(self, version: int) -> tuple[str, ...]:
        library = compiled("qemu_plugin.c", (f"-DPLUGIN_VERSION={version}",))
        if library is None:
            return ()
        count = LEAST_ROWS
        while count < 2 * self.image.code_bytes:
            count *= 2
        path = Path(self._folder.name) / "counts"
        path.write_bytes(bytes(count * ROW.itemsize))
        self._rows = np.memmap(path, ROW, "r+")
        return ("-plugin", f"{library},into={path}")

    def _boot(self) -> None:
        table = self.board.main("flash").address
        words = [int.from_bytes(self.read(table + 4 * i, 4), "little") for i in range(8)]
        self._main = self.image.address("main")
        self._faults = {words[3 + i] & ~1: name for i, name in reversed(list(enumerate(FAULTS))) if words[3 + i] & ~1}
        self.write(VECTOR_TABLE, table.to_bytes(4, "little"))
        ram = self.board.main("ram")
        self._debugger.set_register(SP, words[0] if memory_of(self.board, words[0] - 1) else ram.address + ram.bytes)
        self._debugger.set_register(PC, words[1] & ~1)
        self._debugger.set_register(XPSR, THUMB)
        for address in {*self._faults, self._main}:
            self._debugger.stop_at(address)
        for part in self.image.parts:
            if self.read(part.address, 4) != part.data[:4]:
                self.write(part.address, part.data)  # flashed apart from the ELF file
        self._go(BOOT_BYTES, {})

    # Running ----------------------------------------------------------------------------------------------------------

    def read(self, address: int, size_bytes: int) -> bytes:
        try:
            return self._debugger.read(address, size_bytes)
        except Closed as error:
            raise self._lost(error) from None

    def write(self, address: int, data: bytes) -> None:
        try:
            self._debugger.write(address, data)
        except Closed as error:
            raise self._lost(error) from None

    def call(self, function: str, limit_bytes: int, stops: Stops = {}) -> int:  # noqa: B006 (never written)
        d = self._debugger
        try:
            for address in stops:
                d.stop_at(address)
            d.set_register(LR, self._main | 1)
            d.set_register(PC, self.image.address(function))
            try:
                self._go(limit_bytes, stops)
            finally:
                if self._process is not None and self._process.poll() is None:
                    for address in stops:
                        d.do_not_stop_at(address)
            return self.argument(0)
        except Closed as error:
            raise self._lost(error) from None

    def _go(self, limit_bytes: int, stops: Stops) -> None:
        """Until `main` is reached."""
        end = time.monotonic() + START_SECONDS + limit_bytes / BYTES_PER_SECOND
        while True:
            try:
                self._debugger.ask("c", max(1.0, end - time.monotonic()))
            except TimeoutError:
                self._debugger.interrupt(START_SECONDS)
                raise fault(self, "does not end", self._debugger.register(PC)) from None
            pc = self._debugger.register(PC)
            if pc == self._main:
                return
            if pc in self._faults:
                raise self._fault(self._faults[pc])
            if pc not in stops:
                raise fault(self, "stopped for no known reason", pc)
            stops[pc]()
            self._debugger.step_over(pc)

    def _fault(self, name: str) -> Exception:
        """The processor has put registers on the stack; the seventh word is where it happened."""
        frame = self.read(self.stack_pointer(), 32)
        status, address = (int.from_bytes(self.read(at, 4), "little") for at in (0xE000ED28, 0xE000ED38))
        what = "runs an instruction that this core does not have" if status & 0x10000 else f"raises a {name}, CFSR {status:#010x}"
        if status & 0x8000:
            what += f", at an access to {address:#010x}"
        return fault(self, what, int.from_bytes(frame[24:28], "little"))

    def _lost(self, error: Closed) -> ToolError:
        log = Path(self._folder.name) / "log"
        said = " ".join(log.read_text(errors="replace").split())[:200] if log.is_file() else ""
        hint = "try again; QEMU may be broken or older than 5 (`qemu-system-arm --version` shows it)"
        return ToolError("emulator-failed", f"QEMU stopped: {error} {said}".strip(), hint=hint)

    def argument(self, index: int) -> int:
        value = self._debugger.register(index)
        return value - (1 << 32) if value >> 31 else value

    def stack_pointer(self) -> int:
        return self._debugger.register(SP)

    def counts(self) -> Counts | None:
        if self._rows is None:
            return None
        used = self._rows[self._rows["size"] != 0]
        return Counts({BasicBlock(a, s): Times(n, t) for a, s, n, t in used.tolist()})

    # Ending -----------------------------------------------------------------------------------------------------------

    def _end(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def attach(self, device: Device) -> None:
        hint = "omit `--emulator qemu`: Unicorn has the accelerator's registers"
        raise ToolError("no-emulator", "QEMU does not support the registers of a plug-in", hint=hint)

    def stall(self, cycles: int) -> None:
        """There are no devices."""

    def close(self) -> None:
        self._end()
        self._rows = None
        self._folder.cleanup()

    def __del__(self) -> None:
        self.close()


def _version(program: str) -> str:
    """`QEMU 7.2.22`"""
    try:
        said = subprocess.run((program, "--version"), capture_output=True, text=True, timeout=START_SECONDS).stdout
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ToolError("emulator-failed", f"`{program}` does not answer: {error}", hint="it may be broken") from None
    found = re.search(r"version (\S+)", said)
    return f"QEMU {found[1]}" if found else "QEMU"


def need_qemu(core: str, machine: str) -> str:
    if not machine:
        hint = "omit `--emulator qemu`: Unicorn has it"
        raise UserError("no-emulator", f"QEMU has no machine with this `{core}`", hint=hint)
    program = shutil.which("qemu-system-arm")
    if program is None:
        hint = "install it (Debian: `apt install qemu-system-arm`)"
        if core != "cortex-m55":
            hint += ", or use `--emulator unicorn`"
        raise ToolError("no-emulator", f"a `{core}` is emulated by qemu-system-arm, which is not installed", hint=hint)
    return program


def _check_memories(machine: str, image: Image, board: Board, core: str) -> None:
    if lacks := missing(machine, board, [(part.address, len(part.data)) for part in image.parts]):
        made_for = f"the board `{board.name}`" if board.name else f"`{core}`"
        what = f"QEMU cannot run firmware for {made_for}: its machine `{machine}` has no memory for the {lacks}"
        unicorn = "" if core == "cortex-m55" else "omit `--emulator qemu`: Unicorn runs it; "
        raise UserError("no-emulator", what, hint=unicorn + what_runs(core))
