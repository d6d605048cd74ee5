"""What the tensors of a float model hold: their extremes, a sample of their numbers, means of what goes into products."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from intaglio.errors import UserError, quoted
from intaglio.ir.graph import Array, Graph, Value
from intaglio.ir.operator import BadOperator
from intaglio.ir.sizes import is_size, sizes_in
from intaglio.ir.types import DType
from intaglio.ops.conv import Conv
from intaglio.ops.evaluate import LongLoop, evaluate_graph
from intaglio.ops.matmul import MatMul
from intaglio.quantize.ranges import range_of
from intaglio.quantize.settings import Progress

_KEPT = 1 << 15  # numbers of one tensor that are looked at
_SECONDS = 30.0  # of one sample, in loops that data ends


@dataclass(slots=True)
class Tensor:
    low: float = np.inf
    high: float = -np.inf
    numbers: list[Array] = field(default_factory=list)
    channels: Array | None = None  # largest size per channel (the last axis)
    ranges: dict[tuple[str, DType], tuple[float, float]] = field(default_factory=dict)  # those that were asked for

    def range_by(self, method: str, dtype: DType) -> tuple[float, float]:
        """By this method; found once, for all plans that are tried."""
        if (method, dtype) not in self.ranges:
            self.ranges[method, dtype] = range_of(method, self.sample(), self.low, self.high, dtype)
        return self.ranges[method, dtype]

    def sample(self) -> Array:
        return np.concatenate(self.numbers) if self.numbers else np.zeros(1, np.float32)


@dataclass(slots=True)
class Statistics:
    tensors: dict[str, Tensor] = field(default_factory=dict)
    means: dict[str, Array] = field(default_factory=dict)  # of what goes into a product
    results: list[dict[str, Array]] = field(default_factory=list)  # the outputs of the float model, per sample


def sizes_for(graph: Graph, sample: Mapping[str, Array]) -> dict[str, int]:
    """What sizes of the caller a sample has."""
    return {} if graph.bounds is None else sizes_in([(v.shape, sample[v.name].shape) for v in graph.inputs if v.name in sample])


def run_all(graph: Graph, samples: list[dict[str, Array]], *, keep: bool = False) -> Iterator[dict[str, Array]]:
    """The samples in order, states fed from one to the next."""
    state = {s.input.name: np.full(s.input.shape, s.fill, s.input.dtype.numpy) for s in graph.states}
    whole = keep or bool(graph.states)
    for sample in samples:
        given = {**sample, **state}
        arrays = {**given, **evaluate_graph(graph, given, keep=whole, sizes=sizes_for(graph, sample), seconds=_SECONDS)}
        state = {s.input.name: arrays[s.output.name] for s in graph.states}
        yield arrays


def run_where_there_is_room(
    graph: Graph, samples: list[dict[str, Array]], *, keep: bool = False
) -> Iterator[dict[str, Array] | None]:
    """The same; None where integers find more than there is room for, which ends the run of a sample, and from the first sample on
    with which a loop does not end."""
    if graph.states or not (graph.counts or any(node.op.LOOP for node in graph.nodes)):
        yield from run_all(graph, samples, keep=keep)
        return
    endless = False
    for sample in samples:
        arrays = None
        try:
            arrays = None if endless else next(run_all(graph, [sample], keep=keep))
        except BadOperator:
            pass
        except LongLoop:
            endless = True
        yield arrays


def observe(graph: Graph, values: set[Value], samples: list[dict[str, Array]], progress: Progress) -> Statistics:
    """Run the float model over the samples by its references."""
    try:
        return _observed(graph, values, samples, progress)
    except (BadOperator, LongLoop) as error:
        what = f"the model does not take the calibration data: {error}"
        raise UserError("bad-calibration", what, hint="give data as the model is used with, by `--calibrate`") from None


def _observed(graph: Graph, values: set[Value], samples: list[dict[str, Array]], progress: Progress) -> Statistics:
    found = Statistics()
    names = {v.name for v in values}
    moving = {v.name for v in values if v.shape and is_size(v.shape[-1])}  # their channels are not always the same ones
    into = {n.inputs[0].name for n in graph.nodes if isinstance(n.op, Conv | MatMul) and n.inputs[0] is not None}
    into = into if graph.bounds is None else set()  # there is no mean of samples of different sizes
    random = np.random.default_rng(0)
    room = max(_KEPT // len(samples), 256)
    for done, arrays in enumerate(run_all(graph, samples, keep=True)):
        progress("calibrating", done, len(samples))
        for name in sorted(names & arrays.keys()):
            _look(found.tensors.setdefault(name, Tensor()), arrays[name], room, random, name)
            if name not in moving:
                _look_at_channels(found.tensors[name], arrays[name])
        for name in sorted(into & arrays.keys()):
            share = arrays[name].astype(np.float64) / len(samples)
            found.means[name] = found.means[name] + share if name in found.means else share
        found.results.append({v.name: arrays[v.name] if v.data is None else v.data for v in graph.outputs})
    progress("calibrating", len(samples), len(samples))
    return found


def _look(tensor: Tensor, array: Array, room: int, random: np.random.Generator, name: str) -> None:
    flat = array.reshape(-1)
    if not flat.size:
        return
    if not np.isfinite(flat).all():
        what = f"the tensor {quoted(name)} is not finite with the calibration data"
        raise UserError("bad-calibration", what, hint="scale the inputs as in training")
    tensor.low, tensor.high = min(tensor.low, float(flat.min())), max(tensor.high, float(flat.max()))
    tensor.numbers.append((flat if flat.size <= room else flat[random.integers(0, flat.size, room)]).astype(np.float32))


def _look_at_channels(tensor: Tensor, array: Array) -> None:
    if array.ndim and array.size:
        largest = np.abs(array).reshape(-1, array.shape[-1]).max(axis=0)
        tensor.channels = largest if tensor.channels is None else np.maximum(tensor.channels, largest)
