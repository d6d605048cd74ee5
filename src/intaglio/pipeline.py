"""The straight line: a model file goes through the stages in order and becomes a package.

Each stage takes and returns plain data (`stages/work.py`). It can be the last one (`--stop-after`), and its IR file can be resumed
from.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Unpack

from intaglio.errors import AnswerIsNo, IntaglioError, UserError
from intaglio.fitting.budget import RESERVE_BYTES
from intaglio.fitting.limits import ShortOfRam
from intaglio.frontends.objects import save_object, saved_objects
from intaglio.ir.sizes import Undecided
from intaglio.kernels.program import Program
from intaglio.memory.ladder import Rung
from intaglio.options.entries import entry_keywords
from intaglio.options.keywords import Keywords, check_keywords
from intaglio.options.reading import request_for, request_of_keywords, unfit
from intaglio.options.request import Request
from intaglio.options.speaking import in_python, spoken_in_python
from intaglio.package.archive import check_archive, write_archive
from intaglio.package.folder import check_output, fresh_folder
from intaglio.run.entry_points import EntryPoints
from intaglio.run.opencl.library import DeviceOptions
from intaglio.run.package import Package
from intaglio.stages.building import build
from intaglio.stages.common_ways import in_one_order
from intaglio.stages.current import is_current, made_again
from intaglio.stages.entries import (
    are_current,
    arena_of,
    begin,
    check_entries,
    check_targets,
    complete,
    entry_request,
    largest_first,
    network_name,
    of_entry,
)
from intaglio.stages.finishing import finish, write_stage
from intaglio.stages.importing import absorb_pairs, check_request, read_model
from intaglio.stages.lowering import choose_kernels, graph_of
from intaglio.stages.notebook import notebook_progress
from intaglio.stages.optimising import optimise
from intaglio.stages.packaging import write_package
from intaglio.stages.planning import plan
from intaglio.stages.quantising import measure_accuracy, quantise
from intaglio.stages.variants import split_variants
from intaglio.stages.watch import Watch
from intaglio.stages.work import Model, Work, need
from intaglio.targets.deployment import Deployment
from intaglio.targets.target import Target

MOST_ATTEMPTS = 3


@dataclass(frozen=True, slots=True)
class Stage:
    """`part` is the stage of `--stop-after` that it belongs to; `each`: of every variant by itself."""

    name: str
    part: str
    run: Callable[[Work], Work]
    each: bool = False


LINE: tuple[Stage, ...] = (
    Stage("check", "import", check_request),
    Stage("import", "import", read_model),
    Stage("absorb", "import", absorb_pairs),
    Stage("quantise", "import", quantise),
    Stage("variants", "optimise", split_variants),
    Stage("optimise", "optimise", optimise, each=True),
    Stage("kernels", "kernels", choose_kernels, each=True),
    Stage("memory", "memory", plan, each=True),
    Stage("package", "package", write_package),
    Stage("build", "build", build),
    Stage("finish", "package", finish),
)


SETTLED = [stage.name for stage in LINE].index("kernels")  # those before do not depend on the RAM that is left for the arena


def go(work: Work, line: tuple[Stage, ...] = LINE) -> Work:
    """Through the stages that are asked for."""
    for stage in line:
        if work.wants(stage.part):
            others = tuple(stage.run(other) for other in work.others) if stage.each else ()
            work = stage.run(work)
            work = replace(work, others=others) if others else work
    return work


def compile_request(request: Request, watch: Watch) -> Package | Path:
    """A package, or the IR file of the stage to stop after. A package that is there and up to date stays as it is.

    Stack and variables are known when the firmware is built: where RAM is short by them, the arena is made smaller by as much. The
    optimised graph stays as it is."""
    if is_current(request):
        watch.current()
        return Package(request.output)
    request = made_again(request)
    work = _attempts(go(Work(request, watch), LINE[:SETTLED]))
    if work.written is None:
        return write_stage(work)
    package = Package(request.output)
    measure_accuracy(request, package, watch)
    if request.archive:
        write_archive(request.output, request.archive_format)
    return package


def compile_entry_requests(
    requests: Mapping[str, Request], output: Path, watch: Watch, *, name: str | None = None, force: bool = False
) -> Path:
    """A package with several entry points: by name, what each is compiled from and how."""
    network = network_name(name, output, [request.model for request in requests.values()])
    check_entries(requests)
    packed = [request.archive_format for request in requests.values() if request.archive][:1]
    if not force and not packed and are_current(requests, network, output):
        watch.current()
        return output
    check_output(output, force=force)
    for format in packed:
        check_archive(output, format, force=force)
    lowered, planned = ([stage.name for stage in LINE].index(name) for name in ("memory", "package"))
    with fresh_folder(output, force=force) as folder:
        works = {}
        for entry, request in requests.items():
            with of_entry(entry, requests):
                works[entry] = go(Work(entry_request(request, network, entry, folder), watch), LINE[:lowered])
        check_targets(works)
        works = {entry: go(work, LINE[lowered:planned]) for entry, work in in_one_order(works).items()}
        common = begin(network, works, folder)
        arena_of(network, works, folder)
        for entry in largest_first(works):
            with ExitStack() as stack:
                go(replace(works[entry], stack=stack, shared=common), LINE[planned:])
        complete(network, works, common, folder)
    for format in packed:
        write_archive(output, format)
    return output


def _attempts(work: Work) -> Work:
    reserve = work.reserve
    for attempt in range(MOST_ATTEMPTS):
        try:
            return _complete(replace(work, reserve=reserve))
        except ShortOfRam as short:
            if not short.can_shrink or attempt == MOST_ATTEMPTS - 1:
                raise
            reserve += short.missing_bytes
    raise AssertionError("the last attempt returns or raises")


def _complete(work: Work) -> Work:
    """The stages from the kernels on; the package is in its place then."""
    with ExitStack() as stack:
        return go(replace(work, stack=stack), LINE[SETTLED:])


@dataclass(frozen=True, slots=True)
class Planned:
    """A program with its addresses, what it is for, and the rungs of the ladder that it took."""

    program: Program
    rungs: tuple[Rung, ...]
    target: Target
    deployment: Deployment


def plan_request(request: Request, watch: Watch, reserve: int = RESERVE_BYTES, *, climbing: bool = True) -> Planned:
    """The stages up to memory, for questions about it. Without `climbing`, no limit makes layers slower."""
    work = go(Work(replace(request, stop_after="memory"), watch, reserve, climbing))
    model, planned = need(work.model), need(work.planned)
    return Planned(planned.program, planned.rungs, model.target, model.deployment)


def least_rungs(request: Request) -> tuple[Rung, ...]:
    """The least arena with stripes, and with rows of the input fed: what `compile` does under a limit that is too small for any
    plan. A rung that gains nothing on the one before is left out."""
    found: list[Rung] = []
    for fed in (False, True):
        try:
            rungs = plan_request(replace(request, feed_rows=fed, ram=1), Watch()).rungs
        except UserError:  # the input has no rows
            continue
        if rungs and rungs[-1].arena_bytes < min((r.arena_bytes for r in found), default=rungs[-1].arena_bytes + 1):
            found.append(rungs[-1])
    return tuple(found)


@dataclass(frozen=True, slots=True)
class Built:
    """What `compile` makes, and why it would not give it out: it does not fit."""

    planned: Planned
    package: Package
    refusal: AnswerIsNo | None = None


def build_request(request: Request, watch: Watch, *, climbing: bool = True, hopeless: bool = False) -> Built:
    """A package for questions about its size and speed: what does not fit is built all the same, as small as it gets. Without
    `climbing` it is built as it is, and no limit counts. `hopeless`: the limit is one that nothing fits, and nobody asks why."""
    work = go(Work(request, watch, climbing=climbing, checking=climbing and not hopeless), LINE[:SETTLED])
    refusal = None
    try:
        work = _attempts(work)
    except AnswerIsNo as no:
        refusal = no
        work = _complete(replace(work, checking=False))
    model, planned = need(work.model), need(work.planned)
    return Built(Planned(planned.program, planned.rungs, model.target, model.deployment), Package(request.output), refusal)


def graph_to_lower(request: Request, watch: Watch) -> Model:
    """The stages before kernels are chosen, for `tune`."""
    model = need(go(Work(replace(request, stop_after="kernels"), watch), LINE[:SETTLED]).model)
    graph = model.graph
    for name in graph.bounds.ranges if graph.bounds is not None else ():
        what = "depends on data" if name in graph.counts else "has a range"
        hint = "its kernels are chosen by estimates" + ("" if name in graph.counts else f"; or give one size: `--dim {name}=64`")
        raise UserError("bad-option", f"`tune` measures layers of one size, and `{name}` {what}", hint=hint)
    return replace(model, graph=graph_of(model))


def compile(
    model: str | Path | object,
    *,
    example_inputs: tuple[object, ...] | None = None,
    output: str | Path | None = None,
    progress: Callable[[str, int, int], None] | None = None,
    **options: Unpack[Keywords],
) -> Package:
    """Compile a model into a package; without `output`, into a temporary one that lives as long as the result.

    `model` is a file, a PyTorch module with `example_inputs` (a tuple of tensors), an exported program, a Keras model, or a fitted
    model of scikit-learn, XGBoost, LightGBM or CatBoost. `compile_entries` takes several of these.
    Options are those of docs/reference/options.md: `target`, `board`, `ram`, `dims`, `quantize`, `calibrate`, ...
    `device` names one or several OpenCL devices of this machine whose programs go into the package; the package runs on the first.
    `progress` is called with what is done, how much of it, and how much there is; notebooks show it by themselves.
    """
    try:
        with notebook_progress() as shown:
            return _compile_object(model, example_inputs, output, options, progress or shown)
    except Undecided as error:
        raise spoken_in_python(UserError("size-decides", str(error), hint=error.hint)) from error
    except IntaglioError as error:
        raise spoken_in_python(error) from error.__cause__


def _compile_object(
    model: object,
    example_inputs: tuple[object, ...] | None,
    output: str | Path | None,
    options: Keywords,
    progress: Callable[[str, int, int], None] | None,
) -> Package:
    check_keywords(options)
    if output is not None and not isinstance(output, (str, Path)):
        raise unfit("output", output, "path")
    temporary = None if output is not None else tempfile.TemporaryDirectory(prefix="intaglio-")
    folder = Path(output) if output is not None else Path(temporary.name if temporary else "") / "package"
    request = request_of_keywords(Path(), folder, options)
    notes: list[str] = []
    with tempfile.TemporaryDirectory(prefix="intaglio-") as place:
        path = Path(model) if isinstance(model, (str, Path)) else save_object(model, example_inputs, Path(place), notes.append)
        compile_request(request_for(path, request), Watch(note=notes.append, progress=progress))
    package = Package(folder, temporary, device=DeviceOptions(next(iter(request.devices), None)))
    package.notes = tuple(in_python(note) for note in notes)
    return package


def compile_entries(
    models: str | Path | Mapping[str, object], *, output: str | Path | None = None, **options: object
) -> EntryPoints:
    """Several models, by the names of their entry points, as one package: weights that are the same stand once, and one arena
    serves all. A model is a file, an object as for `compile`, or a mapping with options of its own:
    `{"model": "step.onnx", "dims": {"T": 1}}`, `{"model": module, "example_inputs": (x,)}`. One model with a list of sizes
    (`dims={"T": [32, 128]}`), and a TFLite file with several signatures, get an entry point for each of them. Options are those of
    `compile`."""
    temporary = None if output is not None else tempfile.TemporaryDirectory(prefix="intaglio-")
    folder = Path(output) if output is not None else Path(temporary.name if temporary else "") / "package"
    notes: list[str] = []
    try:
        with tempfile.TemporaryDirectory(prefix="intaglio-") as place:
            for given in (options, *(models.values() if isinstance(models, Mapping) else ())):
                check_keywords(given if isinstance(given, Mapping) else {})
            own = entry_keywords(saved_objects(models, Path(place), notes.append), options)
            requests = {entry: _request(model, folder, given) for entry, (model, given) in own.items()}
            name, force = options.get("name"), bool(options.get("force"))
            compile_entry_requests(requests, folder, Watch(note=notes.append), name=str(name) if name else None, force=force)
    except Undecided as error:
        raise spoken_in_python(UserError("size-decides", str(error), hint=error.hint)) from error
    except IntaglioError as error:
        raise spoken_in_python(error) from error.__cause__
    made = EntryPoints(folder, temporary)
    made.notes = tuple(in_python(note) for note in notes)
    return made


def _request(model: Path, folder: Path, given: Mapping[str, object]) -> Request:
    check_keywords(given)
    return request_of_keywords(model, folder, given)
