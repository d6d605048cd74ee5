"""The stage `kernels`: every layer gets its kernel and its tile."""

from __future__ import annotations

from dataclasses import replace

from intaglio.kernels import lower
from intaglio.kernels.choice import explained
from intaglio.options.request import STAGES
from intaglio.passes import split
from intaglio.stages.work import Work, need


def choose_kernels(work: Work) -> Work:
    model = need(work.model)
    graph, target = model.graph, model.target
    graph.weights = "read" if model.context.weights_read else graph.weights
    if not model.is_past("kernels"):
        graph = split(graph, model.context)
    work.watch.stage("kernels")
    asked = model.source.choices
    if model.context.stream is not None:  # which made the layers of those stripes anew
        asked = replace(asked, stripes=())
    program = lower(graph, target, asked, given=model.source.placement)
    graph.stage = max(graph.stage, "kernels", key=STAGES.index)
    if work.watch.chosen is not None:
        work.watch.chosen(explained(graph, target, program.choices))
    return replace(work, model=replace(model, graph=graph), program=program)
