"""TFLite files with one operator, and what LiteRT's reference kernels make of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from intaglio.frontends.tflite import load
from intaglio.ir.graph import Array
from intaglio.ops.evaluate import evaluate_graph

KINDS = {
    "float32": 0, "float16": 1, "int32": 2, "uint8": 3, "int64": 4, "bool": 6, "int16": 7, "int8": 9, "float64": 10, "uint64": 12,
    "uint32": 15, "uint16": 16, "int4": 17, "resource": 13, "complex64": 8, "string": 5,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Tensor:
    """`data`: a constant; without it, an input, a result, or a variable that lives on. Several scales stand along `axis`."""

    shape: tuple[int, ...]
    dtype: str
    scale: float | list[float] | None = None
    zero: int = 0
    data: Array | None = None
    axis: int = 0
    variable: bool = False
    sparsity: Any = None
    signature: tuple[int, ...] | None = None


ZERO = {"int8": -5, "uint8": 120, "int16": 0}


def numbers(shape: tuple[int, ...], dtype: str, seed: int = 0) -> Array:
    rng = np.random.default_rng(seed)
    if dtype == "float32":
        return rng.standard_normal(shape).astype(np.float32)
    if dtype == "bool":
        return rng.integers(0, 2, shape).astype(np.bool_)
    info = np.iinfo(dtype)
    return rng.integers(max(info.min, -32768), min(info.max, 32767) + 1, shape).astype(dtype)


def tensor(shape: tuple[int, ...], dtype: str, scale: float = 0.05, zero: int | None = None, data: Array | None = None) -> Tensor:
    """Of a quantised type with a step that fits it, or as it is."""
    if dtype not in ZERO:
        return Tensor(shape, dtype, data=data)
    wide = dtype == "int16"
    return Tensor(shape, dtype, scale / 100 if wide else scale, 0 if wide else ZERO[dtype] if zero is None else zero, data)


def packed(tensor: Tensor) -> Array:
    """The bytes of its constant."""
    data = np.ascontiguousarray(tensor.data)
    if tensor.dtype == "string":
        rows = [str(word).encode() for word in data.reshape(-1)]
        places = np.cumsum([4 * (len(rows) + 2), *map(len, rows)])
        return np.frombuffer(np.array([len(rows), *places], "<i4").tobytes() + b"".join(rows), np.uint8)
    if tensor.dtype != "int4":
        return np.frombuffer(data.tobytes(), np.uint8)
    flat = np.append(data.reshape(-1), [0] * (data.size % 2)).astype(np.uint8) & 15
    return (flat[::2] | flat[1::2] << 4).astype(np.uint8)


class ModelWriter:
    """Subgraphs and operators, one by one; `finish` gives the file."""

    def __init__(self) -> None:
        from ai_edge_litert import schema_py_generated as schema

        self.schema: Any = schema
        self.model = schema.ModelT()
        self.model.version, self.model.buffers = 3, [schema.BufferT()]
        self.model.operatorCodes, self.model.subgraphs = [], []
        self.graph: Any = None

    def subgraph(self) -> None:
        self.graph = self.schema.SubGraphT()
        self.graph.tensors, self.graph.operators, self.graph.inputs, self.graph.outputs = [], [], [], []
        self.model.subgraphs.append(self.graph)

    def tensor(self, tensor: Tensor, name: str) -> int:
        made = self.schema.TensorT()
        made.shape, made.type, made.name, made.buffer = list(tensor.shape), KINDS[tensor.dtype], name, 0
        made.isVariable, made.sparsity = tensor.variable, tensor.sparsity
        made.shapeSignature = None if tensor.signature is None else list(tensor.signature)
        if tensor.scale is not None:
            quant = self.schema.QuantizationParametersT()
            quant.scale = tensor.scale if isinstance(tensor.scale, list) else [tensor.scale]
            quant.zeroPoint, quant.quantizedDimension = [tensor.zero] * len(quant.scale), tensor.axis
            made.quantization = quant
        if tensor.data is not None:
            buffer = self.schema.BufferT()
            buffer.data = packed(tensor)
            self.model.buffers.append(buffer)
            made.buffer = len(self.model.buffers) - 1
        self.graph.tensors.append(made)
        return len(self.graph.tensors) - 1

    def operator(
        self,
        op: str,
        inputs: list[int],
        outputs: list[int],
        options: str = "",
        fields: dict[str, object] | None = None,
        version: int = 2,
        intermediates: list[int] | None = None,
    ) -> None:
        node, code = self.schema.OperatorT(), self.schema.OperatorCodeT()
        node.opcodeIndex, node.inputs, node.outputs = len(self.model.operatorCodes), inputs, outputs
        node.intermediates = intermediates
        if options.startswith("Stablehlo") or options == "ReduceWindowOptions":
            node.builtinOptions2 = getattr(self.schema, options + "T")()
            node.builtinOptions2Type = getattr(self.schema.BuiltinOptions2, options)
            for name, value in (fields or {}).items():
                setattr(node.builtinOptions2, name, value)
        elif options:
            node.builtinOptions = getattr(self.schema, options + "T")()
            node.builtinOptionsType = getattr(self.schema.BuiltinOptions, options)
            for name, value in (fields or {}).items():
                setattr(node.builtinOptions, name, value)
        code.builtinCode = getattr(self.schema.BuiltinOperator, op)
        code.deprecatedBuiltinCode, code.version = min(code.builtinCode, 127), version
        self.graph.operators.append(node)
        self.model.operatorCodes.append(code)

    def finish(self) -> bytes:
        import flatbuffers

        builder = flatbuffers.Builder(1024)
        builder.Finish(self.model.Pack(builder), b"TFL3")
        return bytes(builder.Output())


def one_operator(
    op: str,
    inputs: Sequence[Tensor | None],
    outputs: Tensor | list[Tensor],
    options: str = "",
    fields: dict[str, object] | None = None,
    version: int = 2,
    intermediates: list[Tensor] | None = None,
    body: str = "",
) -> bytes:
    """`body`: subgraph 1 is this operator on two numbers."""
    writer = ModelWriter()
    writer.subgraph()
    places = [-1 if t is None else writer.tensor(t, f"in{n}") for n, t in enumerate(inputs)]
    writer.graph.inputs = [p for p, t in zip(places, inputs, strict=True) if t is not None and t.data is None and not t.variable]
    results = [outputs] if isinstance(outputs, Tensor) else outputs
    writer.graph.outputs = [writer.tensor(t, f"out{n}" if n else "out") for n, t in enumerate(results)]
    between = [writer.tensor(t, f"between{n}") for n, t in enumerate(intermediates or [])]
    writer.operator(op, places, writer.graph.outputs, options, fields, version, between or None)
    if body:
        writer.subgraph()
        writer.graph.inputs = [writer.tensor(Tensor((), results[0].dtype), name) for name in "ab"]
        writer.graph.outputs = [writer.tensor(Tensor((), results[0].dtype), "c")]
        writer.operator(body, writer.graph.inputs, writer.graph.outputs, version=1)
    return writer.finish()


def all_by_litert(path: Path, steps: list[list[Array]], kernels: str = "BUILTIN_REF") -> list[list[Array]]:
    """The outputs of every step."""
    from ai_edge_litert.interpreter import Interpreter, OpResolverType

    interpreter: Any = Interpreter(model_path=str(path), experimental_op_resolver_type=OpResolverType[kernels])
    interpreter.allocate_tensors()
    results = []
    for feeds in steps:
        for detail, array in zip(interpreter.get_input_details(), feeds, strict=True):
            interpreter.set_tensor(detail["index"], array)
        interpreter.invoke()
        results.append([np.array(interpreter.get_tensor(d["index"])) for d in interpreter.get_output_details()])
    return results


def all_by_reference(path: Path, steps: list[list[Array]]) -> list[list[Array]]:
    """The same by the graph that is imported, operator by operator in numpy."""
    graph, _ = load(path, dims={}, shapes={})
    state = {s.input.name: np.full(s.input.shape, s.fill, s.input.dtype.numpy) for s in graph.states}
    given = [v for v in graph.inputs if v.name not in state]
    results = []
    for feeds in steps:
        values = evaluate_graph(graph, {**state, **{v.name: x for v, x in zip(given, feeds, strict=True)}}, keep=True)
        state = {s.input.name: values[s.output.name] for s in graph.states}
        results.append([values[v.name] for v in graph.outputs])
    return results


def assert_like_litert(data: bytes, folder: Path, *steps: list[Array], bound: float = 1e-5, kernels: str = "BUILTIN_REF") -> None:
    """Integers equal; floats within a part of the largest number."""
    path = folder / "one.tflite"
    path.write_bytes(data)
    expected, got = all_by_litert(path, list(steps), kernels), all_by_reference(path, list(steps))
    for wanted, made in zip(chain(*expected), chain(*got), strict=True):
        assert wanted.size == made.size and wanted.dtype == made.dtype
        if wanted.dtype.kind == "f":
            size = float(np.max(np.abs(wanted), initial=0.0))
            assert np.allclose(made.reshape(wanted.shape), wanted, rtol=0, atol=bound * size + 1e-7, equal_nan=True)
        else:
            assert np.array_equal(made.reshape(wanted.shape), wanted)


def by_litert(path: Path, feeds: list[Array]) -> Array:
    return all_by_litert(path, [feeds])[0][0]
