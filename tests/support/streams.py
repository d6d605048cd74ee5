"""Streamed graphs, step by step, beside the model that they were made from."""

from __future__ import annotations

import numpy as np

from intaglio.ir.graph import Array, Graph
from intaglio.ir.verify import verify
from intaglio.ops.evaluate import evaluate_graph
from intaglio.passes.stream import Stream, stream_along


def steps_of(made: Stream, frames: Array) -> list[list[Array]]:
    """What the step graph says, step by step from the reset."""
    graph = made.graph
    verify(graph)
    source = next(v for v in graph.inputs if v not in {s.input for s in graph.states})
    kept = {s.input.name: np.full(s.input.shape, s.fill, s.input.dtype.numpy) for s in graph.states}
    told = []
    for first in range(0, frames.shape[made.axis] - made.hop + 1, made.hop):
        new = np.take(frames, range(first, first + made.hop), axis=made.axis)
        values = evaluate_graph(graph, {source.name: new, **kept}, keep=True)
        told.append([np.asarray(values[v.name]) for v in graph.outputs])
        kept = {s.input.name: values[s.output.name] for s in graph.states}
    return told


def frames_for(graph: Graph, axis: int, count: int, seed: int) -> Array:
    source = graph.inputs[0]
    shape = (*source.shape[:axis], count, *source.shape[axis + 1 :])
    rng = np.random.default_rng(seed)
    if source.dtype.is_float:
        return rng.standard_normal(shape).astype(np.float32)
    return rng.integers(-128, 128, shape).astype(np.int8)


def same(got: Array, want: Array) -> None:
    assert got.shape == want.shape and got.dtype == want.dtype
    if want.dtype.kind == "f":
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5 * float(np.abs(want).max(initial=1.0)))
    else:
        np.testing.assert_array_equal(got, want)


def newest(whole: Array, axis: int | None, rows: int) -> Array:
    return whole if axis is None else np.take(whole, range(whole.shape[axis] - rows, whole.shape[axis]), axis=axis)


def assert_equals_windows(graph: Graph, axis: int, seed: int = 0) -> Stream:
    """Each step from the first whole window on."""
    window = graph.inputs[0].shape[axis]
    made = stream_along(graph, axis)
    assert not made.goes_on and made.window == window
    frames = frames_for(graph, axis, (made.warmup + 3) * made.hop, seed)
    for step, results in enumerate(steps_of(made, frames)):
        if step < made.warmup - 1:
            continue
        end = (step + 1) * made.hop
        expected = evaluate_graph(graph, {graph.inputs[0].name: np.take(frames, range(end - window, end), axis=axis)})
        for out, along, got in zip(graph.outputs, made.outputs, results, strict=True):
            want = expected[out.name]
            rows = want.shape[along] if along is not None else 0
            if along is not None:  # a step may have more rows than the window
                rows = min(rows, got.shape[along])
            same(newest(got, along, rows), newest(want, along, rows))
    return made


def assert_goes_on(graph: Graph, axis: int, seed: int = 0) -> Stream:
    """All frames since the reset, as many as the model takes."""
    window = graph.inputs[0].shape[axis]
    made = stream_along(graph, axis)
    assert made.goes_on
    frames = frames_for(graph, axis, window, seed)
    start = {s.input.name: np.full(s.input.shape, s.fill, s.input.dtype.numpy) for s in graph.states}
    expected = evaluate_graph(graph, {graph.inputs[0].name: frames, **start})
    results = steps_of(made, frames)
    for n, (out, along) in enumerate(zip(graph.outputs, made.outputs, strict=True)):
        want = expected[out.name]
        if along is None:
            same(results[-1][n], want)
            continue
        joined = np.concatenate([r[n] for r in results], axis=along)
        same(newest(joined, along, want.shape[along]), want)
    return made
