"""Variants of a small convolutional network, as ONNX files with a project file: something for a fleet to work on.

    python scripts/fleet_models.py FOLDER [--models 200] [--boards 20]
"""

from __future__ import annotations

import argparse
from itertools import islice, product
from pathlib import Path

import numpy as np
import onnx
from onnx import helper, numpy_helper

from intaglio.targets.board import all_boards

SIDES, CHANNELS, DEPTHS, CLASSES = (8, 12, 16, 24, 32), (4, 6, 8, 12, 16), (1, 2, 3, 4), (2, 10)


def network(side: int, channels: int, depth: int, classes: int) -> onnx.ModelProto:
    random = np.random.default_rng(side * 1000 + channels * 100 + depth * 10 + classes)
    nodes, constants, x, before = [], [], "x", 1

    def constant(name: str, *shape: int) -> str:
        constants.append(numpy_helper.from_array(random.standard_normal(shape).astype(np.float32) * 0.3, name))
        return name

    for n in range(depth):
        after, stride = channels * (n + 1), 2 if n else 1
        operands = [x, constant(f"w{n}", after, before, 3, 3), constant(f"b{n}", after)]
        conv = helper.make_node("Conv", operands, [f"c{n}"], kernel_shape=[3, 3], pads=[1] * 4, strides=[stride, stride])
        nodes.append(conv)
        nodes.append(helper.make_node("Relu", [f"c{n}"], [f"r{n}"]))
        x, before = f"r{n}", after
    nodes.append(helper.make_node("GlobalAveragePool", [x], ["p"]))
    nodes.append(helper.make_node("Flatten", ["p"], ["f"]))
    nodes.append(helper.make_node("Gemm", ["f", constant("wd", before, classes), constant("bd", classes)], ["y"]))
    given = [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [1, 1, side, side])]
    taken = [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [1, classes])]
    graph = helper.make_graph(nodes, "net", given, taken, constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def write_fleet(folder: Path, models: int, boards: int) -> Path:
    """`fleet.toml`, for a quick fit of all of them on the first boards of each core in turn."""
    (folder / "models").mkdir(parents=True, exist_ok=True)
    lines = []
    for side, channels, depth, classes in islice(product(SIDES, CHANNELS, DEPTHS, CLASSES), models):
        name = f"net-{side}-{channels}-{depth}-{classes}"
        path = folder / "models" / f"{name}.onnx"
        path.write_bytes(network(side, channels, depth, classes).SerializeToString(deterministic=True))
        lines += [f"[models.{name}]", f'source = "models/{name}.onnx"', ""]
    by_core: dict[str, list[str]] = {}
    for name, board in all_boards().items():
        by_core.setdefault(board.core, []).append(name)
    in_turn = [names[n] for n in range(max(map(len, by_core.values()))) for names in by_core.values() if n < len(names)]
    chosen = ", ".join(f'"{name}"' for name in in_turn[:boards])
    text = "\n".join([*lines, "[fleet]", f"boards = [{chosen}]", "quick = true", 'store = "store"', ""])
    (folder / "fleet.toml").write_text(text)
    return folder / "fleet.toml"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--models", type=int, default=200)
    parser.add_argument("--boards", type=int, default=20)
    words = parser.parse_args()
    print(write_fleet(words.folder, words.models, words.boards))
