"""Several packages as one firmware project: their sources side by side, one application, one arena.

out/
  include/        kws.h, vad.h, ...
  src/kws/        as in the package
  src/vad/
  firmware/       start-up code, linker script, main.c with the shared arena

A network with state keeps an arena of its own, since the state is at its start.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass, fields
from itertools import pairwise
from pathlib import Path

from intaglio.errors import UserError, quoted
from intaglio.kernels.loop import SIZE
from intaglio.package.arenas import arena_views
from intaglio.package.c_text import identifier, is_identifier, unique_macros
from intaglio.package.manifest import Manifest, read_manifest
from intaglio.package.project import ModelView, SizeView, TensorView, tensor_views
from intaglio.package.striped_calls import FeedView
from intaglio.package.template import render_files, shipped_template
from intaglio.targets.board import Board
from intaglio.targets.deployment import WEIGHTS_HEADER_BYTES
from intaglio.targets.target import Target, find_target


@dataclass(frozen=True, slots=True)
class WeightsPlace:
    """A binary of weights, its header included."""

    name: str
    file: str
    address: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Combined:
    """What its templates see."""

    name: str
    version: str
    target: str
    target_about: str
    arch: str
    fpu: str
    flags: tuple[str, ...]
    board: Board
    models: tuple[ModelView, ...]
    weights: tuple[WeightsPlace, ...]
    flash_room: int
    ram_room: int
    entries: tuple[str, ...] = ()  # folders below `entries`
    shared_weights: str = ""  # whose weights they read


def read_packages(folders: list[Path]) -> list[Manifest]:
    """Manifests of packages that can be one firmware."""
    if len(folders) < 2:
        raise UserError("bad-option", "one package is already a firmware", hint="give two packages or more")
    manifests = [read_manifest(folder) for folder in folders]
    first = manifests[0]
    for folder, manifest in zip(folders, manifests, strict=True):
        shown = quoted(str(folder), 200)
        again = f"`intaglio compile {manifest.model.file} --name {manifest.name} ... --arena caller`"
        if not find_target(manifest.target).bare or manifest.firmware is None:
            hint = "compile it with `--board` (and without `--stop-after`)"
            raise UserError("cannot-combine", f"{shown} is not firmware: it is for `{manifest.target}`", hint=hint)
        if manifest.options.get("arena") != "caller":
            hint = f"compile it again: {again}"
            raise UserError("cannot-combine", f"{shown} has its own arena, which others cannot share", hint=hint)
        if manifest.options.get("weights") == "read":
            raise UserError("cannot-combine", f"{shown} reads its weights", hint="compile it again without `--weights read`")
        if manifest.memory.weights_apart:
            hint = "compile it again for one flash"
            raise UserError("cannot-combine", f"{shown} has its weights in several memories", hint=hint)
        if len(manifest.memory.arenas) > 1:
            hint = f"compile it again with one RAM for the arena: `--memory` or `--ram`: {again}"
            raise UserError("cannot-combine", f"{shown} has arenas in several memories, which others cannot share", hint=hint)
        if (manifest.target, _board(manifest)) != (first.target, _board(first)):
            what = f"{shown} is for {_place(manifest)}, {quoted(str(folders[0]), 200)} for {_place(first)}"
            raise UserError("cannot-combine", what, hint="compile both for one board")
    for index, manifest in enumerate(manifests):
        for other in manifests[:index]:
            if shared := set(manifest.accelerators) & set(other.accelerators):
                what = f"`{manifest.name}` and `{other.name}` both contain the C of the accelerator {quoted(min(shared))}"
                hint = "compile one of them again without `--accelerator`"
                raise UserError("cannot-combine", what, hint=hint)
    names = [m.name.lower() for m in manifests]
    for index, name in enumerate(names):
        if name in names[:index]:
            hint = "compile one of them again with another `--name`"
            raise UserError("cannot-combine", f"two packages have the name `{manifests[index].name}`", hint=hint)
    _check_weights(manifests)
    return manifests


def weights_places(manifests: list[Manifest]) -> list[WeightsPlace]:
    """The binaries of weights that are written to flash apart from the code, by address."""
    places = []
    for manifest in manifests:
        info = manifest.firmware
        if info is not None and info.weights_file is not None and info.weights_address is not None:
            size = WEIGHTS_HEADER_BYTES + manifest.memory.weight_bytes
            places.append(WeightsPlace(manifest.name, info.weights_file, info.weights_address, size))
    return sorted(places, key=lambda p: p.address)


def code_room(board: Board, manifests: list[Manifest]) -> int:
    """Bytes from the start of flash to the first of the weights binaries there."""
    flash = board.main("flash")
    places = [p.address for p in weights_places(manifests) if flash.address <= p.address < flash.address + flash.bytes]
    return min([flash.address + flash.bytes, *places]) - flash.address


def _check_weights(manifests: list[Manifest]) -> None:
    for first, second in pairwise(weights_places(manifests)):
        end = first.address + first.bytes
        if end > second.address:
            span = f"{first.address:#x} to {end - 1:#x}"
            what = f"the weights of `{first.name}` ({span}) and of `{second.name}` (from {second.address:#x})"
            free = -(-end // WEIGHTS_HEADER_BYTES) * WEIGHTS_HEADER_BYTES
            hint = f"compile one of them again: `{second.name}` with a `--weights-address` from {free:#x}"
            raise UserError("cannot-combine", f"{what} overlap", hint=hint)


def write_combined(folders: list[Path], manifests: list[Manifest], target: Target, board: Board, name: str, output: Path) -> None:
    for folder, manifest in zip(folders, manifests, strict=True):
        pointers = shutil.ignore_patterns(f"{manifest.name}.h", f"{manifest.name}_device.h")  # to include/, from beside it
        shutil.copytree(folder / "src", output / "src" / manifest.name, ignore=pointers)
        (output / "include").mkdir(exist_ok=True)
        for header in sorted((folder / "include").glob("*.h")):
            shutil.copyfile(header, output / "include" / header.name)
        if manifest.firmware is not None and manifest.firmware.weights_file is not None:
            (output / "weights").mkdir(exist_ok=True)
            shutil.copyfile(folder / manifest.firmware.weights_file, output / manifest.firmware.weights_file)
    render_firmware(manifests, target, board, name, output)


def render_firmware(
    manifests: list[Manifest], target: Target, board: Board, name: str, output: Path, *, entries: tuple[str, ...] = ()
) -> None:
    """What is around several networks on a device. `entries`: they are entry points, with arenas and folders of their own."""
    combined = Combined(
        name, manifests[0].intaglio, target.name, target.description, target.arch, target.fpu, target.flags, board,
        tuple(_view(manifest, static_arena=bool(entries)) for manifest in manifests), tuple(weights_places(manifests)),
        code_room(board, manifests), board.ram_bytes, entries, name if entries else "",
    )  # fmt: skip
    variables = {f.name: getattr(combined, f.name) for f in fields(combined)}
    render_files(shipped_template("_combined"), name, variables, output)


def firmware_name(output: Path, manifests: list[Manifest]) -> str:
    """After the folder, or `firmware` where that is no name in C or one of the networks'."""
    name = output.name.replace("-", "_")
    return name if is_identifier(name) and name not in {m.name for m in manifests} else "firmware"


def _view(manifest: Manifest, *, static_arena: bool) -> ModelView:
    memory, firmware = manifest.memory, manifest.firmware
    assert firmware is not None
    inputs, outputs = (
        tensor_views(
            [t.field for t in infos], [t.type for t in infos], [t.name for t in infos], [t.arena_address for t in infos], {}
        )
        for infos in (manifest.inputs, manifest.outputs)
    )
    return ModelView(
        name=manifest.name,
        NAME=manifest.name.upper(),
        inputs=inputs,
        outputs=outputs,
        sizes=_sizes(manifest),
        static_arena=static_arena,
        arena_bytes=memory.arena_bytes,
        alignment=memory.alignment,
        state_bytes=memory.state_bytes,
        weights_section=manifest.options.get("weights_section", ""),
        weights_address=firmware.weights_address,
        arenas=arena_views((), memory.arena_bytes, "", manifest.name),
        weights_apart=(),
        weights_window=None,
        feed=_feed(manifest, inputs) if memory.fed_rows else None,
        checked="crc" in manifest.options.get("safety", "").split(","),
        golden="golden" in manifest.options.get("safety", "").split(","),
        slotted="slots" in manifest.options.get("safety", "").split(","),
        steady="steady" in manifest.options.get("safety", "").split(","),
    )


def _sizes(manifest: Manifest) -> tuple[SizeView, ...]:
    given = [size for size in manifest.sizes if not size.found]
    macros = unique_macros([size.name for size in given])
    named = zip(given, macros, strict=True)
    return tuple(SizeView(size.name, identifier(SIZE + size.name), macro, size.span) for size, macro in named)


def _feed(manifest: Manifest, inputs: tuple[TensorView, ...]) -> FeedView:
    """What an application needs to know of rows; the rest is the network's own matter."""
    rows, view = manifest.memory.fed_rows, inputs[0]
    return FeedView(view.field, view.c_type, rows, view.elements // rows, view.bytes // rows, "", "", "")


def _board(manifest: Manifest) -> str | Board:
    if manifest.firmware is None:
        return ""
    return manifest.firmware.own_board or manifest.firmware.board


def _place(manifest: Manifest) -> str:
    board = manifest.firmware.board if manifest.firmware is not None else ""
    return f"the board `{board}`" if board else f"`{manifest.target}` without a board"
