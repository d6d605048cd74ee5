"""Keras' own quantisation (`model.quantize("int8")`, "int4", "float8"): what a layer keeps, and how it multiplies.

    int8     y = round(x * s) @ w / (scale * s)     s = 127 / (largest |x| of the row + epsilon), where x is quantised too
    int4     two weights in a byte; with blocks of inputs (w - zero) * scale, else as int8
    float8   x and w go through e4m3: clipped to 448 after a division by their scale; the bias through bf16

Integer products are computed in floats, which hold them exactly up to 2^24.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from intaglio.errors import quoted
from intaglio.frontends.building import cast
from intaglio.frontends.onnx.faults import Fault
from intaglio.ir.graph import Array, Value
from intaglio.ir.types import DType
from intaglio.ops.activation import Clip
from intaglio.ops.binary import Add, Div, Mul
from intaglio.ops.index import Gather
from intaglio.ops.reduce import Reduce
from intaglio.ops.small import FORMATS, NarrowFloat
from intaglio.ops.unary import Abs, Round

if TYPE_CHECKING:
    from intaglio.frontends.keras.walk import KerasCall

Config = dict[str, Any]
MODES = ("int8", "int4", "float8")
_POLICIES = ("QuantizedDTypePolicy", "Int4DTypePolicy", "QuantizedFloat8DTypePolicy")
_LARGEST = 448.0  # of e4m3
_HINT = "save the model before it is quantised, and use `--quantize int8 --calibrate DATA`"


@dataclass(frozen=True, slots=True)
class Activations:
    """How numbers that go into a layer are quantised."""

    low: float
    high: float
    epsilon: float


@dataclass(frozen=True, slots=True)
class Quantised:
    mode: str
    source: str  # the type that the layer computes in
    block: int | None  # inputs that share a scale; None: all
    activations: Activations | None


def quantised_of(config: Config) -> Quantised | None:
    """What the options of a layer say about it; None: it is not quantised."""
    told = config.get("dtype")
    name, source = (told, "") if isinstance(told, str) else ("", "")
    if isinstance(told, dict) and told.get("class_name") in _POLICIES:
        inner = told.get("config")
        inner = inner if isinstance(inner, dict) else {}
        name, source = str(inner.get("mode") or inner.get("name") or ""), str(inner.get("source_name") or "")
    if "_from_" in name:
        name, _, source = name.partition("_from_")
    mode, _, size = name.partition("/")
    if mode not in MODES:
        return None
    settings = config.get("quantization_config")
    inner = settings.get("config") if isinstance(settings, dict) else None
    inner = inner if isinstance(inner, dict) else {}
    block = None
    if mode == "int4":
        asked = int(size) if size.lstrip("-").isdigit() else inner.get("block_size")
        block = asked if isinstance(asked, int) and asked > 0 else None
    return Quantised(mode, source or "float32", block, _activations(mode, block, settings, inner))


def _activations(mode: str, block: int | None, settings: object, inner: Config) -> Activations | None:
    """Files from before there was a configuration quantise them always."""
    if mode == "float8" or block is not None:
        return None
    if not isinstance(settings, dict):
        return Activations(-127.0, 127.0, 1e-7)
    told = inner.get("activation_quantizer")
    if told is None:
        return None
    if not isinstance(told, dict) or told.get("class_name") != "AbsMaxQuantizer":
        raise Fault("unsupported-type", "its activations are quantised in a way of its own", _HINT)
    options = told.get("config")
    options = options if isinstance(options, dict) else {}
    low, high = options.get("value_range") or (-127, 127)
    return Activations(float(low), float(high), float(options.get("epsilon", 1e-7)))


def roles_of(kind: str, config: Config, found: Quantised) -> list[tuple[str, bool]]:
    """The variables of a quantised layer, in the order in which Keras writes them."""
    first = "embeddings" if kind == "Embedding" else "kernel"
    bias = config.get("use_bias", True) if kind == "Dense" else kind == "EinsumDense" and config.get("bias_axes")
    plain = [(first, found.mode == "float8"), *([("bias", True)] if bias else [])]
    if found.mode == "float8":
        parts = ("inputs", "kernel", "outputs_grad")
        return [*plain, *[(f"{part}_{what}", False) for part in parts for what in ("scale", "amax_history")]]
    blocks = [(f"{first}_zero", False), ("g_idx", False)] if found.block is not None else []
    return [*plain, (f"{first}_scale", False), *blocks]


def check_kind(kind: str, config: Config) -> None:
    """Only some layers can be quantised; a model that holds them has the policy of its parts."""
    found = quantised_of(config)
    kinds = ("Dense", "EinsumDense") if found is not None and found.mode == "float8" else ("Dense", "EinsumDense", "Embedding")
    if found is not None and kind not in kinds:
        raise Fault("unsupported-type", f"the dtype policy {quoted(found.mode)} of this layer is not supported", _HINT)


def _stored(call: KerasCall, role: str) -> Array:
    weights = call.walk.weights
    weights.shape(call.layer, role)
    return weights.read(call.layer, role)


def _nibbles(packed: Array, columns: int) -> Array:
    """Two numbers of four bits in a byte, the first in the low half, along the last axis."""
    low, high = ((packed.astype(np.int64) >> shift & 15 ^ 8) - 8 for shift in (0, 4))
    return np.stack([low, high], axis=-1).reshape(*packed.shape[:-1], -1)[..., :columns]


def _fits(made: tuple[int, ...], wanted: tuple[int, ...], role: str) -> None:
    if made != wanted:
        text = f"its {role} is {list(made)} in the file, its options ask for {list(wanted)}"
        raise Fault("shape-mismatch", text, "the weights belong to another model; save it again")


def rounded(call: KerasCall, x: Value, how: Activations, axes: tuple[int, ...]) -> tuple[Value, Value]:
    """(whole numbers, scale) of x, quantised along axes."""
    largest = call.emit(Reduce("max", axes, True), call.emit(Abs(), x))
    scale = call.emit(Div(), call.like(how.high, x), call.emit(Add(), largest, call.like(how.epsilon, x)))
    return call.emit(Clip(how.low, how.high), call.emit(Round(), call.emit(Mul(), x, scale))), scale


def through_float8(call: KerasCall, x: Value, role: str) -> Value:
    scale = call.constant(np.asarray(_stored(call, f"{role}_scale").reshape(-1)[0], np.float32), x.dtype)
    inside = call.emit(Clip(-_LARGEST, _LARGEST), call.emit(Div(), x, scale))
    codes = cast(call, call.emit(NarrowFloat("f8e4m3fn"), cast(call, inside, DType.F32)), DType.I32)
    real = call.emit(Gather(0), call.constant(FORMATS["f8e4m3fn"].table().astype(np.float32), DType.F32), codes)
    return call.emit(Mul(), cast(call, real, x.dtype), scale)


def bias_of(call: KerasCall, found: Quantised | None, bias: Value) -> Value:
    """A bias as it is added: with float8, Keras cuts one of f32 to bf16."""
    if found is None or found.mode != "float8" or bias.dtype is not DType.F32:
        return bias
    return cast(call, cast(call, bias, DType.BF16), DType.F32)


def in_groups(whole: Array, scale: Array, zero: Array, groups: Array, axis: int) -> Array:
    places = groups.reshape(-1).astype(np.int64)
    if places.size != whole.shape[axis] or (places.size and not 0 <= places.min() <= places.max() < scale.shape[axis]):
        raise Fault("shape-mismatch", "its groups do not fit its weights", "save the model again")
    factor, offset = (np.take(a, places, axis=axis).astype(np.float32) for a in (scale, zero))
    return (whole.astype(np.float32) - offset) * factor


@dataclass(frozen=True, slots=True)
class Kernel:
    """Weights as a constant, and what the product with them is divided by."""

    weights: Value
    scale: Value | None


def kernel(call: KerasCall, found: Quantised, shape: tuple[int, ...]) -> Kernel:
    stored = _stored(call, "kernel")
    if found.mode == "float8":
        _fits(stored.shape, shape, "kernel")
        return Kernel(through_float8(call, call.constant(stored.astype(np.float32), call.dtype), "kernel"), None)
    scale = _stored(call, "kernel_scale").astype(np.float32)
    if found.mode == "int8":
        _fits(stored.shape, shape, "kernel")
        narrow = DType.I8 if call.dtype is DType.F32 else call.dtype
        return Kernel(call.constant(stored.astype(np.int8), narrow, "kernel"), call.constant(scale, call.dtype))
    columns = scale.shape[-1] if scale.ndim else 1
    whole = _nibbles(stored, columns)
    if whole.size != np.prod(shape):
        _fits(stored.shape, shape, "kernel")
    if found.block is not None:
        real = in_groups(whole, scale, _stored(call, "kernel_zero"), _stored(call, "g_idx"), 0)
    else:
        real = whole.astype(np.float32) / scale
    return Kernel(call.constant(real.reshape(shape), call.dtype, "kernel"), None)


def table(call: KerasCall, found: Quantised, rows: int, columns: int, index: Value) -> Value:
    """Rows of an embedding."""
    stored, scale = _stored(call, "embeddings"), _stored(call, "embeddings_scale").astype(np.float32)
    if found.mode == "int8":
        _fits(stored.shape, (rows, columns), "embeddings")
        taken = cast(call, call.emit(Gather(0), call.constant(stored.astype(np.int8), DType.I8, "embeddings"), index), call.dtype)
        return call.emit(Div(), taken, call.emit(Gather(0), call.constant(scale.reshape(rows, 1), call.dtype), index))
    whole = _nibbles(stored, columns)
    _fits(whole.shape, (rows, columns), "embeddings")
    if found.block is not None:
        real = in_groups(whole, scale, _stored(call, "embeddings_zero"), _stored(call, "g_idx"), 1)
    else:
        real = whole.astype(np.float32) / scale.reshape(rows, 1)
    return call.emit(Gather(0), call.constant(real, call.dtype, "embeddings"), index)
