"""Operators that only move data: transpose, reshape, expand, slice, concat, pad, tile, trilu, reverse_sequence."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from intaglio.ir.apart import apart
from intaglio.ir.graph import Array
from intaglio.ir.sizes import larger, most, values_of
from intaglio.ir.types import DType, TensorType, broadcast_shapes, strides_of
from intaglio.ops.base import BadOperator, Op, normal_axis, same_dtype
from intaglio.ops.control import need


@dataclass(frozen=True, slots=True)
class Transpose(Op):
    NAME: ClassVar[str] = "transpose"
    perm: tuple[int, ...] = ()

    def infer(self, *types: TensorType | None) -> tuple[TensorType, ...]:
        x = need(self.NAME, types, 1, 1)[0]
        if sorted(self.perm) != list(range(x.rank)):
            raise BadOperator(f"perm {list(self.perm)} is not a permutation of the axes of {list(x.shape)}")
        return (TensorType(x.dtype, tuple(x.shape[i] for i in self.perm)),)

    def reference(self, *arrays: Array | None) -> tuple[Array, ...]:
        assert arrays[0] is not None
        return (np.transpose(arrays[0], self.perm),)


@dataclass(frozen=True, slots=True)
class Reshape(Op):
    NAME: ClassVar[str] = "reshape"
    shape: tuple[int, ...] = ()

    def infer(self, *types: TensorType | None) -> tuple[TensorType, ...]:
        x = need(self.NAME, types, 1, 1)[0]
        if any(n < 0 for n in self.shape) or math.prod(self.shape) != x.elements:
            raise BadOperator(f"cannot reshape {list(x.shape)} into {list(self.shape)}")
        return (TensorType(x.dtype, self.shape),)

    def reference(self, *arrays: Array | None) -> tuple[Array, ...]:
        assert arrays[0] is not None
        return (np.reshape(arrays[0], self.shape),)

    def overlay(self, types: list[TensorType | None], out: TensorType) -> tuple[int, ...] | None:
        return (0,)


@dataclass(frozen=True, slots=True)
class Expand(Op):
    """Broadcast to `shape`, which is the final shape."""

    NAME: ClassVar[str] = "expand"
    shape: tuple[int, ...] = ()

    def infer(self, *types: TensorType | None) -> tuple[TensorType, ...]:
        x = need(self.NAME, types, 1, 1)[0]
        try:
            if any(n < 0 for n in self.shape) or broadcast_shapes(x.shape, self.shape) != self.shape:
                raise ValueError
        except ValueError:
            raise BadOperator(f"cannot expand {list(x.shape)} to {list(self.shape)}") from None
        return (TensorType(x.dtype, self.shape),)

    def reference(self, *arrays: Array | None) -> tuple[Array, ...]:
        assert arrays[0] is not None
        return (np.broadcast_to(arrays[0], self.shape),)


@dataclass(frozen=True, slots=True)
class Slice(Op):
    """Element i along an axis reads `starts + i * steps`. Full rank, steps may be negative, never 0."""

    NAME: ClassVar[str] = "slice"
    starts: tuple[int, ...] = ()
    steps: tuple[int, ...] = ()
    shape: tuple[int, ...] = ()

    def infer(self, *types: TensorType | None) -> tuple[TensorType, ...]:
        x = need(self.NAME, types, 1, 1)[0]
        if not len(self.starts) == len(self.steps) == len(self.shape) == x.rank:
            raise BadOperator(f"`slice` of {list(x.shape)} with attributes for another rank")
        for axis, (size, start, step, count) in enumerate(zip(x.shape, self.starts, self.steps, self.shape, strict=True)):
            if step == 0 or count < 0:
                raise BadOperator(f"`slice` has step {step} and {count} elements along axis {axis}")
            first, last, end = (values_of(n) for n in (start, start + (count - 1) * step, size))
            inside = (values_of(count) == 0) | ((first >= 0) & (first < end) & (last >= 0) & (last < end))
            if not np.all(inside):
                raise BadOperator(f"`slice` reads outside of axis {axis}, which has {size} elements")
        return (TensorType(x.dtype, self.shape),)

    def reference(self, *arrays: Array | None) -> tuple[Array, ...]:
        x = arrays[0]
        assert x is not None
        cuts = []
        for start, step, count in zip(self.starts, self.steps, self.shape, strict=True):
            end = start + count * step
            cuts.append(slice(0, 0) if count == 0 else slice(start, None if end < 0 else end, step))
        return (x[tuple(cuts)],)


    def overlay(self, types: list[TensorType | None], out: TensorType) -> tuple[int, ...] | None:
        """What is cut along the outermost axis that has more than one element left is in one piece."""
        x = types[0]
        if x is None or out.elements == 0:
            return None
        cut = next((n for n, count in enumerate(self.shape) if count != 1), x.rank - 1)
        if any(most(count) > 1 and step != 1 for count, step in zip(self.shape, self.steps, strict=True)):
            return None
        if self.shape[cut + 1 :] != x.shape[cut + 1 :]:
            return None
        return (-sum(start * width for start, width in zip(self.starts, strides_of(x.shape), strict=True)),)


@dataclass(frozen=True, slots=True)
class Concat(Op):
    NAME: ClassVar[str] = "concat"
    axis: int = 0

    def infer(self, *types: TensorType | None) -> tuple[TensorType, ...]:
        given = [t for t in types if t is not None]
        if not given or len(given) != len(types):
            raise BadOperator("`concat` needs its operands")
        first = given[0]
        dtype = same_dtype(self.NAME, *[t.dtype for t in given])
        if first.rank == 0:
            raise BadOperator("`concat` of scalars")
        axis = normal_axis(self.axis, first.rank)
        total = 0
        for t in given:
            if t.rank != first.rank or any(t.shape[i] != first.shape[i] for i in range(first.rank) if i != axis):
                shapes = " and ".join(str(list(t.shape)) for t in (first, t))
                beside = [tuple(n for i, n in enumerate(each.shape) if i != axis) for each in (first, t)]
                raise BadOperator(f"`concat` along axis {axis} of {shapes}{apart(*beside)}")
            total += t.shape[axis]
        return (TensorType(dtype, (*first.shape[:axis], total, *first.shape[axis + 1 :])),)

    def reference(self, *arrays: Array | None) -> tuple[Array, ...]:
        return (np.concatenate([a for a in arrays if a is not None], axis=self.axis),)

    def overlay(self, types: list[TensorType | None], out: TensorType) -> tuple[int, ...] | None:
        """Along the outermost axis that has more than one element the operands lie one after the other."""
        axis = normal_axis(self.axis, out.rank)
        sizes = [0 if t is None else t.elements for t in types]
        if out.elements == 0 or math.prod(out.shape[:axis]) != 1:
            return None
        return tuple(sum(sizes[:n]) for n in range(len(sizes)))

    def row_widths(self, types: list[TensorType | None], out: TensorType) -> tuple[int, ...] | None:
        axis = normal_axis(self.axis, out.rank)
        return tuple(0 if t is None else math.prod(t.shape[axis:]) for t in types)


@dataclass(frozen=True, slots=True)
class Roll(Op):
    """roll(kept, new): what is kept moves up along the axis, the oldest falls out, the new comes in at the end.

    Where `kept` is a state that becomes the result, it happens in its own memory."""

    NAME: ClassVar[str] = "roll"
    axis: int = 0

    def infer(self, *types: TensorType | None) -> tuple[TensorType, ...]:
        kept, new = need(self.NAME, types, 2, 2)
        axis = normal_axis(self.axis, kept.rank)
        same = [kept.shape[i] == new.shape[i] for i in range(kept.rank) if i != axis] if new.rank == kept.rank else [False]
        if kept.dtype is not new.dtype or not all(same) or new.shape[axis] > kept.shape[axis]:
            raise BadOperator(f"`roll` of {new} into {kept}")
        return (kept,)

    def reference(self, *arrays: Array | None) -> tuple[Array, ...]:
        kept, new = arrays
        assert kept is not None and new is not None
        return (np.concatenate([np.delete(kept, range(new.shape[self.axis]), self.axis), new], axis=self.axis),)


@dataclass(frozen=True, slots=True)
class Pad(Op):
    """`pads` are (begin..., end...), never negative. `wrap` repeats the axis as often as needed."""

    NAME: ClassVar[str] = "pad"
    pads: tuple[int, ...] = ()
    mode: str = "constant"
    value: float = 0.0

    def infer(self, *types: TensorType | None) -> tuple[TensorType, ...]:
        x = need(self.NAME, types, 1, 1)[0]
        if len(self.pads) != 2 * x.rank or any(n < 0 for n in self.pads):
            raise BadOperator(f"pads {list(self.pads)} do not fit {list(x.shape)}")
        if self.mode not in ("constant", "reflect", "edge", "wrap"):
            raise BadOperator(f"`pad` does not know the mode `{self.mode}`")
        shape = []
        for i, size in enumerate(x.shape):
            before, after = self.pads[i], self.pads[i + x.rank]
            if self.mode != "constant" and most(before + after) and size == 0:
                raise BadOperator(f"`pad` of mode `{self.mode}` along the empty axis {i}")
            if self.mode == "reflect" and larger(before, after) > larger(size - 1, 0):
                raise BadOperator(f"`pad` reflects {larger(before, after)} elements out of {size} along axis {i}")
            shape.append(size + before + after)
        return (TensorType(x.dtype, tuple(shape), x.layout),)

    def reference(self, *arrays: Array | None) -> tuple[Array, ...]:
        x = arrays[0]
        assert x is not None
        widths = [(self.pads[i], self.pads[i + x.ndim]) for i in range(x.ndim)]
        if self.mode == "constant":
            value = self.value if np.issubdtype(x.dtype, np.floating) else int(self.value)
            return (np.pad(x, widths, constant_values=value),)
        if self.mode == "reflect":
            return (np.pad(x, widths, mode="reflect"),)
        return (np.pad(x, widths, mode="edge" if self.mode == "edge" else "wrap"),)


@dataclass(frozen=True, slots=True)
class Tile(Op):
    NAME: ClassVar[str] = "tile"
    repeats: tuple[int, ...] = ()

    def infer(self, *types: TensorType | None) -> tuple[TensorType, ...]:
        x = need(self.NAME, types, 1, 1)[0]
        if len(self.repeats) != x.rank or any(n < 0 for n in self.repeats):
            raise BadOperator(f"repeats {list(self.repeats)} do not fit {list(x.shape)}")
        return (TensorType(x.dtype, tuple(n * r for n, r in zip(x.shape, self.repeats, strict=True))),)

    def reference(self, *arrays: Array | None) -> tuple[Array, ...]:
        assert arrays[0] is not None
        return (np.tile(arrays[0], self.repeats),)


@dataclass(frozen=True, slots=True)
class Trilu(Op):
    """The upper (or lower) triangle of the last two axes, from diagonal `k` on; 0 elsewhere."""

    NAME: ClassVar[str] = "trilu"
    upper: bool = True
    k: int = 0

    def infer(self, *types: TensorType | None) -> tuple[TensorType, ...]:
        x = need(self.NAME, types, 1, 1)[0]
        if x.rank < 2:
            raise BadOperator(f"`trilu` is for matrices, got {list(x.shape)}")
        return (x,)

    def reference(self, *arrays: Array | None) -> tuple[Array, ...]:
        x = arrays[0]
        assert x is not None
        rows, columns = np.arange(x.shape[-2])[:, None], np.arange(x.shape[-1])[None, :]
        k = max(min(self.k, x.shape[-1] + 1), -x.shape[-2] - 1)
        keep = columns - rows >= k if self.upper else columns - rows <= k
        return (np.where(keep, x, np.zeros((), x.dtype)),)


@dataclass(frozen=True, slots=True)
class ReverseSequence(Op):
    """reverse_sequence(x, lens): the first lens[b] elements along `time_axis` of each batch entry, backwards."""

    NAME: ClassVar[str] = "reverse_sequence"
    batch_axis: int = 1
    time_axis: int = 0

    def infer(self, *types: TensorType | None) -> tuple[TensorType, ...]:
        x, lens = need(self.NAME, types, 2, 2)
        if x.rank < 2 or {self.batch_axis, self.time_axis} != {0, 1}:
            raise BadOperator(f"`reverse_sequence` takes time and batch as axes 0 and 1 of {list(x.shape)}")
        if lens.shape != (x.shape[self.batch_axis],) or lens.dtype is not DType.I64:
            raise BadOperator(f"`reverse_sequence` has lengths {lens} for a batch of {x.shape[self.batch_axis]}")
        return (x,)

    def reference(self, *arrays: Array | None) -> tuple[Array, ...]:
        x, lens = arrays
        assert x is not None
        assert lens is not None
        y = np.array(x)
        for b, length in enumerate(lens.tolist()):
            if not 0 <= length <= x.shape[self.time_axis]:
                raise BadOperator(f"a sequence length of {length} out of {x.shape[self.time_axis]}")
            if self.batch_axis == 0:
                y[b, :length] = x[b, :length][::-1]
            else:
                y[:length, b] = x[:length, b][::-1]
        return (y,)
