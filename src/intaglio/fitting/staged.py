"""Weights staged in RAM (`--weights staged`): a layer copies its weights to working memory before it runs, where the arena has room
while it runs, and where that gains.

    conv3   4,608 bytes, read 64 times      ~147,000 cycles of waits      ~141,000 less: staged
    conv9  36,864 bytes, read 16 times      ~295,000                      the arena has 23,552 bytes free: not staged
    dense     640 bytes, read once              ~320                      the copy would take longer

The arena does not grow, unless a `--ram` says how large it may be. Layers that gain most come first; where the planner finds no
place for all of them, those that gain least are given up.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from intaglio.fitting.fast_weights import IN_RAM, reads_of, waits
from intaglio.ir.placement import NOWHERE
from intaglio.kernels.loop import Kernel
from intaglio.kernels.program import ConstantArg, Layer, Program, ScratchArg
from intaglio.kernels.staged import can_be_staged, staged
from intaglio.memory import placed
from intaglio.memory.lifetimes import align
from intaglio.memory.place import placed_buffers
from intaglio.targets.board import Board
from intaglio.targets.target import Target

COPY_CYCLES, COPIED_BYTES, CALL_CYCLES = 14, 16, 40  # four loads and four stores, a round of memcpy; a call of it
LEAST_GAIN = 500  # cycles: less is not worth the code
STEP = 8


@dataclass(frozen=True, slots=True)
class Found:
    """A layer and its largest constant: what it waits for, and what staging would gain."""

    index: int
    layer: str
    param: int
    bytes: int
    elements: int
    reads: float
    waits: int
    gain: int
    why_not: str = ""


def stage_weights(
    program: Program, target: Target, board: Board | None, room_bytes: int, slots: bool
) -> tuple[Program, list[Found]]:
    """The program in which layers stage their weights, within an arena of `room_bytes`; and what was found out about each layer."""
    if program.stripes or len(program.placement.arena_sizes()) > 1:
        return program, []
    found = [_found(program, index, board) for index in range(len(program.layers))]
    alive = _alive(program, target)
    rows = [
        replace(f, why_not=f"the arena has {max(0, room_bytes - alive[f.index]):,} bytes free")
        if not f.why_not and align(f.bytes, STEP) + alive[f.index] > room_bytes
        else f
        for f in found
        if f is not None
    ]
    chosen = sorted((f for f in rows if not f.why_not), key=lambda f: -f.gain)
    while chosen:
        made = _with(program, chosen)
        planned = placed(replace(made, placement=NOWHERE), target, slots=slots)
        if planned.arena_bytes <= room_bytes:
            return planned, rows
        rows = [replace(f, why_not="the planner finds no place for it") if f is chosen[-1] else f for f in rows]
        chosen.pop()
    return program, rows


def _found(program: Program, index: int, board: Board | None) -> Found | None:
    layer = program.layers[index]
    constants = {c.name: c for c in program.constants}
    held = [(constants[a.name].data.nbytes, n, a.name) for n, a in enumerate(layer.arguments) if isinstance(a, ConstantArg)]
    if not held:
        return None
    size, param, name = max(held)
    reads = reads_of(layer.macs, size)
    waited, first = waits(board, size, reads), waits(board, size, 1.0)
    gain = round(waited - first - size / COPIED_BYTES * COPY_CYCLES - CALL_CYCLES)
    why_not = ""
    if constants[name].memory == IN_RAM:
        why_not = "its weights are in RAM"
    elif not can_be_staged(layer.kernel):
        why_not = "several cores compute it, or an accelerator does"
    elif gain < LEAST_GAIN:
        why_not = "the copy would take as long"
    elements = size // layer.kernel.params[param].dtype.bytes
    return Found(index, layer.name, param, size, elements, reads, round(waited), gain, why_not)


def _alive(program: Program, target: Target) -> list[int]:
    """Bytes of the arena that are taken while each layer runs."""
    buffers = placed_buffers(program, target)
    return [
        sum(align(b.bytes, STEP) for b in buffers if b.first <= index <= b.last) for index in range(len(program.layers))
    ]


def _with(program: Program, chosen: list[Found]) -> Program:
    made: dict[tuple[int, int], Kernel] = {}
    changed: dict[int, Layer] = {}
    for f in chosen:
        layer = program.layers[f.index]
        key = (id(layer.kernel), f.elements)
        if key not in made:
            made[key] = staged(layer.kernel, f.param, f.elements)
        scratch = ScratchArg(align(f.bytes, STEP), align(layer.scratch_bytes, STEP))
        changed[f.index] = replace(layer, kernel=made[key], arguments=(*layer.arguments, scratch))
    return exchanged(program, changed)


def exchanged(program: Program, changed: dict[int, Layer]) -> Program:
    """With these layers by their numbers, whose kernels are new, and without kernels that no layer has any more."""
    layers = [changed.get(index, layer) for index, layer in enumerate(program.layers)]
    kernels = {id(k): k for k in program.kernels}
    for layer in changed.values():
        kernels.setdefault(id(layer.kernel), layer.kernel)
        layer.kernel.used_by.append(layer.node.source or layer.name)
    used = {id(layer.kernel) for layer in layers}
    waiting = {id(layer.kernel.wait) for layer in layers if layer.kernel.wait is not None}
    return replace(program, layers=layers, kernels=[k for key, k in kernels.items() if key in used | waiting])


def staged_text(rows: list[Found]) -> str:
    done = [f for f in rows if not f.why_not]
    if not done:
        return "no weights are staged in RAM: flash has no waits, or the arena has no room while a layer runs"
    size, cycles = max(f.bytes for f in done), sum(f.gain for f in done)
    copies = f"{len(done)} of {len(rows)} layers copy their weights to RAM before they run, at most {size:,} bytes"
    return f"{copies}: about {cycles:,} cycles less"


def staged_line(f: Found) -> str:
    """For `--explain`."""
    about = f"`{f.layer}`: {f.bytes:,} bytes of weights, read {f.reads:.0f} times, about {f.waits:,} cycles of waits for flash"
    return f"{about}; {f'not staged: {f.why_not}' if f.why_not else f'staged, about {f.gain:,} cycles less'}"
