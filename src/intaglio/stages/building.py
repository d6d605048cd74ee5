"""The stage `build`: libraries and application, or firmware; programs of OpenCL devices."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from intaglio.package.figures import write_figures
from intaglio.package.manifest import FirmwareInfo, Manifest
from intaglio.package.needs import has_room_but_for_vectors
from intaglio.package.selftest import write_selftest
from intaglio.package.web import write_page_data
from intaglio.run.build import build_project
from intaglio.run.firmware import build_package
from intaglio.run.opencl.application import fill_cache
from intaglio.stages.packaging import build_options
from intaglio.stages.work import Work, need


def build(work: Work) -> Work:
    request, model, written = work.request, need(work.model), need(work.written)
    folder, manifest, toolchain = written.folder, written.manifest, need(written.toolchain)
    work.watch.stage("build")
    options = build_options(work, manifest)
    if (board := model.deployment.board) is None:
        build_project(folder, manifest.name, model.target, toolchain, options, written.objects)
        if model.target.wasm and (folder / "web").is_dir() and not request.library_only:
            write_page_data(folder, manifest)
    else:
        manifest = _with_firmware(work, partial(build_package, folder, manifest, model.target, board, toolchain, options))
    for word in request.devices:
        fill_cache(folder, manifest.name, word, work.watch.note)
    return replace(work, written=replace(written, manifest=manifest))


def _with_firmware(work: Work, make: Callable[[], FirmwareInfo]) -> Manifest:
    """Firmware, built again without test vectors where these alone are too much for the flash."""
    written, deployment = need(work.written), need(work.model).deployment
    folder, manifest = written.folder, written.manifest
    firmware = make()
    if has_room_but_for_vectors(firmware, deployment, sum(size for _, size in manifest.memory.weights_apart)):
        work.watch.note(f"{write_selftest(manifest, folder, without=True)}: there is no self-test on the device")
        firmware = make()
    write_figures(folder, manifest, firmware)
    return replace(manifest, firmware=firmware)
