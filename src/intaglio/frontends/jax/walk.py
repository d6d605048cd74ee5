"""From StableHLO operations, as JAX's bindings hand them out, to nodes. Functions are inlined where they are called."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import numpy as np

from intaglio.errors import ModelError, quoted
from intaglio.frontends import stablehlo
from intaglio.frontends.discovery import add_rows
from intaglio.frontends.emitting import Emitter
from intaglio.frontends.jax import complex_numbers
from intaglio.frontends.onnx.faults import Fault, Problem
from intaglio.ir.graph import Array, Value
from intaglio.ir.types import DType, TensorType
from intaglio.ops.base import BadOperator, Op, narrow

Row = Callable[["JaxCall"], list[Value]]
ROWS: dict[str, Row] = {}
ROW_FILES = ("rows", "places", "loops")
_TYPES = {
    "f16": DType.F16, "bf16": DType.BF16, "f32": DType.F32, "f64": DType.F64, "i1": DType.BOOL, "i8": DType.I8, "i16": DType.I16,
    "i32": DType.I32, "i64": DType.I64, "ui8": DType.U8, "ui16": DType.U16, "ui32": DType.U32, "ui64": DType.U64,
}  # fmt: skip
_MOST_DEEP = 64
_DAMAGE = (ValueError, LookupError, TypeError, AttributeError, ArithmeticError, MemoryError)


def row(*names: str) -> Callable[[Row], Row]:
    return lambda made: add_rows(ROWS, names, made)


def dialect() -> Any:
    """JAX's bindings of StableHLO."""
    from jax.extend.mlir.dialects import stablehlo as found

    return found


def type_of(told: Any) -> TensorType:
    """Of `tensor<2x3xf32>`."""
    text = str(told).replace("complex<f32>", "f32").replace("complex<f64>", "f64")
    if not text.startswith("tensor<") or not text.endswith(">") or "?" in text:
        raise Fault("unsupported-type", f"a value of the type {quoted(text)} is not supported")
    *sizes, element = text.removeprefix("tensor<").removesuffix(">").split("x")
    if element not in _TYPES:
        raise Fault("unsupported-type", f"a value of the type {quoted(text)} is not supported")
    return TensorType(_TYPES[element], tuple(int(n) for n in sizes))


class JaxCall:
    """One operation being imported."""

    def __init__(self, walk: Walk, operation: Any, operands: list[Any], outside: dict[Any, Any]) -> None:
        self.walk, self.operation, self.operands = walk, operation, operands
        self.outside = outside  # what its regions may read

    def of(self, operands: list[Value]) -> JaxCall:
        """The same operation on others."""
        return JaxCall(self.walk, self.operation, operands, self.outside)

    @property
    def name(self) -> str:
        return str(self.operation.name).removeprefix("stablehlo.")

    def result(self, n: int = 0) -> TensorType:
        return type_of(self.operation.results[n].type)

    def has(self, name: str) -> bool:
        return name in self.operation.attributes

    def attribute(self, name: str) -> Any:
        if not self.has(name):
            raise Fault("bad-attribute", f"it has no attribute {quoted(name)}")
        return self.operation.attributes[name]

    def ints(self, name: str, default: list[int] | None = None) -> list[int]:
        if default is not None and not self.has(name):
            return default
        return [int(n) for n in self.attribute(name)]

    def whole(self, name: str, default: int | None = None) -> int:
        if default is not None and not self.has(name):
            return default
        return int(self.attribute(name).value)

    def array(self, name: str) -> Array:
        return np.array(self.attribute(name))

    def body(self, n: int = 0) -> Any:
        """The block of a region."""
        return self.operation.regions[n].blocks[0]

    def constant(self, data: Array | float | int | bool | list[int], dtype: DType | None = None) -> Value:
        if dtype in (DType.F16, DType.BF16):
            return self.walk.emitter.constant(narrow(np.asarray(data, np.float32), dtype), dtype)
        return self.walk.emitter.constant(np.asarray(data, None if dtype is None else dtype.numpy), dtype)

    def like(self, number: float, value: Value) -> Value:
        return self.walk.emitter.scalar(number, value.dtype)

    def emit(self, op: Op, *operands: Value | None) -> Value:
        return self.emit_all(op, *operands)[0]

    def emit_all(self, op: Op, *operands: Value | None) -> tuple[Value, ...]:
        return self.walk.emitter.emit(op, list(operands))


class Walk:
    def __init__(self, file: str, *, collect: bool = False) -> None:
        self.file, self.collect = file, collect
        self.emitter = Emitter()
        self.problems: list[Problem] = []
        self.inputs: list[Value] = []
        self.outputs: list[Value] = []
        self.functions: dict[str, Any] = {}
        self.depth = 0

    def run(self, module: Any) -> None:
        for rows in ROW_FILES:
            importlib.import_module(f"intaglio.frontends.jax.{rows}")
        for item in module.body.operations:
            self.functions[str(item.attributes["sym_name"]).strip('"')] = item
        main = self.functions["main"].regions[0].blocks[0]
        given = [*main.arguments, *main.operations[len(main.operations) - 1].operation.operands]
        if any("complex<" in str(value.type) for value in given):
            hint = "give it, and take from it, real and imaginary parts"
            raise ModelError("unsupported-type", "an input or a result is complex", where=self.file, hint=hint)
        try:
            self.inputs = [Value("", type_of(a.type), f"in{n}") for n, a in enumerate(main.arguments)]
        except Fault as fault:
            raise ModelError(fault.slug, fault.reason, where=self.file, hint=fault.hint) from None
        self.outputs = self.block(main, self.inputs)

    def real(self, call: JaxCall) -> list[Value]:
        """What an operation gives, of real numbers."""
        operation, operands = call.operation, call.operands
        if operation.name not in ROWS and call.name not in ROWS:
            if len(operands) == 2 and stablehlo.is_binary(call.name):
                return [stablehlo.binary(call, call.name, *operands)]
            if len(operands) == 1 and len(operation.results) == 1 and not len(operation.regions):
                return [stablehlo.unary(call, call.name, operands[0])]
            raise Fault("unsupported-operator", "the operator is not supported")
        return ROWS[call.name](call)

    def function(self, name: str, given: list[Any]) -> list[Any]:
        if name not in self.functions:
            raise Fault("bad-graph", f"there is no function {quoted(name)}")
        if self.depth > _MOST_DEEP:
            raise Fault("bad-graph", f"functions call each other over {_MOST_DEEP} deep")
        self.depth += 1
        try:
            return self.block(self.functions[name].regions[0].blocks[0], given)
        finally:
            self.depth -= 1

    def block(self, block: Any, given: list[Any], outside: dict[Any, Any] | None = None) -> list[Any]:
        """What it returns. `outside`: values that a region may read. Values may be complex inside of a function."""
        values: dict[Any, Any] = dict(outside or {})
        values.update(zip(block.arguments, given, strict=True))
        for item in block.operations:
            operation = item.operation
            operands = [values[o] for o in operation.operands]
            if operation.name in ("func.return", "stablehlo.return"):
                return operands
            made = self._made(operation, operands, values)
            values.update(zip(operation.results, made, strict=True))
        raise Fault("bad-graph", "a function does not return")

    def _made(self, operation: Any, operands: list[Any], values: dict[Any, Any]) -> list[Any]:
        call = JaxCall(self, operation, operands, values)
        self.emitter.source = call.name
        try:
            if operation.name == "func.call":
                return self.function(str(operation.attributes["callee"]).lstrip("@").strip('"'), operands)
            return complex_numbers.made(call) if complex_numbers.concerned(call) else self.real(call)
        except ModelError:
            raise
        except (Fault, BadOperator, *_DAMAGE) as error:
            slug, reason, hint = "bad-graph", f"its operands or attributes do not fit together ({error})", ""
            if isinstance(error, (Fault, BadOperator)):
                slug = error.slug if isinstance(error, Fault) else "shape-mismatch"
                reason, hint = str(error.reason), error.hint
            if not self.collect:
                usual = "`intaglio check MODEL` lists everything that is unsupported"
                raise ModelError(slug, f"{quoted(call.name)}: {reason}", where=self.file, hint=hint or usual) from None
            self.problems.append(Problem(call.name, call.name, reason, hint, slug, self.file))
            return [Value("", type_of(r.type)) for r in operation.results]
