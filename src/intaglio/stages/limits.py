"""Needs against the limits of the device, with what could help."""

from __future__ import annotations

from dataclasses import replace

from intaglio.fitting.limits import Chances, Needs, ShortOfRam, chances_of, check_limits
from intaglio.fitting.weights import plan_weights
from intaglio.stages.work import Work, need


def check_needs(work: Work, needs: Needs) -> None:
    """Raise where it does not fit. `can_shrink` of the error: a smaller arena is worth a try."""
    if not work.checking:
        return
    model, planned = need(work.model), need(work.planned)
    name = planned.program.graph.name if work.variant is None else work.variant.network
    try:
        check_limits(name, needs, model.deployment, _chances(work))
    except ShortOfRam as short:
        short.can_shrink = bool(planned.rungs) and planned.reached
        raise


def _chances(work: Work) -> Chances:
    request, model, program = work.request, need(work.model), need(work.program)
    shapes = bool(request.dims or request.shapes)
    found = chances_of(program, shapes=shapes, fed=request.feed_rows, quantised=request.in_integers)
    stored = plan_weights(program.constants, model.deployment).size_bytes if model.target.device else found.weights
    return replace(found, weights=stored)
