"""How far a result may be from the reference follows from the narrowest floats that a layer before it computes in."""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np
import pytest

from intaglio import compile
from intaglio.frontends.onnx import load
from intaglio.ir.graph import Array
from intaglio.package.tolerance import narrowest
from support.onnx_models import model, node, onnx, saved, value

HALF, SINGLE = onnx.TensorProto.FLOAT16, onnx.TensorProto.FLOAT


def in_half(layers: int) -> bytes:
    """A float model as converters to half precision make it: its inputs and outputs stay what they were."""
    random = np.random.default_rng(0)
    constants: dict[str, Array] = {}
    nodes = [node("Cast", "x", "a0", to=HALF)]
    for n in range(layers):
        constants[f"w{n}"] = (random.standard_normal((64, 64)) / 5).astype(np.float16)
        nodes += [node("MatMul", f"a{n} w{n}", f"b{n}"), node("Relu", f"b{n}", f"a{n + 1}")]
    nodes += [node("Cast", f"a{layers}", "y", to=SINGLE), node("Neg", "x", "z")]
    data: bytes = model(nodes, [value("x", [8, 64])], [value("y", None), value("z", None)], constants).SerializeToString()
    return data


def test_an_output_that_was_rounded_to_half_precision_may_be_that_far_off(tmp_path: Path) -> None:
    package = compile(saved(in_half(6), tmp_path), output=tmp_path / "p")
    result = package.validate()
    y, z = result.outputs
    assert y.max_rel > 1e-4, "the case is too tame to show anything"
    assert result.ok and not y.by_noise and z.max_rel == 0
    assert subprocess.run([package.folder / "bin" / "model", "--selftest"], check=False, capture_output=True).returncode == 0


@pytest.mark.parametrize(
    ("nodes", "rounded"),
    [
        ([node("Cast", "x", "a", to=HALF), node("Exp", "a", "b"), node("Cast", "b", "c", to=SINGLE), node("Exp", "c", "y")], "f16"),
        ([node("Cast", "x", "a", to=HALF), node("Cast", "a", "b", to=SINGLE), node("Exp", "b", "y")], ""),  # both round alike
        ([node("Cast", "w", "a", to=SINGLE), node("Mul", "x a", "y")], ""),  # what is stored is exact
    ],
)
def test_a_layer_that_computes_counts(nodes: list[onnx.NodeProto], rounded: str, tmp_path: Path) -> None:
    graph, _ = load(saved(model(nodes, constants={"w": np.ones(4, np.float16)}), tmp_path))
    assert narrowest(graph).get(graph.outputs[0], "") == rounded
