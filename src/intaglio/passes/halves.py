"""Floats of a device stored in 16 bits: tensors between layers and weights, where the device has code for that.

    --precision mixed   stored as f16, computed in f32
    --precision fp16    computed in f16 too, in convolutions, products, pooling and elementwise layers, where the device can

Inputs, outputs and states stay what they are in the model: they are cast at the border, as is what other layers need in f32.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from intaglio.errors import UserError
from intaglio.ir.graph import Graph, Node, Value
from intaglio.ir.types import DType, TensorType
from intaglio.ops.base import BadOperator, Chain
from intaglio.ops.convert import Cast, Dequantize, Quantize
from intaglio.passes.context import Context

LARGEST = 65504.0


def store_halves(graph: Graph, context: Context) -> Graph:
    """Values of f32 become f16 where the device has a kernel that writes them so.

        a: f32[1,8,8,4] = conv(x, w)          x_1: f16[1,8,8,4] = cast(x, to=f16)
        y: f32[1,8,8,4] = relu(a)             a: f16[1,8,8,4] = conv(x_1, w_1)
                                      ->      y_half: f16[1,8,8,4] = relu(a)
                                              y: f32[1,8,8,4] = cast(y_half, to=f32)

    Skipped for inputs, outputs and states, and for layers without such a kernel: they are cast at the border.
    """
    return _Halves(graph, context).run()


class _Halves:
    def __init__(self, graph: Graph, context: Context) -> None:
        self.graph, self.context = graph, context
        self.constants: dict[Value, Value] = {}
        self.casts: dict[tuple[Value, DType], Value] = {}
        self.nodes: list[Node] = []

    def run(self) -> Graph:
        graph = self.graph
        for node in graph.nodes:
            if self._narrowed(node):
                for out in node.outputs:
                    if out.dtype is DType.F32:
                        out.type = replace(out.type, dtype=DType.F16)
            else:
                node.inputs = [None if v is None else self._as(v, DType.F32, node, only=DType.F16) for v in node.inputs]
            self.nodes.append(node)
        graph.outputs = [self._border(v) for v in graph.outputs]
        for state in graph.states:
            state.output = self._border(state.output)
        graph.nodes = self.nodes
        return graph

    def _narrowed(self, node: Node) -> bool:
        """Give the node operands of f16, if it can work with these."""
        floats = any(v.dtype is DType.F32 for v in node.outputs)
        if not floats or isinstance(node.op, Cast | Quantize | Dequantize) or not _plain(node):
            return False
        fresh = [None if v is None else Value(v.name, _half(v.type), data=_small(v)) for v in node.inputs]
        try:
            types = node.op.infer(*[None if v is None else v.type for v in fresh])
            if [t.dtype for t in types] != [_half(v.type).dtype for v in node.outputs]:
                return False
            trial = Node(node.op, fresh, [Value(v.name, t) for v, t in zip(node.outputs, types, strict=True)], node.source)
            if not self.context.takes_halves(trial, self.context.target):
                return False
        except (BadOperator, UserError, AssertionError, ValueError):
            return False
        node.inputs = [None if v is None else self._as(v, DType.F16, node, only=DType.F32) for v in node.inputs]
        return True

    def _as(self, value: Value, dtype: DType, node: Node, only: DType) -> Value:
        """The value in that type, if it has the type `only`."""
        if value.dtype is not only:
            return value
        if value.data is not None:
            if value not in self.constants:
                data = _small(value)
                assert data is not None
                self.constants[value] = self.graph.constant(value.name, data, DType.F16)
            return self.constants[value]
        if (value, dtype) not in self.casts:
            made = self.graph.value(value.name, replace(value.type, dtype=dtype))
            self.nodes.append(Node(Cast(dtype), [value], [made], node.source))
            self.casts[value, dtype] = made
        return self.casts[value, dtype]

    def _border(self, value: Value) -> Value:
        """Outputs are f32 as in the model, and keep their name."""
        if value.dtype is not DType.F16 or value.data is not None:
            return value
        if (value, DType.F32) not in self.casts or not self.casts[value, DType.F32].origin:
            made = Value(value.name, replace(value.type, dtype=DType.F32), value.origin)
            value.name, value.origin = self.graph.new_name(f"{value.name}_half"), ""
            self.nodes.append(Node(Cast(DType.F32), [value], [made], "output"))
            self.casts[value, DType.F32] = made
        return self.casts[value, DType.F32]


def _plain(node: Node) -> bool:
    """Nothing inside of it changes the type on the way."""
    steps = node.op.steps if isinstance(node.op, Chain) else getattr(node.op, "epilogue", ())
    return not any(isinstance(step.op, Cast | Quantize | Dequantize) for step in steps)


def _half(type: TensorType) -> TensorType:
    return replace(type, dtype=DType.F16) if type.dtype is DType.F32 else type


def _small(value: Value) -> np.ndarray[tuple[int, ...], np.dtype[np.float16]] | None:
    if value.data is None or value.dtype is not DType.F32:
        return value.data
    finite = np.clip(value.data, -LARGEST, LARGEST)
    return np.where(np.isfinite(value.data), finite, value.data).astype(np.float16)
