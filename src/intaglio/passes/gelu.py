"""GELU that an exporter spells out is one operator again, so that the product in front of it applies it before it stores.

Both forms are products of x, of a constant and of 1 + f(...). Exporters write the factors in every order, so a product is taken
apart into its factors first.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from intaglio.ir.graph import Graph, Node, Value
from intaglio.ir.types import DType
from intaglio.ops.activation import Gelu, Tanh
from intaglio.ops.binary import Add, Mul
from intaglio.ops.unary import Erf
from intaglio.passes.context import Context
from intaglio.passes.rewriting import Editor, scalar_of

_DEPTH = 3  # products inside of a product that are taken apart
_ROOT_HALF, _ROOT_TWO_PI, _CUBE = math.sqrt(0.5), math.sqrt(2 / math.pi), 0.044715


def recognise_gelu(graph: Graph, context: Context) -> Graph:
    """x * 0.5 * (1 + erf(x / sqrt(2))), or with tanh(sqrt(2 / pi) * (x + 0.044715 * x^3)), is one operator.

        a = mul(x, 0.70710677);  e = erf(a);  p = add(e, 1.0)
        m = mul(x, p);           y = mul(m, 0.5)                  ->     y = gelu(x)

    The factors may stand in any order. Skipped for other constants, other types than f32, and across guards."""
    edit = Editor(graph)
    for node in graph.nodes:
        edit.take(node)
        found = _gelu(edit, node) if isinstance(node.op, Mul) and node.output.dtype is DType.F32 else None
        if found is not None:
            node.op, node.inputs = found[0], [found[1]]
            edit.changed = True
        edit.keep(node)
    return edit.finish()


@dataclass(frozen=True, slots=True)
class _Product:
    """A constant times values; a value may stand here several times."""

    factor: float
    values: tuple[Value, ...]


def _made(edit: Editor, value: Value, node: Node) -> Node | None:
    producer = edit.made.get(value)
    return producer if producer is not None and producer.when is node.when else None


def _product(edit: Editor, values: list[Value | None], node: Node, depth: int = _DEPTH) -> _Product:
    """The factors of a product, of which only those with the shape of `node` are taken apart."""
    factor = 1.0
    found: list[Value] = []
    for value in values:
        if value is None:
            continue
        number, producer = scalar_of(value), _made(edit, value, node)
        if number is not None:
            factor *= number
        elif producer is not None and isinstance(producer.op, Mul) and depth and value.shape == node.output.shape:
            inner = _product(edit, producer.inputs, node, depth - 1)
            factor *= inner.factor
            found.extend(inner.values)
        else:
            found.append(value)
    return _Product(factor, tuple(found))


def _one_plus(edit: Editor, value: Value, node: Node) -> Value | None:
    """z where the value is 1 + z."""
    producer = _made(edit, value, node)
    if producer is None or not isinstance(producer.op, Add):
        return None
    for n in (0, 1):
        if scalar_of(producer.inputs[n]) == 1.0:
            return producer.inputs[1 - n]
    return None


def _close(a: float, b: float) -> bool:
    return math.isclose(a, b, rel_tol=2e-6)


def _gelu(edit: Editor, node: Node) -> tuple[Gelu, Value] | None:
    whole = _product(edit, list(node.inputs), node)
    if not _close(whole.factor, 0.5) or len(whole.values) != 2:
        return None
    for x, gate in (whole.values, whole.values[::-1]):
        bent = _one_plus(edit, gate, node)
        curve = _made(edit, bent, node) if bent is not None else None
        if curve is None or x.shape != node.output.shape or curve.output.shape != x.shape:
            continue
        if isinstance(curve.op, Erf):
            inner = _product(edit, list(curve.inputs), node)
            if _close(inner.factor, _ROOT_HALF) and inner.values == (x,):
                return Gelu(), x
        if isinstance(curve.op, Tanh) and _is_cubic(edit, _product(edit, list(curve.inputs), node), x, node):
            return Gelu(approximate=True), x
    return None


def _is_cubic(edit: Editor, inner: _Product, x: Value, node: Node) -> bool:
    """Is this sqrt(2 / pi) * (x + 0.044715 * x^3), or sqrt(2 / pi) * x * (1 + 0.044715 * x^2)?"""
    if not _close(inner.factor, _ROOT_TWO_PI):
        return False
    if len(inner.values) == 1:
        total = _made(edit, inner.values[0], node)
        if total is None or not isinstance(total.op, Add):
            return False
        sides = [_product(edit, [value], node) for value in total.inputs]
        return any(sides[n] == _Product(1.0, (x,)) and _is_power(sides[1 - n], x, 3) for n in (0, 1))
    if len(inner.values) != 2 or x not in inner.values:
        return False
    other = inner.values[1] if inner.values[0] is x else inner.values[0]
    square = _one_plus(edit, other, node)
    return square is not None and _is_power(_product(edit, [square], node), x, 2)


def _is_power(term: _Product, x: Value, exponent: int) -> bool:
    return _close(term.factor, _CUBE) and term.values == (x,) * exponent
