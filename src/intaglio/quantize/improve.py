"""What makes rounding hurt less: channels of like size, and biases that take back the mean error of the weights."""

from __future__ import annotations

import numpy as np

from intaglio.ir.graph import Array, Graph, Node, Value
from intaglio.ops.activation import Relu
from intaglio.ops.conv import Conv
from intaglio.ops.matmul import MatMul
from intaglio.ops.pool import AveragePool, MaxPool
from intaglio.quantize.insert import FLOAT, Plan, quantised_weights
from intaglio.quantize.layers import Scheme
from intaglio.quantize.statistics import Statistics

_BETWEEN = (Relu, MaxPool, AveragePool)
_LIMIT = 30.0


def equalize(graph: Graph, statistics: Statistics) -> int:
    """Scale channels between two convolutions so that they use their common range alike; the result stays the same.

    y = B(relu(A(x))) = (B * s)(relu((A / s)(x))) for every s > 0 per channel. Returns the number of pairs."""
    readers = graph.readers()
    outputs = set(graph.outputs) | {s.output for s in graph.states}
    pairs = 0
    for first in graph.nodes:
        if not isinstance(first.op, Conv) or first.when is not None:
            continue
        value, tensor = first.output, None
        while value not in outputs and len(readers.get(value, [])) == 1:
            tensor = statistics.tensors.get(value.name, tensor)
            after = readers[value][0]
            if isinstance(after.op, _BETWEEN) and after.when is None:
                value = after.output
                continue
            if isinstance(after.op, Conv) and after.inputs[0] is value and after.when is None:
                pairs += _balance(graph, first, after, tensor.channels if tensor is not None else None)
            break
    return pairs


def _balance(graph: Graph, first: Node, second: Node, sizes: Array | None) -> int:
    a, b = first.inputs[1], second.inputs[1]
    bias = first.inputs[2] if len(first.inputs) > 2 else None
    assert isinstance(second.op, Conv) and isinstance(first.op, Conv)
    if a is None or b is None or a.data is None or b.data is None or (bias is not None and bias.data is None) or sizes is None:
        return 0
    depthwise = second.op.group == b.shape[0] and b.shape[1] == 1
    if (second.op.group != 1 and not depthwise) or sizes.size != a.shape[0]:
        return 0
    wanted = np.abs(b.data).max(axis=(1, 2, 3)) if depthwise else np.abs(b.data).max(axis=(0, 2, 3))
    alive = (sizes > 0) & (wanted > 0)
    if wanted.size != sizes.size or alive.sum() < 2:
        return 0
    factor = np.ones_like(sizes)
    factor[alive] = np.sqrt(sizes[alive] / wanted[alive])
    factor[alive] /= np.exp(np.mean(np.log(factor[alive])))
    factor = np.clip(factor, 1 / _LIMIT, _LIMIT).astype(np.float32)
    first.inputs[1] = graph.constant(a.name, a.data / factor[:, None, None, None])
    if bias is not None and bias.data is not None:
        first.inputs[2] = graph.constant(bias.name, bias.data / factor)
    turned = factor[:, None, None, None] if depthwise else factor[None, :, None, None]
    second.inputs[1] = graph.constant(b.name, b.data * turned)
    return 1


def corrected_biases(scheme: Scheme, plan: Plan, statistics: Statistics) -> dict[str, Array]:
    """Rounded weights shift the mean of each output channel; the bias takes that back: E[(w' - w) x] = (w' - w) E[x]."""
    found: dict[str, Array] = {}
    for node in scheme.layers:
        if plan.of(node) == FLOAT or not isinstance(node.op, Conv | MatMul):
            continue
        source, weights = node.inputs[0], node.inputs[1]
        if source is None or weights is None or weights.data is None or source.name not in statistics.means:
            continue
        bias = node.inputs[2] if len(node.inputs) > 2 else None
        channels = _channels(node, weights)
        if channels is None or (bias is not None and (bias.data is None or bias.type.elements != channels)):
            continue
        stored, scale = quantised_weights(node, weights.data, plan.of(node))
        error = (stored.astype(np.float32) * scale - weights.data).astype(np.float32)
        mean = statistics.means[source.name].astype(np.float32)
        shift = node.op.evaluate([mean, error, None], [source.type, weights.type, None])[0]
        per_channel = shift.reshape(-1, channels).mean(axis=0)
        old = bias.data.reshape(-1) if bias is not None and bias.data is not None else np.zeros(channels, np.float32)
        found[node.output.name] = (old - per_channel).astype(np.float32)
    return found


def _channels(node: Node, weights: Value) -> int | None:
    if isinstance(node.op, Conv):
        from intaglio.ir.types import Layout

        return weights.shape[0] if node.op.layout is Layout.NHWC else None
    return node.output.shape[-1] if weights.type.rank == 2 else None
