"""Convolutions, fully connected layers, matrix products and pooling."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from intaglio.frontends.onnx.faults import Fault
from intaglio.frontends.tflite.container import Tensor
from intaglio.frontends.tflite.rows.activation import activate, bounds
from intaglio.frontends.tflite.walk import TFLiteCall, constant, importer
from intaglio.ir.graph import Array, Value
from intaglio.ir.types import DType, Layout
from intaglio.ops.activation import Clip
from intaglio.ops.binary import Equal, Mul
from intaglio.ops.control import AssertTrue
from intaglio.ops.conv import Conv, ConvTranspose
from intaglio.ops.fixed_point import quantize_multiplier, quantize_multipliers
from intaglio.ops.hybrid import HybridConv
from intaglio.ops.move import Pad, Reshape, Slice, Transpose
from intaglio.ops.pool import AveragePool, MaxPool
from intaglio.ops.quantised import QConv
from intaglio.ops.quantised_rows import QAveragePool
from intaglio.ops.reduce import Reduce
from intaglio.ops.unary import Sqrt

_QUANTISED = (DType.I8, DType.U8, DType.I16)


def same_pads(size: int, kernel: int, stride: int, dilation: int) -> tuple[int, int]:
    out = -(-size // stride)
    total = max((out - 1) * stride + (kernel - 1) * dilation + 1 - size, 0)
    return total // 2, total - total // 2


def window_pads(
    call: TFLiteCall,
    padding: int,
    spatial: tuple[int, int],
    kernel: tuple[int, int],
    strides: tuple[int, int],
    dilations: tuple[int, int],
) -> tuple[int, int, int, int]:
    if min(*strides, *dilations) < 1:
        raise Fault("bad-attribute", f"strides {list(strides)} or dilations {list(dilations)} are not positive")
    if padding == 1:
        return (0, 0, 0, 0)
    top, bottom = same_pads(spatial[0], kernel[0], strides[0], dilations[0])
    left, right = same_pads(spatial[1], kernel[1], strides[1], dilations[1])
    return (top, left, bottom, right)


def filter_of(call: TFLiteCall, i: int) -> Value:
    value = call.value(i)
    if value.data is None:
        raise Fault("unsupported-operator", "its weights are computed")
    return value


def bias_of(call: TFLiteCall, i: int) -> Value | None:
    return call.value(i) if call.has(i) else None


def channel_multipliers(call: TFLiteCall, x: Tensor, w: Tensor, out: Tensor, channels: int) -> tuple[Value, Value]:
    """input scale * filter scale / output scale per output channel, in doubles."""
    if w.quant is None or out.quant is None:
        raise Fault("bad-quantisation", "the weights or the result have no quantisation parameters")
    x_scale, _ = call.quant(x)
    y_scale, _ = call.quant(out)
    scales = np.broadcast_to(w.quant.scale, (channels,)) if w.quant.scale.size in (1, channels) else None
    if scales is None:
        raise Fault("bad-quantisation", f"there are {w.quant.scale.size} scales for {channels} channels")
    if np.any(w.quant.zero_point != 0) and w.dtype is DType.I8:
        raise Fault("bad-quantisation", "signed weights have a zero point that is not 0")
    multiplier, shift = quantize_multipliers(x_scale * scales.astype(np.float64) / y_scale)
    return constant(multiplier), constant(shift)


def product_multiplier(call: TFLiteCall, x: Tensor, w: Tensor, out: Tensor, channels: int) -> tuple[Value, Value]:
    """One factor for all: the product of the scales is rounded to float first, as the reference does."""
    x_scale, _ = call.quant(x)
    y_scale, _ = call.quant(out)
    w_scale, _ = call.quant(w)
    real = float(np.float32(x_scale) * np.float32(w_scale)) / y_scale
    multiplier, shift = quantize_multiplier(real)
    return constant(np.full(channels, multiplier, np.int32)), constant(np.full(channels, shift, np.int32))


def zero_of(tensor: Tensor) -> int:
    return int(tensor.quant.zero_point[0]) if tensor.quant is not None else 0


@importer("CONV_2D", "DEPTHWISE_CONV_2D")
def convolution(call: TFLiteCall) -> None:
    o = call.options
    depthwise = call.operator.op == "DEPTHWISE_CONV_2D"
    x, weights = call.value(0), filter_of(call, 1)
    assert weights.data is not None
    if x.type.rank != 4 or weights.type.rank != 4:
        raise Fault("shape-mismatch", f"an image of {list(x.shape)} and a filter of {list(weights.shape)} do not fit together")
    kernel = (weights.shape[1], weights.shape[2])
    strides, dilations = (o.StrideH(), o.StrideW()), (o.DilationHFactor(), o.DilationWFactor())
    pads = window_pads(call, o.Padding(), (x.shape[1], x.shape[2]), kernel, strides, dilations)
    channels = x.shape[3]
    if depthwise:  # [1, kh, kw, C*m]
        group, outs = channels, weights.shape[3]
        w = np.ascontiguousarray(weights.data[0].transpose(2, 0, 1)[:, None])
    else:  # [O, kh, kw, I/group]
        outs = weights.shape[0]
        group = channels // weights.shape[3] if weights.shape[3] else 0
        w = np.ascontiguousarray(weights.data.transpose(0, 3, 1, 2))
    if group < 1 or w.shape[1] * group != channels or outs % group:
        raise Fault("shape-mismatch", f"an image of {list(x.shape)} and a filter of {list(weights.shape)} do not fit together")
    act, out = o.FusedActivationFunction(), call.out()
    turned = constant(w, weights.dtype, weights.origin)
    if x.dtype in _QUANTISED:
        low, high = bounds(call, act, out)
        if x.dtype is DType.U8:
            multiplier, shift = product_multiplier(call, call.tensor(0), call.tensor(1), out, outs)
        else:
            multiplier, shift = channel_multipliers(call, call.tensor(0), call.tensor(1), out, outs)
        w_zero = zero_of(call.tensor(1)) if x.dtype is DType.U8 else 0
        op = QConv(strides, pads, dilations, group, call.quant(call.tensor(0))[1], w_zero, call.quant(out)[1], low, high, x.dtype)
        call.give(call.emit(op, x, turned, bias_of(call, 2), multiplier, shift))
        return
    if weights.dtype in (DType.I8, DType.U8):
        call.give(activate(call, _hybrid_conv(call, x, turned, strides, pads, dilations, group), act))
        return
    conv = Conv(strides, pads, dilations, group, Layout.NHWC)
    call.give(activate(call, call.emit(conv, x, turned, bias_of(call, 2)), act))


def _hybrid_conv(
    call: TFLiteCall,
    x: Value,
    w: Value,
    strides: tuple[int, int],
    pads: tuple[int, int, int, int],
    dilations: tuple[int, int],
    group: int,
) -> Value:
    """Float image, 8-bit weights: the image is quantised as it comes, per batch entry (see HybridMatMul for the rule)."""
    quant = call.tensor(1).quant
    if quant is None:
        raise Fault("bad-quantisation", "the weights have no quantisation parameters")
    outs = w.shape[0]
    scale = constant(np.broadcast_to(quant.scale, (outs,)).astype(np.float32))
    return call.emit(HybridConv(strides, pads, dilations, group, quant.scale.size > 1), x, w, scale, bias_of(call, 2))


@importer("CONV_3D")
def convolution_3d(call: TFLiteCall) -> None:
    """By the general convolution, which has channels first."""
    o, x, weights = call.options, call.value(0), filter_of(call, 1)
    assert weights.data is not None
    if x.type.rank != 5 or weights.type.rank != 5 or x.dtype is not DType.F32:
        raise Fault(
            "unsupported-operator",
            f"a volume of {x.dtype.value}{list(x.shape)} with a filter of {list(weights.shape)} is not supported",
        )
    kernel = weights.shape[:3]
    strides = (o.StrideD(), o.StrideH(), o.StrideW())
    dilations = (o.DilationDFactor(), o.DilationHFactor(), o.DilationWFactor())
    if min(*strides, *dilations) < 1:
        raise Fault("bad-attribute", f"strides {list(strides)} or dilations {list(dilations)} are not positive")
    sides = [(0, 0)] * 3
    if o.Padding() == 0:
        sides = [same_pads(*side) for side in zip(x.shape[1:4], kernel, strides, dilations, strict=True)]
    pads = (*[a for a, _ in sides], *[b for _, b in sides])
    first = call.emit(Transpose((0, 4, 1, 2, 3)), x)
    turned = constant(np.ascontiguousarray(weights.data.transpose(4, 3, 0, 1, 2)))
    y = call.emit(Conv(strides, pads, dilations, 1, Layout.NCHW), first, turned, bias_of(call, 2))
    call.give(activate(call, call.emit(Transpose((0, 2, 3, 4, 1)), y), o.FusedActivationFunction()))


@importer("CONV_3D_TRANSPOSE")
def transpose_convolution_3d(call: TFLiteCall) -> None:
    """By the general transposed convolution, which has channels first."""
    o, weights, x = call.options, filter_of(call, 1), call.value(2)
    shape = [int(d) for d in call.known(0, "shape of the result").reshape(-1)]
    assert weights.data is not None
    fits = len(shape) == x.type.rank == weights.type.rank == 5 and weights.shape[4] == x.shape[4] and weights.shape[3] == shape[4]
    if not fits or x.dtype is not DType.F32:
        what = f"a volume of {x.dtype.value}{list(x.shape)}, a filter of {list(weights.shape)} and a result of {shape} do not fit"
        raise Fault("shape-mismatch", what)
    strides = (o.StrideD(), o.StrideH(), o.StrideW())
    dilations = (o.DilationDFactor(), o.DilationHFactor(), o.DilationWFactor())
    if min(*strides, *dilations) < 1:
        raise Fault("bad-attribute", f"strides {list(strides)} or dilations {list(dilations)} are not positive")
    wide = tuple((k - 1) * d + 1 for k, d in zip(weights.shape[:3], dilations, strict=True))
    pads, more = transposed_pads(shape, x.shape, wide, strides)
    turned = constant(np.ascontiguousarray(weights.data.transpose(4, 3, 0, 1, 2)))
    op = ConvTranspose(strides, pads, dilations, 1, more, Layout.NCHW)
    y = call.emit(op, call.emit(Transpose((0, 4, 1, 2, 3)), x), turned, bias_of(call, 3))
    call.give(activate(call, call.emit(Transpose((0, 2, 3, 4, 1)), y), o.FusedActivationFunction()))


@importer("TRANSPOSE_CONV")
def transpose_conv(call: TFLiteCall) -> None:
    o = call.options
    asked = call.value(0)
    shape = list(call.out().shape) if asked.data is None else [int(d) for d in asked.data]  # computed: what the file declares
    if asked.data is None and asked.shape == (len(shape),):
        same = call.emit(Equal(), asked, call.constant(np.array(shape, asked.dtype.numpy), asked.dtype))
        message = "the shape of a transposed convolution is not that of the model file"
        call.emit(AssertTrue(message), call.emit(Reduce("all", (0,), False), same))
    weights, x = filter_of(call, 1), call.value(2)
    assert weights.data is not None
    act = getattr(o, "FusedActivationFunction", int)()
    fits = len(shape) == x.type.rank == weights.type.rank == 4 and weights.shape[3] == x.shape[3]
    if not fits or min(o.StrideH(), o.StrideW()) < 1:
        raise Fault(
            "shape-mismatch", f"an image of {list(x.shape)}, a filter of {list(weights.shape)} and a result of {shape} do not fit"
        )
    if x.dtype in _QUANTISED:
        _quantised_transpose_conv(call, shape, weights.data, x, act)
        return
    kernel, strides = weights.shape[1:3], (o.StrideH(), o.StrideW())
    pads = transposed_pads(shape, x.shape, kernel, strides)
    w = np.ascontiguousarray(weights.data.transpose(3, 0, 1, 2))  # [O,kh,kw,I] -> [I,O,kh,kw]
    op = ConvTranspose(strides, pads[0], (1, 1), 1, pads[1], Layout.NHWC)
    y = call.emit(op, x, constant(w, weights.dtype, weights.origin), bias_of(call, 3))
    call.give(activate(call, y, act))


def _quantised_transpose_conv(call: TFLiteCall, shape: list[int], weights: Array, x: Value, act: int) -> None:
    """A convolution of the image with zero points between its pixels, by the mirrored kernel."""
    o, out = call.options, call.out()
    strides, kernel = (o.StrideH(), o.StrideW()), weights.shape[1:3]
    pads, more = transposed_pads(shape, x.shape, kernel, strides)
    x_zero = call.quant(call.tensor(2))[1]
    n, h, w, c = x.shape
    if strides != (1, 1):
        cut = call.emit(Reshape((n, h, 1, w, 1, c)), x)
        apart = call.emit(Pad((0,) * 8 + (strides[0] - 1, 0, strides[1] - 1, 0), "constant", float(x_zero)), cut)
        x = call.emit(Reshape((n, h * strides[0], w * strides[1], c)), apart)
    begin = [kernel[a] - 1 - pads[a] for a in (0, 1)]
    end = [kernel[a] - 1 - pads[a + 2] + more[a] - (strides[a] - 1) for a in (0, 1)]
    if min(end) < 0:
        x = call.emit(Slice((0,) * 4, (1,) * 4, (n, x.shape[1] + min(end[0], 0), x.shape[2] + min(end[1], 0), c)), x)
        end = [max(e, 0) for e in end]
    if min(begin) < 0:
        raise Fault("unsupported-operator", "padding that is wider than the kernel is not supported")
    turned = np.ascontiguousarray(weights.transpose(0, 3, 1, 2)[:, :, ::-1, ::-1])
    unsigned = x.dtype is DType.U8
    factors = product_multiplier if unsigned else channel_multipliers
    multiplier, shift = factors(call, call.tensor(2), call.tensor(1), out, turned.shape[0])
    low, high = bounds(call, act, out)
    w_zero = zero_of(call.tensor(1)) if unsigned else 0
    op = QConv((1, 1), (*begin, *end), (1, 1), 1, x_zero, w_zero, call.quant(out)[1], low, high, x.dtype)
    call.give(call.emit(op, x, constant(turned), bias_of(call, 3), multiplier, shift))


def transposed_pads(
    shape: Sequence[int], x: tuple[int, ...], kernel: tuple[int, ...], strides: tuple[int, ...]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Pads and output padding that give the asked shape: what the forward convolution would have padded."""
    begin, end, more = [], [], []
    for axis, (size, step) in enumerate(zip(kernel, strides, strict=True)):
        total = (x[axis + 1] - 1) * step + size - shape[axis + 1]
        before = max(total, 0) // 2
        begin.append(before)
        end.append(max(total - before, 0))
        more.append(max(-total, 0))
    return (*begin, *end), tuple(more)


@importer("AVERAGE_POOL_2D", "MAX_POOL_2D", "L2_POOL_2D")
def pooling(call: TFLiteCall) -> None:
    o, x, out = call.options, call.value(0), call.out()
    kernel, strides = (o.FilterHeight(), o.FilterWidth()), (o.StrideH(), o.StrideW())
    if x.type.rank != 4 or min(kernel) < 1:
        raise Fault("shape-mismatch", f"pooling of {list(x.shape)} by {list(kernel)} is not valid")
    pads = window_pads(call, o.Padding(), (x.shape[1], x.shape[2]), kernel, strides, (1, 1))
    act = o.FusedActivationFunction()
    if call.operator.op == "MAX_POOL_2D":
        y = call.emit(MaxPool(kernel, strides, pads, (1, 1), Layout.NHWC), x)
        if x.dtype in _QUANTISED:
            low, high = bounds(call, act, out)
            info = np.iinfo(x.dtype.numpy)
            y = y if (low, high) == (info.min, info.max) else call.emit(Clip(float(low), float(high)), y)
        else:
            y = activate(call, y, act)
    elif call.operator.op == "L2_POOL_2D":
        square = call.emit(Mul(), x, x)
        y = activate(call, call.emit(Sqrt(), call.emit(AveragePool(kernel, strides, pads, (1, 1), Layout.NHWC), square)), act)
    elif x.dtype in _QUANTISED:
        low, high = bounds(call, act, out)
        y = call.emit(QAveragePool(kernel, strides, pads, low, high), x)
    else:
        y = activate(call, call.emit(AveragePool(kernel, strides, pads, (1, 1), Layout.NHWC), x), act)
    call.give(y)
