"""Convolutions and poolings: torch's padding becomes explicit pads, an absent batch axis is added and taken away again."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from intaglio.frontends.adaptive import adapted
from intaglio.frontends.building import reshape, transpose
from intaglio.frontends.onnx.faults import Fault
from intaglio.frontends.torch.call import Answer, TorchCall, row
from intaglio.ir.graph import Value
from intaglio.ir.types import Shape
from intaglio.ops.base import Op
from intaglio.ops.binary import Add, Mul, Sub
from intaglio.ops.conv import Conv, ConvTranspose
from intaglio.ops.pool import AveragePool, LpPool, MaxPool, MaxPoolIndices
from intaglio.ops.sample import MaxUnpool


def batched(call: TorchCall, x: Value, rank: int, then: Callable[[Value], Answer]) -> Answer:
    """`then` of a tensor with a batch axis."""
    if len(x.shape) == rank + 2:
        return then(x)
    if len(x.shape) != rank + 1:
        raise Fault("shape-mismatch", f"`{call.op}` of {list(x.shape)} is not valid")
    answer = then(reshape(call, x, (1, *x.shape)))
    if isinstance(answer, list):
        return [reshape(call, y, y.shape[1:]) for y in answer]
    return reshape(call, answer, answer.shape[1:])


@row("conv1d", "conv2d", "conv3d", "convolution", "_convolution", "thnn_conv2d", "mkldnn_convolution", "conv_depthwise3d",
     "_conv_depthwise2d", "slow_conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d")  # fmt: skip
def conv(call: TorchCall) -> Answer:
    x, w, bias = call.tensor("input", "self"), call.tensor("weight"), call.maybe("bias")
    rank = len(w.shape) - 2
    if not 1 <= rank <= 3:
        raise Fault("shape-mismatch", f"`{call.op}` with weights of {list(w.shape)} is not valid")
    strides, dilations = call.spread("stride", rank, 1), call.spread("dilation", rank, 1)
    group = call.integer("groups", 1)
    if group < 1 or min(strides) < 1 or min(dilations) < 1:
        raise Fault("bad-attribute", f"`{call.op}` with stride {strides}, dilation {dilations} and {group} groups is not valid")
    turned = call.flag("transposed") or "transpose" in call.op
    pads = _pads(call, w.shape[2:], dilations)
    if turned:
        extra = call.spread("output_padding", rank, 0)
        op: Op = ConvTranspose(strides, pads, dilations, group, extra)
    else:
        op = Conv(strides, pads, dilations, group)
    return batched(call, x, rank, lambda v: call.emit(op, v, w, bias))


def _pads(call: TorchCall, kernel: Shape, dilations: Shape) -> Shape:
    rank = len(kernel)
    if not isinstance(call.get("padding"), str):
        pads = call.spread("padding", rank, 0)
        if min(pads) < 0:
            raise Fault("bad-attribute", f"`{call.op}` with the padding {pads} is not valid")
        return (*pads, *pads)
    if call.text("padding") == "valid":
        return (0,) * (2 * rank)
    if call.text("padding") != "same":
        raise Fault("bad-attribute", f"`{call.op}` with the padding {call.text('padding')!r} is not valid")
    total = [d * (k - 1) for k, d in zip(kernel, dilations, strict=True)]
    return (*[t // 2 for t in total], *[t - t // 2 for t in total])


# Poolings ---------------------------------------------------------------------------------------------------------------


def _window(call: TorchCall, spatial: Shape) -> tuple[Shape, Shape, Shape, Shape, Shape]:
    """kernel, strides, dilations, pads to compute with (larger at the end by ceil_mode), pads that count."""
    n = len(spatial)
    kernel = call.spread("kernel_size", n, 1)
    strides = call.spread("stride", n, 1) if call.maybe_ints("stride") else kernel
    pads, dilations = call.spread("padding", n, 0), call.spread("dilation", n, 1)
    if min(strides) < 1 or min(kernel) < 1 or min(pads) < 0 or min(dilations) < 1:
        raise Fault("bad-attribute", f"`{call.op}` with the kernel {kernel}, stride {strides} and padding {pads} is not valid")
    ends = list(pads)
    if call.flag("ceil_mode"):
        for i in range(n):
            extent = (kernel[i] - 1) * dilations[i] + 1
            room = spatial[i] + 2 * pads[i] - extent
            count = -(-room // strides[i]) + 1
            if (count - 1) * strides[i] >= spatial[i] + pads[i]:
                count -= 1  # a window must start inside of the input or its left padding
            ends[i] = max(ends[i], (count - 1) * strides[i] + extent - spatial[i] - pads[i])
    return kernel, strides, dilations, (*pads, *ends), (*pads, *pads)


RANKS = {"1d": 1, "2d": 2, "3d": 3}


def _rank(op: str) -> int:
    return next(n for text, n in RANKS.items() if text in op)


@row(*[f"max_pool{n}d{more}" for n in (1, 2, 3) for more in ("", "_with_indices")], "mkldnn_max_pool2d", "quantized_max_pool2d")
def max_pool(call: TorchCall) -> Answer:
    rank = _rank(call.op)

    def pooled(x: Value) -> Answer:
        kernel, strides, dilations, pads, _ = _window(call, x.shape[2:])
        if not call.op.endswith("indices") or not _is_read(call, 1):
            y = call.emit(MaxPool(kernel, strides, pads, dilations), x)
            return [y, y] if call.op.endswith("indices") else y
        y, at = call.emit_all(MaxPoolIndices(kernel, strides, pads, dilations), x)
        call.bounded(math.prod(x.shape[:2]))
        planes = np.arange(math.prod(x.shape[:2])).reshape(*x.shape[:2], *(1,) * rank) * math.prod(x.shape[2:])
        return [y, call.emit(Sub(), at, call.constant(planes.astype(np.int64)))]

    answer = batched(call, call.first(), rank, pooled)
    if call.op.endswith("indices") and isinstance(answer, list) and not _is_read(call, 1):
        return [answer[0], None]
    return answer


def _is_read(call: TorchCall, output: int) -> bool:
    """Whether anybody reads a result of this node."""
    name = call.record.outputs[output] if output < len(call.record.outputs) else None
    return isinstance(name, str) and name in call.walk.read_names


@row("avg_pool1d", "avg_pool2d", "avg_pool3d")
def avg_pool(call: TorchCall) -> Answer:
    rank = _rank(call.op)

    def pooled(x: Value) -> Answer:
        kernel, strides, dilations, pads, counted = _window(call, x.shape[2:])
        include = call.flag("count_include_pad", True)
        by = call.get("divisor_override")
        op = AveragePool(
            kernel, strides, pads, dilations, count_include_pad=include or by is not None,
            counted_pads=counted if include and counted != pads and by is None else (),
        )  # fmt: skip
        y = call.emit(op, x)
        return y if by is None else call.emit(Mul(), y, call.like(math.prod(kernel) / call.integer("divisor_override"), y))

    return batched(call, call.first(), rank, pooled)


@row("lp_pool1d", "lp_pool2d")
def lp_pool(call: TorchCall) -> Answer:
    p = call.integer("norm_type")

    def pooled(x: Value) -> Answer:
        kernel, strides, dilations, pads, _ = _window(call, x.shape[2:])
        return call.emit(LpPool(kernel, strides, pads, dilations, p=p), x)

    return batched(call, call.first(), _rank(call.op), pooled)


@row(*[f"{more}adaptive_avg_pool{n}d" for n in (1, 2, 3) for more in ("", "_")],
     *[f"adaptive_max_pool{n}d" for n in (1, 2, 3)])  # fmt: skip
def adaptive_pool(call: TorchCall) -> Answer:
    rank, highest = _rank(call.op), "max" in call.op

    def pooled(x: Value) -> Answer:
        size = call.get("output_size")
        sizes = [size] * rank if not isinstance(size, list) else size
        out = [x.shape[2 + i] if n is None else int(n) for i, n in enumerate(sizes)]
        if len(out) != rank or min(out) < 1 or max(out) > 1 << 16:
            raise Fault("bad-attribute", f"`{call.op}` to {out} is not valid")
        return adapted(call, x, out, highest)

    answer = batched(call, call.first(), rank, pooled)
    if highest:
        if _is_read(call, 1):
            raise Fault("unsupported-operator", f"the indices of `{call.op}` are not supported", "use `max_pool` with a kernel")
        return [answer, None]
    return answer


@row("max_unpool2d", "max_unpool3d")
def max_unpool(call: TorchCall) -> Answer:
    """Indices count within a plane in torch, within the whole tensor in the IR."""
    x, at = call.first(), call.tensor("indices")
    size = call.ints("output_size")
    call.bounded(math.prod(x.shape[: -len(size)]))
    planes = np.arange(math.prod(x.shape[: -len(size)])).reshape(*x.shape[: -len(size)], *(1,) * len(size)) * math.prod(size)
    whole = call.emit(Add(), at, call.constant(planes.astype(np.int64)))
    return call.emit(MaxUnpool((*x.shape[: -len(size)], *size)), x, whole)


@row("conv_tbc")
def conv_tbc(call: TorchCall) -> Answer:
    x, w, bias = call.first(), call.tensor("weight"), call.maybe("bias")
    pad = call.integer("pad", 0)
    y = call.emit(Conv((1,), (pad, pad), (1,), 1), transpose(call, x, [1, 2, 0]), transpose(call, w, [2, 1, 0]), bias)
    return transpose(call, y, [2, 0, 1])


