"""Normalisations."""

from __future__ import annotations

import numpy as np

from intaglio.errors import quoted
from intaglio.frontends.building import cast, reshape, rms_norm, transpose
from intaglio.frontends.keras.rows.merging import unit
from intaglio.frontends.keras.walk import KerasCall, Result, layer
from intaglio.frontends.onnx.faults import Fault
from intaglio.ir.graph import Value
from intaglio.ir.types import DType
from intaglio.ops.base import normal_axes
from intaglio.ops.binary import Add, Div, Mul, Sub
from intaglio.ops.norm import BatchNorm, LayerNorm
from intaglio.ops.reduce import Reduce
from intaglio.ops.unary import Sqrt


def _axes(call: KerasCall, rank: int, default: int = -1) -> tuple[int, ...]:
    told = call.option("axis", default)
    listed = [told] if type(told) is int else told
    if not isinstance(listed, list) or not all(type(a) is int for a in listed) or not listed:
        raise Fault("bad-attribute", f"`axis` is {quoted(str(told))}, which is not valid")
    return normal_axes(tuple(listed), rank)


@layer("BatchNormalization", "SyncBatchNormalization")
def batch_norm(call: KerasCall) -> Result:
    x = call.x
    (axis,) = _axes(call, x.type.rank)
    size = x.shape[axis]
    one, zero = np.ones(size, np.float32), np.zeros(size, np.float32)
    gamma = call.weight("gamma", size) if call.flag("scale", True) else call.constant(one, call.dtype)
    beta = call.weight("beta", size) if call.flag("center", True) else call.constant(zero, call.dtype)
    mean, variance = call.weight("moving_mean", size), call.weight("moving_variance", size)
    return call.emit(BatchNorm(call.number("epsilon", 1e-3), axis), x, gamma, beta, mean, variance)


@layer("LayerNormalization")
def layer_norm(call: KerasCall) -> Result:
    x = call.x
    rank = x.type.rank
    axes = _axes(call, rank)
    sizes = tuple(x.shape[a] for a in axes)
    epsilon, rms = call.number("epsilon", 1e-3), call.flag("rms_scaling")
    gamma = call.weight("gamma", *sizes) if rms or call.flag("scale", True) else None
    beta = call.weight("beta", *sizes) if call.flag("center", True) and not rms else None
    order = [n for n in range(rank) if n not in axes] + list(axes)
    turned = transpose(call, x, order)
    first = rank - len(axes)
    if rms:  # Keras divides by the standard deviation, of which the mean is taken away, without centring
        y = _by_deviation(call, turned, gamma, tuple(range(first, rank)), epsilon)
    else:
        y = call.emit(LayerNorm(first, epsilon), turned, gamma, beta)
    return transpose(call, y, [order.index(n) for n in range(rank)])


def _by_deviation(call: KerasCall, x: Value, gamma: Value | None, axes: tuple[int, ...], epsilon: float) -> Value:
    mean = call.emit(Reduce("mean", axes, True), x)
    away = call.emit(Sub(), x, mean)
    variance = call.emit(Reduce("mean", axes, True), call.emit(Mul(), away, away))
    y = call.emit(Div(), x, call.emit(Sqrt(), call.emit(Add(), variance, call.like(epsilon, variance))))
    return y if gamma is None else call.emit(Mul(), y, gamma)


@layer("GroupNormalization")
def group_norm(call: KerasCall) -> Result:
    x, groups = call.x, call.whole("groups", 32)
    rank = x.type.rank
    (axis,) = _axes(call, rank)
    size = x.shape[axis]
    groups = size if groups == -1 else groups
    if groups < 1 or size % groups:
        raise Fault("bad-attribute", f"{size} channels cannot be divided into {groups} groups")
    order = [0, axis, *[n for n in range(1, rank) if n != axis]]
    turned = transpose(call, x, order)
    cut = reshape(call, turned, (x.shape[0], groups, turned.type.elements // (x.shape[0] * groups)))
    y = reshape(call, call.emit(LayerNorm(2, call.number("epsilon", 1e-3)), cut), turned.shape)
    tail = (1,) * (rank - 2)
    if call.flag("scale", True):
        y = call.emit(Mul(), y, reshape(call, call.weight("gamma", size), (size, *tail)))
    if call.flag("center", True):
        y = call.emit(Add(), y, reshape(call, call.weight("beta", size), (size, *tail)))
    return transpose(call, y, [order.index(n) for n in range(rank)])


@layer("RMSNormalization")
def rms(call: KerasCall) -> Result:
    x = call.x
    axes = _axes(call, x.type.rank)
    if axes != tuple(range(x.type.rank - len(axes), x.type.rank)):
        raise Fault("unsupported-operator", f"`axis` is {list(axes)}: only the last axes are supported")
    scale = call.weight("scale", *[x.shape[a] for a in axes])
    return rms_norm(call, x, scale, axes[0], call.number("epsilon", 1e-6))


@layer("UnitNormalization")
def unit_norm(call: KerasCall) -> Result:
    return unit(call, call.x, _axes(call, call.x.type.rank))


@layer("Normalization")
def normalization(call: KerasCall) -> Result:
    """(x - mean) / sqrt(variance), with what `adapt` found or the options say."""
    x = cast(call, call.x, call.dtype) if call.dtype.is_float else cast(call, call.x, DType.F32)
    rank = x.type.rank
    told = call.option("axis", -1)
    kept = () if told is None else _axes(call, rank)
    shape = tuple(x.shape[a] if a in kept else 1 for a in range(rank))
    if call.option("mean") is None:
        sizes = tuple(x.shape[a] for a in kept)
        mean, variance = (call.array(role, *sizes) for role in ("mean", "variance"))
    else:
        mean, variance = (np.asarray(call.option(n), np.float32) for n in ("mean", "variance"))
        width = int(np.prod([x.shape[a] for a in kept], dtype=np.int64))
        if mean.size not in (1, width) or variance.size not in (1, width):
            raise Fault("shape-mismatch", f"{mean.size} means and {variance.size} variances do not fit {list(x.shape)}")
        mean, variance = (np.broadcast_to(a.reshape(-1), (width,)) for a in (mean, variance))
    deviation = np.maximum(np.sqrt(variance), 1e-7).reshape(shape)
    middle = mean.reshape(shape)
    if call.flag("invert"):
        scaled = call.emit(Mul(), x, call.constant(deviation, x.dtype, "deviation"))
        return call.emit(Add(), scaled, call.constant(middle, x.dtype, "mean"))
    away = call.emit(Sub(), x, call.constant(middle, x.dtype, "mean"))
    return call.emit(Div(), away, call.constant(deviation, x.dtype, "deviation"))
