"""Weights that are read before each layer, as C: which statements come before a block of layers.

    if (net_read_wait() != 0)                                   the weights of this layer are there
        return NET_READ_FAILED;
    if (net_read_start(NET_W_conv2_weight, arena + NET_READ_conv2, 4608) != 0)   those of the next are on their way
        return NET_READ_FAILED;
"""

from __future__ import annotations

from intaglio.ir.placement import Region
from intaglio.kernels.program import Program
from intaglio.memory.weights_read import WeightsRead, plan_reads, units
from intaglio.package.c_text import identifier, macro
from intaglio.package.weights import offset_macro


class Reads:
    """Of a program; none, where weights are mapped."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self._plan = plan_reads(program)
        self._sizes = {c.name: max(1, c.data.nbytes) for c in program.constants}
        name = identifier(program.graph.name)
        self._call, self._failed = f"{name}_read", f"        return {name.upper()}_READ_FAILED;"
        self._groups = units(program) if self._plan else []

    def __bool__(self) -> bool:
        return bool(self._plan)

    def of(self, layer: int) -> WeightsRead | None:
        """What was read for a layer."""
        return next((read for read in self._plan if read.layer <= layer <= read.last), None)

    def macro(self, read: WeightsRead) -> str:
        return macro(self._program.graph.name, "READ", self._program.layers[read.layer].name)

    def plan(self) -> list[WeightsRead]:
        return self._plan

    def before(self, layer: int, bases: dict[Region, str]) -> tuple[str, ...]:
        """Statements before the layers that start with this one. `bases`: C expressions for where arenas start, by region."""
        lines: list[str] = []
        starts = [first for first, _ in self._groups]
        if layer not in starts:
            return ()
        number = starts.index(layer)
        own = next((r for r in self._plan if r.layer == layer), None)
        if own is not None:
            if number == 0:
                lines += self._start(own, bases)
            lines += [f"    if ({self._call}_wait() != 0)", self._failed]
        if number + 1 < len(starts):
            following = next((r for r in self._plan if r.layer == starts[number + 1]), None)
            if following is not None:
                lines += self._start(following, bases)
        return tuple(lines)

    def _start(self, read: WeightsRead, bases: dict[Region, str]) -> list[str]:
        base = f"{bases[self._program.placement.slots[read.slot].region]} + {self.macro(read)}"
        lines = []
        for name, size in self._spans(read):
            at = read.places[name]
            to = base + (f" + {at}" if at else "")
            offset = offset_macro(self._program.graph.name, name)
            lines += [f"    if ({self._call}_start({offset}, {to}, {size}) != 0)", self._failed]
        return lines

    def _spans(self, read: WeightsRead) -> list[tuple[str, int]]:
        """The first constant of each piece that is in one in the file, and its bytes."""
        spans = []
        if read.fresh:
            last = read.fresh[-1]
            spans.append((read.fresh[0], read.places[last] + self._sizes[last]))
        return spans + [(name, self._sizes[name]) for name in read.places if name not in read.fresh]
