"""A reference that may never end: in a process of its own, with limits of time and memory.

A loop that data ends does not have to end for the data at hand. Its runtime cannot be stopped from within, and what the loop
collects fills the memory. So a package with such a loop (`has_loops`) runs the runtime of its model in a child. All other packages
run it in this process, except TensorFlow, whose libraries may not fit with others that are loaded.

    parent                                  child
    (path, manifest, extra)         ->      model_reference
                                    <-      about
    ("run", inputs)                 ->      reference.run
                                    <-      results, or an error
    kills it after the limit                its memory has a limit, and its time for the case that the parent is gone
"""

from __future__ import annotations

import contextlib
import math
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from intaglio.errors import IntaglioError, ModelError, ToolError
from intaglio.ir.graph import Array
from intaglio.package.manifest import Manifest
from intaglio.run.reference import LONG_RUN, OnnxRuntime, Reference, model_reference

COMPILE_SECONDS = 30.0  # of all runs that do not end, on random inputs that nobody asked for
VALIDATE_SECONDS = 300.0
START_SECONDS = 300.0  # to import a runtime and read a model, also on a busy machine
MEMORY_SHARE = 0.5  # of what is free when the child begins
_CHILD = "import sys; sys.path[:] = {path!r}; from intaglio.run.limited import serve; serve({handle})"


def has_loops(manifest: Manifest) -> bool:
    return any(layer.op == "loop_start" for layer in manifest.layers)


def limit(usual: float) -> float:
    """Seconds of one run: `INTAGLIO_REFERENCE_SECONDS`, or what is usual."""
    try:
        told = float(os.environ.get("INTAGLIO_REFERENCE_SECONDS", ""))
    except ValueError:
        return usual
    return told if math.isfinite(told) and told > 0 else usual


def reference_within(path: Path, manifest: Manifest, extra: tuple[str, ...] = (), usual: float = VALIDATE_SECONDS) -> Reference:
    """The vendor's runtime for the model in a package; with limits where it has a loop that may not end."""
    if (has_loops(manifest) or path.suffix in (".savedmodel", ".pb")) and hasattr(os, "fork"):
        return Limited(path, manifest, extra, limit(usual))
    return model_reference(path, manifest, extra)


class Limited:
    """A runtime in a child. After a run that took too long, it starts anew."""

    of_model = True

    def __init__(self, path: Path, manifest: Manifest, extra: tuple[str, ...], seconds: float, share: float = MEMORY_SHARE) -> None:
        self._made_from = (path, manifest, extra)
        self.seconds, self._share = seconds, share
        self._child: subprocess.Popen[bytes] | None = None
        self._line: Connection | None = None
        self.about = str(self._start())

    def fresh(self) -> None:
        self._ask("fresh")

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        found: dict[str, Array] = self._ask("run", dict(inputs))
        return found

    def in_double(self, steps: Sequence[Mapping[str, Array]]) -> list[dict[str, Array]] | None:
        return self._otherwise("in_double", steps)

    def optimised(self, steps: Sequence[Mapping[str, Array]]) -> list[dict[str, Array]] | None:
        return self._otherwise("optimised", steps)

    def near_ties(self, steps: Sequence[Mapping[str, Array]], seed: int) -> list[dict[str, Array]] | None:
        return self._otherwise("near_ties", steps, seed)

    def _otherwise(self, how: str, steps: Sequence[Mapping[str, Array]], *given: int) -> list[dict[str, Array]] | None:
        try:
            found: list[dict[str, Array]] | None = self._ask(how, [dict(step) for step in steps], *given)
        except ToolError:
            return None
        return found

    def close(self) -> None:
        if self._line is not None:
            self._line.close()
        if self._child is not None:
            self._child.kill()
            self._child.wait()
        self._line = self._child = None

    __del__ = close

    def _start(self) -> object:
        self._line, far = Pipe()
        code = _CHILD.format(path=sys.path, handle=far.fileno())
        try:
            self._child = subprocess.Popen(
                (sys.executable, "-c", code), pass_fds=(far.fileno(),), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )  # fmt: skip
        except OSError as error:
            raise ToolError("no-reference", f"a process for the reference cannot be started: {error.strerror}") from None
        finally:
            far.close()
        return self._exchange((*self._made_from, self.seconds, self._share), START_SECONDS)

    def _ask(self, *question: object) -> Any:
        if self._child is None:
            self._start()
        return self._exchange(question, self.seconds)

    def _exchange(self, message: object, seconds: float) -> Any:
        assert self._line is not None
        try:
            self._line.send(message)
            if not self._line.poll(seconds):
                self.close()
                raise _too_long(f"{self._name()} has not ended after {seconds:g} s")
            answer, value = self._line.recv()
        except (EOFError, OSError):
            self.close()
            raise _too_long(f"{self._name()} was ended by the system: it needs too much memory or time") from None
        except BaseException:
            self.close()
            raise
        if answer == "error":
            kind, slug, text, hint = value
            raise (ToolError if kind == "ToolError" else ModelError)(slug, text, hint=hint)
        return value

    def _name(self) -> str:
        return "the reference" if not hasattr(self, "about") else f"the reference ({self.about})"


def _too_long(text: str) -> ToolError:
    hint = "a loop may not end for such inputs: give others, with `--inputs`, or more time, with INTAGLIO_REFERENCE_SECONDS"
    return ToolError(LONG_RUN, text, hint=hint)


# The child ------------------------------------------------------------------------------------------------------------


def serve(handle: int) -> None:
    """Answer questions until the line is closed."""
    _end_with_parent()
    line = Connection(handle)
    reference: Reference | None = None
    with contextlib.suppress(EOFError, OSError):
        while True:
            question = line.recv()
            try:
                if reference is None:
                    *made_from, seconds, share = question
                    reference = model_reference(*made_from)
                    _limit_memory(share)
                    answer: object = reference.about
                else:
                    _limit_time(seconds)
                    answer = _answer(reference, *question)
                line.send(("done", answer))
            except IntaglioError as error:
                line.send(("error", (type(error).__name__, error.slug, error.message, error.hint)))
            except MemoryError:
                line.send(("error", ("ToolError", LONG_RUN, "the reference needs too much memory", _too_long("").hint)))


def _answer(reference: Reference, what: str, *given: Any) -> object:
    if what == "fresh":
        reference.fresh()
        return None
    if what in ("in_double", "optimised", "near_ties"):
        return getattr(reference, what)(*given) if isinstance(reference, OnnxRuntime) else None
    return reference.run(*given)


def _end_with_parent() -> None:
    """Also where the parent was killed while a run is under way."""
    import ctypes
    import signal

    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


def _limit_memory(share: float) -> None:
    """Beyond what the process has mapped by now."""
    import resource

    try:
        with open("/proc/meminfo", encoding="ascii") as file:
            free = next(int(row.split()[1]) * 1024 for row in file if row.startswith("MemAvailable"))
        with open("/proc/self/statm", encoding="ascii") as file:
            mapped = int(file.read().split()[0]) * resource.getpagesize()
    except (OSError, StopIteration, ValueError):
        return  # no Linux: time alone has a limit
    _lower(resource.RLIMIT_AS, mapped + int(free * share))


def _limit_time(seconds: float) -> None:
    """Of the processor, from now on. The parent counts wall time; this is for a parent that is gone."""
    import resource

    used = resource.getrusage(resource.RUSAGE_SELF)
    _lower(resource.RLIMIT_CPU, math.ceil(used.ru_utime + used.ru_stime + 2 * seconds) + 1)


def _lower(which: int, most: int) -> None:
    import resource

    _, hard = resource.getrlimit(which)
    resource.setrlimit(which, (most if hard == resource.RLIM_INFINITY else min(most, hard), hard))
