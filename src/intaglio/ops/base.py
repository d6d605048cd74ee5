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

from intaglio.ir.graph import Array
from intaglio.ir.operator import REGISTRY, BadOperator, Op, Step, f32_to_bf16, narrow, widen
from intaglio.ir.types import DType, Layout, Shape, TensorType, broadcast_shapes


@dataclass(frozen=True, slots=True)
class Elementwise(Op):
    """Each output element depends on the broadcast elements of the operands, and on nothing else.

    `compute` gets arrays that broadcast; `result` says the element type of the output. `VECTOR`: can kernels compute it in vectors
    of f32? Passes join only such operators with the loops of products and with each other."""

    ARITY: ClassVar[int] = 1
    VECTOR: ClassVar[bool] = False

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


def runs_in_vectors(op: Op) -> bool:
    return isinstance(op, Elementwise) and op.VECTOR


def same_dtype(name: str, *dtypes: DType) -> DType:
    if len(set(dtypes)) != 1:
        raise BadOperator(f"`{name}` has operands of different types: {', '.join(d.value for d in dtypes)}")
    return dtypes[0]


NARROW = (DType.I8, DType.F16)


def product_dtype(name: str, x: DType, weights: DType, *others: DType) -> DType:
    """The element type of a product. Weights of f32 products may be stored small, as i8 or f16: each is widened to f32 before it is
    multiplied. What an i8 means is not the product's matter: a multiplication by the scale of the channel follows."""
    if x is DType.F32 and weights in NARROW:
        return same_dtype(name, x, *others)
    return same_dtype(name, x, weights, *others)


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
            values.append(_compute(step, values))
        return values[-1]


def apply_steps(steps: tuple[Step, ...], operands: list[Array]) -> Array:
    """The numpy meaning of an epilogue: operand 0 is the accumulator."""
    values = list(operands)
    for step in steps:
        values.append(_compute(step, values))
    return values[-1]


def _compute(step: Step, values: list[Array]) -> Array:
    assert isinstance(step.op, Elementwise)
    return step.op.compute(*[values[i] for i in step.args])


def normal_axis(axis: int, rank: int, what: str = "axis") -> int:
    if not -rank <= axis < max(rank, 1):
        raise BadOperator(f"{what} {axis} is out of range for rank {rank}")
    return axis % rank if rank else 0


def normal_axes(axes: tuple[int, ...], rank: int) -> Shape:
    out = tuple(sorted(normal_axis(a, rank) for a in axes))
    if len(set(out)) != len(out):
        raise BadOperator(f"axes {list(axes)} name an axis twice")
    return out


__all__ = [
    "NARROW",
    "REGISTRY",
    "BadOperator",
    "Chain",
    "Elementwise",
    "Op",
    "Step",
    "apply_steps",
    "f32_to_bf16",
    "narrow",
    "normal_axes",
    "normal_axis",
    "product_dtype",
    "runs_in_vectors",
    "same_dtype",
    "widen",
]
