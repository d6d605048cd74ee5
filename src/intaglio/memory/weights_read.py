"""Weights that are not mapped (`--weights read`): each layer's are read into the arena before it runs.

    layer 0        wait for 0, start reading 1, compute 0       weights of 0: layers 0 to 0
    layer 1        wait for 1, start reading 2, compute 1       weights of 1: layers 0 to 1
    layer 2        wait for 2, compute 2                        weights of 2: layers 1 to 2

While a layer computes, the next one's weights are on their way: a buffer lives from the layer before to its own. Layers of a stripe
work together, so theirs are read together. In the file, weights are in the order in which they are read; one that several layers
share is in it once, and read for each.
"""

from __future__ import annotations

from dataclasses import dataclass

from intaglio.ir.program import Argument, ConstantArg, K, Program

SLOT = "weights"  # of Program.slots: where the weights of layer n are


@dataclass(frozen=True, slots=True)
class WeightsRead:
    """What the layers `layer` to `last` need; the memory for it is taken from layer `first` on."""

    layer: int
    first: int
    last: int
    fresh: tuple[str, ...]  # in the file one behind the other, as in memory
    places: dict[str, int]  # every constant, in bytes from the start of the memory
    bytes: int

    @property
    def slot(self) -> tuple[str, int]:
        return SLOT, self.layer


def units(program: Program[K]) -> list[tuple[int, int]]:
    """Layers that work together, first and last: stripes, and single layers."""
    found: list[tuple[int, int]] = []
    for index in range(len(program.layers)):
        if not found or index > found[-1][1]:
            found.append(program.span(index))
    return found


def plan_reads(program: Program[K]) -> list[WeightsRead]:
    """Nothing, where weights are mapped."""
    if program.graph.weights != "read":
        return []
    sizes = {c.name: c.data.nbytes for c in program.constants}
    seen: set[str] = set()
    found: list[WeightsRead] = []
    groups = units(program)
    for n, (first, last) in enumerate(groups):
        names = list(dict.fromkeys(name for index in range(first, last + 1) for name in constants_of(program, index)))
        fresh = tuple(name for name in names if name not in seen)
        places: dict[str, int] = {}
        end = 0
        for name in [*fresh, *(name for name in names if name in seen)]:
            places[name] = end
            end = _align(end + max(1, sizes[name]), program.alignment)
        seen.update(fresh)
        if names:
            found.append(WeightsRead(first, groups[n - 1][0] if n else first, last, fresh, places, end))
    return found


def file_offsets(program: Program[K], start: int) -> tuple[dict[str, int], int]:
    """Where each constant is in the file, and where the file ends. What no layer reads (a constant output) comes last."""
    sizes = {c.name: c.data.nbytes for c in program.constants}
    offsets: dict[str, int] = {}
    end = start
    for read in plan_reads(program):
        base = _align(end, program.alignment)
        for name in read.fresh:
            offsets[name] = base + read.places[name]
            end = offsets[name] + max(1, sizes[name])
    for name, size in sizes.items():
        if name not in offsets:
            offsets[name] = _align(end, program.alignment)
            end = offsets[name] + max(1, size)
    return offsets, end


def constants_of(program: Program[K], index: int) -> list[str]:
    """The constants that a layer reads, each once, in the order of its arguments; those of a stripe by its actions."""
    arguments: list[Argument] = list(program.layers[index].arguments)
    stripe = program.stripe_at(index)
    if stripe is not None:
        arguments += [a for action in stripe.actions if action.layer == index for a in action.arguments]
    return list(dict.fromkeys(a.name for a in arguments if isinstance(a, ConstantArg)))


def _align(size: int, alignment: int) -> int:
    return -(-size // alignment) * alignment
