"""Bounds of cycles: never below what any input takes, and near to it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import intaglio as api
from intaglio.dossier.timing import adversarial, time_bounds
from intaglio.package.manifest import target_of
from intaglio.run.costs import Coster
from intaglio.run.emulator.device import EmulatorOptions
from intaglio.run.emulator.measure import hooked, layer_counts
from intaglio.run.loaded import LoadedPackage
from support.commands import DIGITS
from support.small_networks import anomalies, images, keywords
from support.tree_models import attributes, ml_model

pytest.importorskip("scipy")
pytest.importorskip("unicorn")

CORES = ("cortex-m0+", "cortex-m3", "cortex-m4f")


def compiled(network: Callable[[], bytes], core: str, folder: Path) -> LoadedPackage:
    (folder / "net.tflite").write_bytes(network())
    return LoadedPackage(api.compile(folder / "net.tflite", output=folder / "p", target=core).folder)


def check(package: LoadedPackage, inputs: int, share: float) -> None:
    """No layer takes more than its bound, on inputs that the bound has not seen either."""
    bounds = time_bounds(package, {}, 5)
    assert bounds.reason == ""
    assert bounds.total is not None, [layer for layer in bounds.layers if layer.cycles is None]
    count = len(package.manifest.layers)
    with hooked(package, None, EmulatorOptions("unicorn")) as device:
        coster = Coster(target_of(package.manifest).core, device.core.read, riscv=False)
        for number in range(1000, 1000 + inputs):
            for layer, counts in zip(
                bounds.layers, layer_counts(device, adversarial(package.manifest, number), count), strict=True
            ):
                assert coster.add(counts).cycles <= (layer.cycles or 0), (layer.name, number)
    assert bounds.above is not None
    assert 0 <= bounds.above <= share


@pytest.mark.slow
@pytest.mark.parametrize("core", CORES)
def test_integer_networks(core: str, tmp_path: Path) -> None:
    check(compiled(images, core, tmp_path), 10, 0.15)


@pytest.mark.slow
@pytest.mark.parametrize("core", CORES)
@pytest.mark.parametrize("network", [anomalies, keywords], ids=lambda f: f.__name__)
def test_more_integer_networks(network: Callable[[], bytes], core: str, tmp_path: Path) -> None:
    check(compiled(network, core, tmp_path), 200, 0.15)


def test_ways_that_no_data_opens_do_not_count(tmp_path: Path) -> None:
    """The routine has a loop for other widths of rows, which never runs here."""
    check(compiled(anomalies, "cortex-m0+", tmp_path), 10, 0.01)


@pytest.mark.slow
def test_calls_fill_the_pipeline(tmp_path: Path) -> None:
    """The depthwise layer calls a function in the middle of a block, and this core waits after each."""
    check(compiled(keywords, "cortex-m0+", tmp_path), 40, 0.15)


def test_floats_on_a_core_that_has_them(tmp_path: Path) -> None:
    check(LoadedPackage(api.compile(DIGITS, output=tmp_path / "p", target="cortex-m4f").folder), 10, 0.2)


@pytest.mark.parametrize("core", ["cortex-m0+", pytest.param("cortex-m3", marks=pytest.mark.slow)])
def test_floats_without_an_fpu_that_take_one_time(core: str, tmp_path: Path) -> None:
    """Half of the products have a zero, which does not make them shorter."""
    path = tmp_path / "dense.onnx"
    onnx.save(dense(), path)
    check(LoadedPackage(api.compile(path, output=tmp_path / "p", target=core, safety=("steady",)).folder), 10, 0.05)


def dense() -> onnx.ModelProto:
    rng = np.random.default_rng(0)
    weights = [numpy_helper.from_array(rng.standard_normal(shape).astype(np.float32), name) for name, shape in
               (("v", (4, 12)), ("w", (12, 6)), ("b", (12,)))]  # fmt: skip
    nodes = [
        helper.make_node("Gemm", ["x", "v", "b"], ["s"], name="first"),
        helper.make_node("Relu", ["s"], ["r"], name="relu"),
        helper.make_node("MatMul", ["r", "w"], ["y"], name="second"),
    ]
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, n]) for name, n in (("x", 4), ("y", 6))]
    graph = helper.make_graph(nodes, "dense", values[:1], values[1:], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def test_data_decides_the_way_but_not_the_bound(tmp_path: Path) -> None:
    """A threshold per element: the way through the code differs with the sign of the input."""
    nodes = [
        helper.make_node("Elu", ["x"], ["e"], name="elu"),
        helper.make_node("Softmax", ["e"], ["y"], axis=-1, name="softmax"),
    ]
    value = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 24]) for name in "xy"]
    graph = helper.make_graph(nodes, "ways", value[:1], value[1:])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), tmp_path / "ways.onnx")
    package = LoadedPackage(api.compile(tmp_path / "ways.onnx", output=tmp_path / "p", target="cortex-m4f").folder)
    bounds = time_bounds(package, {}, 5)
    with hooked(package, None, EmulatorOptions("unicorn")) as device:
        coster = Coster("cortex-m4", device.core.read, riscv=False)
        taken = set()
        for sign in (-3.0, 3.0, 0.0):
            counts = layer_counts(device, [np.full((1, 24), sign, np.float32)], len(package.manifest.layers))
            cycles = [coster.add(one).cycles for one in counts]
            taken.add(cycles[0])
            assert all(layer.cycles is None or c <= layer.cycles for c, layer in zip(cycles, bounds.layers, strict=True))
    assert len(taken) > 1


def test_features_in_registers_are_data(tmp_path: Path) -> None:
    """Functions of assembly branch on registers that are no arguments in C."""
    rng = np.random.default_rng(1)
    forest = attributes(rng, "target", [0, 1], trees=5, modes=("BRANCH_LEQ",), targets=2)
    model = ml_model("TreeEnsembleRegressor", np.zeros((1, 6), np.float32), ["y"], n_targets=2, **forest)
    onnx.save(model, tmp_path / "forest.onnx")
    package = LoadedPackage(api.compile(tmp_path / "forest.onnx", output=tmp_path / "p", target="cortex-m4f").folder)
    assert package.manifest.layers[0].kernel == "trees_assembly"
    check(package, 20, 0.5)


def test_states_are_data(tmp_path: Path) -> None:
    """What a state holds decides the way too."""
    nodes = [
        helper.make_node("Add", ["x", "h"], ["a"], name="add"),
        helper.make_node("Elu", ["a"], ["y"], name="elu"),
    ]
    values = {name: helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 24]) for name in "xhy"}
    graph = helper.make_graph(nodes, "keeps", [values["x"], values["h"]], [values["y"]])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), tmp_path / "keeps.onnx")
    package = api.compile(tmp_path / "keeps.onnx", output=tmp_path / "p", target="cortex-m4f", states={"h": "y"})
    check(LoadedPackage(package.folder), 20, 1.0)


def test_floats_by_functions_of_the_compiler(tmp_path: Path) -> None:
    """They compare by a function that goes on in another one, and its constants lie behind that jump."""
    weights = np.random.default_rng(0).standard_normal((8, 4)).astype(np.float32)
    nodes = [helper.make_node("MatMul", ["x", "w"], ["m"]), helper.make_node("Relu", ["m"], ["y"])]
    values = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 8]),
        helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 4]),
    ]
    graph = helper.make_graph(nodes, "soft", values[:1], values[1:], [numpy_helper.from_array(weights, "w")])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), tmp_path / "soft.onnx")
    check(LoadedPackage(api.compile(tmp_path / "soft.onnx", output=tmp_path / "p", target="cortex-m3").folder), 20, 2.0)
