"""Tensors without elements: models that have them compile and agree with ONNX Runtime."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from intaglio import compile


def model(nodes: list[Any], shape: list[int], **constants: Any) -> Any:
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in (("x", shape), ("y", None)))
    tensors = [numpy_helper.from_array(np.asarray(array), name) for name, array in constants.items()]
    graph = helper.make_graph(nodes, "empty", [x], [y], tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def quantised() -> Any:
    one, byte = np.float32(0.1), np.uint8(3)
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["d"]),
        helper.make_node("DequantizeLinear", ["w", "s", "none"], ["v"]),
        helper.make_node("Conv", ["d", "v"], ["c"]),
        helper.make_node("QuantizeLinear", ["c", "s", "z"], ["r"]),
        helper.make_node("DequantizeLinear", ["r", "s", "z"], ["y"]),
    ]
    return model(nodes, [0, 2, 5, 5], s=one, z=byte, none=np.int8(0), w=np.ones((3, 2, 3, 3), np.int8))


KERNEL = np.ones((3, 2, 3, 3), np.float32)
RELU = helper.make_node("Relu", ["c"], ["y"])
CASES: dict[str, Any] = {
    "no samples": model([helper.make_node("Conv", ["x", "w"], ["c"], pads=[1] * 4), RELU], [0, 2, 5, 5], w=KERNEL),
    "no channels": model([helper.make_node("Relu", ["x"], ["y"])], [1, 0, 3, 3]),
    "no rows of a product": model([helper.make_node("MatMul", ["x", "w"], ["c"]), RELU], [0, 4], w=np.ones((4, 3), np.float32)),
    "no columns of a product": model([helper.make_node("MatMul", ["x", "w"], ["c"]), RELU], [2, 4], w=np.ones((4, 0), np.float32)),
    "a sum of nothing": model([helper.make_node("MatMul", ["x", "w"], ["c"]), RELU], [2, 0], w=np.ones((0, 3), np.float32)),
    "integers": quantised(),
}


@pytest.mark.parametrize("name", CASES)
def test_a_model_with_empty_tensors_agrees(name: str, tmp_path: Path) -> None:
    onnx.save(CASES[name], tmp_path / "empty.onnx")
    assert compile(tmp_path / "empty.onnx", output=tmp_path / "out").validate().ok
