"""Compilers for cores without an operating system: zig's clang and lld, or a cross gcc when asked for.

What the compiler calls but no C library gives (64-bit division, floats without a unit) comes from libgcc, or from zig's
compiler_rt: built once for each core, and kept in the cache.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path

from intaglio.errors import ToolError, UserError, quoted
from intaglio.run.toolchains import Toolchain, find_toolchain, pip_zig
from intaglio.targets.caches import cache_root
from intaglio.targets.target import LEVELS, Target

FLAGS = (
    "-std=c99", "-ffreestanding", "-ffunction-sections", "-fdata-sections", "-fstack-usage", "-fomit-frame-pointer",
    "-fno-math-errno", "-fno-trapping-math", "-ffp-contract=off", "-fno-unwind-tables", "-fno-asynchronous-unwind-tables",
    "-Wall", "-Wextra",
)  # fmt: skip
RUNTIME_SECONDS = 600


def find_firmware_toolchain(asked: str | None, target: Target) -> Toolchain:
    """`asked` is a command such as `arm-none-eabi-gcc`; without it, the zig that pip installed with Intaglio is used."""
    if asked is None or asked == "zig":
        return _zig()
    try:
        found = find_toolchain(asked)
    except ToolError as error:
        family = "" if target.arch.startswith("riscv") else ", or install it (Debian: `apt install gcc-arm-none-eabi`)"
        raise ToolError(error.slug, error.message, hint=f"omit `--cc`: zig compiles for every core{family}") from None
    machine = _machine_of(found)
    if found.kind == "zig":
        return _zig()
    if found.kind == "clang":
        linker = shutil.which("ld.lld")
        return Toolchain("clang", found.compiler, found.archiver, found.version, (linker,) if linker else _zig().linker)
    family = "riscv" if target.arch.startswith("riscv") else "arm"
    if not machine.startswith(family) or "linux" in machine:
        hint = "omit `--cc`: zig compiles for every core" + ("; or `--cc arm-none-eabi-gcc`" if family == "arm" else "")
        raise UserError("no-compiler", f"{quoted(asked)} compiles for {quoted(machine)}, not for `{target.name}`", hint=hint)
    return Toolchain("gcc", found.compiler, found.archiver, found.version, found.compiler)


def compile_flags(toolchain: Toolchain, target: Target) -> tuple[str, ...]:
    """`firmware/libc` is searched before the compiler's own folders, of which only the freestanding headers are used."""
    headers = ("-isystem", "firmware/libc")
    level = LEVELS[target.optimize]
    if toolchain.kind == "gcc":
        return (*FLAGS, level, *target.flags, *headers, "-fno-tree-loop-distribute-patterns")
    own = ("-isystem", str(_zig_folder() / "lib" / "include")) if toolchain.kind == "zig" else ()
    return (*FLAGS, level, f"--target={target.triple}", *target.flags, "-nostdlibinc", *headers, *own)


def link_command(toolchain: Toolchain, target: Target, script: str) -> tuple[str, ...]:
    if toolchain.kind == "gcc":
        words = f"-Wl,-T,{script},--gc-sections,--nmagic,--build-id=none"
        return (*toolchain.linker, *target.flags, "-nostdlib", "-static", words)
    return (*toolchain.linker, "-T", script, "--gc-sections", "--nmagic", "--build-id=none")


def runtime(toolchain: Toolchain, target: Target) -> str:
    """The compiler's own functions, as a word for the linker."""
    return "-lgcc" if toolchain.kind == "gcc" else str(_compiler_rt(target))


def _compiler_rt(target: Target) -> Path:
    zig = _zig()
    version = zig.version.removeprefix("zig ")
    made = cache_root() / "compiler_rt" / f"{version}-{target.name}.a"
    if made.is_file():
        return made
    made.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="intaglio-rt-", dir=made.parent) as folder:
        fresh = Path(folder) / "rt.a"
        command = (
            zig.compiler[0], "build-lib", str(_zig_folder() / "lib" / "compiler_rt.zig"), *_zig_target(target), "-OReleaseSmall",
            "-ffunction-sections", "-fdata-sections", "-fstrip", f"-femit-bin={fresh}",
        )  # fmt: skip
        try:
            done = subprocess.run(
                command, cwd=folder, env=zig.environment(), capture_output=True, text=True, errors="replace",
                timeout=RUNTIME_SECONDS, stdin=subprocess.DEVNULL,
            )  # fmt: skip
        except (OSError, subprocess.TimeoutExpired) as error:
            raise ToolError("compiler-failed", f"zig cannot build its run-time library: {error}") from error
        if done.returncode != 0 or not fresh.is_file():
            said = (done.stderr.strip().splitlines() or ["no message"])[0]
            raise ToolError("compiler-failed", f"zig cannot build its run-time library: {said[:300]}", hint="use another `--cc`")
        os.replace(fresh, made)  # whoever comes second replaces it by the same
    return made


def _zig_target(target: Target) -> tuple[str, ...]:
    if target.arch.startswith("riscv"):
        features = {"rv32imc": "m+c", "rv32imafc": "m+a+f+c", "hazard3": "m+a+c+zba+zbb+zbs"}[target.core]
        return ("-target", "riscv32-freestanding-none", f"-mcpu=generic_rv32+{features}")
    floats = "eabihf" if target.triple.endswith("hf") else "eabi"
    core = target.core.replace("+", "plus").replace("-", "_")
    return ("-target", f"thumb-freestanding-{floats}", f"-mcpu={core}{_NO_UNIT.get(target.name, '')}")


_NO_UNIT = {"cortex-m4": "-vfp4d16sp", "cortex-m33": "-fp64", "cortex-m4f": "+vfp4d16sp"}


@cache
def _zig() -> Toolchain:
    found = pip_zig()
    if found is None:
        hint = "`pip install ziglang` installs one, or name a cross compiler with `--cc`, such as `arm-none-eabi-gcc`"
        raise ToolError("no-compiler", "no compiler for this core was found", hint=hint)
    program = str(_zig_folder() / "zig")
    return Toolchain("zig", (program, "clang"), (program, "ar"), found.version, (program, "ld.lld"))


def _zig_folder() -> Path:
    found = importlib.util.find_spec("ziglang")
    assert found is not None and found.origin is not None
    return Path(found.origin).parent


def _machine_of(toolchain: Toolchain) -> str:
    done = subprocess.run((*toolchain.compiler, "-dumpmachine"), capture_output=True, text=True, stdin=subprocess.DEVNULL)
    return done.stdout.strip()
