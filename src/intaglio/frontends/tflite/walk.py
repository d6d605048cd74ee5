"""From the operators of a subgraph to nodes. What is known at compile time is computed at once.

Rows (`rows_*.py`) turn one operator into nodes: `@importer("CONV_2D")`. They see tensors by position and write values with `emit`.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import numpy as np

from intaglio.errors import ModelError, quoted
from intaglio.frontends.discovery import add_rows
from intaglio.frontends.foreign import STRINGS as STRINGS_HINT
from intaglio.frontends.foreign import built_in_hint, tflite_hint
from intaglio.frontends.onnx.faults import Fault, Problem
from intaglio.frontends.onnx.names import identifier
from intaglio.frontends.tflite.container import COMPLEX, STRING, Model, Operator, Quantisation, Subgraph, Tensor
from intaglio.ir.graph import Array, Node, Value
from intaglio.ir.sizes import Bounds, Size, Undecided, most, moves
from intaglio.ir.types import DType, Quant, TensorType
from intaglio.ops.base import BadOperator, Op
from intaglio.ops.found import AsSize

_FOLD_LIMIT = 1 << 24
LARGEST = 1 << 28  # elements of a tensor
# What numpy says of numbers that a damaged file gives a row: a list that is too short, a length below 0, a scale that overflows.
_DAMAGE = (ValueError, IndexError, TypeError, OverflowError, ZeroDivisionError, MemoryError, FloatingPointError)
_OF_COMPLEX = {"RESHAPE", "SQUEEZE", "EXPAND_DIMS", "REAL", "IMAG", "COMPLEX_ABS", "CAST"}
_OF_STRINGS = {"HASHTABLE_FIND", "HASHTABLE_IMPORT"}
Row = Callable[["TFLiteCall"], None]
ROWS: dict[str, Row] = {}


def importer(*names: str) -> Callable[[Row], Row]:
    return lambda row: add_rows(ROWS, names, row)


def type_quant(q: Quantisation | None) -> Quant | None:
    if q is None:
        return None
    return Quant(tuple(map(float, q.scale)), tuple(map(int, q.zero_point)), q.axis if q.scale.size > 1 else None)


@dataclass(slots=True, eq=False)
class Variable:
    """A resource variable: its first value, and what it holds at this point of the walk."""

    name: str
    start: Array | None = None
    entry: Value | None = None  # the graph input that carries it in
    now: Value | None = None

    def held(self) -> Value:
        assert self.now is not None
        return self.now


@dataclass(slots=True, eq=False)
class Table:
    """A table that the file fills before the first run; strings are objects of bytes."""

    keys: Array | None = None
    values: Array | None = None


@dataclass(slots=True)
class Walk:
    model: Model
    nodes: list[Node] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    variables: dict[str, Variable] = field(default_factory=dict)
    tables: dict[str, Table] = field(default_factory=dict)
    states: list[tuple[Value, Value, Array | None]] = field(default_factory=list)
    extra_inputs: list[Value] = field(default_factory=list)
    active: list[int] = field(default_factory=list)  # subgraphs that are being run
    guard: Value | None = None  # nodes run only where it holds
    pinned: bool = False  # an input has another shape than in the file: declared shapes do not count
    started: Value | None = None  # a state that is false in the first run only
    collect: bool = False  # go on after a problem, for `check`
    bounds: Bounds | None = None
    cuts: dict[Value, Any] = field(default_factory=dict)  # parts of lists (`rows/lists.py`)
    notes: list[str] = field(default_factory=list)
    counts: dict[str, Value] = field(default_factory=dict)  # sizes that follow from data
    random: str = "0"  # a seed, or `input`
    random_streams: int = 0
    random_run: Value | None = None  # the state that counts runs, where something is random

    def run(self, graph: Subgraph, given: dict[int, Value]) -> dict[int, Value]:
        importlib.import_module("intaglio.frontends.tflite.rows")
        values: dict[int, Value] = dict(given)
        for tensor in graph.tensors:
            if tensor.index in values or tensor.dtype is None:
                continue
            if tensor.data is not None:
                values[tensor.index] = constant(tensor.data, tensor.dtype, tensor.name)
            elif 0 in tensor.shape and not tensor.is_variable:  # nothing is stored for what has no elements
                values[tensor.index] = constant(np.zeros(tensor.shape, tensor.dtype.numpy), tensor.dtype, tensor.name)
        for operator in graph.operators:
            where = f"{self.model.file}, operator {operator.index + 1} of {len(graph.operators)}"
            try:
                if operator.op not in _OF_STRINGS and any(i >= 0 and graph.tensors[i].kind == STRING for i in operator.inputs):
                    raise Fault("unsupported-type", "this operator on strings is not supported", STRINGS_HINT)
                if operator.op not in _OF_COMPLEX and any(i >= 0 and graph.tensors[i].kind == COMPLEX for i in operator.inputs):
                    raise Fault("unsupported-type", "this operator on complex numbers is not supported")
                if operator.op.startswith("CUSTOM") and operator.op not in ROWS:
                    raise Fault(
                        "unsupported-operator",
                        "it is a custom operator, and the file does not define what it computes",
                        tflite_hint(operator.op.removeprefix("CUSTOM").strip()),
                    )
                if operator.op not in ROWS:
                    raise Fault("unsupported-operator", "the operator is not supported", built_in_hint(operator.op))
                ROWS[operator.op](TFLiteCall(self, graph, operator, values))
            except (Fault, BadOperator, *_DAMAGE) as error:
                slug, reason, hint = "bad-graph", f"its operands or options do not fit together ({error})", "the file is damaged"
                if isinstance(error, Undecided):
                    slug, reason, hint = "size-decides", str(error), error.hint
                elif isinstance(error, (Fault, BadOperator)):
                    slug = error.slug if isinstance(error, Fault) else "shape-mismatch"
                    reason, hint = str(error.reason), error.hint
                self._report(slug, operator, graph, reason, hint, where)
                for index in operator.outputs:
                    tensor = graph.tensors[index]
                    if tensor.dtype is not None:
                        values.setdefault(index, Value("", TensorType(tensor.dtype, tensor.shape), tensor.name))
        return values

    def _report(self, slug: str, operator: Operator, graph: Subgraph, reason: str, hint: str, where: str) -> None:
        node = graph.tensors[operator.outputs[0]].name if operator.outputs else f"operator {operator.index}"
        if not self.collect:
            text = f"{quoted(operator.op)} that makes {quoted(node)}: {reason}"
            raise ModelError(slug, text, where=where, hint=hint or "`intaglio check MODEL` lists everything that is unsupported")
        self.problems.append(Problem(node, operator.op, reason, hint, slug, where))


def axis_of(axis: int, rank: int) -> int:
    """An axis as the file gives it, from 0 on."""
    if not -rank <= axis < rank:
        raise Fault("bad-attribute", f"axis {axis} is out of range for rank {rank}")
    return axis % rank


def constant(data: Array, dtype: DType | None = None, origin: str = "") -> Value:
    data = np.asarray(data)
    return Value("", TensorType(dtype or DType.of(data), data.shape), origin, data)


@dataclass(slots=True)
class TFLiteCall:
    """One operator being imported."""

    walk: Walk
    graph: Subgraph
    operator: Operator
    values: dict[int, Value]

    @property
    def options(self) -> Any:
        if self.operator.options is None:
            raise Fault("bad-attribute", "its options are missing or of another type")
        return self.operator.options

    def fields(self) -> dict[str, Any]:
        """The options of a custom operator that are a flexbuffer."""
        from flatbuffers import flexbuffers

        try:
            fields = flexbuffers.Loads(bytes(self.operator.custom)) if self.operator.custom else {}
        except Exception:  # flexbuffers follows offsets wherever they lead
            fields = None
        if not isinstance(fields, dict):
            raise Fault("bad-attribute", "its options cannot be read", "the file is damaged")
        return fields

    def tensor(self, i: int) -> Tensor:
        if i >= len(self.operator.inputs) or self.operator.inputs[i] < 0:
            raise Fault("bad-graph", f"operand {i} is missing")
        return self.graph.tensors[self.operator.inputs[i]]

    def has(self, i: int) -> bool:
        return i < len(self.operator.inputs) and self.operator.inputs[i] >= 0

    def value(self, i: int) -> Value:
        tensor = self.tensor(i)
        if tensor.index not in self.values:
            raise Fault("bad-graph", f"operand {quoted(tensor.name)} is read before it is made")
        if self.values[tensor.index] in self.walk.cuts:
            raise Fault("unsupported-operator", f"the size of its operand {quoted(tensor.name)} depends on data")
        return self.values[tensor.index]

    def optional(self, i: int) -> Value | None:
        return self.value(i) if self.has(i) else None

    def known(self, i: int, what: str) -> Array:
        value = self.value(i)
        if value.data is None:
            raise Fault("unsupported-operator", f"its {what} depends on data, so the result has no static shape")
        return value.data

    def out(self, i: int = 0) -> Tensor:
        if i >= len(self.operator.outputs) or self.operator.outputs[i] < 0:
            raise Fault("bad-graph", f"result {i} is missing")
        return self.graph.tensors[self.operator.outputs[i]]

    def quant(self, tensor: Tensor) -> tuple[float, int]:
        """Scale and zero point of a tensor that is quantised as a whole."""
        if tensor.quant is None:
            raise Fault("bad-quantisation", f"{quoted(tensor.name)} has no quantisation parameters")
        if tensor.quant.scale.size != 1:
            raise Fault("bad-quantisation", f"{quoted(tensor.name)} is quantised per channel, which this operator does not take")
        scale, zero = float(tensor.quant.scale[0]), int(tensor.quant.zero_point[0])
        check_range(tensor, scale, zero)
        return scale, zero

    def emit(self, op: Op, *inputs: Value | None, origin: str = "") -> Value:
        """One more node, or its result when all operands are known."""
        return self.emit_all(op, *inputs, origin=origin)[0]

    def constant(self, data: Array | float | int | bool | list[int], dtype: DType | None = None) -> Value:
        return constant(np.asarray(data, None if dtype is None else dtype.numpy), dtype)

    def like(self, number: float, value: Value) -> Value:
        return self.constant(number, value.dtype)

    def emit_all(self, op: Op, *inputs: Value | None, origin: str = "") -> tuple[Value, ...]:
        types = op.infer(*[None if v is None else v.type for v in inputs])
        for made in types:
            if made.elements > LARGEST:
                raise Fault("bad-tensor", f"its result would be {list(made.shape)}, which is too large")
        known = all(v is None or v.is_const for v in inputs) and not op.EFFECT
        if known and all(t.elements <= _FOLD_LIMIT for t in types):
            results = op.evaluate([None if v is None else v.data for v in inputs], [None if v is None else v.type for v in inputs])
            return tuple(constant(r.reshape(t.shape), t.dtype, origin) for r, t in zip(results, types, strict=True))
        outs = [Value("", t, origin) for t in types]
        self.walk.nodes.append(Node(op, list(inputs), outs, self.source(), when=self.walk.guard))
        return tuple(outs)

    def found(self, stem: str, low: int, high: int, make: Callable[[int], Op], *operands: Value) -> tuple[Value, ...]:
        """The results of an operator that finds between `low` and `high` of something; the last one is their number."""
        if low == high or all(v.is_const for v in operands):
            known = high if low == high else int(make(high).evaluate([v.data for v in operands], [v.type for v in operands])[-1])
            return self.emit_all(make(known), *operands)
        if self.walk.active:
            raise Fault("unsupported-operator", "in a branch or a loop, the size of its result depends on data")
        self.walk.bounds = self.walk.bounds or Bounds({})
        taken = self.walk.bounds.ranges
        name = stem if stem not in taken else next(n for k in count(2) if (n := f"{stem}_{k}") not in taken)
        results = self.emit_all(make(self.walk.bounds.add(name, low, high)), *operands)
        self.walk.counts[name] = results[-1]
        return results

    def size(self, i: int, what: str, high: int) -> int:
        """An operand that is a size: known, or computed and at most `high`."""
        value = self.value(i)
        if value.data is not None:
            return int(value.data.reshape(-1)[0])
        if value.dtype not in (DType.I32, DType.I64) or value.type.elements != 1:
            raise Fault("shape-mismatch", f"its {what} is {value.type}, not one whole number")
        sizes: list[int] = []

        def made(count: int) -> Op:
            sizes.append(count)
            return AsSize(count, 0, most(high), high if isinstance(high, Size) else -1)

        self.found(identifier(f"{self.source()}_{what}", "size"), 0, most(high), made, value)
        return sizes[0]

    def source(self) -> str:
        name = self.graph.tensors[self.operator.outputs[0]].name if self.operator.outputs else ""
        return name or f"{self.operator.op}_{self.operator.index}"

    def keep(self, value: Value, i: int = 0) -> None:
        """A result that another operator made: it has its name and type already."""
        self.values[self.out(i).index] = value

    def give(self, value: Value, i: int = 0) -> None:
        """The value of a result; its shape must be the declared one unless that is open."""
        tensor = self.out(i)
        declared = not tensor.open_axes and not self.walk.pinned and not moves(value.shape)
        if declared and tensor.shape != value.shape and math.prod(tensor.shape) == math.prod(value.shape):
            from intaglio.ops.move import Reshape

            value = self.emit(Reshape(tensor.shape), value)
        if not value.is_const:
            value.origin = tensor.name
            value.type = TensorType(value.dtype, value.shape, value.type.layout, type_quant(tensor.quant))
        self.values[tensor.index] = value


def check_range(tensor: Tensor, scale: float, zero: int) -> None:
    if scale == 0.0:
        raise Fault("bad-quantisation", f"{quoted(tensor.name)} has scale 0")
    if tensor.dtype is not None and tensor.dtype.is_int and tensor.dtype in (DType.I8, DType.U8, DType.I16):
        info = np.iinfo(tensor.dtype.numpy)
        if not info.min <= zero <= info.max:
            raise Fault("bad-quantisation", f"{quoted(tensor.name)} has zero point {zero}, which does not fit {tensor.dtype.value}")
