"""`intaglio link`: packages put together into one firmware, built, measured and held against the board."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from intaglio.errors import AnswerIsNo
from intaglio.fitting.limits import Needs, check_limits
from intaglio.package.combined import WeightsPlace, code_room, firmware_name, read_packages, weights_places, write_combined
from intaglio.package.figures import MARK
from intaglio.package.folder import fresh_folder
from intaglio.package.manifest import COMBINED_FORMAT, Manifest, board_of, digests, target_of
from intaglio.package.ownership import MANIFEST
from intaglio.run.build import BuildOptions
from intaglio.run.firmware import build_combined, check_placed
from intaglio.run.firmware_tools import find_firmware_toolchain
from intaglio.targets.deployment import Deployment


@dataclass(frozen=True, slots=True)
class Linked:
    """Bytes of a firmware with several networks. `arena` counts what is shared once; `stack` is that of the deepest."""

    name: str
    target: str
    board: str
    models: tuple[str, ...]
    code_bytes: int
    weight_bytes: int
    flash_bytes: int
    arena_bytes: int
    separate_arena_bytes: int  # if nothing were shared
    io_bytes: int
    static_bytes: int
    stack_bytes: int | None
    ram_bytes: int
    weights: tuple[WeightsPlace, ...] = ()  # binaries that are written to flash apart from the program


def link_packages(folders: list[Path], output: Path, *, cc: str | None = None, force: bool = False) -> Linked:
    manifests = read_packages(folders)
    target = target_of(manifests[0])
    name = firmware_name(output, manifests)
    board = board_of(manifests[0], target)
    toolchain = find_firmware_toolchain(cc, target)
    with fresh_folder(output, force=force) as folder:
        write_combined(folders, manifests, target, board, name, folder)
        sizes, depth = build_combined(folder, name, [m.name for m in manifests], target, toolchain, BuildOptions())
        apart = sum(m.memory.weight_bytes for m in manifests if m.firmware and m.firmware.weights_address is not None)
        given = [info for m in manifests if not m.memory.fed_rows for info in m.inputs] + [
            info for m in manifests for info in m.outputs
        ]
        io_bytes = sum(info.bytes for info in given if info.arena_offset is None)
        arena = shared_arena_bytes(manifests)
        linked = Linked(
            name=name,
            target=target.name,
            board=board.name,
            models=tuple(m.name for m in manifests),
            code_bytes=sizes.code,
            weight_bytes=sizes.weights + apart,
            flash_bytes=sizes.code + sizes.weights + apart + sizes.data,
            arena_bytes=arena,
            separate_arena_bytes=sum(m.memory.arena_bytes for m in manifests),
            io_bytes=io_bytes,
            static_bytes=max(0, sizes.data + sizes.bss - arena - io_bytes),
            stack_bytes=depth,
            ram_bytes=sizes.data + sizes.bss + (depth or 0),
            weights=tuple(weights_places(manifests)),
        )
        needs = Needs(sizes.weights, arena, io_bytes, sizes.code, sizes.data, linked.static_bytes, depth)
        check_limits(name, needs, Deployment(board))
        room, reach = code_room(board, manifests), sizes.code + sizes.weights + sizes.data + sizes.selftest
        if reach > room:
            what = f"the code of `{name}` has {reach:,} bytes with its self-tests, and {room:,} before the weights"
            raise AnswerIsNo("does-not-fit", what, hint="compile the packages again with a larger `--weights-address`")
        check_placed(folder / "bin" / f"{name}.elf", board, depth)
        _write_about(folder, linked)
    return linked


def shared_arena_bytes(manifests: list[Manifest]) -> int:
    """The largest of those without state, and each of those with."""
    keeping = sum(m.memory.arena_bytes for m in manifests if m.memory.state_bytes)
    return keeping + max((m.memory.arena_bytes for m in manifests if not m.memory.state_bytes), default=0)


def _write_about(folder: Path, linked: Linked) -> None:
    readme = folder / "README.md"
    stack = "unbounded" if linked.stack_bytes is None else f"{linked.stack_bytes:,} bytes at most"
    told = (
        f"Flash {linked.flash_bytes:,} bytes: code {linked.code_bytes:,}, weights {linked.weight_bytes:,}. "
        f"RAM {linked.ram_bytes:,} bytes: arena {linked.arena_bytes:,} ({linked.separate_arena_bytes:,} if nothing were shared), "
        f"inputs and outputs {linked.io_bytes:,}, variables {linked.static_bytes:,}, stack {stack}."
    )
    readme.write_text(readme.read_text(encoding="utf-8").replace(MARK, told), encoding="utf-8")
    about = {"format": COMBINED_FORMAT, **asdict(linked), "files": digests(folder)}
    (folder / MANIFEST).write_text(json.dumps(about, indent=1) + "\n", encoding="utf-8")
