"""A board as a value, read from a TOML file: a core, its clock, and the memories that a linker script needs.

core = "cortex-m4f"               # a file of targets/cores
clock_mhz = 120
wait_states = 5                   # of flash at that clock
source = "ST RM0432"              # the documents that say so

[[memory]]
name = "flash"
kind = "flash"                    # read only, where code and weights are
address = 0x08000000
bytes = 2097152

What else a memory can say is in `memories`; what is between core and memories (`[[cache]]`, `[timing]`) in `bus`; what a UART is in
`uart`. `--board mine.toml` reads a file of the user's.
"""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass, fields
from functools import cache
from importlib import resources
from pathlib import Path

from intaglio.errors import UserError, quoted
from intaglio.targets.bus import NOT_MEASURED, Cache, Timing, bus_fault, cache_of_table, timing_of_table
from intaglio.targets.memories import Memory, check_fields, fault_of, main_memory, memory_of_table
from intaglio.targets.near import files_of, listed, nearest
from intaglio.targets.target import MOST_CORES, all_targets
from intaglio.targets.uart import Uart, uart_of

__all__ = ["Board", "Memory", "all_boards", "board_of", "find_board", "generic_board", "read_board"]


@dataclass(frozen=True, slots=True)
class Board:
    name: str
    description: str
    core: str
    clock_mhz: float
    wait_states: int
    memories: tuple[Memory, ...]
    source: str = ""  # data sheet, reference manual; every board of ours names it
    qemu: str = ""  # QEMU's name of this machine, where it has one
    cores: int = 1  # equal ones, that see the same memory: `--cores`
    sio: int = 0  # RP2040, RP2350: where the FIFO between the cores is, by which the second is started
    boot: str = ""  # whose boot ROM looks for a block of its own in flash: rp2350
    cycle_csr: int = 0  # RISC-V: the register that counts cycles, where it is not mcycle
    cycle_event_csr: int = 0  # 1 is written to it: count cycles
    cycle_enable_csr: int = 0  # 1 is written to it: count
    caches: tuple[Cache, ...] = ()
    timing: Timing = NOT_MEASURED
    uart: Uart | None = None  # that firmware answers on: `intaglio validate --serial`

    def main(self, kind: str) -> Memory:
        """Where stack and variables are (ram), or the code (flash)."""
        found = main_memory(self.memories, kind)
        assert found is not None
        return found

    @property
    def ram_bytes(self) -> int:
        return self.main("ram").bytes

    @property
    def flash_bytes(self) -> int:
        return self.main("flash").bytes


@cache
def all_boards() -> dict[str, Board]:
    folder = resources.files("intaglio.targets").joinpath("boards")
    return {name: board_of(name, folder.joinpath(f"{name}.toml").read_text(encoding="utf-8")) for name in files_of("boards")}


def board_of(name: str, text: str) -> Board:
    """ValueError names the field that is at fault."""
    return board_of_tables(name, tomllib.loads(text))


def board_of_tables(name: str, table: dict[str, object], *, addresses: bool = True) -> Board:
    table = dict(table)
    rows, caches, timing = table.pop("memory", None), table.pop("cache", []), table.pop("timing", {})
    if not isinstance(rows, list | tuple) or not all(isinstance(row, dict) for row in rows):
        raise ValueError("it has no `[[memory]]`")
    if not isinstance(caches, list | tuple) or not all(isinstance(row, dict) for row in caches):
        raise ValueError("`cache` is not `[[cache]]`")
    if not isinstance(timing, dict):
        raise ValueError("`timing` is not `[timing]`")
    uart = uart_of(table.pop("uart", None))
    own = [f for f in fields(Board) if f.name not in ("name", "memories", "caches", "timing", "uart")]
    check_fields(table, own, "")
    return Board(
        name=name,
        memories=tuple(memory_of_table(row, addresses=addresses) for row in rows),
        caches=tuple(cache_of_table(row) for row in caches),
        timing=timing_of_table(timing),
        uart=uart,
        **table,  # type: ignore[arg-type]  # checked above
    )


EMULATED_UART = 0x40004000  # as an MPS2 has it
# Large memories of QEMU's MPS2 with an M7 and of its MPS3, where they are not at the usual place.
_M7 = (0x00000000, 0x60000000)
_MPS3 = (0x70000000, 0x71000000)
_QEMU_HAS = {"cortex-m7": _M7, "cortex-m7-sp": _M7, "cortex-m55": _MPS3, "cortex-m85": _MPS3}


def generic_board(core: str, *, riscv: bool = False) -> Board:
    """For a core without a board: room enough that memory is no limit, at addresses that emulators have."""
    flash, ram = (0x20000000, 0x80000000) if riscv else _QEMU_HAS.get(core, (0x00000000, 0x21000000))
    memories = (Memory("flash", "flash", flash, 16 << 20), Memory("ram", "ram", ram, 16 << 20))
    return Board("", "no board", core, 0.0, 0, memories, uart=Uart("cmsdk", EMULATED_UART))


# Boards that people ask for, with a core that has no file in targets/cores.
_NO_CORE = {"esp32": "Xtensa LX6", "esp32-s2": "Xtensa LX7", "esp32-s3": "Xtensa LX7", "ch32v003": "RISC-V with 16 registers"}


def find_board(name: str) -> Board:
    """One of ours by name, or one of the user's by its file."""
    if name.endswith(".toml"):
        return read_board(Path(name))
    boards = all_boards()
    if (core := _NO_CORE.get(name.lower())) is not None:
        hint = "`--target generic --stop-after package` writes plain C, without firmware, for the compiler of its maker"
        raise UserError("unknown-board", f"{quoted(name)} has a core that is not supported: {core}", hint=hint)
    if name not in boards:
        near = nearest(name, boards, cutoff=0.4)
        nearer = f"the nearest: {listed(near)}; `intaglio boards` lists all" if near else "`intaglio boards` lists all"
        word = name.lower()
        hint = f"`{word}` is a target: use `--target {word}`" if word in ("host", "opencl", *all_targets()) else nearer
        raise UserError("unknown-board", f"unknown board {quoted(name)}", hint=hint)
    return boards[name]


def read_board(path: Path) -> Board:
    shown = quoted(str(path), 200)
    hint = "it needs `description`, `core`, `clock_mhz`, `wait_states` and `[[memory]]` with `name`, `kind`, `address`, `bytes`"
    try:
        board = board_of(path.stem, path.read_text(encoding="utf-8"))
        fault = _fault(board)
    except OSError as error:
        raise UserError(
            "bad-board", f"cannot read the board {shown}: {error.strerror}", hint="`intaglio boards` lists the known boards"
        ) from None
    except ValueError as error:
        raise UserError("bad-board", f"{shown} does not describe a board: {error}", hint=hint) from None
    if fault:
        raise UserError("bad-board", f"{shown} does not describe a board: {fault}", hint=hint)
    return board


def _fault(board: Board) -> str:
    """Why there is no such board, or nothing."""
    cores = [t.name for t in all_targets().values() if t.bare]
    if not re.fullmatch(r"[\w.+-]{1,80}", board.name, re.ASCII):
        return "its file name may have only letters, digits, `_`, `-`, `+` and `.`"
    if board.core not in cores:
        return f"`core` must be one of {', '.join(cores)}"
    if board.cores not in (1, MOST_CORES):
        return f"`cores` must be 1 or {MOST_CORES}"
    if not all(isinstance(n, int | float) and n >= 0 for n in (board.clock_mhz, board.wait_states)):
        return "`clock_mhz` and `wait_states` must be numbers"
    if fault := fault_of(board.memories):
        return fault
    if fault := bus_fault(board.caches, board.timing, board.memories):
        return fault
    if main_memory(board.memories, "ram") is None or main_memory(board.memories, "flash") is None:
        return "it needs a flash for code, and a ram for stack and variables"
    return ""
