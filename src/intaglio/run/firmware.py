"""Firmware of a package: the model's static library, and an ELF with start-up code, linker script, memory and mathematics.

lib/libNAME.a     the model: what other firmware links
bin/NAME.elf      the model, `firmware/` and a self-test
"""

from __future__ import annotations

import os
import re
import shlex
import tempfile
from dataclasses import dataclass
from pathlib import Path

from intaglio.errors import AnswerIsNo, UserError
from intaglio.package.manifest import FirmwareInfo, Manifest, board_of
from intaglio.package.weights import weights_file
from intaglio.run.build import BuildOptions, Runner, check_whole, sources_in
from intaglio.run.firmware_tools import compile_flags, link_command, runtime
from intaglio.run.stack import read_frames, stack_bytes
from intaglio.run.toolchains import Toolchain
from intaglio.targets.board import Board, all_boards, generic_board
from intaglio.targets.deployment import Deployment
from intaglio.targets.target import Target, find_target

_UNDEFINED = re.compile(r"undefined (symbol|reference)")
_OVERFLOW = re.compile(r"will not fit in region|overflowed by|no room for the stack")
HOOK_STACK_BYTES = 512  # a hook adds calls, and keeps values over them that a layer had in registers
STACK_ALIGNMENT = 16  # of `__stack_top` in the linker script
_STACK, _CORE1 = (re.compile(rf"(__{word}) = \d+\)") for word in ("stack_bytes", "core1_stack_bytes"))
CORE1_STACK_BYTES = 1024  # of the second core, where it has no bound
_LENGTH = re.compile(r"LENGTH = \d+")
ALLOCATED, WRITABLE = 2, 1  # SHF_ALLOC, SHF_WRITE
SERVER_STACK_BYTES = 1024  # of what answers on a serial line, above an inference
ROOM_BYTES = 256 << 20  # between flash and RAM of every board there is more


@dataclass(frozen=True, slots=True)
class Sizes:
    """Bytes of a linked program by what they are."""

    code: int
    weights: int
    selftest: int
    data: int
    bss: int
    code_ram: int = 0  # of the code, in RAM when it runs


def build_firmware(folder: Path, elf: Path, name: str, target: Target, toolchain: Toolchain, cflags: tuple[str, ...] = ()) -> None:
    """Compile the package in `folder` into `elf` alone; the folder is only read, and the board's memory is no limit."""
    with tempfile.TemporaryDirectory(prefix="intaglio-build-") as objects:
        _Build(folder, name, target, toolchain, BuildOptions(cflags), Path(objects)).link_anyway(elf)


def build_hooked(folder: Path, elf: Path, manifest: Manifest, target: Target, toolchain: Toolchain) -> None:
    """The same with the hook. Where a `--ram` leaves no room for its stack, there is more."""
    cflags = (*shlex.split(manifest.options.get("cflags", "")), f"-D{manifest.name.upper()}_HOOK")
    bound = 0 if manifest.firmware is None else manifest.firmware.stack_bytes or 0
    with tempfile.TemporaryDirectory(prefix="intaglio-build-") as objects:
        build = _Build(folder, manifest.name, target, toolchain, BuildOptions(cflags, shared=manifest.shared), Path(objects))
        build.link_anyway(elf, stack_bytes=bound + HOOK_STACK_BYTES)


def build_serial(folder: Path, elf: Path, manifest: Manifest, target: Target, toolchain: Toolchain, *, fits: bool) -> None:
    """Firmware that answers on the serial line, with cycles per layer. `fits`: for the memories of the board, or not at all."""
    name = manifest.name
    if not (folder / "src" / f"{name}_serial.c").is_file():
        hint = "compile the model again, with a template that has `src/NAME_serial.c`"
        raise UserError("not-built", f"`{name}` has no code for a serial line", where=str(folder), hint=hint)
    around = [p for p in sorted((folder / "firmware").glob("*.c")) if p.name not in ("main.c", "uart.c")]
    own = any(f"{name}_uart_get" in path.read_text(encoding="utf-8", errors="replace") for path in around)
    if board_of(manifest, target).uart is None and not own:
        what = f"`{name}` has no serial line: the UART of its board is not known"
        hint = f"define `{name}_uart_get` and `{name}_uart_put` in a file of `firmware/`, or name a `[uart]` in the board's file"
        raise UserError("no-uart", what, where=str(folder / "firmware"), hint=hint)
    cflags = (*shlex.split(manifest.options.get("cflags", "")), f"-D{name.upper()}_SERIAL", f"-D{name.upper()}_HOOK")
    bound = 0 if manifest.firmware is None else manifest.firmware.stack_bytes or 0
    with tempfile.TemporaryDirectory(prefix="intaglio-build-") as objects:
        build = _Build(folder, name, target, toolchain, BuildOptions(cflags, shared=manifest.shared), Path(objects))
        if not fits:
            build.link_anyway(elf)
        elif not build.link(elf, stack_bytes=bound + SERVER_STACK_BYTES):
            what = f"`{name}` with the code for its serial line and the cycles of each layer exceeds the memories of the board"
            raise AnswerIsNo("does-not-fit", what, hint="use `--optimize size`, or compile for a board with more memory to measure")


def build_package(
    folder: Path, manifest: Manifest, target: Target, board: Board, toolchain: Toolchain, options: BuildOptions
) -> FirmwareInfo:
    """Library and ELF inside of the package, and what they need. The ELF is there even where it is too large for the board."""
    name = manifest.name
    for part in ("lib", "bin"):
        (folder / part).mkdir(exist_ok=True)
    elf = folder / "bin" / f"{name}.elf"
    with tempfile.TemporaryDirectory(prefix="intaglio-build-") as objects:
        build = _Build(folder, name, target, toolchain, options, Path(objects))
        build.archive(folder / "lib" / f"lib{name}.a")
        build.link_anyway(elf)
        frames = read_frames(Path(objects))
        depth = stack_bytes(elf, frames, f"{name}_app_run")
        beside = _beside(elf, frames, name, target)
        if beside:  # of the second core: as much as it needs
            _write_stack(folder, name, beside, _CORE1)
            build.link_anyway(elf)
    _write_stack(folder, name, depth)
    window = Deployment(board, weights_read=manifest.options.get("weights") == "read").window
    return _info(manifest, board, sizes_of(elf), depth, window, beside)


def build_combined(
    folder: Path, name: str, models: list[str], target: Target, toolchain: Toolchain, options: BuildOptions
) -> tuple[Sizes, int | None]:
    """The ELF of several networks: its sizes, and the deepest stack of one inference."""
    (folder / "bin").mkdir()
    elf = folder / "bin" / f"{name}.elf"
    with tempfile.TemporaryDirectory(prefix="intaglio-build-") as objects:
        build = _Build(folder, name, target, toolchain, options, Path(objects))
        if options.shared:  # entry points: a library too
            (folder / "lib").mkdir()
            build.archive(folder / "lib" / f"lib{name}.a")
        build.link_anyway(elf)
        frames = read_frames(Path(objects))
        depths = [stack_bytes(elf, frames, f"{model}_app_run") for model in models]
    bounded = [depth for depth in depths if depth is not None]
    deepest = max(bounded) if len(bounded) == len(depths) else None
    _write_stack(folder, name, deepest)
    return sizes_of(elf), deepest


def _write_stack(folder: Path, name: str, depth: int | None, which: re.Pattern[str] = _STACK) -> None:
    """Writes the computed stack size to the linker script, so that a later link fails if there is less."""
    script = folder / "firmware" / f"{name}.ld"
    if depth is not None:
        text = script.read_text(encoding="utf-8")
        script.write_text(which.sub(lambda found: f"{found[1]} = {depth})", text), encoding="utf-8")


def _beside(elf: Path, frames: dict[str, int | None], name: str, target: Target) -> int:
    """The stack of the second core; 0: there is none."""
    if target.threads == 1 or f"{name}_core1" not in frames:
        return 0
    depths = [stack_bytes(elf, frames, root) for root in ("core1_main", f"{name}_core1")]
    return -(-(next((depth for depth in depths if depth), None) or CORE1_STACK_BYTES) // STACK_ALIGNMENT) * STACK_ALIGNMENT


def check_placed(elf: Path, board: Board, stack_bytes: int | None) -> None:
    """What fits by its sizes has been linked for the board; but for some bytes of alignment, which no size tells."""
    from elftools.elf.elffile import ELFFile
    from elftools.elf.sections import SymbolTableSection

    with open(elf, "rb") as file:
        table = ELFFile(file).get_section_by_name(".symtab")
        symbols = {s.name: s["st_value"] for s in table.iter_symbols()} if isinstance(table, SymbolTableSection) else {}
    ram, top = board.main("ram"), symbols.get("__stack_top")
    if top is None:
        return
    needed = -(-(symbols.get("__bss_end", 0) + (stack_bytes or 0)) // STACK_ALIGNMENT) * STACK_ALIGNMENT
    if needed > min(top, ram.address + ram.bytes):
        what = f"`{elf.stem}` exceeds the RAM by some bytes of alignment: the stack starts at a multiple of {STACK_ALIGNMENT} bytes"
        raise AnswerIsNo("does-not-fit", what, hint=f"allow {needed - ram.address:,} bytes, or use `--optimize size`")
    if top > ram.address + ram.bytes:
        what = f"`{elf.stem}` exceeds the memories of the board by some bytes of alignment"
        raise AnswerIsNo("does-not-fit", what, hint="allow some more bytes of flash, or use `--optimize size`")


def _info(
    manifest: Manifest, board: Board, sizes: Sizes, depth: int | None, window: int | None, beside: int = 0
) -> FirmwareInfo:
    """`beside`: the stack of a second core."""
    memory = manifest.memory
    given = () if memory.fed_rows else manifest.inputs
    io_bytes = sum(max(info.bytes, 1) for info in (*given, *manifest.outputs) if info.arena_offset is None)
    static = sizes.data + sizes.bss + beside - memory.arena_bytes - io_bytes - memory.weights_ram
    data = sizes.data - memory.weights_ram
    address = manifest.options.get("weights_address") or (hex(window) if window is not None else None)
    weights = sizes.weights + memory.weights_ram or memory.weight_bytes
    riscv = find_target(manifest.target).arch.startswith("riscv")
    known = all_boards().get(board.name) if board.name else generic_board(board.core, riscv=riscv)
    return FirmwareInfo(
        board=board.name,
        elf=f"bin/{manifest.name}.elf",
        code_bytes=sizes.code,
        weight_bytes=weights,
        data_bytes=data,
        flash_bytes=sizes.code + weights + data,
        static_bytes=max(0, static),
        io_bytes=io_bytes,
        stack_bytes=depth,
        ram_bytes=sizes.data + sizes.bss + sizes.code_ram + beside + (depth or 0),
        selftest_bytes=sizes.selftest,
        weights_file=weights_file(manifest.name) if address and weights else None,
        weights_address=int(address, 0) if address and weights else None,
        own_board=None if board == known else board,
        code_ram_bytes=sizes.code_ram,
    )


def sizes_of(elf: Path) -> Sizes:
    from elftools.elf.elffile import ELFFile

    with open(elf, "rb") as file:
        allocated = [s for s in ELFFile(file).iter_sections() if s["sh_flags"] & ALLOCATED]
        sections = {s.name: s["sh_size"] for s in allocated}
        arenas = [s.name for s in allocated if s.name.startswith(".intaglio_") and s["sh_flags"] & WRITABLE]
    weights, selftest, data, bss = (sections.pop(name, 0) for name in (".weights", ".selftest", ".data", ".bss"))
    weights += sum(sections.pop(name) for name in list(sections) if name.startswith(".weights_"))
    bss += sum(sections.pop(name) for name in arenas)
    return Sizes(sum(sections.values()), weights, selftest, data, bss, sections.get(".code", 0))


class _Build:
    """One build: objects of the library and of the firmware around it."""

    def __init__(self, folder: Path, name: str, target: Target, toolchain: Toolchain, options: BuildOptions, objects: Path) -> None:
        check_whole(folder, "include", "src", "firmware")
        if any(flag.startswith("-flto") for flag in options.cflags):
            hint = "omit `-flto`: start-up code and section sizes need objects of machine code"
            raise UserError("bad-option", "`--cflags -flto` does not work for cores without an operating system", hint=hint)
        self._folder, self._objects = folder.resolve(), objects
        self._target, self._toolchain = target, toolchain
        self._script = f"firmware/{name}.ld"
        self._run = Runner(self._folder, toolchain, options)
        folders = [self._folder / "src", *sorted(p for p in (self._folder / "src").iterdir() if p.is_dir())]
        folders += [Path(os.path.normpath(self._folder / word)) for word in options.shared.split()]
        own = ("-Iinclude", "-Ifirmware", *(f"-I{Path(os.path.relpath(f, self._folder)).as_posix()}" for f in folders))
        flags = (*compile_flags(toolchain, target), *own)
        library = [source for folder in folders for source in sources_in(folder)]
        around = [*sources_in(self._folder / "firmware"), *sources_in(self._folder / "firmware" / "libc")]

        def compile_one(source: Path) -> Path:
            relative = Path(os.path.relpath(source, self._folder))
            made = objects / Path(*(part for part in relative.parent.parts if part != "..")) / f"{relative.name}.o"
            made.parent.mkdir(parents=True, exist_ok=True)
            level = ("-Os",) if source.parent.name == "firmware" else ()  # start-up and main: nothing there takes time
            self._run.compile(relative.as_posix(), (*flags, *level, *options.cflags), made)
            return made

        made = self._run.compile_all([*library, *around], compile_one)
        self._library = [str(made[source]) for source in library]
        self._around = [str(made[source]) for source in around]

    def archive(self, path: Path) -> None:
        path.unlink(missing_ok=True)
        self._run((*self._toolchain.archiver, "rcsD", str(path.resolve()), *self._library))

    def link_anyway(self, elf: Path, *, stack_bytes: int = 0) -> None:
        """For the board's memories, or else for some that are never too small: what is too large is measured, and told by us."""
        if not self.link(elf, stack_bytes=stack_bytes):
            self.link(elf, roomy=True)

    def link(self, elf: Path, *, roomy: bool = False, stack_bytes: int = 0) -> bool:
        """False when the memories are too small."""
        # Of the stack we know more than the linker does: `check_limits` tells. In the script, since LLD takes what this provides
        # even where `--defsym` says otherwise.
        text = _STACK.sub(f"__stack_bytes = {stack_bytes})", (self._folder / self._script).read_text(encoding="utf-8"))
        script = self._objects / "link.ld"
        script.write_text(_LENGTH.sub(f"LENGTH = {ROOM_BYTES}", text) if roomy else text, encoding="utf-8")
        start = link_command(self._toolchain, self._target, str(script))
        command = (*start, "-o", str(elf.resolve()), *self._around, *self._library)
        said = self._run.attempt(command)
        if said is not None and _UNDEFINED.search(said):
            command = (*command, runtime(self._toolchain, self._target))
            said = self._run.attempt(command)
        if said is not None and not (_OVERFLOW.search(said) and not roomy):
            raise self._run.failure(command, said)
        return said is None
