"""Outputs that are dequantised integers: a runtime that adds floats may be one step off."""

from __future__ import annotations

import numpy as np

from intaglio.ir.graph import Array, Graph
from intaglio.ops.control import Copy
from intaglio.ops.convert import Dequantize
from intaglio.ops.move import Reshape, Transpose


def quantised_steps(graph: Graph) -> dict[str, float]:
    """Outputs of a PyTorch model that are dequantised integers, with their step. Eager adds floats in an order of its own, so what
    it rounds may lie one step off; the integer result here is exact."""
    made = graph.producers()
    found: dict[str, float] = {}
    for name, output in zip(graph.output_names, graph.outputs, strict=True):
        node = made.get(output)
        while node is not None and isinstance(node.op, Copy | Reshape | Transpose) and node.inputs[0] is not None:
            node = made.get(node.inputs[0])
        if node is not None and isinstance(node.op, Dequantize) and node.inputs[1] is not None and node.inputs[1].data is not None:
            found[name] = float(np.max(node.inputs[1].data))
    return found


def one_step(want: Array, step: float) -> float:
    largest = float(np.max(np.abs(want), initial=0.0))
    return 1.001 * step / largest if largest > 0 else 1.0
