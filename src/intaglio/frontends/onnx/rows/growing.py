"""What a loop carries and appends to: a tensor that is joined with more, a sequence that gets an element.

Growing: nothing else in the body reads it. It is not carried, but collected: each turn starts with nothing, and what it appends is
a row. Kept: the body reads it, as attention does what a decoder remembers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from intaglio.frontends.building import concat, padded, part, reshape, transpose, unsqueeze
from intaglio.frontends.onnx.call import Item, Items, OnnxCall, Rows
from intaglio.frontends.onnx.faults import unsupported
from intaglio.frontends.onnx.names import identifier
from intaglio.frontends.onnx.structure import reads
from intaglio.ir.graph import Value
from intaglio.ir.sizes import Size, least, most
from intaglio.ir.types import TensorType
from intaglio.ops.binary import Add, Equal, Where


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


@dataclass(frozen=True, slots=True)
class Length:
    """How long something is before the first turn, how much longer each turn makes it, and the most turns."""

    first: int
    step: int
    turns: int
    stem: str

    def after(self, turns: int) -> int:
        return self.first + self.step * turns

    def carried(self, call: OnnxCall) -> Value:
        return call.walk.at_run_time(call.walk.sizes_as_data([self.first], ()))

    def now(self, call: OnnxCall, length: Value, left: int) -> int:
        """As a size, when at least so many turns are left."""
        return call.walk.as_size(f"{self.stem}_length", length, least(self.first), most(self.after(self.turns - left)))

    def longer(self, call: OnnxCall, length: Value) -> Value:
        return call.emit(Add(), length, call.like(self.step, length))


@dataclass(frozen=True, slots=True)
class Kept:
    """A tensor that a turn makes longer along `axis`, and reads: what a decoder remembers. It is carried in room for the most,
    beside its length, which several may share."""

    before: Value
    axis: int
    length: Length

    @property
    def key(self) -> tuple[int, int]:
        """Equal for all that are as long in every turn."""
        return self.length.first, self.length.step

    def carried(self, call: OnnxCall) -> Value:
        """The room."""
        pads = [0] * (2 * len(self.before.shape))
        pads[len(self.before.shape) + self.axis] = most(self.length.after(self.length.turns)) - self.length.first
        return padded(call, self.before, pads)

    def cut(self, call: OnnxCall, room: Value, length: int) -> Value:
        """What is there."""
        return part(call, room, self.axis, 0, length)

    def longer(self, call: OnnxCall, room: Value, length: Value, cut: Value, after: Value) -> Value:
        """The room with what a turn appended."""
        if after.shape[self.axis] != cut.shape[self.axis] + self.length.step:
            what = f"{list(cut.shape)} becomes {list(after.shape)}"
            raise unsupported(f"a value that a loop carries changes from turn to turn ({what})")
        places = call.constant(np.arange(room.shape[self.axis]).reshape([-1, *(1,) * (len(room.shape) - self.axis - 1)]))
        for n in range(self.length.step):
            mine = call.emit(Equal(), places, call.emit(Add(), length, call.like(n, length)))
            room = call.emit(Where(), mine, part(call, after, self.axis, cut.shape[self.axis] + n, 1), room)
        return room


def kept(call: OnnxCall, graph: Any, n: int, before: Value, after: TensorType, turns: int | None, hint: str) -> Kept | None:
    """How what is carried as number `n`, which becomes longer in a turn, can be kept; None: not at all."""
    made = {out: node for node in graph.node for out in node.output}
    last = made.get(graph.output[1 + n].name)
    if last is None or last.op_type != "Concat" or last.domain not in ("", "ai.onnx") or last.input[0] != graph.input[2 + n].name:
        return None
    axis = call.checked_axis(next((a.i for a in last.attribute if a.name == "axis"), 0), len(before.shape))
    step = after.shape[axis] - before.shape[axis]
    same = all(a == b for i, (a, b) in enumerate(zip(before.shape, after.shape, strict=True)) if i != axis)
    if isinstance(step, Size) or not same or before.dtype is not after.dtype:
        return None
    if turns is None:
        raise unsupported("how often a loop runs depends on data, and with it the size of what it carries", hint)
    return Kept(before, axis, Length(before.shape[axis], step, turns, identifier(graph.input[2 + n].name, "kept")))
