"""Known answers of layers on a device: what the reference computes from a fixed pattern, as sums over parts of each result.

A driver's compiler can be wrong. The runtime of a package runs every layer of a program that was just built from source on the same
pattern, compares these sums, and does not use a program whose sums differ (`docs/reference/program-cache.md`). Sums find gross
errors alone: parts that were never computed, NaN. Rounding must not raise an alarm.

Layers whose operator rejects the pattern have no answers (an index out of range, for example), and neither have parts that are
not finite in the reference.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from intaglio.ir.graph import Array, Value
from intaglio.ir.operator import BadOperator, widen
from intaglio.ir.placement import Placement
from intaglio.ir.types import DType
from intaglio.kernels.program import Layer

PARTS = 8  # of a result; also in NAME_programs.h
SHIFT = 16  # elements by which the patterns of two inputs differ; also in NAME_selftest.c
MOST_MACS = 1 << 30  # a layer beyond takes the reference too long
UNKNOWN = -1.0  # the size of a part that is not compared


@dataclass(frozen=True, slots=True)
class Answer:
    """A place that a layer reads (`input` counts from 0), or one that it writes (-1) with its sums."""

    place: int
    input: int
    sums: tuple[float, ...] = (0.0,) * PARTS
    sizes: tuple[float, ...] = (0.0,) * PARTS  # sums of absolute values


def pattern(value: Value, number: int) -> Array:
    """Floats from -1 to 1; integers 0 or 1, since they may be indices."""
    i = np.arange(value.type.elements, dtype=np.uint64) + SHIFT * number
    x: Array = (i * 2654435761 + 12345).astype(np.uint32)
    x = (x ^ (x >> 15)) * np.uint32(2246822519)
    x = x ^ (x >> 13)
    if value.dtype.numpy.kind == "f":
        real = ((x >> 8).astype(np.float32) / np.float32(8388608) - np.float32(1)).astype(np.float32)
        data = _half(real) if value.dtype is DType.F16 else real.astype(value.dtype.numpy)
    else:
        data = (x >> 31).astype(value.dtype.numpy)
    return data.reshape(value.type.shape)


def _half(real: Array) -> Array:
    """Cut, not rounded, and without the numbers below the normal ones: as simple as in C."""
    bits = real.view(np.uint32)
    exponent = (bits >> 23) & 255
    cut = (bits >> 16 & 0x8000) | (exponent - 112) << 10 | (bits >> 13 & 0x3FF)
    return np.where(exponent < 113, 0, cut).astype(np.uint16).view(np.float16)


def answers_of(layer: Layer, placement: Placement, place_of: Callable[[Value], int]) -> list[Answer]:
    """Empty: nothing is known."""
    node = layer.node
    if layer.macs > MOST_MACS or node.op.EFFECT or not placement.covers(node.outputs):
        return []
    read = list(dict.fromkeys(v for v in node.inputs if v is not None and v.data is None))
    numbers: dict[int, int] = {}  # by place: two values can be the same memory
    for value in read:
        numbers.setdefault(place_of(value), len(numbers))
    given = {v: pattern(v, numbers[place_of(v)]) for v in read}
    arrays = [None if v is None else v.data if v.data is not None else given[v] for v in node.inputs]
    try:
        results = node.op.evaluate(arrays, [None if v is None else v.type for v in node.inputs])
    except (BadOperator, AssertionError, ArithmeticError, IndexError, ValueError, NotImplementedError):
        return []
    made = [Answer(place_of(v), -1, *_sums(widen(r, v.dtype))) for v, r in zip(node.outputs, results, strict=True)]
    return [*(Answer(place, n) for place, n in numbers.items()), *made]


def _sums(result: Array) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Over elements `n * part / PARTS` up to the next part's."""
    flat = result.reshape(-1).astype(np.float64)
    parts = [flat[flat.size * n // PARTS : flat.size * (n + 1) // PARTS] for n in range(PARTS)]
    known = [bool(np.isfinite(part).all()) and float(np.abs(part).sum()) < 1e30 for part in parts]
    sums = tuple(float(part.sum()) if good else 0.0 for part, good in zip(parts, known, strict=True))
    sizes = tuple(float(np.abs(part).sum()) if good else UNKNOWN for part, good in zip(parts, known, strict=True))
    return sums, sizes
