"""Tensors out of nothing: they are constants, since every shape is known."""

from __future__ import annotations

import math

import numpy as np

from intaglio.frontends.building import expand
from intaglio.frontends.onnx.faults import Fault, unsupported
from intaglio.frontends.torch.call import Answer, TorchCall, _wrapped, row
from intaglio.ir.graph import Value
from intaglio.ir.sizes import larger, moves, whole
from intaglio.ir.types import DType
from intaglio.ops.base import narrow
from intaglio.ops.move import Concat, Reshape
from intaglio.ops.sizes import Iota

MOST_ELEMENTS = 1 << 24


def _made(call: TorchCall, data: np.ndarray[tuple[int, ...], np.dtype[np.float64]], dtype: DType) -> Value:
    if dtype in (DType.F16, DType.BF16):
        return call.walk.constant(narrow(data.astype(np.float32), dtype), dtype)
    return call.walk.constant(data.astype(dtype.numpy), dtype)


@row("zeros", "ones", "full", "empty", "new_zeros", "new_ones", "new_full", "new_empty", "zeros_like", "ones_like", "full_like",
     "empty_like", "empty_strided", "new_empty_strided", "scalar_tensor")  # fmt: skip
def filled(call: TorchCall) -> Answer:
    like = call.first() if call.op.startswith("new_") or call.op.endswith("_like") else None
    if call.op == "scalar_tensor":
        return call.typed(call.get("s"), call.dtype() or DType.F32)
    value = call.get("fill_value") if "full" in call.op else 1 if "ones" in call.op else 0
    if value is None:
        raise Fault("bad-attribute", f"`{call.op}` has no value")
    dtype = call.dtype()
    if dtype is None:
        dtype = like.dtype if like is not None else DType.F32
        if call.op == "full":
            dtype = value.dtype if isinstance(value, Value) else _wrapped(value)
    shape = like.shape if like is not None and call.op.endswith("_like") else tuple(call.ints("size"))
    if any(n < 0 for n in shape):
        raise Fault("bad-attribute", f"`{call.op}` of {list(shape)} is not valid")
    return expand(call, call.typed(value, dtype), shape)


@row("arange", "range")
def arange(call: TorchCall) -> Answer:
    start, end, step = call.number("start", 0), call.number("end"), call.number("step", 1)
    if moves((start, end, step)) and call.op == "arange":
        count = larger(0, whole(end - start) if step == 1 else -(whole(start - end) // whole(step)))
        return call.emit(Iota(count, start, step, call.dtype() or DType.I64))
    if not step or not all(math.isfinite(v) for v in (start, end, step)):
        raise Fault("bad-attribute", f"`arange` from {start} to {end} by {step} is not valid")
    integral = all(isinstance(v, int) for v in (start, end, step))
    count = max(math.ceil((end - start) / step) if call.op == "arange" else math.floor((end - start) / step) + 1, 0)
    if count > MOST_ELEMENTS:
        raise Fault("too-large", f"`arange` of {count} elements is too large")
    dtype = call.dtype() or (DType.I64 if integral else DType.F32)
    if integral:
        return call.walk.constant((start + step * np.arange(count, dtype=np.int64)).astype(dtype.numpy), dtype)
    return _made(call, start + step * np.arange(count, dtype=np.float64), dtype)


@row("linspace", "logspace")
def linspace(call: TorchCall) -> Answer:
    count = call.integer("steps")
    if not 0 <= count <= MOST_ELEMENTS:
        raise Fault("bad-attribute", f"`linspace` of {count} steps is not valid")
    data = np.linspace(call.real("start"), call.real("end"), count)
    return _made(call, np.power(call.real("base", 10.0), data) if call.op == "logspace" else data, call.dtype() or DType.F32)


@row("eye")
def eye(call: TorchCall) -> Answer:
    n = call.integer("n")
    m = call.integer("m", n)
    if not 0 <= n * m <= MOST_ELEMENTS:
        raise Fault("too-large", f"`eye` of {n} by {m} is too large")
    return _made(call, np.eye(n, m), call.dtype() or DType.F32)


@row("tril_indices", "triu_indices")
def triangle_indices(call: TorchCall) -> Answer:
    rows, columns, offset = call.integer("row"), call.integer("col"), call.integer("offset", 0)
    if not 0 <= rows * columns <= MOST_ELEMENTS:
        raise Fault("too-large", f"`{call.op}` of {rows} by {columns} is too large")
    found = np.tril_indices(rows, offset, columns) if call.op == "tril_indices" else np.triu_indices(rows, offset, columns)
    return call.walk.constant(np.stack(found).astype(np.int64), call.dtype() or DType.I64)


@row("hann_window", "hamming_window", "blackman_window")
def window(call: TorchCall) -> Answer:
    length = call.integer("window_length")
    if not 0 <= length <= MOST_ELEMENTS:
        raise Fault("too-large", f"`{call.op}` of {length} is too large")
    around = length if call.flag("periodic", True) else length - 1
    angle = 2 * math.pi * np.arange(length) / max(around, 1)
    if call.op == "blackman_window":
        data = 0.42 - 0.5 * np.cos(angle) + 0.08 * np.cos(2 * angle)
    else:
        alpha, beta = (0.5, 0.5) if call.op == "hann_window" else (call.real("alpha", 0.54), call.real("beta", 0.46))
        data = alpha - beta * np.cos(angle)
    return _made(call, data, call.dtype() or DType.F32)


@row("cartesian_prod", "combinations")
def pairs(call: TorchCall) -> Answer:
    if call.op == "combinations":
        raise unsupported("`combinations` is not supported")
    values = call.tensors("tensors")
    grids = call.again("meshgrid", tensors=values)
    flat = [call.emit(Reshape((g.type.elements, 1)), g) for g in grids]
    return flat[0] if len(flat) == 1 else call.emit(Concat(1), *flat)
