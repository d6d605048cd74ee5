"""Poolings: auto_pad and ceil_mode become explicit pads."""

from __future__ import annotations

import math

from intaglio.frontends.building import padded
from intaglio.frontends.onnx.call import Answer, OnnxCall, importer
from intaglio.frontends.onnx.faults import Fault
from intaglio.frontends.onnx.rows.convolution import auto_pad, same_pads, window
from intaglio.ir.graph import Value
from intaglio.ir.sizes import larger, smaller
from intaglio.ops.binary import Pow
from intaglio.ops.pool import AveragePool, LpPool, MaxPool, MaxPoolIndices
from intaglio.ops.reduce import Reduce
from intaglio.ops.sample import MaxUnpool
from intaglio.ops.unary import Abs


def pool_window(call: OnnxCall, x: Value) -> tuple[list[int], list[int], list[int], list[int], list[int]]:
    """kernel, strides, dilations, pads to compute with, pads that the model declares."""
    kernel = call.ints("kernel_shape")
    if not kernel or len(kernel) != len(x.shape) - 2:
        raise Fault("bad-attribute", f"`{call.op}` of {list(x.shape)} with the kernel {kernel} is not valid")
    strides, dilations, pads = window(call, kernel)
    n, spatial = len(kernel), x.shape[2:]
    mode = auto_pad(call)
    if mode == "VALID":
        pads = [0] * (2 * n)
    elif mode != "NOTSET":
        pads = same_pads(mode, spatial, kernel, strides, dilations)
    if any(n < 0 for n in pads):
        raise Fault("bad-attribute", f"`{call.op}` with negative pads {pads} is not valid")
    declared = list(pads)
    if call.integer("ceil_mode") and mode == "NOTSET":
        for i in range(n):
            extent = (kernel[i] - 1) * dilations[i] + 1
            room = spatial[i] + pads[i] + pads[i + n] - extent
            if room < 0:
                raise Fault("shape-mismatch", f"the kernel of `{call.op}` is larger than its padded input")
            inside = -(-(spatial[i] + pads[i]) // strides[i])  # a window must start inside of the input or its left padding
            count = smaller(-(-room // strides[i]) + 1, inside)
            pads[i + n] = larger(pads[i + n], (count - 1) * strides[i] + extent - spatial[i] - pads[i])
    return kernel, strides, dilations, pads, declared


@importer("MaxPool")
def max_pool(call: OnnxCall) -> Answer:
    x = call.value(0)
    kernel, strides, dilations, pads, _ = pool_window(call, x)
    fields = (tuple(kernel), tuple(strides), tuple(pads), tuple(dilations))
    if call.outputs > 1:
        op = MaxPoolIndices(*fields, storage_order=call.integer("storage_order"))
        return list(call.emit_all(op, x))
    return call.emit(MaxPool(*fields), x)


@importer("AveragePool")
def average_pool(call: OnnxCall) -> Answer:
    x = call.value(0)
    kernel, strides, dilations, pads, declared = pool_window(call, x)
    include = bool(call.integer("count_include_pad"))
    op = AveragePool(
        tuple(kernel), tuple(strides), tuple(pads), tuple(dilations), count_include_pad=include,
        counted_pads=tuple(declared) if include and declared != pads else (), columns_first=call.version < 19,
    )  # fmt: skip
    return call.emit(op, x)


@importer("LpPool")
def lp_pool(call: OnnxCall) -> Answer:
    x = call.value(0)
    kernel, strides, dilations, pads, _ = pool_window(call, x)
    p = call.integer("p", 2)
    if p < 1:
        raise Fault("bad-attribute", f"`LpPool` with p {p} is not valid")
    return call.emit(LpPool(tuple(kernel), tuple(strides), tuple(pads), tuple(dilations), p=p), x)


@importer("GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool")
def global_pool(call: OnnxCall) -> Answer:
    x = call.value(0)
    axes = tuple(range(2, len(x.shape)))
    if call.op != "GlobalLpPool":
        return call.emit(Reduce("mean" if call.op == "GlobalAveragePool" else "max", axes, True), x)
    p = call.integer("p", 2)
    if p in (1, 2):
        return call.emit(Reduce("l1" if p == 1 else "l2", axes, True), x)
    powered = call.emit(Pow(), call.emit(Abs(), x), call.like(p, x))
    return call.emit(Pow(), call.emit(Reduce("sum", axes, True), powered), call.like(1 / p, x))


@importer("MaxUnpool")
def max_unpool(call: OnnxCall) -> Answer:
    """Indices count in the shape that the pooling had; a larger output_shape adds room at the end of each axis."""
    x, indices = call.value(0), call.value(1)
    kernel = call.ints("kernel_shape")
    if not kernel or len(kernel) != len(x.shape) - 2:
        raise Fault("bad-attribute", f"`MaxUnpool` of {list(x.shape)} with the kernel {kernel} is not valid")
    strides, _, pads = window(call, kernel)
    n = len(kernel)
    inferred = list(x.shape[:2])
    for i in range(n):
        inferred.append((x.shape[2 + i] - 1) * strides[i] + kernel[i] - pads[i] - pads[i + n])
    wanted = call.maybe_int_list(2, "output shape")
    if indices.data is not None and indices.data.size:
        low, high = int(indices.data.min()), int(indices.data.max())
        if low < 0 or high >= math.prod(inferred):
            bad = low if low < 0 else high
            raise Fault("bad-attribute", f"index {bad} of `MaxUnpool` is out of range for {math.prod(inferred)} elements")
    y = call.emit(MaxUnpool(tuple(inferred)), x, indices)
    if wanted is None or wanted == inferred:
        return y
    if len(wanted) != len(inferred):
        raise Fault("bad-attribute", f"`MaxUnpool` to {wanted} is not valid")
    return padded(call, y, [0] * len(wanted) + [w - n for w, n in zip(wanted, inferred, strict=True)])
