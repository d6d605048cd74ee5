"""How operators come into a graph: by a new node, or folded into a constant when everything about them is known."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from intaglio.errors import quoted
from intaglio.frontends.most import narrowed
from intaglio.frontends.onnx.faults import Fault
from intaglio.frontends.onnx.names import identifier
from intaglio.ir.graph import Array, Node, Value
from intaglio.ir.sizes import (
    MOST_COMBINATIONS,
    Bounds,
    Size,
    Undecided,
    array_of,
    larger,
    least,
    most,
    names_of,
    settled,
    smaller,
    whole,
)  # fmt: skip
from intaglio.ir.types import MAX_RANK, DType, TensorType
from intaglio.ops.base import Op, narrow
from intaglio.ops.binary import Binary, Div, Max, Min
from intaglio.ops.control import AssertTrue, Select, SelectSized
from intaglio.ops.convert import Cast, Dequantize
from intaglio.ops.found import AsSize, NonZero
from intaglio.ops.move import Reshape, Transpose
from intaglio.ops.sizes import Dimensions

MAX_ELEMENTS = 2**31 - 1
MAX_FOLDED_BYTES = 64 << 20
# Of all folding together: a model of a kilobyte must become neither a gigabyte nor an hour of work in the compiler.
FOLDING_BYTES = 256 << 20  # and three times the weights
FOLDING_MACS = 2_000_000_000
MAX_NODES = 50_000


class Emits(Protocol):
    """What the steps that front ends share need of a call."""

    def constant(self, data: Array | float | int | bool | list[int], dtype: DType | None = None) -> Value: ...

    def like(self, number: float, value: Value) -> Value: ...

    def emit(self, op: Op, *operands: Value | None) -> Value: ...

    def emit_all(self, op: Op, *operands: Value | None) -> tuple[Value, ...]: ...


def of_sizes(op: Op, arrays: list[Array | None]) -> tuple[Array, ...] | None:
    """What an operator makes of sizes that the caller gives, where that is sizes again; None: it takes numbers."""
    if isinstance(op, Cast):
        return tuple(a for a in arrays if a is not None) if op.to.is_int else None
    wide = [a if a is None or a.dtype.kind not in "iu" else a.astype(object) for a in arrays]
    try:
        if isinstance(op, Binary):
            return (_of_two(op, *(a for a in wide if a is not None)),)
        return tuple(np.asarray(a) for a in op.reference(*wide))
    except (Undecided, TypeError, ValueError, AttributeError):
        return None


def _divided(a: int, b: int) -> int:
    """Towards zero, as integers are divided. The signs must be the same for all sizes."""
    if b == 0:
        return 0
    positive = (a >= 0) == (b > 0)
    return abs(a) // abs(b) if positive else -(abs(a) // abs(b))


_BY_TWO: dict[type[Op], Callable[[int, int], int]] = {Max: larger, Min: smaller, Div: _divided}  # numpy would ask which is larger


def _of_two(op: Binary, a: Array, b: Array) -> Array:
    """As arrays with an axis: numpy takes a single object out of its array."""
    shape = np.broadcast_shapes(a.shape, b.shape)
    a, b = (np.broadcast_to(one, shape).reshape(-1) for one in (a, b))
    if type(op) not in _BY_TWO:
        return np.asarray(op.compute(a, b)).reshape(shape)
    found = np.empty(len(a), object)
    found[:] = [_BY_TWO[type(op)](x, y) for x, y in zip(a.tolist(), b.tolist(), strict=True)]
    return found.reshape(shape)


@dataclass(frozen=True, slots=True)
class Mark:
    nodes: int
    notes: int
    counts: dict[str, Value]
    when: Value | None
    turn: Value | None


class Emitter:
    """The nodes of one import, in order."""

    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self.notes: list[str] = []
        self.bounds: Bounds | None = None
        self.counts: dict[str, Value] = {}  # sizes that follow from data
        self.most: Mapping[str, int] = {}  # `--max`: by the name of a tensor, or of a number, how large it can be
        self.most_used: set[str] = set()
        self.most_possible: dict[str, int] = {}  # without `--max`
        self.when: Value | None = None
        self.turn: Value | None = None  # the condition of the loop whose body this is
        self.source = ""
        self.folded_bytes = self.folded_macs = self.weight_bytes = 0
        self.dequantised: dict[Value, list[Value]] = {}  # floats that were folded: the integers, scale and zero point

    def constant(self, data: Array, dtype: DType | None = None, origin: str = "") -> Value:
        return Value("", TensorType(dtype or DType.of(data), data.shape), origin, data)

    def scalar(self, number: float, dtype: DType) -> Value:
        wide = np.asarray(number, np.float32 if dtype in (DType.F16, DType.BF16) else dtype.numpy)
        return self.constant(narrow(wide, dtype), dtype)

    def emit(self, op: Op, operands: list[Value | None]) -> tuple[Value, ...]:
        """The results of an operator: computed now when all operands are constants, else by a new node."""
        types = [None if v is None else v.type for v in operands]
        outs = op.infer(*types)
        for out in outs:
            if out.rank > MAX_RANK:
                raise Fault("bad-tensor", f"`{self.source}` gives rank {out.rank}; at most {MAX_RANK} is supported")
            if most(out.elements) > MAX_ELEMENTS:
                raise Fault("too-large", f"a result of shape {list(out.shape)} is too large")
        known = [v.data for v in operands if v is not None and v.data is not None]
        constant = len(known) == sum(v is not None for v in operands) and not op.EFFECT
        if any(array.dtype == object for array in known):
            if constant and (answers := of_sizes(op, [None if v is None else v.data for v in operands])) is not None:
                return tuple(self.constant(settled(a, t.dtype.numpy), t.dtype) for a, t in zip(answers, outs, strict=True))
            return self.emit(op, [v if v is None else self.at_run_time(v) for v in operands])
        if constant and not names_of(op) and self._worth_folding(op, known, types, outs):
            results = op.evaluate([None if v is None else v.data for v in operands], types)
            folded = tuple(self.constant(r, t.dtype) for r, t in zip(results, outs, strict=True))
            self._remember(op, operands, folded[0])
            return folded
        if len(self.nodes) >= MAX_NODES:
            raise Fault("too-large", f"the model unrolls into more than {MAX_NODES} operators")
        values = [Value("", t) for t in outs]
        when = self.turn if self.when is None and isinstance(op, (AsSize, AssertTrue)) else self.when
        self.nodes.append(Node(op, operands, values, self.source, when=when))
        return tuple(values)

    def mark(self) -> Mark:
        """To be able to go back to where we are."""
        return Mark(len(self.nodes), len(self.notes), dict(self.counts), self.when, self.turn)

    def go_back(self, mark: Mark) -> None:
        """As if nothing had been emitted since."""
        del self.nodes[mark.nodes :]
        del self.notes[mark.notes :]
        gone = self.counts.keys() - mark.counts.keys()
        self.counts, self.when, self.turn = dict(mark.counts), mark.when, mark.turn
        if self.bounds is not None and gone:
            self.bounds.forget(gone)

    def found(
        self, stem: str, low: int, high: int, make: Callable[[int], Op], operands: list[Value | None], at: int = -1
    ) -> tuple[Value, ...]:
        """The results of an operator that finds between `low` and `high` of something; `make` gets their number, which is also the
        result `at`."""
        if low == high:
            return self.emit(make(high), operands)
        if high - low > MOST_COMBINATIONS:
            asked = next((f"; give a smaller `--max {name}=N`" for name, n in self.most.items() if int(n) == high), "")
            raise Fault("too-large", f"there may be {high} results", f"at most {MOST_COMBINATIONS} are possible{asked}")
        self.bounds = self.bounds or Bounds({})
        name, n = stem, 2
        while name in self.bounds.ranges:
            name, n = f"{stem}_{n}", n + 1
        results = self.emit(make(self.bounds.add(name, low, high)), operands)
        self.counts[name] = results[at]
        return results

    def narrowed(self, stem: str, low: int, high: int) -> tuple[int, int]:
        """How many of something may be found, within what `--max` says for it. The operator checks that."""
        return narrowed(self.most, self.most_used, self.most_possible, self._asked(stem), low, high)

    def _asked(self, stem: str) -> list[str]:
        """The words of `--max` that are about a size."""
        return [name for name in self.most if identifier(name, "found") in (stem, stem.removesuffix("_count"))]

    def found_size(self, name: str) -> str:
        """Of a tensor by the name that the model has for it: the size found in data that it depends on."""
        made = next((v for node in self.nodes for v in node.outputs if v.origin == name), None)
        sizes = set() if made is None else {size for n in made.shape for size in names_of(n)}
        return next((size for size in self.counts if size in sizes), "")

    def places(self, stem: str, x: Value) -> Value:
        """Where a tensor is not zero, [rank, count]. It is looked at once, so that what two operators take by one condition has one
        size."""
        for node in self.nodes if self.turn is None else ():
            if isinstance(node.op, NonZero) and node.when is self.when and self._same(node.inputs[0], x):
                known = next((name for name, value in self.counts.items() if value is node.outputs[1]), "")
                for name in self._asked(stem) if known != stem else ():
                    self.most_used.add(name)
                    told = f"`--max {name}={self.most[name]}` is ignored: {quoted(name)} has the size {quoted(known)}"
                    self.notes.append(f"{told}; give `--max {known}={self.most[name]}`")
                return node.output
        return self.found(stem, *self.narrowed(stem, 0, most(x.type.elements)), NonZero, [x])[0]

    def _same(self, a: Value | None, b: Value | None, depth: int = 4) -> bool:
        """Are they one value, or computed in the same way? Exporters write a condition as often as it is used."""
        if a is b:
            return True
        if a is None or b is None or a.type != b.type or not depth:
            return False
        if a.data is not None or b.data is not None:
            return a.data is not None and b.data is not None and a.data.size <= 64 and np.array_equal(a.data, b.data)
        made = [next((n for n in reversed(self.nodes) if value in n.outputs), None) for value in (a, b)]
        first, second = made
        if first is None or second is None or first.op != second.op or first.op.EFFECT or first.when is not second.when:
            return False
        alike = first.outputs.index(a) == second.outputs.index(b) and len(first.inputs) == len(second.inputs)
        return alike and all(self._same(x, y, depth - 1) for x, y in zip(first.inputs, second.inputs, strict=True))

    def as_size(self, stem: str, value: Value, low: int, high: int, limit: int = -1) -> int:
        """A whole number that is computed, as a size; `limit`: another size that it must not pass."""
        sizes: list[int] = []

        def made(count: int) -> Op:
            sizes.append(count)
            return AsSize(count, low, high, limit if isinstance(limit, Size) else -1)

        self.found(stem, low, high, made, [value])
        return sizes[0]

    def selected(self, condition: Value, a: Value, b: Value, as_size: Callable[[Value, str, int, int], int]) -> Value:
        """The result of the branch that is taken, which is as large as that. `as_size` makes a size of a number."""
        if a.shape == b.shape:
            return a if a is b else self.emit(Select(), [condition, a, b])[0]
        sizes = []
        for axis, pair in enumerate(zip(a.shape, b.shape, strict=True)):
            if pair[0] != pair[1]:
                (taken,) = self.emit(Select(), [condition, *(self.at_run_time(self.sizes_as_data([n], ())) for n in pair)])
                sizes.append(as_size(taken, f"size_{axis}", min(map(least, pair)), max(map(most, pair))))
            else:
                sizes.append(pair[0])
        return self.emit(SelectSized(tuple(sizes)), [condition, a, b])[0]

    def sizes_as_data(self, sizes: Sequence[int], shape: tuple[int, ...] | None = None) -> Value:
        """Sizes as a constant of i64, for `at_run_time`."""
        array = array_of(sizes)
        return self.constant(array if shape is None else array.reshape(shape), DType.I64)

    def at_run_time(self, value: Value) -> Value:
        """Sizes of the caller that are computed with: as data from here on."""
        if value.data is None or value.data.dtype != object:
            return value
        sizes = tuple(whole(n) for n in value.data.reshape(-1).tolist())
        (made,) = self.emit(Dimensions(sizes, value.shape, value.dtype), [])
        return made

    def _remember(self, op: Op, operands: list[Value | None], folded: Value) -> None:
        """Which integers a constant was dequantised from, also when it was turned around since."""
        first = operands[0] if operands else None
        if isinstance(op, Dequantize) and folded.type.elements > 1:
            self.dequantised[folded] = [v for v in operands if v is not None]
        elif first in self.dequantised and first is not None and isinstance(op, (Reshape, Transpose)):
            stored, scale, zero = self.dequantised[first]
            parameters: list[Value] = []
            for parameter in (scale, zero):
                if parameter.type.elements > 1:
                    if not isinstance(op, Transpose) or parameter.type.rank != first.type.rank:
                        return
                    parameter = self.emit(op, [parameter])[0]
                parameters.append(parameter)
            self.dequantised[folded] = [self.emit(op, [stored])[0], *parameters]

    def _worth_folding(self, op: Op, known: list[Array], types: list[TensorType | None], outs: tuple[TensorType, ...]) -> bool:
        size, macs = sum(t.bytes for t in outs), sum(op.macs(types, t) for t in outs[:1])
        if size > max(MAX_FOLDED_BYTES, 2 * sum(a.nbytes for a in known)):
            return False
        if self.folded_bytes + size > FOLDING_BYTES + 3 * self.weight_bytes or self.folded_macs + macs > FOLDING_MACS:
            return False
        self.folded_bytes += size
        self.folded_macs += macs
        return True
