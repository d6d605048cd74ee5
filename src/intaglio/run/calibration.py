"""Data that a float model is quantised with: samples by input, out of a file or a folder."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from intaglio.errors import UserError, quoted
from intaglio.ir.graph import Array, Graph, Value
from intaglio.ir.sizes import pinned, possible, sizes_in
from intaglio.run.data import read_arrays

RANDOM_SAMPLES = 16
MOST_FILES = 10_000
_HINT = "one array per input, by its name or as `in0`, `in1`, ..., with a leading axis of samples"

Samples = list[dict[str, Array]]


def read_samples(path: Path, graph: Graph) -> Samples:
    """The samples of a .npz or .npy file, or of all such files in a folder, in the order of their names."""
    if not path.is_dir():
        return samples_of(read_arrays(path), graph, path.name)
    files = sorted(p for p in path.iterdir() if p.suffix in (".npz", ".npy") and p.is_file())
    if not files:
        hint = "use .npz (an array per input) or .npy (a single input) files of one or more samples"
        raise UserError("bad-calibration", f"there are no .npz or .npy files in {quoted(str(path), 200)}", hint=hint)
    if len(files) > MOST_FILES:
        what = f"there are {len(files)} files in {quoted(str(path), 200)}"
        raise UserError("bad-calibration", what, hint="a few hundred samples are enough")
    return [sample for file in files for sample in samples_of(read_arrays(file), graph, file.name)]


def samples_of(arrays: dict[str, Array], graph: Graph, told: str) -> Samples:
    fed = {s.input for s in graph.states}
    inputs = [v for v in graph.inputs if v not in fed]
    columns: list[Array] = []
    for position, value in enumerate(inputs):
        name = value.origin or value.name
        found = next((arrays[key] for key in (name, value.name, f"in{position}") if key in arrays), None)
        if found is None and len(inputs) == 1 and len(arrays) == 1:
            found = next(iter(arrays.values()))
        if found is None:
            raise UserError("bad-calibration", f"{quoted(told)} has no array for the input {quoted(name)}", hint=_HINT)
        columns.append(_column(found, value, told))
    counts = {len(c) for c in columns}
    if len(counts) > 1:
        raise UserError("bad-calibration", f"the arrays of {quoted(told)} have different numbers of samples", hint=_HINT)
    if not columns or not len(columns[0]):
        raise UserError("bad-calibration", f"there are no samples in {quoted(told)}", hint=_HINT)
    try:
        sizes_in([(value.shape, column.shape[1:]) for value, column in zip(inputs, columns, strict=True)])
    except ValueError as error:
        raise UserError("bad-calibration", f"the arrays do not fit together: {error}", where=told, hint=_HINT) from None
    return [dict(zip((v.name for v in inputs), row, strict=True)) for row in zip(*columns, strict=True)]


def _column(array: Array, value: Value, told: str) -> Array:
    """[samples, shape...]; a batch axis of 1 may be left out, and a single sample may come without its axis."""
    shape, name = value.shape, quoted(value.origin or value.name)
    expected = f"{list(shape)} per sample"
    if array.dtype.kind != value.dtype.numpy.kind and not (array.dtype.kind == "f" and value.dtype.is_float):
        what = f"the data for {name} is {array.dtype}, the input is {value.dtype.value}"
        raise UserError("bad-calibration", what, where=told, hint="convert and scale it as in training")
    if _fits(array.shape, shape):
        array = array[None]
    tail = shape[1:] if shape[:1] == (1,) else shape
    if not array.ndim or not (_fits(array.shape[1:], shape) or _fits(array.shape[1:], tail)):
        what = f"the data for {name} has the shape {list(array.shape)}; the input is {expected}"
        raise UserError("bad-calibration", what, where=told, hint=_HINT)
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        raise UserError("bad-calibration", f"the data for {name} is not finite", where=told, hint="remove NaN and infinite values")
    given = array.shape[1:] if _fits(array.shape[1:], shape) else (1, *array.shape[1:])
    return array.reshape(array.shape[0], *given).astype(value.dtype.numpy)


def _fits(given: tuple[int, ...], shape: tuple[int, ...]) -> bool:
    """Is it this shape, for some sizes of the caller?"""
    return len(given) == len(shape) and all(n in possible(size) for n, size in zip(given, shape, strict=True))


def random_samples(graph: Graph) -> Samples:
    """Noise, when there is no data: normal for floats, small whole numbers for integers."""
    random = np.random.default_rng(0)
    fed = {s.input for s in graph.states}

    def draw(value: Value, sizes: dict[str, int]) -> Array:
        shape = pinned(value.shape, sizes)
        if value.dtype.is_float:
            return random.standard_normal(shape).astype(value.dtype.numpy)
        return random.integers(0, 2, shape).astype(value.dtype.numpy)

    ranges = graph.given_ranges()
    found: Samples = []
    for number in range(RANDOM_SAMPLES):  # the largest and the least sizes first, then some between
        ends = {name: span.high if number == 0 else span.low for name, span in ranges.items()}
        sizes = ends if number < 2 else {name: int(random.choice(span.numbers)) for name, span in ranges.items()}
        found.append({v.name: draw(v, sizes) for v in graph.inputs if v not in fed})
    return found
