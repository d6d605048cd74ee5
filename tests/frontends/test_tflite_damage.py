"""Damaged TFLite files, operator by operator: one error that names the operator or tensor, never another exception."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from intaglio.errors import ModelError, UserError
from intaglio.frontends.tflite import load
from support.tflite_models import ModelWriter, Tensor, numbers, one_operator, tensor

pytest.importorskip("ai_edge_litert", reason="LiteRT is not installed")
CONV: dict[str, object] = {"padding": 0, "strideH": 1, "strideW": 1, "dilationHFactor": 1, "dilationWFactor": 1}


def places(*values: int) -> Tensor:
    return Tensor((len(values),), "int32", data=np.array(values, np.int32))


def conv(dtype: str = "int8") -> bytes:
    w = Tensor((5, 3, 3, 2), dtype, 0.01 if dtype == "int8" else None, data=numbers((5, 3, 3, 2), dtype))
    return one_operator("CONV_2D", [tensor((1, 6, 6, 2), dtype), w], tensor((1, 6, 6, 5), dtype), "Conv2DOptions", CONV, 3)


def dense() -> bytes:
    w = Tensor((5, 12), "int8", [0.01 * (n + 1) for n in range(5)], 0, numbers((5, 12), "int8"))
    return one_operator("FULLY_CONNECTED", [tensor((2, 12), "int8"), w, None], tensor((2, 5), "int8"), "FullyConnectedOptions")


SEEDS: dict[str, Callable[[], bytes]] = {
    "conv": conv,
    "conv of floats": lambda: conv("float32"),
    "dense": dense,
    "add": lambda: one_operator("ADD", [tensor((4, 3), "int8")] * 2, tensor((4, 3), "int8"), "AddOptions"),
    "mean": lambda: one_operator("MEAN", [tensor((4, 3), "int8"), places(1)], tensor((4,), "int8"), "ReducerOptions"),
    "softmax": lambda: one_operator("SOFTMAX", [tensor((4, 3), "int8")], tensor((4, 3), "int8"), "SoftmaxOptions", {"beta": 1.0}),
    "concat": lambda: one_operator("CONCATENATION", [tensor((4, 3), "int8")] * 2, tensor((8, 3), "int8"), "ConcatenationOptions"),
    "slice": lambda: one_operator(
        "STRIDED_SLICE", [tensor((4, 3), "int8"), places(0, 0), places(2, 2), places(1, 1)], tensor((2, 2), "int8"),
        "StridedSliceOptions",
    ),
    "pad": lambda: one_operator(
        "PAD", [tensor((4,), "int8"), Tensor((1, 2), "int32", data=np.ones((1, 2), np.int32))], tensor((6,), "int8"), "PadOptions"
    ),
    "split": lambda: one_operator(
        "SPLIT", [Tensor((), "int32", data=np.array(0, np.int32)), tensor((4, 3), "int8")], [tensor((2, 3), "int8")] * 2,
        "SplitOptions",
    ),
    "gather": lambda: one_operator("GATHER", [tensor((4, 3), "int8"), places(0, 2)], tensor((2, 3), "int8"), "GatherOptions"),
    "resize": lambda: one_operator(
        "RESIZE_BILINEAR", [tensor((1, 3, 3, 2), "int8"), places(6, 6)], tensor((1, 6, 6, 2), "int8"), "ResizeBilinearOptions"
    ),
    "tanh": lambda: one_operator("TANH", [tensor((4, 3), "int8")], tensor((4, 3), "int8", 1 / 128, 0)),
    "range": lambda: one_operator(
        "RANGE", [Tensor((), "int32", data=np.array(n, np.int32)) for n in (0, 9, 3)], Tensor((3,), "int32"), "RangeOptions"
    ),
}  # fmt: skip


def opened(data: bytes) -> Any:
    schema = ModelWriter().schema
    return schema.ModelT.InitFromObj(schema.Model.GetRootAs(data, 0))


def packed(model: Any) -> bytes:
    import flatbuffers

    builder = flatbuffers.Builder(1024)
    builder.Finish(model.Pack(builder), b"TFL3")
    return bytes(builder.Output())


def told(data: bytes, folder: Path) -> str:
    """The error, as a person reads it."""
    (folder / "m.tflite").write_bytes(data)
    with pytest.raises(ModelError) as error:
        load(folder / "m.tflite", dims={}, shapes={})
    return str(error.value)


def spoil(model: Any, rng: random.Random) -> None:
    """One field of a tensor, constant or operator becomes something that it should not be."""
    graph, sizes = model.subgraphs[0], [0, -1, 1, 2, 7, -7, 1 << 20, (1 << 31) - 1, -(1 << 31)]
    victim, operator = rng.choice(graph.tensors), graph.operators[0]
    shape = [] if victim.shape is None else [int(d) for d in victim.shape]
    match rng.randrange(10):
        case 0 if shape:
            shape[rng.randrange(len(shape))] = rng.choice(sizes)
            victim.shape = shape
        case 1:
            victim.shape = shape[:-1] if rng.random() < 0.5 else [*shape, 1]
        case 2:
            victim.type = rng.choice([0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 13, 17])
        case 3:
            victim.quantization = None
        case 4 if victim.quantization is not None:
            victim.quantization.scale = [rng.choice([0.0, -1.0, float("nan"), float("inf"), 1e-38, 1e30])] * rng.choice([1, 2])
        case 5 if victim.quantization is not None:
            victim.quantization.zeroPoint = [rng.choice([1000, -129, 1 << 40])] * rng.choice([1, 2])
        case 6:
            known = rng.choice([b for b in model.buffers if b.data is not None and len(b.data)] or model.buffers)
            if known.data is not None:
                count = len(known.data)
                wrong = np.array([rng.choice(sizes) for _ in range(count // 4 + 1)], np.int32)
                known.data = np.frombuffer(wrong.tobytes(), np.uint8)[: count - rng.choice([0, 0, 1])]
        case 7 if operator.builtinOptions is not None:
            fields = [n for n, v in vars(operator.builtinOptions).items() if isinstance(v, (int, float))]
            if fields:
                setattr(operator.builtinOptions, rng.choice(fields), rng.choice([0, -1, 1, 5, 100]))
        case 8:
            operator.inputs = [rng.choice([-1, 0, int(i)]) for i in operator.inputs]
        case 9:
            operator.inputs = [int(i) for i in operator.inputs][: rng.randrange(len(operator.inputs) + 1)]


@pytest.mark.parametrize("name", SEEDS)
def test_spoiled_fields_end_in_one_error_or_none(name: str, tmp_path: Path) -> None:
    rng, good, refused = random.Random(name), SEEDS[name](), 0
    load_it = tmp_path / "m.tflite"
    load_it.write_bytes(good)
    load(load_it, dims={}, shapes={})
    for _ in range(60):
        model = opened(good)
        spoil(model, rng)
        try:
            load_it.write_bytes(packed(model))
        except Exception:  # a number that flatbuffers does not write
            continue
        try:
            load(load_it, dims={}, shapes={})
        except (ModelError, UserError):
            refused += 1
    assert refused > 5


@pytest.mark.parametrize("name", ["conv", "dense", "concat"])
def test_a_file_cut_anywhere_is_told(name: str, tmp_path: Path) -> None:
    good = SEEDS[name]()
    for keep in range(0, len(good) - 8, 13):
        (tmp_path / "m.tflite").write_bytes(good[:keep])
        with pytest.raises(ModelError):
            load(tmp_path / "m.tflite", dims={}, shapes={})


@pytest.mark.parametrize("name", SEEDS)
def test_flipped_bits_end_in_one_error_or_none(name: str, tmp_path: Path) -> None:
    rng, good = random.Random(name), SEEDS[name]()
    for _ in range(60):
        data = bytearray(good)
        for _ in range(rng.randrange(1, 6)):
            data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        (tmp_path / "m.tflite").write_bytes(data)
        with contextlib.suppress(ModelError, UserError):
            load(tmp_path / "m.tflite", dims={}, shapes={})


# Each item of the catalogue -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scale", [0.0, -0.1, float("nan"), float("inf")])
def test_a_scale_that_cannot_be_is_told_with_its_tensor(scale: float, tmp_path: Path) -> None:
    model = opened(SEEDS["add"]())
    model.subgraphs[0].tensors[1].quantization.scale = [scale]
    assert "`in1` has" in told(packed(model), tmp_path)


def test_a_zero_point_out_of_range_is_told(tmp_path: Path) -> None:
    model = opened(SEEDS["add"]())
    model.subgraphs[0].tensors[0].quantization.zeroPoint = [300]
    assert "`in0` has zero point 300, which does not fit i8" in told(packed(model), tmp_path)


def test_scales_that_do_not_fit_the_channels_are_told(tmp_path: Path) -> None:
    model = opened(dense())
    model.subgraphs[0].tensors[1].quantization.scale = [0.1] * 4
    model.subgraphs[0].tensors[1].quantization.zeroPoint = [0] * 4
    assert "`in1` has 4 scales along axis 0 of [5, 12]" in told(packed(model), tmp_path)


def test_an_axis_of_scales_beyond_the_rank_is_told(tmp_path: Path) -> None:
    model = opened(dense())
    model.subgraphs[0].tensors[1].quantization.quantizedDimension = 4
    assert "along axis 4 of [5, 12]" in told(packed(model), tmp_path)


def test_missing_quantisation_is_told(tmp_path: Path) -> None:
    model = opened(SEEDS["softmax"]())
    model.subgraphs[0].tensors[0].quantization = None
    assert "`in0` has no quantisation parameters" in told(packed(model), tmp_path)


@pytest.mark.parametrize("what", ["input", "buffer", "code", "output"])
def test_indices_out_of_range_are_told(what: str, tmp_path: Path) -> None:
    model = opened(SEEDS["add"]())
    graph = model.subgraphs[0]
    if what == "input":
        graph.operators[0].inputs = [0, 99]
    elif what == "buffer":
        graph.tensors[0].buffer = 99
    elif what == "code":
        graph.operators[0].opcodeIndex = 99
    else:
        graph.outputs = [99]
    assert "99, but there are" in told(packed(model), tmp_path)


@pytest.mark.parametrize(("deprecated", "builtin"), [(0, 25), (25, 0), (25, 25)])
def test_an_operator_is_the_larger_of_its_two_numbers(deprecated: int, builtin: int, tmp_path: Path) -> None:
    """As LiteRT reads it: with 0 in the older field, a SOFTMAX was an ADD."""
    model = opened(SEEDS["softmax"]())
    (code,) = model.operatorCodes
    code.deprecatedBuiltinCode, code.builtinCode = deprecated, builtin
    path = tmp_path / "softmax.tflite"
    path.write_bytes(packed(model))
    graph, _ = load(path, dims={}, shapes={})
    assert [node.op.NAME for node in graph.nodes] == ["qsoftmax"]


def test_a_custom_operator_is_told_by_its_name(tmp_path: Path) -> None:
    model = opened(SEEDS["tanh"]())
    code = model.operatorCodes[0]
    code.builtinCode, code.deprecatedBuiltinCode, code.customCode = 32, 32, "Frobnicate"
    text = told(packed(model), tmp_path)
    assert "`CUSTOM Frobnicate`" in text
    assert "a custom operator" in text


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("FlexTensorListReserve", "compile the `.keras` or `.h5` file itself, or convert with a batch of 1"),
        ("FlexErf", "convert again without `SELECT_TF_OPS`"),
        ("DISPATCH_OP", "compiled for an NPU: use the `.tflite` file from before"),
        ("edgetpu-custom-op", "from before `edgetpu_compiler`"),
        ("Resampler", "one of MediaPipe's"),
    ],
)
def test_a_custom_operator_that_is_known_says_what_to_do(name: str, hint: str, tmp_path: Path) -> None:
    model = opened(SEEDS["tanh"]())
    code = model.operatorCodes[0]
    code.builtinCode, code.deprecatedBuiltinCode, code.customCode = 32, 32, name
    assert hint in told(packed(model), tmp_path)


def test_scales_of_blocks_are_called_by_their_name(tmp_path: Path) -> None:
    model = opened(SEEDS["dense"]())
    quantised = model.subgraphs[0].tensors[1].quantization
    quantised.detailsType, quantised.details = 2, ModelWriter().schema.BlockwiseQuantizationT(scales=0, zeroPoints=-1, blockSize=4)
    quantised.scale, quantised.zeroPoint = None, None
    (tmp_path / "m.tflite").write_bytes(packed(model))
    with pytest.raises(ModelError, match=r"has a scale for each block of its numbers: .* which has nothing for") as caught:
        load(tmp_path / "m.tflite", dims={}, shapes={})
    assert "scale for each channel" in caught.value.hint


def test_options_of_another_operator_are_told(tmp_path: Path) -> None:
    model = opened(conv())
    schema = ModelWriter().schema
    model.subgraphs[0].operators[0].builtinOptions = schema.SoftmaxOptionsT()
    model.subgraphs[0].operators[0].builtinOptionsType = schema.BuiltinOptions.SoftmaxOptions
    assert "options are those of another operator" in told(packed(model), tmp_path)


def test_no_channels_are_told(tmp_path: Path) -> None:
    model = opened(conv())
    graph = model.subgraphs[0]
    graph.tensors[1].shape = [5, 3, 3, 0]
    model.buffers[graph.tensors[1].buffer].data = None
    assert "a filter of [5, 3, 3, 0]" in told(packed(model), tmp_path)


def test_a_stride_of_zero_is_told(tmp_path: Path) -> None:
    model = opened(conv())
    model.subgraphs[0].operators[0].builtinOptions.strideH = 0
    assert "strides [0, 1]" in told(packed(model), tmp_path)


@pytest.mark.parametrize("axis", [2, -3, 1000])
def test_an_axis_beyond_the_rank_is_told(axis: int, tmp_path: Path) -> None:
    data = one_operator("MEAN", [tensor((4, 3), "int8"), places(axis)], tensor((4,), "int8"), "ReducerOptions")
    assert f"axis {axis} is out of range for rank 2" in told(data, tmp_path)


def test_a_result_whose_size_depends_on_data_is_told(tmp_path: Path) -> None:
    one = one_operator("WHERE", [Tensor((), "bool")], Tensor((1, 0), "int64"), version=1)
    assert "its condition has no axes" in told(one, tmp_path)
    outs = [Tensor((2, 2), "float32"), Tensor((4,), "int32")]
    assert "it takes a list of numbers" in told(one_operator("UNIQUE", [Tensor((2, 2), "float32")], outs, version=1), tmp_path)


def test_strings_are_told(tmp_path: Path) -> None:
    model = opened(SEEDS["tanh"]())
    model.subgraphs[0].tensors[model.subgraphs[0].inputs[0]].type = 5
    text = told(packed(model), tmp_path)
    assert "this operator on strings is not supported" in text and "hint: do what is about strings in your application" in text
