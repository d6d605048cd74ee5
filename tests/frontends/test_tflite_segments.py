"""Segments, boxes, borders and others of TFLite against LiteRT's reference kernels."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import intaglio
from intaglio.ir.graph import Array
from support.tflite_models import Tensor, all_by_litert, all_by_reference, assert_like_litert, one_operator

pytest.importorskip("ai_edge_litert", reason="LiteRT is not installed")
RNG = np.random.default_rng(4)
X = RNG.standard_normal((6, 3)).astype(np.float32)


def scalar(number: float, dtype: str = "int32") -> Tensor:
    return Tensor((), dtype, data=np.asarray(number, dtype))


def test_segments_in_order(tmp_path: Path) -> None:
    ids = Tensor((6,), "int32", data=np.array([0, 0, 1, 3, 3, 3], np.int32))
    data = one_operator("SEGMENT_SUM", [Tensor((6, 3), "float32"), ids], Tensor((4, 3), "float32"), "SegmentSumOptions", version=1)
    path = tmp_path / "one.tflite"
    path.write_bytes(data)
    (got,) = all_by_reference(path, [[X]])  # LiteRT's Python library does not have it
    assert np.allclose(got[0], [X[0] + X[1], X[2], [0, 0, 0], X[3] + X[4] + X[5]], atol=1e-6)


@pytest.mark.parametrize("kind", ["Sum", "Prod", "Max", "Min"])
@pytest.mark.parametrize("dtype", ["float32", "int32"])
def test_segments_in_any_order(kind: str, dtype: str, tmp_path: Path) -> None:
    inputs = [Tensor((6, 3), dtype), Tensor((6,), "int32"), scalar(4)]
    data = one_operator(
        f"UNSORTED_SEGMENT_{kind.upper()}", inputs, Tensor((4, 3), dtype), f"UnsortedSegment{kind}Options", version=1
    )
    x = X if dtype == "float32" else RNG.integers(-9, 9, (6, 3)).astype(np.int32)
    assert_like_litert(data, tmp_path, [x, np.array([2, 0, 2, -1, 0, 3], np.int32)])


def boxes(op: str, results: list[Tensor], *limits: Tensor) -> bytes:
    inputs = [Tensor((20, 4), "float32"), Tensor((20,), "float32"), *limits]
    return one_operator(op, inputs, results, f"NonMaxSuppression{op[-2:]}Options", version=1)


FOUR = [Tensor((6,), "int32"), Tensor((), "int32")]
FIVE = [Tensor((6,), "int32"), Tensor((6,), "float32"), Tensor((), "int32")]
REAL, WHOLE = Tensor((), "float32"), Tensor((), "int32")


def many_boxes(seed: int) -> list[Array]:
    """Corners on a grid overlap by the limit itself and have no area now and then; scores are equal now and then."""
    random = np.random.default_rng(seed)
    corners = random.random((20, 4)) if seed % 2 else random.integers(0, 8, (20, 4)) / 8
    scores = random.random(20) if seed % 3 else random.integers(0, 6, 20) / 8
    return [corners.astype(np.float32), scores.astype(np.float32)]


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("overlap", [0.5, 0.0, 1.1])
def test_boxes_that_do_not_overlap(seed: int, overlap: float, tmp_path: Path) -> None:
    limits = [scalar(6), scalar(overlap, "float32"), scalar(0.3, "float32")]
    assert_like_litert(boxes("NON_MAX_SUPPRESSION_V4", FOUR, *limits), tmp_path, many_boxes(seed))
    for sigma in (0.0, 0.5):
        five = boxes("NON_MAX_SUPPRESSION_V5", FIVE, *limits, scalar(sigma, "float32"))
        assert_like_litert(five, tmp_path, many_boxes(seed))


def test_limits_of_boxes_are_computed(tmp_path: Path) -> None:
    path = tmp_path / "boxes.tflite"
    open_ended = [Tensor((1,), "int32", signature=(-1,)), Tensor((1,), "float32", signature=(-1,)), WHOLE]
    path.write_bytes(boxes("NON_MAX_SUPPRESSION_V5", open_ended, WHOLE, REAL, REAL, REAL))
    package = intaglio.compile(path, output=tmp_path / "p", target="generic")
    for seed, (most, limits) in enumerate([(3, (0.5, 0.3, 0.0)), (12, (0.6, 0.2, 0.5)), (5, (0.1, 2.0, 0.0))]):
        feeds = [*many_boxes(seed), np.asarray(most, np.int32), *(np.asarray(n, np.float32) for n in limits)]
        made, wanted = package.run({f"in{n}": x for n, x in enumerate(feeds)}), all_by_litert(path, [feeds])[0]
        for got, want in zip(made.values(), wanted, strict=True):
            assert got.shape == want.shape and np.allclose(got, want, atol=1e-6)


def test_as_many_of_the_largest_as_the_caller_says(tmp_path: Path) -> None:
    results = [Tensor((6, 1), "float32", signature=(6, -1)), Tensor((6, 1), "int32", signature=(6, -1))]
    path = tmp_path / "top.tflite"
    path.write_bytes(one_operator("TOPK_V2", [Tensor((6, 3), "float32"), WHOLE], results, "TopKV2Options", version=1))
    package = intaglio.compile(path, output=tmp_path / "p", target="generic")
    for k in (1, 3):
        feeds = [X, np.asarray(k, np.int32)]
        made, wanted = package.run({"in0": X, "in1": feeds[1]}), all_by_litert(path, [feeds])[0]
        assert all(np.array_equal(got, want) for got, want in zip(made.values(), wanted, strict=True))


def test_between_borders(tmp_path: Path) -> None:
    fields: dict[str, object] = {"boundaries": [-1.0, 0.0, 0.5, 2.0]}
    data = one_operator("BUCKETIZE", [Tensor((6, 3), "float32")], Tensor((6, 3), "int32"), "BucketizeOptions", fields, version=1)
    assert_like_litert(data, tmp_path, [X])


def test_bits_of_another_type(tmp_path: Path) -> None:
    data = one_operator("BITCAST", [Tensor((6, 3), "float32")], Tensor((6, 3), "int32"), "BitcastOptions", version=1)
    assert_like_litert(data, tmp_path, [X])


def test_few_numbers_of_many(tmp_path: Path) -> None:
    shape = Tensor((2,), "int32", data=np.array([4, 5], np.int32))
    places = np.array([[0, 1], [2, 4], [3, 0]], np.int32)
    inputs = [Tensor((3, 2), "int32"), shape, Tensor((3,), "float32"), scalar(-1.0, "float32")]
    data = one_operator("SPARSE_TO_DENSE", inputs, Tensor((4, 5), "float32"), "SparseToDenseOptions", {"validateIndices": False}, 1)
    assert_like_litert(data, tmp_path, [places, X[:3, 0]])


@pytest.mark.parametrize(("low", "high", "bits"), [(-1.0, 1.5, 8), (0.1, 2.0, 4), (-3.0, -0.5, 8)])
def test_as_if_quantised(low: float, high: float, bits: int, tmp_path: Path) -> None:
    fields: dict[str, object] = {"min": low, "max": high, "numBits": bits, "narrowRange": False}
    data = one_operator("FAKE_QUANT", [Tensor((6, 3), "float32")], Tensor((6, 3), "float32"), "FakeQuantOptions", fields)
    assert_like_litert(data, tmp_path, [X])


@pytest.mark.parametrize("dtype", ["float32", "int32"])
def test_rows_by_their_keys(dtype: str, tmp_path: Path) -> None:
    keys = Tensor((4,), "int32", data=np.array([-11, 0, 123, 1234], np.int32))
    rows = RNG.integers(-9, 9, (4, 3)).astype(dtype)
    inputs = [Tensor((5,), "int32"), keys, Tensor((4, 3), dtype, data=rows)]
    data = one_operator("HASHTABLE_LOOKUP", inputs, [Tensor((5, 3), dtype), Tensor((5,), "uint8")], version=1)
    assert_like_litert(data, tmp_path, [np.array([1234, -292, -11, 0, 7], np.int32)])


@pytest.mark.parametrize("combiner", [0, 1, 2])
def test_sums_of_rows_that_a_sparse_tensor_names(combiner: int, tmp_path: Path) -> None:
    """Three examples; the second one has none."""
    places = Tensor((3, 2), "int32", data=np.array([[0, 0], [2, 0], [2, 1]], np.int32))
    shape = Tensor((2,), "int32", data=np.array([3, 2], np.int32))
    inputs = [Tensor((3,), "int32"), places, shape, Tensor((3,), "float32"), Tensor((6, 3), "float32", data=X)]
    fields: dict[str, object] = {"combiner": combiner}
    data = one_operator("EMBEDDING_LOOKUP_SPARSE", inputs, Tensor((3, 3), "float32"), "EmbeddingLookupSparseOptions", fields, 1)
    assert_like_litert(data, tmp_path, [np.array([1, 3, 0], np.int32), np.array([1.0, 2.0, 4.0], np.float32)])
