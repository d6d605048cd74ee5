"""A lowered node becomes one in parts; each part gets working memory of its own."""

from __future__ import annotations

from dataclasses import replace

from intaglio.ir.graph import Node, Value
from intaglio.kernels.job import Lowered, Packed, Scratch, same_memory
from intaglio.kernels.program import Program
from intaglio.kernels.threads.split import CORES, split
from intaglio.kernels.threads.touched import touched
from intaglio.targets import Target

PIECE = 64  # pieces of working memory are whole lines of a cache
SMALL_PIECE = 8  # of a microcontroller, which has none between its cores


def in_parts(lowered: Lowered, node: Node, target: Target) -> Lowered:
    """The same where the kernel is not split."""
    arguments, threads = list(lowered.arguments), target.threads
    held = list(zip(lowered.kernel.params, arguments, strict=True))
    own = frozenset(param for param, source in held if isinstance(source, Scratch) and source.own)
    kernel = lowered.kernel
    if kernel.split is None:  # the builder has not done it
        weights = frozenset(param for param, source in held if isinstance(source, Packed | Scratch))
        made = split(kernel, threads, same_memory(lowered, node), own, weights, CORES if target.bare else None)
        if made is None:
            return lowered
        kernel = made
    if kernel.split is not None:  # working memory of its own and constants are nobody else's business
        known = {p: s.type.elements for p, s in held if isinstance(s, Value) and s.data is None and not s.type.moves}
        kernel.split = replace(kernel.split, touched=touched(kernel, kernel.split, known))
    for n, (param, source) in enumerate(held):
        if param in own and isinstance(source, Scratch):
            piece = SMALL_PIECE if target.bare else PIECE
            each = -(-source.bytes // piece) * piece
            arguments[n] = replace(source, bytes=each * threads, each=each)
    return Lowered(kernel, arguments, lowered.using)


def divided(program: Program, layer: str, target: Target) -> str:
    """How threads or cores divide a layer, for `--explain`."""
    made = next((found.kernel.split for found in program.layers if found.name == layer), None)
    if made is None:
        return f"computed by one {'core' if target.bare else 'thread'}"
    steps = "" if made.steps == 1 else f", in {made.steps} steps"
    return f"{made.parts} parts by {' and '.join(made.loops)}{steps}; the largest is {made.balance:.2f} times the mean"
