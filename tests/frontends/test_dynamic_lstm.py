"""DynamicQuantizeLSTM against ONNX Runtime. Weights are of 7 bits: with 8, its AVX2 kernels saturate sums of two products."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from intaglio.errors import ModelError
from intaglio.frontends.onnx import load
from intaglio.ir.graph import Array
from intaglio.ops.evaluate import evaluate_graph

STEPS, INPUTS, HIDDEN = 5, 6, 4


def saved(folder: Path, direction: str, *, columns: bool = False, **attributes: object) -> Path:
    rng = np.random.default_rng(3)
    count = 2 if direction == "bidirectional" else 1
    tensors: dict[str, Array] = {
        "w": rng.integers(-63, 64, (count, INPUTS, 4 * HIDDEN)).astype(np.int8),
        "r": rng.integers(-63, 64, (count, HIDDEN, 4 * HIDDEN)).astype(np.int8),
        "b": (rng.standard_normal((count, 8 * HIDDEN)) * 0.1).astype(np.float32),
    }
    for name in ("w", "r"):
        shape = (count, 4 * HIDDEN) if columns else (count,)
        tensors[f"{name}_scale"] = rng.uniform(0.005, 0.02, shape).astype(np.float32)
        tensors[f"{name}_zero"] = np.zeros(shape, np.int8)
    inputs = ["x", "w", "r", "b", "", "", "", "", "w_scale", "w_zero", "r_scale", "r_zero"]
    options: dict[str, Any] = {"domain": "com.microsoft", "hidden_size": HIDDEN, "direction": direction, **attributes}
    node = helper.make_node("DynamicQuantizeLSTM", inputs, ["y", "h", "c"], **options)
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [STEPS, 1, INPUTS])
    outputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in ("y", "h", "c")]
    graph = helper.make_graph([node], "g", [x], outputs, [numpy_helper.from_array(a, n) for n, a in tensors.items()])
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), folder / "m.onnx")
    return folder / "m.onnx"


@pytest.mark.parametrize("columns", [False, True])
@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
def test_an_lstm_with_byte_weights_is_that_of_onnx_runtime(direction: str, columns: bool, tmp_path: Path) -> None:
    path = saved(tmp_path, direction, columns=columns)
    x = np.random.default_rng(4).standard_normal((STEPS, 1, INPUTS)).astype(np.float32)
    wanted = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"]).run(None, {"x": x})
    graph, _ = load(path)
    found = evaluate_graph(graph, {"x": x})
    for output, want in zip(graph.outputs, wanted, strict=True):
        np.testing.assert_allclose(found[output.name], want, atol=2e-6)


def test_what_is_not_supported_is_refused(tmp_path: Path) -> None:
    for attributes in ({"clip": 1.0}, {"activations": ["Sigmoid", "Relu", "Tanh"]}, {"input_forget": 1}):
        with pytest.raises(ModelError, match="with peepholes, a clip, or other activations"):
            load(saved(tmp_path, "forward", **attributes))
