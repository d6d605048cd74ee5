"""STABLEHLO_* operators that take and put parts, sort, convolve and loop: against LiteRT where it runs them, else against numpy."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import intaglio
from intaglio.errors import ModelError
from intaglio.frontends.tflite import load
from intaglio.ir.graph import Array
from support.tflite_models import ModelWriter, Tensor, all_by_reference, assert_like_litert, numbers, one_operator

pytest.importorskip("ai_edge_litert", reason="LiteRT is not installed")
X = numbers((3, 4, 5), "float32", 1)
WHOLE = Tensor((), "int32")


def with_body(
    op: str, inputs: list[Tensor], outs: list[Tensor], options: str, fields: dict[str, object], body: str, pairs: list[str],
    out: str,
) -> bytes:  # fmt: skip
    """Subgraph 1 is an operator on the first pair of its inputs, or its second input."""
    w = ModelWriter()
    w.subgraph()
    w.graph.inputs = [w.tensor(t, f"in{n}") for n, t in enumerate(inputs)]
    w.graph.outputs = [w.tensor(t, f"out{n}") for n, t in enumerate(outs)]
    w.operator(op, w.graph.inputs, w.graph.outputs, options, fields, 1)
    w.subgraph()
    w.graph.inputs = [w.tensor(Tensor((), kind), f"{name}{n}") for n, kind in enumerate(pairs) for name in "ab"]
    if body:
        w.graph.outputs = [w.tensor(Tensor((), out), "c")]
        w.operator(body, w.graph.inputs[:2], w.graph.outputs, version=1)
    else:
        w.graph.outputs = [w.graph.inputs[1]]
    return w.finish()


def by_reference(data: bytes, folder: Path, *feeds: Array) -> list[Array]:
    (folder / "m.tflite").write_bytes(data)
    return all_by_reference(folder / "m.tflite", [list(feeds)])[0]


@pytest.mark.parametrize("starts", [(0, 1, 2), (-3, 9, 1)])
def test_a_slice_that_starts_where_the_caller_says(starts: tuple[int, ...], tmp_path: Path) -> None:
    sizes = (2, 2, 5)
    fields: dict[str, object] = {"sliceSizes": list(sizes)}
    inputs = [Tensor(X.shape, "float32"), WHOLE, WHOLE, WHOLE]
    data = one_operator("STABLEHLO_DYNAMIC_SLICE", inputs, Tensor(sizes, "float32"), "StablehloDynamicSliceOptions", fields, 1)
    at = [min(max(s, 0), d - n) for s, d, n in zip(starts, X.shape, sizes, strict=True)]
    want = X[tuple(slice(a, a + n) for a, n in zip(at, sizes, strict=True))]
    assert np.array_equal(by_reference(data, tmp_path, X, *np.array(starts, np.int32))[0], want)


def test_an_update_that_starts_where_the_caller_says(tmp_path: Path) -> None:
    update = numbers((2, 1, 5), "float32", 2)
    inputs = [Tensor(X.shape, "float32"), Tensor(update.shape, "float32"), WHOLE, WHOLE, WHOLE]
    data = one_operator("STABLEHLO_DYNAMIC_UPDATE_SLICE", inputs, Tensor(X.shape, "float32"), version=1)
    want = X.copy()
    want[1:3, 2:3] = update
    assert np.array_equal(by_reference(data, tmp_path, X, update, *np.array([7, 2, 0], np.int32))[0], want)


def scatter(body: str, fields: dict[str, object], shapes: list[tuple[int, ...]], dtype: str = "float32") -> bytes:
    inputs = [Tensor(shapes[0], dtype), Tensor(shapes[1], "int32"), Tensor(shapes[2], dtype)]
    fields = {**fields, "updateComputationSubgraphIndex": 1}
    options = "StablehloScatterOptions"
    return with_body("STABLEHLO_SCATTER", inputs, [Tensor(shapes[0], dtype)], options, fields, body, [dtype], dtype)


ROWS: dict[str, object] = {
    "updateWindowDims": [1, 2], "insertedWindowDims": [0], "scatterDimsToOperandDims": [0], "indexVectorDim": 1,
}  # fmt: skip
PARTS: dict[str, object] = {
    "updateWindowDims": [0, 2], "insertedWindowDims": [1], "scatterDimsToOperandDims": [1, 0], "indexVectorDim": 0,
}  # fmt: skip


@pytest.mark.parametrize("body", ["STABLEHLO_ADD", "STABLEHLO_MULTIPLY", "STABLEHLO_MAXIMUM", "STABLEHLO_MINIMUM", ""])
def test_rows_are_put(body: str, tmp_path: Path) -> None:
    shapes = [(3, 4, 5), (4, 1), (4, 4, 5)]
    feeds = [X, np.array([[2], [0], [2], [1]], np.int32), numbers((4, 4, 5), "float32", 2)]
    assert_like_litert(scatter(body, ROWS, shapes), tmp_path, feeds)


@pytest.mark.parametrize("places", [[[0, 2, 3], [1, 0, 0]], [[0, 9, 2], [1, 1, -1]]])
def test_parts_are_put_and_those_outside_are_left_out(places: list[list[int]], tmp_path: Path) -> None:
    """[2 of axis 0, each index, all of axis 2]; an index is (axis 1, axis 0)."""
    update = numbers((2, 3, 5), "float32", 2)
    data = scatter("STABLEHLO_ADD", PARTS, [(3, 4, 5), (2, 3), update.shape])
    want = X.copy()
    for n, (column, row) in enumerate(zip(*places, strict=True)):
        for step in range(2):
            if 0 <= column < 4 and 0 <= row + step < 3:
                want[row + step, column] += update[step, n]
    assert np.allclose(by_reference(data, tmp_path, X, np.array(places, np.int32), update)[0], want, atol=1e-6)


def test_a_package_that_scatters(tmp_path: Path) -> None:
    data = scatter("", {**ROWS, "updateWindowDims": [1]}, [(3, 2), (2, 1), (2, 2)], "int32")
    (tmp_path / "m.tflite").write_bytes(data)
    package = intaglio.compile(tmp_path / "m.tflite", output=tmp_path / "p", target="generic")
    feeds = [numbers((3, 2), "int32"), np.array([[2], [7]], np.int32), numbers((2, 2), "int32", 1)]
    want = feeds[0].copy()
    want[2] = feeds[2][0]
    (made,) = package.run({f"in{n}": x for n, x in enumerate(feeds)}).values()
    assert np.array_equal(made, want)


@pytest.mark.parametrize(("body", "sign"), [("LESS", 1), ("GREATER", -1)])
def test_numbers_are_sorted_with_what_belongs_to_them(body: str, sign: int, tmp_path: Path) -> None:
    keys, beside = X.round(0), np.arange(60, dtype=np.int32).reshape(3, 4, 5)
    tensors = [Tensor(X.shape, "float32"), Tensor(X.shape, "int32")]
    fields: dict[str, object] = {"dimension": 1, "isStable": True, "comparatorSubgraphIndex": 1}
    kinds = ["float32", "int32"]
    data = with_body("STABLEHLO_SORT", tensors, tensors, "StablehloSortOptions", fields, body, kinds, "bool")
    order = np.argsort(sign * keys, axis=1, kind="stable")
    made = by_reference(data, tmp_path, keys, beside)
    assert np.array_equal(made[0], np.take_along_axis(keys, order, 1))
    assert np.array_equal(made[1], np.take_along_axis(beside, order, 1))


def test_an_order_of_its_own_is_told(tmp_path: Path) -> None:
    tensors = [Tensor((4,), "int32")]
    fields: dict[str, object] = {"dimension": 0, "comparatorSubgraphIndex": 1}
    data = with_body("STABLEHLO_SORT", tensors, tensors, "StablehloSortOptions", fields, "EQUAL", ["int32"], "bool")
    (tmp_path / "m.tflite").write_bytes(data)
    with pytest.raises(ModelError, match="sorts by an expression of its own"):
        load(tmp_path / "m.tflite", dims={}, shapes={})


def test_a_convolution(tmp_path: Path) -> None:
    """NHWC and HWIO, steps of 2, zeros around and between."""
    x, w = numbers((1, 5, 6, 4), "float32"), numbers((3, 2, 2, 6), "float32", 1)
    fields: dict[str, object] = {
        "windowStrides": [2, 1], "padding": [1, 1, 0, 2], "lhsDilation": [1, 2], "rhsDilation": [1, 2], "featureGroupCount": 2,
        "inputBatchDimension": 0, "inputFeatureDimension": 3, "inputSpatialDimensions": [1, 2], "batchGroupCount": 1,
        "kernelInputFeatureDimension": 2, "kernelOutputFeatureDimension": 3, "kernelSpatialDimensions": [0, 1],
        "outputBatchDimension": 0, "outputFeatureDimension": 3, "outputSpatialDimensions": [1, 2],
    }  # fmt: skip
    wide = np.zeros((1, 7, 13, 4), np.float32)
    wide[:, 1:6, 0:11:2] = x
    want = np.zeros((1, 3, 11, 6))
    for row, column, out in np.ndindex(3, 11, 6):
        part = wide[0, 2 * row : 2 * row + 3, column : column + 3 : 2, 2 * (out // 3) : 2 * (out // 3) + 2]
        want[0, row, column, out] = np.sum(part.astype(np.float64) * w[..., out])
    inputs, outs = [Tensor(x.shape, "float32"), Tensor(w.shape, "float32", data=w)], Tensor(want.shape, "float32")
    data = one_operator("STABLEHLO_CONVOLUTION", inputs, outs, "StablehloConvolutionOptions", fields, 1)
    assert np.allclose(by_reference(data, tmp_path, x)[0], want, atol=1e-5)


@pytest.mark.parametrize("known", [True, False])
def test_a_loop(known: bool, tmp_path: Path) -> None:
    """While the number is below the limit, it is doubled."""
    w = ModelWriter()
    w.subgraph()
    limit = Tensor((), "int32", data=np.asarray(50, np.int32)) if known else WHOLE
    places = [w.tensor(Tensor((), "int32", data=np.asarray(3, np.int32)) if known else WHOLE, "x"), w.tensor(limit, "limit")]
    w.graph.inputs = [] if known else places
    w.graph.outputs = [w.tensor(WHOLE, "y"), w.tensor(WHOLE, "same")]
    fields: dict[str, object] = {"condSubgraphIndex": 1, "bodySubgraphIndex": 2}
    w.operator("STABLEHLO_WHILE", places, w.graph.outputs, "StablehloWhileOptions", fields, 1)
    w.subgraph()
    w.graph.inputs = [w.tensor(WHOLE, "x"), w.tensor(WHOLE, "limit")]
    w.graph.outputs = [w.tensor(Tensor((), "bool"), "more")]
    w.operator("LESS", w.graph.inputs, w.graph.outputs, version=1)
    w.subgraph()
    w.graph.inputs = [w.tensor(WHOLE, "x"), w.tensor(WHOLE, "limit")]
    w.graph.outputs = [w.tensor(WHOLE, "twice"), w.graph.inputs[1]]
    w.operator("STABLEHLO_ADD", [w.graph.inputs[0]] * 2, w.graph.outputs[:1], version=1)
    feeds = [] if known else [np.asarray(3, np.int32), np.asarray(50, np.int32)]
    assert [int(v) for v in by_reference(w.finish(), tmp_path, *feeds)] == [96, 50]


def test_a_subgraph_that_is_called(tmp_path: Path) -> None:
    w = ModelWriter()
    w.subgraph()
    w.graph.inputs, w.graph.outputs = [w.tensor(WHOLE, "x")], [w.tensor(WHOLE, "y")]
    w.operator("CALL", w.graph.inputs, w.graph.outputs, "CallOptions", {"subgraph": 1}, 1)
    w.subgraph()
    w.graph.inputs, w.graph.outputs = [w.tensor(WHOLE, "a")], [w.tensor(WHOLE, "b")]
    w.operator("NEG", w.graph.inputs, w.graph.outputs, version=1)
    assert int(by_reference(w.finish(), tmp_path, np.asarray(7, np.int32))[0]) == -7
