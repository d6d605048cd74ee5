"""Masks: which steps of a tensor count, from the layer that makes them (`Embedding(mask_zero=True)`, `Masking`) to those that
read them.

Keras hangs a mask on a tensor, and what becomes of it depends on the version:

    a sum, a product, ... of tensors      in Keras 2 a step counts where it does in all that have a mask; from 3.4 on where it does
                                          in any, without a mask if one of them has none; from 3.0 to 3.3 there is never a mask
    MultiHeadAttention                    since 3.8 it takes the masks off the tensors that it reads, and its result has that of
                                          the query: in `y = x + MultiHeadAttention(x, x)`, y has a mask in 3.7, and none in 3.8

The version that wrote the file is what counts. Where its masks are not those of the newest Keras, this is a difference, which
`validate` reports. Which of two layers runs first is known where one needs the other's result; otherwise the mask is unclear, and a
layer that would read it is refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import reduce

import numpy as np

from intaglio.frontends.emitting import Emitter
from intaglio.frontends.onnx.faults import unsupported
from intaglio.ir.graph import Value
from intaglio.ir.sizes import moves
from intaglio.ops.base import normal_axis
from intaglio.ops.binary import LogicalAnd, LogicalOr
from intaglio.ops.move import Concat

HINT = "give the masks as `attention_mask`, or give the model object, with Keras on PyTorch (`intaglio.compile(model)`)"
MERGES = {"Add", "Subtract", "Multiply", "Average", "Maximum", "Minimum", "Concatenate"}
# Layers that a mask goes through: that of their first tensor.
_PASS = {
    "Activation", "ReLU", "LeakyReLU", "PReLU", "ELU", "Softmax", "Dense", "Identity", "Dropout", "GaussianDropout",
    "GaussianNoise", "AlphaDropout", "ActivityRegularization",
    "SpatialDropout1D", "SpatialDropout2D", "SpatialDropout3D", "LayerNormalization",
    "BatchNormalization", "GroupNormalization", "UnitNormalization", "Rescaling", "Normalization", "Masking", "TimeDistributed",
}  # fmt: skip
_ATTENTION = {"MultiHeadAttention", "GroupQueryAttention", "Attention", "AdditiveAttention"}
# Rows that know of masks, and layers whose row does not, though Keras reads one.
_READ = {"LSTM", "GRU", "SimpleRNN", "Bidirectional", "GlobalAveragePooling1D", "GlobalAvgPool1D", "Softmax", *_ATTENTION}
_CANNOT = {"RNN", "ConvLSTM1D", "ConvLSTM2D", "ConvLSTM3D"}


@dataclass(slots=True, eq=False)
class Masks:
    version: tuple[int, ...]
    emitter: Emitter
    differences: list[str]
    known: dict[Value, Value] = field(default_factory=dict)  # of tensors whose steps do not all count: bool[batch, time]
    unclear: set[Value] = field(default_factory=set)
    _removed: dict[Value, list[Value]] = field(default_factory=dict)  # by what attention made
    _kept: set[Value] = field(default_factory=set)  # that a newer Keras would remove
    _read: dict[Value, list[list[Value]]] = field(default_factory=dict)  # what layers that a mask mattered to have made

    @property
    def lists_have_masks(self) -> bool:
        return not (3,) <= self.version < (3, 4)

    def copy(self, value: Value, made: Value) -> None:
        """Of another element type: masks are on both, and attention takes them off one."""
        if value in self.known:
            self.known[made] = self.known[value]
        for these in (self.unclear, self._kept):
            if value in these:
                these.add(made)
        if value in self._removed:
            self._removed[made] = self._removed[value]

    def check(self, kind: str, operands: Sequence[Value], told: bool) -> None:
        """Can a layer be imported that is called with these? `told`: with a mask of its own."""
        if kind in _CANNOT and (told or any(v in self.known or self._is_unclear(v, operands) for v in operands)):
            raise unsupported("it reads a mask (of `mask_zero` or `Masking`), which is not supported in this layer", HINT)
        if kind not in _READ or told:
            return
        if any(self._is_unclear(v, operands) for v in operands):
            raise unsupported("it reads a mask, and what becomes of it depends on the version of Keras, or on an order", HINT)
        if any(v in self._kept for v in operands):
            self.differs("attention leaves masks on what it reads")

    def was_read(self, operands: Iterable[Value], results: list[Value]) -> None:
        for value in operands:
            if value in self.known:
                self._read.setdefault(value, []).append(results)

    def take_off(self, tensors: Sequence[Value], results: list[Value]) -> None:
        """What MultiHeadAttention does to the tensors that it reads."""
        for value in dict.fromkeys(tensors):
            if value not in self.known:
                continue
            if self.version < (3, 8):
                self._kept.add(value)
                continue
            if not all(self._follows(tensors, made) for made in self._read.get(value, [])):
                what = "it takes the mask off a tensor that another layer reads, and which of them runs first is not known"
                raise unsupported(what, HINT)
            del self.known[value]
            self._removed.setdefault(value, []).extend(results)

    def pass_on(self, kind: str, axis: object, operands: list[Value], told: Value | None, values: list[Value]) -> None:
        """Results of layers that a mask goes through have it too."""
        if kind not in _PASS and kind not in MERGES:
            return
        first = operands if kind in MERGES else operands[:1]
        concerned = any(v in self.known or self._is_unclear(v, operands) for v in first)
        if not concerned and told is None:
            return
        if kind in MERGES and not self.lists_have_masks:
            self.differs("what is made of several tensors has no mask")
            return
        if told is None and any(v in self._kept for v in first):
            self.differs("attention leaves masks on what it reads")
        for value in values:
            if value in self.known or value in operands:
                continue
            if told is None and any(self._is_unclear(v, operands) for v in first):
                mask, clear = None, kind in MERGES and self.version >= (3, 4) and any(self._is_bare(v, operands) for v in first)
            elif kind in MERGES:
                mask, clear = self._merged(kind, axis, operands, value)
            else:
                mask, clear = told or self.known[operands[0]], True
            if mask is not None and clear and mask.shape == value.shape[:2]:
                self.known[value] = mask
            elif mask is not None or not clear:
                self.unclear.add(value)

    def _merged(self, kind: str, axis: object, operands: list[Value], value: Value) -> tuple[Value | None, bool]:
        """The mask of a result of several tensors, and whether that is known."""
        masks = [self.known.get(v) for v in operands]
        found = [m for m in dict.fromkeys(masks) if m is not None]
        new, alike = self.version >= (3, 4), len(found) == 1 and None not in masks
        if not new and not alike:  # Keras 2
            self.differs("a step counts where it does in every tensor with a mask")
        if any(m.shape != found[0].shape for m in found):
            return None, False
        join = LogicalOr() if new else LogicalAnd()
        if kind != "Concatenate":
            return (None, True) if new and None in masks else (reduce(lambda a, b: self._emit(join, a, b), found), True)
        along = normal_axis(axis, value.type.rank) if type(axis) is int else -1
        if value.type.rank == 3 and along == 1 and None not in masks:
            return self._emit(Concat(1), *(m for m in masks if m is not None)), True
        if value.type.rank != 3 or along != 2:
            return None, False
        if not new or None not in masks:
            return reduce(lambda a, b: self._emit(join, a, b), found), True
        shape = value.shape[:2]
        return (None, False) if moves(shape) else (self.emitter.constant(np.ones(shape, np.bool_)), True)

    def _emit(self, op: Concat | LogicalOr | LogicalAnd, *operands: Value) -> Value:
        return self.emitter.emit(op, list(operands))[0]

    def _is_unclear(self, value: Value, operands: Sequence[Value]) -> bool:
        removed = self._removed.get(value)
        return value in self.unclear or (removed is not None and not self._follows(operands, removed))

    def _is_bare(self, value: Value, operands: Sequence[Value]) -> bool:
        return value not in self.known and not self._is_unclear(value, operands)

    def _follows(self, values: Iterable[Value], made: Iterable[Value]) -> bool:
        """Is one of the values computed from what was made, or that itself?"""
        wanted, waiting, seen = set(made), list(values), set(values)
        producers = {out: node for node in self.emitter.nodes for out in node.outputs}
        while waiting:
            value = waiting.pop()
            if value in wanted:
                return True
            node = producers.get(value)
            new = {v for v in node.inputs if v is not None} - seen if node is not None else set()
            seen |= new
            waiting += new
        return False

    def differs(self, what: str) -> None:
        told = f"masks are those of Keras {'.'.join(map(str, self.version))}, which wrote the file: {what}"
        if told not in self.differences:
            self.differences.append(told)
