"""Several entry points in one package: each goes through the line by itself; what they share is written once."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from intaglio.errors import IntaglioError, UserError, quoted
from intaglio.fitting.limits import Needs, check_limits
from intaglio.frontends.reading import check_together
from intaglio.kernels.program import Program
from intaglio.options.request import Request
from intaglio.package.combined import render_firmware
from intaglio.package.entries import (
    FOLDER,
    Entries,
    FirmwareBytes,
    read_entries,
    share,
    strip_entry,
    whole_of,
    write_arena,
    write_header,
    write_makefile,
    write_shared,
    write_whole,
)  # fmt: skip
from intaglio.package.manifest import Manifest, read_manifest, write_manifest
from intaglio.package.write import InCommon
from intaglio.run.build import BuildOptions, build_shared
from intaglio.run.firmware import build_combined, check_placed
from intaglio.run.linking import shared_arena_bytes
from intaglio.stages.current import is_current
from intaglio.stages.packaging import compiler_for
from intaglio.stages.work import Work, need

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,40}")


def check_entries(requests: Mapping[str, Request]) -> None:
    """Names that C takes, and options that work for several."""
    seen: set[str] = set()
    for entry, request in requests.items():
        plain = entry.lower().rstrip("_")  # as C names have it
        if not _NAME.fullmatch(entry) or plain in seen:
            what = f"{quoted(entry)} cannot be the name of an entry point"
            what = f"two entry points are called {quoted(entry)}" if plain in seen else what
            raise UserError("bad-option", what, hint="names are letters, digits and `_`: `--entry encoder.onnx=encode`")
        seen.add(plain)
        given = {
            "--accelerator": bool(request.accelerators), "--device": bool(request.devices),
            "--template": request.template is not None, "--stop-after": request.stop_after != "build",
            "--weights": request.weights_place != "mapped", "--weights-address": request.weights_address is not None,
            "--memory": request.memory is not None, "--cores": request.cores > 1, "--code ram": request.code == "ram",
            "--arena caller": request.arena == "caller",
            "--safety": bool(request.safety), "--style": request.style != "plain",
            "--library-only": request.library_only, "--sign": request.sign is not None,
            "--export-plan": request.export_plan is not None, "--import-plan": request.import_plan is not None,
        }  # fmt: skip
        if word := next((word for word, there in given.items() if there), ""):
            what = f"`{word}` cannot be combined with several entry points"
            raise UserError("bad-option", what, hint=f"compile each model by itself, or omit `{word}`")
    for path in dict.fromkeys(request.model for request in requests.values()):
        keys = [request.signature for request in requests.values() if request.model == path and request.signature is not None]
        if len(keys) > 1:
            check_together(path, keys)


@contextmanager
def of_entry(entry: str, requests: Mapping[str, Request]) -> Iterator[None]:
    """A dimension or an input that one of several networks does not have may be meant for another."""
    try:
        yield
    except IntaglioError as error:
        here = requests[entry]
        others = [name for name, of in requests.items() if (of.model, of.signature) != (here.model, here.signature)][:3]
        words = ["--dim {}:NAME=SIZE"] if error.slug == "unknown-dimension" else []
        if error.slug == "unknown-input":
            words = [f"--shape {{}}:{key}=..." for key in here.shapes if quoted(key) in error.message]
            words += [f"--max {{}}:{key}={n}" for key, n in here.most.items() if quoted(key) in error.message]
        if others and words:
            error.hint += f"; for one entry point only: {', '.join(quoted(words[0].format(name)) for name in others)}"
        raise


def are_current(requests: Mapping[str, Request], network: str, output: Path) -> bool:
    """Is the output what they ask for?"""
    try:
        whole = read_entries(output)
    except UserError:
        return False
    if whole is None or whole.name != network or [row.name for row in whole.entries] != list(requests):
        return False
    made = f"lib/lib{network}.so" if whole.firmware is None else whole.firmware.elf
    there = all((output / path).is_file() for path in (f"include/{network}.h", made, f"src/{network}_arena.c"))
    return there and all(is_current(entry_request(request, network, entry, output)) for entry, request in requests.items())


def check_targets(works: Mapping[str, Work]) -> None:
    for entry, work in works.items():
        target = need(work.model).target
        if target.device or target.wasm:
            what = f"several entry points need a host or a microcontroller; the target of `{entry}` is `{target.name}`"
            raise UserError("bad-option", what, hint="compile each model by itself")


def programs_of(works: Mapping[str, Work]) -> dict[str, list[Program]]:
    """One each, or one for each variant."""
    return {entry: [need(each.program) for each in work.of_variants()] for entry, work in works.items()}


def begin(network: str, works: Mapping[str, Work], folder: Path) -> InCommon:
    """The weights of all."""
    first = next(iter(works.values()))
    shared, common = share(network, programs_of(works), need(first.model).deployment)
    write_shared(network, shared, common.weights, folder)
    return common


def complete(network: str, works: Mapping[str, Work], common: InCommon, folder: Path) -> None:
    """Header, arena, library and manifest of the whole."""
    manifests = {entry: read_manifest(folder / FOLDER / entry) for entry in works}
    for entry, manifest in manifests.items():
        strip_entry(folder / FOLDER / entry)
        write_manifest(manifest, folder / FOLDER / entry)
    first = next(iter(works.values()))
    model = need(first.model)
    whole = whole_of(network, manifests, programs_of(works), common.weights)
    write_header(whole, _alignment(works), folder)
    if model.deployment.board is not None:
        write_whole(_firmware(whole, manifests, first, folder), folder)
        return
    variants = tuple((w.variant.short, w.variant.target) for w in first.of_variants() if w.variant is not None)
    write_makefile(whole, model.target.flags, model.target.threads, folder, [(short, of.flags) for short, of in variants])
    toolchain = compiler_for(model.target, first.request.cc)
    sources = [folder / "src", *(folder / FOLDER / entry / "src" for entry in works)]
    sources += [folder / FOLDER / entry / "src" / short for entry in works for short, _ in variants]
    options = BuildOptions(first.request.cflags, progress=first.watch.progress, variants=variants)
    build_shared(folder, sources, network, model.target, toolchain, options)
    write_whole(whole, folder)


def _firmware(whole: Entries, manifests: Mapping[str, Manifest], work: Work, folder: Path) -> Entries:
    """One program with all entry points, which tests each of them."""
    model = need(work.model)
    target, board, found = model.target, need(model.deployment.board), list(manifests.values())
    render_firmware(found, target, board, whole.name, folder, entries=tuple(manifests))
    shared = " ".join(f"{FOLDER}/{entry}/src" for entry in manifests)
    options = BuildOptions(work.request.cflags, progress=work.watch.progress, shared=shared)
    toolchain = compiler_for(target, work.request.cc)
    sizes, depth = build_combined(folder, whole.name, [m.name for m in found], target, toolchain, options)
    io_bytes = sum(info.bytes for m in found for info in (*m.inputs, *m.outputs) if info.arena_offset is None)
    arena = shared_arena_bytes(found)
    static = max(0, sizes.data + sizes.bss - arena - io_bytes)
    check_limits(whole.name, Needs(sizes.weights, arena, io_bytes, sizes.code, sizes.data, static, depth), model.deployment)
    elf = folder / "bin" / f"{whole.name}.elf"
    check_placed(elf, board, depth)
    flash, ram = sizes.code + sizes.weights + sizes.data, sizes.data + sizes.bss + (depth or 0)
    made = FirmwareBytes(elf.relative_to(folder).as_posix(), board.name, sizes.code, flash, ram, depth)
    return replace(whole, firmware=made)


def arena_of(network: str, works: Mapping[str, Work], folder: Path) -> None:
    """Before the entry points are built: they link it."""
    sizes = [(entry, _arena_bytes(work)) for entry, work in works.items() if not need(work.program).graph.states]
    write_arena(network, sizes, _alignment(works), folder)


def _arena_bytes(work: Work) -> int:
    """Of the variant that needs most."""
    return max(need(each.program).arena_bytes for each in work.of_variants())


def _alignment(works: Mapping[str, Work]) -> int:
    return max(need(each.model).target.alignment for work in works.values() for each in work.of_variants())


def largest_first(works: Mapping[str, Work]) -> list[str]:
    """By the arena, which all link: where it does not fit, the error is about the one that needs it."""
    return sorted(works, key=lambda entry: -_arena_bytes(works[entry]))


def network_name(asked: str | None, output: Path, models: Iterable[Path] = ()) -> str:
    """`--name`, or that of the file where all entry points are of one, or that of the folder."""
    files = {model.stem for model in models}
    made = asked or re.sub(r"\W+", "_", files.pop() if len(files) == 1 else output.name)
    if asked is None and not _NAME.fullmatch(made):
        made = re.sub(r"\W+", "_", output.name)
    if not _NAME.fullmatch(made):
        raise UserError("bad-option", f"{quoted(made)} cannot be the name of a package", hint="give one with `--name`")
    return made


def entry_request(request: Request, network: str, entry: str, folder: Path) -> Request:
    return replace(request, name=f"{network}_{entry}", output=folder / FOLDER / entry, force=False, archive=False)
