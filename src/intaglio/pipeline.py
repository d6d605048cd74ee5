"""The straight line, as one function: model, graph, optimised graph, kernels, memory, package, build.

Each stage takes and returns plain data, can be the last one (`stop_after`), and can be resumed from its IR file.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from difflib import get_close_matches
from functools import partial
from inspect import signature
from pathlib import Path
from typing import Any

from intaglio.errors import UserError, quoted
from intaglio.fitting.budget import RESERVE_BYTES, Climbed
from intaglio.fitting.limits import (
    Chances,
    Needs,
    ShortOfRam,
    chances_of,
    check_limits,
    elsewhere,
)
from intaglio.fitting.plan import Wishes, plan_memory
from intaglio.fitting.weights import plan_weights
from intaglio.frontends.objects import save_object
from intaglio.frontends.reading import Source, read_source
from intaglio.ir.files import check_ir_place, write_ir
from intaglio.ir.graph import Array, Graph
from intaglio.ir.types import DType
from intaglio.kernels import lower
from intaglio.kernels.choice import explained
from intaglio.kernels.program import Program
from intaglio.memory.place import placed_buffers
from intaglio.memory.plan_file import plan_text, read_plan
from intaglio.package.accelerators import accelerators_of, aligned, check_reach
from intaglio.package.archive import check_archive, write_archive
from intaglio.package.figures import write_figures
from intaglio.package.folder import check_output, fresh_folder, write_text, writing
from intaglio.package.manifest import FirmwareInfo, Manifest, StreamInfo, write_manifest
from intaglio.package.needs import has_room_but_for_vectors, needs_of
from intaglio.package.selftest import write_selftest
from intaglio.package.source import keep_model
from intaglio.package.write import Origin, write_project
from intaglio.passes import Context, absorb, check_disabled, narrow, optimise, prepare, split
from intaglio.quantize.settings import SCHEMES, Account, Settings, silent
from intaglio.run.build import BuildOptions, build_project
from intaglio.run.expect import expected_vectors, tool_versions
from intaglio.run.firmware import build_package, check_placed
from intaglio.run.firmware_tools import find_firmware_toolchain
from intaglio.run.opencl.application import fill_cache
from intaglio.run.opencl.devices import find_device
from intaglio.run.opencl.library import DeviceOptions
from intaglio.run.package import Package
from intaglio.run.toolchains import find_toolchain
from intaglio.stages import (
    STAGES,
    WEIGHT_SCHEMES,
    Device,
    Findings,
    Quantization,
    Request,
    Watch,
    check_device,
    context_of,
    stage_index,
)
from intaglio.targets.deployment import Deployment, deployment_of, target_of
from intaglio.targets.target import Target, optimized, precise
from intaglio.version import __version__

MOST_VECTOR_BYTES = 128 << 20
MOST_ATTEMPTS = 3


@dataclass(frozen=True, slots=True)
class Lowered:
    """A model as far as its program: kernels and, after the memory stage, addresses."""

    planned: Climbed  # with the rungs of the ladder that were needed to stay within a limit
    source: Source
    target: Target
    deployment: Deployment
    account: Account | None
    pinned: frozenset[str]  # buffers whose place the user chose
    stream: StreamInfo | None = None
    turned: bool = False  # rows of the input are rows of pixels, where the model has planes

    @property
    def program(self) -> Program:
        return self.planned.program


def compile_model(request: Request, watch: Watch) -> Package | Path:
    """A package, or the IR file of the stage to stop after."""
    if stage_index(request.stop_after) >= stage_index("package"):
        check_output(request.output, force=request.force)
        if request.archive:
            check_archive(request.output, request.archive, force=request.force)
    elif request.output.suffix == ".ig":
        with writing(request.output):
            check_ir_place(request.output, weights=False)  # whether it has weights of its own is seen when it is written
    reserve = RESERVE_BYTES
    for _ in range(MOST_ATTEMPTS):
        made = plan_model(request, watch, reserve)
        if isinstance(made, Path):
            return made
        try:
            return _made(made, request, watch)
        except ShortOfRam as short:  # stack and variables were not known before: the arena has to be smaller by that much
            last = short
            if not made.planned.rungs or not made.planned.reached:  # it is as small as it gets
                break
            reserve += short.missing_bytes
    raise last


def _made(made: Lowered, request: Request, watch: Watch) -> Package | Path:
    program, graph, target = made.program, made.program.graph, made.target
    if request.export_plan is not None:
        write_text(request.export_plan, plan_text(placed_buffers(program, target), made.pinned))
    if request.stop_after == "memory":
        return _write_ir(graph, request)

    apart = elsewhere(program.arenas, made.deployment)
    linked = 0 if graph.weights == "read" else plan_weights(program.constants, made.deployment).size_bytes
    early = Needs(linked, program.arena_bytes, elsewhere=apart, on_device=bool(target.device))
    check_limits(graph.name, early, made.deployment, _chances(made, request))
    if target.fpu != "double" and any(v.dtype is DType.F64 for v in graph.values()):
        watch.note(f"`{graph.name}` computes in f64, which `{target.name}` does in software")

    watch.stage("package")
    return _package(made, request, watch)


def _chances(made: Lowered, request: Request) -> Chances:
    found = chances_of(made.program, shapes=bool(request.dims or request.shapes), fed=request.feed_rows)
    stored = plan_weights(made.program.constants, made.deployment).size_bytes if made.target.device else found.weights
    return replace(found, weights=stored)


def plan_model(request: Request, watch: Watch, reserve: int = RESERVE_BYTES, *, climbing: bool = True) -> Lowered | Path:
    """The stages up to memory; or the IR file of the stage to stop after, if that is before it. `reserve`: RAM for the stack;
    without `climbing`, no limit makes layers slower."""
    last = stage_index(request.stop_after)
    if request.target or request.device.board or request.model.suffix != ".ig":  # else the file says its target
        asked = target_of(request.device.board, request.target, "host")
        deployment_of(asked, **asdict(request.device))  # told before reading a model
        check_device(request, asked)
    check_disabled(request.disabled)
    for word in request.devices:
        find_device(word)
    if request.feed_rows and request.stream is not None:
        hint = "`--stream` for frames that never end, `--feed-rows` for the rows of one picture after the other"
        raise UserError("bad-option", "`--feed-rows` and `--stream` exclude each other", hint=hint)
    if request.feed_rows and request.device.weights == "read":
        hint = "leave one of them out"
        raise UserError("bad-option", "weights that are read are not kept between rows that are fed", hint=hint)
    if request.accelerators and (request.feed_rows or request.stream is not None or request.device.weights == "read"):
        other = "--weights read" if request.device.weights == "read" else "--feed-rows" if request.feed_rows else "--stream"
        raise UserError("bad-option", f"`--accelerator` and `{other}` exclude each other", hint="leave one of them out")
    pinned = None if request.import_plan is None else read_plan(request.import_plan)
    source = read_source(request.model, request.dims, request.shapes, request.name, request.states, watch.note, request.constants)
    graph, done = source.graph, stage_index(source.graph.stage)
    target = optimized(target_of(request.device.board, request.target, graph.target or "host"), request.device.optimize)
    target = precise(target, request.device.precision)
    check_device(request, target)
    deployment = deployment_of(target, **asdict(request.device))
    if target.device and done >= stage_index("optimise"):
        target = replace(target, precision=_precision_there(graph, request))
    findings = Findings(watch)
    context = context_of(request, target, deployment, source.format, graph, findings)
    context.observe("import", graph)
    graph = absorb(graph, context)
    account = None
    if request.quantize is not None:
        if done > stage_index("import"):
            hint = "quantise the model itself, or an IR file of the stage `import`"
            raise UserError("bad-option", f"`{request.model.name}` is past the stage `import`", hint=hint)
        graph, account = quantized(graph, context, request.quantize, watch)
    if last <= done and last < stage_index("memory"):
        return _write_ir(graph, request)

    if done < stage_index("optimise"):
        watch.stage("optimise")
        graph = optimise(graph, context)
    elif request.accelerators:
        hint = "give `--accelerator` with the model, or an IR file of the stage `import`; lines with `on` stay what they are"
        raise UserError("bad-option", f"`{request.model.name}` is past the stage `optimise`", hint=hint)
    elif request.stream is not None:
        hint = "give `--stream` with the model, or an IR file of the stage `import`"
        raise UserError("bad-option", f"`{request.model.name}` is past the stage `optimise`", hint=hint)
    if source.format == "ir" and accelerators_of(graph):
        from intaglio.passes.offload import check_given

        check_given(graph)
    target = aligned(graph, target)
    if watch.explain is not None:
        from intaglio.passes.analysis import analyse

        watch.explain(list(analyse(graph, target)))
    if request.stop_after == "optimise":
        return _write_ir(graph, request)

    graph.weights = "read" if context.weights_read else graph.weights
    if done < stage_index("kernels"):
        graph = split(graph, context)
    watch.stage("kernels")
    program = lower(graph, target)
    graph.stage, graph.target = max(graph.stage, "kernels", key=STAGES.index), target.name
    if watch.chosen is not None:
        watch.chosen(explained(graph, target))
    if request.stop_after == "kernels":
        return _write_ir(graph, request)

    watch.stage("memory")
    slots = bool(target.device) or (target.bare and request.device.io == "arena")
    wishes = Wishes(slots, pinned, request.feed_rows, reserve, climbing)
    planned = plan_memory(program, target, deployment, wishes, watch.note)
    if target.device and done < stage_index("kernels") and _too_large(planned.program, deployment):
        planned = _without_working_memory(graph, target, deployment, wishes, watch)
    kept = pinned.pinned if pinned is not None else frozenset()
    check_reach(planned.program, deployment)
    return Lowered(planned, source, target, deployment, account, kept, findings.stream, findings.turned)


def _precision_there(graph: Graph, request: Request) -> str:
    """Of a graph that is past the stage in which values become halves."""
    asked, halves = request.device.precision, any(v.dtype is DType.F16 for node in graph.nodes for v in node.outputs)
    if asked is None or (asked != "fp32") == halves:
        return asked or ("mixed" if halves else "fp32")
    hint = "give `--precision` with the model, or an IR file of the stage `import`; values in a later one stay what they are"
    stored = "in 16 bits" if halves else "in 32 bits"
    what = f"`{request.model.name}` is past the stage `optimise`, with values {stored}: `--precision {asked}` comes too late"
    raise UserError("bad-option", what, hint=hint)


def _too_large(program: Program, deployment: Deployment) -> bool:
    """For the memory of a device, which has the weights too."""
    need = program.arena_bytes + plan_weights(program.constants, deployment).size_bytes
    return deployment.ram is not None and need > deployment.ram


def _without_working_memory(graph: Graph, target: Target, deployment: Deployment, wishes: Wishes, watch: Watch) -> Climbed:
    """Kernels of the device that are quick by working memory and larger weights (Winograd) give way to plain ones."""
    for node in graph.nodes:
        node.using = ""
    for value in graph.values():
        value.address = None
    graph.stage = "kernels"
    planned = plan_memory(lower(graph, optimized(target, "size")), target, deployment, wishes, watch.note)
    if not _too_large(planned.program, deployment):
        watch.note("within `--ram`, convolutions are computed without Winograd's working memory")
    return planned


def quantized(graph: Graph, context: Context, how: Quantization, watch: Watch) -> tuple[Graph, Account | None]:
    """The float graph on integers, by the calibration data; or with small weights alone."""
    from intaglio.quantize import check, quantize
    from intaglio.run.calibration import random_samples, read_samples, samples_of

    watch.stage("quantize")
    if how.settings is None:
        return narrow(graph, context), None
    graph = prepare(graph, context)
    check(graph, how.settings)
    if how.data is not None:
        samples = samples_of(dict(how.data), graph, "the calibration data")
    elif how.calibrate is not None:
        samples = read_samples(how.calibrate, graph)
    else:
        watch.note("warning: no calibration data (`--calibrate`): ranges come from random inputs, which are rarely like real ones")
        samples = random_samples(graph)
    made, account = quantize(
        graph, samples, how.settings, random_data=how.calibrate is None and how.data is None, progress=watch.progress or silent
    )
    watch.account(account)
    return made, account


def _package(made: Lowered, request: Request, watch: Watch) -> Package:
    program, source, target, deployment, account = made.program, made.source, made.target, made.deployment, made.account
    graph = program.graph
    find = partial(find_firmware_toolchain, target=target) if target.bare else partial(find_toolchain, arch=target.arch)
    toolchain = find(request.cc) if request.stop_after == "build" else None
    with fresh_folder(request.output, force=request.force) as folder:
        model = keep_model(request.model, source.format, folder) if not request.library_only else None
        told = request.options() if target.precision == "fp32" else {**request.options(), "precision": target.precision}
        origin = Origin(request.model.name, source.sha256, model, __version__, told)
        manifest = replace(write_project(program, target, origin, folder, request.template, deployment), stream=made.stream)
        if made.turned:
            manifest = replace(manifest, inputs=tuple(replace(info, turned=True) for info in manifest.inputs))
        if not request.library_only:
            write_ir(graph, folder / "ir" / f"{graph.name}.ig")
            if account is not None:
                (folder / "ir" / "quantization.json").write_text(json.dumps(account.as_json(), indent=1) + "\n", encoding="utf-8")
            if sum(info.type.bytes for info in (*manifest.inputs, *manifest.outputs)) <= MOST_VECTOR_BYTES:
                expected_vectors(graph, manifest, folder, watch.note)
            else:
                watch.note("inputs and outputs are too large for test vectors: the package has none")
        if target.bare and (reason := write_selftest(manifest, folder)):
            watch.note(f"{reason}: there is no self-test on the device")
        if toolchain is not None:
            watch.stage("build")
            edited = request.template is not None
            options = BuildOptions(request.cflags, request.library_only, edited, watch.progress, manifest.accelerators)
            if deployment.board is None:
                build_project(folder, graph.name, target, toolchain, options)
            else:
                build = partial(build_package, folder, manifest, target, deployment.board, toolchain, options)
                manifest = _with_firmware(build, folder, manifest, deployment, watch)
        for word in dict.fromkeys(request.devices):
            fill_cache(folder, graph.name, word, watch.note)
        check_limits(graph.name, needs_of(manifest, manifest.firmware, deployment), deployment, _chances(made, request))
        if manifest.firmware is not None and deployment.board is not None:
            check_placed(folder / manifest.firmware.elf, deployment.board)
        manifest.tools.update(tool_versions(toolchain))
        write_manifest(manifest, folder)
    if request.archive:
        write_archive(request.output, request.archive)
    return Package(request.output)


def _with_firmware(
    build: Callable[[], FirmwareInfo], folder: Path, manifest: Manifest, deployment: Deployment, watch: Watch
) -> Manifest:
    """Firmware, built again without test vectors where these alone are too much for the flash."""
    firmware = build()
    if has_room_but_for_vectors(firmware, deployment, sum(size for _, size in manifest.memory.weights_apart)):
        watch.note(f"{write_selftest(manifest, folder, without=True)}: there is no self-test on the device")
        firmware = build()
    write_figures(folder, manifest, firmware)
    return replace(manifest, firmware=firmware)


def _write_ir(graph: Graph, request: Request) -> Path:
    """`-o x.ig` is that file; any other `-o` is a folder for it."""
    output = request.output
    path = output if output.suffix == ".ig" else output / f"{graph.name}.ig"
    with writing(path):
        write_ir(graph, path)
    return path


def compile(
    model: str | Path | object,
    *,
    example_inputs: tuple[object, ...] | None = None,
    output: str | Path | None = None,
    target: str | None = None,
    board: str | None = None,
    ram: int | None = None,
    flash: int | None = None,
    arena: str = "static",
    weights_section: str | None = None,
    weights_address: int | None = None,
    io: str = "arena",
    optimize: str = "balanced",
    memory: str | Path | None = None,
    weights: str = "mapped",
    device: str | Sequence[str] | None = None,
    precision: str | None = None,
    limit_kernel_time: float | None = None,
    feed_rows: bool = False,
    stream: int | None = None,
    accelerators: Sequence[str] = (),
    accelerator_only: Sequence[str] = (),
    dims: Mapping[str, int] | None = None,
    shapes: Mapping[str, tuple[int, ...]] | None = None,
    states: Mapping[str, str] | None = None,
    name: str | None = None,
    disabled: frozenset[str] = frozenset(),
    force: bool = False,
    template: str | Path | None = None,
    cc: str | None = None,
    cflags: tuple[str, ...] = (),
    library_only: bool = False,
    quantize: str | None = None,
    calibrate: str | Path | Mapping[str, Array] | None = None,
    **quantization: Any,
) -> Package:
    """Compile a model into a package; without `output`, into a temporary one that lives as long as the result.

    `model` is a file, a PyTorch module with `example_inputs` (a tuple of tensors), an exported program or a Keras model.
    `device` names one or several OpenCL devices of this machine whose programs go into the package; the package runs on the first.
    `quantize` is int8, int16x8 or weights; `calibrate` is a file, a folder or arrays by input; further words are the fields of
    `intaglio.quantize.Settings` (ranges, keep_float, max_error, integer_io, ...)."""
    _check_keywords(quantization)
    if quantize is None and (calibrate is not None or quantization):
        given = ", ".join(f"`{word}`" for word in (*quantization, *(["calibrate"] if calibrate is not None else [])))
        raise UserError("bad-option", f"{given} is for quantisation", hint='add `quantize="int8"`')
    temporary = None if output is not None else tempfile.TemporaryDirectory(prefix="intaglio-")
    folder = Path(output) if output is not None else Path(temporary.name if temporary else "") / "package"
    memories = None if memory is None else str(memory)
    where = (board, ram, flash, arena, weights_section, weights_address, io, optimize, memories, weights)
    devices = (device,) if isinstance(device, str) else tuple(device or ())
    request = Request(
        model=Path(),
        output=folder,
        target=target,
        device=Device(*where, precision, limit_kernel_time),
        devices=devices,
        feed_rows=feed_rows,
        stream=stream,
        accelerators=tuple(accelerators),
        accelerator_only=frozenset(accelerator_only),
        dims=dict(dims or {}),
        shapes={k: tuple(v) for k, v in (shapes or {}).items()},
        states=dict(states or {}),
        name=name,
        disabled=disabled,
        force=force,
        template=None if template is None else Path(template),
        cc=cc,
        cflags=cflags,
        library_only=library_only,
        quantize=None if quantize is None else quantization_of(quantize, calibrate, **quantization),
    )
    with tempfile.TemporaryDirectory(prefix="intaglio-") as place:
        path = Path(model) if isinstance(model, (str, Path)) else save_object(model, example_inputs, Path(place))
        compile_model(replace(request, model=path), Watch())
    return Package(folder, temporary, device=DeviceOptions(next(iter(devices), None)))


def _check_keywords(given: Mapping[str, object]) -> None:
    """A misspelt word would quietly leave its option out."""
    settings = [f.name for f in fields(Settings) if f.name != "scheme"]
    known = [*(name for name in signature(compile).parameters if name != "quantization"), *settings]
    for word in given:
        if word not in settings:
            near = get_close_matches(word, known, 1)
            hint = f"did you mean `{near[0]}`?" if near else "options are " + ", ".join(f"`{name}`" for name in known)
            raise UserError("bad-option", f"`intaglio.compile` has no option {quoted(word)}", hint=hint)


def quantization_of(scheme: str, calibrate: str | Path | Mapping[str, Array] | None, **settings: Any) -> Quantization:
    """Words about quantisation, checked."""
    if scheme not in (*SCHEMES, *WEIGHT_SCHEMES):
        raise UserError("bad-option", f"unknown quantisation {quoted(scheme)}", hint="int8, int16x8, weights or fp16")
    if scheme in WEIGHT_SCHEMES:
        if calibrate is not None or any(value for word, value in settings.items() if value != "auto"):
            raise UserError("bad-option", f"`{scheme}` changes weights alone: it takes no calibration and no other settings")
        return Quantization(scheme)
    if isinstance(calibrate, Mapping):
        return Quantization(scheme, Settings(scheme, **settings), data=calibrate)
    return Quantization(scheme, Settings(scheme, **settings), None if calibrate is None else Path(calibrate))
