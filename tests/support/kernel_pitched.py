"""Kernels on rows that are apart: memory is spread, with bytes between the rows that nobody may change."""

from __future__ import annotations

import ctypes
import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from intaglio.ir.graph import Array, Value
from intaglio.ir.views import Pitch
from intaglio.kernels.loop import Kernel
from intaglio.kernels.pitched import Unproven, with_pitches
from intaglio.targets import Target
from support.kernel_quick import ALL
from support.kernel_running import TARGETS, Call, Case, assert_close, call_compiled, prepare

BETWEEN = 0x55
GAP = 4  # elements between rows


@dataclass
class Apart:
    """A call of a kernel with pitches, on memory that is spread."""

    case: Case
    call: Call
    pitches: dict[int, Pitch]

    def check(self, code: int) -> None:
        """Results are those of the reference, and what lies between rows is as it was."""
        assert code == 0
        results = []
        for n, out in zip(self.call.outputs, self.case.node().outputs, strict=True):
            array = self.call.arrays[n]
            if (pitch := self.pitches.get(n)) is not None:
                rows, between = _taken_apart(array, pitch)
                assert (between.view(np.uint8) == BETWEEN).all(), "written between rows"
                array = rows
            results.append(array.reshape(out.shape))
        assert_close(self.case, results, self.case.expected())


def apart(case: Case, target: Target) -> Iterator[Apart]:
    """All operands and results in rows where that is proven, or one of them at a time."""
    call = prepare(case, target)
    own = {
        n: Pitch(value.shape[-1], value.shape[-1] + GAP)
        for n, value in enumerate(call.lowered.arguments)
        if isinstance(value, Value) and value.data is None and value.type.rank and value.type.elements > value.shape[-1] > 0
    }
    kernel = call.lowered.kernel
    whole = _proven(kernel, own) if own else None
    for pitches in [own] if whole is not None else [{n: pitch} for n, pitch in own.items()]:
        made = whole if whole is not None else _proven(kernel, pitches)
        if made is not None:
            arrays = [_spread(a, pitches[n]) if n in pitches else a.copy() for n, a in enumerate(call.arrays)]
            yield Apart(case, Call(replace(call.lowered, kernel=made), arrays, call.outputs), pitches)


def _proven(kernel: Kernel, pitches: dict[int, Pitch]) -> Kernel | None:
    try:
        return with_pitches(kernel, pitches)
    except Unproven:
        return None


def _spread(array: Array, pitch: Pitch) -> Array:
    """As long as it has to be: nothing after the last row."""
    rows = array.size // pitch.width
    wide = np.full(rows * pitch.stride * array.itemsize, BETWEEN, np.uint8).view(array.dtype).reshape(rows, pitch.stride)
    wide[:, : pitch.width] = array.reshape(rows, pitch.width)
    return wide.reshape(-1)[: rows * pitch.stride - (pitch.stride - pitch.width)].copy()


def _taken_apart(array: Array, pitch: Pitch) -> tuple[Array, Array]:
    gap = np.full((pitch.stride - pitch.width) * array.itemsize, BETWEEN, np.uint8).view(array.dtype)
    wide = np.concatenate([array, gap]).reshape(-1, pitch.stride)
    return wide[:, : pitch.width].copy(), wide[:, pitch.width :].copy()


def main(path: str, isa: str) -> None:
    """Run as a program, with the sanitizers loaded first: every kernel of the library once."""
    library = ctypes.CDLL(path)
    count = 0
    for name in json.loads(Path(path).with_suffix(".json").read_text()):
        print(name, flush=True)
        for made in apart(ALL[name], TARGETS[isa]):
            made.call.lowered.kernel.name = f"k{count}"
            count += 1
            made.check(call_compiled(library, made.call))
    print(f"{count} kernels")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
