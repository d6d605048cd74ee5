"""Small networks whose input is rows of pixels, for stripes and for rows that are fed."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from support.onnx_models import model, node, saved, value

F = np.float32


def pixels(folder: Path, rows: int = 24, columns: int = 16, *, name: str = "pixels", first: int = 3) -> Path:
    """[1, rows, columns, 3]: a convolution, a block with a sum around it, a pool, and a dense layer. `first`: its first kernel."""
    rng = np.random.default_rng(rows)
    shapes = {"a": (8, 3, first, first), "b": (16, 8, 1, 1), "c": (16, 1, 3, 3), "d": (8, 16, 1, 1), "e": (8, 5)}
    constants = {k: (rng.standard_normal(s) / np.sqrt(np.prod(s[1:]))).astype(F) for k, s in shapes.items()}
    pads = [first // 2] * 4
    nodes = [
        node("Transpose", "image", "planes", perm=[0, 3, 1, 2]),
        node("Conv", "planes a", "a1", strides=[2, 2], pads=pads),
        node("Relu", "a1", "a2"),
        node("Conv", "a2 b", "b1"),
        node("Relu", "b1", "b2"),
        node("Conv", "b2 c", "c1", pads=[1, 1, 1, 1], group=16),
        node("Relu", "c1", "c2"),
        node("Conv", "c2 d", "d1"),
        node("Add", "a2 d1", "s"),
        node("GlobalAveragePool", "s", "g"),
        node("Flatten", "g", "f"),
        node("MatMul", "f e", "scores"),
    ]
    proto = model(nodes, [value("image", [1, rows, columns, 3])], [value("scores", [1, 5])], constants)
    return saved(proto, folder, f"{name}.onnx")


def dense(folder: Path) -> Path:
    """Nothing but a dense layer: there are no rows."""
    w = np.random.default_rng(1).standard_normal((64, 4)).astype(F)
    return saved(model([node("MatMul", "x w", "y")], [value("x", [1, 64])], [value("y", [1, 4])], {"w": w}), folder, "dense.onnx")
