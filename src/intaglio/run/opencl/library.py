"""The built library of a package for OpenCL devices, called in this process.

The package's C does the work: it finds the device, keeps programs in a cache, runs. This module tells it which
loader to call and with which environment (`loader`), which device is meant, and where caches are:

    NAME.clbin of the package       read, never written
    $INTAGLIO_OPENCL_CACHE, else NAME.clbin in the user's cache folder: read and written, as by the package's application
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from intaglio.errors import AnswerIsNo, IntaglioError, ToolError, UserError, quoted
from intaglio.ir.graph import Array
from intaglio.package.manifest import Manifest
from intaglio.run.host import ERROR_SLUGS, Library, open_library, pointers
from intaglio.run.opencl.answers import OpenCLDevice
from intaglio.run.opencl.devices import find_device
from intaglio.run.opencl.loader import HINT, find_loader

CHECKS = ("first", "always", "never")  # as NAME_CHECK_FIRST, ... count
CACHE_VARIABLE = "INTAGLIO_OPENCL_CACHE"
MOST_CACHE_BYTES = 1 << 30
NO_OPENCL, NO_PLATFORM, NO_DEVICE, DEVICE_MEMORY, BUILD_FAILED, DEVICE_FAILED, HOST_MEMORY, CACHE_NOT_SAVED = range(32, 40)
SLUGS = {
    NO_OPENCL: ("no-opencl", HINT),
    NO_PLATFORM: ("no-opencl-platform", HINT),
    NO_DEVICE: ("no-opencl-device", "`--device` takes `gpu`, `cpu`, `accelerator`, numbers such as `0.0`, or a part of a name"),
    DEVICE_MEMORY: ("device-memory", "choose another device with `--device`, or compile with `--ram` for less of its memory"),
    BUILD_FAILED: ("build-failed", "try another device or driver (`--device`); the kernels are in `opencl/` of the package"),
    DEVICE_FAILED: ("device-failed", "use `--no-cache` to ignore cached programs, or `--device` for another device"),
    HOST_MEMORY: ("out-of-memory", "the machine has too little memory for this model"),
    CACHE_NOT_SAVED: ("cache-not-saved", f"set ${CACHE_VARIABLE} to a file in a folder of your own"),
}


def _to_stderr(text: str) -> None:
    print(text, file=sys.stderr)


@dataclass(frozen=True, slots=True)
class DeviceOptions:
    """What a user may say of the device and of cached programs; nothing of it is in a package."""

    device: str | None = None  # None: $INTAGLIO_OPENCL_DEVICE, else the first GPU, accelerator, CPU
    check: str = "first"  # when cached programs have to pass their self-tests: always, first or never
    cache: bool = True  # False: programs are built from source, and not kept
    say: Callable[[str], None] = _to_stderr  # hears the notes of the runtime

    def __post_init__(self) -> None:
        if self.check not in CHECKS:
            hint = "`always`, `first` (on this device and driver) or `never`"
            raise UserError("bad-option", f"unknown value {quoted(self.check)} of `--cache-check`", hint=hint)


DEFAULT = DeviceOptions()


@dataclass(frozen=True, slots=True)
class StartReport:
    """Where programs came from, and how long it took."""

    programs: int
    from_process: int
    from_writable: int
    from_shipped: int
    from_source: int
    refused: int
    init_ms: float
    build_ms: float
    first_run_ms: float
    self_tests: int
    saved: int
    tuned: bool


class _Report(ctypes.Structure):
    _fields_ = [  # NAME_cache_report
        *((name, ctypes.c_uint) for name in ("programs", "from_process", "from_writable", "from_shipped")),
        *((name, ctypes.c_uint) for name in ("from_source", "refused")),
        *((name, ctypes.c_double) for name in ("init_ms", "build_ms", "first_run_ms")),
        *((name, ctypes.c_int) for name in ("self_tests", "saved", "tuned")),
    ]


_LOG = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int, ctypes.c_char_p)


class OpenclLibrary(Library):
    """One loaded library with one device: one sequence of inferences."""

    def __init__(self, path: Path, manifest: Manifest, folder: Path | None = None, options: DeviceOptions = DEFAULT) -> None:
        """`folder`: the package, where the library is not in it."""
        loader = find_loader()
        self.device: OpenCLDevice = find_device(options.device)
        loader.apply()
        self._library = open_library(path, manifest, copied=_in_use(path, self))
        self.manifest = manifest
        if not hasattr(self._library, f"{manifest.name}_set_device"):
            raise UserError("not-built", f"`{path.name}` is not the library of `{manifest.name}`", hint="compile the model again")
        self._sink: object = None  # callbacks that C holds must stay alive here
        self._log = _LOG(lambda _, level, text: options.say(_told(level, text)))
        self._shipped = b""
        self._call("set_log", self._log, None)
        self._call("set_device", self.device.place.encode())
        self._call("set_cache_check", CHECKS.index(options.check))
        self._set_caches(folder or path.parent.parent, options)
        close = getattr(self._library, f"{manifest.name}_close")
        # Not at the end of the process: drivers have threads, which may be gone by then.
        weakref.finalize(self, _close, close, self._log, self._shipped).atexit = False

    def _call(self, function: str, *arguments: object) -> int:
        called = getattr(self._library, f"{self.manifest.name}_{function}")
        called.restype = ctypes.c_int
        return int(called(*arguments))

    def _set_caches(self, folder: Path, options: DeviceOptions) -> None:
        path = writable_cache(self.manifest.name) if options.cache else None
        self._call("set_cache_path", None if path is None else os.fsencode(path))
        shipped = folder / f"{self.manifest.name}.clbin"
        self._call("set_cache", None, ctypes.c_size_t(0))
        if options.cache and shipped.is_file() and shipped.stat().st_size < MOST_CACHE_BYTES:
            try:
                self._shipped = shipped.read_bytes()
            except OSError as error:
                options.say(f"warning: `{shipped.name}` of the package cannot be read: {error.strerror}")
            self._call("set_cache", self._shipped, ctypes.c_size_t(len(self._shipped)))

    def reset(self) -> None:
        """Start a new sequence."""
        self._call("reset")

    def start(self) -> None:
        """Find the device, get the programs; a run does it too."""
        self._need(self._call("init"))

    def run_into(self, inputs: list[Array], outputs: list[Array]) -> None:
        given, taken = pointers(inputs), pointers(outputs)
        self._need(self._call("run", ctypes.byref(given), ctypes.byref(taken)))

    def close(self) -> None:
        """Buffers and kernels are given back; a run starts again."""
        self._call("close")

    def _text(self, function: str, *arguments: object) -> str:
        called = getattr(self._library, f"{self.manifest.name}_{function}")
        called.restype = ctypes.c_char_p
        return (called(*arguments) or b"").decode("utf-8", "replace")

    def _need(self, code: int) -> None:
        if code != 0:
            raise failure(self.manifest.name, code, self._text("error", code), self._text("message"))

    # Times and reports ------------------------------------------------------------------------------------------------

    def set_profiling(self, on: bool) -> None:
        self._call("set_profiling", int(on))

    def layer_times(self) -> list[float]:
        """Microseconds per layer of the last run: of its kernels on the device, or on the host."""
        times = (ctypes.c_double * max(1, len(self.manifest.layers)))()
        self._call("layer_times", times)
        return list(times)[: len(self.manifest.layers)]

    def transfer_time(self) -> float:
        """Microseconds of all transfers in the last run."""
        called = getattr(self._library, f"{self.manifest.name}_transfer_time")
        called.restype = ctypes.c_double
        return float(called())

    def start_report(self) -> StartReport:
        told = _Report()
        self._call("get_cache_report", ctypes.byref(told))
        values = {field[0]: getattr(told, field[0]) for field in _Report._fields_}
        return StartReport(**{**values, "tuned": bool(told.tuned)})


_users: weakref.WeakValueDictionary[tuple[int, int], OpenclLibrary] = weakref.WeakValueDictionary()


def _in_use(path: Path, user: OpenclLibrary) -> bool:
    """Its device and programs are variables of a library: whoever comes second needs one of its own."""
    if not path.is_file():
        return False
    file = path.stat().st_dev, path.stat().st_ino
    return _users.setdefault(file, user) is not user


def _close(close: Callable[[], object], *_: object) -> None:
    """What C holds of ours lives until here."""
    close()


def failure(name: str, code: int, said: str, more: str) -> IntaglioError:
    """What a package's error code means, with what its C says beside it."""
    if code not in SLUGS:
        return AnswerIsNo(ERROR_SLUGS.get(code, "run-failed"), f"`{name}` stopped: {said}", hint="the input data causes this")
    slug, hint = SLUGS[code]
    lines = [line.strip() for line in more.splitlines() if line.strip()]
    kind = UserError if code == NO_DEVICE else ToolError
    return kind(slug, f"`{name}` stopped: {': '.join([said, '; '.join(lines)] if lines else [said])}", hint=hint)


def writable_cache(name: str) -> Path | None:
    """As the package's application has it."""
    told = os.environ.get(CACHE_VARIABLE)
    if told:
        path = None if told == "none" else Path(told)
    elif os.environ.get("XDG_CACHE_HOME", "").startswith("/"):
        path = Path(os.environ["XDG_CACHE_HOME"]) / "intaglio" / f"{name}.clbin"
    elif os.environ.get("HOME", "").startswith("/"):
        path = Path(os.environ["HOME"]) / ".cache" / "intaglio" / f"{name}.clbin"
    else:
        path = None
    if path is not None:
        with contextlib.suppress(OSError):  # told by the runtime, when it writes the file
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    return path


def _told(level: int, text: bytes | None) -> str:
    said = (text or b"").decode("utf-8", "replace")
    return f"{'warning' if level else 'note'}: {said}"
