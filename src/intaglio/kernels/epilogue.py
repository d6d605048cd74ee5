"""What happens to an accumulator before it is stored: the fused steps, with operands found by how they broadcast.

An extra operand of a fused operator is one of
    scalar    f32[] or all ones                 splat once
    channel   as long as the last axis           loaded per column
    full      the shape of the output            loaded where the result goes
`fuse_epilogue` fuses nothing else; `operand_kind` is its test too (through ops, see `passes/fuse_epilogue.py`).
"""

from __future__ import annotations

from dataclasses import dataclass

from intaglio.ir.graph import Value
from intaglio.ir.types import Shape
from intaglio.kernels.builder import Builder
from intaglio.kernels.expressions import apply
from intaglio.kernels.job import Job
from intaglio.kernels.lanes import Lanes
from intaglio.kernels.loop import Buffer, Expr
from intaglio.ops.base import Step


@dataclass(frozen=True, slots=True)
class Extra:
    buffer: Buffer
    kind: str


def operand_kind(shape: Shape, out: Shape) -> str | None:
    if all(d == 1 for d in shape):
        return "scalar"
    if shape == out:
        return "full"
    stripped = shape
    while stripped and stripped[0] == 1:
        stripped = stripped[1:]
    out_stripped = out
    while out_stripped and out_stripped[0] == 1:
        out_stripped = out_stripped[1:]
    if stripped == out_stripped and len(shape) <= len(out):
        return "full"
    if len(stripped) == 1 and out and stripped[0] == out[-1]:
        return "channel"
    return None


def steps_text(steps: tuple[Step, ...]) -> str:
    """The fused steps in the comment of a kernel: ` + add + relu`."""
    return "".join(f" + {s.op.NAME}" for s in steps)


@dataclass(frozen=True, slots=True)
class Epilogue:
    steps: tuple[Step, ...]
    extras: tuple[Extra, ...]

    @property
    def over(self) -> Buffer | None:
        """What the result may be written over: each element is read right before the result takes its place, and never again."""
        return next((extra.buffer for extra in self.extras if extra.kind == "full"), None)

    def finish(self, k: Builder, e: Lanes, acc: Expr, channel: Expr, place: Expr, count: int) -> Expr:
        """The value to store at `place`, whose first column is `channel`; `count` lanes are real."""
        operands = [acc]
        for extra in self.extras:
            if extra.kind == "scalar":
                operands.append(k.let("s", e.splat(Lanes.scalar().load(extra.buffer, 0))))
            elif extra.kind == "channel":
                operands.append(k.let("c", e.load(extra.buffer, channel, count if e.vector else 0)))
            else:
                operands.append(k.let("f", e.load(extra.buffer, place, count if e.vector else 0)))
        return apply(k, e, self.steps, operands)


def epilogue_of(job: Job, steps: tuple[Step, ...], extras: list[Value], out: Shape) -> Epilogue:
    found = []
    for n, value in enumerate(extras):
        kind = operand_kind(value.shape, out)
        assert kind is not None, f"operand {value} does not fit an epilogue of {out}"
        found.append(Extra(job.reads(value, f"e{n}"), kind))
    return Epilogue(steps, tuple(found))
