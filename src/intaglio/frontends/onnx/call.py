"""One ONNX node as its row in the table sees it: operands, typed attributes, and `emit` to answer with operators.

@importer("Relu")
def relu(call: OnnxCall) -> Value:
    return call.emit(Relu(), call.value(0))
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from intaglio.frontends.discovery import add_rows
from intaglio.frontends.most import narrowed
from intaglio.frontends.onnx.faults import Fault, unsupported
from intaglio.frontends.onnx.names import identifier
from intaglio.frontends.onnx.tensors import tensor_value
from intaglio.ir.graph import Array, Value
from intaglio.ir.sizes import array_of, moves, whole
from intaglio.ir.types import DType, Layout, Shape
from intaglio.ops.base import Op, normal_axis, widen
from intaglio.ops.binary import Equal, LogicalOr
from intaglio.ops.control import AssertTrue
from intaglio.ops.convert import Cast
from intaglio.ops.move import Reshape, Slice

if TYPE_CHECKING:
    from intaglio.frontends.onnx.walk import Scope, Walk


@dataclass(slots=True)
class Items:
    """A sequence whose length and members are known at import."""

    values: list[Item]
    dtype: DType | None = None


@dataclass(slots=True)
class Rows:
    """A sequence that a loop made: its members are the rows of a tensor."""

    tensor: Value


@dataclass(frozen=True, slots=True)
class Entries:
    """A map of at most so many entries: keys, and as many values."""

    keys: Item
    values: Item


@dataclass(slots=True)
class Absent:
    """An optional without a value."""


@dataclass(slots=True)
class Unknown:
    """The result of a node that could not be imported (only while `check` collects problems)."""


@dataclass(slots=True)
class Unusable:
    """A result that is refused where something reads it or it is an output: labels that are strings."""

    what: str  # "a tensor of strings"
    hint: str


@dataclass(frozen=True, slots=True, eq=False)
class Texts:
    """A tensor of strings: a tensor of bytes with one axis more."""

    value: Value

    @property
    def shape(self) -> Shape:
        return self.value.shape[:-1]

    @property
    def width(self) -> int:
        """Bytes of a string, at most."""
        return self.value.shape[-1]


def texts(value: Value) -> Texts:
    """Bytes as strings."""
    value.type = replace(value.type, layout=Layout.TEXT)
    return Texts(value)


Item = Value | Items | Rows | Entries | Absent | Unknown | Unusable | Texts
Answer = Item | Sequence[Item | None] | None
Row = Callable[["OnnxCall"], Answer]
TABLE: dict[tuple[str, str], Row] = {}
OF_STRINGS: dict[tuple[str, str], Row] = {}  # where an operand is a tensor of strings


def importer(*names: str, domain: str = "") -> Callable[[Row], Row]:
    """Adds a row. A function may serve several operators: `call.op` says which."""

    return lambda row: add_rows(TABLE, [(domain, name) for name in names], row)


def of_strings(*names: str, domain: str = "") -> Callable[[Row], Row]:
    """Adds a row for operands that are strings."""

    return lambda row: add_rows(OF_STRINGS, [(domain, name) for name in names], row)


@dataclass(slots=True)
class OnnxCall:
    op: str
    domain: str
    version: int  # of the domain's opset
    inputs: list[Item | None]
    outputs: int
    attributes: dict[str, Any]  # AttributeProto by name
    walk: Walk
    scope: Scope
    used: set[str] = field(default_factory=set)

    # Operands ----------------------------------------------------------------------------------------------------

    def item(self, index: int) -> Item | None:
        return self.inputs[index] if index < len(self.inputs) else None

    def has(self, index: int) -> bool:
        return self.item(index) is not None

    def maybe(self, index: int) -> Value | None:
        item = self.item(index)
        if item is None or isinstance(item, Absent):
            return None
        if isinstance(item, Unusable):
            raise unsupported(f"operand {index} of `{self.op}` is {item.what}", item.hint)
        if isinstance(item, Texts):
            raise unsupported(f"operand {index} of `{self.op}` is a tensor of strings", "do this part in your application")
        if isinstance(item, Entries):
            raise unsupported(f"operand {index} of `{self.op}` is a map", "only `DictVectorizer` and `CastMap` take maps")
        if not isinstance(item, Value):
            raise unsupported(f"operand {index} is a sequence or an optional where a tensor is expected")
        return item

    def value(self, index: int) -> Value:
        value = self.maybe(index)
        if value is None:
            raise Fault("bad-graph", f"operand {index} of `{self.op}` is missing", "export the model again")
        return value

    def strings(self, index: int) -> Value:
        """An operand that is a tensor of strings, as bytes."""
        item = self.item(index)
        if not isinstance(item, Texts):
            raise Fault("unsupported-type", f"operand {index} of `{self.op}` is not a tensor of strings", "export the model again")
        return item.value

    def words(self, words: Sequence[str], shape: Shape | None = None) -> Texts:
        """Constant strings."""
        return self.walk.words(words, (len(words),) if shape is None else shape)

    def values(self) -> list[Value]:
        return [self.value(i) for i in range(len(self.inputs))]

    def sequence(self, index: int) -> Items:
        item = self.item(index)
        if not isinstance(item, Items):
            raise unsupported(f"operand {index} of `{self.op}` is not a sequence that is known at compile time")
        return item

    def maybe_numbers(self, index: int, what: str) -> Array | None:
        """A constant operand as numbers; a fault when it depends on data."""
        value = self.maybe(index)
        if value is None:
            return None
        if value.data is None:
            raise unsupported(
                f"{self._by_data(what)}, so the result has no static shape",
                "make it a constant when exporting, or pin the inputs it follows from with `--dim` or `--shape`",
            )
        return widen(value.data, value.dtype)

    def numbers(self, index: int, what: str) -> Array:
        numbers = self.maybe_numbers(index, what)
        if numbers is None:
            raise Fault("bad-graph", f"`{self.op}` has no {what}", "export the model again")
        return numbers

    def sizes(self, index: int, what: str, least: int = 0, there: Mapping[int, int] | None = None) -> list[int]:
        """Whole numbers that are sizes: known now, or computed and at most what `--max` says. By position in `there`: sizes that
        are known whatever the number is, which must be this size or 1."""
        value = self.value(index)
        if value.data is not None or moves(value.shape) or len(value.shape) > 1:
            return self.int_list(index, what)
        name = self.walk.origins[0] if self.walk.origins else self.op
        count, there = value.shape[0] if value.shape else 1, there or {}
        if name not in self.walk.most and len(there) < count:
            raise unsupported(self._by_data(what), f"give the largest size with `--max {name}=N`, or make it a constant")
        found = []
        for n, number in enumerate(self._element(value, n) for n in range(count)):
            if n in there:
                fits = [self.walk.at_run_time(self.constant(array_of([size]), number.dtype)) for size in (there[n], 1)]
                either = self.emit(LogicalOr(), *(self.emit(Equal(), number, size) for size in fits))
                self.emit(AssertTrue(f"the {what} of `{self.op}` does not fit its operand"), either)
            word = f"size_{n}" if count > 1 else "size"
            found.append(there[n] if n in there else self.size(number, word, least, self.walk.most[name]))
        return found

    def _by_data(self, what: str) -> str:
        return f"the {what} of `{self.op}` {'depend' if what.endswith('s') else 'depends'} on data"

    def _element(self, value: Value, n: int) -> Value:
        flat = value if value.shape else self.emit(Reshape((1,)), value)
        return flat if flat.shape == (1,) else self.emit(Slice((n,), (1,), (1,)), flat)

    def size(self, value: Value, word: str, low: int, high: int, limit: int = -1) -> int:
        """A number that is computed, as a size within these bounds, and not above another size."""
        name = self.walk.origins[0] if self.walk.origins else self.op
        stem = identifier(name, "found")
        names, walk = (f"{name}_{word}", f"{stem}_{word}", name, stem), self.walk
        low, high = narrowed(walk.most, walk.most_used, walk.most_possible, names, low, high)
        wide = value if value.dtype is DType.I64 else self.emit(Cast(DType.I64), value)
        return self.walk.as_size(f"{stem}_{word}", wide, low, high, limit)

    def int_list(self, index: int, what: str) -> list[int]:
        return [whole(v) for v in self.numbers(index, what).reshape(-1).tolist()]

    def maybe_int_list(self, index: int, what: str) -> list[int] | None:
        numbers = self.maybe_numbers(index, what)
        return None if numbers is None else [whole(v) for v in numbers.reshape(-1).tolist()]

    # Attributes --------------------------------------------------------------------------------------------------

    def _attribute(self, name: str, kind: int) -> Any:
        self.used.add(name)
        attribute = self.attributes.get(name)
        if attribute is None:
            return None
        if attribute.type not in (kind, 0):
            raise Fault("bad-attribute", f"the attribute `{name}` of `{self.op}` has the wrong type")
        return attribute

    def integer(self, name: str, default: int = 0) -> int:
        attribute = self._attribute(name, 2)
        return default if attribute is None else int(attribute.i)

    def real(self, name: str, default: float = 0.0) -> float:
        attribute = self._attribute(name, 1)
        return default if attribute is None else float(attribute.f)

    def text(self, name: str, default: str = "") -> str:
        attribute = self._attribute(name, 3)
        return default if attribute is None else attribute.s.decode("utf-8", "replace")

    def ints(self, name: str) -> list[int] | None:
        attribute = self._attribute(name, 7)
        return None if attribute is None else [int(v) for v in attribute.ints]

    def floats(self, name: str) -> list[float] | None:
        attribute = self._attribute(name, 6)
        return None if attribute is None else [float(v) for v in attribute.floats]

    def texts(self, name: str) -> list[str] | None:
        attribute = self._attribute(name, 8)
        return None if attribute is None else [s.decode("utf-8", "replace") for s in attribute.strings]

    def tensor(self, name: str) -> Value | None:
        attribute = self._attribute(name, 4)
        if attribute is None:
            return None
        data, dtype = tensor_value(attribute.t, self.walk.folder, f"the attribute `{name}`")
        return self.constant(data, dtype)

    def graph(self, name: str) -> Any:
        attribute = self._attribute(name, 5)
        if attribute is None:
            raise Fault("bad-graph", f"`{self.op}` has no `{name}`", "export the model again")
        return attribute.g

    def axis(self, rank: int, default: int, name: str = "axis") -> int:
        axis = self.integer(name, default)
        return self.checked_axis(axis, rank, name)

    def checked_axis(self, axis: int, rank: int, name: str = "axis") -> int:
        if not -rank <= axis < max(rank, 1):
            raise Fault("bad-attribute", f"`{name}` {axis} of `{self.op}` is out of range for rank {rank}")
        return normal_axis(axis, rank)

    def checked_axes(self, axes: Sequence[int], rank: int) -> Shape:
        normal = tuple(self.checked_axis(a, rank, "axes") for a in axes)
        if len(set(normal)) != len(normal):
            raise Fault("bad-attribute", f"axes {list(axes)} of `{self.op}` name an axis twice")
        return normal

    def axes(self, index: int, rank: int) -> Shape | None:
        """The axes, which moved from an attribute to an operand in opset 13 and 18; None when not given."""
        axes = self.ints("axes")
        if axes is None:
            axes = self.maybe_int_list(index, "axes")
        return None if axes is None else self.checked_axes(axes, rank)

    # Answers -----------------------------------------------------------------------------------------------------

    def constant(self, data: Array | float | int | bool | list[int], dtype: DType | None = None) -> Value:
        return self.walk.constant(np.asarray(data), dtype)

    def like(self, number: float, value: Value) -> Value:
        """A scalar constant of the element type of another value."""
        return self.walk.scalar(number, value.dtype)

    def emit(self, op: Op, *operands: Value | None) -> Value:
        return self.walk.emit(op, list(operands))[0]

    def emit_all(self, op: Op, *operands: Value | None) -> tuple[Value, ...]:
        return self.walk.emit(op, list(operands))

    def call(self, name: str, *operands: Item | None, domain: str = "", version: int | None = None) -> Value:
        """The row of another operator, with its default attributes."""
        row = TABLE[domain, name]
        inner = OnnxCall(name, domain, version or self.version, list(operands), 1, {}, self.walk, self.scope)
        answer = row(inner)
        assert isinstance(answer, Value)
        return answer
