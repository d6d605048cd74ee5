"""Exporting a module, reading the file and computing it by the numpy references of the operators."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils import _pytree

from intaglio.frontends.torch import load
from intaglio.ir.graph import Array, Graph
from intaglio.ops.evaluate import evaluate_graph


def exported(module: Any, inputs: tuple[Any, ...], path: Path, *, core: bool = False) -> Path:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = torch.export.export(module.eval(), inputs)
        torch.export.save(program.run_decompositions() if core else program, str(path))
    return path


def graph_of(path: Path) -> Graph:
    return load(path, dims={}, shapes={})[0]


def computed(graph: Graph, inputs: tuple[Any, ...]) -> list[Array]:
    given = {value.name: np.asarray(x) for value, x in zip(graph.inputs, inputs, strict=True)}
    values = evaluate_graph(graph, given, keep=True)
    return [v.data if v.data is not None else values[v.name] for v in graph.outputs]


def eager(module: Any, inputs: tuple[Any, ...]) -> list[Array]:
    with torch.no_grad():
        results = _pytree.tree_leaves(module.eval()(*[x.clone() for x in inputs]))
    return [np.asarray(r) for r in results if isinstance(r, torch.Tensor)]


def difference(got: Array, want: Array) -> float:
    """The largest, as a share of the largest value; for whole numbers, how many differ."""
    assert got.shape == want.shape
    assert got.dtype == want.dtype
    if want.dtype.kind != "f":
        return float(np.count_nonzero(got != want))
    if not want.size:
        return 0.0
    return float(np.max(np.abs(got - want)) / (np.max(np.abs(want)) + 1e-9))


def shaken(module: Any) -> Any:
    """Statistics of batch normalisations as if something had been learnt."""
    for part in module.modules():
        if isinstance(part, torch.nn.modules.batchnorm._BatchNorm):
            assert part.running_mean is not None
            assert part.running_var is not None
            part.running_mean.normal_()
            part.running_var.uniform_(0.5, 2.0)
    return module
