"""What a profile says, and what every way to measure one shares: inputs, the least time of a run, the size of the code."""

from __future__ import annotations

import struct
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from intaglio.ir.files import read_ir
from intaglio.ir.graph import Array
from intaglio.package.manifest import LayerInfo
from intaglio.package.selftest import stored_vector
from intaglio.package.vectors import random_inputs
from intaglio.run.board_cycles import Stall
from intaglio.run.host import fitted
from intaglio.run.loaded import LoadedPackage

if TYPE_CHECKING:
    from intaglio.run.opencl.measure import OnDevice

LEAST_RATED_MS = 5e-5  # of a measured layer that has a rate: below, reading the clock takes longer than the layer


@dataclass(frozen=True, slots=True)
class Total:
    macs: int
    instructions: int | None
    cycles: int | None
    time_ms: float | None
    ram_bytes: int
    arena_bytes: int
    stack_bytes: int | None
    flash_bytes: int | None
    code_bytes: int | None
    weight_bytes: int
    instructions_per_mac: float | None = None
    io_bytes: int | None = None  # buffers of inputs and outputs
    static_bytes: int | None = None
    stack_used_bytes: int | None = None  # measured; `stack_bytes` is the bound
    weights_ram_bytes: int | None = None  # of the weights, copied to RAM at start-up
    code_ram_bytes: int | None = None  # of the code
    cycles_low: int | None = None  # on the board; None where nothing is said of one
    cycles_high: int | None = None
    stalls: tuple[Stall, ...] = ()  # part of `cycles`
    vector_instructions: int | None = None  # of 128 bits, four beats each; None: the core has none


@dataclass(frozen=True, slots=True)
class LayerTime:
    name: str
    op: str
    macs: int
    instructions: int | None
    cycles: int | None
    time_ms: float | None
    kernel: str
    source: str
    instructions_per_mac: float | None = None
    weight_bytes: int | None = None  # in flash
    ram_bytes: int | None = None  # of the arena, alive while it runs
    accelerator: str = ""  # that computes it, if not the core
    parts: int = 1  # that threads compute at the same time
    cycles_low: int | None = None
    cycles_high: int | None = None
    stalls: tuple[Stall, ...] = ()
    vector_instructions: int | None = None


@dataclass(frozen=True, slots=True)
class Emulation:
    """How cycles came about: always an estimate."""

    emulator: str
    core: str
    board: str
    clock_mhz: float | None
    wait_states: int
    cycles_are_estimated: bool = True
    basis: str = ""  # what the interval of the cycles rests on; "": there is none
    described: bool = False  # cycles are those of the board, as its file describes it, not of its core alone
    cores: int = 1  # that compute layers together: instructions and cycles are those of the longer part of each
    one_core_cycles: int | None = None  # of one that computes all parts; None: there is one


@dataclass(frozen=True, slots=True)
class OnBoard:
    """How cycles were measured: by the counter of a core behind a serial line. `cycles_are_estimated`: that core is an emulator."""

    board: str
    clock_mhz: float | None
    runs: int
    cycles_are_estimated: bool


@dataclass(frozen=True, slots=True)
class Profile:
    target: str
    total: Total
    layers: tuple[LayerTime, ...]
    emulation: Emulation | None = None
    opencl: OnDevice | None = None
    serial: OnBoard | None = None


def least_ms(package: LoadedPackage, inputs: list[Array], runs: int) -> float:
    """The whole inference, without the hook."""
    outputs = [np.empty(info.shape, info.type.dtype.numpy) for info in package.manifest.outputs]
    package.reset()
    least = float("inf")
    for _ in range(max(2, runs)):
        start = time.perf_counter()
        package.library.run_into(inputs, outputs)
        least = min(least, time.perf_counter() - start)
    return least * 1000


def stored_inputs(package: LoadedPackage) -> list[Array]:
    """The test vectors of the package, which its reference accepts; random ones when they are gone."""
    folder = package.folder / "test"
    files = [folder / f"in{i}.npy" for i in range(len(package.manifest.inputs))]
    if all(f.is_file() for f in files):
        arrays = [stored_vector(f) for f in files]
        if package.sizes:  # the first of what is there for the largest
            cuts = [tuple(slice(0, n) for n in info.shape) for info in package.manifest.inputs]
            arrays = [np.ascontiguousarray(a[cut]) for a, cut in zip(arrays, cuts, strict=True)]
        return [fitted(a, info) for a, info in zip(arrays, package.manifest.inputs, strict=True)]
    return random_inputs([info.type for info in package.manifest.inputs], seed=0)


def layers_at_sizes(package: LoadedPackage) -> tuple[LayerInfo, ...]:
    """The layers with the multiply-adds of the sizes that are profiled; without the IR, those of the largest."""
    layers, path = package.manifest.layers, package.folder / "ir" / f"{package.name}.ig"
    if not package.sizes or not path.is_file():
        return layers
    graph = read_ir(path).pinned(package.sizes)
    macs = {n.output.name: n.op.macs([None if v is None else v.type for v in n.inputs], n.output.type) for n in graph.nodes}
    return tuple(replace(layer, macs=macs.get(layer.name, layer.macs)) for layer in layers)


def code_bytes(package: LoadedPackage) -> int | None:
    """Machine code of the shared library: its executable segments, read from the ELF header."""
    path = package.folder / "lib" / f"lib{package.name}.so"
    try:
        with open(path, "rb") as file:
            head = file.read(64)
            if head[:5] != b"\x7fELF\x02":
                return None
            offset, size, count = struct.unpack_from("<Q", head, 32)[0], *struct.unpack_from("<HH", head, 54)
            total = 0
            for index in range(count):
                file.seek(offset + index * size)
                kind, flags = struct.unpack("<II", file.read(8))
                _, _, _, in_file, _ = struct.unpack("<QQQQQ", file.read(40))
                if kind == 1 and flags & 1:
                    total += in_file
            return total
    except (OSError, struct.error):
        return None
