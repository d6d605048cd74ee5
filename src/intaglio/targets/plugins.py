"""Accelerators that are installed, and calls into them that cannot take the compiler down.

A plug-in is somebody else's code: it may be broken, slow, or give nonsense. Every call goes through `Plugin`, which names the
plug-in in the error when it raises, does not return in time, or gives what the protocol does not know.
"""

from __future__ import annotations

import math
import os
import re
import threading
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from typing import TypeVar

import numpy as np

from intaglio.errors import ToolError, UserError, quoted
from intaglio.ir.graph import Array, Value
from intaglio.ir.names import is_clean
from intaglio.ir.types import DType
from intaglio.targets import black_box
from intaglio.targets.accelerator import Accelerator, Bus, Code, Cost, Device, Facts, Is, Pattern, Region
from intaglio.targets.target import Target

GROUP = "intaglio.accelerators"
SECONDS = 60.0  # for one call; INTAGLIO_PLUGIN_SECONDS says otherwise
FILE_NAME = re.compile(r"([A-Za-z_][\w-]*/)*[A-Za-z_][\w-]*\.h|[A-Za-z_][\w-]*\.c", re.ASCII)  # headers may be in folders
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Plugin:
    """An accelerator and where it came from, with the answers checked."""

    accelerator: Accelerator
    origin: str  # `example-npu 0.1`

    @property
    def name(self) -> str:
        return self.accelerator.name

    @property
    def facts(self) -> Facts:
        return self.accelerator.facts

    @property
    def patterns(self) -> tuple[Pattern, ...]:
        return self.accelerator.patterns

    def supports(self, target: Target) -> str | None:
        return self._reason("supports", lambda: self.accelerator.supports(target))

    def accepts(self, region: Region) -> str | None:
        return self._reason("accepts", lambda: self.accelerator.accepts(region))

    def check(self, pattern: Pattern, region: Region) -> str | None:
        return self._reason(f"the check of the pattern {quoted(pattern.name)}", lambda: pattern.check(region))

    def cost(self, region: Region, target: Target) -> Cost:
        cost = self._call("cost", lambda: self.accelerator.cost(region, target), str(region))
        if not isinstance(cost, Cost):
            raise self._garbage("cost", "a `Cost`", cost, str(region))
        numbers = (cost.cycles, cost.launch_cycles, cost.bytes, cost.transfer_cycles)
        if not all(isinstance(n, (int, float)) and math.isfinite(n) and n >= 0 for n in numbers):
            raise self._garbage("cost", "finite numbers that are not negative", cost, str(region))
        return cost

    def compile(self, region: Region, target: Target) -> Code:
        code = self._call("compile", lambda: self.accelerator.compile(region, target), str(region))
        where = str(region)
        if not isinstance(code, Code) or not isinstance(code.body, str) or not isinstance(code.wait, str):
            raise self._garbage("compile", "a `Code` with C text", code, where)
        if not isinstance(code.scratch_bytes, int) or not 0 <= code.scratch_bytes < 2**31:
            raise self._garbage("compile", "a number of `scratch_bytes`", code.scratch_bytes, where)
        if not all(isinstance(i, str) and FILE_NAME.fullmatch(i) for i in code.includes):
            raise self._garbage("compile", "names of headers in `includes`", code.includes, where)
        if code.over is not None and (not isinstance(code.over, int) or not 0 <= code.over < len(region.inputs)):
            raise self._garbage("compile", "the number of an input in `over`", code.over, where)
        taken = {"scratch"} | {f"{k}{n}" for k, vs in (("in", region.inputs), ("out", region.outputs)) for n in range(len(vs))}
        for name, data in code.constants.items():
            if not isinstance(name, str) or not is_clean(name) or name in taken:
                raise self._garbage("compile", "constants whose names are unique C identifiers", name, where)
            self._check_array("compile", f"the constant {quoted(name)}", data, where)
        return code

    def emulate(self, region: Region, inputs: Sequence[Array]) -> list[Array]:
        made = self._call("emulate", lambda: self.accelerator.emulate(region, inputs), str(region))
        if not isinstance(made, (list, tuple)) or len(made) != len(region.outputs):
            raise self._garbage("emulate", f"a list of {len(region.outputs)} arrays", made, str(region))
        made = list(made)
        for out, array in zip(region.outputs, made, strict=True):
            self._check_array("emulate", quoted(out.name), array, str(region), out)
        return made

    @property
    def has_emulation(self) -> bool:
        """Its own; not the reference that stands in for one."""
        return type(self.accelerator).emulate is not Accelerator.emulate

    def files(self, target: Target) -> dict[str, str]:
        files = self._call("files", lambda: self.accelerator.files(target))
        if not isinstance(files, Mapping) or not all(isinstance(text, str) for text in files.values()):
            raise self._garbage("files", "texts by file name", files)
        for name in files:
            if not isinstance(name, str) or not FILE_NAME.fullmatch(name):
                raise self._garbage("files", "names of C files (letters, digits, `_`; `.c` or `.h`)", name)
        return dict(files)

    def text(self, word: str, target: Target) -> str:
        """`setup` or `teardown`."""
        calls = {"setup": self.accelerator.setup, "teardown": self.accelerator.teardown}
        text = self._call(word, lambda: calls[word](target))
        if not isinstance(text, str):
            raise self._garbage(word, "C text", text)
        return text

    def device(self, bus: Bus) -> Device | None:
        device = self._call("device", lambda: self.accelerator.device(bus))
        if device is not None and not all(hasattr(device, a) for a in ("address", "bytes", "load", "store")):
            raise self._garbage("device", "a device with `address`, `bytes`, `load` and `store`", device)
        return device

    def guarded(self, what: str, call: Callable[[], T]) -> T:
        """Any other call into the plug-in."""
        return self._call(what, call)

    # How it can fail --------------------------------------------------------------------------------------------------

    def _reason(self, what: str, call: Callable[[], str | None]) -> str | None:
        reason = self._call(what, call)
        if reason is not None and (not isinstance(reason, str) or not reason):
            raise self._garbage(what, "a reason, or None", reason)
        return reason

    def _call(self, what: str, call: Callable[[], T], where: str = "") -> T:
        """In a thread of its own, so that one that never returns does not keep us."""
        result: list[T] = []
        trouble: list[BaseException] = []

        def run() -> None:
            try:
                with black_box.during(f"{self.name} ({self.origin})", _word(what)):
                    result.append(call())
            except BaseException as error:
                trouble.append(error)

        seconds = _seconds()
        thread = threading.Thread(target=run, daemon=True, name=f"{self.name} {what}")
        thread.start()
        thread.join(seconds)
        hint = f"this is a bug in the plug-in; `intaglio accelerators test {self.name}` helps to find it"
        if what == "its import":
            hint = "check its dependencies: import its module in Python to see the error"
        if thread.is_alive():
            text = f"the accelerator {quoted(self.name)} ({self.origin}) did not return from {_word(what)} in {seconds:g} s"
            raise ToolError("plugin-hangs", text, where=where, hint=hint)
        if trouble:
            error = trouble[0]
            if isinstance(error, UserError):
                raise error
            said = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
            text = f"the accelerator {quoted(self.name)} ({self.origin}) failed in {_word(what)}: {said}"
            raise ToolError("plugin-failed", text, where=_line_of(error) or where, hint=hint) from None
        return result[0]

    def _garbage(self, what: str, wanted: str, got: object, where: str = "") -> ToolError:
        shown = quoted(repr(got), 60)
        text = f"the accelerator {quoted(self.name)} ({self.origin}) returned {shown} from {_word(what)}; expected {wanted}"
        hint = f"this is a bug in the plug-in; `intaglio accelerators test {self.name}` helps to find it"
        return ToolError("plugin-garbage", text, where=where, hint=hint)

    def _check_array(self, what: str, name: str, data: object, where: str, like: Value | None = None) -> None:
        if not isinstance(data, np.ndarray):
            raise self._garbage(what, f"an array for {name}", data, where)
        try:
            DType.of(data)
        except (KeyError, ValueError, TypeError):
            raise self._garbage(what, f"an array of a supported type for {name}", data.dtype, where) from None
        if like is not None and (data.shape != like.shape or data.dtype != like.dtype.numpy):
            raise self._garbage(what, f"{like.type} for {name}", f"{data.dtype}{list(data.shape)}", where)


def _word(what: str) -> str:
    return what if " " in what else f"`{what}`"


def _seconds() -> float:
    try:
        return float(os.environ.get("INTAGLIO_PLUGIN_SECONDS", "")) or SECONDS
    except ValueError:
        return SECONDS


def _line_of(error: BaseException) -> str:
    """The innermost place that is not ours, so that the author of the plug-in finds it."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if f.filename != __file__]
    return f"{frames[-1].filename}, line {frames[-1].lineno}" if frames else ""


_LOADED: dict[str, Plugin] = {}


# Finding them ---------------------------------------------------------------------------------------------------------------


def installed() -> dict[str, metadata.EntryPoint]:
    """By name, not loaded."""
    return {point.name: point for point in sorted(metadata.entry_points(group=GROUP), key=lambda p: p.name)}


def find_accelerator(name: str) -> Plugin:
    if name in _LOADED:  # one of each: they may remember what they have computed
        return _LOADED[name]
    found = installed()
    if name not in found:
        known = f"installed: {', '.join(f'`{n}`' for n in found)}" if found else "no accelerator is installed"
        hint = f"{known}; `intaglio new-accelerator {name if is_clean(name) else 'NAME'}` writes one"
        raise UserError("unknown-accelerator", f"unknown accelerator {quoted(name)}", hint=hint)
    _LOADED[name] = load(found[name])
    return _LOADED[name]


def load(point: metadata.EntryPoint) -> Plugin:
    dist = point.dist
    origin = f"{dist.name} {dist.version}" if dist is not None else point.value
    shell = Plugin(_Named(point.name), origin)
    made = shell.guarded("its import", lambda: _made(point.load()))
    return checked(made, point.name, origin)


def checked(accelerator: object, name: str, origin: str) -> Plugin:
    """A plug-in whose declarations make sense."""
    shell = Plugin(_Named(name), origin)
    if not isinstance(accelerator, Accelerator):
        raise shell._garbage("its entry point", "an `Accelerator` or a subclass", accelerator)
    if accelerator.name != name or not is_clean(name):
        raise shell._garbage("its `name`", f"{quoted(name)}, as its entry point, a C identifier", accelerator.name)
    facts = accelerator.facts
    if not isinstance(facts, Facts) or facts.merges < 1 or facts.alignment < 1 or facts.alignment & (facts.alignment - 1):
        raise shell._garbage("its `facts`", "`Facts`, with a power of two as alignment and merges of at least 1", facts)
    if not accelerator.patterns or not all(isinstance(p, Pattern) and isinstance(p.root, Is) for p in accelerator.patterns):
        raise shell._garbage("its `patterns`", "at least one `Pattern`", accelerator.patterns)
    return Plugin(accelerator, origin)


def _made(thing: object) -> object:
    return thing() if isinstance(thing, type) or (callable(thing) and not isinstance(thing, Accelerator)) else thing


class _Named(Accelerator):
    """Stands for one that is not loaded yet, so that errors can name it."""

    def __init__(self, name: str) -> None:
        self.name = name
