"""Normalisations, by layer_norm and batch_norm and by arithmetic."""

from __future__ import annotations

import math

from intaglio.frontends.building import cast, per_channel, reshape, rms_norm
from intaglio.frontends.onnx.call import Answer, OnnxCall, importer
from intaglio.frontends.onnx.faults import Fault
from intaglio.ir.graph import Value
from intaglio.ir.sizes import moves
from intaglio.ir.types import DType
from intaglio.ops.binary import Add, Div, Equal, Mul, Sub, Where
from intaglio.ops.norm import BatchNorm, LayerNorm, Lrn
from intaglio.ops.reduce import Reduce
from intaglio.ops.unary import Reciprocal, Sqrt


@importer("BatchNormalization")
def batch_norm(call: OnnxCall) -> Answer:
    x, scale, bias, mean, var = (call.value(i) for i in range(5))
    epsilon = call.real("epsilon", 1e-5)
    if call.version >= 14 and call.integer("training_mode"):
        return _batch_norm_training(call, epsilon)
    kinds = {v.dtype for v in (scale, bias, mean, var)}
    if kinds != {x.dtype}:
        scale, bias, mean, var = (cast(call, v, x.dtype) for v in (scale, bias, mean, var))
    if call.version < 9 and not call.integer("spatial", 1):
        centred = call.emit(Sub(), x, mean)
        deviation = call.emit(Sqrt(), call.emit(Add(), var, call.like(epsilon, var)))
        scaled = call.emit(Mul(), call.emit(Div(), centred, deviation), scale)
        return call.emit(Add(), scaled, bias)
    return call.emit(BatchNorm(epsilon, 1 if len(x.shape) > 1 else 0), x, scale, bias, mean, var)


def _batch_norm_training(call: OnnxCall, epsilon: float) -> Answer:
    x, scale, bias, mean, var = (call.value(i) for i in range(5))
    axes = tuple(i for i in range(len(x.shape)) if i != 1)
    now = call.emit(Reduce("mean", axes, True), x)
    centred = call.emit(Sub(), x, now)
    square = call.emit(Reduce("mean", axes, True), call.emit(Mul(), centred, centred))
    now, square = (reshape(call, v, mean.shape) for v in (now, square))
    momentum = call.real("momentum", 0.9)

    def mixed(old: Value, new: Value) -> Value:
        kept = call.emit(Mul(), old, call.like(momentum, old))
        return call.emit(Add(), kept, call.emit(Mul(), new, call.like(1 - momentum, new)))

    y = call.emit(BatchNorm(epsilon, 1), x, scale, bias, now, square)
    return [y, mixed(mean, now), mixed(var, square)]


@importer("LayerNormalization")
def layer_norm(call: OnnxCall) -> Answer:
    x, scale, bias = call.value(0), call.maybe(1), call.maybe(2)
    axis = call.axis(len(x.shape), -1)
    epsilon = call.real("epsilon", 1e-5)
    kind = x.dtype if scale is None else scale.dtype  # before opset 17, ONNX Runtime's own: it may be wider than that of x
    scale, bias = _fitting(call, x, axis, scale, bias)
    shape = x.shape[axis:]
    if moves(shape) and any(v is not None and v.type.elements != 1 and v.shape != shape for v in (scale, bias)):
        y = call.emit(LayerNorm(axis, epsilon), x)  # scales that repeat along an axis whose size only the caller knows
        y = y if scale is None else call.emit(Mul(), y, scale)
        y = y if bias is None else call.emit(Add(), y, bias)
    else:
        y = call.emit(LayerNorm(axis, epsilon), x, scale, bias)
    y = cast(call, y, kind)
    if call.outputs < 2:
        return y
    axes = tuple(range(axis, len(x.shape)))
    wide = cast(call, x, DType.F32) if x.dtype is not DType.F64 else x
    mean = call.emit(Reduce("mean", axes, True), wide)
    centred = call.emit(Sub(), wide, mean)
    var = call.emit(Reduce("mean", axes, True), call.emit(Mul(), centred, centred))
    deviation = call.emit(Sqrt(), call.emit(Add(), var, call.like(epsilon, var)))
    return [y, mean, call.emit(Reciprocal(), deviation)]


def _fitting(call: OnnxCall, x: Value, axis: int, *extra: Value | None) -> list[Value | None]:
    """Scale and bias without leading axes of 1 that the normalised shape does not have."""
    out: list[Value | None] = []
    for value in extra:
        if value is not None and len(value.shape) > len(x.shape) - axis:
            cut = len(value.shape) - (len(x.shape) - axis)
            if any(n != 1 for n in value.shape[:cut]):
                raise Fault("shape-mismatch", f"a scale or bias of {list(value.shape)} for {list(x.shape)} is not valid")
            value = reshape(call, value, value.shape[cut:])
        if value is not None:
            value = cast(call, value, x.dtype)
        out.append(value)
    return out


@importer("RMSNormalization")
def rms_norm_row(call: OnnxCall) -> Answer:
    x = call.value(0)
    return rms_norm(call, x, call.maybe(1), call.axis(len(x.shape), -1), call.real("epsilon", 1e-5))


@importer("InstanceNormalization")
def instance_norm(call: OnnxCall) -> Answer:
    x, scale, bias = (call.value(i) for i in range(3))
    if len(x.shape) < 3:
        raise Fault("shape-mismatch", f"`InstanceNormalization` of {list(x.shape)} is not valid")
    flat = reshape(call, x, (x.shape[0], x.shape[1], math.prod(x.shape[2:])))
    y = reshape(call, call.emit(LayerNorm(2, call.real("epsilon", 1e-5)), flat), x.shape)
    return per_channel(call, y, scale, bias)


@importer("GroupNormalization")
def group_norm(call: OnnxCall) -> Answer:
    x, scale, bias = (call.value(i) for i in range(3))
    groups = call.integer("num_groups")
    y = in_groups(call, x, groups)
    if scale.shape == (groups,) and call.version < 21:
        y = reshape(call, y, (x.shape[0], groups, x.shape[1] // groups, *x.shape[2:]))
        return reshape(call, per_channel(call, y, scale, bias), x.shape)
    return per_channel(call, y, scale, bias)


def in_groups(call: OnnxCall, x: Value, groups: int) -> Value:
    """Groups of channels, each with mean 0 and variance 1."""
    if len(x.shape) < 2 or groups < 1 or x.shape[1] % groups:
        raise Fault("bad-attribute", f"`{call.op}` of {list(x.shape)} in {groups} groups is not valid")
    flat = reshape(call, x, (x.shape[0], groups, math.prod(x.shape[1:]) // groups))
    return reshape(call, call.emit(LayerNorm(2, call.real("epsilon", 1e-5)), flat), x.shape)


@importer("LpNormalization")
def lp_norm(call: OnnxCall) -> Answer:
    x = call.value(0)
    p = call.integer("p", 2)
    if p not in (1, 2):
        raise Fault("bad-attribute", f"`LpNormalization` with p {p} is not valid")
    axis = call.axis(len(x.shape), -1)
    norm = call.emit(Reduce("l1" if p == 1 else "l2", (axis,), True), x)
    zero = call.emit(Equal(), norm, call.like(0, norm))
    return call.emit(Div(), x, call.emit(Where(), zero, call.like(1, norm), norm))


@importer("LRN")
def lrn(call: OnnxCall) -> Answer:
    size = call.integer("size")
    if size < 1:
        raise Fault("bad-attribute", f"`LRN` over {size} elements is not valid")
    op = Lrn(size, call.real("alpha", 1e-4), call.real("beta", 0.75), call.real("bias", 1.0), 1)
    return call.emit(op, call.value(0))
