"""Matrix products: MatMul, Gemm, Einsum."""

from __future__ import annotations

import math

from intaglio import ops
from intaglio.frontends.onnx.call import Answer, Call, importer
from intaglio.frontends.onnx.faults import Fault
from intaglio.frontends.onnx.rows.build import reshape, transpose
from intaglio.ir.graph import Value
from intaglio.ir.types import DType
from intaglio.ops.matmul import einsum_terms


def matmul(call: Call, a: Value, b: Value) -> Value:
    """numpy's rule for vectors: a missing axis is added and taken away again."""
    if not a.shape or not b.shape:
        raise Fault("shape-mismatch", "`MatMul` of a scalar")
    left = reshape(call, a, (1, *a.shape)) if len(a.shape) == 1 else a
    right = reshape(call, b, (*b.shape, 1)) if len(b.shape) == 1 else b
    y = call.emit(ops.MatMul(), left, right)
    shape = list(y.shape)
    if len(b.shape) == 1:
        del shape[-1]
    if len(a.shape) == 1:
        del shape[-1 if len(b.shape) == 1 else -2]
    return reshape(call, y, shape)


@importer("MatMul")
def matmul_row(call: Call) -> Answer:
    return matmul(call, call.value(0), call.value(1))


@importer("Gemm")
def gemm(call: Call) -> Answer:
    return gemm_by(call, call.value(0), call.value(1), call.maybe(2))


def gemm_by(call: Call, a: Value, b: Value, c: Value | None) -> Value:
    """alpha goes into whichever operand is a constant, else into the product; beta into the bias."""
    alpha, beta = call.real("alpha", 1.0), call.real("beta", 1.0)
    if len(a.shape) != 2 or len(b.shape) != 2:
        raise Fault("shape-mismatch", f"`Gemm` of {list(a.shape)} and {list(b.shape)}")
    op = ops.MatMul(bool(call.integer("transA")), bool(call.integer("transB")))
    if alpha != 1.0 and b.data is not None:
        b, alpha = scaled(call, b, alpha), 1.0
    elif alpha != 1.0 and a.data is not None:
        a, alpha = scaled(call, a, alpha), 1.0
    if c is not None:
        c = None if beta == 0.0 else scaled(call, c, beta)
    if alpha == 1.0:
        return call.emit(op, a, b, c)
    y = scaled(call, call.emit(op, a, b, None), alpha)
    return y if c is None else call.emit(ops.Add(), y, c)


def scaled(call: Call, x: Value, factor: float) -> Value:
    if factor == 1.0:
        return x
    if x.dtype.is_int:
        wide = call.emit(ops.Mul(), call.emit(ops.Cast(DType.F64), x), call.like(factor, call.constant(1.0)))
        return call.emit(ops.Cast(x.dtype), wide)
    return call.emit(ops.Mul(), x, call.like(factor, x))


@importer("Einsum")
def einsum(call: Call) -> Answer:
    """Pairs of operands by transpose, reshape and matmul; a diagonal or a broadcast letter by the general operator."""
    equation = call.text("equation")
    operands = call.values()
    op = ops.Einsum(equation)
    op.infer(*[v.type for v in operands])
    terms, result = einsum_terms(equation, len(operands))
    sizes, dots = op.sizes([v.type for v in operands])
    spare = [c for c in "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz" if c not in sizes]
    letters = "".join(spare[: len(dots)])
    sizes |= dict(zip(letters, dots, strict=True))
    plain = []
    for term, value in zip(terms, operands, strict=True):
        before, ellipsis, after = term.partition("...")
        own = letters[len(letters) - (len(value.shape) - len(before) - len(after)) :] if ellipsis else ""
        text = before + own + after
        if len(set(text)) != len(text) or any(sizes[c] != n for c, n in zip(text, value.shape, strict=True)):
            return call.emit(op, *operands)
        plain.append(text)
    result = result.replace("...", letters)
    text, value = plain[0], operands[0]
    for i in range(1, len(operands)):
        later = set(result).union(*plain[i + 1 :])
        text, value = _pair(call, text, value, plain[i], operands[i], later, sizes)
    text, value = _summed(call, text, value, set(result))
    return transpose(call, value, [text.index(c) for c in result])


def _summed(call: Call, text: str, value: Value, keep: set[str]) -> tuple[str, Value]:
    axes = tuple(i for i, c in enumerate(text) if c not in keep)
    if not axes:
        return text, value
    return "".join(c for c in text if c in keep), call.emit(ops.Reduce("sum", axes, False), value)


def _pair(call: Call, a: str, x: Value, b: str, y: Value, later: set[str], sizes: dict[str, int]) -> tuple[str, Value]:
    a, x = _summed(call, a, x, set(b) | later)
    b, y = _summed(call, b, y, set(a) | later)
    batch = [c for c in a if c in b and c in later]
    inner = [c for c in a if c in b and c not in later]
    left = [c for c in a if c not in b]
    right = [c for c in b if c not in a]

    def size(group: list[str]) -> int:
        return math.prod(sizes[c] for c in group)

    x = transpose(call, x, [a.index(c) for c in batch + left + inner])
    y = transpose(call, y, [b.index(c) for c in batch + inner + right])
    x = reshape(call, x, (size(batch), size(left), size(inner)))
    y = reshape(call, y, (size(batch), size(inner), size(right)))
    z = call.emit(ops.MatMul(), x, y)
    out = batch + left + right
    return "".join(out), reshape(call, z, [sizes[c] for c in out])


@importer("Det")
def det(call: Call) -> Answer:
    return call.emit(ops.Det(), call.value(0))
