"""Does it fit? If not: how much is missing, what takes most of the room, and what would help.

    error[does-not-fit]: `kws` needs 17,216 bytes of RAM, `--ram 16K` allows 16,384: 832 too many
      --> arena 16,512, inputs and outputs 502, stack 192, variables 10

    hint: the largest part is `arena`: ...

The board's memories are limits, and so are `--ram` and `--flash`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from intaglio.errors import AnswerIsNo
from intaglio.ir.graph import Graph, Value
from intaglio.ir.offload import Offload
from intaglio.ir.sizes import Undecided, moves
from intaglio.ir.types import DType
from intaglio.kernels.program import ConstantArg, Program
from intaglio.kernels.stripes.build import AXIS
from intaglio.kernels.stripes.schedule import rows_by
from intaglio.memory.ladder import peak_of
from intaglio.memory.lifetimes import find_storage
from intaglio.ops.rows import NoRows, access_of
from intaglio.targets.board import Board, all_boards
from intaglio.targets.deployment import WEIGHTS_HEADER_BYTES, Deployment


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
    elsewhere: tuple[tuple[str, int], ...] = ()  # of the arena, in memories other than that of the variables
    weights_elsewhere: tuple[tuple[str, int], ...] = ()  # beside `weights`, in memories other than that of the code
    weights_ram: int = 0  # that are copied to RAM at start-up; in flash they are beside `weights`
    on_device: bool = False  # an OpenCL device: arena and weights are in its memory

    @property
    def main_ram(self) -> dict[str, int]:
        """In the memory of the variables."""
        return {**self.ram, "arena": self.arena - sum(n for _, n in self.elsewhere)}

    @property
    def ram(self) -> dict[str, int]:
        if self.on_device:
            return {"arena": self.arena, "weights": self.weights}
        parts = {"arena": self.arena, "inputs and outputs": self.io, "stack": self.stack or 0, "variables": self.static}
        return {**parts, "weights": self.weights_ram} if self.weights_ram else parts

    @property
    def flash(self) -> dict[str, int]:
        return {"weights": self.weights + self.weights_ram, "code": self.code or 0, "first values of variables": self.data}


class InMemory(Protocol):
    """Bytes in a memory; "" is that of the variables."""

    @property
    def memory(self) -> str: ...
    @property
    def bytes(self) -> int: ...


def elsewhere(arenas: Sequence[InMemory], deployment: Deployment) -> tuple[tuple[str, int], ...]:
    """Arenas that are not in the memory of the variables."""
    main = deployment.main("ram")
    return tuple((a.memory, a.bytes) for a in arenas if main is not None and a.memory not in ("", main.name))


def weights_beside(total: int, apart: tuple[tuple[str, int], ...], deployment: Deployment) -> tuple[tuple[str, int], ...]:
    """Weights that are not in the flash of the code: in others, or, where they are read, all of them."""
    return (("", total),) if deployment.weights_read else apart


def has_floats(graph: Graph) -> bool:
    """Does some layer compute in floats, so that integers would make it smaller?"""
    return any(value.dtype.is_float for node in graph.nodes for value in node.outputs)


def _between(graph: Graph) -> list[Value]:
    """Values between layers: those of inputs and outputs stay as they are in the model."""
    return [value for node in graph.nodes for value in node.outputs if value not in graph.outputs]


def peak_layer(program: Program) -> str:
    """The layer that has most of the arena alive."""
    storage = find_storage(program, 1, slots=program.has_slots)
    peak = peak_of(storage.buffers, 1, storage.apart)
    layers = program.layers
    return "" if peak is None or not layers else layers[min(peak.layer, len(layers) - 1)].name


@dataclass(frozen=True, slots=True)
class Chances:
    """What could make the model smaller: integers instead of floats, a smaller input; and the layer with most of the arena."""

    floats: bool = False
    shapes: bool = False
    peak: str = ""
    bound: int = 0  # no plan of these buffers has a smaller arena
    rows: bool = False  # of the input, which could be fed one by one
    striped: bool = False  # already
    weights: int = 0  # bytes, and the layer that has most of them
    heaviest: str = ""
    offloaded: bool = False  # layers are with an accelerator, which computes them as a whole
    wide: bool = False  # floats of 32 bits, which a device could store in 16
    range_: str = ""  # of a size that the caller gives, and half as large
    whole: str = ""  # why the layer at the peak is not made a few rows at a time
    float_io: bool = False  # of a network in integers, which `--integer-io` makes integers too


NO_CHANCES = Chances()


def chances_of(program: Program, *, shapes: bool = False, fed: bool = False, quantised: bool = False) -> Chances:
    """`quantised`: here, so that its floats are those that were to stay, or of inputs and outputs."""
    graph = program.graph
    outside = quantised and any(value.dtype.is_float for value in (*graph.inputs, *graph.outputs))
    rows = not fed and not program.stripes_fed and _could_be_fed(program) and graph.bounds is None
    narrower = next((f"{n}={span.halved()}" for n, span in graph.given_ranges().items()), "")
    weights, heaviest = _weights(program)
    peak = peak_layer(program)
    return Chances(
        has_floats(graph) and not quantised, shapes, peak, program.lower_bound_bytes, rows, bool(program.stripes),
        weights, heaviest, any(isinstance(node.op, Offload) for node in graph.nodes),
        any(value.dtype is DType.F32 for value in _between(graph)), narrower, _why_whole(program, peak), outside,
    )  # fmt: skip


def _why_whole(program: Program, peak: str) -> str:
    """Of the layer with most of the arena; "" if it could be part of a stripe."""
    layer = next((each for each in program.layers if each.name == peak), None)
    if layer is None or program.graph.bounds is None:
        return ""
    batch = layer.node.output.shape[:AXIS]
    if moves(batch):
        return f"there are `{batch[0]}` of them in a batch"
    try:
        rows_by([layer.node], [access_of(layer.node, AXIS)], AXIS)
    except (NoRows, Undecided) as reason:
        return str(reason)
    return ""


def _weights(program: Program) -> tuple[int, str]:
    """Bytes of all weights, and the layer that has most of them."""
    sizes = {c.name: c.data.nbytes for c in program.constants}
    layers = {
        layer.name: sum(sizes.get(a.name, 0) for a in layer.arguments if isinstance(a, ConstantArg)) for layer in program.layers
    }
    return sum(sizes.values()), max(layers, key=lambda name: layers[name], default="")


def _could_be_fed(program: Program) -> bool:
    states = {s.input for s in program.graph.states}
    given = [v for v in program.graph.inputs if v not in states]
    first = next((layer.node for layer in program.layers if any(v in given for v in layer.node.operands())), None)
    if program.graph.bounds is not None:
        return False
    if len(given) != 1 or first is None or given[0].type.rank < 2 or given[0].shape[1] < 2:
        return False
    try:
        access_of(first, 1)
    except NoRows:
        return False
    return True


class ShortOfRam(AnswerIsNo):
    """Only RAM is missing, and so much of it."""

    missing_bytes: int
    needs: Needs
    can_shrink = False  # by making the arena smaller


def check_limits(name: str, needs: Needs, deployment: Deployment, chances: Chances = NO_CHANCES) -> None:
    """Raise when RAM or flash is too small, or both."""
    _check_elsewhere(name, needs, deployment, chances)
    flash = dict(needs.flash)
    if deployment.weights_read:
        _check_file(name, sum(size for _, size in needs.weights_elsewhere), deployment)
    if deployment.weights_address is not None and deployment.board is not None and needs.weights:
        weights = flash.pop("weights")
        if deployment.weights_beside_code and deployment.flash is not None:
            flash["weights"] = weights + WEIGHTS_HEADER_BYTES
        else:
            _check_weights_place(name, weights, sum(flash.values()), deployment)
    whats, wheres, hints = [], [], []
    for kind, parts, limit in (("RAM", needs.main_ram, deployment.ram_bytes), ("flash", flash, deployment.flash_bytes)):
        total = sum(parts.values())
        if limit is None or total <= limit:
            continue
        least = "at least " if needs.code is None and not needs.on_device else ""
        memory = "device memory" if needs.on_device and kind == "RAM" else kind
        beside = " beside stack and variables" if least and kind == "RAM" and needs.stack is None and deployment.board else ""
        whats.append(f"{least}{total:,} bytes of {memory}{beside}, {_who(kind, deployment)} {limit:,}: {total - limit:,} too many")
        whats[-1] += _beside(deployment, needs) if kind == "RAM" else ""
        ordered = sorted(((n, part) for part, n in parts.items() if n), reverse=True)
        wheres.append(", ".join(f"{part} {n:,}" for n, part in ordered))
        hints += [f"the largest part of {memory} is `{ordered[0][1]}`", *_advice(ordered[0][1], deployment, chances, needs.arena)]
        for part in ("arena", "weights"):  # whatever is the largest: what the model itself has
            if parts.get(part) and ordered[0][1] != part:
                hints += _advice(part, deployment, chances, needs.arena)
    if whats:
        hint = _sentences([*hints, *_boards(needs, deployment)])
        text, where = f"`{name}` needs {'; and '.join(whats)}", "; ".join(wheres)
        ram = sum(needs.main_ram.values()) - (deployment.ram_bytes or 0)
        if len(whats) > 1 or ram <= 0:
            raise AnswerIsNo("does-not-fit", text, where=where, hint=hint)
        short = ShortOfRam("does-not-fit", text, where=where, hint=hint)
        short.missing_bytes, short.needs = ram, needs
        raise short
    if deployment.weights_beside_code and deployment.flash is not None and needs.weights:
        _check_weights_place(name, needs.weights, sum(needs.flash.values()) - needs.weights, deployment)


def _check_elsewhere(name: str, needs: Needs, deployment: Deployment, chances: Chances) -> None:
    """Arenas in other memories: planned ones fit, those of an edited IR file may not."""
    sizes = {m.name: m.bytes for m in deployment.arena_memories}
    flashes = {m.name: m.bytes for m in deployment.weights_memories}
    for memory, used in needs.weights_elsewhere if not deployment.weights_read else ():
        if used > (room := flashes.get(memory, 0)):
            what = f"`{name}` has {used:,} bytes of weights for `{memory}`, which has {room:,}: {used - room:,} too many"
            raise AnswerIsNo("does-not-fit", what, hint=_sentences(_advice("weights", deployment, chances)))
    for memory, used in needs.elsewhere:
        if used > (room := sizes.get(memory, 0)):
            what = f"`{name}` needs {used:,} bytes of RAM in `{memory}`, which has {room:,}: {used - room:,} too many"
            hint = _sentences(_advice("arena", deployment, chances))
            raise AnswerIsNo("does-not-fit", what, hint=hint)


def _check_file(name: str, weights: int, deployment: Deployment) -> None:
    """Of the memories that are not mapped, if there are any, one is large enough for the file of weights."""
    rooms = [m for m in deployment.memories if not m.mapped and m.may_hold("weights")]
    size = weights + WEIGHTS_HEADER_BYTES
    if rooms and size > max(m.bytes for m in rooms):
        largest = max(rooms, key=lambda m: m.bytes)
        too_many = f"{size - largest.bytes:,} too many"
        what = f"the weights of `{name}` are a file of {size:,} bytes, `{largest.name}` has {largest.bytes:,}: {too_many}"
        raise AnswerIsNo("does-not-fit", what, hint="`--quantize int8` or `--quantize weights` reduces them to about a quarter")


def _beside(deployment: Deployment, needs: Needs) -> str:
    """The other memories, which do not help."""
    main = deployment.main("ram")
    others = [m for m in deployment.arena_memories if main is not None and m.name != main.name]
    if not others or main is None:
        return ""
    told = ", ".join(f"`{m.name}` {m.bytes:,}" for m in others)
    if needs.elsewhere:
        return f" in `{main.name}`"
    return f" for `{main.name}`; the live buffers do not fit together with {told} either"


def _who(kind: str, deployment: Deployment) -> str:
    option = deployment.ram if kind == "RAM" else deployment.flash
    board = deployment.board
    if deployment.memory_file and option is None:
        memory = deployment.main(kind.lower())
        return f"the memory `{memory.name if memory else ''}` has"
    size = None if board is None else board.ram_bytes if kind == "RAM" else board.flash_bytes
    if option is not None and (size is None or option <= size):
        return f"`--{kind.lower()}` allows"
    return f"the board `{board.name}` has" if board and board.name else "a core without a board has"


def _sentences(parts: Sequence[str]) -> str:
    """Several sentences as one hint; as in every hint, the first one begins with a small letter."""
    return ". ".join(part if n == 0 else part[:1].upper() + part[1:] for n, part in enumerate(parts))


def _advice(part: str, deployment: Deployment, chances: Chances, arena: int = 0) -> list[str]:
    told = []
    match part:
        case "arena" | "inputs and outputs":
            if part == "arena" and chances.peak:
                why = f", which cannot be made a few rows at a time: {chances.whole}" if chances.whole else ""
                told.append(f"most of the arena is live in layer `{chances.peak}`{why}")
            if part == "arena" and chances.bound:
                stripes = ", even with stripes" if chances.striped else ""
                told.append(f"no plan needs less than {chances.bound:,} bytes for the arena alone{stripes}")
                if chances.bound < arena:
                    told[-1] += f"; the smallest that was found has {arena:,}"
            if chances.offloaded:
                told.append("without `--accelerator`, layers can run a few rows at a time")
            elif chances.rows and not deployment.device:
                told.append("`--feed-rows` takes the input row by row")
            if chances.wide and deployment.device:
                told.append("`--precision mixed` or `fp16` may halve it")
            if chances.floats:
                told.append("`--quantize int8` reduces it to about a quarter")
            if chances.float_io:
                told.append("`--integer-io` makes inputs and outputs integers, without floats beside them")
            if chances.range_:
                told.append(f"memory is planned for the largest size: a narrower range, such as `{chances.range_}`, reduces it")
            elif chances.shapes:
                told.append("a smaller input (`--dim` or `--shape`) reduces it")
            if not (chances.floats or chances.float_io or chances.shapes or chances.rows or chances.offloaded):
                told.append("a network with a smaller input or fewer channels needs less")
        case "weights":
            if chances.heaviest:
                told.append(f"the weights have {chances.weights:,} bytes, most of them in layer `{chances.heaviest}`")
            if chances.floats:
                told.append("`--quantize int8` or `--quantize weights` reduces them to about a quarter")
            if deployment.board is not None and sum(m.kind == "flash" for m in deployment.board.memories) > 1:
                told.append("`--weights-address` places them in another flash")
            if not deployment.device:
                told.append("`--weights read` reads them from a memory that is not mapped")
            elif chances.wide:
                told.append("`--precision mixed` or `fp16` may halve those of float layers")
        case "code":
            told.append("`--optimize size` reduces the code")
        case _:
            told.append("it is part of the code")
    return told


def _boards(needs: Needs, deployment: Deployment) -> list[str]:
    """Boards where it fits, those with the same core first; nothing when it is the user's own limit."""
    board = deployment.board
    if board is None or not board.name or deployment.ram is not None or deployment.flash is not None:
        return []
    ram, flash = sum(needs.ram.values()), sum(needs.flash.values())
    fitting = [b for b in all_boards().values() if b.ram_bytes >= ram and b.flash_bytes >= flash]
    names = [b.name for b in sorted(fitting, key=lambda b: b.core != board.core)]
    told = ", ".join(f"`{n}`" for n in names[:4])
    return [f"boards with enough memory: {told}" if names else "no board of `intaglio boards` has enough memory"]


def _check_weights_place(name: str, weights: int, code: int, deployment: Deployment) -> None:
    """The binary lies inside of its flash, and not on the code."""
    board, address = deployment.board, deployment.weights_address
    assert board is not None and address is not None
    room = _memory_at(board, address)
    end = address + WEIGHTS_HEADER_BYTES + weights
    flash = board.main("flash")
    if end > room[1]:
        what = f"the weights of `{name}` end at {end:#x}, {end - room[1]:,} bytes beyond the end of `{room[0]}`"
        last = max(0, room[1] - (end - address)) // WEIGHTS_HEADER_BYTES * WEIGHTS_HEADER_BYTES
        raise AnswerIsNo("does-not-fit", what, hint=f"use a `--weights-address` up to {last:#x}")
    if flash.address <= address < flash.address + code:
        first = -(-(flash.address + code) // WEIGHTS_HEADER_BYTES) * WEIGHTS_HEADER_BYTES
        what = f"the code of `{name}` extends to {flash.address + code:#x}, over the weights at {address:#x}"
        raise AnswerIsNo("does-not-fit", what, hint=f"use a `--weights-address` from {first:#x}, with room for the code to grow")


def _memory_at(board: Board, address: int) -> tuple[str, int]:
    memory = next(m for m in board.memories if m.address <= address < m.address + m.bytes)
    return memory.name, memory.address + memory.bytes
