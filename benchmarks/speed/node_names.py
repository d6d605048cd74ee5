"""Which names mean the same node of an ONNX model: runtimes name a fused layer after its first node, its last, or its result."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

import onnx

from figures import LayerTime

ACTIVATIONS = frozenset(
    {"Relu", "Clip", "Sigmoid", "HardSwish", "HardSigmoid", "LeakyRelu", "Tanh", "Gelu", "Elu", "Softplus", "PRelu"}
)


def of_file(path: Path | None) -> dict[str, str]:
    return of_nodes(onnx.load(str(path), load_external_data=False).graph.node) if path else {}


def of_nodes(nodes: Iterable[onnx.NodeProto]) -> dict[str, str]:
    """From names of nodes and results to one name: an activation is part of the layer before it, if nothing else reads that."""
    every = list(nodes)
    readers = Counter(name for node in every for name in node.input)
    known: dict[str, str] = {}
    for node in every:
        before = known.get(node.input[0]) if node.op_type in ACTIVATIONS and readers[node.input[0]] == 1 else None
        for name in (node.name, *node.output):
            known[name] = before or node.name or node.output[0]
    return known


def renamed(layers: Iterable[LayerTime], known: Mapping[str, str]) -> list[LayerTime]:
    return [replace(layer, nodes=tuple(dict.fromkeys(known.get(n, n) for n in layer.nodes))) for layer in layers]
