"""Find an OpenCL loader: the one asked for, the system's, or the one that comes by pip (pyopencl, with PoCL).

    $INTAGLIO_OPENCL_LIBRARY    taken as it is
    libOpenCL.so.1              as it is, where it shows a platform
    pyopencl's                  with PoCL (pyopencl[pocl]) and Intel's CPU driver (intel-opencl-rt), where they are installed;
                                without PoCL where its compiler does not know this processor

pyopencl itself is not imported: its loader, an ocl-icd with a change, reads `PYOPENCL_HOME` (and crashes without it) and, as every
ocl-icd, `OCL_ICD_VENDORS`: a folder of .icd files, each with the path of a driver. We write that folder: the .icd files of the
packages have no path (PoCL) or one that is not there (Intel).

PoCL calls `ld` when it finishes a kernel, and aborts the process where there is none: then a small script of that name, which calls
the linker of ziglang, is the first in `PATH`.
"""

from __future__ import annotations

import atexit
import hashlib
import importlib.metadata
import importlib.util
import os
import shlex
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from intaglio.errors import ToolError, install_hint, quoted
from intaglio.run.opencl.answers import Answer, ask
from intaglio.targets.caches import cache_root

VARIABLE = "INTAGLIO_OPENCL_LIBRARY"
SYSTEM = {"darwin": "/System/Library/Frameworks/OpenCL.framework/OpenCL", "win32": "OpenCL.dll"}.get(sys.platform, "libOpenCL.so.1")
HINT = f"{install_hint('opencl')} installs PoCL, which runs on the CPU; or install the driver of your GPU"
POCL = "Portable Computing Language"
SEEN = (VARIABLE, "OCL_ICD_VENDORS", "OPENCL_VENDOR_PATH", "OCL_ICD_FILENAMES", "LD_LIBRARY_PATH", "PATH", "INTAGLIO_CACHE_DIR")


@dataclass(frozen=True, slots=True)
class Loader:
    """A library, and the variables it needs beside those of this process."""

    library: str
    environment: dict[str, str]
    answer: Answer

    def apply(self) -> None:
        """For calls from this process, by ctypes; and every child inherits it."""
        os.environ.update(self.environment)

    def child_environment(self, base: Mapping[str, str] | None = None) -> dict[str, str]:
        """All variables of a child process, with the library for the C runtime of a package."""
        return {**(os.environ if base is None else base), **self.environment}


def find_loader() -> Loader:
    """The first that shows a platform. Asked once per process, unless the variables change that it depends on."""
    return _find(tuple(os.environ.get(name) for name in SEEN))


@cache
def _find(_: tuple[str | None, ...]) -> Loader:
    asked = os.environ.get(VARIABLE)
    seen: list[tuple[str, Answer]] = []
    first: Loader | None = None  # that shows a device, though one whose compiler refuses every kernel
    for library, environment in _candidates(asked):
        answer = ask(library, environment)
        if answer.whole:
            return Loader(library, {**environment, **_linker(answer, environment)}, answer)
        if answer.platforms and first is None:
            first = Loader(library, {**environment, **_linker(answer, environment)}, answer)
        seen.append((library, answer))
    if first is not None:
        return first
    for library, answer in seen:
        if answer.crash:
            hint = "a driver in /etc/OpenCL/vendors may be broken; `OCL_ICD_VENDORS=FOLDER` selects another folder of .icd files"
            text = f"a process crashed while {quoted(library)} listed its devices: {answer.crash}"
            raise ToolError("opencl-crashed", text, hint=hint)
    if asked and seen[0][1].problem:
        text = f"${VARIABLE} names {quoted(asked)}, which is not an OpenCL library: {seen[0][1].problem}"
        raise ToolError("no-opencl", text, hint=f"unset it, or give the path of an OpenCL loader or driver; {HINT}")
    if all(answer.problem for _, answer in seen):
        raise ToolError("no-opencl", f"no OpenCL loader ({quoted(SYSTEM)}) was found on this machine", hint=HINT)
    if asked:
        text = f"the OpenCL loader {quoted(asked)}, of ${VARIABLE}, finds no driver"
        raise ToolError("no-opencl-platform", text, hint=f"unset it; {HINT}")
    raise ToolError("no-opencl-platform", "the OpenCL loader of this machine finds no driver", hint=HINT)


def _candidates(asked: str | None) -> Iterator[tuple[str, dict[str, str]]]:
    drivers = pip_drivers()
    bundled = pip_loader()
    if asked:
        yield asked, _pip_environment(drivers, asked) if Path(asked).match("libOpenCL-*") else {}  # pyopencl's, of whatever folder
        return
    yield SYSTEM, {}
    more = system_drivers()
    if bundled and more:  # drivers without a loader: common in containers
        yield str(bundled), {VARIABLE: str(bundled), **_pip_environment((*drivers, *more), str(bundled))}
    if bundled:
        yield str(bundled), {VARIABLE: str(bundled), **_pip_environment(drivers, str(bundled))}
        if others := tuple(driver for driver in drivers if not is_pocl(driver)):
            yield str(bundled), {VARIABLE: str(bundled), **_pip_environment(others, str(bundled))}
    if drivers:
        yield SYSTEM, _pip_environment(drivers, SYSTEM)


def _pip_environment(drivers: tuple[str, ...], library: str) -> dict[str, str]:
    environment = {}
    if library != SYSTEM:
        # Any folder without another `.libs` in it: the .icd file there names PoCL without a path, and shows it twice.
        environment["PYOPENCL_HOME"] = str(Path(library).parent)
    if drivers and (library == SYSTEM or not os.environ.get("OCL_ICD_VENDORS")):
        files = {f"{_icd_name(driver)}.icd": f"{driver}\n" for driver in drivers}
        environment["OCL_ICD_VENDORS"] = str(_folder(files, executable=False))
    return environment


def _icd_name(driver: str) -> str:
    return f"{Path(driver).name.split('.')[0]}-{hashlib.sha256(driver.encode()).hexdigest()[:6]}"


def pip_loader() -> Path | None:
    """The loader that is in pyopencl's wheel for Linux."""
    return next(iter(_bundled("libOpenCL-*.so*")), None)


def is_pocl(driver: str) -> bool:
    return Path(driver).name.startswith("libpocl")


@cache
def pip_drivers() -> tuple[str, ...]:
    """PoCL and Intel's CPU driver, where pip has put them."""
    return tuple(map(str, (*_bundled("libpocl-*.so*"), *_intel())))


def system_drivers() -> tuple[str, ...]:
    found = []
    for file in sorted(Path("/etc/OpenCL/vendors").glob("*.icd")):
        try:
            found += file.read_text(encoding="utf-8").split("\n")[:1]
        except (OSError, UnicodeDecodeError):
            continue
    return tuple(driver.strip() for driver in found if driver.strip())


def _bundled(pattern: str) -> list[Path]:
    try:
        found = importlib.util.find_spec("pyopencl")  # of a package on the top level: finds it, does not import it
    except (ImportError, ValueError):
        return []
    folders = [Path(folder) / ".libs" for folder in (found.submodule_search_locations or ())] if found else []
    return sorted(path for folder in folders for path in folder.glob(pattern))


def _intel() -> list[Path]:
    try:
        files = importlib.metadata.files("intel-opencl-rt") or []
    except importlib.metadata.PackageNotFoundError:
        return []
    found = [Path(str(file.locate())).resolve() for file in files if file.name == "libintelocl.so"]
    return [path for path in found if path.is_file()]


def _linker(answer: Answer, environment: Mapping[str, str]) -> dict[str, str]:
    """`PATH` with a linker for PoCL, where there is none."""
    path = environment.get("PATH", os.environ.get("PATH", ""))
    if not any(platform.name == POCL for platform in answer.platforms) or shutil.which("ld", path=path) or os.name != "posix":
        return {}
    zig = importlib.util.find_spec("ziglang")
    if zig is None or zig.origin is None:
        return {}
    program = Path(zig.origin).with_name("zig")
    command = [str(program)] if program.is_file() else [sys.executable, "-m", "ziglang"]
    folder = _folder({"ld": LINKER.format(command=shlex.join(command))}, executable=True)
    return {"PATH": os.pathsep.join(filter(None, (str(folder), path)))}


# What PoCL links is one object file that needs nothing but libm's functions, which are in the process already.
LINKER = """#!/bin/sh
# `ld` for PoCL, by Intaglio: there is no other on this machine.
n=$#
while [ "$n" -gt 0 ]; do
    a=$1; shift; n=$((n - 1))
    case $a in
        -lgcc*|-lc|-lm|crt*.o|*/crt*.o) ;;
        *) set -- "$@" "$a" ;;
    esac
done
exec {command} ld.lld "$@"
"""


def _folder(files: Mapping[str, str], *, executable: bool) -> Path:
    """A folder with just these files: in the user's cache, named by its content; else a temporary one."""
    name = hashlib.sha256("\0".join(f"{key}\0{text}" for key, text in sorted(files.items())).encode()).hexdigest()[:16]
    folder = cache_root() / "opencl" / name
    try:
        if not _complete(folder, files):
            folder.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            fresh = Path(tempfile.mkdtemp(prefix=".new-", dir=folder.parent))
            _fill(fresh, files, executable)
            try:
                fresh.rename(folder)  # fails where another process was quicker, or something else is there
            except OSError:
                shutil.rmtree(fresh, ignore_errors=True)
                if not _complete(folder, files):
                    raise
    except OSError:
        folder = Path(tempfile.mkdtemp(prefix="intaglio-opencl-"))
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        _fill(folder, files, executable)
    return folder


def _complete(folder: Path, files: Mapping[str, str]) -> bool:
    try:
        owner = not hasattr(os, "getuid") or folder.stat().st_uid == os.getuid()
        return owner and all((folder / name).read_text(encoding="utf-8") == text for name, text in files.items())
    except (OSError, UnicodeDecodeError):
        return False


def _fill(folder: Path, files: Mapping[str, str], executable: bool) -> None:
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8")
        (folder / name).chmod(0o755 if executable else 0o644)
