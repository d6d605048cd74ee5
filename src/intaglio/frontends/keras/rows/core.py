"""Dense, embeddings, and layers that do nothing when a model is used."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from intaglio.errors import quoted
from intaglio.frontends.building import cast, reshape
from intaglio.frontends.einsum import einsum
from intaglio.frontends.keras import quantised
from intaglio.frontends.keras.quantised import Quantised, quantised_of
from intaglio.frontends.keras.rows.activation import activate
from intaglio.frontends.keras.walk import DTYPES, KerasCall, Result, layer
from intaglio.frontends.onnx.faults import Fault, unsupported
from intaglio.ir.graph import Value
from intaglio.ir.types import DType
from intaglio.ops.activation import Tanh
from intaglio.ops.binary import Add, Div, Equal, Mul
from intaglio.ops.index import Gather
from intaglio.ops.matmul import MatMul
from intaglio.ops.reduce import Reduce
from intaglio.ops.unary import LogicalNot


@layer("Dense")
def dense(call: KerasCall) -> Result:
    x, units = call.x, call.whole("units")
    x = x if x.dtype.is_float else cast(call, x, call.dtype)
    if x.type.rank < 2:
        raise Fault("shape-mismatch", f"it takes at least two axes, got {list(x.shape)}")
    if call.option("lora_rank"):
        call.walk.emitter.notes.append(f"the layer {quoted(call.layer.name)} has LoRA: Keras has merged it into the kernel")
    bias = call.weight("bias", units) if call.flag("use_bias", True) else None
    if (found := quantised_of(call.config)) is not None:
        y = _quantised(call, found, (x.shape[-1], units), (x.type.rank - 1,), lambda a, w: call.emit(MatMul(), a, w))
        bias = None if bias is None else quantised.bias_of(call, found, bias)
        return activate(call, y if bias is None else call.emit(Add(), y, bias), call.option("activation"))
    w = call.weight("kernel", x.shape[-1], units)
    return activate(call, call.emit(MatMul(), x, w, bias), call.option("activation"))


def _quantised(
    call: KerasCall, found: Quantised, shape: tuple[int, ...], axes: tuple[int, ...], product: Callable[[Value, Value], Value]
) -> Value:
    """A product with quantised weights of this shape; `axes` of the input are those that are summed."""
    x, kernel = call.x, quantised.kernel(call, found, shape)
    if found.mode == "float8":
        return product(quantised.through_float8(call, x, "inputs"), kernel.weights)
    if found.activations is not None:
        whole, scale = quantised.rounded(call, x, found.activations, axes)
        x = whole if call.layer.kind == "Dense" else call.emit(Div(), whole, scale)
    y = product(x, kernel.weights)
    if kernel.scale is not None:
        y = call.emit(Div(), y, kernel.scale)
    return call.emit(Div(), y, scale) if found.activations is not None and call.layer.kind == "Dense" else y


@layer("EinsumDense")
def einsum_dense(call: KerasCall) -> Result:
    x, equation = call.x, call.option("equation")
    if not isinstance(equation, str):
        raise Fault("bad-attribute", "it has no equation")
    if (found := quantised_of(call.config)) is not None:
        shape, axes = _kernel_shape(call, equation)
        y = _quantised(call, found, shape, axes, lambda a, w: einsum(call, equation, [a, cast(call, w, a.dtype)]))
    else:
        y = einsum(call, equation, [x, call.weight("kernel", *call.walk.weights.shape(call.layer, "kernel"))])
    if call.option("bias_axes"):
        bias = call.weight("bias", *call.walk.weights.shape(call.layer, "bias"))
        y = call.emit(Add(), y, quantised.bias_of(call, found, bias))
    return activate(call, y, call.option("activation"))


def _kernel_shape(call: KerasCall, equation: str) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """(the shape of the kernel, axes of the input that are summed): sizes by the letters of the input and of the options."""
    inputs, _, result = equation.replace(" ", "").partition("->")
    left, _, weights = inputs.partition(",")
    rank = len(call.x.shape)
    before, _, after = left.partition("...")
    places = {c: n for n, c in enumerate(before)} | {c: rank - len(after) + n for n, c in enumerate(after)}
    told = call.option("output_shape")
    sizes = [told] if isinstance(told, int) else list(told or [])
    tail = result.rpartition("...")[2] if "..." in result else result[1:]
    known = {c: size for c, size in zip(reversed(tail), reversed(sizes), strict=False) if isinstance(size, int)}
    known |= {c: call.x.shape[n] for c, n in places.items()}
    if not all(c in known for c in weights):
        raise Fault("bad-attribute", f"the sizes of its equation {quoted(equation)} are not all known")
    return tuple(known[c] for c in weights), tuple(sorted(n for c, n in places.items() if c not in result))


@layer("ReversibleEmbedding")
def reversible(call: KerasCall) -> Result:
    """The table, or with `reverse` how much a vector is like each of its rows."""
    if not call.kwargs.get("reverse") and True not in call.args:
        return embedding(call)
    if quantised_of(call.config) is not None:
        raise unsupported("a quantised `ReversibleEmbedding` is not supported", "save the model before it is quantised")
    x, rows, columns = call.x, call.whole("input_dim"), call.whole("output_dim")
    tied = call.flag("tie_weights", True)
    to = x.dtype if call.option("reverse_dtype") is None else DTYPES.get(str(call.option("reverse_dtype")))
    if to is None:
        raise Fault("bad-attribute", f"`reverse_dtype` is {quoted(str(call.option('reverse_dtype')))}, which is not valid")
    w = call.weight("embeddings", rows, columns) if tied else call.weight("reverse_embeddings", columns, rows)
    y = call.emit(MatMul(transpose_b=tied), cast(call, x, to), cast(call, w, to))
    if call.option("logit_soft_cap") is not None:
        cap = call.number("logit_soft_cap", 1.0)
        y = call.emit(Mul(), call.emit(Tanh(), call.emit(Div(), y, call.like(cap, y))), call.like(cap, y))
    return y


@layer("Embedding")
def embedding(call: KerasCall) -> Result:
    x = call.x
    index = x if x.dtype in (DType.I32, DType.I64) else cast(call, x, DType.I32)
    rows, columns = call.whole("input_dim"), call.whole("output_dim")
    if (found := quantised_of(call.config)) is not None:
        y = quantised.table(call, found, rows, columns, index)
    else:
        y = call.emit(Gather(0), call.weight("embeddings", rows, columns), index)
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


# Of images: these make whole numbers floats also when nothing else happens.
_TO_FLOATS = (
    "AugMix", "CutMix", "RandAugment", "RandomElasticTransform", "RandomErasing", "RandomFlip", "RandomGaussianBlur",
    "RandomPerspective", "RandomRotation", "RandomSharpness", "RandomShear", "RandomTranslation", "RandomZoom", "Solarization",
)  # fmt: skip


@layer(
    "Dropout", "SpatialDropout1D", "SpatialDropout2D", "SpatialDropout3D", "GaussianDropout", "GaussianNoise", "AlphaDropout",
    "ActivityRegularization", "Identity", "InputLayer", "RandomContrast", "RandomBrightness", "StochasticDepth", "Equalization",
    "MaxNumBoundingBoxes", "MixUp", "RandomColorDegeneration", "RandomColorJitter", "RandomGrayscale", "RandomHue", "RandomInvert",
    "RandomPosterization", "RandomSaturation", *_TO_FLOATS,
)  # fmt: skip
def nothing(call: KerasCall) -> Result:
    """Only training makes a difference."""
    if call.kwargs.get("training") is True and call.layer.kind not in ("Identity", "InputLayer", "ActivityRegularization"):
        raise unsupported("it is called with `training=True`, so its result is random", "call it without `training`")
    return cast(call, call.x, call.dtype) if call.layer.kind in _TO_FLOATS else call.x


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
