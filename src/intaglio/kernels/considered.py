"""Every kernel of a node with the reason why it is used or not: what `compile --explain` and the report show."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from intaglio.ir.choices import VIEW, Choices
from intaglio.ir.graph import Graph, Node
from intaglio.kernels.choice import DEVICE, choices_of, refused
from intaglio.kernels.job import Choice, Job
from intaglio.kernels.opencl.lowering import PREFIX, device_job
from intaglio.targets import Target

NOT_NEEDED = "not needed"
SPREAD = "loops for one core, spread over work-items"


@dataclass(frozen=True, slots=True)
class Considered:
    """A kernel that was looked at for a node; `reason` says why it was not used, and is empty for the one that was. `note` says
    what speaks for that one."""

    name: str
    reason: str
    note: str = ""


@dataclass(frozen=True, slots=True)
class Explained:
    """Which kernel a layer has, and all that were considered, in order."""

    layer: str
    op: str
    using: str
    considered: tuple[Considered, ...]
    parts: str = ""  # how threads divide it; "": there is one
    estimate_us: float = 0.0
    measured_us: float | None = None  # by `intaglio tune`


MEASURED = "the fastest of those that were measured"


def considered(node: Node, target: Target, using: str = "", *, tuned: bool = False) -> tuple[Considered, ...]:
    """Every kernel of the table for this node, in order. Those that apply behind the one that is used are not needed. `tuned`: the
    one that is used was measured to be the fastest."""
    if target.device and using.startswith(PREFIX):  # the last resort: the loops for one core, spread over work-items
        found = _judged(DEVICE.get(node.op.NAME, ()), device_job(node, target), "")
        return (*found, Considered(SPREAD, NOT_NEEDED if any(not kernel.reason for kernel in found) else ""))
    asked = using.partition("(")[0]
    named = any(choice.name == asked for choice in choices_of(node.op))
    by = f"`{asked}` was measured to be faster" if tuned else f"the IR file asks for `{asked}`"
    found = _judged(choices_of(node.op), Job(node, target, using), asked if named else "", by)
    return tuple(replace(kernel, note=MEASURED) if tuned and not kernel.reason else kernel for kernel in found)


def why_used(rows: Sequence[Considered]) -> str:
    """Why the kernel that is used is used, in words; nothing where none is."""
    used = next((row for row in rows if not row.reason), None)
    if used is None:
        return ""
    if used.note == MEASURED:
        return used.note
    before = [row.name for row in rows[: rows.index(used)] if row.name != used.name]
    names = list(dict.fromkeys(before))
    if names:
        told = f"{', '.join(names[:3])}{' and others' if len(names) > 3 else ''}"
        why = f"more special kernels do not apply: {told}"
    elif any(row.reason == NOT_NEEDED and row.name != used.name for row in rows):
        why = "the most special kernel for this operator"
    else:
        why = "the only kernel for this operator"
    return f"{used.note}; {why}" if used.note else why


def _judged(choices: tuple[Choice, ...], job: Job, asked: str, by: str = "") -> list[Considered]:
    found, used = [], False
    for choice in choices:
        reason = refused(choice, job) or (NOT_NEEDED if used else "")
        if not reason and asked and choice.name != asked:
            reason = by
        used = used or not reason
        found.append(Considered(choice.name, reason, "" if reason else choice.why(job)))
    return found


def explained(graph: Graph, target: Target, choices: Choices, tuned: Collection[str] = ()) -> list[Explained]:
    """For each layer that has a kernel, why it has this one. `tuned`: layers whose kernel was measured to be the fastest."""
    layers = [(node, using) for node in graph.nodes if (using := choices.of(node)) and using != VIEW]
    return [
        Explained(node.output.name, node.op.NAME, using, considered(node, target, using, tuned=node.output.name in tuned))
        for node, using in layers
    ]
