"""Test vectors: inputs drawn with a fixed seed, and what the reference runtime makes of them.

Random numbers are poor data for some models (an index that is out of range, the logarithm of a negative number), so
there are several kinds, tried in order until the reference accepts one.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np

from intaglio.ir.graph import Array
from intaglio.ir.spans import Span
from intaglio.ir.types import DType, Layout, TensorType
from intaglio.ops.base import narrow

OTHER_SIZES = (0.0, 0.37, 0.71)  # of bounds, between the least and the largest: further vectors of models with sizes


class SizeRange(Protocol):
    @property
    def name(self) -> str: ...
    @property
    def span(self) -> Span: ...


KINDS = ("normal", "small", "few", "zero")
FEW = 0.1  # of the numbers of `few` that are not zero


@dataclass(frozen=True, slots=True)
class Vectors:
    inputs: tuple[Array, ...]
    outputs: tuple[Array, ...]
    seed: int
    kind: str
    reference: str  # who computed the outputs


def sizes_at(manifest_sizes: Sequence[SizeRange], share: float) -> dict[str, int]:
    """Sizes between the bounds: 0 is the least, 1 the largest."""
    return {size.name: size.span.at(share) for size in manifest_sizes}


def random_inputs(types: list[TensorType], seed: int, kind: str = "normal") -> list[Array]:
    """`normal`: N(0,1) and integers below 100; `small`: [0,1) and integers 0 and 1; `few`: most are zeros, so that few of something
    are found; `zero`."""
    random = np.random.default_rng(seed)
    return [_draw(random, type, kind) for type in types]


def _draw(random: np.random.Generator, type: TensorType, kind: str) -> Array:
    if type.layout is Layout.TEXT:
        return _draw_strings(random, type, kind)
    if kind == "zero":
        return np.zeros(type.shape, type.dtype.numpy)
    if kind == "few":
        return np.where(random.random(type.shape) < FEW, _draw(random, type, "small"), np.zeros((), type.dtype.numpy))
    if type.dtype is DType.BOOL:
        return np.asarray(random.integers(0, 2, type.shape)).astype(bool)
    if type.dtype.is_float:
        drawn = random.standard_normal(type.shape) if kind == "normal" else random.random(type.shape)
        return np.asarray(narrow(np.asarray(drawn, np.float64), type.dtype)).reshape(type.shape)
    return np.asarray(random.integers(0, 100 if kind == "normal" else 2, type.shape)).astype(type.dtype.numpy)


def _draw_strings(random: np.random.Generator, type: TensorType, kind: str) -> Array:
    """Words of small letters; `normal` has spaces between some."""
    letters = b"abcdefgh " if kind == "normal" else b"ab"
    drawn = np.frombuffer(letters, np.uint8)[random.integers(0, len(letters), type.shape)]
    longest = min(type.shape[-1], 12 if kind != "zero" else 0)
    lengths = random.integers(0, longest + 1, (*type.shape[:-1], 1))
    return np.where(np.arange(type.shape[-1]) < lengths, drawn, 0).astype(np.uint8)


def write_vectors(vectors: Vectors, folder: Path, input_names: list[str], output_names: list[str]) -> None:
    folder.mkdir(exist_ok=True)
    for stem, arrays in (("in", vectors.inputs), ("out", vectors.outputs)):
        for index, array in enumerate(arrays):
            np.save(folder / f"{stem}{index}.npy", np.ascontiguousarray(array).reshape(array.shape), allow_pickle=False)
    about = {
        "seed": vectors.seed,
        "kind": vectors.kind,
        "reference": vectors.reference,
        "inputs": [{"file": f"in{i}.npy", "name": name} for i, name in enumerate(input_names)],
        "outputs": [{"file": f"out{i}.npy", "name": name} for i, name in enumerate(output_names)],
    }
    (folder / "vectors.json").write_text(json.dumps(about, indent=2) + "\n", encoding="utf-8")
