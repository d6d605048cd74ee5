"""Random numbers of other kinds, made of uniform ones: normal ones by Box and Muller, classes by sums of probabilities."""

from __future__ import annotations

import math

import numpy as np

from intaglio.frontends.building import cast, reshape
from intaglio.frontends.emitting import Emits
from intaglio.ir.graph import Value
from intaglio.ir.types import DType
from intaglio.ops.binary import GreaterEqual, Mul, Sub
from intaglio.ops.index import Gather
from intaglio.ops.reduce import Cumsum, Reduce, Softmax
from intaglio.ops.unary import Cos, Log, Sqrt


def normal(call: Emits, u: Value, v: Value) -> Value:
    """Two uniform numbers make one."""
    rest = call.emit(Sub(), call.like(1.0, u), u)  # above 0
    far = call.emit(Sqrt(), call.emit(Mul(), call.emit(Log(), rest), call.like(-2.0, u)))
    return call.emit(Mul(), far, call.emit(Cos(), call.emit(Mul(), v, call.like(2 * math.pi, v))))


def picked(call: Emits, logits: Value, drawn: Value, dtype: DType) -> Value:
    """Where uniform numbers [batch, samples] are among the sums of the probabilities; `logits` is [batch, classes]."""
    (batch, classes), count = logits.shape, drawn.shape[1]
    sums = call.emit(Cumsum(1), call.emit(Softmax(1), cast(call, logits, DType.F32)))
    inner = call.emit(Gather(1), sums, call.constant(np.arange(classes - 1, dtype=np.int64)))  # the last is above all
    above = call.emit(GreaterEqual(), reshape(call, drawn, (batch, count, 1)), reshape(call, inner, (batch, 1, classes - 1)))
    return call.emit(Reduce("sum", (2,), False), cast(call, above, dtype))
