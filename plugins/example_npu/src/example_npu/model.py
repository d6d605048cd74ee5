"""The behavioural model, compiled for this machine: for `emulate`, and for the registers in the emulator."""

from __future__ import annotations

import ctypes
from functools import cache
from importlib import resources
from typing import Any

import numpy as np
import numpy.typing as npt

from example_npu.hardware import MAGIC, REGISTERS, WORDS, Words
from intaglio.accelerator import Array, Bus, host_library

ID, CONTROL, STATUS, PROGRAM, BASES, CYCLES, WAIT = 0, 4, 8, 12, 16, 32, 36
BUSY, FAILED = 1, 2
MOST_COMMANDS = 1 << 20


class Block(ctypes.Structure):
    """`npu_block` of example_npu_model.h."""

    base: int
    offset: int
    planes: int
    plane_stride: int
    plane_pitch: int
    rows: int
    row_stride: int
    row_pitch: int
    size: int
    _fields_ = tuple(
        (name, ctypes.c_uint32)
        for name in ("base", "offset", "planes", "plane_stride", "plane_pitch", "rows", "row_stride", "row_pitch", "size")
    )


MOVE = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_int, ctypes.POINTER(Block), ctypes.c_void_p)


class Memory(ctypes.Structure):
    _fields_ = (("move", MOVE), ("context", ctypes.c_void_p))


def source(name: str) -> str:
    return resources.files("example_npu").joinpath("c").joinpath(name).read_text(encoding="utf-8")


@cache
def library() -> ctypes.CDLL:
    files = {name: source(name) for name in ("example_npu_model.c", "example_npu_model.h")}
    made = host_library("example_npu_model", files)
    made.npu_model_run.argtypes = [ctypes.c_void_p, ctypes.POINTER(Memory), ctypes.POINTER(ctypes.c_uint64)]
    made.npu_model_run_on.argtypes = [*[ctypes.c_void_p] * 5, ctypes.POINTER(ctypes.c_uint64)]
    return made


def run(program: Words, constants: npt.NDArray[np.uint8], inputs: list[Array], out: Array) -> int:
    """One list on arrays; returns the cycles."""
    first = np.ascontiguousarray(inputs[0])
    second = np.ascontiguousarray(inputs[1]) if len(inputs) > 1 else None
    cycles = ctypes.c_uint64()
    error = library().npu_model_run_on(
        program.ctypes.data, constants.ctypes.data, first.ctypes.data, None if second is None else second.ctypes.data,
        out.ctypes.data, ctypes.byref(cycles),
    )  # fmt: skip
    if error:
        raise ValueError(f"the NPU reports error {error}")
    return cycles.value


class Registers:
    """The NPU on the bus of an emulated machine. It computes when it is started; results count as there when its cycles have
    passed, and a read of WAIT holds the core until then."""

    address = REGISTERS
    bytes = 4096

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._program = 0
        self._bases = [0, 0, 0, 0]
        self._status = 0
        self._cycles = 0
        self._until = 0

    def load(self, offset: int, size_bytes: int) -> int:
        if offset == ID:
            return 0x3155504E
        if offset == STATUS:
            return self._status | (BUSY if self._bus.now() < self._until else 0)
        if offset == WAIT:
            left = self._until - self._bus.now()
            if left > 0:
                self._bus.stall(left)
            return self._status
        if BASES <= offset < CYCLES:
            return self._bases[(offset - BASES) // 4]
        return {PROGRAM: self._program, CYCLES: self._cycles}.get(offset, 0)

    def store(self, offset: int, size_bytes: int, value: int) -> None:
        if offset == PROGRAM:
            self._program = value
        elif BASES <= offset < CYCLES:
            self._bases[(offset - BASES) // 4] = value
        elif offset == CONTROL and value & 1:
            self._start()
        elif offset == CONTROL and value & 2:
            self._until = self._status = 0

    def _start(self) -> None:
        magic, count = np.frombuffer(self._bus.read(self._program, 8), "<u4").tolist()
        cycles = ctypes.c_uint64()
        error = 1
        if magic == MAGIC and count <= MOST_COMMANDS:
            words = np.frombuffer(self._bus.read(self._program, 8 + 4 * WORDS * count), "<u4").copy()
            memory = Memory(MOVE(self._move), None)
            error = library().npu_model_run(words.ctypes.data, ctypes.byref(memory), ctypes.byref(cycles))
        self._status = FAILED if error else 0
        self._cycles = cycles.value
        self._until = self._bus.now() + cycles.value

    def _move(self, _: object, out: int, block: Any, pad: int) -> int:
        """DMA: runs of bytes between memory and the scratchpad."""
        b = block.contents
        start = self._bases[b.base & 3] + b.offset
        runs = [
            (p * b.plane_stride + r * b.row_stride, p * b.plane_pitch + r * b.row_pitch)
            for p in range(b.planes)
            for r in range(b.rows)
        ]
        try:
            if out:
                for there, here in runs:
                    self._bus.write(start + there, ctypes.string_at(pad + here, b.size))
                return 0
            data = self._bus.read(start, max(there for there, _ in runs) + b.size)
            for there, here in runs:
                ctypes.memmove(pad + here, data[there : there + b.size], b.size)
        except Exception:  # no memory there: the bus says so to the NPU
            return 1
        return 0
