"""A row per StableHLO operation that has attributes; plain arithmetic needs none."""

from __future__ import annotations

import numpy as np

from intaglio.errors import quoted
from intaglio.frontends import stablehlo, stablehlo_places
from intaglio.frontends.building import cast, concat, reshape, transpose
from intaglio.frontends.jax.literals import halves_of, spread
from intaglio.frontends.jax.walk import JaxCall, dialect, row
from intaglio.frontends.onnx.faults import Fault
from intaglio.frontends.stablehlo_places import Axes
from intaglio.ir.graph import Value
from intaglio.ir.types import DType
from intaglio.ops.binary import Mul
from intaglio.ops.move import Slice
from intaglio.ops.norm import BatchNorm
from intaglio.ops.reduce import ArgReduce, TopK
from intaglio.ops.small import BitCast

_SAME = ("optimization_barrier",)


@row("constant")
def constant(call: JaxCall) -> list[Value]:
    made = call.result()
    if made.dtype is DType.BF16:
        return [call.walk.emitter.constant(spread(halves_of(str(call.operation)), made.shape), made.dtype)]
    data = np.array(call.attribute("value")).astype(made.dtype.numpy)
    return [call.walk.emitter.constant(np.array(np.broadcast_to(data, made.shape)), made.dtype)]


@row(*_SAME)
def same(call: JaxCall) -> list[Value]:
    return call.operands


@row("custom_call")
def custom_call(call: JaxCall) -> list[Value]:
    target = str(call.attribute("call_target_name")).strip('"')
    if target in ("Sharding", "annotate_device_placement"):
        return call.operands
    if target == "mhlo.erf":
        return [stablehlo.unary(call, "erf", call.operands[0])]
    raise Fault("unsupported-operator", f"it calls {quoted(target)}, which StableHLO does not define")


@row("composite")
def composite(call: JaxCall) -> list[Value]:
    """A named group of operators; what it is made of is a function."""
    if str(call.attribute("name")).strip('"') == "chlo.top_k":
        x, count = call.operands[0], call.result().shape[-1]
        values, places = call.emit_all(TopK(count, len(x.shape) - 1, True, True), x)
        return [values, cast(call, places, call.result(1).dtype)]
    return call.walk.function(str(call.attribute("decomposition")).lstrip("@").strip('"'), call.operands)


@row("bitcast_convert")
def bitcast_convert(call: JaxCall) -> list[Value]:
    x, made = call.operands[0], call.result()
    if x.dtype.bytes != made.dtype.bytes or DType.BOOL in (x.dtype, made.dtype):
        raise Fault("unsupported-operator", "between types of different size it is not supported")
    return [x if x.dtype is made.dtype else call.emit(BitCast(made.dtype), x)]


@row("reduce_precision")
def reduce_precision(call: JaxCall) -> list[Value]:
    x, bits = call.operands[0], (call.whole("exponent_bits"), call.whole("mantissa_bits"))
    to = {(8, 23): DType.F32, (8, 7): DType.BF16, (5, 10): DType.F16}.get(bits)
    if to is None or x.dtype not in (DType.F32, DType.F64):
        reason = f"to {bits[0]} bits of exponent and {bits[1]} of mantissa from {x.dtype.value} is not supported"
        raise Fault("unsupported-operator", reason, "those of f32, bf16 and f16 are supported")
    return [cast(call, cast(call, x, to), x.dtype)]


@row("batch_norm_inference")
def batch_norm(call: JaxCall) -> list[Value]:
    epsilon = float(call.attribute("epsilon").value)
    return [call.emit(BatchNorm(epsilon, call.whole("feature_index")), *call.operands)]


@row("real", "imag")
def parts(call: JaxCall) -> list[Value]:
    """Of real numbers; those of complex ones are in `complex_numbers.py`."""
    x = call.operands[0]
    return [x if call.name == "real" else call.emit(Mul(), x, call.like(0.0, x))]


@row("convert")
def convert(call: JaxCall) -> list[Value]:
    return [cast(call, call.operands[0], call.result().dtype)]


@row("reshape")
def reshape_(call: JaxCall) -> list[Value]:
    return [reshape(call, call.operands[0], call.result().shape)]


@row("transpose")
def transpose_(call: JaxCall) -> list[Value]:
    return [transpose(call, call.operands[0], call.ints("permutation"))]


@row("concatenate")
def concatenate(call: JaxCall) -> list[Value]:
    return [concat(call, call.operands, call.whole("dimension"))]


@row("broadcast_in_dim")
def broadcast_in_dim(call: JaxCall) -> list[Value]:
    return [stablehlo.broadcast_in_dim(call, call.operands[0], call.ints("broadcast_dimensions"), call.result().shape)]


@row("iota")
def iota(call: JaxCall) -> list[Value]:
    return [stablehlo.iota(call, call.whole("iota_dimension"), call.result().shape, call.result().dtype)]


@row("select")
def select(call: JaxCall) -> list[Value]:
    return [stablehlo.choose(call, *call.operands)]


@row("clamp")
def clamp(call: JaxCall) -> list[Value]:
    return [stablehlo.clamp(call, *call.operands)]


@row("compare")
def compare(call: JaxCall) -> list[Value]:
    direction = dialect().ComparisonDirectionAttr(call.attribute("comparison_direction")).value
    return [stablehlo.compare(call, str(direction), *call.operands)]


@row("reverse")
def reverse(call: JaxCall) -> list[Value]:
    x, axes = call.operands[0], call.ints("dimensions")
    starts = tuple(n - 1 if axis in axes else 0 for axis, n in enumerate(x.shape))
    return [call.emit(Slice(starts, tuple(-1 if axis in axes else 1 for axis in range(len(x.shape))), x.shape), x)]


@row("slice")
def slice_(call: JaxCall) -> list[Value]:
    return [stablehlo.slice_(call, call.operands[0], *[call.ints(n) for n in ("start_indices", "limit_indices", "strides")])]


@row("dynamic_slice")
def dynamic_slice(call: JaxCall) -> list[Value]:
    return [stablehlo_places.dynamic_slice(call, call.operands[0], call.operands[1:], call.ints("slice_sizes"))]


@row("pad")
def pad(call: JaxCall) -> list[Value]:
    x, value = call.operands
    if value.data is None:
        raise Fault("unsupported-operator", "it pads with a value that is computed")
    names = ("edge_padding_low", "edge_padding_high", "interior_padding")
    return [stablehlo.pad(call, x, value.data.reshape(()).item(), *[call.ints(name) for name in names])]


@row("dot_general")
def dot_general(call: JaxCall) -> list[Value]:
    d = dialect().DotDimensionNumbers(call.attribute("dot_dimension_numbers"))
    batch = list(d.lhs_batching_dimensions), list(d.rhs_batching_dimensions)
    contract = list(d.lhs_contracting_dimensions), list(d.rhs_contracting_dimensions)
    a, b = (cast(call, v, call.result().dtype) for v in call.operands)
    return [stablehlo.dot_general(call, a, b, batch, contract)]


def _kind(call: JaxCall) -> str:
    """What a body of one operation on its two arguments reduces by."""
    block = call.body()
    items = [item.operation for item in block.operations]
    word = str(items[0].name).removeprefix("stablehlo.")
    if len(items) == 2 and word in stablehlo.REDUCTIONS and len(items[0].operands) == 2:
        return stablehlo.REDUCTIONS[word]
    raise Fault("unsupported-operator", "it reduces by an expression of its own", "sums, products, extremes, and, or are supported")


@row("reduce")
def reduce(call: JaxCall) -> list[Value]:
    axes = call.ints("dimensions")
    if len(call.operands) == 2:
        return [stablehlo.reduce(call, _kind(call), call.operands[0], call.operands[1], axes)]
    return _largest(call, axes)


def _largest(call: JaxCall, axes: list[int]) -> list[Value]:
    """`argmax` and `argmin`: numbers and their places are reduced together, by comparisons."""
    items = [item.operation for item in call.body().operations]
    words = sorted(str(o.name).removeprefix("stablehlo.") for o in items[:-1])
    places = call.operands[1].data if len(call.operands) == 4 else None
    usual = ["and", "compare", "compare", "compare", "compare", "or", "or", "select", "select"]
    if words != usual or len(axes) != 1 or places is None:
        raise Fault("unsupported-operator", "it reduces several tensors by an expression of its own")
    line = np.arange(places.shape[axes[0]]).reshape([-1 if n == axes[0] else 1 for n in range(places.ndim)])
    direction = str(dialect().ComparisonDirectionAttr(items[0].attributes["comparison_direction"]).value)
    if not np.array_equal(places, np.broadcast_to(line, places.shape)) or direction not in ("GT", "LT"):
        raise Fault("unsupported-operator", "it reduces several tensors by an expression of its own")
    x, kind = call.operands[0], "max" if direction == "GT" else "min"
    value = stablehlo.reduce(call, kind, x, call.operands[2], axes)
    place = call.emit(ArgReduce(kind, axes[0], False), x)
    return [value, cast(call, place, call.result(1).dtype)]


@row("reduce_window")
def reduce_window(call: JaxCall) -> list[Value]:
    if len(call.operands) != 2:
        raise Fault("unsupported-operator", "it reduces several tensors at once")
    (x, start), ones = call.operands, [1] * len(call.operands[0].shape)
    pads = call.array("padding").tolist() if call.has("padding") else [[0, 0] for _ in ones]
    strides, base, dilations = (call.ints(name, ones) for name in ("window_strides", "base_dilations", "window_dilations"))
    sizes = call.ints("window_dimensions")
    return [stablehlo.reduce_window(call, _kind(call), x, start, sizes, strides, base, dilations, pads)]


@row("convolution")
def convolution(call: JaxCall) -> list[Value]:
    d, (x, w) = dialect().ConvDimensionNumbers(call.attribute("dimension_numbers")), call.operands
    ones = [1] * len(list(d.input_spatial_dimensions))
    if call.whole("batch_group_count", 1) != 1 or (call.has("window_reversal") and bool(np.any(call.array("window_reversal")))):
        raise Fault("unsupported-operator", "this form of `convolution` is not supported")
    axes = (
        Axes(d.input_batch_dimension, d.input_feature_dimension, tuple(d.input_spatial_dimensions)),
        Axes(d.kernel_output_feature_dimension, d.kernel_input_feature_dimension, tuple(d.kernel_spatial_dimensions)),
        Axes(d.output_batch_dimension, d.output_feature_dimension, tuple(d.output_spatial_dimensions)),
    )
    pads = call.array("padding").tolist() if call.has("padding") else [[0, 0] for _ in ones]
    strides, apart, dilations = (call.ints(name, ones) for name in ("window_strides", "lhs_dilation", "rhs_dilation"))
    groups = call.whole("feature_group_count", 1)
    return [stablehlo_places.convolution(call, x, w, axes, strides, pads, apart, dilations, groups)]
