"""Small C files, compiled once for this machine and kept in the cache folder: our own, and those of accelerators."""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from functools import cache
from importlib import resources
from pathlib import Path

from intaglio.errors import IntaglioError, ToolError, quoted
from intaglio.run.toolchains import find_toolchain
from intaglio.targets.caches import cache_root
from intaglio.targets.target import find_target


@cache
def compiled(file: str, flags: tuple[str, ...] = ()) -> Path | None:
    """`counter.c` as a shared library; None where no compiler makes one."""
    source = resources.files("intaglio.run.emulator").joinpath(file).read_bytes()
    try:
        return _library("emulator", {file: source}, flags)
    except (IntaglioError, OSError, subprocess.SubprocessError):
        return None


def host_library(name: str, files: Mapping[str, str]) -> ctypes.CDLL:
    """C files of an accelerator as a library of this machine, for its emulation."""
    try:
        path = _library(f"accelerators/{name}", {file: text.encode() for file, text in files.items()}, ("-ffp-contract=off",))
        return ctypes.CDLL(str(path))
    except subprocess.CalledProcessError as error:
        said = error.stderr.decode(errors="replace").strip().splitlines()
        what = f"the C files of {quoted(name)} do not compile: {said[0] if said else 'no reason given'}"
        raise ToolError("compiler-failed", what, hint="these files are part of the plug-in") from None
    except (OSError, subprocess.SubprocessError) as error:
        raise ToolError("compiler-failed", f"the C files of {quoted(name)} cannot be built: {error}") from None


def _library(folder: str, files: Mapping[str, bytes], flags: tuple[str, ...]) -> Path:
    """The digest of everything that goes in is its name."""
    about = f"{sys.platform} {platform.machine()} {flags} {sorted(files)}".encode()
    key = hashlib.sha256(b"".join(files[name] for name in sorted(files)) + about).hexdigest()[:16]
    stem = Path(min(name for name in files if name.endswith(".c"))).stem
    path = cache_root() / folder / f"{stem}-{key}.so"
    if not path.is_file():
        _compile(files, flags, path)
    return path


def _compile(files: Mapping[str, bytes], flags: tuple[str, ...], path: Path) -> None:
    toolchain = find_toolchain()
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="native-", dir=path.parent) as folder:
        for name, source in files.items():
            (Path(folder) / name).write_bytes(source)
        more = (*toolchain.target_flags(find_target("generic")), "-O2", "-fPIC", "-shared", *flags)
        command = (*toolchain.compiler, *more, *sorted(n for n in files if n.endswith(".c")), "-o", "made.so")
        subprocess.run(command, cwd=folder, env=toolchain.environment(), check=True, capture_output=True, timeout=120)
        os.replace(Path(folder) / "made.so", path)  # in one step: another process may be doing the same
