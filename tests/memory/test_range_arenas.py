"""The arena of a package for a range of sizes is that of the package for the largest of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from intaglio.ir.graph import Array
from intaglio.options.reading import request_of_keywords
from intaglio.pipeline import Planned, plan_request
from intaglio.stages.watch import Watch
from support.onnx_models import model, node, saved, value

TARGETS = ("generic", "cortex-m4f", "cortex-m0+", "x86-64-v3", "x86-64-v4")
RANDOM = np.random.default_rng(7)
Shape = list[int | str]


def drawn(*shape: int) -> Array:
    return np.asarray(RANDOM.standard_normal(shape) / np.sqrt(np.prod(shape[1:])), np.float32)


def chain(*shape: int | str) -> Any:
    """Convolutions of every kind one after the other, with borders."""
    rank = len(shape) - 2
    sides: dict[str, Any] = {"pads": [1] * 2 * rank}
    constants = {
        name: drawn(outs, ins, *[3] * rank)
        for name, outs, ins in (("a", 16, 3), ("b", 16, 1), ("c", 24, 16), ("d", 24, 24), ("e", 8, 24))
    }
    nodes = [
        node("Conv", "x a", "h1", **sides), node("Relu", "h1", "h2"), node("Conv", "h2 b", "h3", group=16, **sides),
        node("Conv", "h3 c", "h4", strides=[2] * rank, **sides), node("Relu", "h4", "h5"),
        node("Conv", "h5 d", "h6", **sides), node("Add", "h5 h6", "h7"),
        node("MaxPool", "h7", "h8", kernel_shape=[3] * rank, strides=[2] * rank, **sides), node("Conv", "h8 e", "y", **sides),
        node("GlobalAveragePool", "y", "z"),
    ]  # fmt: skip
    return model(nodes, [value("x", [*shape])], [value("z", None)], constants, opset=17)


def words() -> Any:
    nodes = [
        node("MatMul", "x q", "xq"), node("MatMul", "x k", "xk"), node("Transpose", "xk", "kt", perm=[0, 2, 1]),
        node("MatMul", "xq kt", "s"), node("Softmax", "s", "p"), node("MatMul", "p x", "m"), node("Add", "m x", "h"),
        node("MatMul", "h u", "h1"), node("Relu", "h1", "h2"), node("MatMul", "h2 v", "h3"), node("Add", "h3 h", "y"),
    ]  # fmt: skip
    constants = {"q": drawn(32, 32), "k": drawn(32, 32), "u": drawn(32, 96), "v": drawn(96, 32)}
    return model(nodes, [value("x", [1, "T", 32])], [value("y", None)], constants, opset=17)


NETS: dict[str, tuple[Any, tuple[int, ...], dict[str, tuple[int, int]]]] = {
    "rows and columns": (chain(1, 3, "H", "W"), (1, 3, 40, 48), {"H": (8, 40), "W": (8, 48)}),
    "columns": (chain(1, 3, 40, "W"), (1, 3, 40, 48), {"W": (5, 48)}),
    "rows": (chain(1, 3, "H", 40), (1, 3, 48, 40), {"H": (5, 48)}),
    "a line": (chain(1, 3, "T"), (1, 3, 200), {"T": (1, 200)}),
    "a batch of lines": (chain("N", 3, "T"), (3, 3, 60), {"N": (1, 3), "T": (4, 60)}),
    "a batch": (chain("N", 3, 24, 24), (3, 3, 24, 24), {"N": (1, 3)}),
    "words": (words(), (1, 64, 32), {"T": (1, 64)}),
}


def planned(path: Path, target: str, dims: dict[str, Any], more: dict[str, Any]) -> Planned:
    return plan_request(request_of_keywords(path, path.parent / "out.ig", {"dims": dims, "target": target, **more}), Watch())


def both(name: str, target: str, folder: Path, *, integers: bool) -> tuple[Planned, Planned]:
    """For the range, and for the largest size."""
    proto, shape, dims = NETS[name]
    path, more = saved(proto, folder), dict[str, Any]()
    if integers:
        np.savez(folder / "data.npz", x=drawn(1, *shape) * 9)
        more = {"quantize": "int8", "calibrate": folder / "data.npz", "sensitivity": False}
    return planned(path, target, dims, more), planned(path, target, {n: high for n, (_, high) in dims.items()}, more)


QUICK = {"generic": "rows and columns", "cortex-m4f": "a line", "cortex-m0+": "columns", "x86-64-v3": "words", "x86-64-v4": "rows"}
PAIRS = [
    pytest.param(name, target, marks=() if QUICK[target] == name else pytest.mark.slow) for target in TARGETS for name in NETS
]


@pytest.mark.parametrize(("name", "target"), PAIRS)
def test_a_range_of_floats_needs_no_more_memory(name: str, target: str, tmp_path: Path) -> None:
    ranged, static = both(name, target, tmp_path, integers=False)
    assert 0 < ranged.program.arena_bytes <= static.program.arena_bytes


@pytest.mark.parametrize(("name", "target"), PAIRS)
def test_a_range_of_integers_needs_no_more_memory(name: str, target: str, tmp_path: Path) -> None:
    ranged, static = both(name, target, tmp_path, integers=True)
    assert 0 < ranged.program.arena_bytes <= static.program.arena_bytes


@pytest.mark.parametrize(
    "name", ["rows and columns", pytest.param("columns", marks=pytest.mark.slow), pytest.param("rows", marks=pytest.mark.slow)]
)
def test_integers_of_a_range_are_computed_by_the_dsp_extension(name: str, tmp_path: Path) -> None:
    """As those of static sizes are."""
    kernels = []
    for plan in both(name, "cortex-m4f", tmp_path, integers=True):
        program = plan.program
        products = [layer.node for layer in program.layers if layer.node.op.NAME == "qconv"]
        kernels.append([program.choices.of(node).partition("(")[0] for node in products])
    assert kernels[0] == kernels[1] and all(kernel.endswith("_dsp") for kernel in kernels[0])
