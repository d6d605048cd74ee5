"""The stage `import`: options are checked, the model file becomes a graph with quantisation in its types."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from intaglio.errors import UserError, quoted
from intaglio.frontends.reading import read_source
from intaglio.ir.files import check_ir_place
from intaglio.ir.graph import Graph
from intaglio.ir.types import DType
from intaglio.memory.plan_file import PLAN_BEGINS, read_plan
from intaglio.options.request import Request, stage_index
from intaglio.options.rules import Situation, check_rules
from intaglio.package.archive import check_archive
from intaglio.package.folder import check_kind, check_output, writing
from intaglio.package.signing import check_key
from intaglio.passes import absorb, check_disabled
from intaglio.run.accuracy import read_labels
from intaglio.run.opencl.devices import find_device
from intaglio.stages.context import Findings, context_of
from intaglio.stages.work import Model, Work, need
from intaglio.targets.deployment import target_of
from intaglio.targets.target import Target, optimized, precise, threaded, wished
from intaglio.targets.variants import variants_of


def check_request(work: Work) -> Work:
    """What can be said before the model is read: it may take long."""
    request = work.request
    stage_index(request.stop_after)
    asked = None
    check_rules(Situation(request))
    request.quantization()
    if request.labels is not None:
        read_labels(request.labels)
    if request.target or request.board or request.model.suffix != ".ig":  # else the file says its target
        asked = target_of(request.board, request.target, "host")
        check_rules(Situation(request, threaded(asked, request.threads, request.cores)))
        request.deployment(asked)
        variants_of(asked, request.variants, "")
    check_disabled(request.disabled)
    for word in request.devices:
        find_device(word)
    if request.sign is not None:
        check_key(request.sign)
    _check_output(request)
    return replace(work, pinned=None if request.import_plan is None else read_plan(request.import_plan))


def _check_output(request: Request) -> None:
    if request.export_plan is not None:
        _check_folder(request.export_plan, request.output)
        check_kind(request.export_plan, "a plan of buffers", (PLAN_BEGINS,))
    if stage_index(request.stop_after) >= stage_index("package"):
        check_output(request.output, force=request.force)
        if request.archive:
            check_archive(request.output, request.archive_format, force=request.force)
    elif request.output.suffix == ".ig":
        with writing(request.output):
            check_ir_place(request.output, weights=False)  # whether it has weights of its own is seen when it is written


def _check_folder(plan: Path, output: Path) -> None:
    """The folder of a plan is there, or is one that leads to the output."""
    if not plan.parent.is_dir() and plan.absolute().parent not in output.absolute().parents:
        what = f"the folder of `--export-plan` {quoted(str(plan), 200)} does not exist"
        raise UserError("cannot-write", what, hint="create it, or use another")


def read_model(work: Work) -> Work:
    request, watch = work.request, work.watch
    dims, shapes, states, constants = dict(request.dims), dict(request.shapes), dict(request.states), dict(request.constants)
    source = read_source(
        request.model, dims, shapes, request.name, states, watch.note, constants=constants, most=request.most,
        lengths=request.lengths, random=_random(request), signature=request.signature,
    )  # fmt: skip
    graph = source.graph
    target = optimized(target_of(request.board, request.target, source.choices.target or "host"), request.optimize)
    target = wished(precise(target, request.precision), exact=request.exact, limited=request.limited)
    target = threaded(target, request.threads, request.cores)
    check_rules(Situation(request, target, source.stage, _has_halves(graph), graph.bounds is not None))
    deployment = request.deployment(target)
    target = replace(target, slow_flash=deployment.board is not None and deployment.board.wait_states > 0)
    if target.device and stage_index(source.stage) >= stage_index("optimise"):
        target = _as_stored(target, graph, request)
    findings = Findings(watch)
    context = context_of(request, target, deployment, source, findings)
    context.observe("import", graph)
    return replace(work, model=Model(source, graph, target, deployment, context, findings, source.stage))


def _random(request: Request) -> str:
    word = request.random
    if word != "input" and not (word.isascii() and word.isdigit() and int(word) < 2**32):
        hint = "use `input`, or a whole number from 0 to 4294967295 as the seed"
        raise UserError("bad-option", f"unknown value {quoted(word)} of `--random`", hint=hint)
    return word


def absorb_pairs(work: Work) -> Work:
    model = need(work.model)
    if work.request.verify:
        model.findings.verifier.begin(model.graph)
    return replace(work, model=replace(model, graph=absorb(model.graph, model.context)))


def _has_halves(graph: Graph) -> bool:
    return any(value.dtype is DType.F16 for node in graph.nodes for value in node.outputs)


def _as_stored(target: Target, graph: Graph, request: Request) -> Target:
    """For a graph that is already past the stage in which values become halves."""
    return replace(target, precision=request.precision or ("mixed" if _has_halves(graph) else "fp32"))
