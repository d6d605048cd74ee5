"""ONNX Runtime on x86-64 without VNNI adds pairs of products of unsigned and signed bytes in 16 bits, which saturates where weights
are below -64 or above 64: its results are wrong then. As unsigned bytes, with a zero point that is larger by 128, the same weights
are multiplied exactly. Models are changed so before they are a reference."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from intaglio.frontends.onnx.container import skim

SAFE = 64  # 2 * 255 * 64 fits 16 bits
# Where weights and their zero points are among the inputs.
_PLACES = {
    "MatMulInteger": (1, 3), "ConvInteger": (1, 3), "QLinearMatMul": (3, 5), "QLinearConv": (3, 5), "DynamicQuantizeMatMul": (1, 3),
    "MatMulIntegerToFloat": (1, 5), "QGemm": (3, 5), "QAttention": (1, 7),
}  # fmt: skip


def may_saturate(path: Path) -> bool:
    """Does the file have one of these operators?"""
    return not _PLACES.keys().isdisjoint(skim(path).operators)


def without_saturation(model: Any) -> bool:
    """Change the weights of a model, in place; False where nothing was to change."""
    import onnx

    stored = {tensor.name: tensor for tensor in model.graph.initializer}
    changed = False
    for node in model.graph.node:
        weight, zero = _PLACES.get(node.op_type, (0, 0))
        if not weight or len(node.input) <= weight:
            continue
        tensor = stored.get(node.input[weight])
        of_input = stored.get(node.input[2]) if node.op_type == "QLinearConv" else None
        if of_input is not None and of_input.data_type == onnx.TensorProto.INT8:
            continue  # it has no convolution of signed by unsigned bytes
        given = node.input[zero] if len(node.input) > zero else ""
        if tensor is None or tensor.data_type != onnx.TensorProto.INT8 or (given and given not in stored):
            continue
        numbers = onnx.numpy_helper.to_array(tensor).astype(np.int16)
        if numbers.size == 0 or int(np.abs(numbers).max()) <= SAFE:
            continue
        zeros = onnx.numpy_helper.to_array(stored[given]).astype(np.int16) if given else np.zeros((), np.int16)
        while len(node.input) <= zero:
            node.input.append("")
        for place, array in ((weight, numbers), (zero, zeros)):
            name = f"{node.input[place] or node.name or node.output[0]}_unsigned_{place}"
            if name not in stored:
                made = onnx.numpy_helper.from_array((array + 128).astype(np.uint8), name)
                model.graph.initializer.append(made)
                stored[name] = made
            node.input[place] = name
        changed = True
    return changed
