"""A TFLite file as plain data: tensors and operators of its subgraphs, every index and length checked.

The generated flatbuffers classes read wherever an offset points, so everything that is taken from them goes through here: what is
outside of the file, negative, too long or of an unknown kind becomes an error with the tensor or operator it belongs to.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from intaglio.errors import ModelError, quoted
from intaglio.frontends.onnx.faults import Fault
from intaglio.frontends.tflite.blockwise import BLOCKWISE, BadBlocks, in_floats
from intaglio.frontends.tflite.fields import operator_number
from intaglio.frontends.tflite.sparsity import BadSparsity, densify
from intaglio.ir.graph import Array
from intaglio.ir.types import MAX_RANK, DType

MAX_ELEMENTS = 1 << 40
MAX_DENSE = 1 << 28  # of a tensor that is sparse in the file
_DTYPES = {
    0: DType.F32, 1: DType.F16, 2: DType.I32, 3: DType.U8, 4: DType.I64, 6: DType.BOOL, 7: DType.I16, 9: DType.I8, 10: DType.F64,
    12: DType.U64, 15: DType.U32, 16: DType.U16, 18: DType.BF16,
}  # fmt: skip
STRING, COMPLEX, RESOURCE, VARIANT, INT4 = 5, 8, 13, 14, 17


@dataclass(frozen=True, slots=True)
class Quantisation:
    scale: Array  # float64
    zero_point: Array  # int64
    axis: int


@dataclass(slots=True)
class Tensor:
    index: int
    name: str
    shape: tuple[int, ...]
    open_axes: tuple[int, ...]  # those that the shape signature leaves open
    kind: int
    dtype: DType | None  # None: a resource
    quant: Quantisation | None
    data: Array | None
    is_variable: bool = False


@dataclass(slots=True)
class Operator:
    index: int
    op: str  # CONV_2D, ...
    version: int
    inputs: tuple[int, ...]  # -1: absent
    outputs: tuple[int, ...]
    options: Any  # the generated class of its options, or None
    intermediates: tuple[int, ...] = ()  # tensors that only carry quantisation, of an LSTM
    custom: bytes = b""  # options of a custom operator


class WrongOptions(Fault, AttributeError):
    """A file may give an operator the options of another; an older schema may lack an option, which `getattr` has a default for."""


class Options:
    """The generated class of an operator's options. A field that points outside the file is a fault of the file."""

    def __init__(self, table: Any) -> None:
        self._table = table

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method = getattr(self._table, name, None)
        if method is None:
            raise WrongOptions("bad-attribute", "its options are those of another operator", "the file is damaged")

        def read(*args: int) -> Any:
            try:
                return method(*args)
            except (struct.error, IndexError, TypeError, ValueError, OverflowError):
                raise Fault("truncated-model", f"its option `{name}` points outside the file", "the file is damaged") from None

        return read


@dataclass(slots=True)
class Subgraph:
    tensors: list[Tensor]
    operators: list[Operator]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Signature:
    """A subgraph that callers may run, and how they call its inputs and outputs (by tensor)."""

    key: str
    subgraph: int
    names: dict[int, str]


@dataclass(slots=True)
class Model:
    file: str
    subgraphs: list[Subgraph]
    signatures: list[Signature] = field(default_factory=list)
    signature: dict[int, str] = field(default_factory=dict)  # tensors of `main` -> names of inputs and outputs
    chosen: int = 0  # the subgraph that is compiled

    @property
    def main(self) -> Subgraph:
        return self.subgraphs[self.chosen]


def bad(
    file: str, text: str, slug: str = "truncated-model", hint: str = "the file is damaged; export or copy it again"
) -> ModelError:
    return ModelError(slug, text, where=file, hint=hint)


def read_model(path: Path) -> Model:
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ModelError("cannot-read", f"cannot read {quoted(str(path))}: {error.strerror}") from None
    if data[4:8] != b"TFL3":
        raise bad(path.name, f"{quoted(path.name)} is not a TFLite file: it has no `TFL3` mark", "not-a-model")
    try:
        return _Reader(path.name, data).model()
    except ModelError:
        raise
    except (struct.error, IndexError, ValueError, TypeError, OverflowError, MemoryError, RecursionError, AssertionError) as error:
        raise bad(
            path.name, f"an offset or length in {quoted(path.name)} points outside the file ({type(error).__name__})"
        ) from None


class _Reader:
    def __init__(self, file: str, data: bytes) -> None:
        import tflite

        self.t = tflite
        self.file, self.bytes = file, data
        root = struct.unpack_from("<I", data, 0)[0]
        if root + 4 >= len(data):
            raise bad(file, "the root of the file is outside it")
        self.m = tflite.Model.GetRootAsModel(data, 0)
        self.names = {value: name for name, value in vars(tflite.BuiltinOperator).items() if isinstance(value, int)}
        self.option_names = {value: name for name, value in vars(tflite.BuiltinOptions).items() if isinstance(value, int)}

        second = vars(getattr(tflite, "BuiltinOptions2", object))
        self.option_names_2 = {value: name for name, value in second.items() if isinstance(value, int)}

    def model(self) -> Model:
        if self.m.Version() != 3:
            raise bad(
                self.file,
                f"TFLite schema version {self.m.Version()} is not supported",
                "unsupported-opset",
                "convert it to version 3",
            )
        count = self._count(self.m.SubgraphsLength(), "subgraphs")
        if count == 0:
            raise bad(self.file, "the model has no subgraph", "bad-graph")
        model = Model(self.file, [self._subgraph(i) for i in range(count)])
        model.signatures = [self._signature(i, model) for i in range(self._count(self.m.SignatureDefsLength(), "signatures"))]
        model.signature = next((s.names for s in model.signatures if s.subgraph == 0), {})
        return model

    def _count(self, length: int, what: str, each: int = 4) -> int:
        """`each`: the bytes that one of them takes at least."""
        if not 0 <= length <= len(self.bytes) // each:
            raise bad(self.file, f"the model claims to have {length} {what}")
        return length

    def _subgraph(self, i: int) -> Subgraph:
        g = self.m.Subgraphs(i)
        tensors = [self._tensor(g.Tensors(j), j) for j in range(self._count(g.TensorsLength(), "tensors"))]
        tensors = [self._without_blocks(g.Tensors(j), tensors[j], tensors) for j in range(len(tensors))]
        operators = [self._operator(g.Operators(j), j, len(tensors)) for j in range(self._count(g.OperatorsLength(), "operators"))]
        _type_results(tensors, operators)
        inputs = self._indices(g.InputsLength(), g.Inputs, len(tensors), "an input of the model")
        outputs = self._indices(g.OutputsLength(), g.Outputs, len(tensors), "an output of the model")
        return Subgraph(tensors, operators, inputs, outputs)

    def _indices(self, length: int, get: Callable[[int], int], limit: int, what: str) -> tuple[int, ...]:
        values = tuple(int(get(j)) for j in range(self._count(length, "indices")))
        for value in values:
            if not -1 <= value < limit:
                raise bad(self.file, f"{what} is tensor {value}, but there are only {limit}", "bad-graph")
        return values

    def _operator(self, o: Any, i: int, tensors: int) -> Operator:
        code_index = o.OpcodeIndex()
        if not 0 <= code_index < self.m.OperatorCodesLength():
            raise bad(
                self.file, f"operator {i} has code {code_index}, but there are only {self.m.OperatorCodesLength()}", "bad-graph"
            )
        code = self.m.OperatorCodes(code_index)
        builtin = operator_number(code)
        op = self.names.get(builtin, f"builtin {builtin}")
        if op == "CUSTOM":
            custom = code.CustomCode()
            op = f"CUSTOM {custom.decode('utf-8', 'replace') if custom else ''}".strip()
        where = f"an operand of operator {i} (`{op}`)"
        inputs = self._indices(o.InputsLength(), o.Inputs, tensors, where)
        outputs = self._indices(o.OutputsLength(), o.Outputs, tensors, where)
        between = self._indices(o.IntermediatesLength(), o.Intermediates, tensors, where)
        length = self._count(o.CustomOptionsLength(), "bytes of options", 1) if op.startswith("CUSTOM") else 0
        custom = bytes(o.CustomOptions(j) for j in range(length))
        return Operator(i, op, code.Version(), inputs, outputs, self._options(o), between, custom)

    def _options(self, o: Any) -> Any:
        table, kind = o.BuiltinOptions(), o.BuiltinOptionsType()
        name = self.option_names.get(kind)
        if (table is None or kind == 0) and hasattr(o, "BuiltinOptions2"):
            table, name = o.BuiltinOptions2(), self.option_names_2.get(o.BuiltinOptions2Type())
        if table is None or name in (None, "NONE"):
            return None
        cls = getattr(self.t, str(name), None)
        if cls is None:
            return None
        options = cls()
        options.Init(table.Bytes, table.Pos)
        return Options(options)

    def _tensor(self, t: Any, i: int) -> Tensor:
        name = (t.Name() or b"").decode("utf-8", "replace")
        shape = tuple(int(t.Shape(j)) for j in range(self._count(t.ShapeLength(), "dimensions")))
        shown = f"tensor {i} {quoted(name)}"
        if len(shape) > MAX_RANK or any(d < 0 for d in shape) or math.prod(shape) > MAX_ELEMENTS:
            raise bad(self.file, f"{shown} has the shape {list(shape)}, which is not valid", "bad-tensor")
        signature = [int(t.ShapeSignature(j)) for j in range(self._count(t.ShapeSignatureLength(), "dimensions"))]
        still_open = tuple(n for n, d in enumerate(signature) if d < 0)
        kind = t.Type()
        dtype = _DTYPES.get(kind) if kind != INT4 else DType.I8
        data = self._data(t.Buffer(), shape, dtype, kind, shown, t.Sparsity())
        return Tensor(i, name, shape, still_open, kind, dtype, self._quant(t, shape, shown), data, bool(t.IsVariable()))

    def _without_blocks(self, t: Any, tensor: Tensor, tensors: list[Tensor]) -> Tensor:
        q = t.Quantization()
        if q is None or q.DetailsType() != BLOCKWISE or q.Details() is None:
            return tensor
        try:
            return in_floats(tensor, q.Details(), tensors)
        except BadBlocks as error:
            shown = f"tensor {tensor.index} {quoted(tensor.name)}"
            hint = "convert it with a scale for each channel"
            raise bad(self.file, f"{shown} has a scale for each block of its numbers: {error}", "bad-quantisation", hint) from None

    def _data(self, buffer: int, shape: tuple[int, ...], dtype: DType | None, kind: int, shown: str, sparse: Any) -> Array | None:
        if not 0 <= buffer < self.m.BuffersLength():
            raise bad(self.file, f"{shown} has buffer {buffer}, but there are only {self.m.BuffersLength()}", "bad-tensor")
        b = self.m.Buffers(buffer)
        length = b.DataLength()
        raw: Array
        if length:
            if length > len(self.bytes):
                raise bad(self.file, f"{shown} claims {length} bytes")
            raw = b.DataAsNumpy()
        elif getattr(b, "Size", None) is not None and b.Size() > 1:  # data after the flatbuffer, for files over 2 GB
            start, size = b.Offset(), b.Size()
            if start + size > len(self.bytes):
                raise bad(self.file, f"{shown} is outside the file")
            raw = np.frombuffer(self.bytes, np.uint8, size, start)
        else:
            return None
        if kind == STRING:
            return self._words(raw.tobytes(), shape, shown)
        if dtype is None:
            return None
        if kind == INT4:
            low, high = (raw << 4).view(np.int8) >> 4, raw.view(np.int8) >> 4
            both = np.stack([low, high], -1).reshape(-1)
            if both.size < math.prod(shape):
                raise bad(self.file, f"{shown} has {raw.size} bytes for {math.prod(shape)} 4-bit numbers", "bad-tensor")
            return both[: math.prod(shape)].reshape(shape)
        if sparse is not None:
            return self._dense(raw, shape, dtype, shown, sparse)
        if raw.nbytes != math.prod(shape) * dtype.bytes:
            raise bad(
                self.file,
                f"{shown} has {raw.nbytes} bytes, its shape {list(shape)} needs {math.prod(shape) * dtype.bytes}",
                "bad-tensor",
            )
        return raw.view(dtype.numpy).reshape(shape)

    def _words(self, raw: bytes, shape: tuple[int, ...], shown: str) -> Array:
        """Strings as objects of bytes: their number, where each of them starts and the last ends, and they themselves."""
        count = math.prod(shape)
        places = np.frombuffer(raw[: len(raw) // 4 * 4], "<i4")[: count + 2].tolist()
        starts = places[1:]
        if len(places) != count + 2 or places[0] != count or starts[0] < 4 * (count + 2) or starts[-1] > len(raw):
            raise bad(self.file, f"{shown} does not hold {count} strings", "bad-tensor")
        if any(a > b for a, b in pairwise(starts)):
            raise bad(self.file, f"{shown} has strings that end before they start", "bad-tensor")
        words = np.empty(count, object)
        words[:] = [raw[a:b] for a, b in pairwise(starts)]
        return words.reshape(shape)

    def _dense(self, raw: Array, shape: tuple[int, ...], dtype: DType, shown: str, sparse: Any) -> Array:
        try:
            if raw.nbytes % dtype.bytes or math.prod(shape) > MAX_DENSE:
                raise BadSparsity(f"{raw.nbytes} bytes for {list(shape)}")
            return densify(self.t, sparse, raw.view(dtype.numpy), shape, len(self.bytes))
        except BadSparsity as error:
            raise bad(self.file, f"{shown} has sparsity that does not fit it: {error}", "bad-tensor") from None

    def _quant(self, t: Any, shape: tuple[int, ...], shown: str) -> Quantisation | None:
        q = t.Quantization()
        if q is None or q.ScaleLength() == 0:
            return None
        self._count(q.ScaleLength(), "scales")
        scale = np.asarray(q.ScaleAsNumpy(), np.float64)
        some = self._count(q.ZeroPointLength(), "zero points") > 0
        zeros = np.asarray(q.ZeroPointAsNumpy(), np.int64) if some else np.zeros(scale.size, np.int64)
        if not np.all(np.isfinite(scale)) or np.any(scale < 0):
            raise bad(self.file, f"{shown} has a scale that is negative or not a number", "bad-quantisation")
        if zeros.size not in (1, scale.size):
            raise bad(self.file, f"{shown} has {scale.size} scales and {zeros.size} zero points", "bad-quantisation")
        axis = q.QuantizedDimension()
        if scale.size > 1 and shape and not (0 <= axis < len(shape) and shape[axis] == scale.size) and len(shape) > 1:
            raise bad(self.file, f"{shown} has {scale.size} scales along axis {axis} of {list(shape)}", "bad-quantisation")
        return Quantisation(scale, np.broadcast_to(zeros, scale.shape), axis)

    def _signature(self, i: int, model: Model) -> Signature:
        s = self.m.SignatureDefs(i)
        key = (s.SignatureKey() or b"").decode("utf-8", "replace")
        if not 0 <= s.SubgraphIndex() < len(model.subgraphs):
            what = f"the signature {quoted(key)} is of subgraph {s.SubgraphIndex()}, but there are only {len(model.subgraphs)}"
            raise bad(self.file, what, "bad-graph")
        names: dict[int, str] = {}
        limit = len(model.subgraphs[s.SubgraphIndex()].tensors)
        for length, get in ((s.InputsLength(), s.Inputs), (s.OutputsLength(), s.Outputs)):
            for j in range(self._count(length, "names")):
                entry = get(j)
                if 0 <= entry.TensorIndex() < limit and entry.Name():
                    names.setdefault(entry.TensorIndex(), entry.Name().decode("utf-8", "replace"))
        return Signature(key, s.SubgraphIndex(), names)


def _type_results(tensors: list[Tensor], operators: list[Operator]) -> None:
    """LiteRT gives a sum or a difference the type of its second operand, whatever the file says of it."""
    for operator in operators:
        if operator.op in ("ADD", "SUB") and len(operator.inputs) == 2 and -1 not in operator.inputs:
            second = tensors[operator.inputs[1]]
            for n in operator.outputs[:1]:
                if n >= 0 and tensors[n].kind != second.kind:
                    tensors[n] = replace(tensors[n], kind=second.kind, dtype=second.dtype)
