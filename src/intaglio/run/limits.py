"""Does it fit? If not: by how much, what takes most of the room, and what would help.

    error[does-not-fit]: `kws` needs 17,216 bytes of RAM, `--ram 16K` allows 16,384: 832 too many
      --> arena 16,512, inputs and outputs 502, stack 192, variables 10

    hint: the largest part is `arena`: ...

The board's memories are limits, and so are `--ram` and `--flash`.
"""

from __future__ import annotations

from dataclasses import dataclass

from intaglio.errors import AnswerIsNo
from intaglio.ir.graph import Graph
from intaglio.package.deployment import WEIGHTS_HEADER_BYTES, Deployment
from intaglio.package.manifest import FirmwareInfo, Manifest
from intaglio.targets.board import Board, all_boards


@dataclass(frozen=True, slots=True)
class Needs:
    """Bytes by what they are for; None where it is not known (yet)."""

    weights: int
    arena: int
    io: int = 0
    code: int | None = None
    data: int = 0
    static: int = 0
    stack: int | None = None

    @property
    def ram(self) -> dict[str, int]:
        return {"arena": self.arena, "inputs and outputs": self.io, "stack": self.stack or 0, "variables": self.static}

    @property
    def flash(self) -> dict[str, int]:
        return {"weights": self.weights, "code": self.code or 0, "first values of variables": self.data}


def needs_of(manifest: Manifest, info: FirmwareInfo | None) -> Needs:
    memory = manifest.memory
    if info is None:
        return Needs(memory.weight_bytes, memory.arena_bytes)
    static = info.ram_bytes - memory.arena_bytes - info.io_bytes - (info.stack_bytes or 0)
    return Needs(info.weight_bytes, memory.arena_bytes, info.io_bytes, info.code_bytes, info.data_bytes, static, info.stack_bytes)


def has_floats(graph: Graph) -> bool:
    """Does some layer compute in floats, so that integers would make it smaller?"""
    return any(value.dtype.is_float for node in graph.nodes for value in node.outputs)


def has_room_but_for_vectors(info: FirmwareInfo, deployment: Deployment) -> bool:
    limit, apart = deployment.flash_bytes, info.weight_bytes if info.weights_address is not None else 0
    return limit is not None and info.flash_bytes - apart <= limit < info.flash_bytes - apart + info.selftest_bytes


def check_limits(name: str, needs: Needs, deployment: Deployment, *, floats: bool) -> None:
    """Raise when RAM or flash is too small. `floats`: the model is one that integers would make smaller."""
    apart = deployment.weights_address is not None and deployment.board is not None
    flash = dict(needs.flash)
    if apart and needs.weights:
        _check_weights_place(name, flash.pop("weights"), sum(needs.flash.values()) - needs.weights, deployment)
    for kind, parts, limit in (("RAM", needs.ram, deployment.ram_bytes), ("flash", flash, deployment.flash_bytes)):
        total = sum(parts.values())
        if limit is None or total <= limit:
            continue
        least = "at least " if needs.code is None else ""
        what = f"`{name}` needs {least}{total:,} bytes of {kind}, {_who(kind, deployment)} {limit:,}: {total - limit:,} too many"
        ordered = sorted(((n, part) for part, n in parts.items() if n), reverse=True)
        where = ", ".join(f"{part} {n:,}" for n, part in ordered)
        hint = f"the largest part is `{ordered[0][1]}`: {_advice(ordered[0][1], floats)}{_boards(needs, deployment)}"
        raise AnswerIsNo("does-not-fit", what, where=where, hint=hint)


def _who(kind: str, deployment: Deployment) -> str:
    option = deployment.ram if kind == "RAM" else deployment.flash
    board = deployment.board
    size = None if board is None else board.ram_bytes if kind == "RAM" else board.flash_bytes
    if option is not None and (size is None or option <= size):
        return f"`--{kind.lower()}` allows"
    return f"the board `{board.name}` has" if board and board.name else "a core without a board is given"


def _advice(part: str, floats: bool) -> str:
    match part:
        case "arena" | "inputs and outputs":
            start = "`--quantize int8` makes it about a quarter, " if floats else ""
            return f"{start}a smaller input (`--shape`) makes it smaller"
        case "weights":
            start = "`--quantize int8` or `--quantize weights` makes them about a quarter, " if floats else ""
            return f"{start}`--weights-address` puts them into another flash"
        case "code":
            return "`--cflags -Os` makes it smaller"
        case _:
            return "it comes with the code"


def _boards(needs: Needs, deployment: Deployment) -> str:
    """Boards where it fits, those with the same core first; nothing when it is the user's own limit."""
    board = deployment.board
    if board is None or not board.name or deployment.ram is not None or deployment.flash is not None:
        return ""
    ram, flash = sum(needs.ram.values()), sum(needs.flash.values())
    fitting = [b for b in all_boards().values() if b.ram_bytes >= ram and b.flash_bytes >= flash]
    names = [b.name for b in sorted(fitting, key=lambda b: b.core != board.core)]
    told = ", ".join(f"`{n}`" for n in names[:4])
    return f"; boards with that much: {told}" if names else "; no board of `intaglio boards` has that much"


def _check_weights_place(name: str, weights: int, code: int, deployment: Deployment) -> None:
    """The binary lies inside of its flash, and not on the code."""
    board, address = deployment.board, deployment.weights_address
    assert board is not None and address is not None
    room = _memory_at(board, address)
    end = address + WEIGHTS_HEADER_BYTES + weights
    flash = board.main("flash")
    if end > room[1]:
        what = f"the weights of `{name}` end at {end:#x}, {end - room[1]:,} bytes behind the end of `{room[0]}`"
        last = max(0, room[1] - (end - address)) // WEIGHTS_HEADER_BYTES * WEIGHTS_HEADER_BYTES
        raise AnswerIsNo("does-not-fit", what, hint=f"a `--weights-address` up to {last:#x}")
    if flash.address <= address < flash.address + code:
        first = -(-(flash.address + code) // WEIGHTS_HEADER_BYTES) * WEIGHTS_HEADER_BYTES
        what = f"the code of `{name}` reaches to {flash.address + code:#x}, over the weights at {address:#x}"
        raise AnswerIsNo("does-not-fit", what, hint=f"a `--weights-address` from {first:#x}, better with room for code to grow")


def _memory_at(board: Board, address: int) -> tuple[str, int]:
    memory = next(m for m in board.memories if m.address <= address < m.address + m.bytes)
    return memory.name, memory.address + memory.bytes
