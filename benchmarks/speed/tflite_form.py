"""A quantised ONNX model as a TFLite file with the same integers, for LiteRT: convolutions, sums, pooling, means and products.

    DequantizeLinear, Conv, QuantizeLinear  ->  CONV_2D or DEPTHWISE_CONV_2D of int8, channels last

Padding that is not TFLite's `SAME` becomes a PAD before the operator. Anything else in the model is an error: this serves the
networks of `works.py`, and is no converter for all.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper

sys.path.append(str(Path(__file__).resolve().parents[2] / "tests"))
from support.tflite_models import ModelWriter, Tensor

SAME, VALID = 0, 1
NONE = 0  # no activation: it is in the range of the output
Attribute = int | list[int]


class Form:
    """Goes through the nodes in order. `places` are the tensors of the TFLite file by the names of quantised ONNX values."""

    def __init__(self, model: onnx.ModelProto) -> None:
        self.graph = model.graph
        self.constants = {t.name: numpy_helper.to_array(t) for t in model.graph.initializer}
        self.makers = {node.output[0]: node for node in model.graph.node}
        self.readers = {name: node for node in model.graph.node for name in node.input}
        self.writer = ModelWriter()
        self.writer.subgraph()
        self.places: dict[str, int] = {}
        self.shapes: dict[str, tuple[int, ...]] = {}

    def bytes(self) -> bytes:
        for node in self.graph.node:
            if node.op_type not in (*RULES, "QuantizeLinear", "DequantizeLinear"):
                raise ValueError(f"`{node.op_type}` has no TFLite form here")
        (given,) = self.graph.input
        n, c, h, w = (d.dim_value for d in given.type.tensor_type.shape.dim)
        self._place(given.name, (n, h, w, c))
        start = self.writer.tensor(Tensor((n, h, w, c), "float32"), "input")
        self.writer.operator("QUANTIZE", [start], [self.places[given.name]])
        for node in self.graph.node:
            if node.op_type in RULES:
                RULES[node.op_type](self, node)
        last = self.makers[self.graph.output[0].name].input[0]
        name = self._before(self.makers[last].input[0]) if last in self.makers else last
        end = self.writer.tensor(Tensor(self.shapes[name], "float32"), "output")
        self.writer.operator("DEQUANTIZE", [self.places[name]], [end])
        self.writer.graph.inputs, self.writer.graph.outputs = [start], [end]
        return self.writer.finish()

    def _before(self, name: str) -> str:
        """The value behind quantisers: the one that `places` knows."""
        while name not in self.places:
            name = self.makers[name].input[0]
        return name

    def _step(self, name: str) -> tuple[float, int]:
        """How the value is quantised: by the QuantizeLinear that reads it."""
        node = self.readers[name]
        while node.op_type not in ("QuantizeLinear", "DequantizeLinear"):
            node = self.readers[node.output[0]]
        return float(self.constants[node.input[1]]), int(self.constants[node.input[2]])

    def _place(self, name: str, shape: tuple[int, ...]) -> int:
        scale, zero = self._step(name)
        self.shapes[name] = shape
        self.places[name] = self.writer.tensor(Tensor(shape, "int8", scale, zero), name)
        return self.places[name]

    def _weights(self, name: str, turn: Callable[[np.ndarray], np.ndarray], axis: int, kind: str = "int8") -> int:
        node = self.makers[name]
        data, scales = self.constants[node.input[0]], np.atleast_1d(self.constants[node.input[1]])
        turned = np.ascontiguousarray(turn(data))
        steps = [float(s) for s in scales]
        return self.writer.tensor(Tensor(turned.shape, kind, steps, 0, turned, axis if scales.size > 1 else 0), name)

    def _bias(self, node: onnx.NodeProto) -> int:
        return self._weights(node.input[2], lambda b: b, 0, "int32") if len(node.input) > 2 else -1

    def _ints(self, values: object, name: str) -> int:
        data = np.asarray(values, np.int32)
        return self.writer.tensor(Tensor(data.shape, "int32", data=data), name)

    def _padded(self, name: str, window: list[int], strides: list[int], pads: list[int]) -> tuple[int, tuple[int, ...], int]:
        """The tensor to read, the size of the result without channels, and TFLite's padding."""
        n, h, w, c = self.shapes[name]
        size = tuple((s + pads[i] + pads[i + 2] - window[i]) // strides[i] + 1 for i, s in enumerate((h, w)))
        same = [max(0, (size[i] - 1) * strides[i] + window[i] - s) for i, s in enumerate((h, w))]
        if not any(pads):
            return self.places[name], size, VALID
        if all(pads[i] == same[i] // 2 and pads[i + 2] == same[i] - same[i] // 2 for i in range(2)):
            return self.places[name], size, SAME
        wide = (n, h + pads[0] + pads[2], w + pads[1] + pads[3], c)
        scale, zero = self._step(name)
        place = self.writer.tensor(Tensor(wide, "int8", scale, zero), f"{name}_padded{len(self.writer.graph.tensors)}")
        edges = self._ints([[0, 0], [pads[0], pads[2]], [pads[1], pads[3]], [0, 0]], f"{name}_edges")
        self.writer.operator("PAD", [self.places[name], edges], [place], "PadOptions")
        return place, size, VALID

    def conv(self, node: onnx.NodeProto) -> None:
        told = _attributes(node)
        data = self.constants[self.makers[node.input[1]].input[0]]
        source, group = self._before(node.input[0]), told.get("group", 1)
        strides = _pair(told.get("strides", [1, 1]))
        place, size, padding = self._padded(source, list(data.shape[2:]), strides, _pair(told.get("pads", [0] * 4)))
        fields = _window(padding, strides)
        fields |= {"dilationHFactor": 1, "dilationWFactor": 1}
        if group == 1:
            op, options = "CONV_2D", "Conv2DOptions"
            weights = self._weights(node.input[1], lambda w: w.transpose(0, 2, 3, 1), 0)
        elif group == data.shape[0] == self.shapes[source][3]:
            op, options = "DEPTHWISE_CONV_2D", "DepthwiseConv2DOptions"
            weights = self._weights(node.input[1], lambda w: w.transpose(1, 2, 3, 0), 3)
            fields["depthMultiplier"] = 1
        else:
            raise ValueError(f"groups of `{node.name}` have no TFLite form here")
        bias = self._bias(node)
        result = self._place(node.output[0], (self.shapes[source][0], *size, data.shape[0]))
        self.writer.operator(op, [place, weights, bias], [result], options, fields, version=3)

    def add(self, node: onnx.NodeProto) -> None:
        sources = [self._before(name) for name in node.input]
        result = self._place(node.output[0], self.shapes[sources[0]])
        fields: dict[str, object] = {"fusedActivationFunction": NONE}
        self.writer.operator("ADD", [self.places[s] for s in sources], [result], "AddOptions", fields)

    def max_pool(self, node: onnx.NodeProto) -> None:
        """After a ReLU only: the zeros of the padding are then the least value."""
        told, source = _attributes(node), self._before(node.input[0])
        window, strides = _pair(told["kernel_shape"]), _pair(told.get("strides", [1, 1]))
        place, size, padding = self._padded(source, window, strides, _pair(told.get("pads", [0] * 4)))
        fields = _window(padding, strides)
        fields |= {"filterHeight": window[0], "filterWidth": window[1]}
        n, _, _, c = self.shapes[source]
        self.writer.operator("MAX_POOL_2D", [place], [self._place(node.output[0], (n, *size, c))], "Pool2DOptions", fields)

    def mean(self, node: onnx.NodeProto) -> None:
        """Over rows and columns; the reshape after it is dropped, since one pixel has no layout."""
        source = self._before(node.input[0])
        n, _, _, c = self.shapes[source]
        axes = self._ints([1, 2], f"{node.output[0]}_axes")
        result = self._place(node.output[0], (n, c))
        self.writer.operator("MEAN", [self.places[source], axes], [result], "ReducerOptions", {"keepDims": False})

    def reshape(self, node: onnx.NodeProto) -> None:
        source = self._before(node.input[0])
        self.places[node.output[0]], self.shapes[node.output[0]] = self.places[source], self.shapes[source]

    def gemm(self, node: onnx.NodeProto) -> None:
        turned = bool(_attributes(node).get("transB", 0))
        source = self._before(node.input[0])
        weights = self._weights(node.input[1], lambda w: w if turned else w.T, 0)
        bias = self._bias(node)
        outputs = self.constants[self.makers[node.input[1]].input[0]].shape[0 if turned else 1]
        result = self._place(node.output[0], (self.shapes[source][0], outputs))
        fields: dict[str, object] = {"fusedActivationFunction": NONE, "weightsFormat": 0, "keepNumDims": False}
        given = [self.places[source], weights, bias]
        self.writer.operator("FULLY_CONNECTED", given, [result], "FullyConnectedOptions", fields, version=4)


RULES: dict[str, Callable[[Form, onnx.NodeProto], None]] = {
    "Conv": Form.conv, "Add": Form.add, "MaxPool": Form.max_pool, "ReduceMean": Form.mean, "GlobalAveragePool": Form.mean,
    "Reshape": Form.reshape, "Flatten": Form.reshape, "Gemm": Form.gemm,
}  # fmt: skip


def _attributes(node: onnx.NodeProto) -> dict[str, Attribute]:
    return {a.name: list(a.ints) if a.ints else a.i for a in node.attribute}


def _window(padding: int, strides: list[int]) -> dict[str, object]:
    return {"padding": padding, "strideH": strides[0], "strideW": strides[1], "fusedActivationFunction": NONE}


def _pair(value: Attribute) -> list[int]:
    assert isinstance(value, list)
    return value


def write_tflite(path: Path, made: Path) -> None:
    made.write_bytes(Form(onnx.load(str(path))).bytes())
