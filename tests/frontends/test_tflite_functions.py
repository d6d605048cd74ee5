"""Elementwise operators and reductions of TFLite, one at a time, against LiteRT's reference kernels."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from intaglio.frontends.tflite.unread import unread
from support.tflite_models import KINDS, ZERO, Tensor, assert_like_litert, numbers, one_operator, tensor

pytest.importorskip("ai_edge_litert", reason="LiteRT is not installed")
S = (1, 4, 6, 8)
INTEGERS = pytest.mark.parametrize("dtype", ["int8", "uint8", "int16"])
ALL = pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "float32"])


@pytest.mark.parametrize("op", ["ABS", "NEG", "EXP", "LOG", "SQRT", "RSQRT", "GELU"])
@pytest.mark.parametrize("dtype", ["int8", "int16"])
def test_functions_of_one_integer(op: str, dtype: str, tmp_path: Path) -> None:
    positive = op in ("LOG", "SQRT", "RSQRT")
    x = numbers((1, 256), dtype)
    x = np.maximum(np.abs(x.astype(np.int32)), 1).astype(np.int16) if positive and dtype == "int16" else x
    options = "GeluOptions" if op == "GELU" else ""
    ins, out = tensor((1, 256), dtype, 0.05, -128 if positive else None), tensor((1, 256), dtype, 0.1 if op == "EXP" else 0.04)
    assert_like_litert(one_operator(op, [ins], out, options, version=1), tmp_path, [x])


@pytest.mark.parametrize("op", ["LOGISTIC", "TANH"])
@pytest.mark.parametrize("step", [1 / 4096, 1 / 2048, 0.0007, 0.00011])
def test_squashing_of_16_bits(op: str, step: float, tmp_path: Path) -> None:
    every = np.arange(-32768, 32768).astype(np.int16).reshape(1, -1)
    shape = (1, 65536)
    data = one_operator(op, [Tensor(shape, "int16", step)], Tensor(shape, "int16", 1 / 32768), version=3)
    assert_like_litert(data, tmp_path, [every])


@pytest.mark.parametrize(("op", "out"), [("LOGISTIC", (1 / 256, -128)), ("TANH", (1 / 128, 0))])
@pytest.mark.parametrize("dtype", ["int8", "uint8"])
@pytest.mark.parametrize("step", [1 / 256, 1 / 128, 0.01, 0.3, 20.0])
def test_squashing_of_8_bits(op: str, out: tuple[float, int], dtype: str, step: float, tmp_path: Path) -> None:
    """With steps that are powers of two, results are nearly half-way between two integers."""
    low = -128 if dtype == "int8" else 0
    every = np.arange(low, low + 256).astype(dtype).reshape(1, -1)
    made = Tensor((1, 256), dtype, out[0], out[1] + 128 + low)
    data = one_operator(op, [Tensor((1, 256), dtype, step, low + 100)], made)
    assert_like_litert(data, tmp_path, [every])


@pytest.mark.parametrize("beta", [1.0, 0.7])
@ALL
def test_softmax(dtype: str, beta: float, tmp_path: Path) -> None:
    step = 100 / 32768 if dtype == "int16" else 1 / 256
    out = tensor((3, 10), dtype, step, {"int8": -128, "uint8": 0}.get(dtype))
    data = one_operator("SOFTMAX", [tensor((3, 10), dtype)], out, "SoftmaxOptions", {"beta": beta})
    assert_like_litert(data, tmp_path, [numbers((3, 10), dtype)])


@pytest.mark.parametrize("dtype", ["int8", "uint8", "float32"])
@pytest.mark.parametrize("step", [0.05, 0.003, 0.3])
def test_log_softmax_and_norms(dtype: str, step: float, tmp_path: Path) -> None:
    x = tensor((4, 9), dtype, step)
    log = tensor((4, 9), dtype, 16 / 256, {"int8": 127, "uint8": 255}.get(dtype))
    assert_like_litert(one_operator("LOG_SOFTMAX", [x], log, "LogSoftmaxOptions"), tmp_path, [numbers((4, 9), dtype)])
    unit = tensor((4, 9), dtype, 1 / 128, {"int8": 0, "uint8": 128}.get(dtype))
    assert_like_litert(one_operator("L2_NORMALIZATION", [x], unit, "L2NormOptions"), tmp_path, [numbers((4, 9), dtype)])


@pytest.mark.parametrize("op", ["EQUAL", "NOT_EQUAL", "LESS", "LESS_EQUAL", "GREATER", "GREATER_EQUAL", "MAXIMUM", "MINIMUM"])
@pytest.mark.parametrize("other", [0.05, 0.03])
@INTEGERS
def test_comparisons_of_two_quantisations(op: str, other: float, dtype: str, tmp_path: Path) -> None:
    extreme = op in ("MAXIMUM", "MINIMUM")
    out = tensor(S, dtype) if extreme else Tensor(S, "bool")
    options = "MaximumMinimumOptions" if extreme else "".join(p.capitalize() for p in op.split("_")) + "Options"
    data = one_operator(op, [tensor(S, dtype), tensor((8,), dtype, other)], out, options)
    assert_like_litert(data, tmp_path, [numbers(S, dtype), numbers((8,), dtype, 1)])


@INTEGERS
@pytest.mark.parametrize("act", [0, 1, 3])
def test_division(dtype: str, act: int, tmp_path: Path) -> None:
    near = np.random.default_rng(2).integers(1, 20, 8).astype(np.int64) + ZERO[dtype]
    ins = [tensor(S, dtype), tensor((8,), dtype, 0.03)]
    data = one_operator("DIV", ins, tensor(S, dtype, 0.2), "DivOptions", {"fusedActivationFunction": act})
    assert_like_litert(data, tmp_path, [numbers(S, dtype), near.astype(dtype)])


def test_squared_difference(tmp_path: Path) -> None:
    ins = [tensor(S, "int8"), tensor((8,), "int8", 0.03, 9)]
    data = one_operator("SQUARED_DIFFERENCE", ins, tensor(S, "int8", 0.4), "SquaredDifferenceOptions")
    assert_like_litert(data, tmp_path, [numbers(S, "int8"), numbers((8,), "int8", 1)])


@pytest.mark.parametrize("dtype", ["int8", "int16", "int32", "float32"])
@pytest.mark.parametrize("op", ["FLOOR_DIV", "FLOOR_MOD"])
def test_floor_division(op: str, dtype: str, tmp_path: Path) -> None:
    divisor = numbers((8,), dtype, 1)
    divisor = np.where(divisor == 0, 3, divisor).astype(dtype)
    options = "FloorDivOptions" if op == "FLOOR_DIV" else "FloorModOptions"
    data = one_operator(op, [Tensor(S, dtype), Tensor((8,), dtype)], Tensor(S, dtype), options)
    assert_like_litert(data, tmp_path, [numbers(S, dtype), divisor])


FLOATS = {
    "RELU_0_TO_1": 1, "RELU_N1_TO_1": 1, "FLOOR": 1, "SIN": 1, "COS": 1, "SQUARE": 1, "HARD_SWISH": 1, "SIGN": 1, "ATAN2": 2,
    "POW": 2, "SQUARED_DIFFERENCE": 2,
}  # fmt: skip


@pytest.mark.parametrize("op", FLOATS)
def test_functions_of_floats(op: str, tmp_path: Path) -> None:
    x = [np.abs(numbers(S, "float32", n)) if op == "POW" else numbers(S, "float32", n) for n in range(FLOATS[op])]
    data = one_operator(op, [Tensor(S, "float32")] * FLOATS[op], Tensor(S, "float32"), version=1)
    assert_like_litert(data, tmp_path, x)


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
@pytest.mark.parametrize("op", ["RELU_0_TO_1", "RELU_N1_TO_1"])
def test_clamps_of_integers(op: str, dtype: str, tmp_path: Path) -> None:
    assert_like_litert(one_operator(op, [tensor(S, dtype)], tensor(S, dtype, 0.01), version=1), tmp_path, [numbers(S, dtype)])


@pytest.mark.parametrize("source", ["float32", "int8", "uint8", "int16", "int32", "int64", "bool"])
@pytest.mark.parametrize("to", ["float32", "int8", "uint8", "int16", "int32", "int64", "bool"])
def test_casts(source: str, to: str, tmp_path: Path) -> None:
    x = numbers((40,), source)
    x = np.abs(x) % 100 if source not in ("bool", "float32") else np.abs(x) if to.startswith("u") and source != "bool" else x
    options: dict[str, object] = {"inDataType": KINDS[source], "outDataType": KINDS[to]}
    data = one_operator("CAST", [Tensor((40,), source)], Tensor((40,), to), "CastOptions", options, 1)
    assert_like_litert(data, tmp_path, [x.astype(source)])


@pytest.mark.parametrize("axes", [(1, 2), (3,), (-1,)])
@pytest.mark.parametrize("op", ["MEAN", "REDUCE_MAX", "REDUCE_MIN", "SUM"])
@ALL
def test_reductions(op: str, dtype: str, axes: tuple[int, ...], tmp_path: Path) -> None:
    left = tuple(d for n, d in enumerate(S) if n not in [a % 4 for a in axes])
    where = Tensor((len(axes),), "int32", data=np.array(axes, np.int32))
    unset = op == "SUM" and dtype in ("int8", "int16")  # by LiteRT's reference kernel, so `validate` does not ask it
    sums = tensor(left, dtype, 0.13) if unset else tensor(left, dtype)
    data = one_operator(op, [tensor(S, dtype), where], sums, "ReducerOptions", {"keepDims": False})
    kernels = "BUILTIN_WITHOUT_DEFAULT_DELEGATES" if unset else "BUILTIN_REF"
    assert_like_litert(data, tmp_path, [numbers(S, dtype)], kernels=kernels)
    assert (unread(tmp_path / "one.tflite") is not None) == unset


@pytest.mark.parametrize("op", ["REDUCE_ANY", "REDUCE_ALL"])
def test_reductions_of_truth(op: str, tmp_path: Path) -> None:
    where = Tensor((1,), "int32", data=np.array([2], np.int32))
    data = one_operator(op, [Tensor((2, 3, 4), "bool"), where], Tensor((2, 3), "bool"), "ReducerOptions", {"keepDims": False}, 1)
    assert_like_litert(data, tmp_path, [numbers((2, 3, 4), "bool")])


@pytest.mark.parametrize("to", ["int32", "int64"])
@pytest.mark.parametrize("op", ["ARG_MAX", "ARG_MIN"])
@pytest.mark.parametrize("dtype", ["int8", "uint8", "float32", "int32"])
def test_the_place_of_an_extreme(op: str, dtype: str, to: str, tmp_path: Path) -> None:
    where = Tensor((1,), "int32", data=np.array([-1], np.int32))
    options = {"ARG_MAX": "ArgMaxOptions", "ARG_MIN": "ArgMinOptions"}[op]
    data = one_operator(op, [tensor(S, dtype), where], Tensor(S[:-1], to), options, {"outputType": KINDS[to]})
    assert_like_litert(data, tmp_path, [numbers(S, dtype)])


@pytest.mark.parametrize("radius", [0, 2, 9])
def test_local_response_normalization(radius: int, tmp_path: Path) -> None:
    fields: dict[str, object] = {"radius": radius, "bias": 1.5, "alpha": 0.3, "beta": 0.6}
    data = one_operator(
        "LOCAL_RESPONSE_NORMALIZATION", [Tensor(S, "float32")], Tensor(S, "float32"), "LocalResponseNormalizationOptions", fields, 1
    )
    assert_like_litert(data, tmp_path, [numbers(S, "float32")])


def test_quantisation_per_channel_there_and_back(tmp_path: Path) -> None:
    steps = [0.01 * (n + 1) for n in range(8)]
    stored = Tensor(S, "int8", steps, 0, axis=3)
    assert_like_litert(one_operator("QUANTIZE", [Tensor(S, "float32")], stored), tmp_path, [numbers(S, "float32")])
    assert_like_litert(one_operator("DEQUANTIZE", [stored], Tensor(S, "float32"), version=5), tmp_path, [numbers(S, "int8")])
