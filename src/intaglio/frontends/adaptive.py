"""Adaptive pooling, for front ends that have it: so many windows along each axis, as alike as they can be.

    5 elements in 3 windows: [0, 2) [1, 4) [3, 5)
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from intaglio.frontends.building import concat, part, transpose
from intaglio.frontends.emitting import Emits
from intaglio.frontends.onnx.faults import Fault
from intaglio.ir.graph import Value
from intaglio.ops.matmul import MatMul
from intaglio.ops.pool import AveragePool, MaxPool
from intaglio.ops.reduce import Reduce

_MOST = 1 << 24

def adapted(call: Emits, x: Value, out: Sequence[int], highest: bool) -> Value:
    """Of [batch, channels, spatial...]. `highest`: the largest of each window, else the mean."""
    spatial, rank = x.shape[2:], len(out)
    if all(n == 1 for n in out):
        return call.emit(Reduce("max" if highest else "mean", tuple(range(2, 2 + rank)), True), x)
    if all(n % o == 0 for n, o in zip(spatial, out, strict=True)):
        kernel = tuple(n // o for n, o in zip(spatial, out, strict=True))
        if set(kernel) == {1}:
            return x
        fields = (kernel, kernel, (0,) * (2 * rank), (1,) * rank)
        return call.emit(MaxPool(*fields) if highest else AveragePool(*fields), x)
    for i, count in enumerate(out):  # windows of several sizes: one axis after the other
        axis, n = 2 + i, x.shape[2 + i]
        spans = [(k * n // count, -(-(k + 1) * n // count)) for k in range(count)]
        if highest:
            x = concat(call, [call.emit(Reduce("max", (axis,), True), part(call, x, axis, a, b - a)) for a, b in spans], axis)
            continue
        if n * count > _MOST:
            raise Fault("too-large", f"adaptive pooling would need a table of {n * count} elements")
        weights = np.zeros((n, count))
        for k, (a, b) in enumerate(spans):
            weights[a:b, k] = 1 / (b - a)
        last = len(x.shape) - 1
        order = [*[d for d in range(last + 1) if d != axis], axis]
        y = call.emit(MatMul(), transpose(call, x, order), call.constant(weights, x.dtype))
        x = transpose(call, y, [order.index(d) for d in range(last + 1)])
    return x
