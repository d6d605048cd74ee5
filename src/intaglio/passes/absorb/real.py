"""What quantisation says about a value: which integers it was made from, and how."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from intaglio.ir.graph import Array, Graph, Node, Value
from intaglio.ir.operator import Op
from intaglio.ir.types import DType, Quant
from intaglio.ops.convert import Dequantize, Quantize
from intaglio.passes.rewriting import Editor, count_readers


@dataclass(frozen=True, slots=True)
class Real:
    """value = (stored - zero) * scale; scale and zero broadcast against stored."""

    stored: Value
    scale: Array
    zero: Array

    @property
    def single(self) -> bool:
        return self.scale.size == 1 and self.zero.size == 1

    @property
    def step(self) -> np.float32:
        return np.float32(self.scale.reshape(-1)[0])

    @property
    def origin(self) -> int:
        return int(self.zero.reshape(-1)[0])

    def like(self, other: Real | Grid) -> bool:
        return self.single and self.step == other.step and self.origin == other.origin


@dataclass(frozen=True, slots=True)
class Grid:
    """Where a Quantize puts its numbers."""

    step: np.float32
    origin: int
    low: int
    high: int
    to: DType
    half_away: bool = False

    def place(self, real: float) -> int:
        """The integer of a number, as Quantize rounds it."""
        if np.isinf(real):
            return self.low if real < 0 else self.high
        scaled = np.float32(real) / self.step
        rounded = np.sign(scaled) * np.floor(abs(scaled) + np.float32(0.5)) if self.half_away else np.rint(scaled)
        return int(min(max(float(rounded) + self.origin, self.low), self.high))

    @property
    def quant(self) -> Quant:
        return Quant((float(self.step),), (self.origin,))


def real_of_node(node: Node) -> Real | None:
    """The Real that a Dequantize with constant parameters gives."""
    if not isinstance(node.op, Dequantize) or node.op.to is not DType.F32:
        return None
    stored, scale, zero = node.inputs
    if stored is None or scale is None or zero is None or scale.data is None or zero.data is None:
        return None
    if scale.dtype is not DType.F32:
        return None
    return Real(stored, scale.data, zero.data.astype(np.int64))


def grid_of(node: Node) -> Grid | None:
    """The Grid of a Quantize with one constant scale and zero point."""
    op = node.op
    if not isinstance(op, Quantize):
        return None
    x, scale, zero = node.inputs
    if x is None or scale is None or zero is None or scale.data is None or zero.data is None or scale.data.size != 1:
        return None
    if zero.data.size != 1 or x.dtype is not DType.F32 or scale.dtype is not DType.F32:
        return None
    step, origin = np.float32(scale.data.reshape(-1)[0]), int(zero.data.reshape(-1)[0])
    return Grid(step, origin, op.low, op.high, op.to, op.half_away)


@dataclass(slots=True)
class Absorber:
    """The state of one absorption: what is made so far, what is real, who reads what.

    `fixed`: results scale in fixed point, for models that are quantised here; else by floats, as ONNX Runtime does."""

    edit: Editor
    fixed: bool
    floats: frozenset[str] = frozenset()  # results of operators that are to stay in floating point
    reals: dict[Value, Real] = field(default_factory=dict)
    readers: dict[Value, int] = field(default_factory=dict)

    @staticmethod
    def of(graph: Graph, fixed: bool, floats: frozenset[str]) -> Absorber:
        return Absorber(Editor(graph), fixed, floats, readers=count_readers(graph))

    @property
    def graph(self) -> Graph:
        return self.edit.graph

    def real(self, value: Value | None) -> Real | None:
        return None if value is None else self.reals.get(value)

    def producer(self, value: Value | None, like: Node) -> Node | None:
        """Who makes a value that nobody else reads, under the same guard."""
        node = None if value is None else self.edit.made.get(value)
        if node is None or value is None or self.readers.get(value, 0) > 1 or node.when is not like.when or len(node.outputs) > 1:
            return None
        return node

    def emit(self, op: Op, inputs: list[Value | None], like: Node) -> Value:
        return self.edit.emit(op, inputs, like)

    def constant(self, data: Array, stem: str = "c") -> Value:
        return self.graph.constant(stem, data)

    def dequantised(self, stored: Value, real: Real, like: Node) -> Value:
        """The floats of integers, with the parameters of `real`."""
        scale, zero = real.scale.reshape(()), real.zero.reshape(()).astype(stored.dtype.numpy)
        y = self.emit(Dequantize(DType.F32), [stored, self.constant(scale, "scale"), self.constant(zero, "zero")], like)
        self.reals[y] = Real(stored, scale, zero.astype(np.int64))
        return y
