"""The stage `package`: the C project around the kernels, with the model, its IR and test vectors beside it."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from intaglio.fitting.limits import Needs, elsewhere
from intaglio.fitting.weights import plan_weights
from intaglio.ir.files import write_ir
from intaglio.ir.types import DType
from intaglio.package.entries import SHARED
from intaglio.package.folder import Later, fresh_folder, write_text
from intaglio.package.manifest import Manifest
from intaglio.package.misra import write_misra
from intaglio.package.safety import with_guards
from intaglio.package.selftest import write_selftest
from intaglio.package.source import keep_model
from intaglio.package.variants import Part, write_variants
from intaglio.package.write import Origin, write_project
from intaglio.run.build import BuildOptions, Objects
from intaglio.run.expect import expected_vectors
from intaglio.run.firmware_tools import find_firmware_toolchain
from intaglio.run.toolchains import Toolchain, find_toolchain
from intaglio.stages.limits import check_needs
from intaglio.stages.tasks import Tasks
from intaglio.stages.work import Model, Work, Written, need
from intaglio.targets.target import Target
from intaglio.version import __version__

MOST_VECTOR_BYTES = 128 << 20


def write_package(work: Work) -> Work:
    model, request, watch = need(work.model), work.request, work.watch
    if "canary" in model.deployment.safety:
        work = replace(work, program=with_guards(need(work.program)))
    _check_early(work)
    watch.stage("package")
    toolchain = _toolchain(work)
    folder = work.stack.enter_context(fresh_folder(request.output, force=request.force))
    where = Path(work.stack.enter_context(TemporaryDirectory(prefix="intaglio-build-")))  # removed when no task writes any more
    tasks, waiting, copying = work.stack.enter_context(Tasks()), list[Callable[[], None]](), list[Callable[[], None]]()
    manifest = _project(work, folder, waiting.append, copying.append)
    written = Written(folder, manifest, toolchain)
    if request.style == "misra":  # which looks at all sources
        _each(waiting)
        waiting.clear()
    objects = _begin(work, written, tasks, waiting, where)
    _each(copying)
    if not request.library_only:
        _write_beside(work, manifest, folder, tasks)
    if request.style == "misra":
        write_misra(folder, manifest.name)
    if model.target.bare and (reason := write_selftest(manifest, folder)):
        watch.note(f"{reason}: there is no self-test on the device")
    if objects is None:
        tasks.written()
    return replace(work, written=replace(written, objects=objects, tasks=tasks))


def _begin(work: Work, written: Written, tasks: Tasks, waiting: list[Callable[[], None]], where: Path) -> Objects | None:
    """Start what is `waiting` to be written. For a host, compiler and linker start too, beside it and what follows."""
    target, objects, write = need(work.model).target, None, partial(_each, waiting)
    if written.toolchain is not None and not target.bare:
        options, name = build_options(work, written.manifest), written.manifest.name
        objects = Objects(written.folder, where, name, target, written.toolchain, options)
        objects.begin(tasks.start, write)
    else:
        tasks.write(write)
    return objects


def _each(waiting: list[Callable[[], None]]) -> None:
    for write in waiting:
        write()


def build_options(work: Work, manifest: Manifest) -> BuildOptions:
    request = work.request
    variants = tuple((w.variant.short, w.variant.target) for w in work.of_variants() if w.variant is not None)
    edited = request.template is not None
    return BuildOptions(
        request.cflags, request.library_only, edited, work.watch.progress, manifest.accelerators, variants, manifest.shared
    )


def _check_early(work: Work) -> None:
    """Arena and weights are known: what has no room for these is not written, and not built."""
    model, program = need(work.model), need(work.program)
    graph, target, deployment = program.graph, model.target, model.deployment
    linked = 0 if graph.weights == "read" else plan_weights(program.constants, deployment).size_bytes
    apart = elsewhere(program.arenas, deployment)
    check_needs(work, Needs(linked, program.arena_bytes, elsewhere=apart, on_device=bool(target.device)))
    if target.fpu != "double" and any(v.dtype is DType.F64 for v in graph.values()):
        work.watch.note(f"`{graph.name}` computes in f64, which `{target.name}` emulates in software")


def _toolchain(work: Work) -> Toolchain | None:
    """Found before anything is written: without one, nothing is."""
    return compiler_for(need(work.model).target, work.request.cc) if work.wants("build") else None


def compiler_for(target: Target, cc: str | None) -> Toolchain:
    return find_firmware_toolchain(cc, target) if target.bare else find_toolchain(cc, target.arch)


def _project(work: Work, folder: Path, later: Later, copy_later: Later) -> Manifest:
    request, model, program = work.request, need(work.model), need(work.program)
    keeps = not request.library_only and not request.no_source
    kept = keep_model(request.model, model.source.format, folder, copy_later) if keeps else None
    origin = Origin(request.model.name, model.source.sha256, kept, __version__, _record(work, model))
    if work.variant is not None:
        parts = [Part(need(each.variant), need(each.program)) for each in work.of_variants()]
        manifest = write_variants(parts, origin, folder, model.deployment, later, work.shared)
    else:
        manifest = write_project(program, model.target, origin, folder, request.template, model.deployment, work.shared, later)
    if work.shared is not None:
        manifest = replace(manifest, shared=SHARED)
    manifest = replace(manifest, stream=model.findings.stream, passes=tuple(model.findings.passes.found))
    if model.findings.turned:
        manifest = replace(manifest, inputs=tuple(replace(info, turned=True) for info in manifest.inputs))
    return manifest


def _record(work: Work, model: Model) -> dict[str, str]:
    """Options in the manifest. The precision may be that of an IR file."""
    told = {**work.request.record(), **({"tuning": work.tuned} if work.tuned else {})}
    return told if model.target.precision == "fp32" else {**told, "precision": model.target.precision}


def _write_beside(work: Work, manifest: Manifest, folder: Path, tasks: Tasks) -> None:
    """IR, the account of a quantisation, test vectors."""
    account, program = need(work.model).account, need(work.program)
    graph = program.graph
    for each in () if work.request.no_ir else work.of_variants():
        made = need(each.program)
        path = folder / "ir" / f"{made.graph.name}.ig"
        tasks.write(partial(write_ir, made.graph, path, made.choices, made.placement, "memory"))
    if account is not None:
        write_text(folder / "ir" / "quantization.json", json.dumps(account.as_json(), indent=1) + "\n")
    if (sent := need(work.model).findings.offloaded) is not None:
        told = {key: value for key, value in sent.as_json().items() if key != "seconds"}  # the same input gives the same bytes
        write_text(folder / "ir" / "accelerators.json", json.dumps(told, indent=1) + "\n")
    if sum(info.type.bytes for info in (*manifest.inputs, *manifest.outputs)) <= MOST_VECTOR_BYTES:
        expected_vectors(graph, manifest, folder, work.watch.note)
    else:
        work.watch.note("inputs and outputs are too large for test vectors: the package has none")
