"""Split large dense layers by their outputs, so that weights which are read or unpacked need little memory at a time.

    y: f32[1,4096] = matmul(x, w)        a: f32[1,1024] = matmul(x, w0)
                                  ->     b: f32[1,1024] = matmul(x, w1)      ...
                                         y: f32[1,4096] = concat(a, b, ..., axis=-1)

Each part is a layer of its own: while one is at work, the weights of the next are read. The sums are the same, in the same order.
The concat copies little, or nothing where the memory stage makes it a view. Only for weights that are read (`--weights read`) or
that have few values (`--weights packed`), for products with one row on the left, and with constants on the right.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from intaglio.ir.graph import Array, Graph, Node, Value
from intaglio.ops.hybrid import HybridMatMul
from intaglio.ops.matmul import MatMul
from intaglio.ops.move import Concat
from intaglio.ops.quantised import QMatMul
from intaglio.passes.context import Context

TILE_BYTES, UNPACKED_BYTES = 16384, 8192
FEW_VALUES = 16
MOST_TILES = 64


def split_reads(graph: Graph, context: Context) -> Graph:
    """Large dense layers are split by their outputs, so that weights which are read or unpacked need little memory at a time.

        y = matmul(x, w)      ->      a = matmul(x, w0)
                                      b = matmul(x, w1)
                                      y = concat(a, b)

    Skipped for small weights, weights that are no constant, and several rows on the left."""
    nodes: list[Node] = []
    step = 12 if context.weights_packed else 4 if context.target.bare else 16  # outputs: kernels make as many at a time
    for node in graph.nodes:
        if not context.weights_packed:
            nodes += _split(graph, node, TILE_BYTES, step)
        else:
            nodes += _split(graph, node, UNPACKED_BYTES, step) if _of_few_values(node) else [node]
    graph.nodes = nodes
    return graph


def _split(graph: Graph, node: Node, tile_bytes: int, step: int) -> list[Node]:
    columns = _columns(node)
    weights = node.inputs[1] if len(node.inputs) > 1 else None
    if columns is None or weights is None or weights.data is None:
        return [node]
    count = node.output.shape[-1]
    most = max(tile_bytes, -(-weights.data.nbytes // MOST_TILES))
    each = max(step, most // max(1, weights.data.nbytes // count) // step * step)
    if weights.data.nbytes <= tile_bytes or each >= count:
        return [node]
    parts: list[Node] = []
    for low in range(0, count, each):
        high = min(count, low + each)
        inputs = [_part(graph, value, axis, low, high) for value, axis in zip(node.inputs, columns, strict=True)]
        type = replace(node.output.type, shape=(*node.output.shape[:-1], high - low))
        out = graph.value(f"{node.output.name}_part", type)
        parts.append(Node(node.op, inputs, [out], node.source, when=node.when))
    whole = Node(
        Concat(len(node.output.shape) - 1), [part.output for part in parts], list(node.outputs), node.source, when=node.when
    )
    return [*parts, whole]


def _of_few_values(node: Node) -> bool:
    weights = node.inputs[1] if len(node.inputs) > 1 else None
    data = None if weights is None else weights.data
    return data is not None and data.dtype.itemsize == 1 and len(np.unique(data)) <= FEW_VALUES


def _columns(node: Node) -> list[int | None] | None:
    """For each operand the axis of the outputs, or None where all parts take it as it is. None: it cannot be split."""
    op, inputs = node.op, node.inputs
    if len(inputs) < 2 or inputs[0] is None or inputs[1] is None or math.prod(node.output.shape[:-1]) != 1:
        return None
    if isinstance(op, HybridMatMul):
        right = 0
    elif isinstance(op, MatMul | QMatMul):
        right = 0 if op.transpose_b else 1
    else:
        return None
    if inputs[1].data is None or len(inputs[1].shape) != 2 or inputs[0].data is not None:
        return None
    count = node.output.shape[-1]
    found: list[int | None] = [None, right]
    for value in inputs[2:]:
        if value is None or math.prod(value.shape) == 1:
            found.append(None)
        elif value.data is not None and value.shape[-1] == count and math.prod(value.shape) == count:
            found.append(len(value.shape) - 1)
        else:
            return None
    return found


def _part(graph: Graph, value: Value | None, axis: int | None, low: int, high: int) -> Value | None:
    if value is None or axis is None or value.data is None:
        return value
    data: Array = np.ascontiguousarray(np.take(value.data, np.arange(low, high), axis=axis))
    quant = value.type.quant
    if quant is not None and quant.axis is not None and quant.axis == axis and len(quant.scale) > 1:
        quant = replace(quant, scale=quant.scale[low:high], zero_point=_of(quant.zero_point, low, high))
    part = graph.value(f"{value.name}_part", replace(value.type, shape=data.shape, quant=quant))
    part.data = data
    return part


def _of(numbers: tuple[int, ...], low: int, high: int) -> tuple[int, ...]:
    return numbers[low:high] if len(numbers) > 1 else numbers
