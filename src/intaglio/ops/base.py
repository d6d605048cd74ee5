"""What an operator is: a frozen dataclass with typed attributes, `infer()` for types and `reference()` in numpy.

    @dataclass(frozen=True, slots=True)
    class Concat(Op):
        NAME: ClassVar[str] = "concat"
        axis: int = 0

        def infer(self, *types): ...
        def reference(self, *arrays): ...

Defining the class registers it: printing, parsing and folding derive from the fields. `reference` defines the result;
it never sees f16 or bf16 (these are stored types: `evaluate` widens to f32 before and rounds after).

`infer` raises `BadOperator` with a sentence about what does not fit; callers add the place.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from intaglio.ir.graph import Array
from intaglio.ir.types import DType, Layout, Shape, TensorType, broadcast_shapes


class BadOperator(Exception):
    """An operator cannot be applied to these operands. The text says why; the caller knows where."""

    def __init__(self, reason: str, hint: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
        self.hint = hint


REGISTRY: dict[str, type[Op]] = {}


@dataclass(frozen=True, slots=True)
class Op:
    NAME: ClassVar[str] = ""
    EFFECT: ClassVar[bool] = False  # True: it matters even when nobody reads its result

    def __init_subclass__(cls) -> None:
        if cls.NAME:
            REGISTRY[cls.NAME] = cls

    def infer(self, *types: TensorType | None) -> tuple[TensorType, ...]:
        raise NotImplementedError(self.NAME)

    def reference(self, *arrays: Array | None) -> tuple[Array, ...]:
        raise NotImplementedError(self.NAME)

    def macs(self, types: list[TensorType | None], out: TensorType) -> int:
        """Multiply-accumulates; operators without them count one per output element where they compute."""
        return 0

    def evaluate(self, arrays: list[Array | None], types: list[TensorType | None]) -> tuple[Array, ...]:
        """`reference` on stored arrays: f16 and bf16 widened before, results rounded to their stored type after."""
        outs = self.infer(*types)
        wide = [None if a is None or t is None else widen(a, t.dtype) for a, t in zip(arrays, types, strict=True)]
        with np.errstate(all="ignore"):
            results = self.reference(*wide)
        return tuple(narrow(np.asarray(r), t.dtype).reshape(t.shape) for r, t in zip(results, outs, strict=False))


def widen(array: Array, dtype: DType) -> Array:
    if dtype is DType.BF16:
        return (array.astype(np.uint32) << 16).view(np.float32)
    if dtype is DType.F16:
        return array.astype(np.float32)
    return array


def narrow(array: Array, dtype: DType) -> Array:
    if dtype is DType.BF16:
        return f32_to_bf16(array.astype(np.float32))
    with np.errstate(all="ignore"):
        return array.astype(dtype.numpy, copy=False)


def f32_to_bf16(array: Array) -> Array:
    """Round to nearest even; NaN stays NaN."""
    bits = np.ascontiguousarray(array, np.float32).view(np.uint32)
    rounded = ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)
    nan = np.isnan(array)
    return np.where(nan, ((bits >> 16) | 0x40).astype(np.uint16), rounded).reshape(array.shape)


@dataclass(frozen=True, slots=True)
class Elementwise(Op):
    """Each output element depends on the broadcast elements of the operands, and on nothing else.

    `compute` gets arrays that broadcast; `result` says the element type of the output."""

    ARITY: ClassVar[int] = 1

    def infer(self, *types: TensorType | None) -> tuple[TensorType, ...]:
        given = [t for t in types if t is not None]
        if len(given) != self.ARITY:
            raise BadOperator(f"`{self.NAME}` takes {self.ARITY} operands, got {len(given)}")
        try:
            shape = broadcast_shapes(*[t.shape for t in given])
        except ValueError as error:
            raise BadOperator(str(error)) from None
        layouts = {t.layout for t in given if t.shape == shape and t.layout is not Layout.NONE}
        layout = layouts.pop() if len(layouts) == 1 else Layout.NONE
        return (TensorType(self.result(*[t.dtype for t in given]), shape, layout),)

    def result(self, *dtypes: DType) -> DType:
        return same_dtype(self.NAME, *dtypes)

    def compute(self, *arrays: Array) -> Array:
        raise NotImplementedError(self.NAME)

    def reference(self, *arrays: Array | None) -> tuple[Array, ...]:
        return (self.compute(*[a for a in arrays if a is not None]),)


def same_dtype(name: str, *dtypes: DType) -> DType:
    if len(set(dtypes)) != 1:
        raise BadOperator(f"`{name}` has operands of different types: {', '.join(d.value for d in dtypes)}")
    return dtypes[0]


@dataclass(frozen=True, slots=True)
class Step:
    """One elementwise operator inside a fused expression. `args` count the operands first, then earlier steps."""

    op: Elementwise
    args: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Chain(Elementwise):
    """Several elementwise operators in one loop: y = chain(x, a, b, steps=[mul(0,1), add(3,2), relu(4)])."""

    NAME: ClassVar[str] = "chain"
    steps: tuple[Step, ...] = ()

    def infer(self, *types: TensorType | None) -> tuple[TensorType, ...]:
        known = [t for t in types if t is not None]
        for step in self.steps:
            known.append(step.op.infer(*[known[i] for i in step.args])[0])
        try:
            shape = broadcast_shapes(*[t.shape for t in known])
        except ValueError as error:
            raise BadOperator(str(error)) from None
        return (TensorType(known[-1].dtype, shape, known[-1].layout),)

    def compute(self, *arrays: Array) -> Array:
        values = list(arrays)
        for step in self.steps:
            values.append(step.op.compute(*[values[i] for i in step.args]))
        return values[-1]


def apply_steps(steps: tuple[Step, ...], operands: list[Array]) -> Array:
    """The numpy meaning of an epilogue: operand 0 is the accumulator."""
    values = list(operands)
    for step in steps:
        values.append(step.op.compute(*[values[i] for i in step.args]))
    return values[-1]


def normal_axis(axis: int, rank: int, what: str = "axis") -> int:
    if not -rank <= axis < max(rank, 1):
        raise BadOperator(f"{what} {axis} is out of range for rank {rank}")
    return axis % rank if rank else 0


def normal_axes(axes: tuple[int, ...], rank: int) -> Shape:
    out = tuple(sorted(normal_axis(a, rank) for a in axes))
    if len(set(out)) != len(out):
        raise BadOperator(f"axes {list(axes)} name an axis twice")
    return out
