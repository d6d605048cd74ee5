"""What classifiers and regressors of ai.onnx.ml have in common: post transforms, and labels that follow from scores."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from intaglio.frontends.building import concat, reshape
from intaglio.frontends.onnx.call import Item, OnnxCall, texts
from intaglio.frontends.onnx.faults import Fault, unsupported
from intaglio.ir.graph import Value
from intaglio.ir.types import DType
from intaglio.ops.activation import Sigmoid
from intaglio.ops.binary import Add, Div, Greater, GreaterEqual, Less, LogicalOr, Mul, Sub, Where
from intaglio.ops.convert import Cast
from intaglio.ops.index import Gather
from intaglio.ops.reduce import ArgReduce, Reduce, Softmax
from intaglio.ops.unary import Exp, Log, Neg, Sqrt

ML = "ai.onnx.ml"
TRANSFORMS = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")


def rows_of(call: OnnxCall, x: Value) -> Value:
    """Rows of features; a vector is one row."""
    if len(x.shape) == 1:
        return reshape(call, x, (1, *x.shape))
    if len(x.shape) != 2:
        raise Fault("shape-mismatch", f"`{call.op}` takes rows of features, got the shape {list(x.shape)}")
    return x


@dataclass(frozen=True, slots=True)
class Classes:
    """The classes of a classifier: whole numbers, or words."""

    numbers: tuple[int, ...] = ()
    words: tuple[str, ...] = ()

    @property
    def count(self) -> int:
        return max(len(self.numbers), len(self.words))


def classes_of(call: OnnxCall, numbers: str) -> Classes:
    words = call.texts("classlabels_strings") or []
    return Classes((), tuple(words)) if words else Classes(tuple(call.ints(numbers) or ()))


def labelled(call: OnnxCall, classes: Classes, index: Value) -> Item:
    """The label of each row from the index of its class."""
    if classes.words:
        return texts(call.emit(Gather(0), call.words(classes.words).value, index))
    if classes.numbers == tuple(range(classes.count)):
        return index
    return call.emit(Gather(0), call.constant(np.array(classes.numbers, np.int64)), index)


def best(call: OnnxCall, scores: Value) -> Value:
    """The index of the largest score in each row, the first of equal ones."""
    return call.emit(ArgReduce("max", 1, False), scores)


def above(call: OnnxCall, score: Value, limit: float) -> Value:
    """1 where the score of a row is above the limit, else 0."""
    flat = reshape(call, score, (score.shape[0],))
    return call.emit(Cast(DType.I64), call.emit(Greater(), flat, call.like(limit, flat)))


def binary_scores(call: OnnxCall, classes: Classes, score: Value, transform: str, probability: bool) -> tuple[Item, Value]:
    """Label and both scores from the score of the second class."""
    label = labelled(call, classes, above(call, score, 0.5 if probability else 0.0))
    if transform == "PROBIT":
        raise unsupported("the post transform `PROBIT` with one score for two classes is not supported")
    if transform == "LOGISTIC" or not probability:
        both = concat(call, [call.emit(Neg(), score), score], 1)
        return label, call.emit(Sigmoid(), both) if transform == "LOGISTIC" else both
    return label, concat(call, [call.emit(Sub(), call.like(1.0, score), score), score], 1)


def post_transform(call: OnnxCall, scores: Value, transform: str) -> Value:
    if scores.shape[1] == 1 and transform in ("SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO"):
        reason = f"the post transform `{transform}` of one score is not supported: ONNX Runtime leaves it out, ONNX does not"
        raise unsupported(reason, "export without it, and apply it after the model")
    match transform:
        case "NONE":
            return scores
        case "SOFTMAX":
            return call.emit(Softmax(1), scores)
        case "LOGISTIC":
            return call.emit(Sigmoid(), scores)
        case "SOFTMAX_ZERO":
            return _softmax_zero(call, scores)
        case "PROBIT":
            return _probit(call, scores)
    raise Fault("bad-attribute", f"`{call.op}` has the post transform `{transform}`", f"there are {', '.join(TRANSFORMS)}")


def _softmax_zero(call: OnnxCall, x: Value) -> Value:
    """Softmax of the scores that are not 0; those are all but 0 in the result too."""
    top = call.emit(Reduce("max", (1,), True), x)
    tiny = call.like(1e-7, x)
    counted = call.emit(LogicalOr(), call.emit(Greater(), x, tiny), call.emit(Less(), x, call.emit(Neg(), tiny)))
    raised = call.emit(Exp(), call.emit(Sub(), x, top))
    rest = call.emit(Mul(), x, call.emit(Exp(), call.emit(Neg(), top)))
    terms = call.emit(Where(), counted, raised, rest)
    return call.emit(Div(), terms, call.emit(Reduce("sum", (1,), True), terms))


def _probit(call: OnnxCall, p: Value) -> Value:
    """sqrt(2) * erfinv(2p - 1), by Winitzki's formula with ONNX Runtime's constants."""

    def number(value: float) -> Value:
        return call.like(value, p)

    x = call.emit(Sub(), call.emit(Mul(), p, number(2.0)), number(1.0))
    sign = call.emit(Where(), call.emit(GreaterEqual(), x, number(0.0)), number(1.0), number(-1.0))
    inside = call.emit(Mul(), call.emit(Sub(), number(1.0), x), call.emit(Add(), number(1.0), x))
    log = call.emit(Log(), inside)
    v = call.emit(Add(), number(2.0 / (3.14159 * 0.147)), call.emit(Mul(), number(0.5), log))
    square = call.emit(Sub(), call.emit(Mul(), v, v), call.emit(Mul(), number(1.0 / 0.147), log))
    root = call.emit(Sqrt(), call.emit(Sub(), call.emit(Sqrt(), square), v))
    return call.emit(Mul(), number(math.sqrt(2.0)), call.emit(Mul(), sign, root))
