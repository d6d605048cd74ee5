"""Weights in several flashes: what is read least per byte goes to a slower one, as much of it as has to.

    flash   512 KB, fast      code, weights of convolutions     each byte takes part in many multiply-adds
    qspi      8 MB, slow      weights of dense layers           each byte takes part in one

Nothing moves where all of it fits beside the code.
"""

from __future__ import annotations

from collections.abc import Sequence

from intaglio.ir.program import Constant, K, Program
from intaglio.memory.lifetimes import align
from intaglio.memory.regions import Room
from intaglio.memory.weights_read import constants_of

_STEP = 8  # a bound of what alignment costs each constant


def spread_weights(program: Program[K], main_bytes: int, others: Sequence[Room]) -> None:
    """Set the memory of the constants that leave the main flash, which has `main_bytes` for weights. What fits nowhere stays."""
    for constant in program.constants:
        constant.memory = ""
    total = sum(_size(c) for c in program.constants)
    if total <= main_bytes:
        return
    heat = reads_per_byte(program)
    room = {other.memory: other.bytes for other in others}
    for constant in sorted(program.constants, key=lambda c: (heat.get(c.name, 0.0), -c.data.nbytes, c.name)):
        size = _size(constant)
        to = next((memory for memory, free in room.items() if free >= size), None)
        if to is None:
            continue
        constant.memory = to
        room[to] -= size
        total -= size
        if total <= main_bytes:
            return


def reads_per_byte(program: Program[K]) -> dict[str, float]:
    """Multiply-adds per byte of the constants, by constant."""
    sizes = {c.name: c.data.nbytes for c in program.constants}
    found: dict[str, float] = {}
    for index, layer in enumerate(program.layers):
        names = constants_of(program, index)
        bytes_read = sum(sizes.get(name, 0) for name in names)
        work = max(layer.macs, sum(v.type.elements for v in layer.node.outputs))
        for name in names:
            found[name] = found.get(name, 0.0) + work / max(1, bytes_read)
    return found


def _size(constant: Constant) -> int:
    return align(max(1, constant.data.nbytes), _STEP)
