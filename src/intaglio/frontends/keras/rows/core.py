"""Dense, embeddings, and layers that do nothing when a model is used."""

from __future__ import annotations

import numpy as np

from intaglio.errors import quoted
from intaglio.frontends.building import cast, reshape
from intaglio.frontends.einsum import einsum
from intaglio.frontends.keras.rows.activation import activate
from intaglio.frontends.keras.walk import KerasCall, Result, layer
from intaglio.frontends.onnx.faults import Fault, unsupported
from intaglio.ir.types import DType
from intaglio.ops.binary import Add, Equal, Mul
from intaglio.ops.index import Gather
from intaglio.ops.matmul import MatMul
from intaglio.ops.reduce import Reduce
from intaglio.ops.unary import LogicalNot


@layer("Dense")
def dense(call: KerasCall) -> Result:
    x, units = call.x, call.whole("units")
    if x.type.rank < 2:
        raise Fault("shape-mismatch", f"it takes at least two axes, got {list(x.shape)}")
    if call.option("lora_rank"):
        call.walk.emitter.notes.append(f"the layer {quoted(call.layer.name)} has LoRA: Keras has merged it into the kernel")
    w = call.weight("kernel", x.shape[-1], units)
    bias = call.weight("bias", units) if call.flag("use_bias", True) else None
    return activate(call, call.emit(MatMul(), x, w, bias), call.option("activation"))


@layer("EinsumDense")
def einsum_dense(call: KerasCall) -> Result:
    x, equation = call.x, call.option("equation")
    if not isinstance(equation, str):
        raise Fault("bad-attribute", "it has no equation")
    w = call.weight("kernel", *call.walk.weights.shape(call.layer, "kernel"))
    y = einsum(call, equation, [x, w])
    if call.option("bias_axes"):
        y = call.emit(Add(), y, call.weight("bias", *call.walk.weights.shape(call.layer, "bias")))
    return activate(call, y, call.option("activation"))


@layer("Embedding")
def embedding(call: KerasCall) -> Result:
    x = call.x
    table = call.weight("embeddings", call.whole("input_dim"), call.whole("output_dim"))
    index = x if x.dtype in (DType.I32, DType.I64) else cast(call, x, DType.I32)
    y = call.emit(Gather(0), table, index)
    if call.flag("mask_zero"):
        call.walk.masks[y] = call.emit(LogicalNot(), call.emit(Equal(), index, call.like(0, index)))
    return y


@layer("Masking")
def masking(call: KerasCall) -> Result:
    """Steps whose features are all `mask_value` become zeros, and do not count in layers behind it."""
    x = call.x
    same = call.emit(Equal(), x, call.like(call.number("mask_value", 0.0), x))
    other = cast(call, call.emit(LogicalNot(), same), x.dtype)
    counts = call.emit(Reduce("max", (x.type.rank - 1,), True), other)
    y = call.emit(Mul(), x, counts)
    if x.type.rank == 3:
        call.walk.masks[y] = cast(call, reshape(call, counts, x.shape[:2]), DType.BOOL)
    return y


@layer(
    "Dropout", "SpatialDropout1D", "SpatialDropout2D", "SpatialDropout3D", "GaussianDropout", "GaussianNoise", "AlphaDropout",
    "ActivityRegularization", "Identity", "InputLayer", "RandomFlip", "RandomRotation", "RandomZoom", "RandomTranslation",
    "RandomContrast", "RandomBrightness", "RandomCrop", "StochasticDepth",
)  # fmt: skip
def nothing(call: KerasCall) -> Result:
    """Only training makes a difference."""
    if call.layer.kind == "RandomCrop":
        raise unsupported("it resizes its input when the model is used, which is not supported")
    if call.kwargs.get("training") is True and call.layer.kind not in ("Identity", "InputLayer", "ActivityRegularization"):
        raise unsupported("it is called with `training=True`, so its result is random", "call it without `training`")
    return call.x


@layer("Rescaling")
def rescaling(call: KerasCall) -> Result:
    x = cast(call, call.x, call.dtype)
    for option, op, neutral in (("scale", Mul(), 1.0), ("offset", Add(), 0.0)):
        told = call.option(option, neutral)
        array = np.asarray(told, np.float32)
        if array.ndim > 1:
            raise Fault("bad-attribute", f"`{option}` is {quoted(str(told))}, which is not valid")
        if np.any(array != neutral):
            x = call.emit(op, x, call.constant(array, call.dtype))
    return x


@layer("LayerScale")
def layer_scale(call: KerasCall) -> Result:
    """Of keras.applications (ConvNeXt): a factor per channel."""
    return call.emit(Mul(), call.x, call.weight("gamma", call.whole("projection_dim")))


@layer("CustomScaleLayer")
def scaled_sum(call: KerasCall) -> Result:
    """Of keras.applications (Inception-ResNet): the second tensor is scaled and added."""
    x, y = call.tensors()
    return call.emit(Add(), x, call.emit(Mul(), y, call.like(call.number("scale", 1.0), y)))
