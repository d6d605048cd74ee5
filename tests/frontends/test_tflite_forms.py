"""Forms of TFLite operators that few models have, against LiteRT's reference kernels; scales for blocks of weights."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import intaglio as api
from support.tflite_models import (
    ModelWriter,
    Tensor,
    all_by_litert,
    all_by_reference,
    assert_like_litert,
    by_litert,
    numbers,
    one_operator,
)

pytest.importorskip("ai_edge_litert", reason="LiteRT is not installed")


def product(shape: tuple[int, ...], axes: tuple[int, ...], dtype: str, keep: bool, scale: float) -> bytes:
    left = tuple(1 if a in axes else n for a, n in enumerate(shape) if keep or a not in axes)
    where = Tensor((len(axes),), "int32", data=np.array(axes, np.int32))
    zero = 0 if dtype == "int16" else -3
    step = 0.0002 if dtype == "int16" else 0.02
    x, y = Tensor(shape, dtype, step, zero), Tensor(left, dtype, scale, zero)
    return one_operator("REDUCE_PROD", [x, where], y, "ReducerOptions", {"keepDims": keep})


@pytest.mark.parametrize("dtype", ["int8", "int16"])
@pytest.mark.parametrize(("axes", "keep"), [((1,), False), ((0, 2), True), ((2,), True), ((0, 1, 2), False)])
@pytest.mark.parametrize("scale", [0.001, 0.4])
def test_products_of_quantised_integers(dtype: str, axes: tuple[int, ...], keep: bool, scale: float, tmp_path: Path) -> None:
    data = product((2, 4, 3), axes, dtype, keep, scale)
    assert_like_litert(data, tmp_path, *[[numbers((2, 4, 3), dtype, seed)] for seed in range(5)])


def test_products_of_quantised_integers_compiled(tmp_path: Path) -> None:
    (tmp_path / "one.tflite").write_bytes(product((16, 4), (1,), "int8", False, 0.1))
    x = numbers((16, 4), "int8")
    package = api.compile(tmp_path / "one.tflite", output=tmp_path / "p", target="generic")
    assert np.array_equal(next(iter(package.run({"in0": x}).values())), by_litert(tmp_path / "one.tflite", [x]))


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize(("kinds", "scale"), [(("int8", "int8", "int32"), 0.0004), (("int16", "int8", "int16"), 0.0004)])
def test_matrix_products_of_other_types(kinds: tuple[str, str, str], scale: float, turned: bool, tmp_path: Path) -> None:
    left, right, out = kinds
    a, b = (2, 3, 4), (2, 5, 4) if turned else (2, 4, 5)
    wide = left == "int16"
    ins = [Tensor(a, left, 0.0002 if wide else 0.02, 0 if wide else -3), Tensor(b, right, 0.02, 0 if wide else 7)]
    data = one_operator("BATCH_MATMUL", ins, Tensor((2, 3, 5), out, scale), "BatchMatMulOptions", {"adjY": turned}, 4)
    assert_like_litert(data, tmp_path, [numbers(a, left), numbers(b, right, 1)])


def test_a_scale_for_each_column_of_a_product_is_that_of_its_own_matrix(tmp_path: Path) -> None:
    """LiteRT's kernels read one scale alone: each column is compared with a product of its own."""
    scales, b = [0.02, 0.01, 0.03], numbers((1, 4, 3), "int8", 1)
    x = numbers((1, 2, 4), "int8")
    y = Tensor((1, 2, 3), "int8", 0.4, 5)
    right = Tensor((1, 4, 3), "int8", scales, 0, b, axis=2)
    path = tmp_path / "all.tflite"
    path.write_bytes(one_operator("BATCH_MATMUL", [Tensor((1, 2, 4), "int8", 0.02, -3), right], y, "BatchMatMulOptions", {}, 4))
    got = all_by_reference(path, [[x]])[0][0]
    for n, scale in enumerate(scales):
        one = Tensor((1, 4, 3), "int8", scale, 0, b)
        path.write_bytes(one_operator("BATCH_MATMUL", [Tensor((1, 2, 4), "int8", 0.02, -3), one], y, "BatchMatMulOptions", {}, 4))
        assert np.array_equal(got[..., n], all_by_litert(path, [[x]])[0][0][..., n])


def test_a_package_with_a_scale_for_each_column_validates(tmp_path: Path) -> None:
    right = Tensor((4, 3), "int8", [0.02, 0.01, 0.03], 0, numbers((4, 3), "int8", 1), axis=1)
    ins, y = [Tensor((2, 4), "int16", 3e-5), right], Tensor((2, 3), "int16", 7e-6)
    (tmp_path / "m.tflite").write_bytes(one_operator("BATCH_MATMUL", ins, y, "BatchMatMulOptions", {}, 4))
    package = api.compile(tmp_path / "m.tflite", output=tmp_path / "p", target="generic")
    verdict = package.validate()
    assert verdict.ok and any("one for each column" in note for note in package.notes)


@pytest.mark.parametrize(("padding", "stride", "out"), [(0, 2, (4, 6, 8)), (1, 2, (5, 6, 9)), (1, 1, (3, 4, 5))])
def test_a_transposed_convolution_of_volumes(padding: int, stride: int, out: tuple[int, int, int], tmp_path: Path) -> None:
    shape, full = (1, 2, 3, 4, 3), (1, *out, 2)
    fields: dict[str, object] = {"padding": padding, **{f"stride{a}": stride for a in "DHW"}}
    fields |= {f"dilation{a}Factor": 1 for a in "DHW"}
    size = (3, 2, 3, 2, 3) if stride == 2 and padding else (2, 2, 2, 2, 3)
    kernel = Tensor(size, "float32", data=numbers(size, "float32", 3))
    ins = [Tensor((5,), "int32", data=np.array(full, np.int32)), kernel, Tensor(shape, "float32")]
    data = one_operator("CONV_3D_TRANSPOSE", ins, Tensor(full, "float32"), "Conv3DOptions", fields, 1)
    assert_like_litert(data, tmp_path, [numbers(shape, "float32")])


@pytest.mark.parametrize("steps", [(2, 3), (1, 2), (4, 1)])
def test_numbers_apart(steps: tuple[int, int], tmp_path: Path) -> None:
    out = tuple((n - 1) * s + 1 for n, s in zip((3, 4), steps, strict=True))
    ins = [Tensor((3, 4), "float32"), Tensor((2,), "int32", data=np.array(steps, np.int32))]
    ins.append(Tensor((), "float32", data=np.asarray(9, np.float32)))
    assert_like_litert(one_operator("DILATE", ins, Tensor(out, "float32"), version=1), tmp_path, [numbers((3, 4), "float32")])


def in_blocks(stored: str, block: int) -> tuple[bytes, np.ndarray]:
    """A dense layer, and its weights as real numbers."""
    rng, writer = np.random.default_rng(3), ModelWriter()
    writer.subgraph()
    whole = rng.integers(-8, 8, (8, 64)).astype(np.int8)
    scales = (rng.random((8, 64 // block)) + 0.5).astype(np.float16)
    x, w = writer.tensor(Tensor((2, 64), "float32"), "x"), writer.tensor(Tensor((8, 64), stored, data=whole), "w")
    places = writer.schema.BlockwiseQuantizationT()
    places.scales, places.zeroPoints, places.blockSize = writer.tensor(Tensor(scales.shape, "float16", data=scales), "s"), -1, block
    quant = writer.schema.QuantizationParametersT()
    quant.detailsType, quant.details = 2, places
    writer.graph.tensors[w].quantization = quant
    y = writer.tensor(Tensor((2, 8), "float32"), "y")
    writer.graph.inputs, writer.graph.outputs = [x], [y]
    writer.operator("FULLY_CONNECTED", [x, w, -1], [y], "FullyConnectedOptions", {}, 4)
    return writer.finish(), whole.astype(np.float32) * np.repeat(scales.astype(np.float32), block, 1)


@pytest.mark.parametrize("stored", ["int4", "int8"])
@pytest.mark.parametrize("block", [16, 32, 64])
def test_scales_for_blocks_of_weights(stored: str, block: int, tmp_path: Path) -> None:
    data, real = in_blocks(stored, block)
    (tmp_path / "b.tflite").write_bytes(data)
    x = numbers((2, 64), "float32")
    assert np.allclose(all_by_reference(tmp_path / "b.tflite", [[x]])[0][0], x @ real.T, atol=1e-4)


def test_a_package_with_scales_for_blocks_validates(tmp_path: Path) -> None:
    (tmp_path / "b.tflite").write_bytes(in_blocks("int4", 32)[0])
    package = api.compile(tmp_path / "b.tflite", output=tmp_path / "p", target="generic")
    assert package.validate().ok
    assert any("blocks of weights" in note for note in package.notes)


def test_blocks_that_do_not_divide_are_told(tmp_path: Path) -> None:
    data, _ = in_blocks("int8", 16)
    before, after = (np.array([block, -1], "<i4").tobytes() for block in (16, 24))
    (tmp_path / "b.tflite").write_bytes(data.replace(before, after))
    with pytest.raises(api.IntaglioError, match="blocks of 24 do not divide"):
        api.compile(tmp_path / "b.tflite", output=tmp_path / "p")


def test_a_shape_that_the_caller_gives_is_checked(tmp_path: Path) -> None:
    kernel = Tensor((3, 2, 2, 4), "float32", data=numbers((3, 2, 2, 4), "float32", 1))
    ins, y = [Tensor((4,), "int32"), kernel, Tensor((1, 2, 3, 4), "float32")], Tensor((1, 4, 6, 3), "float32")
    fields: dict[str, object] = {"padding": 1, "strideH": 2, "strideW": 2}
    (tmp_path / "m.tflite").write_bytes(one_operator("TRANSPOSE_CONV", ins, y, "TransposeConvOptions", fields, 1))
    package = api.compile(tmp_path / "m.tflite", output=tmp_path / "p", target="generic")
    assert package.validate().ok  # with that shape, which LiteRT needs too
    feeds = {"in0": np.array([1, 4, 5, 3], np.int32), "in2": numbers((1, 2, 3, 4), "float32")}
    with pytest.raises(api.IntaglioError, match="contradicts what the model was compiled for"):
        package.run(feeds)


def test_tensors_without_names_and_a_state_of_8_bits(tmp_path: Path) -> None:
    """TFLite Micro's own: LiteRT would write beyond the state."""
    weights = [Tensor((4, 3), "int8", 0.01, 0, numbers((4, 3), "int8", n)) for n in (1, 2)]
    bias = Tensor((4,), "int32", 1e-4, 0, numbers((4,), "int32", 3) // 9)
    ins = [Tensor((1, 3), "int8", 0.03, 5), *weights, bias, Tensor((1, 12), "int8", 0.02, 0, variable=True)]
    data = one_operator("SVDF", ins, Tensor((1, 4), "int8", 0.02, -5), "SVDFOptions", {"rank": 1, "fusedActivationFunction": 1}, 3)
    model = ModelWriter()
    model.model = model.schema.ModelT.InitFromObj(model.schema.Model.GetRootAs(data))
    for tensor in model.model.subgraphs[0].tensors:
        tensor.name = ""
    (tmp_path / "m.tflite").write_bytes(model.finish())
    package = api.compile(tmp_path / "m.tflite", output=tmp_path / "p", target="generic")
    assert list(package.run({"in0": numbers((1, 3), "int8")})) == ["out0"]
    assert package.validate().ok
