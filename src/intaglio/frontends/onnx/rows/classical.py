"""Linear models and the steps around models of ai.onnx.ml: scalers, imputers."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from intaglio.frontends.building import cast, concat, reshape
from intaglio.frontends.onnx.call import Answer, OnnxCall, Unusable, importer
from intaglio.frontends.onnx.classes import ML, above, best, binary_scores, classes_of, labelled, post_transform, rows_of
from intaglio.frontends.onnx.faults import Fault, unsupported
from intaglio.ir.graph import Array, Value
from intaglio.ir.types import DType
from intaglio.ops.activation import Sigmoid
from intaglio.ops.binary import Add, Div, Equal, Greater, Mul, Sub, Where
from intaglio.ops.index import Gather
from intaglio.ops.matmul import MatMul
from intaglio.ops.reduce import Reduce
from intaglio.ops.unary import Abs, IsNan, Sqrt


def floats(call: OnnxCall, index: int = 0) -> Value:
    """The rows of features as f32, in which ONNX Runtime computes."""
    return cast(call, rows_of(call, call.value(index)), DType.F32)


def weighted(call: OnnxCall, x: Value, matrix: Array, offsets: Sequence[float]) -> Value:
    """x times a constant matrix, and constants added."""
    if matrix.shape[0] != x.shape[1] or (offsets and len(offsets) != matrix.shape[1]):
        reason = f"`{call.op}` has weights for {matrix.shape[0]} features, and the input has {x.shape[1]} columns"
        raise Fault("shape-mismatch", reason, "give the input its shape with `--shape`")
    y = call.emit(MatMul(), x, call.constant(np.ascontiguousarray(matrix, np.float32)))
    return call.emit(Add(), y, call.constant(np.array(offsets, np.float32))) if offsets else y


def _matrix(call: OnnxCall, rows: int) -> Array:
    """`coefficients`, with a column per target."""
    numbers = np.array(call.floats("coefficients") or [], np.float32)
    if rows < 1 or not numbers.size or numbers.size % rows:
        raise Fault("bad-attribute", f"`{call.op}` has {numbers.size} coefficients for {rows} targets")
    return numbers.reshape(rows, -1).T


@importer("LinearRegressor", domain=ML)
def linear_regressor(call: OnnxCall) -> Answer:
    y = weighted(call, floats(call), _matrix(call, call.integer("targets", 1)), call.floats("intercepts") or [])
    return post_transform(call, y, call.text("post_transform", "NONE"))


@importer("LinearClassifier", domain=ML)
def linear_classifier(call: OnnxCall) -> Answer:
    x, classes = floats(call), classes_of(call, "classlabels_ints")
    offsets, transform = call.floats("intercepts") or [], call.text("post_transform", "NONE")
    rows = len(offsets) or max(len(call.floats("coefficients") or []) // max(x.shape[1], 1), 1)
    scores = weighted(call, x, _matrix(call, rows), offsets)
    if rows > 1:
        return [labelled(call, classes, best(call, scores)), post_transform(call, scores, transform)]
    if classes.count != 2:
        raise unsupported(f"one score for {classes.count} classes is not supported", "train with two classes or more")
    if transform == "LOGISTIC":
        label = labelled(call, classes, above(call, call.emit(Sigmoid(), scores), 0.5))
        return [label, binary_scores(call, classes, scores, transform, False)[1]]
    if transform == "NONE":
        differ = Unusable("the pair of scores of one score, about which ONNX Runtime (1 - s, s) and ONNX (-s, s) differ",
                          "remove this output; or export with two rows of coefficients")  # fmt: skip
        return [labelled(call, classes, above(call, scores, 0.0)), differ]
    raise unsupported(f"the post transform `{transform}` with one score for two classes is not supported")


# Before a model -------------------------------------------------------------------------------------------------------------


def _per_column(call: OnnxCall, name: str, x: Value) -> Value:
    numbers = call.floats(name) or []
    if len(numbers) not in (1, x.shape[1]):
        raise Fault("bad-attribute", f"`{name}` has {len(numbers)} numbers for {x.shape[1]} columns")
    return call.constant(np.array(numbers, np.float32))


@importer("Scaler", domain=ML)
def scaler(call: OnnxCall) -> Answer:
    x = floats(call)
    return call.emit(Mul(), call.emit(Sub(), x, _per_column(call, "offset", x)), _per_column(call, "scale", x))


@importer("Normalizer", domain=ML)
def normalizer(call: OnnxCall) -> Answer:
    """Divided by the norm of the row; a row of zeros stays."""
    x, norm = floats(call), call.text("norm", "MAX")
    match norm:
        case "MAX":
            size = call.emit(Reduce("max", (1,), True), x)
        case "L1":
            size = call.emit(Reduce("sum", (1,), True), call.emit(Abs(), x))
        case "L2":
            size = call.emit(Sqrt(), call.emit(Reduce("sum", (1,), True), call.emit(Mul(), x, x)))
        case _:
            raise Fault("bad-attribute", f"`Normalizer` has the norm `{norm}`", "there are MAX, L1 and L2")
    zero = call.emit(Equal(), size, call.like(0.0, size))
    return call.emit(Div(), x, call.emit(Where(), zero, call.like(1.0, size), size))


@importer("Binarizer", domain=ML)
def binarizer(call: OnnxCall) -> Answer:
    x = call.value(0)
    return cast(call, call.emit(Greater(), x, call.like(call.real("threshold", 0.0), x)), x.dtype)


@importer("Imputer", domain=ML)
def imputer(call: OnnxCall) -> Answer:
    x = rows_of(call, call.value(0))
    listed = call.floats("imputed_value_floats") if x.dtype.is_float else call.ints("imputed_value_int64s")
    numbers: Sequence[float] = listed or []
    if len(numbers) not in (1, x.shape[1]):
        raise Fault("bad-attribute", f"`Imputer` has {len(numbers)} values for {x.shape[1]} columns of {x.dtype.value}")
    missing = call.real("replaced_value_float", 0.0) if x.dtype.is_float else call.integer("replaced_value_int64", 0)
    found = call.emit(IsNan(), x) if math.isnan(missing) else call.emit(Equal(), x, call.like(missing, x))
    return call.emit(Where(), found, call.constant(np.array(numbers, x.dtype.numpy), x.dtype), x)


@importer("ArrayFeatureExtractor", domain=ML)
def array_feature_extractor(call: OnnxCall) -> Answer:
    """Columns by number. A vector counts as a row."""
    x, places = call.value(0), call.value(1)
    x = rows_of(call, x) if len(x.shape) < 2 else x
    wanted = reshape(call, places, (places.type.elements,))
    if wanted.data is not None and not 0 <= int(wanted.data.min(initial=0)) <= int(wanted.data.max(initial=0)) < x.shape[-1]:
        most = x.shape[-1] - 1
        raise Fault("bad-attribute", f"`ArrayFeatureExtractor` asks for a column that its input does not have (0 to {most})")
    return call.emit(Gather(len(x.shape) - 1), x, wanted)


@importer("FeatureVectorizer", domain=ML)
def feature_vectorizer(call: OnnxCall) -> Answer:
    """Columns of several inputs side by side; an input gives as many as `inputdimensions` says, zeros where it has fewer."""
    parts = [floats(call, n) for n in range(len(call.inputs))]
    sizes = call.ints("inputdimensions") or [p.shape[1] for p in parts]
    if [p.shape[1] for p in parts] != sizes:
        raise unsupported(f"`inputdimensions` {sizes} differs from the inputs' columns {[p.shape[1] for p in parts]}")
    return concat(call, parts, 1)
