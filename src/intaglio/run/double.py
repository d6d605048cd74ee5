"""An ONNX model in double precision: how far a reference in single precision is from what it should compute.

ONNX Runtime's `STFT` of frames that are no power of two is off by 1e-3, for instance. Not every operator has a kernel for doubles;
then there is no such model."""

from __future__ import annotations

from typing import Any

import numpy as np

from intaglio.frontends.onnx.structure import graphs_in

MOST_BYTES = 256 << 20
_KINDS = {"Cast": "to", "EyeLike": "dtype", "HannWindow": "output_datatype", "HammingWindow": "output_datatype",
          "BlackmanWindow": "output_datatype", "MelWeightMatrix": "output_datatype"}  # fmt: skip


def widened(model: Any) -> bytes | None:
    """The model with doubles in the place of its floats. None where it is too large, or draws numbers."""
    import onnx

    if model.ByteSize() > MOST_BYTES or any(node.op_type.startswith(("Random", "Bernoulli")) for node in model.graph.node):
        return None
    for graph in graphs_in(model.graph):
        for tensor in graph.initializer:
            _widen(tensor)
        for info in (*graph.input, *graph.output, *graph.value_info):
            if info.type.HasField("tensor_type") and info.type.tensor_type.elem_type == onnx.TensorProto.FLOAT:
                info.type.tensor_type.elem_type = onnx.TensorProto.DOUBLE
        for node in graph.node:
            _widen_node(node)
    return bytes(model.SerializeToString())


def _widen_node(node: Any) -> None:
    import onnx

    for attribute in node.attribute:
        if attribute.HasField("t"):
            _widen(attribute.t)
        if attribute.name == _KINDS.get(node.op_type) and attribute.i == onnx.TensorProto.FLOAT:
            attribute.i = onnx.TensorProto.DOUBLE
    if node.op_type in _KINDS and not any(a.name == _KINDS[node.op_type] for a in node.attribute) and "Window" in node.op_type:
        node.attribute.append(onnx.helper.make_attribute("output_datatype", onnx.TensorProto.DOUBLE))


def _widen(tensor: Any) -> None:
    import onnx

    if tensor.data_type == onnx.TensorProto.FLOAT:
        wide = onnx.numpy_helper.from_array(onnx.numpy_helper.to_array(tensor).astype(np.float64), tensor.name)
        tensor.CopyFrom(wide)


__all__ = ["widened"]
