"""How far any correct implementation in f32 may be from the real numbers: computed from the graph, not guessed.

Each value has three arrays: what it is in doubles, the magnitude of its terms (sums without their cancellation), and a bound of its
error. A rule per operator takes those of the operands to those of the result. Magnitudes instead of values make a bound hold for
every order in which sums are added and factors are multiplied out, so it holds for the graph before and after passes.

    add         |error| <= ea + eb + 2 u (ma + mb)                       u = 2^-24
    matmul      |error| <= |ex| |w| + (K + 4) u (mx |w|)                 K products in a sum
    quantize    the integers between the quotients of x - e and x + e

`None` where an operator has no rule. Infinite where a rule says nothing: a division by what may be zero.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from intaglio.ir.graph import Array, Graph, Node, Value
from intaglio.ir.types import DType
from intaglio.ops import activation, binary, convert, index, move, norm, pool, reduce, unary
from intaglio.ops.base import Op, normal_axis
from intaglio.ops.control import Copy
from intaglio.ops.conv import Conv, ConvTranspose
from intaglio.ops.matmul import MatMul
from intaglio.ops.trees import BASE, FEATURES, ROOTS, THRESHOLDS, WEIGHTS, TreeEnsemble

U = 2.0**-24
FUNCTION = (
    16.0  # units in the last place of a function; the worst of ours is measured at 4 (tests/kernels/test_scalar_functions.py)
)
TINY = 2.0**-126  # results below the normal numbers may be zero, each product and sum of them
# Slopes of functions, and the size of the numbers that are added on their way: 0 is the operand's own.
SLOPES: dict[type[Op], tuple[float, float]] = {
    activation.Sigmoid: (0.25, 1.0), activation.Tanh: (1.0, 1.0), activation.Softsign: (1.0, 1.0),
    activation.HardSigmoid: (1.0, 1.0),
    activation.Softplus: (1.0, 1.0), activation.Silu: (1.1, 0.0), activation.Mish: (1.1, 0.0), activation.Gelu: (1.13, 0.0),
    activation.HardSwish: (1.5, 0.0), unary.Sin: (1.0, 1.0), unary.Cos: (1.0, 1.0),
}  # fmt: skip
SAME = (activation.Relu, activation.Clip, unary.Neg, unary.Abs, Copy)
MOVES = (move.Transpose, move.Reshape, move.Expand, move.Slice, move.Concat, move.Tile, move.Roll, move.Trilu, index.Gather)


@dataclass(frozen=True, slots=True)
class Known:
    value: Array
    magnitude: Array
    error: Array

    @staticmethod
    def exactly(array: Array) -> Known:
        wide = np.asarray(array, np.float64)
        return Known(wide, np.abs(wide), np.zeros_like(wide))


Rule = Callable[[Node, list[Known]], Known | None]


def error_bounds(graph: Graph, inputs: Mapping[str, Array], *, winograd: bool = False) -> dict[str, Known] | None:
    """Of every value, by name. None where an operator has no rule. `winograd`: 3x3 convolutions may be computed by it."""
    found = some_error_bounds(graph, inputs, winograd=winograd)
    return found if all(value.name in found for node in graph.nodes for value in node.outputs) else None


def some_error_bounds(graph: Graph, inputs: Mapping[str, Array], *, winograd: bool = False) -> dict[str, Known]:
    """The same, without the values that an operator without a rule makes, and without those behind them."""
    known: dict[Value, Known] = {v: Known.exactly(inputs[v.name]) for v in graph.inputs}
    with np.errstate(all="ignore"):
        for node in graph.nodes:
            operands = [v for v in node.inputs if v is not None]
            if node.when is not None or len(node.outputs) != 1 or any(v.data is None and v not in known for v in operands):
                continue
            made = _bound(node, [known[v] if v.data is None else Known.exactly(v.data) for v in operands], winograd)
            if made is not None:
                known[node.output] = made
    return {value.name: found for value, found in known.items()}


def _bound(node: Node, given: list[Known], winograd: bool) -> Known | None:
    op = node.op
    if not node.output.dtype.is_float and not isinstance(op, convert.Quantize):
        return _exact(node, given)
    if getattr(op, "epilogue", ()) or node.output.dtype not in (DType.F32, DType.I8, DType.U8):
        return None
    rule = RULES.get(type(op))
    made = _same(node, given) if rule is None and isinstance(op, SAME) else None
    if rule is None and isinstance(op, MOVES):
        made = _moved(node, given)
    elif rule is None and type(op) in SLOPES:
        made = _function(node, given)
    elif rule is not None:
        made = rule(node, given)
    if made is not None and winograd and isinstance(op, Conv):
        made = replace(made, error=made.error + _winograd(op, given))
    return made


def _run(op: Op, *arrays: Array) -> Array:
    return np.asarray(op.reference(*arrays)[0], np.float64)


def _exact(node: Node, given: list[Known]) -> Known | None:
    """Integers and conditions follow exactly, where what they are made of is exact."""
    if any(np.any(g.error > 0) for g in given):
        return None
    known = iter(_stored(node, given, 0))
    operands = [None if v is None else next(known) for v in node.inputs]
    return Known.exactly(np.asarray(node.op.reference(*operands)[0]))


def _same(node: Node, given: list[Known]) -> Known:
    (x,) = given
    return Known(_run(node.op, x.value), x.magnitude, x.error)


def _moved(node: Node, given: list[Known]) -> Known:
    count = len(given) if isinstance(node.op, move.Concat) else 1
    rest = [g.value.astype(np.int64) for g in given[count:]]
    return Known(*(_run(node.op, *[getattr(g, part) for g in given[:count]], *rest) for part in ("value", "magnitude", "error")))


def _pad(node: Node, given: list[Known]) -> Known:
    op = node.op
    assert isinstance(op, move.Pad)
    x, zero, size = given[0], replace(op, value=0.0), replace(op, value=abs(op.value))
    return Known(_run(op, x.value), _run(size, x.magnitude), _run(zero, x.error))


def _function(node: Node, given: list[Known]) -> Known:
    (x,) = given
    slope, size = SLOPES[type(node.op)]
    y = _run(node.op, x.value)
    magnitude = np.abs(y) + (size or x.magnitude)
    return Known(y, magnitude, slope * x.error + FUNCTION * U * magnitude)


def _scaled(slope: float) -> Rule:
    def rule(node: Node, given: list[Known]) -> Known:
        (x,) = given
        steep = max(1.0, abs(float(getattr(node.op, "alpha", slope))))
        magnitude = steep * x.magnitude + 1.0
        return Known(_run(node.op, x.value), magnitude, steep * x.error + FUNCTION * U * magnitude)

    return rule


def _exp(node: Node, given: list[Known]) -> Known:
    (x,) = given
    y = _run(node.op, x.value)
    return Known(y, y, y * np.expm1(x.error + 2 * U * x.magnitude) + FUNCTION * U * y + TINY)


def _expm1(node: Node, given: list[Known]) -> Known:
    (x,) = given
    y = _run(node.op, x.value)
    return Known(y, np.abs(y), (np.abs(y) + 1) * np.expm1(x.error) + FUNCTION * U * np.abs(y) + TINY)


def _log1p(node: Node, given: list[Known]) -> Known:
    (x,) = given
    y, least = _run(node.op, x.value), 1 + x.value - x.error
    error = np.where(x.error == 0, 0, np.where(least > 0, x.error / np.maximum(least, 1e-300), np.inf))
    return Known(y, np.abs(y), error + FUNCTION * U * np.abs(y) + TINY)


def _trees(node: Node, given: list[Known]) -> Known | None:
    """Sums of the leaves that are reached, where no feature is so near to a threshold that it may go the other way. Sums of whole
    numbers in place of floats (`kernels/tree_tables.py`) are nearer than this."""
    op, x = node.op, given[0]
    assert isinstance(op, TreeEnsemble)
    if op.aggregate not in ("sum", "average"):
        return None
    features, thresholds = given[FEATURES].value.astype(np.int64), given[THRESHOLDS].value
    for feature in np.unique(features):
        at = np.sort(thresholds[features == feature])
        low, high = x.value[:, feature] - x.error[:, feature], x.value[:, feature] + x.error[:, feature]
        if np.any((x.error[:, feature] > 0) & (np.searchsorted(at, low) != np.searchsorted(at, high, "right"))):
            return None
    tables, sizes = ([x.value.astype(np.float32), *_stored(node, given[1:], 1)] for _ in range(2))
    for n in (WEIGHTS, BASE):
        tables[n], sizes[n] = given[n].value, np.abs(given[n].value)
    y, magnitude = _run(op, *tables), _run(op, *sizes)
    trees = len(given[ROOTS].value)
    largest = float(np.abs(given[WEIGHTS].value).max(initial=0.0)) * trees + float(np.abs(given[BASE].value).max(initial=0.0))
    return Known(y, magnitude, (trees + 3) * U * (magnitude + largest / 64) + TINY)


def _sqrt(node: Node, given: list[Known]) -> Known:
    (x,) = given
    y = _run(node.op, x.value)
    error = np.where(x.value - x.error > 0, x.error / (2 * np.sqrt(np.maximum(x.value - x.error, 1e-300))), np.inf)
    return Known(y, y, np.where(x.error == 0, 0, error) + 2 * U * y)


def _sum(node: Node, given: list[Known]) -> Known:
    a, b = given
    magnitude = a.magnitude + b.magnitude
    return Known(_run(node.op, a.value, b.value), magnitude, a.error + b.error + 2 * U * magnitude + TINY)


def _product(node: Node, given: list[Known]) -> Known:
    a, b = given
    magnitude = a.magnitude * b.magnitude
    error = np.abs(a.value) * b.error + np.abs(b.value) * a.error + a.error * b.error
    return Known(a.value * b.value, magnitude, error + 2 * U * magnitude + TINY)


def _quotient(node: Node, given: list[Known]) -> Known:
    a, b = given
    y, least = a.value / b.value, np.abs(b.value) - b.error
    magnitude = a.magnitude / np.abs(b.value)
    return Known(
        y, magnitude, np.where(least > 0, (a.error + np.abs(y) * b.error) / np.maximum(least, 1e-300), np.inf) + 4 * U * magnitude
    )


def _extreme(node: Node, given: list[Known]) -> Known:
    a, b = given
    return Known(_run(node.op, a.value, b.value), np.maximum(a.magnitude, b.magnitude), np.maximum(a.error, b.error))


def _where(node: Node, given: list[Known]) -> Known:
    test, a, b = given
    return Known(*(np.where(test.value != 0, getattr(a, part), getattr(b, part)) for part in ("value", "magnitude", "error")))


def _products(node: Node, given: list[Known]) -> Known:
    """Sums of products: convolutions and matrix products, with a bias or without."""
    x, w, *bias = given
    op, added = node.op, [b.value for b in bias]
    absolute = [np.abs(b) for b in added]
    magnitude = _run(op, x.magnitude, w.magnitude, *absolute)
    error = _run(op, x.error, np.abs(w.value)) + _run(op, np.abs(x.value) + x.error, w.error)
    error = error + (float(np.max(bias[0].error, initial=0.0)) if bias else 0.0)
    terms = w.value.size // max(1, w.value.shape[0]) if not isinstance(op, MatMul) else x.value.shape[-2 if op.transpose_a else -1]
    return Known(_run(op, x.value, w.value, *added), magnitude, error + (terms + 4) * (U * magnitude + 2 * TINY))


def _winograd(op: Conv, given: list[Known]) -> Array | float:
    """docs/reference/exactness.md; the larger of both."""
    x, w = given[0], given[1]
    if w.value.shape[2:] != (3, 3) or set(op.strides) != {1} or set(op.dilations) != {1} or op.group != 1:
        return 0.0
    channels = w.value.shape[1]
    sizes = float(np.max(x.magnitude, initial=0.0)) * float(np.max(w.magnitude, initial=0.0))
    return U * 752 * channels * (4 * 6 + channels) * sizes


def _averages(node: Node, given: list[Known]) -> Known:
    (x,) = given
    op = node.op
    assert isinstance(op, pool.AveragePool)
    magnitude = _run(op, x.magnitude)
    return Known(_run(op, x.value), magnitude, _run(op, x.error) + (math.prod(op.kernel) + 4) * U * magnitude)


def _largest(node: Node, given: list[Known]) -> Known:
    (x,) = given
    return Known(*(_run(node.op, part) for part in (x.value, x.magnitude, x.error)))


def _reduced(node: Node, given: list[Known]) -> Known | None:
    (x,) = given
    op = node.op
    assert isinstance(op, reduce.Reduce)
    if op.kind not in ("sum", "mean", "max", "min"):
        return None
    if op.kind in ("max", "min"):
        most = replace(op, kind="max")
        return Known(_run(op, x.value), _run(most, x.magnitude), _run(most, x.error))
    magnitude = _run(op, x.magnitude)
    terms = x.value.size // max(1, magnitude.size)
    return Known(_run(op, x.value), magnitude, _run(op, x.error) + (terms + 4) * (U * magnitude + TINY))


def _softmax(node: Node, given: list[Known]) -> Known:
    (x,) = given
    op = node.op
    assert isinstance(op, reduce.Softmax)
    y = _run(op, x.value)
    moved = 2 * np.max(x.error + 2 * U * x.magnitude, axis=op.axis, keepdims=True, initial=0.0)
    return Known(y, np.ones_like(y), y * np.expm1(moved) + (x.value.shape[op.axis] + 2 * FUNCTION) * U * y + TINY)


def _layer_norm(node: Node, given: list[Known]) -> Known:
    x, *rest = given
    op = node.op
    assert isinstance(op, norm.LayerNorm)
    axes = tuple(range(normal_axis(op.axis, x.value.ndim), x.value.ndim))
    count = math.prod(x.value.shape[a] for a in axes)
    centred = x.value - np.mean(x.value, axis=axes, keepdims=True) if op.centred else x.value
    variance = np.mean(centred**2, axis=axes, keepdims=True) + op.epsilon
    moved = 2 * np.max(x.error + (count + 4) * U * x.magnitude, axis=axes, keepdims=True, initial=0.0)
    most = np.max(np.abs(centred), axis=axes, keepdims=True, initial=0.0)
    change = (2 * most * moved + moved**2 + (count + 4) * U * variance) / variance
    deviation = np.sqrt(variance)
    hat = centred / deviation
    error = np.where(change < 0.25, moved / deviation + np.abs(hat) * change, np.inf)
    scale = np.abs(rest[0].value) if rest else 1.0
    bias = np.abs(rest[1].value) if len(rest) > 1 else 0.0
    magnitude = np.abs(hat) * scale + bias
    return Known(_run(op, x.value, *[r.value for r in rest]), magnitude, error * scale + FUNCTION * U * magnitude)


def _batch_norm(node: Node, given: list[Known]) -> Known:
    x, scale, bias, mean, var = given
    op = node.op
    assert isinstance(op, norm.BatchNorm)
    shape = [-1 if a == normal_axis(op.axis, x.value.ndim) else 1 for a in range(x.value.ndim)]
    factor = np.abs(scale.value / np.sqrt(var.value + op.epsilon)).reshape(shape)
    magnitude = (x.magnitude + np.abs(mean.value).reshape(shape)) * factor + np.abs(bias.value).reshape(shape)
    y = _run(op, *[g.value for g in given])
    return Known(y, magnitude, x.error * factor + FUNCTION * U * magnitude)


def _quantised(node: Node, given: list[Known]) -> Known:
    """Rounding is a staircase: the error is how many stairs an operand may be away. A quotient is rounded once before."""
    x, *rest = given
    arrays = _stored(node, rest, 1)
    reach = x.error + 2 * U * x.magnitude
    y, low, high = (_run(node.op, at.astype(np.float32), *arrays) for at in (x.value, x.value - reach, x.value + reach))
    return Known(y, np.abs(y), np.maximum(np.abs(y - low), np.abs(high - y)))


def _stored(node: Node, given: list[Known], first: int) -> list[Array]:
    """As they are in the file: scales and zero points."""
    types = [v.dtype.numpy for v in node.inputs if v is not None][first:]
    return [g.value.astype(type) for g, type in zip(given, types, strict=True)]


def _dequantised(node: Node, given: list[Known]) -> Known:
    x, *rest = given
    arrays = _stored(node, rest, 1)
    y = _run(node.op, x.value.astype(np.int64), *arrays)
    moved = _run(node.op, (x.value + x.error).astype(np.int64), *arrays)
    return Known(y, np.abs(y), np.abs(moved - y) + 2 * U * np.abs(y))


RULES: dict[type[Op], Rule] = {
    binary.Add: _sum, binary.Sub: _sum, binary.Mul: _product, binary.Div: _quotient, binary.Max: _extreme, binary.Min: _extreme,
    binary.Where: _where, activation.LeakyRelu: _scaled(1.0), activation.Elu: _scaled(1.0), unary.Exp: _exp, unary.Sqrt: _sqrt,
    unary.Expm1: _expm1, unary.Log1p: _log1p, TreeEnsemble: _trees,
    Conv: _products, ConvTranspose: _products, MatMul: _products, pool.AveragePool: _averages, pool.MaxPool: _largest,
    reduce.Reduce: _reduced, reduce.Softmax: _softmax, norm.LayerNorm: _layer_norm, norm.BatchNorm: _batch_norm, move.Pad: _pad,
    convert.Quantize: _quantised, convert.Dequantize: _dequantised,
}  # fmt: skip


def outside(got: Array, bound: Known) -> int:
    """How many elements are farther away than they may be. Where the bound is infinite, anything goes."""
    wide = np.asarray(got, np.float64).reshape(bound.value.shape)
    wrong = np.abs(wide - bound.value) > bound.error * 1.0001 + TINY
    wrong |= np.isnan(wide) != np.isnan(bound.value)
    wrong &= ~((wide == bound.value) | (~np.isfinite(bound.error)))
    return int(np.count_nonzero(wrong & ~(np.isnan(wide) & np.isnan(bound.value))))


__all__ = ["Known", "error_bounds", "outside", "some_error_bounds"]
