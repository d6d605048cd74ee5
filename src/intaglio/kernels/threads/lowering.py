"""A lowered node becomes one in parts; each part gets working memory of its own."""

from __future__ import annotations

from dataclasses import replace

from intaglio.ir.graph import Node
from intaglio.kernels.job import Lowered, Packed, Scratch, same_memory
from intaglio.kernels.program import Program
from intaglio.kernels.threads.split import split

PIECE = 64  # pieces of working memory are whole lines of a cache


def in_parts(lowered: Lowered, node: Node, threads: int) -> Lowered:
    """The same where the kernel is not split."""
    arguments = list(lowered.arguments)
    held = list(zip(lowered.kernel.params, arguments, strict=True))
    own = frozenset(param for param, source in held if isinstance(source, Scratch) and source.own)
    kernel = lowered.kernel
    if kernel.split is None:  # the builder has not done it
        weights = frozenset(param for param, source in held if isinstance(source, Packed | Scratch))
        made = split(kernel, threads, same_memory(lowered, node), own, weights)
        if made is None:
            return lowered
        kernel = made
    for n, (param, source) in enumerate(held):
        if param in own and isinstance(source, Scratch):
            each = -(-source.bytes // PIECE) * PIECE
            arguments[n] = replace(source, bytes=each * threads, each=each)
    return Lowered(kernel, arguments, lowered.using)


def divided(program: Program, layer: str) -> str:
    """How the threads divide a layer, for `--explain`."""
    made = next((found.kernel.split for found in program.layers if found.name == layer), None)
    if made is None:
        return "computed by one thread"
    steps = "" if made.steps == 1 else f", in {made.steps} steps"
    return f"{made.parts} parts by {' and '.join(made.loops)}{steps}; the largest is {made.balance:.2f} times the mean"
