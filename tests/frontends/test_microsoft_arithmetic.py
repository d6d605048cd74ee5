"""Other operators of com.microsoft: against ONNX Runtime, or their documentation where it has no kernel for CPUs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import helper, numpy_helper

import intaglio
from intaglio.frontends.onnx import load
from intaglio.ops.evaluate import evaluate_graph
from support.microsoft_cases import OPSETS, Case, agree, computed, expected, floats, is_refused, whole
from support.onnx_models import saved, value

X = floats(2, 5, 24)
SAID = np.array([[1, 2, 3, 1, 2], [4, 4, 4, 4, 4]], np.int64)
FOUR_BITS = whole(0, 256, 24 * 20 // 2, dtype=np.uint8)
SIZES = {"K": 24, "N": 20, "block_size": 16}
CASES: dict[str, Case] = {
    "ConvTransposeWithDynamicPads": Case(
        "ConvTransposeWithDynamicPads", (floats(1, 2, 5, 5),), (floats(2, 3, 3, 3), np.array([1, 0, 1, 2]), floats(3)),
        {"strides": [2, 2], "kernel_shape": [3, 3]}),
    "UnfoldTensor": Case("UnfoldTensor", (X,), (), {"dim": 1, "size": 2, "step": 2}),
    "UnfoldTensor of the last axis": Case("UnfoldTensor", (whole(0, 9, 3, 7),), (), {"size": 3}),
    "SampleOp": Case("SampleOp", (X,)),
    "Inverse": Case("Inverse", (floats(3, 2, 6, 6),)),
    "Inverse of one number": Case("Inverse", (floats(4, 1, 1),)),
    "Inverse of a permutation": Case("Inverse", (np.eye(5, dtype=np.float32)[[2, 0, 4, 1, 3]],)),
    "NGramRepeatBlock": Case("NGramRepeatBlock", (SAID, floats(2, 6)), (), {"ngram_size": 3}),
    "NGramRepeatBlock of words": Case("NGramRepeatBlock", (SAID, floats(2, 6)), (), {"ngram_size": 1}),
    "NGramRepeatBlock of too few": Case("NGramRepeatBlock", (SAID, floats(2, 6)), (), {"ngram_size": 7}),
    "MurmurHash3": Case("MurmurHash3", (whole(-(2**31), 2**31, 50),), (), {"positive": 0}),
    "MurmurHash3 with a seed": Case("MurmurHash3", (floats(3, 4),), (), {"seed": 123456789}),
    "MurmurHash3 of 64 bits": Case("MurmurHash3", (whole(-(2**62), 2**62, 50, dtype=np.int64),), (), {"seed": 7}),
    "MurmurHash3 of doubles": Case("MurmurHash3", (floats(20).astype(np.float64),), (), {"positive": 0}),
    "MaxpoolWithMask": Case(
        "MaxpoolWithMask", (floats(2, 3, 7, 8), whole(0, 4, 1, 1, 7, 8)), (),
        {"kernel_shape": [3, 3], "strides": [2, 1], "pads": [1, 0, 1, 2]}),
    "MaxpoolWithMask of rows": Case("MaxpoolWithMask", (floats(2, 3, 9), whole(0, 2, 1, 1, 9)), (), {"kernel_shape": [3]}),
    "MatMulInteger16": Case(
        "MatMulInteger16", (whole(-(2**15), 2**15, 3, 4, dtype=np.int16), whole(-99, 99, 4, 2, dtype=np.int16))),
    "MatMulBnb4 of NF4": Case("MatMulBnb4", (X,), (FOUR_BITS, floats(30)), {**SIZES, "quant_type": 1}),
    "MatMulBnb4 of FP4": Case("MatMulBnb4", (X,), (FOUR_BITS, floats(30)), {**SIZES, "quant_type": 0}),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_it_computes_what_onnx_runtime_does(name: str, tmp_path: Path) -> None:
    agree(computed(CASES[name], tmp_path), expected(CASES[name]))


@pytest.mark.parametrize("name", ["Inverse", "MurmurHash3 of 64 bits", "NGramRepeatBlock"])
def test_it_is_compiled_as_well(name: str, tmp_path: Path) -> None:
    package = intaglio.compile(saved(CASES[name].model(), tmp_path), output=tmp_path / "p")
    assert package.validate(inputs=CASES[name].feeds()).ok


# Without a kernel for CPUs --------------------------------------------------------------------------------------------------


A, B = floats(3, 4, 2), floats(4, 2)
BIAS, WEIGHTS = floats(6), floats(24, 6, scale=0.2)


def as_complex(x: Any) -> Any:
    return x[..., 0] + 1j * x[..., 1]


def as_pairs(x: Any) -> Any:
    return np.stack([x.real, x.imag], -1).astype(np.float32)


def fast_gelu(x: Any) -> Any:
    return (x / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))).astype(np.float32)


def last_is(number: float) -> Any:
    x = floats(2, 3)
    x[1, 2] = number
    return x


BY_FORMULA: dict[str, tuple[Case, Callable[[], Any]]] = {
    "ComplexMul": (Case("ComplexMul", (A, B)), lambda: as_pairs(as_complex(A) * as_complex(B))),
    "ComplexMulConj": (Case("ComplexMulConj", (A, B)), lambda: as_pairs(as_complex(A) * as_complex(B).conj())),
    "Rfft": (Case("Rfft", (X,)), lambda: as_pairs(np.fft.rfft(X))),
    "Irfft": (Case("Irfft", (as_pairs(np.fft.rfft(X)),), (), {"signal_ndim": 1}), lambda: X),
    "TorchEmbedding": (Case("TorchEmbedding", (A, np.array([[2, 0]]))), lambda: A[[[2, 0]]]),
    "GemmFastGelu": (Case("GemmFastGelu", (X,), (WEIGHTS, BIAS)), lambda: fast_gelu(X @ WEIGHTS + BIAS)),
    "IsAllFinite": (Case("IsAllFinite", (X, A)), lambda: np.asarray(True)),
    "IsAllFinite with NaN": (Case("IsAllFinite", (X, last_is(np.nan))), lambda: np.asarray(False)),
    "IsAllFinite with NaN, asked for inf": (
        Case("IsAllFinite", (last_is(np.nan),), (), {"isinf_only": 1}), lambda: np.asarray(True)),
    "IsAllFinite with inf, asked for NaN": (
        Case("IsAllFinite", (last_is(-np.inf),), (), {"isnan_only": 1}), lambda: np.asarray(True)),
}  # fmt: skip


@pytest.mark.parametrize("name", BY_FORMULA)
def test_it_computes_what_its_documentation_says(name: str, tmp_path: Path) -> None:
    case, formula = BY_FORMULA[name]
    agree(computed(case, tmp_path), [formula()])


def test_a_sparse_matrix_is_multiplied_as_a_dense_one(tmp_path: Path) -> None:
    dense = np.zeros((3, 4), np.float32)
    dense[0, 1], dense[2, 3] = 2.0, -1.5
    values, places = np.array([2.0, -1.5], np.float32), np.array([1, 11])
    sparse = helper.make_sparse_tensor(
        numpy_helper.from_array(values, "a"), numpy_helper.from_array(places, "a_places"), dense.shape)
    one = helper.make_node("SparseToDenseMatMul", ["a", "x"], ["y"], domain="com.microsoft", transA=1, alpha=0.5)
    graph = helper.make_graph([one], "g", [value("x", [3, 5])], [value("y", None)], sparse_initializer=[sparse])
    loaded, _ = load(saved(helper.make_model(graph, opset_imports=OPSETS), tmp_path))
    x = floats(3, 5)
    np.testing.assert_allclose(evaluate_graph(loaded, {"x": x})[loaded.outputs[0].name], dense.T @ x / 2, rtol=1e-6)


REFUSED: dict[str, tuple[Case, str]] = {
    "pads that are data": (Case("ConvTransposeWithDynamicPads", (X, floats(5, 3, 3), np.array([1, 0]))), "depend on data"),
    "slices that are too long": (Case("UnfoldTensor", (X,), (), {"size": 25}), "24 numbers into 25"),
    "several masks": (Case("MaxpoolWithMask", (X, whole(0, 2, 2, 5, 24)), (), {"kernel_shape": [3]}), "with a mask of"),
    "no square": (Case("Inverse", (X,)), r"`Inverse` of \[2, 5, 24\]"),
    "groups of no words": (Case("NGramRepeatBlock", (SAID, floats(2, 6)), (), {"ngram_size": 0}), "in groups of 0"),
    "a hash of bytes": (Case("MurmurHash3", (whole(0, 9, 3, dtype=np.uint8),)), "`MurmurHash3` of u8"),
    "weights that do not fit": (Case("MatMulBnb4", (X,), (FOUR_BITS, floats(29)), SIZES), "240 bytes and 29 scales"),
    "no complex numbers": (Case("ComplexMul", (X, B)), "a real and an imaginary part"),
    "a transform over two axes": (Case("Rfft", (X,), (), {"signal_ndim": 2}), "over several axes"),
    "all of nothing": (Case("IsAllFinite", (X,), (), {"isnan_only": 1, "isinf_only": 1}), "of nothing"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_supported_is_told(name: str, tmp_path: Path) -> None:
    is_refused(*REFUSED[name], tmp_path)
