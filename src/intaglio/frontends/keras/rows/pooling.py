"""Poolings."""

from __future__ import annotations

from intaglio.frontends.adaptive import adapted
from intaglio.frontends.building import cast, reshape, transpose
from intaglio.frontends.keras.rows.convolution import flat, on_planes, spatial, window_pads
from intaglio.frontends.keras.walk import KerasCall, Result, layer
from intaglio.frontends.onnx.faults import unsupported
from intaglio.ir.graph import Value
from intaglio.ir.types import Layout
from intaglio.ops.binary import Div, Mul
from intaglio.ops.pool import AveragePool, MaxPool
from intaglio.ops.reduce import Reduce


@layer(
    "MaxPooling1D", "MaxPooling2D", "MaxPooling3D", "MaxPool1D", "MaxPool2D", "MaxPool3D",
    "AveragePooling1D", "AveragePooling2D", "AveragePooling3D", "AvgPool1D", "AvgPool2D", "AvgPool3D",
)  # fmt: skip
def pooling(call: KerasCall) -> Result:
    count = int(call.layer.kind[-2])
    x = call.x
    size = call.wholes("pool_size", count, 2)
    strides = size if call.option("strides") is None else call.wholes("strides", count)
    pads = window_pads(call, spatial(call, x, count), size, strides, (1,) * count)
    if "Max" not in call.layer.kind and pads[:count] != pads[count:]:
        # https://github.com/keras-team/keras: `_apply_same_padding` of the backend; TensorFlow and JAX leave the border out.
        call.walk.differences.append(f"on PyTorch, average pooling repeats the border ({call.layer.name})")
    kind = MaxPool if call.layer.kind.startswith("Max") else AveragePool

    def made(image: Value, layout: Layout) -> Value:
        if flat(call, layout, count):
            return call.emit(kind((1, *size), (1, *strides), (0, pads[0], 0, pads[1]), (1, 1), layout), image)
        return call.emit(kind(size, strides, pads, (1,) * count, layout), image)

    return on_planes(call, x, count, made)


@layer(
    "AdaptiveAveragePooling1D", "AdaptiveAveragePooling2D", "AdaptiveAveragePooling3D", "AdaptiveMaxPooling1D",
    "AdaptiveMaxPooling2D", "AdaptiveMaxPooling3D",
)  # fmt: skip
def adaptive_pooling(call: KerasCall) -> Result:
    """Windows as PyTorch takes them, whatever the backend."""
    count, x = int(call.layer.kind[-2]), call.x
    spatial(call, x, count)
    out, last = call.wholes("output_size", count), x.type.rank - 1
    turned = x if call.channels_first else transpose(call, x, (0, last, *range(1, last)))
    y = adapted(call, turned, out, "Max" in call.layer.kind)
    return y if call.channels_first else transpose(call, y, (0, *range(2, last + 1), 1))


@layer(
    "GlobalMaxPooling1D", "GlobalMaxPooling2D", "GlobalMaxPooling3D", "GlobalMaxPool1D", "GlobalMaxPool2D", "GlobalMaxPool3D",
    "GlobalAveragePooling1D", "GlobalAveragePooling2D", "GlobalAveragePooling3D", "GlobalAvgPool1D", "GlobalAvgPool2D",
    "GlobalAvgPool3D",
)  # fmt: skip
def whole_pooling(call: KerasCall) -> Result:
    count = int(call.layer.kind[-2])
    x = call.x
    spatial(call, x, count)
    first = 2 if call.channels_first else 1
    kind = "max" if "Max" in call.layer.kind else "mean"
    if kind == "mean" and count == 1 and (mask := call.mask(x)) is not None:
        return _mean_of_some(call, x, mask)
    return call.emit(Reduce(kind, tuple(range(first, first + count)), call.flag("keepdims")), x)


def _mean_of_some(call: KerasCall, x: Value, mask: Value) -> Value:
    """Of the steps that a mask leaves."""
    if call.channels_first:
        raise unsupported("it reads a mask with the channels first, which is not supported")
    counts = cast(call, reshape(call, mask, (*mask.shape, 1)), x.dtype)
    keep = call.flag("keepdims")
    total = call.emit(Reduce("sum", (1,), keep), call.emit(Mul(), x, counts))
    return call.emit(Div(), total, call.emit(Reduce("sum", (1,), keep), counts))
