"""Support vector machines. The kernel between rows and support vectors is a product of matrices:

    rbf      exp(-gamma * (|x|² - 2 x·v + |v|²)), with x and v relative to the mean of the support vectors, which keeps the squares
             small: the rounding of the exponent is a few units of gamma * |x - mean|²
    linear   x·v          poly  (gamma x·v + c)^degree          sigmoid  tanh(gamma x·v + c)

Machines of several classes compare every pair: what class i and class j have of a pair is one column of a constant matrix.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from intaglio.frontends.building import cast
from intaglio.frontends.onnx.call import Answer, OnnxCall, importer
from intaglio.frontends.onnx.classes import ML, best, binary_scores, classes_of, labelled, post_transform
from intaglio.frontends.onnx.faults import Fault, unsupported
from intaglio.frontends.onnx.rows.classical import floats, weighted
from intaglio.ir.graph import Array, Value
from intaglio.ir.types import DType
from intaglio.ops.activation import Sigmoid, Tanh
from intaglio.ops.binary import Add, Greater, Max, Min, Mul, Pow, Sub, Where
from intaglio.ops.coupling import PairwiseCoupling
from intaglio.ops.reduce import Reduce
from intaglio.ops.unary import Exp, Neg

TINY = 1e-7  # how near to 0 and 1 the probability of a pair may come


@dataclass(frozen=True, slots=True)
class Kernel:
    kind: str
    gamma: float
    constant: float
    degree: float


def _kernel(call: OnnxCall) -> Kernel:
    gamma, constant, degree = (*(call.floats("kernel_params") or []), 0.0, 0.0, 0.0)[:3]
    return Kernel(call.text("kernel_type", "LINEAR"), gamma, constant, degree)


def _vectors(call: OnnxCall, count: int, columns: int) -> Array:
    vectors = np.array(call.floats("support_vectors") or [], np.float64)
    if count < 1 or vectors.size != count * columns:
        raise Fault("shape-mismatch", f"`{call.op}` has {vectors.size} numbers for {count} support vectors of {columns} features")
    return vectors.reshape(count, columns)


def _similar(call: OnnxCall, x: Value, vectors: Array, kernel: Kernel) -> Value:
    """[rows, support vectors]."""

    def number(value: float) -> Value:
        return call.like(value, x)

    if kernel.kind == "RBF":
        mean = vectors.mean(axis=0, keepdims=True)
        near = np.subtract(vectors, mean)
        moved = call.emit(Sub(), x, call.constant(mean.astype(np.float32)))
        length = call.emit(Reduce("sum", (1,), True), call.emit(Mul(), moved, moved))
        cross = weighted(call, moved, np.multiply(near.T, -2.0), np.square(near).sum(axis=1).tolist())
        squares = call.emit(Max(), call.emit(Add(), cross, length), number(0.0))
        return call.emit(Exp(), call.emit(Mul(), squares, number(-kernel.gamma)))
    if kernel.kind not in ("LINEAR", "POLY", "SIGMOID"):
        raise Fault("bad-attribute", f"`{call.op}` has the kernel `{kernel.kind}`", "there are LINEAR, POLY, RBF and SIGMOID")
    dots = weighted(call, x, vectors.T, [])
    if kernel.kind == "LINEAR":
        return dots
    inside = call.emit(Add(), call.emit(Mul(), dots, number(kernel.gamma)), number(kernel.constant))
    return call.emit(Tanh(), inside) if kernel.kind == "SIGMOID" else call.emit(Pow(), inside, number(kernel.degree))


@importer("SVMRegressor", domain=ML)
def svm_regressor(call: OnnxCall) -> Answer:
    x, count = floats(call), call.integer("n_supports")
    coefficients, rho = np.array(call.floats("coefficients") or [], np.float32), call.floats("rho") or [0.0]
    if count:
        vectors = _vectors(call, count, x.shape[1])
        y = weighted(call, _similar(call, x, vectors, _kernel(call)), coefficients.reshape(-1, 1), rho[:1])
    else:
        y = weighted(call, x, coefficients.reshape(-1, 1), rho[:1])
    if call.integer("one_class"):
        return call.emit(Where(), call.emit(Greater(), y, call.like(0.0, y)), call.like(1.0, y), call.like(-1.0, y))
    return post_transform(call, y, call.text("post_transform", "NONE"))


def _pairs(classes: int) -> list[tuple[int, int]]:
    return [(i, j) for i in range(classes) for j in range(i + 1, classes)]


def _pair_weights(call: OnnxCall, sizes: list[int], pairs: list[tuple[int, int]]) -> Array:
    """[support vectors, pairs]. Row j - 1 of the coefficients is for the vectors of class i < j, row i for those of class j."""
    total = sum(sizes)
    given = np.array(call.floats("coefficients") or [], np.float32)
    if given.size != total * (len(sizes) - 1):
        told = f"{given.size} coefficients for {total} support vectors of {len(sizes)} classes"
        raise Fault("bad-attribute", f"`{call.op}` has {told}")
    table = given.reshape(len(sizes) - 1, total)
    ends = np.cumsum([0, *sizes])
    matrix = np.zeros((total, len(pairs)), np.float32)
    for n, (i, j) in enumerate(pairs):
        matrix[ends[i] : ends[i + 1], n] = table[j - 1, ends[i] : ends[i + 1]]
        matrix[ends[j] : ends[j + 1], n] = table[i, ends[j] : ends[j + 1]]
    return matrix


def _votes(call: OnnxCall, scores: Value, pairs: list[tuple[int, int]], classes: int) -> Value:
    """How many pairs each class has won: whole numbers, exact in f32."""
    first, second = (np.zeros((len(pairs), classes), np.float32) for _ in range(2))
    for n, (i, j) in enumerate(pairs):
        first[n, i], second[n, j] = 1, 1
    won = cast(call, call.emit(Greater(), scores, call.like(0.0, scores)), DType.F32)
    return weighted(call, won, np.subtract(first, second), second.sum(axis=0).tolist())


def _probabilities(call: OnnxCall, scores: Value, a: list[float], b: list[float], classes: int) -> Value:
    """Platt's: 1 / (1 + exp(a s + b)) for each pair, then one distribution that fits the pairs."""
    slopes, offsets = (call.constant(np.array(v, np.float32)) for v in (a, b))
    inside = call.emit(Add(), call.emit(Mul(), scores, slopes), offsets)
    p = call.emit(Sigmoid(), call.emit(Neg(), inside))
    bounded = call.emit(Min(), call.emit(Max(), p, call.like(TINY, p)), call.like(1 - TINY, p))
    return call.emit(PairwiseCoupling(classes), bounded)


@importer("SVMClassifier", domain=ML)
def svm_classifier(call: OnnxCall) -> Answer:
    x, classes = floats(call), classes_of(call, "classlabels_ints")
    sizes, rho = call.ints("vectors_per_class") or [], call.floats("rho") or []
    transform = call.text("post_transform", "NONE")
    if not sizes:
        raise unsupported("`SVMClassifier` without support vectors is not supported", "export it as a linear classifier")
    pairs = _pairs(classes.count)
    if len(sizes) != classes.count or classes.count < 2 or len(rho) != len(pairs):
        raise Fault("bad-attribute", f"`{call.op}` has {len(sizes)} groups of support vectors and {len(rho)} offsets for "
                    f"{classes.count} classes")  # fmt: skip
    similar = _similar(call, x, _vectors(call, sum(sizes), x.shape[1]), _kernel(call))
    scores = weighted(call, similar, _pair_weights(call, sizes, pairs), rho)
    label = labelled(call, classes, best(call, _votes(call, scores, pairs, classes.count)))
    a, b = call.floats("prob_a") or [], call.floats("prob_b") or []
    if a:
        if not len(a) == len(b) == len(pairs):
            raise Fault("bad-attribute", f"`{call.op}` has {len(a)} and {len(b)} numbers of Platt for {len(pairs)} pairs")
        return [label, post_transform(call, _probabilities(call, scores, a, b, classes.count), transform)]
    if classes.count > 2:
        return [label, post_transform(call, scores, transform)]
    return [label, binary_scores(call, classes, scores, transform, False)[1]]


