"""Keras models for tests: built with Keras 3 on PyTorch, filled with random weights, saved, and compared with Keras."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from intaglio.frontends.keras import load
from intaglio.ir.graph import Array, Graph
from intaglio.ir.verify import verify
from intaglio.ops.evaluate import evaluate_graph

os.environ.setdefault("KERAS_BACKEND", "torch")
pytest.importorskip("h5py", reason="h5py is not installed")
keras: Any = pytest.importorskip("keras", reason="Keras is not installed")

Build = Callable[[], Any]


def fill(model: Any, seed: int = 3) -> Any:
    """Random weights, also where Keras begins with zeros and ones; variances are positive."""
    rng = np.random.default_rng(seed)
    for weight in model.weights:
        values = rng.standard_normal(weight.shape).astype(np.float32) * 0.4
        if any(part in weight.path for part in ("variance", "gamma", "scale")):
            values = np.abs(values) + 0.5
        weight.assign(values)
    return model


def feeds(graph: Graph, seed: int = 5) -> dict[str, Array]:
    rng = np.random.default_rng(seed)
    found: dict[str, Array] = {}
    for value in graph.inputs:
        if value.dtype.is_float:
            found[value.name] = rng.standard_normal(value.shape).astype(value.dtype.numpy)
        else:
            found[value.name] = rng.integers(0, 7, value.shape).astype(value.dtype.numpy)
    return found


def expected(model: Any, graph: Graph, inputs: Mapping[str, Array]) -> list[Array]:
    """What Keras computes, in the order of the graph's outputs."""
    by_origin = {v.origin: inputs[v.name] for v in graph.inputs}
    names = [t._keras_history.operation.name for t in keras.tree.flatten(model.inputs)] if hasattr(model, "inputs") else []
    given = [by_origin[n] for n in names] or list(by_origin.values())
    got = model(keras.tree.pack_sequence_as(model._inputs_struct, given) if hasattr(model, "_inputs_struct") else given[0])
    if isinstance(got, dict):
        return [np.asarray(keras.ops.convert_to_numpy(got[n])) for n in graph.output_names]
    return [np.asarray(keras.ops.convert_to_numpy(t)) for t in keras.tree.flatten(got)]


def assert_like_keras(model: Any, folder: Path, suffixes: tuple[str, ...] = (".keras", ".h5"), bound: float = 1e-4) -> Graph:
    """The files of the model, as graphs, compute what Keras computes."""
    for suffix in suffixes:
        path = folder / f"model{suffix}"
        model.save(path)
        graph, _ = load(path, dims={}, shapes={})
        verify(graph)
        inputs = feeds(graph)
        results = evaluate_graph(graph, inputs)
        for value, want in zip(graph.outputs, expected(model, graph, inputs), strict=True):
            got = results[value.name].astype(np.float64)
            assert got.shape == want.shape
            assert np.abs(got - want).max(initial=0) <= bound * max(1.0, np.abs(want).max(initial=0)), suffix
    return graph
