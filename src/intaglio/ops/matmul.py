"""Matrix products: matmul, einsum, det."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from intaglio.ir.graph import Array
from intaglio.ir.types import Shape, TensorType, broadcast_shapes
from intaglio.ops.base import BadOperator, Op, Step, apply_steps, product_dtype, same_dtype
from intaglio.ops.control import need
from intaglio.ops.numeric import numeric


@dataclass(frozen=True, slots=True)
class MatMul(Op):
    """matmul(a, b, bias?, *extra) over the last two axes, batch axes broadcast as in numpy.

    The epilogue sees the accumulator (bias added) as operand 0, then `extra`. A right side of i8 or f16 may stand beside a left one
    of f32 (`product_dtype`)."""

    NAME: ClassVar[str] = "matmul"
    transpose_a: bool = False
    transpose_b: bool = False
    epilogue: tuple[Step, ...] = ()

    def infer(self, *types: TensorType | None) -> tuple[TensorType, ...]:
        if len(types) < 2 or types[0] is None or types[1] is None:
            raise BadOperator("`matmul` needs two matrices")
        a, b = types[0], types[1]
        bias = types[2] if len(types) > 2 else None
        dtype = product_dtype(self.NAME, a.dtype, b.dtype, *[bias.dtype] if bias is not None else [])
        if a.rank < 2 or b.rank < 2:
            raise BadOperator(f"`matmul` is for matrices, got ranks {a.rank} and {b.rank}")
        m, k = a.shape[-2:][::-1] if self.transpose_a else a.shape[-2:]
        k2, n = b.shape[-2:][::-1] if self.transpose_b else b.shape[-2:]
        if k != k2:
            raise BadOperator(f"`matmul` of {list(a.shape)} and {list(b.shape)}: inner sizes {k} and {k2} differ")
        try:
            shape = (*broadcast_shapes(a.shape[:-2], b.shape[:-2]), m, n)
            if bias is not None and broadcast_shapes(shape, bias.shape) != shape:
                raise BadOperator(f"a bias of {list(bias.shape)} does not fit a product of {list(shape)}")
            known = [TensorType(dtype, shape), *[t for t in types[3:] if t is not None]]
            for step in self.epilogue:
                known.append(step.op.infer(*[known[i] for i in step.args])[0])
            if broadcast_shapes(*[t.shape for t in known]) != shape:
                raise BadOperator("an epilogue changes the shape of its product")
        except ValueError as error:
            raise BadOperator(str(error)) from None
        return (TensorType(known[-1].dtype, shape),)

    def reference(self, *arrays: Array | None) -> tuple[Array, ...]:
        a, b = arrays[0], arrays[1]
        bias = arrays[2] if len(arrays) > 2 else None
        assert a is not None
        assert b is not None
        left = np.swapaxes(a, -1, -2) if self.transpose_a else a
        right = (np.swapaxes(b, -1, -2) if self.transpose_b else b).astype(a.dtype, copy=False)
        y = np.matmul(left, right)
        if bias is not None:
            y = np.add(y, bias)
        return (apply_steps(self.epilogue, [y, *[x for x in arrays[3:] if x is not None]]),)

    def macs(self, types: list[TensorType | None], out: TensorType) -> int:
        a = types[0]
        return 0 if a is None else out.elements * a.shape[-2 if self.transpose_a else -1]


def einsum_terms(equation: str, count: int) -> tuple[list[str], str]:
    """The subscripts of the operands and of the result, without blanks; an implicit result is made explicit."""
    text = equation.replace(" ", "")
    left, arrow, right = text.partition("->")
    terms = left.split(",")
    if len(terms) != count:
        raise BadOperator(f"the equation `{equation}` is for {len(terms)} operands, got {count}")
    for term in [*terms, right]:
        letters = term.replace("...", "", 1)
        if letters and not (letters.isascii() and letters.isalpha()):
            raise BadOperator(f"the equation `{equation}` is malformed")
    if not arrow:
        letters = "".join(sorted(c for c in set(left) if c.isalpha() and left.count(c) == 1))
        right = ("..." if "..." in left else "") + letters
    return terms, right


@dataclass(frozen=True, slots=True)
class Einsum(Op):
    NAME: ClassVar[str] = "einsum"
    equation: str = ""

    def sizes(self, types: list[TensorType]) -> tuple[dict[str, int], Shape]:
        """The size of each letter, and the shape that `...` stands for."""
        terms, _ = einsum_terms(self.equation, len(types))
        sizes: dict[str, int] = {}
        dots: Shape = ()
        for term, type_ in zip(terms, types, strict=True):
            before, ellipsis, after = term.partition("...")
            named = len(before) + len(after)
            if named > type_.rank or (not ellipsis and named != type_.rank):
                raise BadOperator(f"the subscripts `{term}` do not fit rank {type_.rank}")
            last = type_.rank - len(after)
            try:
                dots = broadcast_shapes(dots, type_.shape[len(before) : last]) if ellipsis else dots
            except ValueError as error:
                raise BadOperator(str(error)) from None
            pairs = [*zip(before, type_.shape, strict=False), *zip(after, type_.shape[last:], strict=True)]
            for letter, size in pairs:
                if sizes.setdefault(letter, size) != size:
                    if 1 not in (size, sizes[letter]):
                        raise BadOperator(f"`{letter}` in `{self.equation}` is both {sizes[letter]} and {size}")
                    sizes[letter] = max(size, sizes[letter])
        return sizes, dots

    def infer(self, *types: TensorType | None) -> tuple[TensorType, ...]:
        given = [t for t in types if t is not None]
        if not given:
            raise BadOperator("`einsum` needs operands")
        dtype = same_dtype(self.NAME, *[t.dtype for t in given])
        sizes, dots = self.sizes(given)
        _, right = einsum_terms(self.equation, len(given))
        before, ellipsis, after = right.partition("...")
        missing = set(before + after) - set(sizes)
        if missing or len(set(before + after)) != len(before + after):
            raise BadOperator(f"the result of `{self.equation}` names a subscript that is not there, or one twice")
        middle = dots if ellipsis else ()
        return (TensorType(dtype, (*[sizes[c] for c in before], *middle, *[sizes[c] for c in after])),)

    def reference(self, *arrays: Array | None) -> tuple[Array, ...]:
        given = [numeric(a) for a in arrays if a is not None]
        terms, right = einsum_terms(self.equation, len(given))
        return (np.asarray(np.einsum(",".join(terms) + "->" + right, *given)),)

    def macs(self, types: list[TensorType | None], out: TensorType) -> int:
        sizes, dots = self.sizes([t for t in types if t is not None])
        total = 1
        for size in [*sizes.values(), *dots]:
            total *= size
        return total


@dataclass(frozen=True, slots=True)
class Det(Op):
    """The determinant over the last two axes."""

    NAME: ClassVar[str] = "det"

    def infer(self, *types: TensorType | None) -> tuple[TensorType, ...]:
        x = need(self.NAME, types, 1, 1)[0]
        if x.rank < 2 or x.shape[-1] != x.shape[-2] or not x.dtype.is_float:
            raise BadOperator(f"`det` is for square matrices of floating point, got {x}")
        return (TensorType(x.dtype, x.shape[:-2]),)

    def reference(self, *arrays: Array | None) -> tuple[Array, ...]:
        assert arrays[0] is not None
        return (np.asarray(np.linalg.det(arrays[0].astype(np.float64))).astype(arrays[0].dtype),)
