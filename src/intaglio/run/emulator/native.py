"""Small C files that ship with us, compiled once for this machine and kept in the cache folder."""

from __future__ import annotations

import hashlib
import os
import platform
import subprocess
import sys
import tempfile
from functools import cache
from importlib import resources
from pathlib import Path

from intaglio.errors import IntaglioError
from intaglio.run.toolchains import cache_root, find_toolchain
from intaglio.targets.target import find_target


@cache
def compiled(file: str, flags: tuple[str, ...] = ()) -> Path | None:
    """`counter.c` as a shared library; None where no compiler makes one."""
    source = resources.files("intaglio.run.emulator").joinpath(file).read_bytes()
    key = hashlib.sha256(source + f"{sys.platform} {platform.machine()} {flags}".encode()).hexdigest()[:16]
    path = cache_root() / "emulator" / f"{Path(file).stem}-{key}.so"
    try:
        if not path.is_file():
            _compile(file, source, flags, path)
        return path
    except (IntaglioError, OSError, subprocess.SubprocessError):
        return None


def _compile(file: str, source: bytes, flags: tuple[str, ...], path: Path) -> None:
    toolchain = find_toolchain()
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="native-", dir=path.parent) as folder:
        (Path(folder) / file).write_bytes(source)
        more = (*toolchain.target_flags(find_target("generic")), "-O2", "-fPIC", "-shared", *flags)
        command = (*toolchain.compiler, *more, file, "-o", "made.so")
        subprocess.run(command, cwd=folder, env=toolchain.environment(), check=True, capture_output=True, timeout=120)
        os.replace(Path(folder) / "made.so", path)  # in one step: another process may be doing the same
