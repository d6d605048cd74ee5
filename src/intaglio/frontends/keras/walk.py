"""From layers and their calls to nodes.

Rows (`rows/`) turn one call of a layer into nodes: `@layer("Dense")`, or `@function("Add")` for `keras.ops`. What a row
does not know of, and what the file says wrongly, it raises as a `Fault`; the walk adds the name of the layer.
"""

from __future__ import annotations

import heapq
import importlib
from collections.abc import Callable
from typing import Any

import numpy as np

from intaglio.errors import ModelError, quoted
from intaglio.frontends.building import cast
from intaglio.frontends.discovery import add_rows
from intaglio.frontends.emitting import Emitter
from intaglio.frontends.keras.config import Config, Invocation, Layer, Model, Ref
from intaglio.frontends.keras.custom import CUSTOM
from intaglio.frontends.keras.masking import Masks
from intaglio.frontends.keras.quantised import check_kind, quantised_of
from intaglio.frontends.keras.weights import Weights
from intaglio.frontends.onnx.faults import Fault, Problem, unsupported
from intaglio.ir.graph import Array, State, Value
from intaglio.ir.sizes import Undecided
from intaglio.ir.types import DType, Layout, TensorType
from intaglio.ops.base import BadOperator, Op, narrow

Result = Value | list[Value]
Row = Callable[["KerasCall"], Result]
LAYERS: dict[str, Row] = {}
FUNCTIONS: dict[str, Row] = {}
# What Python and numpy say of options that a damaged file gives a row.
_DAMAGE = (ValueError, LookupError, TypeError, AttributeError, ArithmeticError, MemoryError)
_MOST_CALLS = 100_000
DTYPES = {
    "float32": DType.F32, "float64": DType.F64, "float16": DType.F16, "bfloat16": DType.BF16, "mixed_float16": DType.F16,
    "mixed_bfloat16": DType.BF16, "int8": DType.I8, "int16": DType.I16, "int32": DType.I32, "int64": DType.I64, "uint8": DType.U8,
    "uint16": DType.U16, "uint32": DType.U32, "uint64": DType.U64, "bool": DType.BOOL,
}  # fmt: skip
TAKE_SEVERAL = {"Attention", "AdditiveAttention"}  # masks in a list
_TAKE_TEXT = {"StringLookup", "InputLayer"}


def layer(*names: str) -> Callable[[Row], Row]:
    return lambda row: add_rows(LAYERS, names, row)


def function(*names: str) -> Callable[[Row], Row]:
    return lambda row: add_rows(FUNCTIONS, names, row)


def fill_tables() -> None:
    importlib.import_module("intaglio.frontends.keras.rows").fill_tables()


def policy(config: Config) -> DType:
    """The type that a layer computes in."""
    told = config.get("dtype") or "float32"
    if (found := quantised_of(config)) is not None:
        told = found.source
    if isinstance(told, dict):
        kind, inner = told.get("class_name"), told.get("config")
        name = inner.get("name") if isinstance(inner, dict) else None
        if kind in ("QuantizedDTypePolicy", "QuantizedFloat8DTypePolicy", "DTypePolicyMap", "GPTQDTypePolicy", "AWQDTypePolicy"):
            told = str(name or kind)
        else:
            told = name
    if not isinstance(told, str) or told not in DTYPES:
        hint = "save the model before it is quantised, and use `--quantize int8 --calibrate DATA`"
        raise Fault("unsupported-type", f"its dtype policy {quoted(str(told))} is not supported", hint)
    return DTYPES[told]


class Walk:
    def __init__(self, file: str, weights: Weights, version: tuple[int, ...], *, collect: bool = False) -> None:
        self.file = file
        self.weights = weights
        self.version = version
        self.emitter = Emitter()
        self.emitter.weight_bytes = weights.store.size
        self.problems: list[Problem] = []
        self.collect = collect
        self.states: list[State] = []
        self.stateful: set[Layer] = set()
        self.differences: list[str] = []  # where a file of Keras 2, or another backend, is not what Keras on PyTorch computes
        self.masking = Masks(version, self.emitter, self.differences)
        self.masks = self.masking.known
        self.calls = 0
        fill_tables()

    def run(self, model: Model, inputs: list[Value], prefix: str = "") -> list[Value | None]:
        """The results of a model; None for one that a problem kept from being computed."""
        if model.sequential:
            return self._sequence(model, inputs, prefix)
        if len(inputs) != len(model.inputs):
            raise Fault("bad-graph", f"the model {quoted(model.name)} takes {len(model.inputs)} tensors, got {len(inputs)}")
        made: dict[tuple[str, int], list[Value] | None] = {}
        for ref, value in zip(model.inputs, inputs, strict=True):
            made[ref.layer, ref.call] = [value]
        by_name = {item.name: item for item in model.layers}
        tasks: list[tuple[Layer, int, Invocation]] = []
        waiting: dict[tuple[str, int], list[int]] = {}
        missing: list[int] = []
        ready: list[int] = []
        for item in model.layers:
            if (item.name, 0) in made:
                continue
            for number, call in enumerate(item.calls):
                needs = {(r.layer, r.call) for r in _refs([call.args, call.kwargs])}
                for key in needs:
                    if key not in made and (key[0] not in by_name or key[1] >= len(by_name[key[0]].calls)):
                        text = f"the layer {quoted(item.name)} reads a missing tensor of {quoted(key[0])}"
                        raise Fault("bad-graph", text, "save the model again")
                needs -= set(made)
                for key in needs:
                    waiting.setdefault(key, []).append(len(tasks))
                if not needs:
                    ready.append(len(tasks))
                missing.append(len(needs))
                tasks.append((item, number, call))
        heapq.heapify(ready)
        done = 0
        while ready:
            item, number, call = tasks[heapq.heappop(ready)]
            done += 1
            args, kwargs = _filled(call.args, made), _filled(call.kwargs, made)
            made[item.name, number] = self.invoke(item, args, kwargs, prefix, number)
            for other in waiting.get((item.name, number), ()):
                missing[other] -= 1
                if missing[other] == 0:
                    heapq.heappush(ready, other)
        if done < len(tasks):
            stuck = next(t for n, t in enumerate(tasks) if missing[n])
            raise Fault("bad-graph", f"the layer {quoted(stuck[0].name)} depends on its own result", "the graph has a cycle")
        return [_filled(ref, made) for ref in model.outputs]

    def _sequence(self, model: Model, inputs: list[Value], prefix: str) -> list[Value | None]:
        if len(inputs) != 1:
            raise Fault("bad-graph", f"the model {quoted(model.name)} takes one tensor, got {len(inputs)}")
        results: list[Value] | None = list(inputs)
        for item in model.layers:
            if item.kind == "InputLayer":
                continue
            given: Any = GONE if results is None else results[0] if len(results) == 1 else results
            results = self.invoke(item, [given], {}, prefix, 0)
        return [None] if results is None else list(results)

    def invoke(self, item: Layer, args: list[Any], kwargs: dict[str, Any], prefix: str, number: int) -> list[Value] | None:
        """One call of a layer. None: a problem was noted, or its operands are not there because of one."""
        path = f"{prefix}{item.name}"
        self.calls += 1
        if self.calls > _MOST_CALLS:
            raise Fault("too-large", f"the layers of the model are called more than {_MOST_CALLS} times")
        outer = self.emitter.source
        label = f"{path}:{number}" if number else path  # a layer that is called twice has results of two names
        try:
            results = self.apply(item, args, kwargs, label)
            for n, value in enumerate(results or []):
                if not value.is_const and not value.origin:
                    value.origin = f"{label}#{n}" if n else label
            return results
        except Undecided as error:
            self.report("size-decides", path, item.kind, str(error), error.hint)
            return None
        except (Fault, BadOperator, *_DAMAGE) as error:
            slug, hint, reason = "bad-graph", "the file is damaged", f"its options do not fit ({str(error)[:200]})"
            if isinstance(error, (Fault, BadOperator)):
                slug = error.slug if isinstance(error, Fault) else "shape-mismatch"
                reason, hint = error.reason, error.hint
            self.report(slug, path, item.kind, reason, hint)
            return None
        finally:
            self.emitter.source = outer

    def apply(self, item: Layer, args: list[Any], kwargs: dict[str, Any], path: str) -> list[Value] | None:
        """The results of a layer, by its row or by its own layers."""
        row = row_of(item)
        operands = _values([args, kwargs])
        if any(v is None for v in operands):
            self._survey(item, path)
            return None
        known = [v for v in operands if v is not None]
        told = None if item.is_op or item.kind in TAKE_SEVERAL else kwargs.get("mask")
        told = told if isinstance(told, Value) else None
        if not item.is_op and item.model is None:
            self.masking.check(item.kind, known, told is not None)
        self.emitter.source = path
        strings = any(v is not None and v.type.layout is Layout.TEXT for v in operands)
        if strings and item.model is None and item.kind not in _TAKE_TEXT:
            raise unsupported("it takes strings, which only `StringLookup` does here", "look the strings up first")
        if item.model is not None:
            found = self.run(item.model, [v for v in operands if v is not None], f"{path}/")
            return None if any(r is None for r in found) else [r for r in found if r is not None]
        if item.custom:
            self.differences.append(f"the layer {quoted(item.name)} is a custom one")
        call = KerasCall(self, item, args, kwargs)
        if told is not None and (given := call.tensors()):
            call.told[given[0]] = told
        result = row(call)
        values = result if isinstance(result, list) else [result]
        if not item.is_op:
            self.masking.pass_on(item.kind, item.config.get("axis", -1), call.tensors(), told, values)
            self.masking.was_read(call.tensors(), values)
        return values

    def _survey(self, item: Layer, path: str) -> None:
        """What cannot be known to work because its input is not there may still be known not to work."""
        for inner in [*item.inner, *(item.model.layers if item.model is not None else [])]:
            try:
                row_of(inner)
                self._survey(inner, f"{path}/{inner.name}")
            except Fault as fault:
                self.report(fault.slug, f"{path}/{inner.name}", inner.kind, fault.reason, fault.hint)

    def report(self, slug: str, name: str, kind: str, reason: str, hint: str) -> None:
        if not self.collect:
            hint = hint or "`intaglio check MODEL` lists everything that is unsupported"
            text = f"{quoted(kind)} layer {quoted(name)}: {reason}"
            raise ModelError(slug, text, where=self.file, hint=hint)
        self.problems.append(Problem(name, kind, reason, hint, slug, self.file))


def row_of(item: Layer) -> Row:
    """The row of a layer; a Fault where there is none."""
    if item.custom:
        return CUSTOM[item.custom].row
    if item.foreign:
        hint = "replace it with layers of Keras, compile the model object, or see `intaglio.register_keras_layer`"
        raise unsupported(item.foreign, hint)
    if item.model is not None:
        return _no_row
    table = FUNCTIONS if item.is_op else LAYERS
    if item.kind in table:
        return table[item.kind]
    if item.kind in ("Lambda", "__lambda__"):
        hint = "write it with layers or `keras.ops` and save the model again"
        raise unsupported("it holds Python code, which is never run", hint)
    what = "function" if item.is_op else "layer"
    raise unsupported(f"this {what} is not supported", "replace it with supported ones, or cut the model before it")


def _no_row(call: KerasCall) -> Result:
    raise AssertionError(call.layer.kind)


def _refs(item: Any) -> list[Ref]:
    if isinstance(item, Ref):
        return [item]
    inside = item.values() if isinstance(item, dict) else item if isinstance(item, list) else ()
    return [r for part in inside for r in _refs(part)]


class _Gone:
    """A tensor that a problem kept from being computed."""


GONE = _Gone()


def _filled(item: Any, made: dict[tuple[str, int], list[Value] | None]) -> Any:
    """Arguments with values in place of references."""
    if isinstance(item, Ref):
        results = made.get((item.layer, item.call), [])
        if results is None:
            return GONE
        if item.result >= len(results):
            raise Fault("bad-graph", f"the layer {quoted(item.layer)} has {len(results)} results; number {item.result} is read")
        return results[item.result]
    if isinstance(item, list):
        return [_filled(i, made) for i in item]
    if isinstance(item, dict):
        return {k: _filled(v, made) for k, v in item.items()}
    return item


def _values(item: Any) -> list[Value | None]:
    """The tensors among arguments, in order; None for one that is not there."""
    if isinstance(item, Value):
        return [item]
    if isinstance(item, _Gone):
        return [None]
    inside = item.values() if isinstance(item, dict) else item if isinstance(item, list) else ()
    return [v for part in inside for v in _values(part)]


class KerasCall:
    """One call of a layer being imported."""

    def __init__(self, walk: Walk, item: Layer, args: list[Any], kwargs: dict[str, Any]) -> None:
        self.walk = walk
        self.layer = item
        self.config = item.config
        self.kwargs = kwargs
        self.args = args
        self.told: dict[Value, Value] = {}  # the mask that it is called with
        self.dtype = DType.F32
        if not item.is_op:
            self.dtype = policy(item.config)
            check_kind(item.kind, item.config)
            if self.dtype in (DType.F16, DType.BF16) and not walk.differences:
                walk.differences.append("half precision is rounded at different places than in Keras")
            if self.dtype.is_float:
                self.args = self._auto(args)
                self.kwargs = self._auto(kwargs)

    def _auto(self, item: Any) -> Any:
        """Keras casts tensors of real numbers to the type that a layer computes in."""
        if isinstance(item, Value):
            return self._as_computed(item) if item.dtype.is_float else item
        if isinstance(item, list):
            return [self._auto(i) for i in item]
        return {k: self._auto(v) for k, v in item.items()} if isinstance(item, dict) else item

    def _as_computed(self, item: Value) -> Value:
        made = cast(self, item, self.dtype)
        if made is not item:
            self.walk.masking.copy(item, made)
        return made

    # Operands and options ---------------------------------------------------------------------------------------------

    @property
    def x(self) -> Value:
        found = self.tensors()
        if not found:
            raise Fault("bad-graph", "it is called without a tensor")
        return found[0]

    def tensors(self) -> list[Value]:
        return [v for v in _values(self.args) if v is not None]

    def mask(self, value: Value) -> Value | None:
        """Which steps of a tensor count: as the call says, or as layers before it do."""
        return self.told.get(value, self.walk.masks.get(value))

    def option(self, name: str, default: Any = None) -> Any:
        return self.config.get(name, default)

    def flag(self, name: str, default: bool = False) -> bool:
        value = self.config.get(name, default)
        return default if value is None else bool(value)

    def number(self, name: str, default: float) -> float:
        value = self.config.get(name, default)
        if isinstance(value, dict):  # Keras 2 wrote some as arrays of no dimension
            value = (value.get("config") or {}).get("value", value.get("value"))
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise Fault("bad-attribute", f"`{name}` is {quoted(str(value))}, not a number")
        return float(value)

    def whole(self, name: str, default: int | None = None) -> int:
        value = self.config.get(name, default)
        if type(value) is not int:
            raise Fault("bad-attribute", f"`{name}` is {quoted(str(value))}, not an integer")
        if abs(value) >= 2**31:
            raise Fault("bad-attribute", f"`{name}` is {value}, which is out of range")
        return value

    def wholes(self, name: str, count: int, default: int = 1, least: int = 1) -> tuple[int, ...]:
        """One whole number for each spatial axis."""
        value = self.config.get(name, default)
        value = default if value is None else value
        found: Any = [value] * count if type(value) is int else value
        fits = isinstance(found, list) and len(found) == count and all(type(n) is int and least <= n < 2**31 for n in found)
        if not fits:
            raise Fault("bad-attribute", f"`{name}` is {quoted(str(value))}; it takes {count} integers of at least {least}")
        return tuple(found)

    @property
    def channels_first(self) -> bool:
        told = self.config.get("data_format") or "channels_last"
        if told not in ("channels_first", "channels_last"):
            raise Fault("bad-attribute", f"`data_format` is {quoted(str(told))}, which is not valid")
        return bool(told == "channels_first")

    def weight(self, role: str, *shape: int) -> Value:
        """A weight of the layer, in the type that it computes in."""
        return self.constant(self.array(role, *shape), self.dtype, role)

    def array(self, role: str, *shape: int) -> Array:
        """Its shape is checked before it is read."""
        stored = self.walk.weights.shape(self.layer, role)
        if stored != shape:
            text = f"its {role} is {list(stored)} in the file, its options ask for {list(shape)}"
            raise Fault("shape-mismatch", text, "the weights belong to another model; save it again")
        return self.walk.weights.read(self.layer, role).astype(np.float32 if self.dtype is not DType.F64 else np.float64)

    # Writing nodes ----------------------------------------------------------------------------------------------------

    def constant(self, data: Array | float | int | bool | list[int], dtype: DType | None = None, origin: str = "") -> Value:
        array = np.asarray(data)
        to = dtype or DType.of(array)
        wide = array.astype(np.float32) if to in (DType.F16, DType.BF16) else array
        name = f"{self.walk.emitter.source}/{origin}" if origin else ""
        return self.walk.emitter.constant(np.ascontiguousarray(narrow(wide, to)).reshape(array.shape), to, name)

    def like(self, number: float, value: Value) -> Value:
        return self.walk.emitter.scalar(number, value.dtype)

    def emit(self, op: Op, *operands: Value | None) -> Value:
        return self.emit_all(op, *operands)[0]

    def emit_all(self, op: Op, *operands: Value | None) -> tuple[Value, ...]:
        return self.walk.emitter.emit(op, list(operands))

    def state(self, name: str, shape: tuple[int, ...]) -> Value:
        """A state that lives on from run to run; `keep` says what it is next."""
        return Value("", TensorType(self.dtype, shape), f"{self.walk.emitter.source}/{name}")

    def keep(self, entry: Value, after: Value) -> None:
        self.walk.states.append(State(entry, after))
