"""What CMSIS-NN computes bit for bit as the model means it; and for the rest, the reason.

Sums of 32 bits are scaled by `arm_nn_requantize`: a rounding high multiply, then a rounding shift, as TFLite's convolutions do
(`twice`). Built with CMSIS_NN_USE_SINGLE_ROUNDING it rounds once, half up, where TFLite's fully connected layers round half away
from zero (`once`): the same unless a negative sum lies exactly between two results. The weights tell whether one can.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from cmsis_nn.library import SINGLE, Library, find_library, rounding
from cmsis_nn.scratch import Geometry, is_three_by_three, row_is_right
from intaglio.accelerator import DType, Layout, Node, Region, Value
from intaglio.ops.pool import MaxPool
from intaglio.ops.quantised import QAdd, QConv, QMatMul
from intaglio.ops.quantised_rows import QAveragePool, QSoftmax

Longs = npt.NDArray[np.int64]
MOST = 65535  # sizes that it keeps in 16 bits
ROOM = 2**31 - 256  # for a sum and a zero point in 32 bits
SUM_ROWS = 4095  # numbers in a row of softmax: the sum of their exponentials has 32 bits, each at most 2^19


def convolution(region: Region) -> str | None:
    node = region.node
    op, x, w = node.op, _given(node, 0), _given(node, 1)
    assert isinstance(op, QConv)
    if op.epilogue:
        return f"it cannot do `{op.epilogue[0].op.NAME}` behind a convolution"
    if w.data is None or w.dtype is not DType.I8:
        return "its weights are not i8 constants"
    depthwise = op.group == x.shape[3] and op.group > 1
    if op.group != 1 and not depthwise:
        return f"it has {op.group} groups: 1, or one per channel, are taken"
    stem, g = convolution_function(node), geometry(node)
    if max(*x.shape, *w.shape, *node.output.shape, g.depth) > MOST:
        return f"a size is beyond {MOST}"
    if depthwise and is_three_by_three(g) and (g.result[1] - 1) * g.strides[1] - g.pads[1] + 1 >= g.image[1]:
        return "arm_depthwise_conv_3x3_s8 needs the middle of every window inside of the image"
    zeros = (op.x_zero, op.w_zero, op.y_zero)
    return _library(stem, f"{stem}_get_buffer_size") or _product(node, op.scaling, zeros, w.data.reshape(w.shape[0], -1))


def dense(region: Region) -> str | None:
    node = region.node
    op, w = node.op, _given(node, 1)
    assert isinstance(op, QMatMul)
    if w.data is None or w.dtype is not DType.I8 or w.type.rank != 2:
        return "its weights are not an i8 constant, one matrix"
    rows = w.data if op.transpose_b else w.data.T
    reason = _product(node, op.scaling, (op.a_zero, op.b_zero, op.y_zero), rows) or _apart()
    name = "arm_fully_connected_s8" if one_factor(node) is not None else "arm_fully_connected_per_channel_s8"
    return reason or _library(name, "arm_fully_connected_s8_get_buffer_size", "arm_vector_sum_s8")


def addition(region: Region) -> str | None:
    node = region.node
    op, a, b = node.op, _given(node, 0), _given(node, 1)
    assert isinstance(op, QAdd)
    if {a.dtype, b.dtype, node.output.dtype} != {DType.I8}:
        return "it adds i8"
    if a.shape != b.shape:
        return "it adds tensors of one shape, without broadcasting"
    if a.is_const and b.is_const:
        return "both sides are constants"
    if op.subtract:
        return "it adds: the difference would be rounded in another way"
    if not 16 <= op.lift <= 22 or max(op.a_shift, op.b_shift, op.shift) > 0 or min(op.a_shift, op.b_shift, op.shift) < -31:
        return "its factors are not below 1, or its sides are not lifted by 16 to 22 bits"
    return _rounding("twice") or _library("arm_elementwise_add_s8")


def max_pool(region: Region) -> str | None:
    node = region.node
    op, x = node.op, _given(node, 0)
    assert isinstance(op, MaxPool)
    if x.dtype is not DType.I8 or x.type.rank != 4 or op.layout is not Layout.NHWC:
        return "it pools i8 images, NHWC"
    if any(d != 1 for d in op.dilations):
        return "its window is dilated"
    return _windows(op, node) or _library("arm_max_pool_s8")


def average_pool(region: Region) -> str | None:
    node = region.node
    op, x = node.op, _given(node, 0)
    assert isinstance(op, QAveragePool)
    if x.dtype is not DType.I8:
        return "it pools i8 images"
    return _windows(op, node) or _library("arm_avgpool_s8", "arm_avgpool_s8_get_buffer_size")


def softmax(region: Region) -> str | None:
    node = region.node
    op, x = node.op, _given(node, 0)
    assert isinstance(op, QSoftmax)
    if x.dtype is not DType.I8 or node.output.dtype is not DType.I8:
        return f"it computes in i8, not in {x.dtype.value} to {node.output.dtype.value}"
    if x.shape[-1] > SUM_ROWS:
        return f"a row of {x.shape[-1]} is beyond {SUM_ROWS}: its sum needs more than 32 bits"
    if not 0 <= op.factors()[1] <= 30:
        return "its step is too small for a shift to the left"
    return _library("arm_softmax_s8")


def geometry(node: Node) -> Geometry:
    op, x, w = node.op, _given(node, 0), _given(node, 1)
    assert isinstance(op, QConv)
    (_, rows, columns, channels), (kh, kw), out = x.shape, w.shape[2:], node.output.shape
    strides, dilations = (op.strides[0], op.strides[1]), (op.dilations[0], op.dilations[1])
    return Geometry((rows, columns), channels, (kh, kw), strides, (op.pads[0], op.pads[1]), dilations, (out[1], out[2]))


def convolution_function(node: Node) -> str:
    """The wrapper, which chooses the fastest; for rows that this would not compute rightly, the function for all shapes."""
    assert isinstance(node.op, QConv)
    if node.op.group > 1:
        return "arm_depthwise_conv_wrapper_s8"
    g = geometry(node)
    return "arm_convolve_s8" if g.is_row and not row_is_right(g) else "arm_convolve_wrapper_s8"


def one_factor(node: Node) -> tuple[int, int] | None:
    """Multiplier and shift, where all outputs have the same."""
    pairs = {(int(m), int(s)) for m, s in zip(*_factors(node), strict=True)}
    return next(iter(pairs)) if len(pairs) == 1 else None


def _given(node: Node, number: int) -> Value:
    value = node.inputs[number]
    assert value is not None
    return value


def _factors(node: Node) -> tuple[Longs, Longs]:
    multiplier, shift = _given(node, 3).data, _given(node, 4).data
    assert multiplier is not None and shift is not None
    return multiplier.reshape(-1).astype(np.int64), shift.reshape(-1).astype(np.int64)


def _library(*names: str) -> str | None:
    found = find_library()
    return found.problem(*names) if isinstance(found, Library) else found


def _apart() -> str | None:
    found = find_library()
    return found.dense_alone()[1] if isinstance(found, Library) and rounding() == "dense" else None


def _rounding(scaling: str, dense: bool = False) -> str | None:
    """Why sums are not rounded as a layer with this scaling rounds them."""
    built = {"twice": "twice", "once": "once", "dense": "once" if dense else "twice"}[rounding()]
    if scaling not in ("once", "twice"):
        return f"CMSIS-NN has no scaling `{scaling}`"
    if scaling == built:
        return None
    hint = f"`{SINGLE}={'dense' if dense else 1}` in the environment" if scaling == "once" else f"another `{SINGLE}`"
    return f"it is rounded {scaling}, and CMSIS-NN is built to round {built}: {hint} changes that"


def _product(node: Node, scaling: str, zeros: tuple[int, int, int], weights: npt.NDArray[np.generic]) -> str | None:
    """Reasons that convolutions and fully connected layers share; `weights` has a row for each output."""
    x, bias, multiplier, shift = (node.inputs[i] for i in (0, 2, 3, 4))
    if x is None or x.dtype is not DType.I8 or node.output.dtype is not DType.I8:
        return "it computes in i8"
    if zeros[1] != 0:
        return "its weights have a zero point"
    if bias is not None and (bias.data is None or bias.dtype is not DType.I32):
        return "its bias is not an i32 constant"
    if (reason := _rounding(scaling, isinstance(node.op, QMatMul))) is not None:
        return reason
    if multiplier is None or multiplier.data is None or shift is None or shift.data is None:
        return "its multipliers are not constants"
    if int(shift.data.min()) < -31 or int(shift.data.max()) > 30:
        return "its shifts are beyond 30 bits"
    low, high = _sums(weights.astype(np.int64), None if bias is None else bias.data, zeros[0])
    return _room(node, scaling, low, high)


def _sums(weights: Longs, bias: npt.NDArray[np.generic] | None, zero: int) -> tuple[Longs, Longs]:
    """Between what the sum of each output lies: inputs are -128 to 127, or zero where an image is padded."""
    up, down = np.maximum(weights, 0).sum(axis=1), np.minimum(weights, 0).sum(axis=1)
    most, least = max(127 - zero, 0), min(-128 - zero, 0)
    added = np.zeros(len(weights), np.int64) if bias is None else bias.reshape(-1).astype(np.int64)
    return added + up * least + down * most, added + up * most + down * least


def _room(node: Node, scaling: str, low: Longs, high: Longs) -> str | None:
    multiplier, shift = (np.broadcast_to(n, low.shape) for n in _factors(node))
    lift = np.maximum(shift, 0) + (scaling == "once") * (shift >= 0)
    if (np.maximum(np.abs(low), np.abs(high)) >> (31 - lift)).any() or (np.maximum(-low, high) << lift).max(initial=0) >= ROOM:
        return "its sums can be beyond 32 bits"
    if scaling == "once":
        # sum * multiplier is an odd number of half steps only if the sum is an odd multiple of 2^ties
        zeros = np.asarray([(int(m) & -int(m)).bit_length() - 1 for m in multiplier], np.int64)
        ties = 30 - shift - zeros
        if ((multiplier != 0) & (ties >= 0) & (ties < 32) & (-low >= np.int64(1) << np.clip(ties, 0, 32))).any():
            return "a negative sum can lie exactly between two results, which CMSIS-NN rounds up"
    return None


def _windows(op: MaxPool | QAveragePool, node: Node) -> str | None:
    x, out = _given(node, 0), node.output
    for axis in range(2):
        size, kernel, stride, pad = x.shape[1 + axis], op.kernel[axis], op.strides[axis], op.pads[axis]
        if pad >= kernel or (out.shape[1 + axis] - 1) * stride - pad >= size:
            return "a window lies outside of the image"
    return None
