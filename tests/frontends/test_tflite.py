"""TFLite files: single operators against their golden results, whole models against LiteRT's reference kernels, damaged files."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest

from intaglio.errors import ModelError, UserError
from intaglio.frontends.tflite import check, load
from intaglio.ir.graph import Array, Graph
from intaglio.ir.verify import verify
from intaglio.ops.evaluate import evaluate_graph
from support.shared import SHARED, TFLITE, needs_shared
from support.small_networks import sine
from support.tflite_models import ModelWriter, Tensor, one_operator

_TYPES = {"int16": np.int16, "int32": np.int32, "float32": np.float32, "int8": np.int8}
SUITE = sorted((SHARED / "suites" / "tflm_seanet").glob("*/*.tflite"))
LARGE = {
    "basicpitch_tfl",
    "mp_palm_lite",
    "mp_hand_recrop",
    "mp_face_det_short",
    "mlperf_vww_f32",
    "mlperf_vww_int8",
    "tmx_mbnet96_0.25_f",
}


def read(path: Path) -> Graph:
    graph, _ = load(path, dims={}, shapes={})
    return graph


def numbers(pattern: str, folder: Path) -> Array:
    found = next(iter(sorted(folder.glob(pattern))))
    return np.loadtxt(found, delimiter=",").astype(_TYPES[found.stem.rsplit("_", 1)[1]])


@needs_shared
@pytest.mark.parametrize("path", SUITE, ids=lambda p: p.stem)
def test_a_single_operator_gives_its_golden_result_to_the_bit(path: Path) -> None:
    graph = read(path)
    inputs = {v.name: numbers(f"{path.stem}_input{i}_*.csv", path.parent).reshape(v.shape) for i, v in enumerate(graph.inputs)}
    result = evaluate_graph(graph, inputs)[graph.outputs[0].name]
    assert np.array_equal(result.reshape(-1), numbers(f"{path.stem}_golden_*.csv", path.parent).reshape(-1))


@needs_shared
@pytest.mark.parametrize("entry", [m for m in TFLITE if m["id"] not in LARGE], ids=lambda m: str(m["id"]))
def test_a_model_gives_what_the_reference_kernels_give(entry: dict[str, object]) -> None:
    path = SHARED / str(entry["file"])
    graph = read(path)
    verify(graph)
    data = np.load(SHARED / str(entry["ref"]))
    state = {s.input.name: np.full(s.input.shape, s.fill, s.input.dtype.numpy) for s in graph.states}
    steps = 8 if graph.states else 2
    for step in range(min(steps, len(data["in0"]))):
        given = {v.name: np.asarray(data[f"in{i}"][step]) for i, v in enumerate(v for v in graph.inputs if v.name not in state)}
        values = evaluate_graph(graph, {**given, **state}, keep=True)
        for i, out in enumerate(graph.outputs):
            expected = data[f"out{i}"][step]
            got = values[out.name].reshape(expected.shape)
            if expected.dtype.kind == "f":
                assert float(np.max(np.abs(got - expected))) <= 1e-4 * float(np.max(np.abs(expected))) + 1e-6
            else:
                assert np.array_equal(got, expected)
        state = {s.input.name: values[s.output.name] for s in graph.states}


# Damaged files -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """A copy of a small file that a test may damage."""
    pytest.importorskip("ai_edge_litert", reason="LiteRT is not installed")
    path = tmp_path / "model.tflite"
    path.write_bytes(sine())
    return path


def test_a_file_without_its_mark_is_not_a_model(tmp_path: Path) -> None:
    path = tmp_path / "model.tflite"
    path.write_bytes(b"\x1c\0\0\0nope" + bytes(64))
    with pytest.raises(ModelError, match="no `TFL3` mark"):
        read(path)


def test_a_root_outside_of_the_file_is_told(small: Path) -> None:
    data = bytearray(small.read_bytes())
    struct.pack_into("<I", data, 0, len(data) + 100)
    small.write_bytes(data)
    with pytest.raises(ModelError, match="outside"):
        read(small)


def test_a_truncated_file_is_an_error_not_a_traceback(small: Path) -> None:
    good = small.read_bytes()
    for keep in [0, 7, 16, 100, *range(200, len(good) - 100, 200)]:
        small.write_bytes(good[:keep])
        with pytest.raises(ModelError):
            read(small)


def test_damaged_bytes_never_escape_as_another_exception(small: Path) -> None:
    good = small.read_bytes()
    random = np.random.default_rng(3)
    refused = 0
    for _ in range(300):
        data = bytearray(good)
        for at in random.integers(8, len(data), 4):
            data[int(at)] = int(random.integers(0, 256))
        small.write_bytes(data)
        try:
            read(small)
        except (ModelError, UserError):
            refused += 1
    assert refused > 20  # most damage hits weights; a part of it must be noticed


def test_an_input_has_the_shape_of_the_file(small: Path) -> None:
    with pytest.raises(UserError, match="is \\[1, 1\\], not \\[1, 2\\]"):
        load(small, dims={}, shapes={"in0": (1, 2)})


def test_an_input_that_is_not_there_is_told_with_those_that_are(small: Path) -> None:
    with pytest.raises(UserError, match="no input `in7`"):
        load(small, dims={}, shapes={"in7": (1, 1)})


def test_tensors_without_a_name_get_one(tmp_path: Path) -> None:
    writer = ModelWriter()
    writer.subgraph()
    writer.graph.inputs = [writer.tensor(Tensor((4,), "float32"), "")]
    writer.graph.outputs = [writer.tensor(Tensor((4,), "float32"), "") for _ in range(2)]
    for op, out in zip(("NEG", "ABS"), writer.graph.outputs, strict=True):
        writer.operator(op, writer.graph.inputs, [out], version=1)
    path = tmp_path / "model.tflite"
    path.write_bytes(writer.finish())
    graph, _ = load(path, dims={}, shapes={})
    assert [v.name for v in graph.inputs] == ["in0"] and graph.output_names == ["out0", "out1"]


def test_check_names_an_operator_that_is_not_supported(tmp_path: Path) -> None:
    pytest.importorskip("ai_edge_litert", reason="LiteRT is not installed")
    path = tmp_path / "model.tflite"
    path.write_bytes(one_operator("SKIP_GRAM", [], Tensor((1,), "int64")))
    problems = check(path, dims={}, shapes={})
    assert [(p.op, p.node) for p in problems] == [("SKIP_GRAM", "out")]
