"""Machines of qemu-system-arm and their memories: firmware for a board runs on one where its addresses are there."""

from __future__ import annotations

from intaglio.targets.board import Board

MACHINES = {  # its Cortex-M33 have no FPU
    "cortex-m3": "mps2-an385", "cortex-m4": "mps2-an386", "cortex-m7": "mps2-an500", "cortex-m55": "mps3-an547",
}  # fmt: skip
BOARDS = {"mps2-an386": "mps2-an386", "mps3-an547": "mps3-an547"}  # of ours, by machine
_MB = 1 << 20
_MEMORIES = {  # address, bytes
    "mps2-an385": ((0x00000000, 4 * _MB), (0x20000000, 4 * _MB), (0x21000000, 16 * _MB)),
    "mps2-an386": ((0x00000000, 4 * _MB), (0x20000000, 4 * _MB), (0x21000000, 16 * _MB)),
    "mps2-an500": ((0x00000000, 4 * _MB), (0x20000000, 4 * _MB), (0x60000000, 16 * _MB)),
    "mps3-an547": (
        (0x00000000, _MB // 2), (0x01000000, 2 * _MB), (0x10000000, _MB // 2), (0x11000000, 2 * _MB), (0x20000000, _MB // 2),
        (0x21000000, 4 * _MB), (0x30000000, _MB // 2), (0x31000000, 4 * _MB), (0x60000000, 512 * _MB),
    ),
}  # fmt: skip


def machine_of(board: Board, core: str) -> str:
    """Empty where there is none with this core."""
    return board.qemu or MACHINES.get(core, "")


def missing(machine: str, board: Board, spans: list[tuple[int, int]]) -> str:
    """What of the firmware (address, bytes) and of the board's RAM the machine has no memory for, as words; or nothing."""
    rooms = _MEMORIES.get(machine)
    if rooms is None:  # a machine that a user's board names
        return ""
    ram = board.main("ram")
    for what, address, size in [*(("flash", *span) for span in spans), ("RAM", ram.address, ram.bytes)]:
        if not any(start <= address and address + size <= start + room for start, room in rooms):
            return f"{what} at {address:#010x}"
    return ""


def runs_on_qemu(board: Board, core: str) -> bool:
    machine = machine_of(board, core)
    return bool(machine) and not missing(machine, board, [(board.main("flash").address, 256)])


def what_runs(core: str) -> str:
    """Of this core, what QEMU can run: words for a hint."""
    machine = MACHINES.get(core, "")
    if not machine:
        return ""
    board = f", or with `--board {BOARDS[machine]}`" if machine in BOARDS else ""
    return f"a package compiled with `--target {_TARGETS.get(core, core)}` and no board{board} runs on QEMU"


_TARGETS = {"cortex-m4": "cortex-m4f"}
