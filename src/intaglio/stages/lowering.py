"""The stage `kernels`: every layer gets its kernel and its tile."""

from __future__ import annotations

from dataclasses import replace

from intaglio.ir.placement import NOWHERE
from intaglio.kernels import lower
from intaglio.kernels.choice import explained
from intaglio.kernels.threads.lowering import divided
from intaglio.passes import split
from intaglio.stages.work import Work, need


def choose_kernels(work: Work) -> Work:
    model = need(work.model)
    graph, target = model.graph, model.target
    if model.context.weights_read:
        graph = replace(graph, weights="read")
    if not model.is_past("kernels"):
        graph = split(graph, model.context)
    work.watch.stage("kernels")
    asked = model.source.choices
    if model.context.stream is not None:  # which made the layers of those stripes anew
        asked = replace(asked, stripes=())
    given = model.source.placement if model.is_past("memory") else NOWHERE
    program = lower(graph, target, asked, given=given)
    if work.watch.chosen is not None:
        rows = explained(graph, target, program.choices)
        work.watch.chosen([replace(row, parts=divided(program, row.layer)) for row in rows] if target.threads > 1 else rows)
    return replace(work, model=replace(model, graph=graph), program=program)
