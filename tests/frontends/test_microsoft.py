"""Operators of com.microsoft, which ONNX Runtime's optimiser, quantiser and exporters write, against ONNX Runtime."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import intaglio
from intaglio.errors import ModelError
from intaglio.frontends.onnx import load
from intaglio.ir.graph import Array
from intaglio.ops.evaluate import evaluate_graph
from support.microsoft_cases import Case, expected, floats, whole
from support.onnx_models import saved


def half(size: int, rows: int = 32) -> tuple[Array, Array]:
    angle = np.outer(np.arange(rows), 1 / 100 ** (np.arange(size) / size))
    return np.cos(angle).astype(np.float32), np.sin(angle).astype(np.float32)


X = floats(2, 5, 24)
COS, SIN = half(3)
MASK = np.array([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]], np.int32)
PACKED = whole(0, 256, 6, 3, 8, dtype=np.uint8)  # 6 columns, 3 blocks of 16 numbers
SCALES = floats(6 * 3, scale=0.1)
BYTES = whole(0, 256, 2, 5, 24, dtype=np.uint8)
CASES: dict[str, Case] = {
    "MatMulNBits": Case("MatMulNBits", (floats(2, 5, 44),), (PACKED, SCALES), {"K": 44, "N": 6, "bits": 4, "block_size": 16}),
    "MatMulNBits with zero points": Case(
        "MatMulNBits", (floats(5, 48),), (PACKED, SCALES, whole(0, 256, 12, dtype=np.uint8)),
        {"K": 48, "N": 6, "bits": 4, "block_size": 16}),
    "MatMulNBits of bytes with a bias": Case(
        "MatMulNBits", (floats(5, 32),), (whole(0, 256, 6, 2, 16, dtype=np.uint8), floats(12, scale=0.1), None, None, floats(6)),
        {"K": 32, "N": 6, "bits": 8, "block_size": 16}),
    "MultiHeadAttention": Case("MultiHeadAttention", (X, floats(2, 7, 24), floats(2, 7, 24)), (), {"num_heads": 4}),
    "MultiHeadAttention with everything": Case(
        "MultiHeadAttention", (X, floats(2, 5, 24), floats(2, 5, 24), floats(72), None, floats(1, 4, 5, 8), floats(2,
        4, 3, 6), floats(2, 4, 3, 6)),
        (), {"num_heads": 4, "scale": 0.3}, 3),
    "MultiHeadAttention with a mask of keys": Case("MultiHeadAttention", (X, X, X, None, MASK), (), {"num_heads": 4}),
    "MultiHeadAttention with lengths": Case(
        "MultiHeadAttention", (X, X, X, None, np.array([3, 5], np.int32)), (), {"num_heads": 4}),
    "MultiHeadAttention, causal": Case("MultiHeadAttention", (X, X, X), (), {"num_heads": 4, "unidirectional": 1}),
    "Attention": Case("Attention", (X,), (floats(24, 72, scale=0.2), floats(72)), {"num_heads": 4}),
    "Attention with a mask": Case("Attention", (X,), (floats(24, 72, scale=0.2), floats(72), MASK), {"num_heads": 4}),
    "Attention, causal, with a past": Case(
        "Attention", (X,), (floats(24, 72, scale=0.2), floats(72), None, floats(2, 2, 4, 3, 6)), {"num_heads": 4,
        "unidirectional": 1}, 2),
    "Attention with a bias of scores": Case(
        "Attention", (X,), (floats(24, 72, scale=0.2), floats(72), None, None, floats(2, 4, 5, 5)), {"num_heads": 4}),
    "QAttention": Case(
        "QAttention", (BYTES,),
        (whole(-128, 128, 24, 72, dtype=np.int8), floats(72), np.float32(0.02), np.float32(0.01), MASK, np.uint8(120), np.int8(3)),
        {"num_heads": 4}),
    "RotaryEmbedding": Case("RotaryEmbedding", (floats(2, 4, 5, 6), whole(0, 20, 2, 5, dtype=np.int64), COS, SIN)),
    "RotaryEmbedding, in turn": Case("RotaryEmbedding", (floats(2, 5, 24), np.array([3]), COS, SIN), (), {"interleaved": 1}),
    "RotaryEmbedding of a part": Case(
        "RotaryEmbedding", (floats(2, 4, 5, 16), whole(0, 20, 2, 5, dtype=np.int64), *half(4)), (),
        {"rotary_embedding_dim": 8, "num_heads": 4}),
    "GroupQueryAttention": Case(
        "GroupQueryAttention", (floats(2, 5, 64), floats(2, 5, 32), floats(2, 5, 32), None, None),
        (np.array([3, 4], np.int32), np.array(5, np.int32)), {"num_heads": 4, "kv_num_heads": 2}),
    "GroupQueryAttention with a past": Case(
        "GroupQueryAttention", (floats(2, 1, 64), floats(2, 1, 32), floats(2, 1, 32), floats(2, 2, 6, 16), floats(2, 2, 6, 16)),
        (np.array([6, 6], np.int32), np.array(7, np.int32), *half(8)),
        {"num_heads": 4, "kv_num_heads": 2, "do_rotary": 1, "local_window_size": 4, "softcap": 5.0}, 3),
    "GroupQueryAttention, packed": Case(
        "GroupQueryAttention", (floats(2, 5, 128), None, None, None, None),
        (np.array([4, 4], np.int32), np.array(5, np.int32), *half(8)),
        {"num_heads": 4, "kv_num_heads": 2, "do_rotary": 1, "rotary_interleaved": 1}, 3),
    "SkipLayerNormalization": Case("SkipLayerNormalization", (X, floats(2, 5, 24)), (floats(24), floats(24), floats(24))),
    "SkipSimplifiedLayerNormalization": Case("SkipSimplifiedLayerNormalization", (X, floats(2, 5, 24)), (floats(24), floats(24))),
    "EmbedLayerNormalization": Case(
        "EmbedLayerNormalization", (whole(0, 9, 2, 5), whole(0, 2, 2, 5)),
        (floats(9, 8), floats(6, 8), floats(2, 8), floats(8), floats(8), None), {}, 2),
    "QEmbedLayerNormalization": Case(
        "QEmbedLayerNormalization", (whole(0, 9, 2, 5), whole(0, 2, 2, 5)),
        (*(whole(0, 256, *s, dtype=np.uint8) for s in ((9, 8), (6, 8), (2, 8), (8,), (8,))), None,
         *(np.float32(s) for s in (0.02, 0.03, 0.01, 0.02, 0.01)), *(np.uint8(z) for z in (128, 120, 100, 90, 130))), {}, 2),
    "BiasGelu": Case("BiasGelu", (X,), (floats(24),)), "FastGelu": Case("FastGelu", (X,), (floats(24),)),
    "QuickGelu": Case("QuickGelu", (X,), (), {"alpha": 1.5}), "Gelu": Case("Gelu", (X,)),
    "FusedConv": Case("FusedConv", (floats(1, 3, 6, 6),), (floats(4, 3, 3, 3), floats(4)), {"activation": "Relu"}),
    "FusedMatMul": Case("FusedMatMul", (floats(2, 4, 5), floats(2, 4, 6)), (), {"transA": 1, "alpha": 0.5}),
    "FusedMatMul of batches": Case("FusedMatMul", (floats(4, 2, 5), floats(2, 5, 6)), (), {"transBatchA": 1}),
    "FusedGemm": Case("FusedGemm", (floats(3, 4),), (floats(4, 5), floats(5)), {"activation": "Tanh"}),
    "NhwcMaxPool": Case(
        "NhwcMaxPool", (whole(0, 256, 1, 6, 6, 3, dtype=np.uint8),), (), {"kernel_shape": [2, 2], "strides": [2, 2]}),
    "QLinearConv with channels last": Case(
        "QLinearConv", (whole(0, 256, 1, 5, 5, 4, dtype=np.uint8),),
        (np.float32(0.02), np.uint8(120), whole(-100, 100, 6, 4, 3, 3, dtype=np.int8), np.float32(0.01), np.int8(0),
        np.float32(0.05),
         np.uint8(128), whole(-999, 999, 6)), {"channels_last": 1, "pads": [1, 1, 1, 1]}),
    "DequantizeLinear of 16 bits": Case(
        "DequantizeLinear", (whole(0, 65536, 3, 4, dtype=np.uint16),), (np.float32(0.01), np.uint16(30000))),
    "QuantizeLinear to 16 bits": Case("QuantizeLinear", (floats(3, 4),), (np.float32(0.001), np.int16(50))),
    "GridSample": Case("GridSample", (floats(1, 2, 4, 4), floats(1, 3, 3, 2, scale=0.5))),
    "Trilu": Case(
        "Trilu", (floats(4, 4),), (), {"upper": 0}), "ExpandDims": Case("ExpandDims", (floats(4, 3),), (np.array(1, np.int32),)),
    "CDist": Case("CDist", (floats(4, 3), floats(5, 3)), (), {"metric": "euclidean"}),
    "GatherND": Case("GatherND", (floats(4, 3), whole(0, 3, 5, 1, dtype=np.int64))),
    "GatherBlockQuantized": Case(
        "GatherBlockQuantized", (), (whole(0, 256, 5, 32, dtype=np.uint8), np.array([3, 0, 4]), floats(5, 2, scale=0.1)),
        {"bits": 8, "block_size": 16, "quantize_axis": 1, "gather_axis": 0}),
    "MatMulNBits in an order": Case(
        "MatMulNBits", (floats(5, 48),), (PACKED, SCALES, None, whole(0, 3, 48)), {"K": 48, "N": 6, "bits": 4, "block_size": 16}),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_it_computes_what_onnx_runtime_does(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    graph, _ = load(saved(case.model(), tmp_path))
    values = evaluate_graph(graph, dict(zip([v.name for v in graph.inputs], case.feeds().values(), strict=True)))
    for value, want in zip(graph.outputs, expected(case), strict=True):
        got = values[value.name]
        assert got.shape == want.shape
        if want.dtype.kind == "f":
            loose = name.startswith("GroupQueryAttention") and not name.endswith("past") and "packed" not in name
            rows = slice(None) if not loose else np.s_[:, :4]  # behind the end of a sequence there is nothing to compare
            np.testing.assert_allclose(got[rows], want[rows], rtol=2e-4, atol=2e-4)
        else:
            assert np.array_equal(got, want)


@pytest.mark.parametrize("name", [pytest.param("GroupQueryAttention with a past", marks=pytest.mark.slow), "MatMulNBits"])
def test_it_is_compiled_as_well(name: str, tmp_path: Path) -> None:
    package = intaglio.compile(saved(CASES[name].model(), tmp_path), output=tmp_path / "p")
    assert package.validate().ok


REFUSED: dict[str, tuple[Case, str]] = {
    "an order of columns": (
        Case("MatMulNBits", (floats(5, 48),), (PACKED, SCALES, None, whole(3, 5, 48)), {"K": 48, "N": 6, "bits": 4,
        "block_size": 16}),
        "an order that does not name 3 blocks"),
    "an order and zero points": (
        Case("MatMulNBits", (floats(5, 48),), (PACKED, SCALES, whole(0, 256, 12, dtype=np.uint8), whole(0, 3, 48)),
             {"K": 48, "N": 6, "bits": 4, "block_size": 16}),
        "ONNX Runtime ignores the zero points"),
    "weights that are data": (Case(
        "MatMulNBits", (floats(5, 48), PACKED), (SCALES,), {"K": 48, "N": 6, "block_size": 16}), "depend on data"),
    "packed batches": (
        Case("RotaryEmbedding", (floats(2, 4, 5, 6), whole(0, 20, 2, 5, dtype=np.int64), COS, SIN), (), {"is_packed_batching": 1}),
        "packed batches"),
    "heads that do not fit": (Case("MultiHeadAttention", (X, X, X), (), {"num_heads": 5}), "5 heads over 24"),
    "a metric": (Case("CDist", (floats(4, 3), floats(5, 3)), (), {"metric": "cosine"}), "the metric `cosine`"),
    "a smooth softmax": (
        Case("GroupQueryAttention", (floats(1, 5, 64), floats(1, 5, 32), floats(1, 5, 32), None, None),
             (np.array([4], np.int32), np.array(5, np.int32)), {"num_heads": 4, "kv_num_heads": 2, "smooth_softmax": 1}),
        "a smooth softmax"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_supported_is_told(name: str, tmp_path: Path) -> None:
    case, reason = REFUSED[name]
    with pytest.raises(ModelError, match=reason):
        load(saved(case.model(), tmp_path))
