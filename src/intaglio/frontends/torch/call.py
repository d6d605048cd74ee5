"""One node of an exported program as its row in the table sees it: arguments by the names of the operator's schema.

    @row("relu")
    def relu(call: TorchCall) -> Answer:
        return call.emit(Relu(), call.tensor("self"))

A row serves every overload of an operator, and its in-place form, which the walk writes back (`relu_`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from intaglio.errors import quoted
from intaglio.frontends.building import cast
from intaglio.frontends.discovery import add_rows
from intaglio.frontends.fourier import Complex
from intaglio.frontends.onnx.faults import Fault, unsupported
from intaglio.frontends.torch.program import Kind
from intaglio.ir.graph import Array, Value
from intaglio.ir.sizes import Size, whole
from intaglio.ir.types import DType, Shape
from intaglio.ops.base import Op, normal_axis, widen

if TYPE_CHECKING:
    from intaglio.frontends.torch.program import NodeRecord
    from intaglio.frontends.torch.walk import Walk


Number = int | float | bool
Item = Any  # Value, Complex, number, text, Kind, GraphRecord, None, or a list of these
Answer = Item
Row = Callable[["TorchCall"], Answer]
TABLE: dict[str, Row] = {}


def row(*names: str, namespace: str = "aten") -> Callable[[Row], Row]:
    """Adds a row. A function may serve several operators: `call.op` says which."""

    return lambda function: add_rows(TABLE, [f"{namespace}.{name}" for name in names], function)


_MISSING = object()
MOST_PLACES = 1 << 24


@dataclass(slots=True)
class TorchCall:
    op: str  # without namespace and overload
    overload: str
    arguments: dict[str, Item]
    record: NodeRecord
    walk: Walk

    # Arguments ---------------------------------------------------------------------------------------------------

    def get(self, name: str, default: Item = None) -> Item:
        return self.arguments.get(name, default)

    def first(self) -> Value:
        """The tensor that comes first, which some schemas call `self` and some `input`."""
        for item in self.arguments.values():
            return self._tensor(item, "the first argument")
        raise Fault("bad-graph", f"`{self.op}` has no arguments", "export the model again")

    def tensor(self, *names: str) -> Value:
        for name in names:
            if name in self.arguments:
                return self._tensor(self.arguments[name], f"`{name}`")
        raise Fault("bad-graph", f"`{names[0]}` of `{self.op}` is missing", "export the model again")

    def _tensor(self, item: Item, what: str) -> Value:
        if isinstance(item, Value):
            return item
        if isinstance(item, Size):
            return self.typed(item, DType.I64)
        if isinstance(item, (bool, int, float)):
            return self.constant(np.asarray(item), _wrapped(item))
        if isinstance(item, Complex):
            raise unsupported(
                f"`{self.op}` of complex numbers is not supported", "take the magnitude, or real and imaginary parts, first"
            )
        raise Fault("bad-graph", f"{what} of `{self.op}` is not a tensor", "export the model again")

    def maybe(self, name: str) -> Value | None:
        item = self.arguments.get(name)
        return None if item is None else self._tensor(item, f"`{name}`")

    def tensors(self, name: str) -> list[Value]:
        items = self.arguments.get(name)
        if not isinstance(items, list):
            raise Fault("bad-graph", f"`{name}` of `{self.op}` is not a list of tensors", "export the model again")
        return [self._tensor(item, f"`{name}`") for item in items]

    def number(self, name: str, default: Item = _MISSING) -> Number:
        item = self.arguments.get(name, default)
        if item is None and default is not _MISSING:
            item = default
        if isinstance(item, Value) and item.type.elements == 1:
            if item.data is None:
                raise self.needs_bound(f"`{name}` of `{self.op}`")
            only: Number = widen(item.data, item.dtype).reshape(-1)[0].item()
            return only
        if not isinstance(item, (bool, int, float, Size)):
            raise Fault("bad-attribute", f"`{name}` of `{self.op}` is missing or not a number")
        return item

    def integer(self, name: str, default: Item = _MISSING) -> int:
        number = self.number(name, default)
        if isinstance(number, float) and not number.is_integer():
            raise Fault("bad-attribute", f"`{name}` of `{self.op}` is {number}, not an integer")
        return whole(number)

    def real(self, name: str, default: Item = _MISSING) -> float:
        return float(self.number(name, default))

    def flag(self, name: str, default: bool = False) -> bool:
        return bool(self.number(name, default))

    def text(self, name: str, default: str = "") -> str:
        item = self.arguments.get(name)
        if item is None:
            return default
        if not isinstance(item, str):
            raise Fault("bad-attribute", f"`{name}` of `{self.op}` is not text")
        return item

    def maybe_ints(self, name: str) -> list[int] | None:
        item = self.arguments.get(name)
        if item is None:
            return None
        if isinstance(item, (int, float, Size)) and not isinstance(item, bool):
            item = [item]
        if isinstance(item, Value) and item.data is not None:
            item = item.data.reshape(-1).tolist()
        items: list[Item] = [_plain(v) for v in item] if isinstance(item, list) else [item]
        if any(isinstance(v, Value) for v in items):
            raise self.needs_bound(f"`{name}` of `{self.op}`")
        if not all(isinstance(v, (int, Size)) for v in items):
            raise Fault("bad-attribute", f"`{name}` of `{self.op}` is not a list of integers known at compile time")
        return [whole(v) for v in items]

    def ints(self, name: str, default: Sequence[int] | None = None) -> list[int]:
        found = self.maybe_ints(name)
        if found is None:
            if default is None:
                raise Fault("bad-attribute", f"`{name}` of `{self.op}` is missing")
            return list(default)
        return found

    def spread(self, name: str, count: int, default: int) -> tuple[int, ...]:
        """A list with a number per spatial axis; one number stands for all."""
        found = self.maybe_ints(name) or [default]
        if len(found) == 1:
            found = found * count
        if len(found) != count:
            raise Fault("bad-attribute", f"`{name}` of `{self.op}` has {len(found)} numbers for {count} axes")
        return tuple(found)

    def dim(self, name: str, rank: int, default: Item = _MISSING) -> int:
        return self.axis(self.integer(name, default), rank)

    def axis(self, axis: int, rank: int) -> int:
        if not -max(rank, 1) <= axis < max(rank, 1):
            raise Fault("bad-attribute", f"dimension {axis} of `{self.op}` is out of range for rank {rank}")
        return normal_axis(axis, max(rank, 1))

    def dims(self, name: str, rank: int) -> Shape:
        """All of them where none are given."""
        found = self.maybe_ints(name)
        if not found:
            return tuple(range(rank))
        normal = tuple(self.axis(a, rank) for a in found)
        if len(set(normal)) != len(normal):
            raise Fault("bad-attribute", f"the dimensions {found} of `{self.op}` name one twice")
        return tuple(sorted(normal)) if rank else ()

    def dtype(self, name: str = "dtype") -> DType | None:
        kind = self.arguments.get(name)
        if kind is None:
            return None
        if not isinstance(kind, Kind) or kind.dtype is None:
            raise Fault("unsupported-type", f"`{self.op}` with an element type that is not supported")
        return kind.dtype

    def needs_bound(self, what: str) -> Fault:
        """A size or the like that depends on a number without a bound."""
        names = self.walk.unbounded[:3]
        if not names:
            return unsupported(f"{what} depends on data", "make it a constant when exporting")
        asked = " ".join(f"--max {name}=N" for name in names)
        hint = f"give its largest value: `{asked}`, or bound it in the model: `torch._check(n <= 64)`"
        return unsupported(f"{what} depends on {quoted(names[0])}, a number that data gives and nothing bounds", hint)

    def bounded(self, count: float) -> None:
        """Places and masks are made at compile time: a file must not ask for gigabytes of them."""
        if count > MOST_PLACES:
            raise Fault("too-large", f"`{self.op}` would need a table of {int(count)} elements")

    # Types -------------------------------------------------------------------------------------------------------

    def typed(self, item: Value | Number, dtype: DType) -> Value:
        if isinstance(item, Value):
            return cast(self, item, dtype)
        if isinstance(item, Size):
            return cast(self, self.walk.at_run_time(self.walk.sizes_as_data([item], ())), dtype)
        return self.walk.scalar(item, dtype)

    def operands(self, *names: str) -> list[Value]:
        """Tensors and numbers in the type that torch computes in."""
        items: list[Item] = [self.arguments.get(name) for name in names]
        for name, item in zip(names, items, strict=True):
            if not isinstance(item, (Value, bool, int, float, Size)):
                raise Fault("bad-graph", f"`{name}` of `{self.op}` is neither a tensor nor a number")
        dtype = promoted(*items)
        return [self.typed(item, dtype) for item in items]

    def floats(self, x: Value) -> Value:
        """What torch does with whole numbers given to a function of real ones."""
        return x if x.dtype.is_float else cast(self, x, DType.F32)

    # Answers -----------------------------------------------------------------------------------------------------

    def constant(self, data: Array | float | int | bool | list[int], dtype: DType | None = None) -> Value:
        array = np.asarray(data)
        return self.walk.constant(array if dtype is None or dtype is DType.BF16 else array.astype(dtype.numpy), dtype)

    def like(self, number: float, value: Value) -> Value:
        return self.walk.scalar(number, value.dtype)

    def emit(self, op: Op, *operands: Value | None) -> Value:
        return self.walk.emit(op, list(operands))[0]

    def emit_all(self, op: Op, *operands: Value | None) -> tuple[Value, ...]:
        return self.walk.emit(op, list(operands))

    def again(self, op: str, /, **arguments: Item) -> Answer:
        """The row of another operator."""
        return TABLE[f"aten.{op}"](TorchCall(op, "", arguments, self.record, self.walk))


def _plain(item: Item) -> Item:
    if isinstance(item, Value) and item.data is not None and item.data.size == 1 and item.dtype.is_int:
        return int(item.data.reshape(-1)[0])
    return item


# Type promotion: https://pytorch.org/docs/stable/tensor_attributes.html#type-promotion-doc
_ORDER = [DType.BOOL, DType.U8, DType.I8, DType.I16, DType.I32, DType.I64, DType.F16, DType.BF16, DType.F32, DType.F64]


def _pair(a: DType | None, b: DType | None) -> DType | None:
    if a is None or b is None or a is b:
        return a if b is None else b
    if {a, b} == {DType.U8, DType.I8}:
        return DType.I16
    if {a, b} == {DType.F16, DType.BF16}:
        return DType.F32
    if a not in _ORDER or b not in _ORDER:
        raise unsupported(f"{a.value} and {b.value} in one operation are not supported", "cast one of them when exporting")
    return max(a, b, key=_ORDER.index)


def _combined(higher: DType | None, lower: DType | None) -> DType | None:
    if higher is not None and higher.is_float:
        return higher
    if higher is DType.BOOL or (lower is not None and lower.is_float):
        return _pair(higher, lower)
    return higher if higher is not None else lower


def _wrapped(number: Number) -> DType:
    return DType.BOOL if isinstance(number, bool) else DType.I64 if isinstance(number, (int, Size)) else DType.F32


def promoted(*items: Value | Number) -> DType:
    """Tensors with axes decide; those without, and numbers, count only where they are of a higher kind."""
    full: DType | None = None
    zero: DType | None = None
    numbers: DType | None = None
    for item in items:
        if not isinstance(item, Value):
            numbers = _pair(numbers, _wrapped(item))
        elif item.shape:
            full = _pair(full, item.dtype)
        else:
            zero = _pair(zero, item.dtype)
    result = _combined(full, _combined(zero, numbers))
    assert result is not None
    return result
