"""`intaglio tune DIR`: the fastest kernels for an OpenCL device, kept in the package."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from intaglio.cli.terminal import beginning, fitted, note, print_json, print_table, progress_bar
from intaglio.errors import UserError, quoted
from intaglio.package.folder import writing
from intaglio.package.manifest import Manifest, ProgramInfo, write_digest
from intaglio.run.opencl.application import Tuned, tune
from intaglio.run.opencl.cache_file import Program
from intaglio.run.opencl.cache_store import read_cache
from intaglio.run.opencl.devices import OpenCLDevice, find_device
from intaglio.run.opencl.matching import is_of_device
from intaglio.run.package import Package
from intaglio.targets.target import find_target


def tune_package(folder: Path, target: str | None, devices: list[str], limit_ms: float | None, json: bool) -> None:
    package = _package(folder, target)
    if limit_ms is not None and not 0 < limit_ms < 1e6:
        raise UserError("bad-option", f"`--limit-kernel-time {limit_ms:g}` is not a time", hint="use milliseconds, for example 8")
    words: list[str | None] = [*devices] or [None]
    places = dict.fromkeys(find_device(word).place for word in words)
    manifest, found = package.manifest, []
    for place in places:
        with writing(folder), progress_bar("tuning") as progress:
            found.append(tune(folder, package.name, place, _first(manifest), note, limit_ms, progress))
            manifest = _with_programs(manifest, folder, found[-1].device)
            write_digest(manifest, folder, f"{package.name}.clbin")
        if not json:
            print_tuned(manifest, found[-1])
    if json:
        rows = [_told(manifest, one) for one in found]
        print_json({"package": str(folder), "cache": f"{package.name}.clbin", "devices": rows})
    else:
        note(f"stored in {folder / package.name}.clbin")


def _first(manifest: Manifest) -> frozenset[str]:
    """Sources that the package starts with, before any tuning."""
    programs = manifest.opencl.programs if manifest.opencl is not None else ()
    return frozenset(program.source for program in programs if program.kind != "tuned")


def _with_programs(manifest: Manifest, folder: Path, device: OpenCLDevice) -> Manifest:
    """The manifest with tuned programs too, for `intaglio cache explain`: other kernels make other programs. What was tuned before
    and is in the cache no more, goes."""
    info = manifest.opencl
    assert info is not None
    options, former = info.programs[0].options, {p.source for p in info.programs}
    known = {program.source: program for program in info.programs if program.kind != "tuned"}
    for record in read_cache(folder / f"{manifest.name}.clbin").records:
        program = record.content
        if not isinstance(program, Program) or (source := program.field("source")) in known:
            continue
        if source in former or is_of_device(program, device):
            known[source] = ProgramInfo(len(known), "tuned", source, options)
    return replace(manifest, opencl=replace(info, programs=tuple(known.values())))


def _package(folder: Path, target: str | None) -> Package:
    package = Package.load(folder)
    if package.manifest.opencl is None:
        what = f"`{package.name}` was compiled for `{package.manifest.target}`, which has no programs to tune"
        hint = "tune the model, `intaglio tune MODEL`, then compile it; packages are tuned if compiled with `--target opencl`"
        raise UserError("bad-option", what, hint=hint)
    if target is not None and not find_target(target).device:
        what = f"`{package.name}` was compiled for `{package.manifest.target}`, not for {quoted(target)}"
        raise UserError("bad-option", what, hint="omit `--target`: the package knows its target")
    return package


def print_tuned(manifest: Manifest, tuned: Tuned) -> None:
    before, after = tuned.before, tuned.after
    rows, kernels = [], _kernels(manifest, tuned)
    for layer, was, now in zip(manifest.layers, before.layers, after.layers, strict=True):
        where, how = "device" if layer.accelerator else "cpu", kernels.get(layer.index, "")
        op, how = beginning(layer.op, 14), beginning(how, 16)
        rows.append([layer.name, op, where, f"{was / 1000:.4f}", f"{now / 1000:.4f}", _times(was, now), how])
    rows.append(["transfers", "", "", f"{before.transfers / 1000:.4f}", f"{after.transfers / 1000:.4f}", "", ""])
    rows.append(["total", "", "", f"{before.total / 1000:.4f}", f"{after.total / 1000:.4f}", _times(before.total, after.total), ""])
    columns = ["layer", "op", "on", ">before, ms", ">after", ">times", "kernel"]
    print_table(columns, fitted(columns, rows), title=tuned.device.name)


def _kernels(manifest: Manifest, tuned: Tuned) -> dict[int, str]:
    """By layer."""
    on_device = [layer.index for layer in manifest.layers if layer.accelerator]
    return {on_device[n]: kernel for n, kernel in tuned.chosen.items()}


def _times(was: float, now: float) -> str:
    return f"{was / now:.2f}" if now else ""


def _told(manifest: Manifest, tuned: Tuned) -> dict[str, object]:
    rows, kernels = zip(manifest.layers, tuned.before.layers, tuned.after.layers, strict=True), _kernels(manifest, tuned)
    return {
        "device": tuned.device.name,
        "place": tuned.device.place,
        "driver": tuned.device.driver_version,
        "transfers_before_ms": tuned.before.transfers / 1000,
        "transfers_after_ms": tuned.after.transfers / 1000,
        "before_ms": tuned.before.total / 1000,
        "after_ms": tuned.after.total / 1000,
        "layers": [
            {
                "name": layer.name, "op": layer.op, "on": "device" if layer.accelerator else "cpu", "before_ms": was / 1000,
                "after_ms": now / 1000, "kernel": kernels.get(layer.index),
            }
            for layer, was, now in rows
        ],
    }  # fmt: skip
