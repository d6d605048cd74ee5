"""Operations that take parts, put them, and sort: what indices, `x.at[...]`, `jnp.sort` and `jnp.argsort` become."""

from __future__ import annotations

from typing import Any

from intaglio.frontends import stablehlo_places
from intaglio.frontends.jax.walk import JaxCall, dialect, row
from intaglio.frontends.onnx.faults import Fault
from intaglio.ir.graph import Value

Key = tuple[int, bool]  # which operand, and whether the largest comes first
_OWN = "it sorts by an expression of its own"


@row("gather")
def gather(call: JaxCall) -> list[Value]:
    d, (x, indices) = dialect().GatherDimensionNumbers(call.attribute("dimension_numbers")), call.operands
    batch, theirs = list(d.operand_batching_dims), list(d.start_indices_batching_dims)
    indices, at = stablehlo_places.with_batch(call, indices, d.index_vector_dim, theirs)
    collapsed, axes = [*d.collapsed_slice_dims, *batch], [*d.start_index_map, *batch]
    sizes = call.ints("slice_sizes")
    return [stablehlo_places.gather(call, x, indices, list(d.offset_dims), collapsed, axes, at, sizes)]


@row("scatter")
def scatter(call: JaxCall) -> list[Value]:
    d = dialect().ScatterDimensionNumbers(call.attribute("scatter_dimension_numbers"))
    kind = stablehlo_places.UPDATES.get(_update(call))
    if kind is None or len(call.operands) != 3:
        hint = "sums, products, extremes and new values are supported"
        raise Fault("unsupported-operator", "it updates by an expression of its own", hint)
    x, indices, updates = call.operands
    batch, theirs = list(d.input_batching_dims), list(d.scatter_indices_batching_dims)
    indices, at = stablehlo_places.with_batch(call, indices, d.index_vector_dim, theirs)
    inserted, axes = [*d.inserted_window_dims, *batch], [*d.scattered_dims_to_operand_dims, *batch]
    windows = list(d.update_window_dims)
    return [stablehlo_places.scatter(call, x, indices, updates, windows, inserted, axes, at, kind, entire=True)]


def _update(call: JaxCall) -> str:
    """The operation on what is there and what comes; nothing: what comes, itself."""
    block = call.body()
    *made, last = [item.operation for item in block.operations]
    if not made and list(last.operands) == [block.arguments[1]]:
        return ""
    both = set(block.arguments)
    return str(made[0].name).removeprefix("stablehlo.") if len(made) == 1 and set(made[0].operands) == both else "unknown"


@row("sort")
def sort(call: JaxCall) -> list[Value]:
    """By the last key first: equal ones stay in their order."""
    values, axis, keys = list(call.operands), call.whole("dimension", -1), _Comparison(call).keys()
    if len(keys) == 1 and keys[0][0] == 0:
        return stablehlo_places.sort(call, values, axis, keys[0][1])
    for key, largest in reversed(keys):
        values = stablehlo_places.sort(call, [values[key], *values], axis, largest)[1:]
    return values


class _Comparison:
    """What a body says of two rows: by which operands it compares them, the first one first.

    JAX writes `a < b or (a == b and (c < d or ...))`, where each float is taken through `x == 0 ? 0 : x` and `x != x ? NaN : x`."""

    def __init__(self, call: JaxCall) -> None:
        block = call.body()
        self.call = call
        self.arguments = list(block.arguments)
        self.operations = [item.operation for item in block.operations]
        self.made = {result: operation for operation in self.operations for result in operation.results}

    def keys(self) -> list[Key]:
        return self._keys(self.operations[-1].operands[0])

    def _keys(self, value: Any) -> list[Key]:
        operation = self._operation(value)
        match self._name(operation):
            case "compare":
                first, second, direction = self._compared(operation)
                if direction not in ("LT", "GT"):
                    raise Fault("unsupported-operator", _OWN)
                return [(first // 2, (direction == "GT") == (second > first))]
            case "or":
                ((key, largest),) = self._keys(operation.operands[0])
                rest = self._operation(operation.operands[1])
                same = self._operation(rest.operands[0])
                if self._name(rest) != "and" or self._name(same) != "compare":
                    raise Fault("unsupported-operator", _OWN)
                place, _, direction = self._compared(same)
                if direction != "EQ" or place // 2 != key:
                    raise Fault("unsupported-operator", _OWN)
                return [(key, largest), *self._keys(rest.operands[1])]
        raise Fault("unsupported-operator", _OWN, "comparisons of the operands, one after the other, are supported")

    def _operation(self, value: Any) -> Any:
        if value not in self.made:
            raise Fault("unsupported-operator", _OWN)
        return self.made[value]

    @staticmethod
    def _name(operation: Any) -> str:
        return str(operation.name).removeprefix("stablehlo.")

    def _compared(self, operation: Any) -> tuple[int, int, str]:
        """The places of both arguments, which belong to one operand, and the direction."""
        (first, plain), (second, other) = (self._argument(v) for v in operation.operands)
        total = "compare_type" in operation.attributes and "TOTALORDER" in str(operation.attributes["compare_type"])
        if first // 2 != second // 2 or first == second or (total and (plain or other) and self._floats(first)):
            raise Fault("unsupported-operator", _OWN)
        return first, second, str(dialect().ComparisonDirectionAttr(operation.attributes["comparison_direction"]).value)

    def _floats(self, place: int) -> bool:
        return bool(self.call.operands[place // 2].dtype.is_float)

    def _argument(self, value: Any) -> tuple[int, bool]:
        """Which argument it is, and whether as it is: not with -0 as 0 and every NaN alike."""
        if value in self.arguments:
            return self.arguments.index(value), True
        operation = self._operation(value)
        if self._name(operation) != "select" or operation.operands[1] in self.made:
            raise Fault("unsupported-operator", _OWN)
        place, _ = self._argument(operation.operands[2])
        asked = self._operation(operation.operands[0])
        if self._name(asked) != "compare" or asked.operands[0] != self.arguments[place]:
            raise Fault("unsupported-operator", _OWN)
        return place, False
