"""What PT2E quantisation writes: quantize and dequantize, which `absorb_quantisation` takes into the types."""

from __future__ import annotations

import numpy as np

from intaglio.frontends.building import cast, reshape
from intaglio.frontends.onnx.faults import Fault, unsupported
from intaglio.frontends.torch.call import Answer, TorchCall, row
from intaglio.ir.graph import Value
from intaglio.ir.types import DType
from intaglio.ops.base import widen
from intaglio.ops.convert import Dequantize, Quantize
from intaglio.ops.numeric import int_range

SPACES = ("quantized_decomposed", "torchao")


def _scale(call: TorchCall, name: str, dtype: DType) -> Value:
    """A scale that is known, finite and above zero."""
    item = call.get(name)
    value = call.typed(item, dtype) if not isinstance(item, list) else call.constant(np.asarray(item), dtype)
    if value.data is None:
        raise unsupported("a scale that depends on data (dynamic quantisation)", "quantise statically, with calibration")
    numbers = widen(value.data, value.dtype).astype(np.float64)
    if not np.isfinite(numbers).all() or not np.greater(numbers, 0).all():
        raise Fault("bad-quantisation", f"a scale of `{call.op}` is zero, negative or not finite", "calibrate and quantise again")
    return value


def _zero(call: TorchCall, name: str, dtype: DType, scale: Value) -> Value:
    item = call.get(name)
    if item is None:
        return call.constant(np.zeros(scale.shape), dtype)
    value = call.typed(item, DType.I64) if not isinstance(item, list) else call.constant(np.asarray(item), DType.I64)
    if value.data is None:
        raise unsupported("a zero point that depends on data (dynamic quantisation)", "quantise statically, with calibration")
    low, high = int_range(dtype)
    if value.data.size and (value.data.min() < low or value.data.max() > high):
        raise Fault("bad-quantisation", f"a zero point of `{call.op}` does not fit {dtype.value}", "calibrate and quantise again")
    return cast(call, value, dtype)


def _spread(call: TorchCall, x: Value, parameter: Value) -> Value:
    """Parameters in a shape that broadcasts against x."""
    if "axis" not in call.arguments:
        if parameter.type.elements != 1:
            raise Fault("bad-quantisation", f"{parameter.type.elements} parameters for a tensor that has one")
        return reshape(call, parameter, ())
    axis = call.dim("axis", len(x.shape))
    if parameter.type.elements != x.shape[axis]:
        raise Fault("bad-quantisation", f"{parameter.type.elements} parameters do not fit {x.shape[axis]} channels")
    return reshape(call, parameter, tuple(x.shape[axis] if i == axis else 1 for i in range(len(x.shape))))


def _names(call: TorchCall) -> tuple[str, str]:
    return ("scales", "zero_points") if "scales" in call.arguments else ("scale", "zero_point")


def _range(call: TorchCall, stored: DType) -> tuple[int, int]:
    low, high = int_range(stored)
    small, large = call.integer("quant_min", low), call.integer("quant_max", high)
    if not low <= small <= large <= high:
        raise Fault("bad-quantisation", f"`{call.op}` to [{small}, {large}] in {stored.value} is not valid", "quantise again")
    return small, large


def quantize(call: TorchCall) -> Answer:
    x = call.tensor("input")
    stored = call.dtype()
    if stored is None or not stored.is_int:
        raise Fault("bad-quantisation", f"`{call.op}` to a type that is not an integer")
    low, high = _range(call, stored)
    scale_name, zero_name = _names(call)
    scale = _scale(call, scale_name, x.dtype)
    zero = _zero(call, zero_name, stored, scale)
    return call.emit(Quantize(stored, low, high), x, _spread(call, x, scale), _spread(call, x, zero))


def dequantize(call: TorchCall) -> Answer:
    x = call.tensor("input")
    if not x.dtype.is_int:
        raise Fault("bad-quantisation", f"`{call.op}` of {x.dtype.value}, which is not quantised")
    _range(call, x.dtype)
    to = call.dtype("out_dtype") or call.dtype("output_dtype") or DType.F32
    scale_name, zero_name = _names(call)
    scale = _scale(call, scale_name, to)
    zero = _zero(call, zero_name, x.dtype, scale)
    return call.emit(Dequantize(to), x, _spread(call, x, scale), _spread(call, x, zero))


def fake(call: TorchCall) -> Answer:
    """Quantised and back at once, as in training."""
    x = call.first()
    low, high = call.integer("quant_min"), call.integer("quant_max")
    stored = DType.I8 if low < 0 else DType.U8
    if not int_range(stored)[0] <= low <= high <= int_range(stored)[1]:
        stored = DType.I16 if low < 0 else DType.U16
    scale = _scale(call, "scale", x.dtype)
    zero = _zero(call, "zero_point", stored, scale)
    parameters = [_spread(call, x, scale), _spread(call, x, zero)]
    y = call.emit(Dequantize(x.dtype), call.emit(Quantize(stored, low, high), x, *parameters), *parameters)
    return [y, None]


for _space in SPACES:
    row("quantize_per_tensor", "quantize_per_channel", namespace=_space)(quantize)
    row("dequantize_per_tensor", "dequantize_per_channel", namespace=_space)(dequantize)
row("fake_quantize_per_tensor_affine", "fake_quantize_per_channel_affine", "fake_quantize_per_tensor_affine_cachemask",
    "fake_quantize_per_channel_affine_cachemask")(fake)  # fmt: skip


@row("choose_qparams", "choose_qparams_symmetric", "choose_qparams_per_token", namespace="quantized_decomposed")
def dynamic(call: TorchCall) -> Answer:
    raise unsupported("quantisation whose scale follows the data (dynamic)", "quantise statically, with calibration")
