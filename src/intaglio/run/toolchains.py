"""Find a C compiler: the one asked for, the system's, or the one that comes with pip (ziglang).

Zig's clang differs in a few flags (it names processors with underscores, and without `-target` means the machine it
runs on), so that a target's flags are translated here and nowhere else.
"""

from __future__ import annotations

import importlib.util
import os
import platform
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from intaglio.errors import ToolError, UserError, quoted
from intaglio.targets.caches import cache_root
from intaglio.targets.target import Target

BASE_FLAGS = (
    "-std=c99", "-fPIC", "-ffp-contract=off", "-fno-math-errno", "-fno-trapping-math", "-fomit-frame-pointer",
    "-Wall", "-Wextra",
)  # fmt: skip
PROBE_SECONDS = 60


@dataclass(frozen=True, slots=True)
class Toolchain:
    """`compiler`, `archiver` and `linker` are the starts of command lines; hosts link with the compiler."""

    kind: str  # "gcc", "clang", "zig" or "cc"
    compiler: tuple[str, ...]
    archiver: tuple[str, ...]
    version: str
    linker: tuple[str, ...] = ()

    def compile_flags(self, target: Target) -> tuple[str, ...]:
        base = tuple(flag for flag in BASE_FLAGS if not (target.wasm and flag == "-fPIC"))  # a module is linked as a whole
        return (*base, "-Os" if target.optimize == "size" else "-O3", *self.target_flags(target))

    def target_flags(self, target: Target) -> tuple[str, ...]:
        return (*self._processor_flags(target), *(["-pthread"] if target.threads > 1 else []))

    def _processor_flags(self, target: Target) -> tuple[str, ...]:
        if self.kind != "zig":
            return target.flags
        flags = [_ZIG_CPU.get(flag, flag) for flag in target.flags]  # -g0: zig adds debug information with the paths of its build
        if not target.arch:
            return ("-g0", *flags, "-mcpu=baseline")
        if target.wasm:
            return ("-target", "wasm32-wasi", "-g0", *flags)
        # An old glibc as the baseline: the result runs on any Linux since 2014.
        triple = f"{target.arch}-linux-gnu.2.17" if sys.platform == "linux" else f"{target.arch}-{_zig_os()}"
        return ("-target", triple, "-g0", *flags)

    def environment(self) -> dict[str, str]:
        env = {k: v for k, v in os.environ.items() if k not in ("CPATH", "C_INCLUDE_PATH")}
        env["LC_ALL"] = "C"
        env["ZERO_AR_DATE"] = "1"
        env["SOURCE_DATE_EPOCH"] = "0"
        if self.kind == "zig":
            cache_folder = cache_root() / "zig"
            cache_folder.mkdir(parents=True, exist_ok=True)
            env.setdefault("ZIG_GLOBAL_CACHE_DIR", str(cache_folder))
            env.setdefault("ZIG_LOCAL_CACHE_DIR", str(cache_folder))
        return env


_ZIG_CPU = {
    "-march=x86-64-v4": "-mcpu=x86_64_v4",
    "-march=x86-64-v3": "-mcpu=x86_64_v3",
    "-march=x86-64-v2": "-mcpu=x86_64_v2",
    "-march=x86-64": "-mcpu=x86_64",
    "-march=armv8-a": "-mcpu=generic",
    "-march=armv8.2-a+dotprod+i8mm": "-mcpu=generic+dotprod+i8mm",
    "-march=armv8.2-a+dotprod": "-mcpu=generic+dotprod",
}


def find_toolchain(asked: str | None = None, arch: str = "") -> Toolchain:
    """`asked` is a command such as `gcc-13` or `zig`; without it `CC`, then whatever is there. For another processor than this
    machine's, zig comes first: it is a cross compiler, the system's is not."""
    if arch == "wasm32":
        return _for_wasm(asked)
    wanted = asked or os.environ.get("CC") or ""
    if wanted:
        return _named(wanted)
    if arch and arch != _machine() and (zig := pip_zig()) is not None:
        return zig
    for name in ("gcc", "clang", "cc"):
        if (path := shutil.which(name)) and (found := _probe((path,))):
            return found
    if (zig := pip_zig()) is not None:
        return zig
    hint = "`pip install ziglang` installs one; or install gcc or clang, or name one with `--cc`"
    raise ToolError("no-compiler", "no C compiler was found on this machine", hint=hint)


def _for_wasm(asked: str | None) -> Toolchain:
    """zig alone has a C library for WebAssembly. `CC` is the compiler of this machine."""
    found = _named(asked) if asked else pip_zig() or _named("zig")
    if found.kind != "zig":
        hint = "omit `--cc`: the one that pip installs (ziglang) is used"
        raise UserError("no-compiler", f"`{asked}` has no C library for WebAssembly", hint=hint)
    return found


def _named(wanted: str) -> Toolchain:
    try:
        words = shlex.split(wanted)
    except ValueError:
        words = []
    if words == ["zig"] and shutil.which("zig") is None and (zig := pip_zig()) is not None:
        return zig
    hint = "give a command such as `gcc`, `clang` or `zig` with `--cc` or the variable `CC`"
    if not words or (path := shutil.which(words[0])) is None:
        raise ToolError("no-compiler", f"there is no C compiler {quoted(wanted)}", hint=hint)
    command = (path, *words[1:])
    if Path(words[0]).name == "zig":
        command = (path, *(words[1:] or ["cc"]))
    if (found := _probe(command)) is None:
        raise UserError("no-compiler", f"{quoted(wanted)} does not answer `--version` like a C compiler", hint=hint)
    return found


@cache
def pip_zig() -> Toolchain | None:
    """The compiler that comes with pip, whatever `zig` is on the path."""
    if importlib.util.find_spec("ziglang") is None:
        return None
    start = (sys.executable, "-m", "ziglang")
    version = output_of((*start, "version"))
    if version is None:
        return None
    return Toolchain("zig", (*start, "cc"), (*start, "ar"), f"zig {version.strip()}")


@cache
def _probe(command: tuple[str, ...]) -> Toolchain | None:
    text = output_of((*command, "--version"))
    if not text:
        return None
    first = text.splitlines()[0].strip()
    is_zig = Path(command[0]).name == "zig"
    kind = "zig" if is_zig else "clang" if "clang" in first else "gcc" if "Free Software" in text else "cc"
    return Toolchain(kind, command, _archiver(command, is_zig), first)


def _archiver(command: tuple[str, ...], is_zig: bool) -> tuple[str, ...]:
    if is_zig:
        return (command[0], "ar")
    prefix = command[0].removesuffix("gcc") if command[0].endswith("-gcc") else ""
    for name in (f"{prefix}ar", "ar", "llvm-ar"):
        if path := shutil.which(name):
            return (path,)
    if (zig := pip_zig()) is not None:
        return zig.archiver
    raise ToolError("no-compiler", "there is no `ar` to make a static library with", hint="`pip install ziglang`")


def output_of(command: tuple[str, ...]) -> str | None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=PROBE_SECONDS, stdin=subprocess.DEVNULL)
    except (OSError, subprocess.TimeoutExpired, UnicodeDecodeError):
        return None
    return done.stdout if done.returncode == 0 else None


def _machine() -> str:
    names = {"amd64": "x86_64", "arm64": "aarch64"}
    found = platform.machine().lower()
    return names.get(found, found)


def _zig_os() -> str:
    return {"Darwin": "macos", "Windows": "windows-gnu"}.get(platform.system(), "linux-gnu")
