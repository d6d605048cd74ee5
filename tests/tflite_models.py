"""TFLite files with one operator, and what LiteRT's reference kernels make of them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from intaglio.ir.graph import Array


@dataclass(frozen=True, slots=True)
class Tensor:
    """`data`: a constant; without it, an input or the result."""

    shape: tuple[int, ...]
    dtype: str
    scale: float | None = None
    zero: int = 0
    data: Array | None = None


def one_operator(
    op: str, inputs: list[Tensor], output: Tensor, options: str = "", fields: dict[str, object] | None = None, version: int = 2
) -> bytes:
    import flatbuffers
    from ai_edge_litert import schema_py_generated as schema

    kinds = {"int8": 9, "uint8": 3, "int16": 7, "int32": 2, "float32": 0, "bool": 6, "int64": 4}
    model, graph = schema.ModelT(), schema.SubGraphT()
    model.version, model.buffers, graph.tensors = 3, [schema.BufferT()], []

    def add(tensor: Tensor, name: str) -> int:
        made = schema.TensorT()
        made.shape, made.type, made.name, made.buffer = list(tensor.shape), kinds[tensor.dtype], name, 0
        if tensor.scale is not None:
            quant = schema.QuantizationParametersT()
            quant.scale, quant.zeroPoint = [tensor.scale], [tensor.zero]
            made.quantization = quant
        if tensor.data is not None:
            buffer = schema.BufferT()
            buffer.data = np.frombuffer(np.ascontiguousarray(tensor.data).tobytes(), np.uint8)
            model.buffers.append(buffer)
            made.buffer = len(model.buffers) - 1
        graph.tensors.append(made)
        return len(graph.tensors) - 1

    places = [add(t, f"in{n}") for n, t in enumerate(inputs)]
    graph.inputs = [p for p, t in zip(places, inputs, strict=True) if t.data is None]
    graph.outputs = [add(output, "out")]
    node, code = schema.OperatorT(), schema.OperatorCodeT()
    node.opcodeIndex, node.inputs, node.outputs = 0, places, graph.outputs
    if options:
        node.builtinOptions = getattr(schema, options + "T")()
        node.builtinOptionsType = getattr(schema.BuiltinOptions, options)
        for name, value in (fields or {}).items():
            setattr(node.builtinOptions, name, value)
    code.builtinCode = getattr(schema.BuiltinOperator, op)
    code.deprecatedBuiltinCode, code.version = min(code.builtinCode, 127), version
    graph.operators, model.operatorCodes, model.subgraphs = [node], [code], [graph]
    builder = flatbuffers.Builder(1024)
    builder.Finish(model.Pack(builder), b"TFL3")
    return bytes(builder.Output())


def by_litert(path: Path, feeds: list[Array]) -> Array:
    from ai_edge_litert.interpreter import Interpreter, OpResolverType

    interpreter: Any = Interpreter(model_path=str(path), experimental_op_resolver_type=OpResolverType.BUILTIN_REF)
    interpreter.allocate_tensors()
    for detail, array in zip(interpreter.get_input_details(), feeds, strict=True):
        interpreter.set_tensor(detail["index"], array)
    interpreter.invoke()
    return np.array(interpreter.get_tensor(interpreter.get_output_details()[0]["index"]))
