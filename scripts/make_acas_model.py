"""A network of the size of ACAS Xu: five inputs, six layers of 50 neurons with ReLU, five outputs. Weights are random, with a seed.

.venv/bin/python scripts/make_acas_model.py build/acas.onnx
"""

from __future__ import annotations

import sys
from itertools import pairwise
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

SIZES = (5, 50, 50, 50, 50, 50, 50, 5)


def acas(seed: int = 1) -> onnx.ModelProto:
    random = np.random.default_rng(seed)
    nodes, weights, value = [], [], "state"
    for n, (k, m) in enumerate(pairwise(SIZES)):
        w = (random.standard_normal((k, m)) * np.sqrt(2 / k)).astype(np.float32)
        b = (random.standard_normal(m) * 0.1).astype(np.float32)
        weights += [numpy_helper.from_array(w, f"w{n}"), numpy_helper.from_array(b, f"b{n}")]
        last = n == len(SIZES) - 2
        made = "advisories" if last else f"h{n}"
        nodes.append(helper.make_node("Gemm", [value, f"w{n}", f"b{n}"], [made if last else f"s{n}"], name=f"/layer{n}/Gemm"))
        if not last:
            nodes.append(helper.make_node("Relu", [f"s{n}"], [made], name=f"/layer{n}/Relu"))
        value = made
    given = helper.make_tensor_value_info("state", TensorProto.FLOAT, [1, SIZES[0]])
    result = helper.make_tensor_value_info("advisories", TensorProto.FLOAT, [1, SIZES[-1]])
    graph = helper.make_graph(nodes, "acas", [given], [result], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(model)
    return model


if __name__ == "__main__":
    target = Path(sys.argv[1] if len(sys.argv) > 1 else "build/acas.onnx")
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(acas().SerializeToString(deterministic=True))
    print(target)
