"""Losses, which appear in models exported for training. Gathered by an index per sample."""

from __future__ import annotations

import numpy as np

from intaglio.frontends.building import cast, reshape
from intaglio.frontends.onnx.call import Answer, OnnxCall, importer
from intaglio.frontends.onnx.faults import Fault
from intaglio.ir.graph import Value
from intaglio.ir.types import DType
from intaglio.ops.binary import Div, Equal, Mul, Where
from intaglio.ops.index import Gather, GatherElements
from intaglio.ops.reduce import LogSoftmax, Reduce
from intaglio.ops.unary import Neg


@importer("NegativeLogLikelihoodLoss")
def nll_loss(call: OnnxCall) -> Answer:
    return _loss(call, call.value(0), call.value(1), call.maybe(2))


@importer("SoftmaxCrossEntropyLoss")
def cross_entropy(call: OnnxCall) -> Answer:
    logits = call.emit(LogSoftmax(1), call.value(0))
    loss = _loss(call, logits, call.value(1), call.maybe(2))
    return [loss, logits] if call.outputs > 1 else loss


def _loss(call: OnnxCall, x: Value, target: Value, weight: Value | None) -> Value:
    """x [N,C,d...], target [N,d...]. A target equal to ignore_index counts nothing, whatever it is."""
    reduction = call.text("reduction", "mean")
    if reduction not in ("mean", "sum", "none") or len(x.shape) < 2:
        raise Fault("bad-attribute", f"`{call.op}` of {list(x.shape)} reduced by `{reduction}` is not valid")
    target = cast(call, target, DType.I64)
    ignored: Value | None = None
    place = target
    if "ignore_index" in call.attributes:
        ignored = call.emit(Equal(), target, call.constant(np.asarray(call.integer("ignore_index"), np.int64)))
        place = call.emit(Where(), ignored, call.constant(np.asarray(0, np.int64)), target)
    wide = reshape(call, place, (place.shape[0], 1, *place.shape[1:]))
    picked = call.emit(GatherElements(1), x, wide)
    loss = call.emit(Neg(), reshape(call, picked, target.shape))
    factor: Value | None = None
    if weight is not None:
        factor = call.emit(Gather(0), weight, place)
    if ignored is not None:
        base = factor if factor is not None else call.like(1, x)
        factor = call.emit(Where(), ignored, call.like(0, x), base)
    if factor is not None:
        loss = call.emit(Mul(), loss, factor)
    if reduction == "none":
        return loss
    axes = tuple(range(len(loss.shape)))
    if reduction == "sum" or factor is None:
        return call.emit(Reduce(reduction, axes, False), loss)
    total = call.emit(Reduce("sum", axes, False), loss)
    return call.emit(Div(), total, call.emit(Reduce("sum", axes, False), factor))
