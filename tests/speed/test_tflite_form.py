"""The TFLite file that LiteRT is measured on holds the same network as the QDQ model that the others are measured on."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from intaglio.ir.graph import Array
from quantised import write_qdq
from support.tflite_models import by_litert

SHAPE = (1, 3, 12, 12)


def network() -> onnx.ModelProto:
    """A convolution whose padding TFLite lacks, pooling, a depthwise one, a sum, a mean and a product."""
    random = np.random.default_rng(5)
    shapes = {"w1": (8, 3, 3, 3), "b1": (8,), "w2": (8, 1, 3, 3), "b2": (8,), "w3": (4, 8), "b3": (4,)}
    weights = [numpy_helper.from_array(random.normal(0, 0.5, shape).astype(np.float32), name) for name, shape in shapes.items()]
    weights.append(numpy_helper.from_array(np.asarray([1, 8], np.int64), "flat"))
    nodes = [
        helper.make_node("Conv", ["x", "w1", "b1"], ["c1"], name="c1", kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c1"], ["r1"], name="r1"),
        helper.make_node("MaxPool", ["r1"], ["p"], name="p", kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Conv", ["p", "w2", "b2"], ["c2"], name="c2", kernel_shape=[3, 3], pads=[1, 1, 1, 1], group=8),
        helper.make_node("Add", ["c2", "p"], ["s"], name="s"),
        helper.make_node("GlobalAveragePool", ["s"], ["m"], name="m"),
        helper.make_node("Reshape", ["m", "flat"], ["f"], name="f"),
        helper.make_node("Gemm", ["f", "w3", "b3"], ["y"], name="y", transB=1),
    ]
    given = helper.make_tensor_value_info("x", TensorProto.FLOAT, SHAPE)
    taken = helper.make_tensor_value_info("y", TensorProto.FLOAT, (1, 4))
    graph = helper.make_graph(nodes, "net", [given], [taken], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def by_onnxruntime(path: Path, x: Array) -> Array:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    result: Array = onnxruntime.InferenceSession(str(path), options).run(None, {"x": x})[0]
    return result


def test_litert_computes_what_onnx_runtime_does(tmp_path: Path) -> None:
    pytest.importorskip("ai_edge_litert")
    onnx.save(network(), str(tmp_path / "net.onnx"))
    files = write_qdq(tmp_path / "net.onnx", tmp_path)
    x = np.random.default_rng(6).standard_normal(SHAPE).astype(np.float32)
    expected = by_onnxruntime(files["onnx"], x)
    got = by_litert(files["tflite"], [np.ascontiguousarray(x.transpose(0, 2, 3, 1))])
    assert float(np.max(np.abs(got - expected))) < 0.02 * float(np.max(np.abs(expected)))


def test_an_operator_without_a_tflite_form_is_named(tmp_path: Path) -> None:
    from tflite_form import Form

    model = network()
    model.graph.node[1].op_type = "Erf"
    with pytest.raises(ValueError, match="`Erf` has no TFLite form here"):
        Form(model).bytes()
