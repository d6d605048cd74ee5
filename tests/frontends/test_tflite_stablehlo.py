"""STABLEHLO_* operators: against LiteRT where it runs them, else against numpy."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from intaglio.errors import ModelError
from intaglio.frontends.tflite import load
from intaglio.ir.graph import Array
from support.tflite_models import Tensor, all_by_reference, assert_like_litert, numbers, one_operator

pytest.importorskip("ai_edge_litert", reason="LiteRT is not installed")
X, Y = numbers((2, 3, 4), "float32", 1), numbers((2, 3, 4), "float32", 2)
F = Tensor((2, 3, 4), "float32")


@pytest.mark.parametrize("op", ["ADD", "MULTIPLY", "MAXIMUM", "MINIMUM"])
@pytest.mark.parametrize("dtype", ["float32", "int32"])
def test_arithmetic(op: str, dtype: str, tmp_path: Path) -> None:
    t = Tensor((3, 4), dtype)
    feeds = [numbers((3, 4), dtype, n) // (1 if dtype == "float32" else 9) for n in (1, 2)]
    assert_like_litert(one_operator(f"STABLEHLO_{op}", [t, t], t, version=1), tmp_path, feeds)


@pytest.mark.parametrize("inside", [(0, 0), (2, 1)])
@pytest.mark.parametrize("edges", [((1, 2), (0, 3)), ((-1, 1), (2, -1))])
def test_padding(edges: tuple[tuple[int, int], tuple[int, int]], inside: tuple[int, int], tmp_path: Path) -> None:
    low, high = edges
    shape = tuple(n + (n - 1) * i + a + b for n, i, a, b in zip((3, 4), inside, low, high, strict=True))
    value = Tensor((), "float32", data=np.asarray(1.5, np.float32))
    fields: dict[str, object] = {"edgePaddingLow": low, "edgePaddingHigh": high, "interiorPadding": inside}
    data = one_operator(
        "STABLEHLO_PAD", [Tensor((3, 4), "float32"), value], Tensor(shape, "float32"), "StablehloPadOptions", fields, 1
    )
    assert_like_litert(data, tmp_path, [X[0]])


@pytest.mark.parametrize(("body", "start"), [("STABLEHLO_ADD", 0.0), ("STABLEHLO_MAXIMUM", -0.25), ("STABLEHLO_MULTIPLY", 1.0)])
def test_windows(body: str, start: float, tmp_path: Path) -> None:
    first = Tensor((), "float32", data=np.asarray(start, np.float32))
    fields: dict[str, object] = {
        "windowDimensions": [1, 2, 3], "windowStrides": [1, 1, 2], "baseDilations": [1, 2, 1], "windowDilations": [1, 2, 1],
        "padding": [0, 0, 1, 0, 2, 1], "bodySubgraphIndex": 1,
    }  # fmt: skip
    out = Tensor((2, 4, 3), "float32")
    data = one_operator("STABLEHLO_REDUCE_WINDOW", [F, first], out, "StablehloReduceWindowOptions", fields, 1, body=body)
    assert_like_litert(data, tmp_path, [X])


@pytest.mark.parametrize("function", [1, 2, 3, 4])
def test_windows_of_tflite(function: int, tmp_path: Path) -> None:
    lists = [[1, 2, 2], [1, 1, 2], [1, 2, 1]]
    known = [Tensor((3,), "int64", data=np.asarray(v, np.int64)) for v in lists]
    start = Tensor((), "float32", data=np.asarray({1: 0, 2: 1, 3: np.inf, 4: -np.inf}[function], np.float32))
    fields: dict[str, object] = {"reduceFunction": function}
    data = one_operator("REDUCE_WINDOW", [F, start, *known], Tensor((2, 1, 2), "float32"), "ReduceWindowOptions", fields, 1)
    assert_like_litert(data, tmp_path, [X])


@pytest.mark.parametrize("axis", [0, 1])
def test_rows_that_are_gathered(axis: int, tmp_path: Path) -> None:
    sizes = [1 if n == axis else size for n, size in enumerate((3, 4))]
    rows = np.asarray([[2], [0], [1], [9], [-4]], np.int32)  # beyond the end: the last one
    fields: dict[str, object] = {
        "offsetDims": [1 - axis] if axis else [1], "collapsedSliceDims": [axis], "startIndexMap": [axis], "indexVectorDim": 1,
        "sliceSizes": sizes,
    }  # fmt: skip
    out = Tensor((5, 4) if axis == 0 else (3, 5), "float32")
    given = [Tensor((3, 4), "float32"), Tensor((5, 1), "int32")]
    assert_like_litert(one_operator("STABLEHLO_GATHER", given, out, "StablehloGatherOptions", fields, 1), tmp_path, [X[0], rows])


Case = tuple[list[Tensor], Tensor, str, dict[str, object], list[Array], Callable[..., Array]]
CASES: dict[str, Case] = {
    "RSQRT": ([F], F, "", {}, [np.abs(X)], lambda x: 1 / np.sqrt(x)),
    "CBRT": ([F], F, "", {}, [X], np.cbrt),
    "LOGISTIC": ([F], F, "", {}, [X], lambda x: 1 / (1 + np.exp(-x))),
    "SUBTRACT": ([F, F], F, "", {}, [X, Y], np.subtract),
    "REMAINDER": ([F, F], F, "", {}, [X, Y], np.fmod),
    "CLAMP": ([F, F, F], F, "", {}, [Y - 0.5, X, Y], lambda low, x, high: np.minimum(np.maximum(x, low), high)),
    "SELECT": ([Tensor((2, 3, 4), "bool"), F, F], F, "", {}, [X > 0, X, Y], np.where),
    "CONVERT": ([F], Tensor((2, 3, 4), "int32"), "", {}, [X * 9], lambda x: x.astype(np.int32)),
    "RESHAPE": ([F], Tensor((6, 4), "float32"), "", {}, [X], lambda x: x.reshape(6, 4)),
    "COMPARE": (
        [F, F], Tensor((2, 3, 4), "bool"), "StablehloCompareOptions", {"comparisonDirection": 1}, [X, np.where(X > 0, X, Y)],
        np.not_equal,
    ),
    "TRANSPOSE": (
        [F], Tensor((4, 2, 3), "float32"), "StablehloTransposeOptions", {"permutation": [2, 0, 1]}, [X],
        lambda x: x.transpose(2, 0, 1),
    ),
    "CONCATENATE": (
        [F, F], Tensor((2, 6, 4), "float32"), "StablehloConcatenateOptions", {"dimension": 1}, [X, Y],
        lambda x, y: np.concatenate([x, y], 1),
    ),
    "BROADCAST_IN_DIM": (
        [Tensor((3, 1), "float32")], Tensor((3, 2, 4), "float32"), "StablehloBroadcastInDimOptions",
        {"broadcastDimensions": [0, 2]}, [X[0, :, :1]], lambda x: np.broadcast_to(x[:, None], (3, 2, 4)),
    ),
    "SLICE": (
        [F], Tensor((1, 2, 2), "float32"), "StablehloSliceOptions",
        {"startIndices": [1, 0, 0], "limitIndices": [2, 2, 4], "strides": [1, 1, 2]}, [X], lambda x: x[1:2, :2, ::2],
    ),
    "DOT_GENERAL": (
        [F, F], Tensor((4, 2, 2), "float32"), "StablehloDotGeneralOptions",
        {f"{side}{what}Dimensions": [n] for side in ("lhs", "rhs") for what, n in (("Batching", 2), ("Contracting", 1))},
        [X, Y], lambda x, y: np.einsum("aik,bik->kab", x, y),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_as_the_standard_says(name: str, tmp_path: Path) -> None:
    inputs, out, options, fields, feeds, meaning = CASES[name]
    (tmp_path / "m.tflite").write_bytes(one_operator(f"STABLEHLO_{name}", inputs, out, options, fields, 1))
    (made,) = all_by_reference(tmp_path / "m.tflite", [feeds])[0]
    expected = meaning(*feeds)
    assert made.shape == expected.shape and np.allclose(made, expected, rtol=1e-5, atol=1e-6)


def test_a_reduction(tmp_path: Path) -> None:
    start = Tensor((), "float32", data=np.asarray(2.5, np.float32))
    fields: dict[str, object] = {"dimensions": [0, 2], "bodySubgraphIndex": 1}
    out = Tensor((3,), "float32")
    data = one_operator("STABLEHLO_REDUCE", [F, start], out, "StablehloReduceOptions", fields, 1, body="STABLEHLO_ADD")
    (tmp_path / "m.tflite").write_bytes(data)
    assert np.allclose(all_by_reference(tmp_path / "m.tflite", [[X]])[0][0], X.sum(axis=(0, 2)) + 2.5, atol=1e-5)


def test_a_reduction_of_its_own_kind_is_told(tmp_path: Path) -> None:
    start = Tensor((), "float32", data=np.asarray(0, np.float32))
    fields: dict[str, object] = {"dimensions": [0], "bodySubgraphIndex": 1}
    out = Tensor((3, 4), "float32")
    data = one_operator("STABLEHLO_REDUCE", [F, start], out, "StablehloReduceOptions", fields, 1, body="STABLEHLO_POWER")
    (tmp_path / "m.tflite").write_bytes(data)
    with pytest.raises(ModelError, match="by an expression of its own"):
        load(tmp_path / "m.tflite", dims={}, shapes={})
