"""Compile a C project: objects in parallel, a static and a shared library, the application.

Everything runs inside the project's folder with relative paths, so that the same sources give the same bytes anywhere.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from threading import Lock

from intaglio.errors import IntaglioError, OurFault, ToolError, UserError
from intaglio.run.intrinsics import probe_text, spared_headers
from intaglio.run.objects import inputs_of, object_cache
from intaglio.run.toolchains import Toolchain
from intaglio.run.wasm import PROGRAM_FLAGS, module_flags
from intaglio.targets.target import Target

Progress = Callable[[str, int, int], None]  # what, done, of
Start = Callable[[Callable[[], object]], Future[object]]  # something beside other work
COMPILER_SECONDS = 1800
_FULL = ("No space left on device", "Disk quota exceeded", "File size limit exceeded", "File too large")


@dataclass(frozen=True, slots=True)
class BuildOptions:
    cflags: tuple[str, ...] = ()
    library_only: bool = False  # the shared library alone, for a call from this process
    edited_template: bool = False  # then a compiler error is about the user's C
    progress: Progress | None = None
    accelerators: tuple[str, ...] = ()  # plug-ins that wrote parts of the C
    variants: tuple[tuple[str, Target], ...] = ()  # folders below `src` with their targets
    shared: str = ""  # other folders with sources, from the project's own


class Objects:
    """The objects of a project, in a folder of their own, and what is linked of them. Those whose sources are written first can be
    begun before the others."""

    def __init__(
        self, folder: Path, where: Path, name: str, target: Target, toolchain: Toolchain, options: BuildOptions
    ) -> None:
        self.folder = folder.resolve()  # commands run inside of it
        self.run = Runner(self.folder, toolchain, options)
        self._where, self._name, self._target, self._toolchain, self._options = where, name, target, toolchain, options
        self._by_folder = {self.folder / "src" / part: _flags(toolchain, of, options) for part, of in options.variants}
        self._flags = _flags(toolchain, target, options)
        self._begun: list[Future[object]] = []
        self._linking: list[Future[object]] = []
        self._left, self._lock = 0, Lock()

    def library(self) -> list[Path]:
        shared = [Path(os.path.normpath(self.folder / self._options.shared))] if self._options.shared else []
        return [source for part in (self.folder / "src", *self._by_folder, *shared) for source in sources_in(part)]

    def application(self) -> list[Path]:
        return [] if self._options.library_only else sources_in(self.folder / "src" / "app")

    def sources(self) -> list[Path]:
        return [*self.library(), *self.application()]

    def begin(self, start: Start, write_others: Callable[[], None]) -> None:
        """Compile the sources that are there, and those that are still to be written, beside other work; then link."""
        there = largest_first(self.sources())
        steps: list[Callable[[], object]] = [partial(self._go_on, write_others, frozenset(there))]
        steps += [partial(self._compile, source) for source in there]
        self._left = len(steps)
        self._begun = [start(partial(self._step, step, start)) for step in steps]

    def _step(self, do: Callable[[], object], start: Start) -> None:
        do()
        with self._lock:
            self._left -= 1
            last = self._left == 0
        if last:
            self._linking = [start(partial(self.run, command)) for command in self._links()]

    def _go_on(self, write_others: Callable[[], None], there: frozenset[Path]) -> None:
        write_others()
        for source in self.sources():
            if source not in there:
                self._compile(source)

    def finish(self) -> None:
        """Libraries and application are there."""
        if not self._begun:
            self.run.compile_all(self.sources(), self._compile)
            self.run.all_of(self._links())
            return
        for done, future in enumerate(self._begun, 1):
            future.result()
            if self._options.progress is not None:
                self._options.progress("compiling", done, len(self._begun))
        for future in self._linking:
            future.result()

    def _compile(self, source: Path) -> Path:
        made = self._made(source)
        made.parent.mkdir(exist_ok=True)
        relative = Path(os.path.relpath(source, self.folder)).as_posix()
        self.run.compile(relative, self._by_folder.get(source.parent, self._flags), made)
        return made

    def _made(self, source: Path) -> Path:
        return self._where / ("app_" if source.parent.name == "app" else "") / f"{source.name}.o"

    def _links(self) -> list[tuple[str, ...]]:
        """The commands. Each copies the weights, so they run side by side."""
        name, folder, target, toolchain, options = self._name, self.folder, self._target, self._toolchain, self._options
        (folder / "lib").mkdir(exist_ok=True)
        parts = [str(self._made(source)) for source in self.library()]
        link = (*toolchain.compiler, *toolchain.target_flags(target), *_link_flags(options.cflags), *_no_build_id(toolchain))
        libraries = ("-lm", "-ldl") if target.device else ("-lm",)  # the OpenCL loader is opened by `dlopen`
        kind = module_flags(name, (folder / "include" / f"{name}.h").read_text(encoding="utf-8")) if target.wasm else ("-shared",)
        commands = [(*link, *kind, "-o", str(folder / "lib" / library_file(name, target)), *parts, *libraries)]
        if not options.library_only:
            commands.append((*toolchain.archiver, "rcsD", str(folder / "lib" / f"lib{name}.a"), *parts))
            (folder / "bin").mkdir(exist_ok=True)
        if app_parts := [str(self._made(source)) for source in self.application()]:
            program = folder / "bin" / (f"{name}.wasm" if target.wasm else name)
            more = PROGRAM_FLAGS if target.wasm else ()
            commands.append((*link, *more, "-o", str(program), *app_parts, *parts, *libraries))
        return commands


def build_project(
    folder: Path, name: str, target: Target, toolchain: Toolchain, options: BuildOptions, begun: Objects | None = None
) -> None:
    """Libraries and application from the sources in `folder`. `begun`: objects of it that are being compiled already."""
    with tempfile.TemporaryDirectory(prefix="intaglio-build-") as where:
        objects = begun or Objects(folder, Path(where), name, target, toolchain, options)
        objects.finish()


def _flags(toolchain: Toolchain, target: Target, options: BuildOptions) -> tuple[str, ...]:
    places = ("-Iinclude", "-Isrc", *((f"-I{options.shared}",) if options.shared else ()))
    return (*toolchain.compile_flags(target), *spared_flags(toolchain, target, options), *places, *options.cflags)


def build_shared(folder: Path, parts: list[Path], name: str, target: Target, toolchain: Toolchain, options: BuildOptions) -> None:
    """One static and one shared library of the sources in several folders."""
    folder = folder.resolve()
    flags, run = _flags(toolchain, target, options), Runner(folder, toolchain, options)
    by_folder = {part: _flags(toolchain, of, options) for part, of in options.variants}
    with tempfile.TemporaryDirectory(prefix="intaglio-build-") as objects:

        def compile_one(source: Path) -> Path:
            made = Path(objects) / f"{source.name}.o"
            run.compile(source.relative_to(folder).as_posix(), by_folder.get(source.parent.name, flags), made)
            return made

        made = run.compile_all([source.resolve() for part in parts for source in sources_in(part)], compile_one)
        together = [str(path) for path in made.values()]
        (folder / "lib").mkdir(exist_ok=True)
        link = (*toolchain.compiler, *toolchain.target_flags(target), *_link_flags(options.cflags), *_no_build_id(toolchain))
        run((*link, "-shared", "-o", str(folder / "lib" / library_file(name, target)), *together, "-lm"))
        run((*toolchain.archiver, "rcsD", str(folder / "lib" / f"lib{name}.a"), *together))


def library_file(name: str, target: Target) -> str:
    """What a process loads: a shared library, or a module."""
    return f"{name}.wasm" if target.wasm else f"lib{name}.so"


def check_whole(folder: Path, *parts: str) -> None:
    """Before a package is built again: are its sources still there?"""
    for part in parts:
        if not (folder / part).is_dir():
            what = f"the package is not complete: `{part}/` is missing"
            raise UserError("not-built", what, where=str(folder), hint="compile the model again")


def sources_in(folder: Path) -> list[Path]:
    return sorted([*folder.glob("*.c"), *folder.glob("*.S")])


def largest_first(sources: list[Path]) -> list[Path]:
    """The last file to finish decides how long it takes."""
    return sorted(sources, key=lambda p: -p.stat().st_size)


def spared_flags(toolchain: Toolchain, target: Target, options: BuildOptions) -> tuple[str, ...]:
    """So that the compiler reads fewer headers. The user's own C and flags may use other instructions than the target has."""
    if options.edited_template or options.accelerators or any(flag.startswith("-m") for flag in options.cflags):
        return ()
    spared = spared_headers(toolchain, target)
    return spared if spared and _accepts(toolchain, (*toolchain.compile_flags(target), *spared), probe_text(target)) else ()


@cache
def _accepts(toolchain: Toolchain, flags: tuple[str, ...], text: str) -> bool:
    with tempfile.TemporaryDirectory(prefix="intaglio-probe-") as name:
        folder = Path(name)
        (folder / "probe.c").write_text(text, encoding="ascii")
        return Runner(folder, toolchain, BuildOptions()).attempt_compile("probe.c", flags, folder / "probe.c.o") is None


def _cores() -> int:
    """Those that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _no_build_id(toolchain: Toolchain) -> tuple[str, ...]:
    """The id is a digest of all that is linked, weights included: 1.5 s for a gigabyte. The manifest has digests of its own."""
    return ("-Wl,--build-id=none",) if sys.platform == "linux" and toolchain.kind in ("gcc", "clang") else ()


def _link_flags(cflags: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(f for f in cflags if f.startswith("-fsanitize"))


def _is_full(folder: Path) -> bool:
    """Some tools fail on a full disk without saying so (`ar`: "unable to copy file; reason: Success")."""
    try:
        return shutil.disk_usage(folder).free < 1 << 20
    except OSError:
        return False


class Runner:
    """Runs commands of one build; the first that fails ends it, with the compiler's words in a file."""

    def __init__(self, folder: Path, toolchain: Toolchain, options: BuildOptions) -> None:
        self._folder = folder
        self._toolchain = toolchain
        self._options = options
        self._environment = toolchain.environment()
        self._cache = object_cache()
        self._done = 0
        self.total = 0

    def advance(self, what: str) -> None:
        self._done += 1
        if self._options.progress is not None and self.total:  # of objects that were begun early, `finish` tells
            self._options.progress(what, self._done, self.total)

    def compile_all(self, sources: list[Path], compile_one: Callable[[Path], Path]) -> dict[Path, Path]:
        """As many at once as there are cores."""
        self.total = len(sources)
        order = largest_first(sources)
        with ThreadPoolExecutor(max_workers=_cores()) as pool:
            return dict(zip(order, pool.map(compile_one, order), strict=True))

    def compile(self, source: str, flags: tuple[str, ...], made: Path) -> None:
        """An object from a source of the project, or from the cache of objects."""
        command = (*self._toolchain.compiler, *flags, "-c", source, "-o", str(made))
        if (said := self.attempt_compile(source, flags, made)) is not None:
            raise self.failure(command, said)
        self.advance("compiling")

    def attempt_compile(self, source: str, flags: tuple[str, ...], made: Path) -> str | None:
        command = (*self._toolchain.compiler, *flags, "-c", source, "-o", str(made))
        inputs = inputs_of(self._folder, source, self._toolchain, flags, self._options.cflags) if self._cache is not None else None
        if self._cache is None or inputs is None:
            return self.attempt(command)
        if self._cache.fetch(inputs.key, made):
            return None
        listed = made.with_suffix(".d")
        if (said := self.attempt((*command, "-MD", "-MF", str(listed)))) is None:
            self._cache.store(inputs, made, listed)
        return said

    def __call__(self, command: tuple[str, ...]) -> None:
        if (said := self.attempt(command)) is not None:
            raise self.failure(command, said)

    def all_of(self, commands: list[tuple[str, ...]]) -> None:
        """Linkers copy the weights: gigabytes, for some models."""
        with ThreadPoolExecutor(max_workers=_cores()) as pool:
            list(pool.map(self, commands))

    def attempt(self, command: tuple[str, ...]) -> str | None:
        """None when it went well, else what the command said."""
        try:
            done = subprocess.run(
                command, cwd=self._folder, env=self._environment, capture_output=True, text=True, errors="replace",
                timeout=COMPILER_SECONDS, stdin=subprocess.DEVNULL,
            )  # fmt: skip
        except OSError as error:
            hint = "name another compiler with `--cc`"
            raise ToolError("no-compiler", f"cannot start `{command[0]}`: {error.strerror}", hint=hint) from error
        except subprocess.TimeoutExpired:
            raise ToolError("compiler-failed", f"the C compiler took more than {COMPILER_SECONDS} s") from None
        if (
            done.returncode == -signal.SIGINT
            or "terminated with signal 2" in done.stderr
            or "Interrupt signal terminated" in done.stderr
        ):
            raise KeyboardInterrupt  # Ctrl-C reached the compiler before it reached us
        return None if done.returncode == 0 else done.stdout + done.stderr

    def failure(self, command: tuple[str, ...], said: str) -> IntaglioError:
        if any(words in said for words in _FULL) or _is_full(self._folder) or _is_full(Path(tempfile.gettempdir())):
            hint = "free some space, or set TMPDIR to a folder on another disk; no partial output was left"
            return ToolError("disk-full", "the disk became full while compiling", hint=hint)
        if "signal terminated program" in said or "unable to execute command: Killed" in said:
            hint = "the machine may have too little memory, or another process ended it; try again"
            return ToolError("compiler-failed", "the C compiler was killed", hint=hint)
        with tempfile.NamedTemporaryFile("w", prefix="intaglio-compiler-", suffix=".log", delete=False, encoding="utf-8") as log:
            log.write(" ".join(command) + "\n\n" + said)
        errors = [line for line in said.splitlines() if "error" in line.lower()] or said.splitlines() or ["no message"]
        first = f"the C compiler failed: {errors[0].strip()[:300]}"
        if self._options.edited_template:
            return UserError("compiler-failed", first, where=log.name, hint="the C of the template is wrong; see the log")
        if self._options.accelerators:
            names = ", ".join(f"`{name}`" for name in self._options.accelerators)
            hint = f"check the C of the accelerator {names}, which is part of it; see the log"
            return ToolError("plugin-garbage", first, where=log.name, hint=hint)
        if self._toolchain.kind == "cc" or self._options.cflags:
            return ToolError("compiler-failed", first, where=log.name, hint="try another compiler with `--cc`")
        return OurFault("compiler-failed", first, where=log.name, hint="this is a bug in Intaglio: please send the log")
