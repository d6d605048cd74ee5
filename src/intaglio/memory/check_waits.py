"""Is memory left alone while an accelerator works beside the core? From its start to the wait, nobody writes what it reads, and
nobody touches what it writes."""

from __future__ import annotations

from collections.abc import Callable

from intaglio.errors import OurFault
from intaglio.ir.graph import Value
from intaglio.ir.program import K, Program

Span = tuple[int, int]  # where, how many bytes


def check_waits(program: Program[K], where: Callable[[Value], int | None], scratch: Callable[[int], int]) -> None:
    """`where`: the place of a value in the arenas; None for what a caller gives."""

    def spans(values: list[Value]) -> list[Span]:
        return [(at, v.type.bytes) for v in values if not v.is_const and (at := where(v)) is not None and v.type.bytes]

    def written(index: int) -> list[Span]:
        layer = program.layers[index]
        own = [(scratch(index), layer.scratch_bytes)] if layer.scratch_bytes else []
        return spans(layer.node.outputs) + own

    for index, until in program.waits().items():
        reads, writes = spans(list(program.layers[index].node.operands())), written(index)
        for other in range(index + 1, until):
            theirs = program.layers[other]
            bad = [s for s in written(other) if any(_meet(s, mine) for mine in reads + writes)]
            bad += [s for s in spans(list(theirs.node.operands())) if any(_meet(s, mine) for mine in writes)]
            if bad:
                name = program.layers[index].name
                raise OurFault("bad-plan", f"layer {other} `{theirs.name}` uses memory of `{name}`, which is still at work")


def _meet(a: Span, b: Span) -> bool:
    return a[0] < b[0] + b[1] and b[0] < a[0] + a[1]
