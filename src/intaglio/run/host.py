"""The built library, called in this process. Arrays are passed as they are; the arena is ours."""

from __future__ import annotations

import ctypes
import math
import shutil
import struct
import tempfile
from collections.abc import Callable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from intaglio.errors import AnswerIsNo, ToolError, UserError, quoted
from intaglio.ir.graph import Array
from intaglio.ir.strings import TooLong, encoded, is_text
from intaglio.ir.types import DType
from intaglio.ops.base import f32_to_bf16
from intaglio.package.at_sizes import ends_at_sizes, sizes_of
from intaglio.package.manifest import Manifest, TensorInfo
from intaglio.package.size_info import SizeInfo
from intaglio.package.weights import is_sound, weights_file
from intaglio.run.map_entries import NamedInputs, with_entries

ERROR_SLUGS = {1: "index-out-of-range", 2: "assertion-failed", 3: "size-out-of-bounds", 21: "accelerator-failed"}
FIRMWARE_ERRORS = {
    1: "an index in the data is outside its tensor", 2: "the data contradicts the shapes of the compiled model",
    3: "a size is not within its bounds",
    20: "its weights could not be read", 21: "an accelerator reports an error",
}  # fmt: skip
Sink = Callable[[int, bytes], None]  # layer, what it wrote


class Runner(Protocol):
    """A built model that can be called: a library in this process, or firmware on an emulated core or on a board."""

    def reset(self) -> None: ...
    def run(self, inputs: list[Array]) -> list[Array]: ...
    def run_into(self, inputs: list[Array], outputs: list[Array]) -> None: ...


def firmware_stopped(name: str, code: int) -> AnswerIsNo:
    """Firmware has no texts: a code of `NAME_run`, in words."""
    said = FIRMWARE_ERRORS.get(code, f"error {code}")
    return AnswerIsNo(ERROR_SLUGS.get(code, "run-failed"), f"`{name}` stopped: {said}", hint="the input data causes this")


class Sized(Protocol):
    """A network with sizes that move, loaded."""

    manifest: Manifest
    shapes: tuple[tuple[int, ...], ...]

    def run_into(self, inputs: list[Array], outputs: list[Array]) -> None: ...


def run_at_sizes(library: Sized, inputs: list[Array]) -> list[Array]:
    """At the sizes that these inputs have; outputs as large as the run says."""
    manifest = ends_at_sizes(library.manifest, sizes_of(library.manifest, [a.shape for a in inputs]))
    outputs = [np.empty(info.shape, info.type.dtype.numpy) for info in manifest.outputs]
    library.run_into(inputs, outputs)
    if not manifest.sizes:
        return outputs
    return [cut(a, s) if info.dims else a for a, s, info in zip(outputs, library.shapes, manifest.outputs, strict=True)]


def stopped(manifest: Manifest, code: int, said: str) -> AnswerIsNo:
    """In words. Sizes that the caller gives were checked before: it is one of the others that is out of its bounds."""
    slug = ERROR_SLUGS.get(code, "run-failed")
    hint = "the input data causes this"
    bounds = ", ".join(f"{size.name} {size.low}..{size.high}" for size in manifest.sizes if size.found)
    if slug == "size-out-of-bounds" and bounds:
        said = f"a size that follows from data is not within its bounds: {bounds}"
    checks = [layer.source for layer in manifest.layers if layer.op == "assert_true" and layer.source]
    if slug == "assertion-failed" and checks:
        said += f": the check {' or '.join(quoted(check) for check in dict.fromkeys(checks))} fails"
    return AnswerIsNo(slug, f"`{manifest.name}` stopped: {said}", hint=hint)


def shapes_said(manifest: Manifest, words: list[int]) -> tuple[tuple[int, ...], ...]:
    """Of outputs, from the words that a run writes behind its pointers."""
    left = iter(words)
    return tuple(tuple(next(left) for _ in info.dims) for info in manifest.outputs)


class Library:
    """One loaded library with one arena: one sequence of inferences."""

    shapes: tuple[tuple[int, ...], ...] = ()  # of outputs, as the last run reports those that depend on sizes

    def __init__(
        self, path: Path, manifest: Manifest, folder: Path | None = None, variant: str = "", *, alone: bool = False
    ) -> None:
        """`folder`: the package, where the library is not in it. `variant`: of the code in it; `alone`: whatever others use."""
        self._library = open_library(path, manifest, copied=alone)
        self.manifest = manifest
        name = manifest.name
        if not hasattr(self._library, f"{name}_run_in"):
            raise UserError("not-built", f"`{path.name}` is not the library of `{name}`", hint="compile the model again")
        self._run = getattr(self._library, f"{name}_run_in")
        self._run.restype = ctypes.c_int
        self._run.argtypes = [ctypes.c_void_p] * 3
        self._error = getattr(self._library, f"{name}_error")
        self._error.restype = ctypes.c_char_p
        self._error.argtypes = [ctypes.c_int]
        if variant:
            self._use(variant)
        if manifest.options.get("weights") == "read" and manifest.memory.weight_bytes:
            self._open_weights((folder or path.parent.parent) / weights_file(name))
        sizes = manifest.memory.arena_sizes()
        self._blocks = [_aligned(size, manifest.memory.alignment) for size in sizes.values()]
        self._starts = pointers([arena for _, arena in self._blocks])  # a struct of them, where there are several
        self._arena = ctypes.addressof(self._starts) if len(sizes) > 1 else self._starts[0]
        self._sink: object = None  # a callback that C holds must stay alive here
        self.reset()

    @cached_property
    def _given(self) -> tuple[SizeInfo, ...]:
        return self.manifest.given

    @cached_property
    def _reported(self) -> int:
        """Sizes that the library writes behind the pointers."""
        return sum(len(info.dims) for info in self.manifest.outputs)

    @cached_property
    def _outputs(self) -> list[tuple[tuple[int, ...], np.dtype[Any]]]:
        return [(info.shape, info.type.dtype.numpy) for info in self.manifest.outputs]

    def _use(self, variant: str) -> None:
        use = getattr(self._library, f"{self.manifest.name}_use_variant")
        use.restype, use.argtypes = ctypes.c_int, [ctypes.c_char_p]
        if use(variant.encode()) != 0:
            what = f"the processor of this machine cannot run the variant `{variant}` of `{self.manifest.name}`"
            raise UserError("cannot-run", what, hint="omit `--variant`: the best that runs here is used")

    def _open_weights(self, path: Path) -> None:
        if not path.is_file() or not is_sound(path.read_bytes()):
            what = f"`{path.name}` is missing, or does not match its checksum"
            raise UserError("weights-damaged", what, where=str(path), hint="compile the model again")
        opened = getattr(self._library, f"{self.manifest.name}_weights_open")
        opened.restype, opened.argtypes = ctypes.c_int, [ctypes.c_char_p]
        check = getattr(self._library, f"{self.manifest.name}_weights_check")
        check.restype = ctypes.c_int
        if opened(str(path).encode()) != 0 or check() != 0:
            what = f"`{path.name}` does not belong to this library"
            raise UserError("weights-damaged", what, where=str(path), hint="compile the model again")

    def reset(self) -> None:
        """Start a new sequence."""
        if self.manifest.states:
            start = getattr(self._library, f"{self.manifest.name}_reset_in")
            start.restype, start.argtypes = None, [ctypes.c_void_p]
            start(self._arena)

    def run(self, inputs: list[Array]) -> list[Array]:
        """Arrays in the order, and exactly of the types, of the manifest."""
        if not self.manifest.sizes:
            arrays: list[Array] = [np.empty(shape, dtype) for shape, dtype in self._outputs]
            self.run_into(inputs, arrays)
            return arrays
        return run_at_sizes(self, inputs)

    def run_into(self, inputs: list[Array], outputs: list[Array]) -> None:
        sizes = sizes_of(self.manifest, [a.shape for a in inputs]) if self._given else {}
        given = pointers(inputs, *(sizes[size.name] for size in self._given))
        taken = pointers(outputs, *[0] * self._reported)
        code = self._run(self._arena, ctypes.addressof(given), ctypes.addressof(taken))
        if code != 0:
            raise stopped(self.manifest, code, (self._error(code) or b"").decode("ascii", "replace"))
        if self.manifest.sizes:
            self.shapes = shapes_said(self.manifest, [int(n or 0) for n in taken[len(outputs) :]])

    # Libraries built with the hook ------------------------------------------------------------------------------------

    def start_probe(self, sink: Sink | None = None) -> None:
        kind = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t)
        start = getattr(self._library, f"{self.manifest.name}_probe_start")
        start.restype = None
        if sink is None:
            start(None)
            return
        self._sink = kind(lambda layer, data, size: sink(layer, ctypes.string_at(data or 0, size)))
        start(self._sink)

    def probe_times(self) -> list[float]:
        """Microseconds per layer of the last run."""
        times = (ctypes.c_double * max(1, len(self.manifest.layers)))()
        getattr(self._library, f"{self.manifest.name}_probe_times")(times)
        return list(times)[: len(self.manifest.layers)]


def open_library(path: Path, manifest: Manifest, *, copied: bool = False) -> ctypes.CDLL:
    if not path.is_file():
        hint = "compile the model again, without `--stop-after`"
        raise UserError("not-built", f"the package has no library `{path.name}`", where=str(path), hint=hint)
    if "-fsanitize=address" in manifest.options.get("cflags", ""):
        hint = f"run its own program: `bin/{manifest.name} --selftest`"
        raise UserError("cannot-load", "a library with AddressSanitizer cannot be loaded into another program", hint=hint)
    try:
        _need_whole(path)
        return _loaded(path, copied)
    except OSError as error:
        machine = "opencl" if manifest.opencl is not None else "host"
        hint = f"it was built for `{manifest.target}`; compile again with `--target {machine}`"
        raise ToolError("cannot-load", f"this machine cannot load `{path.name}`: {error}", hint=hint) from None


def _loaded(path: Path, copied: bool) -> ctypes.CDLL:
    """The library that is at this path now. The loader takes a path it has seen for the library it has, so a package that was
    compiled again in the same process would go on running its old code: each load gets a name of its own. The same file stays the
    same library with the same variables; a copy has its own."""
    with tempfile.TemporaryDirectory(prefix="intaglio-load-") as folder:
        link = Path(folder) / path.name
        shutil.copyfile(path, link) if copied else link.symlink_to(path.resolve())
        return ctypes.CDLL(str(link))


def _need_whole(path: Path) -> None:
    """The loader maps what an ELF file promises; one that is cut short would end this process (SIGBUS)."""
    with open(path, "rb") as file:
        head = file.read(64)
        if len(head) == 64 and head[:6] == b"\x7fELF\x02\x01":
            table, entry, count = struct.unpack_from("<32xQ14xHH", head)
            file.seek(table)
            rows = [file.read(entry) for _ in range(count)]
            ends = [sum(struct.unpack_from("<8xQ16xQ", row)) for row in rows if len(row) >= 40]
            if len(ends) != count or max([*ends, table]) > path.stat().st_size:
                raise OSError("the file is cut short")


def cut(array: Array, shape: tuple[int, ...]) -> Array:
    """What was found, of an array with room for the most."""
    return array.reshape(-1)[: math.prod(shape)].reshape(shape)


def pointers(arrays: list[Array], *sizes: int) -> ctypes.Array[ctypes.c_void_p]:
    """A C struct of pointers is laid out as an array of them; sizes behind them are as large as a pointer."""
    # Empty arrays may have no memory of their own; C checks for NULL.
    words = [*[array.__array_interface__["data"][0] or 1 for array in arrays], *sizes]
    return (ctypes.c_void_p * max(1, len(words)))(*words)


def _aligned(size_bytes: int, alignment: int) -> tuple[Array, np.ndarray[tuple[int], np.dtype[np.uint8]]]:
    block = np.zeros(max(1, size_bytes) + alignment, np.uint8)
    start = -block.ctypes.data % alignment
    return block, block[start : start + max(1, size_bytes)]


# Named arrays to positions and back -----------------------------------------------------------------------------------


def ordered_inputs(manifest: Manifest, given: NamedInputs, *, steps: bool = False) -> list[Array]:
    """Arrays by the names of the model, C fields, or `in0`, `in1`, ... as the library wants them."""
    given = with_entries(given, manifest)
    taken: dict[str, int] = {}
    for index, info in enumerate(manifest.inputs):
        for key in (info.name, info.field, f"in{index}"):
            taken.setdefault(key, index)
    for key in given:
        if key not in taken:
            names = ", ".join(quoted(info.name) for info in manifest.inputs) or "none"
            hint = f"inputs of `{manifest.name}`: {names}, or `in0`, `in1`, ... by position"
            raise UserError("wrong-input", f"unknown input {quoted(key)}", hint=hint)
    arrays: list[Array] = []
    infos = _infos_for(manifest, given, steps)
    for index, info in enumerate(infos):
        found = [key for key in dict.fromkeys((info.name, info.field, f"in{index}")) if key in given and taken[key] == index]
        if len(found) != 1:
            what = f"input {quoted(info.name)} is missing" if not found else f"input {quoted(info.name)} is given twice"
            hint = f"it takes {info.dtype}[{info.shape_text}], under its name or `in{index}`"
            raise UserError("wrong-input", what, hint=hint)
        arrays.append(fitted(np.asarray(given[found[0]]), info, steps=steps))
    if steps and len({len(a) for a in arrays}) > 1:
        lengths = ", ".join(f"{quoted(i.name)} {len(a)}" for i, a in zip(manifest.inputs, arrays, strict=True))
        hint = "give every input as many steps"
        raise UserError("wrong-input", f"the inputs have different numbers of steps: {lengths}", hint=hint)
    return arrays


def _infos_for(manifest: Manifest, given: Mapping[str, Array], steps: bool) -> tuple[TensorInfo, ...]:
    """The inputs with the shapes that follow from the sizes of these arrays."""
    if not manifest.sizes:
        return manifest.inputs
    shapes = []
    for index, info in enumerate(manifest.inputs):
        array = next((given[key] for key in (info.name, info.field, f"in{index}") if key in given), None)
        if array is None:
            return manifest.inputs
        width = info.shape[-1:] if info.text and is_text(np.asarray(array)) else ()
        shapes.append((*(np.shape(array)[1:] if steps else np.shape(array)), *width))
    try:
        return ends_at_sizes(manifest, sizes_of(manifest, shapes)).inputs
    except ValueError as error:
        ranges = ", ".join(size.told() for size in manifest.given)
        raise UserError("wrong-input", str(error), hint=f"the sizes are {ranges}") from None


def fitted(array: Array, info: TensorInfo, *, steps: bool = False) -> Array:
    """The array as the library reads it: right type, contiguous. Axes of length 1 may differ, nothing else."""
    dtype = DType(info.dtype)
    wants = f"{info.dtype}[{','.join(map(str, info.shape))}]"
    if info.text and is_text(array):
        try:
            array = encoded(array, info.shape[-1])
        except TooLong as error:
            hint = f"compile with `--max {info.name}=N` for longer strings"
            raise UserError("wrong-input", f"input {quoted(info.name)}: {error}", hint=hint) from None
    if dtype is DType.BF16 and array.dtype.name == "bfloat16":
        array = array.view(np.uint16)
    if dtype is DType.BF16 and array.dtype == np.float32:
        array = f32_to_bf16(array)
    if array.dtype != dtype.numpy or array.dtype.byteorder == ">":
        hint = f"convert it: `x.astype(numpy.{dtype.numpy.name})`"
        what = f"input {quoted(info.name)} has type `{array.dtype}`, the model takes `{wants}`"
        raise UserError("wrong-input", what, hint=hint)
    shape = tuple(array.shape[1:] if steps and array.ndim else array.shape)
    if info.turned and shape == info.shape_in_model:
        array = np.moveaxis(array, -3, -1)
        shape = info.shape
    if (steps and array.ndim == 0) or _without_ones(shape) != _without_ones(info.shape):
        got = ",".join(map(str, array.shape))
        more = " after the leading axis of steps" if steps else ""
        what = f"input {quoted(info.name)} has shape `[{got}]`, the model takes `{wants}`{more}"
        several = _without_ones(shape[1:]) == _without_ones(info.shape)
        hint = "several samples: `--steps`, or `run_steps` in Python" if several else "axes of length 1 may differ, nothing else"
        hint = "without `--steps`, arrays have the model's shape" if steps else hint
        raise UserError("wrong-input", what, hint=hint)
    target = (len(array), *info.shape) if steps else info.shape
    return np.ascontiguousarray(array).reshape(target)


def _without_ones(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(n for n in shape if n != 1)
