"""The stage `optimise`: passes rewrite the graph."""

from __future__ import annotations

from dataclasses import replace

from intaglio.package.accelerators import accelerators_of, aligned
from intaglio.passes import optimise as optimised
from intaglio.passes.analysis import analyse
from intaglio.passes.offload import check_given
from intaglio.stages.work import Work, need


def optimise(work: Work) -> Work:
    model, watch = need(work.model), work.watch
    graph = model.graph
    if not model.is_past("optimise"):
        watch.stage("optimise")
        if work.request.verify:
            model.findings.verifier.begin(graph)
        graph = optimised(graph, model.context)
    if model.source.format == "ir" and accelerators_of(graph):
        check_given(graph)
    target = aligned(graph, model.target)
    if watch.explain is not None and not work.wants("kernels"):  # which knows more
        watch.explain(list(analyse(graph, target, model.source.choices)))
    return replace(work, model=replace(model, graph=graph, target=target))
