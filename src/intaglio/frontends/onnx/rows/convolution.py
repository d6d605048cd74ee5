"""Convolutions: auto_pad, missing kernel_shape, negative pads and output_shape become explicit here."""

from __future__ import annotations

from intaglio.frontends.building import cast, padded, reshape
from intaglio.frontends.onnx.call import Answer, OnnxCall, importer
from intaglio.frontends.onnx.faults import Fault
from intaglio.ir.graph import Value
from intaglio.ir.types import DType
from intaglio.ops.binary import Add
from intaglio.ops.conv import Conv, ConvTranspose
from intaglio.ops.deform import DeformColumns
from intaglio.ops.matmul import MatMul

LIMIT = 2**31


def window(call: OnnxCall, kernel: list[int]) -> tuple[list[int], list[int], list[int]]:
    """strides, dilations, pads (begin..., end...) with their defaults, checked."""
    n = len(kernel)
    strides = call.ints("strides") or [1] * n
    dilations = call.ints("dilations") or [1] * n
    pads = call.ints("pads") or [0] * (2 * n)
    if not len(strides) == len(dilations) == n or len(pads) != 2 * n:
        raise Fault("bad-attribute", f"`{call.op}` has {n} spatial axes, but attributes for a different number")
    for what, numbers in (("kernel", kernel), ("strides", strides), ("dilations", dilations)):
        if min(numbers) < 1 or max(numbers) > LIMIT:
            raise Fault("bad-attribute", f"the {what} of `{call.op}` must be at least 1, got {numbers}")
    if max(map(abs, pads)) > LIMIT:
        raise Fault("bad-attribute", f"the pads {pads} of `{call.op}` are out of range")
    return strides, dilations, pads


def same_pads(mode: str, spatial: tuple[int, ...], kernel: list[int], strides: list[int], dilations: list[int]) -> list[int]:
    begin, end = [], []
    for size, k, s, d in zip(spatial, kernel, strides, dilations, strict=True):
        total = max((-(-size // s) - 1) * s + (k - 1) * d + 1 - size, 0)
        small, large = total // 2, total - total // 2
        begin.append(small if mode == "SAME_UPPER" else large)
        end.append(large if mode == "SAME_UPPER" else small)
    return begin + end


def auto_pad(call: OnnxCall) -> str:
    mode = call.text("auto_pad", "NOTSET") or "NOTSET"
    if mode not in ("NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID"):
        raise Fault("bad-attribute", f"`auto_pad` of `{call.op}` is `{mode}`")
    return mode


def conv_window(call: OnnxCall, x: Value, w: Value) -> tuple[Value, Conv]:
    """The window by the attributes of the node, and the image, cut where padding is negative."""
    kernel = list(w.shape[2:])
    spatial = x.shape[2:]
    given = call.ints("kernel_shape")
    if len(x.shape) < 3 or len(w.shape) != len(x.shape):
        raise Fault("shape-mismatch", f"`{call.op}` of {list(x.shape)} with weights {list(w.shape)} is not valid")
    if given is not None and given != kernel:
        raise Fault("bad-attribute", f"kernel_shape {given} does not fit weights of {list(w.shape)}")
    strides, dilations, pads = window(call, kernel)
    mode = auto_pad(call)
    if mode == "VALID":
        pads = [0] * len(pads)
    elif mode != "NOTSET":
        pads = same_pads(mode, spatial, kernel, strides, dilations)
    if any(n < 0 for n in pads):
        n = len(spatial)
        cut = [0, 0, *[min(p, 0) for p in pads[:n]], 0, 0, *[min(p, 0) for p in pads[n:]]]
        x, pads = padded(call, x, cut), [max(p, 0) for p in pads]
    group = call.integer("group", 1)
    if group < 1:
        raise Fault("bad-attribute", f"the group of `{call.op}` must be at least 1, got {group}")
    return x, Conv(tuple(strides), tuple(pads), tuple(dilations), group)


def conv(call: OnnxCall, x: Value, w: Value, b: Value | None) -> Value:
    """A convolution of any element type by the attributes of the node."""
    image, op = conv_window(call, x, w)
    return call.emit(op, image, w, b)


@importer("Conv")
def conv_row(call: OnnxCall) -> Answer:
    return conv(call, call.value(0), call.value(1), call.maybe(2))


@importer("DeformConv")
def deform_conv(call: OnnxCall) -> Answer:
    """Columns of what every tap reads, then a product with the weights."""
    x, w, offsets, b, mask = call.value(0), call.value(1), call.value(2), call.maybe(3), call.maybe(4)
    kernel, groups = list(w.shape[2:]), call.integer("group", 1)
    if len(x.shape) != 4 or len(w.shape) != 4:
        raise Fault("shape-mismatch", f"`DeformConv` of {list(x.shape)} with weights {list(w.shape)} is not supported")
    strides, dilations, pads = window(call, kernel)
    taps, made, inner = kernel[0] * kernel[1], w.shape[0], w.shape[1]
    rows, columns = offsets.shape[2:]
    expected = [(x.shape[2 + i] + pads[i] + pads[i + 2] - (kernel[i] - 1) * dilations[i] - 1) // strides[i] + 1 for i in (0, 1)]
    if groups < 1 or made % groups or inner * groups != x.shape[1] or [rows, columns] != expected:
        raise Fault("shape-mismatch", f"`DeformConv` of {list(x.shape)}, weights {list(w.shape)}, offsets {list(offsets.shape)}")
    op = DeformColumns((kernel[0], kernel[1]), (strides[0], strides[1]), (pads[0], pads[1]), (dilations[0], dilations[1]),
                       call.integer("offset_group", 1))  # fmt: skip
    found = call.emit(op, *(v if v is None else cast(call, v, DType.F32) for v in (x, offsets, mask)))
    found = reshape(call, found, (x.shape[0], groups, inner * taps, rows * columns))
    weights = reshape(call, cast(call, w, DType.F32), (1, groups, made // groups, inner * taps))
    y = reshape(call, call.emit(MatMul(), weights, found), (x.shape[0], made, rows, columns))
    y = y if b is None else call.emit(Add(), y, reshape(call, cast(call, b, DType.F32), (1, made, 1, 1)))
    return cast(call, y, x.dtype)


@importer("ConvTranspose")
def conv_transpose(call: OnnxCall) -> Answer:
    x, w, b = call.value(0), call.value(1), call.maybe(2)
    kernel = list(w.shape[2:])
    spatial = x.shape[2:]
    n = len(spatial)
    if n < 1 or len(kernel) != n:
        raise Fault("shape-mismatch", f"`ConvTranspose` of {list(x.shape)} with weights {list(w.shape)} is not valid")
    given = call.ints("kernel_shape")
    if given is not None and given != kernel:
        raise Fault("bad-attribute", f"kernel_shape {given} does not fit weights of {list(w.shape)}")
    strides, dilations, pads = window(call, kernel)
    extra = call.ints("output_padding") or [0] * n
    if len(extra) != n or min(extra) < 0 or max(extra) > LIMIT:
        raise Fault("bad-attribute", f"the output_padding {extra} of `ConvTranspose` is not valid")
    wanted = call.ints("output_shape")
    mode = auto_pad(call)
    if wanted is not None and len(wanted) == n + 2:
        wanted = wanted[2:]
    if wanted is not None and (len(wanted) != n or any(n < 1 for n in wanted)):
        raise Fault("bad-attribute", f"the output_shape {wanted} of `ConvTranspose` is not valid")
    if mode == "VALID":
        pads = [0] * (2 * n)
    elif mode != "NOTSET" and wanted is None:
        wanted = [size * s for size, s in zip(spatial, strides, strict=True)]
    if wanted is not None:
        pads = [0] * (2 * n)
        for i in range(n):
            full = strides[i] * (spatial[i] - 1) + extra[i] + (kernel[i] - 1) * dilations[i] + 1
            total = full - wanted[i]
            if total < 0:
                extra[i] -= total
                continue
            small, large = total // 2, total - total // 2
            pads[i], pads[i + n] = (small, large) if mode == "SAME_UPPER" else (large, small)
    if any(n < 0 for n in pads):
        for i in range(n):  # a negative end is room after the data
            if pads[i + n] < 0:
                extra[i], pads[i + n] = extra[i] - pads[i + n], 0
        if any(n < 0 for n in pads):
            raise Fault("bad-attribute", f"`ConvTranspose` with the pads {pads} is not valid")
    group = call.integer("group", 1)
    if group < 1:
        raise Fault("bad-attribute", f"the group of `ConvTranspose` must be at least 1, got {group}")
    op = ConvTranspose(tuple(strides), tuple(pads), tuple(dilations), group, tuple(extra))
    return call.emit(op, x, w, b)
