"""The end of the line: a package that keeps its limits gets its manifest; an earlier stage leaves its IR file."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from intaglio.ir.files import write_ir
from intaglio.options.request import stage_index
from intaglio.package.folder import writing
from intaglio.package.manifest import digests, write_manifest
from intaglio.package.needs import needs_of
from intaglio.package.ownership import file_digest
from intaglio.package.sbom import SBOM, calibration_data, write_sbom
from intaglio.package.signing import sign_package
from intaglio.run.expect import tool_versions
from intaglio.run.firmware import check_placed
from intaglio.stages.current import request_digest
from intaglio.stages.limits import check_needs
from intaglio.stages.work import Work, need


def finish(work: Work) -> Work:
    if work.written is None:
        return work
    model, written = need(work.model), work.written
    folder, manifest = written.folder, written.manifest
    if written.tasks is not None:
        written.tasks.written()
    check_needs(work, needs_of(manifest, manifest.firmware, model.deployment))
    if work.checking and manifest.firmware is not None and model.deployment.board is not None:
        check_placed(folder / manifest.firmware.elf, model.deployment.board, manifest.firmware.stack_bytes)
    manifest.tools.update(tool_versions(written.toolchain))
    files = digests(folder)
    write_sbom(manifest, calibration_data(work.request.calibrate), files, folder)
    files[SBOM] = file_digest(folder / SBOM)
    write_manifest(replace(manifest, request=request_digest(work.request)), folder, files)
    if work.request.sign is not None:
        sign_package(folder, work.request.sign)
    return work


def write_stage(work: Work) -> Path:
    """The IR after the last stage. `-o x.ig` is that file; any other `-o` is a folder for it."""
    model, program = need(work.model), work.program
    source = model.source
    graph, choices, placement = (
        (model.graph, source.choices, source.placement)
        if program is None
        else (program.graph, program.choices, program.placement)
    )
    output = work.request.output
    path = output if output.suffix == ".ig" else output / f"{graph.name}.ig"
    with writing(path):
        write_ir(graph, path, choices, placement, max(model.done, work.request.stop_after, key=stage_index))
    return path
