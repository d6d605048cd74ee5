"""Our operators as the NPU computes them: one shape of layer for convolutions and fully connected layers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from example_npu.hardware import BANK_BYTES, LANES, PARAMETER_BYTES, SCRATCHPAD_BYTES
from intaglio.accelerator import Array, DType, Node, Region, Value
from intaglio.ops.quantised import QAdd, QConv, QMatMul

MODES = {"twice": 0, "once": 1, "float": 2}


@dataclass(frozen=True, slots=True)
class Layer:
    """A convolution over [rows, columns, channels]; a fully connected layer is one of 1x1 over its rows."""

    rows: int
    columns: int
    channels: int
    out_rows: int
    out_columns: int
    outputs: int
    kernel: tuple[int, int]
    strides: tuple[int, int]
    dilations: tuple[int, int]
    pads: tuple[int, int]  # above, to the left
    depthwise: bool
    mode: int
    zeros: tuple[int, int]
    limits: tuple[int, int]
    weights: Array  # [outputs, kh, kw, channels or 1]
    parameters: Array  # i32 [3, outputs]: bias, multiplier, shift (float bits in float modes)
    add: QAdd | None = None
    add_first: bool = True  # the result is the first operand of the sum

    @property
    def depth(self) -> int:
        """Channels that one output needs."""
        return 1 if self.depthwise else self.channels

    def weight_bytes(self, outputs: int) -> int:
        """Of so many outputs, with their parameters."""
        blocks = -(-outputs // LANES)
        return blocks * (self.kernel[0] * self.kernel[1] * self.depth * LANES + PARAMETER_BYTES)

    def input_rows(self, rows: int) -> int:
        return (rows - 1) * self.strides[0] + (self.kernel[0] - 1) * self.dilations[0] + 1

    def input_columns(self, columns: int) -> int:
        return (columns - 1) * self.strides[1] + (self.kernel[1] - 1) * self.dilations[1] + 1


def refusal(region: Region) -> str | None:
    """Why the NPU does not take the region, in words for the user."""
    node = product_of(region)
    op = node.op
    assert isinstance(op, (QConv, QMatMul))
    x, w, bias, multiplier = (node.inputs[i] for i in range(4))
    if x is None or w is None or multiplier is None:
        return "its sums are not scaled"
    if x.dtype is not DType.I8 or node.output.dtype is not DType.I8:
        return f"it computes in i8, not in {x.dtype.value} to {node.output.dtype.value}"
    if w.data is None or w.dtype is not DType.I8:
        return "its weights are not i8 constants"
    if op.scaling not in MODES:
        return f"it has no scaling `{op.scaling}`"
    for name, value in (("bias", bias), ("multipliers", multiplier)):
        if value is not None and value.data is None:
            return f"its {name} are not constants"
    if bias is not None and bias.dtype not in (DType.I32, DType.F32):
        return f"its bias is {bias.dtype.value}"
    if (op.w_zero if isinstance(op, QConv) else op.b_zero) != 0:
        return "its weights have a zero point"
    shift = node.inputs[4]
    if shift is not None and (shift.data is None or int(shift.data.min()) < -31 or int(shift.data.max()) > 30):
        return "its shifts are beyond 30 bits"
    if (reason := _conv_refusal(op, x, w) if isinstance(op, QConv) else _dense_refusal(w)) is not None:
        return reason
    return _sum_refusal(region) or _room(region)


def product_of(region: Region) -> Node:
    """The convolution or fully connected layer of a region; a sum may come after it."""
    return next(node for node in region.nodes if isinstance(node.op, (QConv, QMatMul)))


def added(region: Region) -> Value | None:
    """What is added to the result of the convolution."""
    made = product_of(region).output
    return None if region.node is product_of(region) else next((v for v in region.node.inputs if v is not made), None)


def _conv_refusal(op: QConv, x: Value, w: Value) -> str | None:
    depthwise = op.group == x.shape[3] and op.group > 1
    if op.group != 1 and not depthwise:
        return f"it has {op.group} groups: 1, or one per channel"
    if depthwise and w.shape[0] != x.shape[3]:
        return f"its channel multiplier is {w.shape[0] // x.shape[3]}, not 1"
    if x.shape[0] != 1:
        return f"its batch is {x.shape[0]}, not 1"
    if any(n > 255 for n in (*w.shape[2:], *op.strides, *op.dilations)):
        return "kernel, strides or dilations are beyond 255"
    return f"it cannot do `{op.epilogue[0].op.NAME}` behind a convolution" if op.epilogue else None


def _dense_refusal(w: Value) -> str | None:
    return "its weights are not one matrix" if w.type.rank != 2 else None


def _sum_refusal(region: Region) -> str | None:
    if not isinstance(region.node.op, QAdd):
        return None
    other, out = added(region), region.node.output
    if other is None or other.is_const:
        return "what is added is the result itself, or a constant"
    if other.shape != out.shape or other.dtype is not DType.I8 or out.dtype is not DType.I8:
        return "what is added has another shape or type"
    return None


def _room(region: Region) -> str | None:
    """Does the smallest tile fit: one output pixel of 16 channels, everything twice?"""
    layer = layer_of(region)
    channels = LANES if layer.depthwise else layer.channels
    one = layer.input_rows(1) * layer.input_columns(1) * channels
    need = 2 * _banked(one) + 2 * _banked(layer.weight_bytes(LANES)) + (4 if layer.add else 2) * BANK_BYTES
    if need > SCRATCHPAD_BYTES:
        return f"its smallest tile needs {need:,} bytes of the scratchpad's {SCRATCHPAD_BYTES:,}"
    return None


def _banked(size: int) -> int:
    return -(-size // BANK_BYTES) * BANK_BYTES


def layer_of(region: Region) -> Layer:
    node = product_of(region)
    op = node.op
    x, w = node.inputs[0], node.inputs[1]
    assert x is not None and w is not None and w.data is not None
    parameters = _parameters(node, w)
    if isinstance(op, QMatMul):
        weights = w.data if op.transpose_b else w.data.T
        rows = x.type.elements // x.shape[-1]
        return Layer(
            1, rows, x.shape[-1], 1, rows, weights.shape[0], (1, 1), (1, 1), (1, 1), (0, 0), False, _mode(node),
            (op.a_zero, op.y_zero), (op.low, op.high), weights.reshape(weights.shape[0], 1, 1, -1), parameters,
        )  # fmt: skip
    assert isinstance(op, QConv)
    depthwise = op.group > 1
    summed = region.node.op if isinstance(region.node.op, QAdd) else None
    _, out_rows, out_columns, outputs = node.output.shape
    kh, kw = w.shape[2:]
    return Layer(
        x.shape[1], x.shape[2], x.shape[3], out_rows, out_columns, outputs, (kh, kw), (op.strides[0], op.strides[1]),
        (op.dilations[0], op.dilations[1]), (op.pads[0], op.pads[1]), depthwise, _mode(node), (op.x_zero, op.y_zero),
        (op.low, op.high), w.data.transpose(0, 2, 3, 1), parameters, summed, region.node.inputs[0] is node.output,
    )  # fmt: skip


def _mode(node: Node) -> int:
    op, bias = node.op, node.inputs[2]
    assert isinstance(op, (QConv, QMatMul))
    return 3 if bias is not None and bias.dtype is DType.F32 else MODES[op.scaling]


def _parameters(node: Node, w: Value) -> Array:
    bias, multiplier, shift = node.inputs[2:5]
    op = node.op
    outputs = w.shape[-2] if isinstance(op, QMatMul) and op.transpose_b else w.shape[-1] if isinstance(op, QMatMul) else w.shape[0]
    table = np.zeros((3, outputs), np.int32)
    for row, value in zip(table, (bias, multiplier, shift), strict=True):
        if value is not None and value.data is not None:
            row[:] = value.data.reshape(-1).view(np.int32) if value.dtype is DType.F32 else value.data.reshape(-1)
    return table


def repacked(layer: Layer, first: int, outputs: int) -> npt.NDArray[np.uint8]:
    """Weights and parameters of some outputs, as the array reads them: 16 outputs side by side, tap by tap."""
    blocks = -(-outputs // LANES)
    weights = np.zeros((blocks * LANES, *layer.weights.shape[1:]), np.int8)
    weights[:outputs] = layer.weights[first : first + outputs]
    side = weights.reshape(blocks, LANES, -1).transpose(0, 2, 1)
    parameters = np.zeros((blocks * LANES, 3), np.int32)
    parameters[:outputs] = layer.parameters[:, first : first + outputs].T
    table = parameters.reshape(blocks, LANES, 3).transpose(0, 2, 1)
    return np.concatenate(
        [np.ascontiguousarray(side).view(np.uint8).reshape(-1), np.ascontiguousarray(table).view(np.uint8).reshape(-1)]
    )
