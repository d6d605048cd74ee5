"""A model that amplifies the last bit of its inputs is held against itself, and a wrong result is still wrong."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from intaglio import Package, compile
from intaglio.ir.graph import Array
from intaglio.run.validate import ValidateOptions, validate
from support.commands import Intaglio


def saved(folder: Path, nodes: list[onnx.NodeProto], **constants: object) -> Path:
    kinds = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 4096]) for name in ("x", "y")]
    tensors = [numpy_helper.from_array(np.asarray(array, np.float32), name) for name, array in constants.items()]
    graph = helper.make_graph(nodes, "g", kinds[:1], kinds[1:], tensors)
    path = folder / "m.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


@pytest.fixture(scope="module")
def chaotic(tmp_path_factory: pytest.TempPathFactory) -> Package:
    """The sine of a large sum: its last bits, which depend on the order of the terms, decide."""
    folder = tmp_path_factory.mktemp("chaotic")
    nodes = [helper.make_node("Mul", ["x", "w"], ["a"]), helper.make_node("ReduceSum", ["a"], ["b"], keepdims=1)]
    nodes += [helper.make_node("Mul", ["x", "b"], ["c"]), helper.make_node("Sin", ["c"], ["y"])]
    w = np.random.default_rng(0).standard_normal((1, 4096)) * 300
    return compile(saved(folder, nodes, w=w), output=folder / "m")


def test_the_models_own_noise_is_no_fault(chaotic: Package, intaglio: Intaglio) -> None:
    result = chaotic.validate()
    (output,) = result.outputs
    assert output.max_rel > 1e-4, "the case is too tame to show anything"
    assert result.ok and output.by_noise and output.moved_abs is not None and output.max_abs <= 16 * output.moved_abs
    said = intaglio("validate", chaotic.folder)
    assert said.code == 0 and "by noise" in said.out and "moves by" in said.out
    assert intaglio("validate", chaotic.folder, "--tolerance", "1e-4").code == 1  # what the user asks for is all that counts


def test_the_references_own_error_is_no_fault(tmp_path: Path, intaglio: Intaglio) -> None:
    """ONNX Runtime transforms frames that are no power of two by a detour, which costs three digits."""
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 4000])]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)]
    window = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(400) / 400)
    constants = {"step": np.int64(160), "w": window.astype(np.float32), "low": np.float32(1e-9)}
    nodes = [helper.make_node("STFT", ["x", "step", "w"], ["s"]), helper.make_node("ReduceSumSquare", ["s"], ["p"], axes=[3])]
    nodes += [helper.make_node("Max", ["p", "low"], ["q"]), helper.make_node("Log", ["q"], ["y"])]
    tensors = [numpy_helper.from_array(np.asarray(array), name) for name, array in constants.items()]
    graph = helper.make_graph(nodes, "g", inputs, outputs, tensors)
    path = tmp_path / "stft.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    result = compile(path, output=tmp_path / "p", cflags="-O1").validate()
    (output,) = result.outputs
    assert output.max_rel > 1e-4, "the case is too tame to show anything"
    assert result.ok and output.by_noise and output.off_abs is not None and output.max_abs <= 2 * output.off_abs
    assert "from what it computes in doubles" in intaglio("validate", tmp_path / "p").out


def test_half_precision_that_the_reference_leaves_out_is_no_fault(tmp_path: Path) -> None:
    """ONNX Runtime adds in floats, and drops the two casts that follow: the sum is never rounded. What is left of it after a
    subtraction is off by more than half precision itself."""
    given = [helper.make_tensor_value_info(name, TensorProto.FLOAT16, [1, 64]) for name in "ab"]
    nodes = [helper.make_node("Add", ["a", "b"], ["sum"])]
    nodes += [helper.make_node("Cast", [name], [name + "_wide"], to=TensorProto.FLOAT) for name in ("sum", "a")]
    nodes.append(helper.make_node("Sub", ["sum_wide", "a_wide"], ["y"]))
    graph = helper.make_graph(nodes, "g", given, [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 64])])
    path = tmp_path / "half.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    package = compile(path, output=tmp_path / "p")
    random = np.random.default_rng(0)
    inputs = {"a": random.uniform(4, 8, (1, 64)).astype(np.float16), "b": random.uniform(0, 1, (1, 64)).astype(np.float16)}
    (output,) = validate(package, ValidateOptions(inputs=inputs)).outputs
    assert output.max_rel > 2e-3 and output.ok and output.by_noise


def test_a_wrong_result_stays_wrong(tmp_path: Path) -> None:
    """The model in the package is replaced by one that computes a little more."""
    right = compile(saved(tmp_path, [helper.make_node("Mul", ["x", "c"], ["y"])], c=2.0), output=tmp_path / "p")
    assert right.validate().ok
    other = saved(tmp_path, [helper.make_node("Mul", ["x", "c"], ["y"])], c=2.001)
    (right.folder / "ir" / "source.onnx").write_bytes(other.read_bytes())
    result = Package.load(right.folder).validate()
    (output,) = result.outputs
    assert not result.ok and not output.by_noise and output.moved_abs is not None and output.moved_abs < 1e-5


def deciding(folder: Path, limit: float, *, chaos: bool) -> Path:
    """Where the last node finds something above the limit, as a map and as places: x itself, or the sine of a large sum."""
    found = [helper.make_tensor_value_info(name, TensorProto.INT64, None) for name in ("map", "places")]
    found.append(helper.make_tensor_value_info("chosen", TensorProto.FLOAT, None))
    nodes = [helper.make_node("Mul", ["x", "w"], ["a"]), helper.make_node("ReduceSum", ["a"], ["b"], keepdims=1)]
    nodes += [helper.make_node("Mul", ["x", "b"], ["c"]), helper.make_node("Sin", ["c"], ["s"])]
    nodes = [*(nodes if chaos else []), helper.make_node("Greater", ["s" if chaos else "x", "limit"], ["more"])]
    nodes += [helper.make_node("Cast", ["more"], ["map"], to=TensorProto.INT64), helper.make_node("NonZero", ["more"], ["places"])]
    nodes.append(helper.make_node("Compress", ["x", "flat"], ["chosen"], axis=1))
    nodes.insert(-1, helper.make_node("Reshape", ["more", "row"], ["flat"]))
    w = np.random.default_rng(0).standard_normal((1, 4096)) * 300
    constants = {"w": w.astype(np.float32), "limit": np.float32(limit), "row": np.asarray([-1])}
    tensors = [numpy_helper.from_array(np.asarray(array), name) for name, array in constants.items()]
    given = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 4096])
    path = folder / "m.onnx"
    graph = helper.make_graph(nodes, "g", [given], found, tensors)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


def test_integers_that_follow_from_noise_are_no_fault(tmp_path: Path, intaglio: Intaglio) -> None:
    result = compile(deciding(tmp_path, 0.0, chaos=True), output=tmp_path / "p").validate()
    named = {row.name: row for row in result.outputs}
    assert named["map"].mismatches, "the case is too tame to show anything"
    assert result.ok and named["map"].by_noise and named["map"].moved_elements
    assert named["places"].ok and named["chosen"].ok
    said = " ".join(intaglio("validate", tmp_path / "p").out.split())
    assert "by noise" in said and "of the reference itself changes in" in said


def test_integers_that_do_not_move_are_right_or_wrong(tmp_path: Path) -> None:
    """The model in the package is replaced by one with another limit."""
    package = compile(deciding(tmp_path, 0.5, chaos=False), output=tmp_path / "p")
    assert package.validate().ok
    other = deciding(tmp_path, 0.502, chaos=False)
    (package.folder / "ir" / "source.onnx").write_bytes(other.read_bytes())
    named = {row.name: row for row in Package.load(package.folder).validate().outputs}
    assert not any(row.ok for row in named.values()) and not any(row.by_noise for row in named.values())
    assert 0 < named["map"].mismatches < 20 and named["map"].moved_elements == 0


def detector(folder: Path, most: int, *, near_one: bool) -> Path:
    """Boxes that do not overlap, by their scores: nearly 1, or far apart."""
    nodes = [helper.make_node("Add", ["x", "sixteen"], ["logits"]), helper.make_node("Sigmoid", ["logits"], ["scores"])]
    names = ["boxes", "scores" if near_one else "x", "most", "overlap", "least"]
    nodes = [*(nodes if near_one else []), helper.make_node("NonMaxSuppression", names, ["found"])]
    edge = np.arange(64, dtype=np.float32).reshape(1, 64, 1)
    constants = {"boxes": np.concatenate([edge, edge, edge + 0.5, edge + 0.5], 2), "sixteen": np.float32(16)}
    constants |= {"most": np.asarray([most]), "overlap": np.asarray([0.5], np.float32), "least": np.asarray([-9], np.float32)}
    tensors = [numpy_helper.from_array(np.asarray(array), name) for name, array in constants.items()]
    given = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 1, 64])
    found = helper.make_tensor_value_info("found", TensorProto.INT64, None)
    path = folder / "m.onnx"
    graph = helper.make_graph(nodes, "g", [given], [found], tensors)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


def test_the_order_of_scores_that_differ_in_their_last_bits_is_no_fault(tmp_path: Path) -> None:
    result = compile(detector(tmp_path, 60, near_one=True), output=tmp_path / "p").validate()
    (found,) = result.outputs
    assert found.mismatches, "the case is too tame to show anything"
    assert result.ok and found.by_noise and found.moved_elements


def test_another_choice_among_scores_that_are_far_apart_is_wrong(tmp_path: Path) -> None:
    package = compile(detector(tmp_path, 60, near_one=False), output=tmp_path / "p")
    assert package.validate().ok
    model = onnx.load(str(package.folder / "ir" / "source.onnx"))
    boxes = next(tensor for tensor in model.graph.initializer if tensor.name == "boxes")
    swapped = numpy_helper.to_array(boxes).copy()
    swapped[0, 0] = swapped[0, 1]
    boxes.CopyFrom(numpy_helper.from_array(swapped, "boxes"))
    onnx.save(model, str(package.folder / "ir" / "source.onnx"))
    (found,) = Package.load(package.folder).validate().outputs
    assert not found.ok and not found.by_noise and found.moved_elements == 0


@pytest.fixture(scope="module")
def bytes_in_a_row(tmp_path_factory: pytest.TempPathFactory) -> Package:
    """Convolutions of bytes between floats, with a sum: ONNX Runtime computes them in floats, or with optimisations in integers."""
    random, folder = np.random.default_rng(0), tmp_path_factory.mktemp("bytes")
    nodes: list[onnx.NodeProto] = []
    tensors: dict[str, Array] = {"zero": np.asarray(128, np.uint8), "none": np.asarray(0, np.int8)}

    def bytes_of(name: str, scale: float) -> str:
        tensors[f"{name}_s"] = np.asarray(scale, np.float32)
        nodes.append(helper.make_node("QuantizeLinear", [name, f"{name}_s", "zero"], [f"{name}_q"]))
        nodes.append(helper.make_node("DequantizeLinear", [f"{name}_q", f"{name}_s", "zero"], [f"{name}_d"]))
        return f"{name}_d"

    last = first = bytes_of("x", 0.031)
    for n in range(6):
        tensors[f"w{n}"] = random.integers(-127, 128, (16, 16, 3, 3)).astype(np.int8)
        tensors[f"w{n}_s"] = np.asarray(0.0013, np.float32)
        nodes.append(helper.make_node("DequantizeLinear", [f"w{n}", f"w{n}_s", "none"], [f"w{n}_d"]))
        nodes.append(helper.make_node("Conv", [last, f"w{n}_d"], [f"c{n}"], pads=[1, 1, 1, 1]))
        last = bytes_of(f"c{n}", 0.031)
    nodes.append(helper.make_node("Add", [last, first], ["sum"]))
    nodes.append(helper.make_node("Identity", [bytes_of("sum", 0.043)], ["y"]))
    kinds = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 16, 24, 24]) for name in ("x", "y")]
    stored = [numpy_helper.from_array(array, name) for name, array in tensors.items()]
    graph = helper.make_graph(nodes, "g", kinds[:1], kinds[1:], stored)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), folder / "m.onnx")
    return compile(folder / "m.onnx", output=folder / "m")


def test_integers_of_the_reference_are_no_fault_beside_its_floats(bytes_in_a_row: Package, intaglio: Intaglio) -> None:
    x = np.random.default_rng(1).standard_normal((12, 1, 16, 24, 24)).astype(np.float32)
    result = validate(bytes_in_a_row, ValidateOptions(inputs={"x": x}, steps=True))
    (output,) = result.outputs
    assert output.by_integers and output.off_abs, "the case is too tame to show anything"
    assert result.ok
    np.savez(bytes_in_a_row.folder / "x.npz", x=x)
    said = intaglio("validate", bytes_in_a_row.folder, "--inputs", bytes_in_a_row.folder / "x.npz", "--steps")
    assert said.code == 0 and "by integers" in said.out and "between its floats and its integers" in " ".join(said.out.split())


def test_the_self_test_of_bytes_has_one_right_result(bytes_in_a_row: Package) -> None:
    """ONNX Runtime's floats and its integers agree on the inputs that are packed, or the IR computed the outputs."""
    assert subprocess.run([bytes_in_a_row.folder / "bin" / "m", "--selftest"], check=False, capture_output=True).returncode == 0


def test_wrong_integers_stay_wrong(bytes_in_a_row: Package, tmp_path: Path) -> None:
    """A package whose model has other weights."""
    shutil.copytree(bytes_in_a_row.folder, tmp_path / "p")
    model = onnx.load(str(tmp_path / "p" / "ir" / "source.onnx"))
    weights = next(tensor for tensor in model.graph.initializer if tensor.name == "w5")
    changed = numpy_helper.to_array(weights).copy()
    changed[0, 0] += np.where(changed[0, 0] < 0, 40, -40).astype(np.int8)
    weights.CopyFrom(numpy_helper.from_array(changed, "w5"))
    onnx.save(model, str(tmp_path / "p" / "ir" / "source.onnx"))
    assert not Package.load(tmp_path / "p").validate().ok
