"""The stage `memory`: every buffer gets its address, within the limits of the device."""

from __future__ import annotations

from dataclasses import replace

from intaglio.fitting.budget import Climbed
from intaglio.fitting.plan import Wishes, plan_memory
from intaglio.fitting.weights import plan_weights
from intaglio.kernels import lower
from intaglio.kernels.program import Program
from intaglio.memory.place import placed_buffers
from intaglio.memory.plan_file import plan_text
from intaglio.package.accelerators import check_reach
from intaglio.package.folder import write_text
from intaglio.stages.work import Model, Work, need
from intaglio.targets.deployment import Deployment
from intaglio.targets.target import optimized


def plan(work: Work) -> Work:
    request, model, program = work.request, need(work.model), need(work.program)
    target, deployment = model.target, model.deployment
    work.watch.stage("memory")
    slots = bool(target.device) or (target.bare and request.io == "arena")
    wishes = Wishes(slots, work.pinned, request.feed_rows, work.reserve, work.climbing, work.watch.chosen is not None)
    planned = plan_memory(program, target, deployment, wishes, work.watch.note, work.memo)
    if target.device and not model.is_past("kernels") and _is_too_large(planned.program, deployment):
        planned = _without_working_memory(model, wishes, work)
    check_reach(planned.program, deployment)
    if request.verify:
        model.findings.verifier.kernels(planned.program)
        work.watch.note(model.findings.verifier.told())
    if request.export_plan is not None:
        kept = work.pinned.pinned if work.pinned is not None else frozenset()
        write_text(request.export_plan, plan_text(placed_buffers(planned.program, target), kept))
    return replace(work, program=planned.program, planned=planned)


def _is_too_large(program: Program, deployment: Deployment) -> bool:
    """For the memory of a device, which has the weights too."""
    need_bytes = program.arena_bytes + plan_weights(program.constants, deployment).size_bytes
    return deployment.ram is not None and need_bytes > deployment.ram


def _without_working_memory(model: Model, wishes: Wishes, work: Work) -> Climbed:
    """Plain kernels replace those that trade working memory and larger weights for speed (Winograd)."""
    graph, target, deployment = model.graph, model.target, model.deployment
    planned = plan_memory(lower(graph, optimized(target, "size")), target, deployment, wishes, work.watch.note)
    if not _is_too_large(planned.program, deployment):
        work.watch.note("within `--ram`, convolutions are computed without Winograd's working memory")
    return planned
