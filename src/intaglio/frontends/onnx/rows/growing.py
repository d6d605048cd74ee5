"""What a loop carries and only ever appends to: a tensor that is joined with more, a sequence that gets an element. It is not
carried, but collected: each turn starts with nothing, and what it appends is a row. Nothing else in the body reads it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from intaglio.frontends.building import concat, reshape, transpose, unsqueeze
from intaglio.frontends.onnx.call import Item, Items, OnnxCall, Rows
from intaglio.frontends.onnx.faults import unsupported
from intaglio.frontends.onnx.structure import reads
from intaglio.ir.graph import Value


@dataclass(frozen=True, slots=True)
class Growing:
    """`axis` of a tensor, counted from the end where it is negative; None: a sequence."""

    axis: int | None

    def nothing(self, call: OnnxCall, before: Item) -> Item:
        """What a turn starts with."""
        if isinstance(before, Items) and self.axis is None:
            return Items([], before.dtype)
        if not isinstance(before, Value) or self.axis is None:
            raise unsupported("`Loop` carries a sequence or an optional, and how often it runs is not known")
        axis = call.checked_axis(self.axis, len(before.shape))
        shape = [0 if n == axis else size for n, size in enumerate(before.shape)]
        return call.constant(np.zeros(shape, before.dtype.numpy), before.dtype)

    def row(self, item: Item) -> Value:
        """What a turn appended."""
        values = item.values if isinstance(item, Items) else [item]
        if len(values) != 1 or not isinstance(values[0], Value):
            raise unsupported("`Loop` appends more than one element to a sequence in each turn")
        return values[0]

    def joined(self, call: OnnxCall, before: Item, rows: Value) -> Item:
        """What was there, and what all turns appended."""
        if isinstance(before, Items):
            first = [unsqueeze(call, v, 0) for v in before.values if isinstance(v, Value)]
            if len(first) != len(before.values) or any(v.shape[1:] != rows.shape[1:] for v in first):
                raise unsupported("`Loop` appends elements of another shape to a sequence")
            return Rows(concat(call, [*first, rows], 0))
        assert isinstance(before, Value) and self.axis is not None
        axis = call.checked_axis(self.axis, len(before.shape))
        order = list(range(1, len(rows.shape)))
        turned = transpose(call, rows, [*order[:axis], 0, *order[axis:]])
        shape = (*turned.shape[:axis], turned.shape[axis] * turned.shape[axis + 1], *turned.shape[axis + 2 :])
        more = reshape(call, turned, shape)
        return more if before.shape[axis] == 0 else concat(call, [before, more], axis)


def growing(graph: Any, carried: int) -> dict[int, Growing]:
    """By number of what is carried."""
    made = {out: node for node in graph.node for out in node.output}
    uses: dict[str, int] = {}
    for node in graph.node:
        for name in reads(node):
            uses[name] = uses.get(name, 0) + 1
    for out in graph.output:
        uses[out.name] = uses.get(out.name, 0) + 1
    found: dict[int, Growing] = {}
    for n in range(carried):
        name, last = graph.input[2 + n].name, made.get(graph.output[1 + n].name)
        if last is None or uses.get(name) != 1 or not last.input or last.input[0] != name or last.domain not in ("", "ai.onnx"):
            continue
        if last.op_type == "Concat" and uses[last.output[0]] == 1:
            found[n] = Growing(next((a.i for a in last.attribute if a.name == "axis"), 0))
        elif last.op_type == "SequenceInsert" and len(last.input) == 2 and uses[last.output[0]] == 1:
            found[n] = Growing(None)
    return found
