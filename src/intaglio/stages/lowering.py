"""The stage `kernels`: every layer gets its kernel and its tile."""

from __future__ import annotations

from dataclasses import replace

from intaglio.errors import counted, quoted
from intaglio.fitting.fit import arena_budget
from intaglio.fitting.plan import Wishes, plan_memory
from intaglio.ir.choices import VIEW
from intaglio.ir.graph import Graph
from intaglio.ir.placement import NOWHERE
from intaglio.kernels import lower
from intaglio.kernels.choice import estimate_us
from intaglio.kernels.considered import explained
from intaglio.kernels.lower import Memo
from intaglio.kernels.program import Program
from intaglio.kernels.threads.lowering import divided
from intaglio.passes import split
from intaglio.passes.analysis import analyse
from intaglio.stages.tuned import Tuning, tuning_of, with_tuned
from intaglio.stages.work import Model, Work, need
from intaglio.targets.target import Target


def graph_of(model: Model) -> Graph:
    """As it is lowered."""
    graph = model.graph
    if model.context.weights_read:
        graph = replace(graph, weights="read")
    return graph if model.is_past("kernels") else split(graph, model.context)


def choose_kernels(work: Work) -> Work:
    model = need(work.model)
    graph = graph_of(model)
    work.watch.stage("kernels")
    target, memo = _as_fast_as_fits(work, graph)
    model = replace(model, target=target)
    asked = model.source.choices
    if model.context.stream is not None:  # which made the layers of those stripes anew
        asked = replace(asked, stripes=())
    given = model.source.placement if model.is_past("memory") else NOWHERE
    tuning = tuning_of(work.request, target, work.watch)
    names: frozenset[str] = frozenset()
    if tuning is not None:
        asked, names = with_tuned(graph, asked, tuning)
        if names:
            told = counted(len(names), "layer")
            work = replace(work, tuned=f"{tuning.file.name}: {told}")
            work.watch.note(f"the kernels of {told} are those measured by `intaglio tune`: {tuning.file}")
        elif tuning.named:
            work.watch.note(f"{quoted(str(tuning.file), 200)} has no times of these layers for {_measured_as(target)}")
    program = lower(graph, target, asked, given=given, memo=memo)
    if target.threads > 1 and not any(layer.kernel.split for layer in program.layers):
        work.watch.note(f"no layer is large enough to be divided: `--threads {target.threads}` makes nothing faster here")
    _explain(work, program, tuning, names)
    return replace(work, model=replace(model, graph=graph), program=program, memo=memo)


def _measured_as(target: Target) -> str:
    return f"`{target.name}`" + (f" with {target.threads} threads" if target.threads > 1 else "")


def _as_fast_as_fits(work: Work, graph: Graph) -> tuple[Target, Memo]:
    """On a small core, kernels may use working memory to be faster as long as all of it is within `--ram` as it is: a limit that is
    no limit changes nothing. Elsewhere, and where flash is short too, a limit counts from the start."""
    request, model = work.request, need(work.model)
    target, deployment = model.target, model.deployment
    others = request.flash is not None or request.memory is not None or request.weights_read or request.feed_rows
    if not target.limited or not target.bare or others or model.is_past("kernels"):
        return target, Memo()
    free, memo = replace(target, limited=False), Memo()
    wishes = Wishes(request.io == "arena", climbing=False)
    program = plan_memory(lower(graph, free, memo=memo), free, deployment, wishes, lambda note: None, memo).program
    room = arena_budget(program, deployment, work.reserve)
    return (free, memo) if room is not None and program.arena_bytes <= room else (target, Memo())


def _explain(work: Work, program: Program, tuning: Tuning | None, tuned: frozenset[str]) -> None:
    """Estimated and measured times, and the reasons for each kernel; `tuned` are the layers whose kernel was measured."""
    target, choices, graph = need(work.model).target, program.choices, program.graph
    if work.watch.explain is None and work.watch.chosen is None:
        return
    times: dict[str, tuple[float, float | None]] = {}
    for node in graph.nodes:
        if (using := choices.of(node)) not in ("", VIEW):
            measured = None if tuning is None else tuning.measured_us(node, using)
            times[node.output.name] = (estimate_us(node, target, using), measured)
    if work.watch.explain is not None:
        rows = analyse(graph, target, choices)
        known = [(row, times.get(row.name, (row.estimate_us, None))) for row in rows]
        work.watch.explain([replace(row, estimate_us=estimate, measured_us=measured) for row, (estimate, measured) in known])
    if work.watch.chosen is not None:
        reasons = explained(graph, target, choices, tuned)
        if target.threads > 1:
            reasons = [replace(row, parts=divided(program, row.layer, target)) for row in reasons]
        work.watch.chosen([replace(row, estimate_us=times[row.layer][0], measured_us=times[row.layer][1]) for row in reasons])
