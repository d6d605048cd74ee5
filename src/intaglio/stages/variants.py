"""One library for several processors: from here on, every variant has a graph and a target of its own."""

from __future__ import annotations

from dataclasses import replace

from intaglio.passes.context import Context
from intaglio.quantize.insert import clone
from intaglio.stages.context import Findings
from intaglio.stages.watch import Watch
from intaglio.stages.work import Model, Work, need
from intaglio.targets.variants import Variant, variants_of


def split_variants(work: Work) -> Work:
    """The work is that of the target itself; the others, for processors that can do more, go beside it. What passes say of one
    they say of all, so the others are silent, as is `--explain`."""
    model = need(work.model)
    *others, own = variants_of(model.target, work.request.variants, model.graph.name) or (None,)
    if own is None:
        return work
    made = tuple(_of_variant(work, model, variant) for variant in others if variant is not None)
    graph = replace(model.graph, name=own.prefix)
    return replace(work, variant=own, others=made, model=replace(model, graph=graph))


def _of_variant(work: Work, model: Model, variant: Variant) -> Work:
    quiet = Watch()
    graph = replace(clone(model.graph)[0], name=variant.prefix)
    findings = Findings(quiet)
    known = model.context
    context = replace(known, target=variant.target, report=findings, observe=Context(variant.target).observe)
    made = replace(model, graph=graph, target=variant.target, context=context, findings=findings)
    return replace(work, watch=quiet, variant=variant, model=made)
