"""Shapes, pads, parts and limits that are computed: as ONNX Runtime has them, or an error code."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import intaglio
from intaglio.errors import AnswerIsNo, ModelError
from intaglio.frontends.onnx import load
from intaglio.ir.graph import Array
from intaglio.ir.spans import Room, Span
from intaglio.ops.evaluate import evaluate_graph
from intaglio.run.package import Package
from support.onnx_models import FLOAT, INT64, ints, model, node, saved, value

MOST = {"wide": 6, "padded": 4, "hot": 9}


def shaped() -> Any:
    nodes = [
        node("Expand", "column shape", "wide"), node("Pad", "row pads", "padded"), node("OneHot", "ids depth ends", "hot"),
        node("Split", "x parts", "first second third", axis=0), node("Slice", "x start far axis back", "backward"),
        node("EyeLike", "first", "eye", k=1), node("NonMaxSuppression", "boxes scores most overlap least", "selected"),
    ]  # fmt: skip
    constants = {
        "column": np.arange(3, dtype=np.float32).reshape(3, 1), "ends": np.array([-1, 2], np.float32), "far": ints(-100),
        "axis": ints(0), "back": ints(-2), "most": ints(4),
    }  # fmt: skip
    inputs = [
        value("shape", [2], INT64), value("row", [4]), value("pads", [2], INT64), value("ids", [3], INT64),
        value("depth", [1], INT64), value("x", [9, 3]), value("parts", [3], INT64), value("start", [1], INT64),
        value("boxes", [1, 12, 4]), value("scores", [1, 2, 12]), value("overlap", [1]), value("least", [1]),
    ]  # fmt: skip
    floats = ["wide", "padded", "hot", "first", "second", "third", "backward", "eye"]
    return model(nodes, inputs, [*(value(n, None, FLOAT) for n in floats), value("selected", None, INT64)], constants, opset=17)


@pytest.fixture(scope="module")
def onnx_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return saved(shaped(), tmp_path_factory.mktemp("model"), "shaped.onnx")


@pytest.fixture(scope="module")
def package(onnx_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Package:
    return intaglio.compile(onnx_file, output=tmp_path_factory.mktemp("package") / "shaped", max=MOST, library_only=True)


def drawn(seed: int) -> dict[str, Array]:
    random = np.random.default_rng(seed)
    one, two = sorted(random.integers(0, 10, 2))
    reals: dict[str, Array] = {
        "row": random.random(4), "x": random.random((9, 3)), "boxes": random.random((1, 12, 4)),
        "scores": random.random((1, 2, 12)), "overlap": random.random(1) / 2, "least": random.random(1) / 2,
    }  # fmt: skip
    return {name: array.astype(np.float32) for name, array in reals.items()} | {
        "shape": ints(int(random.choice([1, 3])), int(random.integers(0, 7))), "pads": random.integers(0, 5, 2),
        "ids": random.integers(-2, 9, 3), "depth": ints(int(random.integers(1, 10))),
        "parts": ints(int(one), int(two - one), int(9 - two)), "start": random.integers(-12, 12, 1),
    }  # fmt: skip


def test_results_are_those_of_onnx_runtime(package: Package, onnx_file: Path) -> None:
    import onnxruntime

    session = onnxruntime.InferenceSession(str(onnx_file), providers=["CPUExecutionProvider"])
    for seed in range(20):
        inputs = drawn(seed)
        got = package.run(inputs)
        for output, want in zip(session.get_outputs(), session.run(None, inputs), strict=True):
            assert np.array_equal(got[output.name], want), (seed, output.name)


@pytest.mark.parametrize(
    "wrong",
    [
        {"shape": ints(2, 4)}, {"shape": ints(3, 7)}, {"pads": ints(0, 5)}, {"depth": ints(0)}, {"parts": ints(3, 3, 4)},
        {"parts": ints(-1, 5, 5)},
    ],
)  # fmt: skip
def test_what_does_not_fit_is_an_error(package: Package, wrong: dict[str, Array]) -> None:
    with pytest.raises(AnswerIsNo):
        package.run(drawn(0) | wrong)


def test_without_a_largest_size_the_error_names_the_option(onnx_file: Path) -> None:
    whats = ("the shape of `Expand` depends", "the pads of `Pad` depend", "the depth of `OneHot` depends")
    for name, what in zip(MOST, whats, strict=True):
        with pytest.raises(ModelError, match=f"{what} on data") as caught:
            load(onnx_file, most={key: most for key, most in MOST.items() if key != name})
        assert f"`--max {name}=N`" in caught.value.hint


@pytest.mark.parametrize("start", [-100, -13, -12, -1, 5, 100])
def test_a_backward_slice_from_before_the_first_element_has_that_element(start: int, tmp_path: Path) -> None:
    constants = {"start": ints(start), "far": ints(-100), "axis": ints(0), "back": ints(-5)}
    path = saved(model([node("Slice", "x start far axis back", "y")], [value("x", [12])], [value("y", None)], constants), tmp_path)
    x = np.arange(12, dtype=np.float32)
    import onnxruntime

    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    assert np.array_equal(evaluate_graph(load(path)[0], {"x": x})["y"], session.run(None, {"x": x})[0])


def counted() -> Any:
    nodes = [
        node("NonZero", "x", "places"), node("Unique", "x", "once"),
        node("NonMaxSuppression", "boxes scores most overlap least", "selected"),
    ]  # fmt: skip
    constants = {"most": ints(4), "overlap": np.array([0.5], np.float32), "least": np.array([0.1], np.float32)}
    inputs = [value("x", [9]), value("boxes", [1, 6, 4]), value("scores", [1, 2, 6])]
    outputs = [value("once", None), value("places", None, INT64), value("selected", None, INT64)]
    return model(nodes, inputs, outputs, constants, opset=17)


def test_a_largest_number_makes_less_room_and_more_is_an_error(tmp_path: Path) -> None:
    """What is found has a bound of its own; `--max` lowers it."""
    path = saved(counted(), tmp_path)
    small: dict[str, int | tuple[int, int] | str] = {"places": (1, 5), "once": 4, "selected": 3}
    package = intaglio.compile(path, output=tmp_path / "p", max=small)
    packed = [np.load(tmp_path / "p" / "test" / f"out{n}.npy") for n in range(3)]
    assert all(array.size for array in packed[:2]), "test vectors are within the bounds, and not of zeros"
    assert subprocess.run([tmp_path / "p" / "bin" / "model", "--selftest"], check=False, capture_output=True).returncode == 0
    assert {size.name: (size.low, size.high) for size in package.manifest.sizes} == {
        "places_count": (1, 5), "once_count": (1, 4), "selected_count": (0, 3),
    }  # fmt: skip
    _, notes = load(path, most={"places": Room.of(Span(1, 5)), "once": 4, "selected": 3})
    assert not any("is not needed" in note for note in notes)
    apart = np.arange(6, dtype=np.float32).reshape(6, 1) * 2 + np.array([0, 0, 1, 1], np.float32)
    few = np.array([[[1, 2, 3, 4, 0, 0], [0, 0, 0, 0, 0, 0]]], np.float32)
    x = np.array([0, 1, 2, 0, 3, 1, 0, 0, 3], np.float32)
    same = np.repeat(apart[:1], 6, 0)
    got = package.run({"x": x, "boxes": same[None], "scores": few})
    assert got["places"].tolist() == [[1, 2, 4, 5, 8]] and got["once"].tolist() == [0, 1, 2, 3] and len(got["selected"]) == 1
    for wrong in ({"x": x + 1}, {"x": x * 0}, {"x": np.arange(9, dtype=np.float32) % 6 * (x > 0)}, {"boxes": apart[None]}):
        with pytest.raises(AnswerIsNo):
            package.run({"x": x, "boxes": same[None], "scores": few, **wrong})


def test_a_size_that_two_tensors_share_has_one_name(tmp_path: Path) -> None:
    nodes = [node("Greater", "x zero", "m"), node("Compress", "x m", "first"), node("Compress", "z m", "second")]
    inputs, outputs = [value("x", [9]), value("z", [9])], [value("first", None), value("second", None)]
    path = saved(model(nodes, inputs, outputs, {"zero": np.zeros((), np.float32)}), tmp_path)
    _, notes = load(path, most={"second": 4})
    assert "`--max second=4` is ignored: `second` has the size `first_count`; give `--max first_count=4`" in notes
    graph, notes = load(path, most={"first_count": 4})
    assert not notes and graph.bounds is not None and graph.bounds.ranges["first_count"] == Span(0, 4)
