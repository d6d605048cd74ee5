"""An ONNX model whose scores move by a few ulps just before `NonMaxSuppression` sorts them.

Scores end in a sigmoid or a softmax, which are nearly 1 for all that was found: they often differ by their last bits alone. Then
it is the rounding of that last function that decides, and no change of the inputs, which it absorbs, shows that."""

from __future__ import annotations

from typing import Any

MOVED = 4 * 2.0**-23  # what sigmoids and exponentials of two libraries are apart


def with_moved_scores(model: Any, seed: float) -> bool:
    """Multiplies scores by 1 +- MOVED at random; False where nothing is sorted."""
    import onnx

    found = [node for node in model.graph.node if node.op_type == "NonMaxSuppression"]
    for n, node in enumerate(found):
        names = [f"{node.output[0]}_moved_{what}" for what in ("by", "factor", "scores")]
        by, factor, scores = names
        one = onnx.helper.make_tensor(f"{by}_one", onnx.TensorProto.FLOAT, [], [1.0])
        model.graph.initializer.append(one)
        place = list(model.graph.node).index(node)
        random = onnx.helper.make_node("RandomUniformLike", [node.input[1]], [by], low=-MOVED, high=MOVED, seed=seed + n)
        made = [
            random,
            onnx.helper.make_node("Add", [by, one.name], [factor]),
            onnx.helper.make_node("Mul", [node.input[1], factor], [scores]),
        ]
        for offset, other in enumerate(made):
            model.graph.node.insert(place + offset, other)
        model.graph.node[place + len(made)].input[1] = scores
    return bool(found)
