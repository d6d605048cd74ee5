"""Networks of bytes with the kernels of MVE: interpreted, they give what the references give."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from intaglio.frontends.tflite import load
from intaglio.ir.graph import Array
from intaglio.kernels import lower
from intaglio.memory import place
from intaglio.ops.evaluate import evaluate_graph
from intaglio.passes import Context, optimise
from intaglio.run.machine import Machine
from intaglio.targets.target import find_target
from support.commands import Intaglio
from support.small_networks import images, keywords

NETWORKS = {"keywords": keywords, "images": images}
USED = {"keywords": {"four_rows", "eights_3x3"}, "images": {"four_rows", "vector_add", "window"}}


@pytest.mark.parametrize("core", ["cortex-m55", "cortex-m85"])
@pytest.mark.parametrize("name", NETWORKS)
def test_a_network_gives_what_its_graph_gives(name: str, core: str, tmp_path: Path) -> None:
    path, target = tmp_path / "net.tflite", find_target(core)
    path.write_bytes(NETWORKS[name]())
    program = lower(optimise(load(path, dims={}, shapes={})[0], Context(target)), target)
    program.placement = place(program, target)
    text = repr([kernel.body for kernel in program.kernels])
    assert all(f"name='{routine}" in text for routine in USED[name])
    graph, rng = program.graph, np.random.default_rng(1)
    inputs: dict[str, Array] = {v.name: rng.integers(-128, 128, v.shape).astype(np.int8) for v in graph.inputs}
    found, expected = Machine(program).run(inputs), evaluate_graph(graph, inputs)
    for value in graph.outputs:
        np.testing.assert_array_equal(found[value.name], expected[value.name])


@pytest.mark.skipif(shutil.which("qemu-system-arm") is None, reason="qemu-system-arm is not installed")
@pytest.mark.parametrize("name", NETWORKS)
def test_the_emulated_core_gives_the_same(name: str, intaglio: Intaglio, tmp_path: Path) -> None:
    (tmp_path / "net.tflite").write_bytes(NETWORKS[name]())
    said = intaglio("compile", tmp_path / "net.tflite", "--target", "cortex-m55", "-o", tmp_path / "p")
    assert said.code == 0, said.err
    assert intaglio("validate", tmp_path / "p").code == 0
