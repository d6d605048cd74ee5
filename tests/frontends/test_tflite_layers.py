"""Products, convolutions, pooling, resizing and indexing of TFLite, one at a time, against LiteRT's reference kernels."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from intaglio.ir.graph import Array
from support.tflite_models import Tensor, assert_like_litert, numbers, one_operator, tensor

pytest.importorskip("ai_edge_litert", reason="LiteRT is not installed")
S = (1, 4, 6, 8)
ALL = pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "float32"])
WEIGHTS = {"uint8": "uint8", "float32": "float32"}
BIAS = {"float32": "float32", "int16": "int64"}


def weights(shape: tuple[int, ...], dtype: str, scale: float | list[float] = 0.01, axis: int = 0) -> Tensor:
    rng = np.random.default_rng(5)
    if dtype == "float32":
        return Tensor(shape, dtype, data=rng.standard_normal(shape).astype(np.float32))
    low, high = {"int8": (-127, 127), "uint8": (0, 255), "int4": (-7, 7)}[dtype]
    data = rng.integers(low, high + 1, shape).astype("int8" if dtype == "int4" else dtype)
    return Tensor(shape, dtype, scale, 125 if dtype == "uint8" else 0, data, axis)


def bias(count: int, dtype: str, scale: float | list[float] = 0.01) -> Tensor:
    kind, rng = BIAS.get(dtype, "int32"), np.random.default_rng(6)
    if kind == "float32":
        return Tensor((count,), kind, data=rng.standard_normal(count).astype(np.float32))
    ins = 0.0005 if dtype == "int16" else 0.05
    step = [ins * s for s in scale] if isinstance(scale, list) else ins * scale
    return Tensor((count,), kind, step, 0, rng.integers(-500, 500, count).astype(kind))


def steps(count: int, per_channel: bool) -> float | list[float]:
    return [0.004 * (n + 1) for n in range(count)] if per_channel else 0.01


KINDS_OF_WEIGHTS = pytest.mark.parametrize(
    ("dtype", "stored", "per_channel"),
    [
        ("int8", "int8", False), ("int8", "int8", True), ("uint8", "uint8", False),
        ("int16", "int8", False), ("int16", "int8", True),
        ("float32", "float32", False), ("float32", "int8", False), ("float32", "int8", True), ("int8", "int4", True),
    ],
)  # fmt: skip


@KINDS_OF_WEIGHTS
@pytest.mark.parametrize("depthwise", [False, True])
@pytest.mark.parametrize("window", [(3, 1, 1, 0, 0), (3, 2, 1, 1, 1), (2, 1, 2, 0, 3)])
def test_convolutions(
    dtype: str, stored: str, per_channel: bool, depthwise: bool, window: tuple[int, int, int, int, int], tmp_path: Path
) -> None:
    kernel, stride, dilation, padding, act = window
    if depthwise and (dtype, stored, per_channel) == ("float32", "int8", False):
        pytest.skip("LiteRT wants a scale per channel here")
    ins, outs = 3, 3 if depthwise else 5
    scale = steps(outs, per_channel)
    w = weights((1, kernel, kernel, outs) if depthwise else (outs, kernel, kernel, ins), stored, scale, 3 if depthwise else 0)
    reach = (kernel - 1) * dilation + 1
    size = [-(-d // stride) if padding == 0 else -(-(d - reach + 1) // stride) for d in (7, 6)]
    fields: dict[str, object] = {
        "padding": padding, "strideH": stride, "strideW": stride, "dilationHFactor": dilation, "dilationWFactor": dilation,
        "fusedActivationFunction": act,
    }  # fmt: skip
    if depthwise:
        fields["depthMultiplier"] = 1
    op, options = ("DEPTHWISE_CONV_2D", "DepthwiseConv2DOptions") if depthwise else ("CONV_2D", "Conv2DOptions")
    out = tensor((2, *size, outs), dtype, 0.07)
    data = one_operator(op, [tensor((2, 7, 6, ins), dtype), w, bias(outs, dtype, scale)], out, options, fields, 3)
    assert_like_litert(data, tmp_path, [numbers((2, 7, 6, ins), dtype)], bound=1e-4)


@pytest.mark.parametrize("per_channel", [False, True])
@pytest.mark.parametrize(("kernel", "stride", "padding"), [(3, 2, 0), (3, 2, 1), (2, 2, 0), (5, 3, 1), (1, 2, 1)])
@pytest.mark.parametrize("act", [0, 1])
@ALL
def test_transposed_convolutions(
    dtype: str, per_channel: bool, kernel: int, stride: int, padding: int, act: int, tmp_path: Path
) -> None:
    if per_channel and dtype not in ("int8", "int16"):
        pytest.skip("one scale for all")
    scale = steps(5, per_channel)
    size = 4 * stride if padding == 0 else 3 * stride + max(kernel, stride)
    shape = Tensor((4,), "int32", data=np.array([2, size, size, 5], np.int32))
    ins = [
        shape,
        weights((5, kernel, kernel, 3), WEIGHTS.get(dtype, "int8"), scale),
        tensor((2, 4, 4, 3), dtype),
        bias(5, dtype, scale),
    ]
    fields: dict[str, object] = {"padding": padding, "strideH": stride, "strideW": stride, "fusedActivationFunction": act}
    data = one_operator("TRANSPOSE_CONV", ins, tensor((2, size, size, 5), dtype, 0.07), "TransposeConvOptions", fields, 4)
    assert_like_litert(data, tmp_path, [numbers((2, 4, 4, 3), dtype)])


@KINDS_OF_WEIGHTS
@pytest.mark.parametrize("act", [0, 1])
@pytest.mark.parametrize("asymmetric", [False, True])
def test_fully_connected_layers(dtype: str, stored: str, per_channel: bool, act: int, asymmetric: bool, tmp_path: Path) -> None:
    scale = steps(5, per_channel)
    fields: dict[str, object] = {"fusedActivationFunction": act, "keepNumDims": True, "asymmetricQuantizeInputs": asymmetric}
    ins = [tensor((1, 30, 12), dtype), weights((5, 12), stored, scale), bias(5, dtype, scale)]
    data = one_operator("FULLY_CONNECTED", ins, tensor((1, 30, 5), dtype, 0.07), "FullyConnectedOptions", fields, 9)
    assert_like_litert(data, tmp_path, [numbers((1, 30, 12), dtype)], bound=1e-4)


def test_a_fully_connected_layer_rounds_halves_away_from_zero(tmp_path: Path) -> None:
    x = np.arange(-9, 10).astype(np.int8).reshape(-1, 1)
    w = Tensor((1, 1), "int8", 0.5, 0, np.ones((1, 1), np.int8))
    data = one_operator("FULLY_CONNECTED", [Tensor((19, 1), "int8", 0.5), w], Tensor((19, 1), "int8", 0.5), "FullyConnectedOptions")
    assert_like_litert(data, tmp_path, [x])


@pytest.mark.parametrize("turned", [(False, False), (True, False), (False, True), (True, True)])
@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize("dtype", ["int8", "int16", "float32", "hybrid"])
def test_matrix_products(dtype: str, known: bool, turned: tuple[bool, bool], tmp_path: Path) -> None:
    hybrid = dtype == "hybrid"
    if hybrid and not known:
        pytest.skip("8-bit weights are known")
    kind = "float32" if hybrid else dtype
    a, b = (2, 4, 3) if turned[0] else (2, 3, 4), (2, 5, 4) if turned[1] else (2, 4, 5)
    right = (
        Tensor(b, "int8", 0.02, 0, numbers(b, "int8"))
        if hybrid
        else tensor(b, kind, 0.03, data=numbers(b, kind) if known else None)
    )
    fields: dict[str, object] = {"adjX": turned[0], "adjY": turned[1]}
    data = one_operator("BATCH_MATMUL", [tensor(a, kind), right], tensor((2, 3, 5), kind, 0.3), "BatchMatMulOptions", fields, 4)
    assert_like_litert(data, tmp_path, [numbers(a, kind), *([] if known else [numbers(b, kind)])], bound=1e-4)


@pytest.mark.parametrize("op", ["AVERAGE_POOL_2D", "MAX_POOL_2D"])
@pytest.mark.parametrize(("padding", "act"), [(0, 0), (1, 3)])
@ALL
def test_pooling(op: str, padding: int, act: int, dtype: str, tmp_path: Path) -> None:
    out = (1, 2, 3, 8) if padding == 0 else (1, 1, 2, 8)
    fields: dict[str, object] = {
        "padding": padding, "strideH": 2, "strideW": 2, "filterHeight": 3, "filterWidth": 3, "fusedActivationFunction": act,
    }  # fmt: skip
    data = one_operator(op, [tensor(S, dtype)], tensor(out, dtype), "Pool2DOptions", fields)
    assert_like_litert(data, tmp_path, [numbers(S, dtype)])


@pytest.mark.parametrize(("corners", "half"), [(False, False), (True, False), (False, True)])
@pytest.mark.parametrize("size", [(11, 13), (2, 3), (1, 1)])
@pytest.mark.parametrize("op", ["RESIZE_BILINEAR", "RESIZE_NEAREST_NEIGHBOR"])
@ALL
def test_resizing(op: str, size: tuple[int, int], corners: bool, half: bool, dtype: str, tmp_path: Path) -> None:
    options = "ResizeBilinearOptions" if op == "RESIZE_BILINEAR" else "ResizeNearestNeighborOptions"
    asked = Tensor((2,), "int32", data=np.array(size, np.int32))
    fields: dict[str, object] = {"alignCorners": corners, "halfPixelCenters": half}
    data = one_operator(op, [tensor(S, dtype), asked], tensor((1, *size, 8), dtype), options, fields, 3)
    assert_like_litert(data, tmp_path, [numbers(S, dtype)])


def places(*values: int) -> Tensor:
    return Tensor((len(values),), "int32", data=np.array(values, np.int32))


def table(values: list[list[int]]) -> Tensor:
    data = np.array(values, np.int32)
    return Tensor(data.shape, "int32", data=data)


INDEXING: dict[str, tuple[str, list[Tensor | tuple[int, ...]], tuple[int, ...], str, dict[str, object]]] = {
    "gather": ("GATHER", [(5, 4), places(3, 0, 2)], (3, 4), "GatherOptions", {"axis": 0}),
    "gather in batches": ("GATHER", [(2, 5, 4), table([[3, 0], [1, 4]])], (2, 2, 4), "GatherOptions", {"axis": 1, "batchDims": 1}),
    "gather further in": ("GATHER", [(2, 3, 5), table([[3, 0], [1, 4]])], (2, 3, 2), "GatherOptions", {"axis": 2, "batchDims": 1}),
    "gather_nd": ("GATHER_ND", [(5, 4), table([[3, 0], [1, 2]])], (2,), "GatherNdOptions", {}),
    "scatter_nd": ("SCATTER_ND", [table([[3], [1], [3]]), (3, 4), places(6, 4)], (6, 4), "ScatterNdOptions", {}),
    "reverse": ("REVERSE_V2", [S, places(1)], S, "ReverseV2Options", {}),
    "reverse_sequence": ("REVERSE_SEQUENCE", [(3, 6, 4), places(2, 6, 1)], (3, 6, 4), "ReverseSequenceOptions", {"seqDim": 1}),
    "tile": ("TILE", [(2, 3), places(2, 3)], (4, 9), "TileOptions", {}),
    "broadcast_to": ("BROADCAST_TO", [(1, 3), places(2, 4, 3)], (2, 4, 3), "BroadcastToOptions", {}),
    "mirror_pad": ("MIRROR_PAD", [(4, 5), table([[2, 1], [1, 3]])], (7, 9), "MirrorPadOptions", {"mode": 0}),
    "mirror_pad of edges": ("MIRROR_PAD", [(4, 5), table([[2, 1], [1, 3]])], (7, 9), "MirrorPadOptions", {"mode": 1}),
    "space_to_batch": ("SPACE_TO_BATCH_ND", [S, places(2, 2), table([[0, 2], [1, 1]])], (4, 3, 4, 8), "SpaceToBatchNDOptions", {}),
    "batch_to_space": ("BATCH_TO_SPACE_ND", [(4, 3, 4, 8), places(2, 2), table([[0, 2], [1, 1]])], S, "BatchToSpaceNDOptions", {}),
    "space_to_depth": ("SPACE_TO_DEPTH", [S], (1, 2, 3, 32), "SpaceToDepthOptions", {"blockSize": 2}),
    "depth_to_space": ("DEPTH_TO_SPACE", [S], (1, 8, 12, 2), "DepthToSpaceOptions", {"blockSize": 2}),
    "strided_slice": (
        "STRIDED_SLICE", [(4, 5, 6), places(1, -1, 0), places(3, 0, 9), places(1, -2, 2)], (2, 2, 3), "StridedSliceOptions", {},
    ),
    "select": ("SELECT", [Tensor((3,), "bool", data=np.array([True, False, True])), (3, 4), (3, 4)], (3, 4), "SelectOptions", {}),
    "concat of two steps": ("CONCATENATION", [(2, 3), (2, 4)], (2, 7), "ConcatenationOptions", {"axis": -1}),
    "update": ("DYNAMIC_UPDATE_SLICE", [(4, 5), (2, 3), places(1, 9)], (4, 5), "", {}),
    "embedding": ("EMBEDDING_LOOKUP", [places(1, 4, 0), (5, 4)], (3, 4), "", {}),
}  # fmt: skip


@pytest.mark.parametrize("name", INDEXING)
@pytest.mark.parametrize("dtype", ["int8", "float32"])
def test_movement(name: str, dtype: str, tmp_path: Path) -> None:
    op, operands, out, options, fields = INDEXING[name]
    ins = [o if isinstance(o, Tensor) else tensor(o, dtype) for o in operands]
    feeds: list[Array] = [numbers(o, dtype, n) for n, o in enumerate(operands) if not isinstance(o, Tensor)]
    feeds = [f % 20 if name == "scatter_nd" and dtype == "int8" else f for f in feeds]
    if name == "reverse_sequence" and dtype == "int8":
        pytest.skip("LiteRT has none of int8")
    version = 5 if "batchDims" in fields else 2 if op == "BROADCAST_TO" else 1
    assert_like_litert(one_operator(op, ins, tensor(out, dtype), options, fields, version), tmp_path, feeds)


def test_one_hot_leaves_out_what_is_outside(tmp_path: Path) -> None:
    known = [
        Tensor((), "int32", data=np.array(7, np.int32)),
        *[Tensor((), "float32", data=np.array(v, np.float32)) for v in (2, -1)],
    ]
    data = one_operator("ONE_HOT", [Tensor((5,), "int32"), *known], Tensor((5, 7), "float32"), "OneHotOptions", {"axis": -1}, 1)
    assert_like_litert(data, tmp_path, [np.array([0, 3, 9, 6, -1], np.int32)])


@pytest.mark.parametrize("padding", [0, 1])
def test_a_convolution_of_volumes(padding: int, tmp_path: Path) -> None:
    shape, out = (1, 3, 4, 5, 2), (1, 3, 4, 5, 4) if padding == 0 else (1, 2, 2, 3, 4)
    fields: dict[str, object] = {"padding": padding, **{f"stride{a}": 1 for a in "DHW"}, **{f"dilation{a}Factor": 1 for a in "DHW"}}
    ins = [Tensor(shape, "float32"), weights((2, 3, 3, 2, 4), "float32"), bias(4, "float32")]
    data = one_operator("CONV_3D", ins, Tensor(out, "float32"), "Conv3DOptions", fields, 1)
    assert_like_litert(data, tmp_path, [numbers(shape, "float32")])


@pytest.mark.parametrize("scale", [0.051, 0.07, 0.0333, 0.2])
def test_bytes_are_joined_in_the_steps_of_the_result(scale: float, tmp_path: Path) -> None:
    ins = [Tensor((1, 256), "uint8", 0.05, 120), Tensor((1, 256), "uint8", scale, 99)]
    data = one_operator("CONCATENATION", ins, Tensor((1, 512), "uint8", 0.06, 131), "ConcatenationOptions", {"axis": 1}, 1)
    every = np.arange(256).astype(np.uint8).reshape(1, 256)
    assert_like_litert(data, tmp_path, [every, every])
