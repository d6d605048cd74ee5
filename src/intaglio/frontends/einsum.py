"""Einsum as matrix products."""

from __future__ import annotations

import math

from intaglio.frontends.building import reshape, transpose
from intaglio.frontends.emitting import Emits
from intaglio.ir.graph import Value
from intaglio.ops.matmul import Einsum, MatMul, einsum_terms
from intaglio.ops.reduce import Reduce


def einsum(call: Emits, equation: str, operands: list[Value]) -> Value:
    """Pairs of operands by transpose, reshape and matmul; a diagonal or a broadcast letter by the general operator."""
    op = Einsum(equation)
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


def _summed(call: Emits, text: str, value: Value, keep: set[str]) -> tuple[str, Value]:
    axes = tuple(i for i, c in enumerate(text) if c not in keep)
    if not axes:
        return text, value
    return "".join(c for c in text if c in keep), call.emit(Reduce("sum", axes, False), value)


def _pair(call: Emits, a: str, x: Value, b: str, y: Value, later: set[str], sizes: dict[str, int]) -> tuple[str, Value]:
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
    z = call.emit(MatMul(), x, y)
    out = batch + left + right
    return "".join(out), reshape(call, z, [sizes[c] for c in out])
