"""ONNX's backend interface."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from onnx.backend.test.runner import BackendIsNotSupposedToImplementIt

from intaglio import onnx_backend


def model(op: str, shape: list[int | str]) -> onnx.ModelProto:
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, shape)
    return helper.make_model(helper.make_graph([helper.make_node(op, ["x"], ["y"])], "g", [x], [y]))


def test_run_model() -> None:
    x = np.array([[-1, 2]], np.float32)
    (y,) = onnx_backend.run_model(model("Relu", [1, 2]), [x])
    assert y.tolist() == [[0, 2]]


def test_an_open_shape_is_taken_from_the_inputs() -> None:
    prepared = onnx_backend.prepare(model("Neg", ["N", "M"]))
    for shape in ((2, 3), (4, 1)):
        (y,) = prepared.run([np.ones(shape, np.float32)])
        assert y.shape == shape


def test_a_shape_that_is_an_input_is_taken_from_its_value() -> None:
    given = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3]),
        helper.make_tensor_value_info("shape", TensorProto.INT64, [2]),
    ]
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    nodes = [helper.make_node("Reshape", ["x", "shape"], ["y"])]
    prepared = onnx_backend.prepare(helper.make_model(helper.make_graph(nodes, "g", given, [y])))
    for shape in ([3, 2], [6, 1]):
        (result,) = prepared.run([np.ones((2, 3), np.float32), np.array(shape)])
        assert list(result.shape) == shape


def test_run_node() -> None:
    node = helper.make_node("Add", ["a", "b"], ["c"])
    (c,) = onnx_backend.run_node(node, [np.ones(3, np.float32), np.ones(3, np.float32)])
    assert c.tolist() == [2, 2, 2]


def test_what_is_unsupported_says_so_in_onnx_words() -> None:
    with pytest.raises(BackendIsNotSupposedToImplementIt, match=r"error\["):
        onnx_backend.run_model(model("NoSuchOperator", [1]), [np.ones(1, np.float32)])


def test_devices() -> None:
    assert onnx_backend.supports_device("CPU")
    assert not onnx_backend.supports_device("CUDA")
