"""Normalisations: by layer_norm and batch_norm of the IR, and by arithmetic."""

from __future__ import annotations

import math

import numpy as np

from intaglio.frontends.building import cast, per_channel, reshape, rms_norm
from intaglio.frontends.onnx.faults import unsupported
from intaglio.frontends.torch.call import Answer, TorchCall, row
from intaglio.ir.graph import Value
from intaglio.ir.types import DType
from intaglio.ops.binary import Add, Div, Mul, Sub
from intaglio.ops.norm import BatchNorm, LayerNorm
from intaglio.ops.reduce import Reduce


@row("batch_norm", "native_batch_norm", "_native_batch_norm_legit_no_training", "_native_batch_norm_legit", "cudnn_batch_norm",
     "_batch_norm_no_update", "_batch_norm_with_update", "miopen_batch_norm")  # fmt: skip
def batch_norm(call: TorchCall) -> Answer:
    x = call.tensor("input")
    mean, var = call.maybe("running_mean"), call.maybe("running_var")
    if (call.flag("training") or call.op == "_batch_norm_with_update") and mean is not None:
        raise unsupported("a batch normalisation in training is not supported", "export with `model.eval()`")
    if mean is None or var is None:  # by the statistics of the input itself
        axes = tuple(i for i in range(len(x.shape)) if i != 1)
        centre = call.emit(Reduce("mean", axes, True), x)
        apart = call.emit(Sub(), x, centre)
        mean = reshape(call, centre, (x.shape[1],))
        var = reshape(call, call.emit(Reduce("mean", axes, True), call.emit(Mul(), apart, apart)), (x.shape[1],))
    channels = x.shape[1] if len(x.shape) > 1 else x.shape[0]
    scale, bias = call.maybe("weight"), call.maybe("bias")
    one = scale if scale is not None else call.constant(np.ones(channels), x.dtype)
    nought = bias if bias is not None else call.constant(np.zeros(channels), x.dtype)
    epsilon = call.real("eps", call.real("epsilon", 1e-5))
    operands = [cast(call, v, x.dtype) for v in (one, nought, mean, var)]
    y = call.emit(BatchNorm(epsilon, 1 if len(x.shape) > 1 else 0), x, *operands)
    return [y, None, None, None, None]


@row("layer_norm", "native_layer_norm")
def layer_norm(call: TorchCall) -> Answer:
    x = call.tensor("input")
    axis = len(x.shape) - len(call.ints("normalized_shape"))
    if axis < 0:
        raise unsupported(f"`layer_norm` of {list(x.shape)} over {call.ints('normalized_shape')} is not supported")
    y = call.emit(LayerNorm(axis, call.real("eps", 1e-5)), x, call.maybe("weight"), call.maybe("bias"))
    return [y, None, None]


@row("rms_norm", "_fused_rms_norm")
def rms_norm_row(call: TorchCall) -> Answer:
    x = call.tensor("input")
    axis = len(x.shape) - len(call.ints("normalized_shape"))
    epsilon = 2.220446049250313e-16 if x.dtype is DType.F64 else 1.1920928955078125e-07
    return [rms_norm(call, x, call.maybe("weight"), axis, call.real("eps", epsilon)), None]


def _affine(call: TorchCall, y: Value, scale: Value | None, bias: Value | None) -> Value:
    if scale is not None and bias is not None:
        return per_channel(call, y, scale, bias)
    tail = (1,) * (len(y.shape) - 2)
    if scale is not None:
        y = call.emit(Mul(), y, reshape(call, scale, (*scale.shape, *tail)))
    return y if bias is None else call.emit(Add(), y, reshape(call, bias, (*bias.shape, *tail)))


@row("group_norm", "native_group_norm")
def group_norm(call: TorchCall) -> Answer:
    x = call.tensor("input")
    groups = call.integer("num_groups" if call.op == "group_norm" else "group")
    if groups < 1 or x.shape[1] % groups:
        raise unsupported(f"`group_norm` of {list(x.shape)} in {groups} groups is not supported")
    flat = reshape(call, x, (x.shape[0], groups, math.prod(x.shape[1:]) // groups))
    y = reshape(call, call.emit(LayerNorm(2, call.real("eps", 1e-5)), flat), x.shape)
    return [_affine(call, y, call.maybe("weight"), call.maybe("bias")), None, None]


@row("instance_norm")
def instance_norm(call: TorchCall) -> Answer:
    x = call.tensor("input")
    scale, bias = call.maybe("weight"), call.maybe("bias")
    mean, var = call.maybe("running_mean"), call.maybe("running_var")
    if not call.flag("use_input_stats", True) and mean is not None and var is not None:
        given = {"input": x, "weight": scale, "bias": bias, "running_mean": mean, "running_var": var, "eps": call.real("eps")}
        return call.again("batch_norm", **given)[0]
    flat = reshape(call, x, (x.shape[0], x.shape[1], math.prod(x.shape[2:])))
    y = reshape(call, call.emit(LayerNorm(2, call.real("eps", 1e-5)), flat), x.shape)
    return _affine(call, y, scale, bias)


@row("_weight_norm", "_weight_norm_interface")
def weight_norm(call: TorchCall) -> Answer:
    v, g = call.tensor("v"), call.tensor("g")
    axis = call.integer("dim", 0)
    axes = tuple(i for i in range(len(v.shape)) if axis == -1 or i != axis % len(v.shape))
    length = call.emit(Reduce("l2", axes, True), v)
    return [call.emit(Mul(), v, call.emit(Div(), g, length)), None]
