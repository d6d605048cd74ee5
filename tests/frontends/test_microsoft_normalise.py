"""Normalisations and gates of com.microsoft: against ONNX Runtime, or their documentation where it has no kernel for CPUs."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from intaglio.ir.graph import Array
from support.microsoft_cases import Case, agree, computed, expected, floats, is_refused, whole

X = floats(2, 5, 24)
STREAMS = floats(2, 5, 3, 8)
CASES: dict[str, Case] = {
    "GatedRMSNorm": Case("GatedRMSNorm", (X, floats(8), floats(2, 5, 24))),
    "GatedRMSNorm with another gate": Case("GatedRMSNorm", (X, floats(24), X), (), {"activation": "sigmoid", "epsilon": 0.1}),
    "ScaledSiLU": Case("ScaledSiLU", (X,), (), {"alpha": 1.5}),
    "ScaledSiLU by a number that is data": Case("ScaledSiLU", (X, floats())),
    "GatedAdd": Case("GatedAdd", (X, floats(2, 5, 24), floats(2, 5, 1))),
    "LinearAttentionGate": Case("LinearAttentionGate", (X, floats(24), floats(24), floats(2, 5, 24)), (), {}, 2),
    "LinearAttentionGate alone": Case("LinearAttentionGate", (X, floats(24), floats(24))),
    "EngramGate": Case(
        "EngramGate", (STREAMS, floats(2, 5, 3, 8), floats(2, 5, 8), floats(3, 8), floats(3, 8), floats(3, 8)), (), {}, 2),
    "EngramGate alone": Case("EngramGate", (STREAMS, floats(2, 5, 3, 8), floats(2, 5, 8)), (floats(3, 8), floats(3, 8))),
    "BranchwiseRMSNorm": Case("BranchwiseRMSNorm", (STREAMS, floats(24))),
    "BranchwiseRMSNorm of rows": Case("BranchwiseRMSNorm", (X, floats(8)), (), {"num_branches": 3}),
    "BranchwiseRMSNorm without scales": Case("BranchwiseRMSNorm", (STREAMS,), (), {"epsilon": 0.01}),
    "HyperConnectionPreMix": Case("HyperConnectionPreMix", (STREAMS, floats(2, 5, 3)), (), {"reduction_scale": 0.5}),
    "HyperConnectionPreMix of rows": Case("HyperConnectionPreMix", (X, floats(2, 5, 24)), (), {"num_branches": 3}),
    "HyperConnectionPostMix": Case(
        "HyperConnectionPostMix", (STREAMS, floats(2, 5, 8), floats(2, 5, 3), floats(2, 5, 3, 3))),
    "HyperConnectionPostMix of rows": Case(
        "HyperConnectionPostMix", (X, floats(2, 5, 8), floats(2, 5, 3, 8)), (), {"num_branches": 3}),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_it_computes_what_onnx_runtime_does(name: str, tmp_path: Path) -> None:
    agree(computed(CASES[name], tmp_path), expected(CASES[name]))


# Without a kernel for CPUs --------------------------------------------------------------------------------------------------


def grouped(x: Array, gamma: Array, beta: Array, groups: int) -> Array:
    """Of pictures with their channels last."""
    n, h, w, c = x.shape
    parts = x.reshape(n, h * w, groups, c // groups).astype(np.float64)
    centred = parts - parts.mean((1, 3), keepdims=True)
    return np.asarray((centred / np.sqrt(centred.var((1, 3), keepdims=True) + 1e-5)).reshape(x.shape) * gamma + beta)


def silu(x: Array) -> Array:
    return np.asarray(x / (1 + np.exp(-x)))


def gelu(x: Array) -> Array:
    return np.asarray([v * (1 + math.erf(v / math.sqrt(2))) / 2 for v in x.ravel().tolist()]).reshape(x.shape)


def softmax(x: Array) -> Array:
    e = np.exp(x - x.max(-1, keepdims=True))
    return np.asarray(e / e.sum(-1, keepdims=True))


PICTURE, BY_CHANNEL = floats(2, 3, 4, 6), (floats(6), floats(6))
SKIP, BIAS = floats(2, 6), floats(6)
SCORES, BESIDE = floats(2, 3, 4, 5), floats(2, 1, 1, 5)
BYTES = whole(0, 256, 2, 5, 24, dtype=np.uint8)
BY_FORMULA: dict[str, tuple[Case, Callable[[], list[Any]]]] = {
    "GroupNorm": (
        Case("GroupNorm", (PICTURE,), BY_CHANNEL, {"groups": 3, "activation": 1}),
        lambda: [silu(grouped(PICTURE, *BY_CHANNEL, 3))]),
    "GroupNorm, channels first": (
        Case("GroupNorm", (PICTURE.transpose(0, 3, 1, 2),), BY_CHANNEL, {"groups": 2, "activation": 0, "channels_last": 0}),
        lambda: [grouped(PICTURE, *BY_CHANNEL, 2).transpose(0, 3, 1, 2)]),
    "SkipGroupNorm": (
        Case("SkipGroupNorm", (PICTURE, *BY_CHANNEL, SKIP, BIAS), (), {"groups": 2, "activation": 0}, 2),
        lambda: [grouped(PICTURE + SKIP[:, None, None] + BIAS, *BY_CHANNEL, 2), PICTURE + SKIP[:, None, None] + BIAS]),
    "BiasAdd": (Case("BiasAdd", (X, X[0, 0], X)), lambda: [2 * X + X[0, 0]]),
    "BiasSplitGelu": (
        Case("BiasSplitGelu", (X, X[0, 0])), lambda: [(X + X[0, 0])[..., :12] * gelu((X + X[0, 0])[..., 12:])]),
    "BiasSoftmax": (
        Case("BiasSoftmax", (SCORES, BESIDE), (), {"axis": 3, "is_inner_broadcast": 1}), lambda: [softmax(SCORES + BESIDE)]),
    "BiasSoftmax over two axes": (
        Case("BiasSoftmax", (SCORES, BESIDE), (), {"axis": 2, "is_inner_broadcast": 1}),
        lambda: [softmax((SCORES + BESIDE).reshape(2, 3, 20)).reshape(SCORES.shape)]),
    "BiasDropout": (
        Case("BiasDropout", (X, X[0, 0], X), (), {}, 2), lambda: [2 * X + X[0, 0], np.ones(X.shape, bool)]),
    "BitmaskBiasDropout": (Case("BitmaskBiasDropout", (X, X[0, 0])), lambda: [X + X[0, 0]]),
    "BitmaskDropout": (Case("BitmaskDropout", (X,), (np.float32(0.3), np.asarray(False))), lambda: [X]),
    "QLinearReduceMean": (
        Case("QLinearReduceMean", (BYTES,), (np.float32(0.5), np.uint8(7), np.float32(0.25), np.uint8(3)),
             {"axes": [1], "keepdims": 1}),
        lambda: [np.clip(np.rint((BYTES.astype(np.float32) - 7).mean(1, keepdims=True) * 2) + 3, 0, 255).astype(np.uint8)]),
    "MulInteger": (
        Case("MulInteger", (BYTES,), (np.uint8(9), BYTES[:, :1], np.uint8(200))),
        lambda: [(BYTES.astype(np.int32) - 9) * (BYTES[:, :1].astype(np.int32) - 200)]),
    "ReduceSumInteger": (
        Case("ReduceSumInteger", (BYTES,), (), {"axes": [0, -1], "keepdims": 0}), lambda: [BYTES.sum((0, 2), dtype=np.int32)]),
}  # fmt: skip


@pytest.mark.parametrize("name", BY_FORMULA)
def test_it_computes_what_its_documentation_says(name: str, tmp_path: Path) -> None:
    case, formula = BY_FORMULA[name]
    agree(computed(case, tmp_path), [a.astype(np.float32) if a.dtype == np.float64 else a for a in formula()])


REFUSED: dict[str, tuple[Case, str]] = {
    "groups": (Case("GroupNorm", (PICTURE,), BY_CHANNEL, {"groups": 4, "activation": 0}), "in 4 groups is not valid"),
    "halves": (Case("BiasSplitGelu", (floats(1, 2, 3), floats(3))), "has no two halves"),
    "a gate": (Case("GatedRMSNorm", (X, floats(8), X), (), {"activation": "tanh"}), "the gate `tanh`"),
    "streams": (Case("BranchwiseRMSNorm", (X,), (), {"num_branches": 5}), "in 5 streams"),
    "gates": (Case("HyperConnectionPreMix", (STREAMS, floats(7))), r"with gates of \[7\]"),
    "a mask of bits": (Case("BitmaskDropout", (X,), (), {}, 2), "the result `y1` of `BitmaskDropout` is not supported"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_supported_is_told(name: str, tmp_path: Path) -> None:
    is_refused(*REFUSED[name], tmp_path)
