"""Convolutions. In one dimension they are images of one row: the kernels for images do them. In three, channels come first."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from intaglio.errors import quoted
from intaglio.frontends.building import padded, reshape, transpose
from intaglio.frontends.keras.rows.activation import activate
from intaglio.frontends.keras.walk import KerasCall, Result, layer
from intaglio.frontends.onnx.faults import Fault
from intaglio.frontends.tflite.rows.convolution import same_pads
from intaglio.ir.graph import Array, Value
from intaglio.ir.types import Layout
from intaglio.ops.binary import Add
from intaglio.ops.conv import Conv, ConvTranspose

Plane = Callable[[Value, Layout], Value]


def spatial(call: KerasCall, x: Value, count: int) -> tuple[int, ...]:
    """The sizes of the spatial axes."""
    if x.type.rank != count + 2:
        raise Fault("shape-mismatch", f"it takes {count + 2} axes, got {list(x.shape)}")
    return x.shape[2:] if call.channels_first else x.shape[1:-1]


def channels(call: KerasCall, x: Value) -> int:
    return x.shape[1] if call.channels_first else x.shape[-1]


def on_planes(call: KerasCall, x: Value, count: int, made: Plane) -> Value:
    """Do something to images whose axes are where the layer has them. One axis: rows of height 1; three: channels first."""
    if call.channels_first:
        return made(x, Layout.NCHW)
    if count == 1:
        n, t, c = x.shape
        y = made(reshape(call, x, (n, 1, t, c)), Layout.NHWC)
        return reshape(call, y, (n, *y.shape[2:]))
    if count == 2:
        return made(x, Layout.NHWC)
    return transpose(call, made(transpose(call, x, (0, 4, 1, 2, 3)), Layout.NCHW), (0, 2, 3, 4, 1))


def flat(call: KerasCall, layout: Layout, count: int) -> bool:
    """Whether `on_planes` has added an axis."""
    return count == 1 and layout is Layout.NHWC


def window_pads(
    call: KerasCall, sizes: tuple[int, ...], kernel: tuple[int, ...], strides: tuple[int, ...], dilations: tuple[int, ...]
) -> tuple[int, ...]:
    told = call.option("padding", "valid")
    if told == "valid":
        return (0,) * (2 * len(sizes))
    if told == "causal" and len(sizes) == 1:
        return ((kernel[0] - 1) * dilations[0], 0)
    if told != "same":
        raise Fault("bad-attribute", f"`padding` is {quoted(str(told))}, which is not valid")
    sides = [same_pads(*axis) for axis in zip(sizes, kernel, strides, dilations, strict=True)]
    return (*[a for a, _ in sides], *[b for _, b in sides])


def _count(call: KerasCall) -> int:
    return int(next(c for c in call.layer.kind if c.isdigit()))


def convolve(
    call: KerasCall,
    x: Value,
    w: Array,
    bias: Value | None,
    strides: tuple[int, ...],
    pads: tuple[int, ...],
    dilations: tuple[int, ...],
    group: int,
    name: str,
) -> Value:
    """`w` is [O, I/group, k...]."""
    count = len(strides)

    def made(image: Value, layout: Layout) -> Value:
        weights, options = w, (strides, pads, dilations)
        if flat(call, layout, count):
            weights = w[:, :, None]
            options = ((1, *strides), (0, pads[0], 0, pads[1]), (1, *dilations))
        value = call.constant(np.ascontiguousarray(weights), call.dtype, name)
        return call.emit(Conv(*options, group, layout), image, value, bias)

    return on_planes(call, x, count, made)


def bias_of(call: KerasCall, count: int) -> Value | None:
    return call.weight("bias", count) if call.flag("use_bias", True) else None


def _numbers(value: Value) -> Array:
    from intaglio.ops.base import widen

    assert value.data is not None
    return widen(value.data, value.dtype)


@layer("Conv1D", "Conv2D", "Conv3D", "Convolution1D", "Convolution2D", "Convolution3D")
def convolution(call: KerasCall) -> Result:
    count, x = _count(call), call.x
    kernel, strides, dilations = (call.wholes(n, count) for n in ("kernel_size", "strides", "dilation_rate"))
    filters, group = call.whole("filters"), call.whole("groups", 1)
    sizes, depth = spatial(call, x, count), channels(call, x)
    if group < 1 or depth % group:
        raise Fault("bad-attribute", f"`groups` is {group}, the input has {depth} channels")
    w = _numbers(call.weight("kernel", *kernel, depth // group, filters))
    turned = np.moveaxis(w, (-1, -2), (0, 1))
    pads = window_pads(call, sizes, kernel, strides, dilations)
    y = convolve(call, x, turned, bias_of(call, filters), strides, pads, dilations, group, "kernel")
    return activate(call, y, call.option("activation"))


@layer("DepthwiseConv1D", "DepthwiseConv2D")
def depthwise(call: KerasCall) -> Result:
    count, x = _count(call), call.x
    y = _depthwise(call, x, count, "kernel")
    multiplied = channels(call, y)
    bias = bias_of(call, multiplied)
    if bias is not None:
        y = _add_bias(call, y, bias)
    return activate(call, y, call.option("activation"))


def _add_bias(call: KerasCall, y: Value, bias: Value) -> Value:
    shape = (*bias.shape, *(1,) * (y.type.rank - 2)) if call.channels_first else bias.shape
    return call.emit(Add(), y, reshape(call, bias, shape))


def _depthwise(call: KerasCall, x: Value, count: int, role: str) -> Value:
    kernel, strides, dilations = (call.wholes(n, count) for n in ("kernel_size", "strides", "dilation_rate"))
    sizes, depth, times = spatial(call, x, count), channels(call, x), call.whole("depth_multiplier", 1)
    w = _numbers(call.weight(role, *kernel, depth, times))
    turned = np.moveaxis(w.reshape(*kernel, depth * times), -1, 0)[:, None]
    pads = window_pads(call, sizes, kernel, strides, dilations)
    return convolve(call, x, turned, None, strides, pads, dilations, depth, role)


@layer("SeparableConv1D", "SeparableConv2D", "SeparableConvolution1D", "SeparableConvolution2D")
def separable(call: KerasCall) -> Result:
    count = _count(call)
    y = _depthwise(call, call.x, count, "depthwise_kernel")
    filters, depth = call.whole("filters"), channels(call, y)
    ones = (1,) * count
    w = _numbers(call.weight("pointwise_kernel", *ones, depth, filters))
    turned = np.moveaxis(w, (-1, -2), (0, 1))
    y = convolve(call, y, turned, bias_of(call, filters), ones, (0,) * (2 * count), ones, 1, "pointwise_kernel")
    return activate(call, y, call.option("activation"))


@layer("Conv1DTranspose", "Conv2DTranspose", "Conv3DTranspose", "Convolution2DTranspose")
def transposed(call: KerasCall) -> Result:
    count, x = _count(call), call.x
    kernel, strides, dilations = (call.wholes(n, count) for n in ("kernel_size", "strides", "dilation_rate"))
    filters, depth = call.whole("filters"), channels(call, x)
    spatial(call, x, count)
    w = np.moveaxis(_numbers(call.weight("kernel", *kernel, filters, depth)), (-1, -2), (0, 1))
    bias = bias_of(call, filters)
    extra = call.wholes("output_padding", count, 0, 0) if call.option("output_padding") is not None else None
    crops = [
        _crops(call, k, s, d, None if extra is None else extra[n])
        for n, (k, s, d) in enumerate(zip(kernel, strides, dilations, strict=True))
    ]
    ahead, behind = tuple(a for a, _ in crops), tuple(b for _, b in crops)
    pads = (*[max(a, 0) for a in ahead], *[max(b, 0) for b in behind])
    more = tuple(max(-b, 0) for b in behind)
    outside = any(a < 0 for a in ahead)

    def made(image: Value, layout: Layout) -> Value:
        weights, options = w, (strides, pads, dilations, 1, more)
        if flat(call, layout, count):
            weights = w[:, :, None]
            options = ((1, *strides), (0, pads[0], 0, pads[1]), (1, *dilations), 1, (0, *more))
        value = call.constant(np.ascontiguousarray(weights), call.dtype, "kernel")
        y = call.emit(ConvTranspose(*options, layout), image, value, None if outside else bias)
        if not outside:
            return y
        begin = [max(-a, 0) for a in ahead]
        begin = [0, *begin] if flat(call, layout, count) else begin
        begin = [0, *begin, 0] if layout is Layout.NHWC else [0, 0, *begin]
        return padded(call, y, [*begin, *[0] * len(begin)])

    y = on_planes(call, x, count, made)
    if outside and bias is not None:
        y = _add_bias(call, y, bias)
    return activate(call, y, call.option("activation"))


def _crops(call: KerasCall, kernel: int, stride: int, dilation: int, extra: int | None) -> tuple[int, int]:
    """How much of the whole result ((size - 1) * stride + extent) is cut at both ends; negative: zeros are added.

    The rule of Keras 3 (`_convert_conv_transpose_padding_args_from_keras_to_jax`), which is TensorFlow's."""
    extent = (kernel - 1) * dilation + 1
    told = call.option("padding", "valid")
    if told == "valid":
        more = max(extent, stride) - extent if extra is None else extra
        return 0, -more
    if told != "same":
        raise Fault("bad-attribute", f"`padding` is {quoted(str(told))}, which is not valid")
    total = stride + extent - 2 if extra is None else extent + extent % 2 - 2 + extra
    left = min(total // 2 + total % 2, extent - 1)
    return extent - 1 - left, extent - 1 - (total - left)
