"""Packages for WebAssembly: how their module is linked, and how it runs here, in wasmtime (`pip install wasmtime`).

The module imports nothing and has no heap: whoever runs it grows its memory and puts arena, inputs and outputs there.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from intaglio.errors import ToolError, UserError
from intaglio.ir.graph import Array
from intaglio.package.at_sizes import sizes_of
from intaglio.package.manifest import Manifest
from intaglio.run.host import Sink, run_at_sizes, shapes_said, stopped

if TYPE_CHECKING:
    from wasmtime import Func, Instance, Store

PAGE_BYTES = 65536
STACK_BYTES = 1 << 20
POINTER_BYTES = 4
HOOK = "hook"


PROGRAM_FLAGS = (f"-Wl,-z,stack-size={STACK_BYTES}", "-Wl,--strip-all")


def module_flags(name: str, header: str) -> tuple[str, ...]:
    """A module exports what its embedder calls; whether there are states to reset is seen from the header."""
    exported = [f"{name}_{part}" for part in ("run_in", "reset_in", "error") if f"{name}_{part}(" in header]
    return (*PROGRAM_FLAGS, "-mexec-model=reactor", *(f"-Wl,--export={function}" for function in exported))


class WasmLibrary:
    """A module with its memory: one sequence of inferences."""

    shapes: tuple[tuple[int, ...], ...] = ()  # of outputs, as the last run reports those that depend on sizes

    def __init__(self, path: Path, manifest: Manifest) -> None:
        self.manifest = manifest
        self._sink: Sink | None = None
        self._times: list[float] = []
        self._started = 0.0
        self._store, self._instance = self._instantiated(path)
        memory = manifest.memory
        tensors = [*manifest.inputs, *manifest.outputs]
        words = len(tensors) + 2 + len(manifest.given) + sum(len(info.dims) for info in manifest.outputs)
        sizes = [memory.arena_bytes, *(info.type.bytes for info in tensors), POINTER_BYTES * words]
        self._starts = self._grown(sizes, max(memory.alignment, 16))
        self.reset()

    def _instantiated(self, path: Path) -> tuple[Store, Instance]:
        try:
            from wasmtime import Engine, FuncType, Linker, Module, Store, ValType, WasmtimeError
        except ImportError:
            hint = "`pip install wasmtime`; or open web/index.html of the package in a browser"
            raise ToolError("no-wasmtime", "wasmtime, which runs modules for WebAssembly, is not installed", hint=hint) from None
        if not path.is_file():
            hint = "compile the model again, without `--stop-after`"
            raise UserError("not-built", f"the package has no module `{path.name}`", where=str(path), hint=hint)
        engine = Engine()
        store, linker = Store(engine), Linker(engine)
        hook = FuncType([ValType.i32(), ValType.i32(), ValType.i32()], [])
        try:
            linker.define_func("env", f"{self.manifest.name}_{HOOK}", hook, self._layer_done)
            instance = linker.instantiate(store, Module.from_file(engine, str(path)))
            if start := instance.exports(store).get("_initialize"):
                self._call(store, start)
        except WasmtimeError as error:
            what = f"`{path.name}` is not a module that wasmtime runs: {str(error).splitlines()[0]}"
            raise UserError("cannot-load", what, where=str(path), hint="compile the model again") from None
        return store, instance

    @staticmethod
    def _call(store: Store, function: object, *arguments: int) -> int:
        from wasmtime import Func

        assert isinstance(function, Func)
        return int(function(store, *arguments) or 0)

    def _function(self, part: str) -> Func:
        from wasmtime import Func

        found = self._instance.exports(self._store).get(f"{self.manifest.name}_{part}")
        if not isinstance(found, Func):
            what = f"the module does not export `{self.manifest.name}_{part}`"
            raise UserError("not-built", what, hint="compile the model again")
        return found

    @property
    def _memory(self) -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
        """All of it, as it is now: a module that grows may move."""
        from wasmtime import Memory

        memory = self._instance.exports(self._store)["memory"]
        assert isinstance(memory, Memory)
        return np.ctypeslib.as_array(memory.data_ptr(self._store), (memory.data_len(self._store),))

    def _grown(self, sizes: list[int], alignment: int) -> list[int]:
        """Where pieces of these sizes start, behind the memory that the module has itself."""
        from wasmtime import Memory

        memory = self._instance.exports(self._store)["memory"]
        assert isinstance(memory, Memory)
        at = memory.data_len(self._store)
        starts = []
        for size in sizes:
            starts.append(at)
            at += -(-max(size, 1) // alignment) * alignment
        memory.grow(self._store, -(-(at - memory.data_len(self._store)) // PAGE_BYTES))
        return starts

    def reset(self) -> None:
        if self.manifest.states:
            self._call(self._store, self._function("reset_in"), self._starts[0])

    def run(self, inputs: list[Array]) -> list[Array]:
        if self.manifest.sizes:
            return run_at_sizes(self, inputs)
        outputs = [np.empty(info.shape, info.type.dtype.numpy) for info in self.manifest.outputs]
        self.run_into(inputs, outputs)
        return outputs

    def run_into(self, inputs: list[Array], outputs: list[Array]) -> None:
        memory, table = self._memory, self._starts[-1]
        places = self._starts[1:-1]
        given = self.manifest.given
        chosen = sizes_of(self.manifest, [a.shape for a in inputs]) if given else {}
        for array, at in zip(inputs, places, strict=False):
            memory[at : at + array.nbytes] = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        front = [*(places[: len(inputs)] or [0]), *(chosen[size.name] for size in given)]
        reported = sum(len(info.dims) for info in self.manifest.outputs)
        pointers = np.array([*front, *places[len(inputs) :], *[0] * (reported + 1)], np.uint32).view(np.uint8)
        memory[table : table + pointers.size] = pointers
        first_output = table + POINTER_BYTES * len(front)
        self._times, self._started = [], time.perf_counter()
        code = self._call(self._store, self._function("run_in"), self._starts[0], table, first_output)
        if code != 0:
            raise stopped(self.manifest, code, self._error(code))
        memory = self._memory
        for array, at in zip(outputs, places[len(inputs) :], strict=True):
            array.reshape(-1).view(np.uint8)[:] = memory[at : at + array.nbytes]
        if self.manifest.sizes:
            at = first_output + POINTER_BYTES * len(outputs)
            self.shapes = shapes_said(self.manifest, memory[at : at + POINTER_BYTES * reported].view(np.uint32).tolist())

    def _error(self, code: int) -> str:
        at = self._call(self._store, self._function("error"), code)
        return bytes(self._memory[at : at + 200]).split(b"\0", 1)[0].decode("ascii", "replace")

    # Modules built with the hook --------------------------------------------------------------------------------------

    def start_probe(self, sink: Sink | None = None) -> None:
        self._sink = sink

    def probe_times(self) -> list[float]:
        """Microseconds per layer of the last run."""
        return self._times

    def _layer_done(self, layer: int, at: int, size: int) -> None:
        now = time.perf_counter()
        if layer >= 0 and layer >= len(self._times):  # once per output of a layer
            self._times.append((now - self._started) * 1e6)
        if layer >= 0 and self._sink is not None:
            self._sink(layer, bytes(self._memory[at : at + size]))
        self._started = time.perf_counter()
