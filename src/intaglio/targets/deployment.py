"""How a package sits on its device: the board, who owns the arena, where the weights are."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path

from intaglio.errors import UserError, quoted
from intaglio.targets.board import Board, find_board, generic_board
from intaglio.targets.memories import Memory, fastest_first, main_memory, read_memories
from intaglio.targets.target import Target, find_target, optimized, precise

ARENAS = ("static", "caller")
CODE = ("flash", "ram")
IO = ("arena", "caller")
WEIGHTS = ("mapped", "read", "ram", "staged", "packed")
SAFETY = ("crc", "canary", "step", "golden", "slots", "encrypted", "steady")
WEIGHTS_HEADER_BYTES = 64
WINDOW_BYTES = 64 << 20
_SECTION = re.compile(r"[.A-Za-z_][.A-Za-z0-9_$-]{0,99}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Deployment:
    """`ram` and `flash` are what may be used of the board's, where that is less; an address is that of a weights binary."""

    board: Board | None = None  # None: an operating system is there
    static_arena: bool = True
    weights_section: str = ""
    weights_address: int | None = None
    ram: int | None = None
    flash: int | None = None
    memory_file: tuple[Memory, ...] = ()  # what the user says of memories; on a board they are its memories then
    weights_read: bool = False  # they are not mapped: each layer's are read before it runs
    limit_ms: float = 0.0  # kernels of a device that take longer are split; 0: no limit
    weights_ram: bool = False  # they are copied to RAM at start-up, as far as there is room
    weights_staged: bool = False  # layers copy them to RAM before they run, where the arena has room
    weights_packed: bool = False  # those of few values are stored in fewer bits, and unpacked before a layer runs
    code_ram: bool = False  # kernels are copied to RAM at start-up
    device: str = ""  # `opencl`: arena and weights are in its memory
    safety: tuple[str, ...] = ()  # words of SAFETY

    @property
    def memories(self) -> tuple[Memory, ...]:
        return self.board.memories if self.board else self.memory_file

    def main(self, kind: str) -> Memory | None:
        """Where stack and variables are (ram), or the code (flash); none where nothing was said."""
        return main_memory(self.memories, kind)

    @property
    def ram_bytes(self) -> int | None:
        """Of the RAM with the variables."""
        return _least(self.ram, None if (main := self.main("ram")) is None else main.bytes)

    @property
    def flash_bytes(self) -> int | None:
        """Of the flash with the code."""
        return _least(self.flash, None if (main := self.main("flash")) is None else main.bytes)

    @property
    def arena_memories(self) -> tuple[Memory, ...]:
        """Where arenas may be. `--ram` limits all of RAM; beside a memory file, the RAM of the variables alone."""
        main = self.main("ram")
        if main is None:
            return ()
        limited = replace(main, bytes=self.ram_bytes or main.bytes)
        if self.ram is not None and not self.memory_file:
            return (limited,) if main.may_hold("arena") else ()
        return tuple(limited if m is main else m for m in self.memories if m.may_hold("arena"))

    @property
    def window(self) -> int | None:
        """Where emulators have the file of weights that are read, and the firmware's own reader finds it: memory of no board."""
        if not self.weights_read or self.board is None:
            return None
        places = [0xA0000000, 0xC0000000, 0x60000000]
        if self.board.core in ("cortex-m55", "cortex-m85"):  # QEMU has memory here
            places = [0x60000000, 0x64000000, 0x68000000, *places]
        free = [at for at in places if not any(m.address < at + WINDOW_BYTES and at < m.end for m in self.board.memories)]
        return free[0] if free else None

    @property
    def weights_memories(self) -> tuple[Memory, ...]:
        """Other flashes for weights, where the user has not said where they are. `--flash` limits all of flash, like `--ram`."""
        main = self.main("flash")
        told = self.weights_read or self.weights_section or self.weights_address is not None
        if told or (self.flash is not None and not self.memory_file):
            return ()
        others = [m for m in fastest_first(self.memories, "weights") if m.mapped and (main is None or m.name != main.name)]
        return tuple(others)

    @property
    def weights_beside_code(self) -> bool:
        """The weights binary is in the flash of the code."""
        if self.board is None or self.weights_address is None:
            return False
        flash = self.board.main("flash")
        return flash.address <= self.weights_address < flash.address + flash.bytes

    def code_room(self, weight_bytes: int) -> int | None:
        """Bytes for code (and the weights, where they are linked with it), from the start of flash."""
        room = self.flash_bytes
        if room is None or self.board is None or self.weights_address is None or not weight_bytes or not self.weights_beside_code:
            return room
        if self.flash is not None:
            room -= weight_bytes + WEIGHTS_HEADER_BYTES
        return max(0, min(room, self.weights_address - self.board.main("flash").address))


HOSTED = Deployment()


def _least(*limits: int | None) -> int | None:
    return min((n for n in limits if n is not None), default=None)


def target_of(board: str | None, target: str | None, fallback: str) -> Target:
    """`--board` says which core it has."""
    return find_target(find_board(board).core if board is not None else target or fallback)


def deployment_of(
    target: Target,
    *,
    board: str | None = None,
    arena: str = "static",
    io: str = "arena",
    weights_section: str | None = None,
    weights_address: int | None = None,
    ram: int | None = None,
    flash: int | None = None,
    optimize: str = "balanced",
    memory: str | None = None,
    weights: str = "mapped",
    precision: str | None = None,
    limit_ms: float | None = None,
    safety: tuple[str, ...] = (),
    code: str = "flash",
) -> Deployment:
    """What is said about the device, checked. That options go together was checked before: `options/rules.py`."""
    precise(optimized(target, optimize), precision)
    if limit_ms is not None and not 0 < limit_ms < 1e6:
        raise UserError("bad-option", f"`--limit-kernel-time {limit_ms:g}` is not a time", hint="use milliseconds, for example 8")
    if arena not in ARENAS:
        raise UserError("bad-option", f"unknown arena {quoted(arena)}", hint="`--arena static` or `--arena caller`")
    if code not in CODE:
        raise UserError("bad-option", f"unknown value {quoted(code)} of `--code`", hint="`--code flash` or `--code ram`")
    if io not in IO:
        raise UserError("bad-option", f"unknown value {quoted(io)} of `--io`", hint="`--io arena` or `--io caller`")
    if weights_section is not None and not _SECTION.fullmatch(weights_section):
        hint = "such as `--weights-section .qspi`"
        raise UserError("bad-option", f"{quoted(weights_section)} is not the name of a section", hint=hint)
    if unknown := next((word for word in safety if word not in SAFETY), ""):
        raise UserError("bad-option", f"unknown value {quoted(unknown)} of `--safety`", hint=f"values: {', '.join(SAFETY)}")
    found = None
    if target.bare:
        found = find_board(board) if board else generic_board(target.name, riscv=target.arch.startswith("riscv"))
    if weights not in WEIGHTS:
        hint = "`--weights read`, `ram`, `staged` or `packed`"
        raise UserError("bad-option", f"unknown value {quoted(weights)} of `--weights`", hint=hint)
    told = () if memory is None else read_memories(Path(memory), addresses=target.bare)
    if found is not None and told:
        found = replace(found, memories=told)
    if code == "ram" and found is not None and not found.main("ram").may_hold("code"):
        what = f"the RAM `{found.main('ram').name}` of {quoted(found.name) if found.name else 'this core'} does not execute code"
        hint = "omit `--code ram`, or write `code` into `holds` of the memory in a file of your own"
        raise UserError("bad-option", what, hint=hint)
    if weights_address is not None and found is not None:
        _check_address(weights_address, found)
    return Deployment(
        found, arena == "static", weights_section or "", weights_address, ram, flash, told, weights == "read", limit_ms or 0.0,
        weights == "ram", weights == "staged", weights == "packed", code == "ram", target.device,
        tuple(word for word in SAFETY if word in safety or (word == "step" and "golden" in safety)),
    )  # fmt: skip


def _check_address(address: int, board: Board) -> None:
    if address % WEIGHTS_HEADER_BYTES:
        hint = f"an address such as {address // WEIGHTS_HEADER_BYTES * WEIGHTS_HEADER_BYTES:#x}"
        raise UserError("bad-option", f"`--weights-address {address:#x}` is not a multiple of {WEIGHTS_HEADER_BYTES}", hint=hint)
    flash = [m for m in board.memories if m.kind == "flash"]
    if any(m.address <= address < m.address + m.bytes for m in flash):
        return
    rooms = ", ".join(f"`{m.name}` {m.address:#x} to {m.address + m.bytes - 1:#x}" for m in flash)
    name = f"the board `{board.name}`" if board.name else f"a `{board.core}` without a board"
    raise UserError("bad-option", f"`--weights-address {address:#x}` is outside of every flash of {name}", hint=f"there is {rooms}")
