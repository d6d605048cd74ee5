"""How passes run: one after the other, some only where an option asks for them, some again until nothing changes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from intaglio.errors import UserError
from intaglio.ir.graph import Array, Graph
from intaglio.ir.sizes import Undecided
from intaglio.passes.context import Context, Skipped

MOST_ROUNDS = 16  # of a group; the shared models and random graphs take fewer, which a test checks
Rewrite = Callable[[Graph, Context], Graph]


@dataclass(frozen=True, slots=True)
class Condition:
    """When a pass runs. `words` name the option for people."""

    words: str
    holds: Callable[[Context], bool]


ALWAYS = Condition("", lambda _: True)


@dataclass(frozen=True, slots=True)
class Pass:
    """A rewrite with a name. A required one cannot be switched off where its condition holds: the option is that pass."""

    name: str
    run: Rewrite
    when: Condition = ALWAYS
    required: bool = False

    @property
    def summary(self) -> str:
        return (self.run.__doc__ or "").strip().splitlines()[0]


@dataclass(frozen=True, slots=True)
class UntilSettled:
    """These passes again and again, until a round changes nothing. After `most` rounds the graph stays as it is then: each pass
    leaves a legal graph, so that a group which goes in circles costs time, not results."""

    passes: tuple[Pass, ...]
    most: int = MOST_ROUNDS


Step = Pass | UntilSettled


def named(*rewrites: Rewrite) -> tuple[Pass, ...]:
    """Passes that always run, named after their functions."""
    return tuple(Pass(rewrite.__name__, rewrite) for rewrite in rewrites)


def until_settled(*rewrites: Rewrite) -> UntilSettled:
    return UntilSettled(named(*rewrites))


def passes_of(steps: Sequence[Step]) -> Iterator[Pass]:
    for step in steps:
        yield from (step,) if isinstance(step, Pass) else step.passes


def run(steps: Sequence[Step], graph: Graph, context: Context) -> Graph:
    """Every pass whose condition holds and that is not switched off."""
    for step in passes_of(steps):
        if step.required and step.name in context.disabled and step.when.holds(context):
            what = f"{step.when.words} needs the pass `{step.name}`, which cannot be switched off"
            raise UserError("bad-option", what, hint=f"leave {step.when.words} or `--disable-pass {step.name}` out")
    for part in steps:
        graph = _run_pass(part, graph, context) if isinstance(part, Pass) else settled(part, graph, context)[0]
    return graph


def settled(group: UntilSettled, graph: Graph, context: Context) -> tuple[Graph, int]:
    """The graph after the group, and how many rounds that took, the last one without a change included."""
    before = _Snapshot.of(graph)
    for rounds in range(1, group.most + 1):
        for step in group.passes:
            graph = _run_pass(step, graph, context)
        after = _Snapshot.of(graph)
        if after == before:
            return graph, rounds
        before = after
    return graph, group.most


def _run_pass(step: Pass, graph: Graph, context: Context) -> Graph:
    if step.name in context.disabled or not step.when.holds(context):
        return graph
    before = None if graph.bounds is None or step.required else graph.pinned({})
    try:
        graph = step.run(graph, context)
    except Undecided as reason:
        if before is None:
            raise UserError("size-decides", f"the pass `{step.name}`: {reason}", hint=reason.hint) from None
        context.report(Skipped(step.name, str(reason)))
        graph = before
    context.observe(step.name, graph)
    return graph


@dataclass(frozen=True, slots=True)
class _Snapshot:
    """What a pass can change in a graph, to be compared: nodes, values and constants by identity, operators and types
    by content."""

    parts: tuple[object, ...]
    held: tuple[Array | None, ...] = field(compare=False)  # constants, so that no later one gets the same identity

    @staticmethod
    def of(graph: Graph) -> _Snapshot:
        values = list(graph.values())
        nodes = [(node, node.op, tuple(node.inputs), tuple(node.outputs), node.when) for node in graph.nodes]
        types = [(value, value.type, id(value.data)) for value in values]
        ends = (tuple(graph.inputs), tuple(graph.outputs), tuple((s.input, s.output) for s in graph.states))
        return _Snapshot((*nodes, *types, *ends), tuple(value.data for value in values))


__all__ = ["ALWAYS", "Condition", "Pass", "Step", "UntilSettled", "named", "passes_of", "run", "settled", "until_settled"]
