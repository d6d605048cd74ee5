"""Results whose number depends on data: as many as ONNX Runtime finds, within the memory of the most."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import intaglio
from intaglio.errors import AnswerIsNo, ModelError, UserError
from intaglio.frontends.onnx import load
from intaglio.ir.graph import Array
from intaglio.ir.spans import Span
from intaglio.ir.text import parse_graph, print_graph
from intaglio.ops.base import BadOperator
from intaglio.ops.evaluate import evaluate_graph
from intaglio.run.package import Package
from support.commands import Intaglio
from support.onnx_models import BOOL, FLOAT, INT64, ints, model, node, onnx, saved, value

BOXES, CLASSES = 24, 2


def finder() -> Any:
    """Boxes that remain, numbers above zero, columns by a condition, what is there once, a slice and a count to computed ends."""
    nodes = [
        node("NonMaxSuppression", "boxes scores most overlap least", "selected"),
        node("Gather", "selected two", "which", axis=1), node("Gather", "boxes which", "kept", axis=1),
        node("Relu", "x", "positive"), node("NonZero", "positive", "places"),
        node("Greater", "row zero", "condition"), node("Compress", "x condition", "columns", axis=1),
        node("Round", "row", "rounded"), node("Unique", "rounded", "once first inverse numbers"),
        node("TopK", "row k", "best at"), node("Add", "k one", "end"),
        node("Slice", "x one end axis", "cut"), node("ReduceSum", "cut axis", "total", keepdims=0),
        node("Squeeze", "k", "limit"), node("Range", "start limit step", "steps"),
    ]  # fmt: skip
    constants = {
        "most": ints(5), "overlap": np.array([0.3], np.float32), "least": np.array([0.2], np.float32), "two": np.asarray(2),
        "zero": np.asarray(0.0, np.float32), "one": ints(1), "axis": ints(1), "start": np.asarray(0), "step": np.asarray(1),
    }  # fmt: skip
    inputs = [
        value("boxes", [1, BOXES, 4]), value("scores", [1, CLASSES, BOXES]), value("x", [3, 7]), value("row", [7]),
        value("k", [1], INT64),
    ]  # fmt: skip
    floats = ["kept", "columns", "once", "best", "cut", "total"]
    numbers = ["selected", "places", "first", "inverse", "numbers", "at", "steps"]
    outputs = [*(value(n, None, FLOAT) for n in floats), *(value(n, None, INT64) for n in numbers)]
    return model(nodes, inputs, outputs, constants, opset=17)


@pytest.fixture(scope="module")
def onnx_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return saved(finder(), tmp_path_factory.mktemp("model"), "finder.onnx")


@pytest.fixture(scope="module")
def package(onnx_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Package:
    return intaglio.compile(onnx_file, output=tmp_path_factory.mktemp("package") / "finder", max={"steps": 8})


def drawn(seed: int) -> dict[str, Array]:
    random = np.random.default_rng(seed)
    inputs: dict[str, Array] = {
        "boxes": random.random((1, BOXES, 4)), "scores": random.random((1, CLASSES, BOXES)) * random.random(),
        "x": random.standard_normal((3, 7)) - seed % 5 / 2, "row": random.standard_normal(7) * 2 - seed % 4,
    }  # fmt: skip
    return {**{name: array.astype(np.float32) for name, array in inputs.items()}, "k": ints(int(random.integers(0, 6)))}


def differences(got: dict[str, Array], want: dict[str, Array]) -> list[str]:
    off = [name for name, a in want.items() if got[name].shape != a.shape]
    return off + [name for name, a in want.items() if name not in off and a.size and np.abs(got[name] - a).max() > 1e-5]


def references(path: Path, inputs: Sequence[dict[str, Array]]) -> list[dict[str, Array]]:
    import onnxruntime

    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    return [dict(zip(names, session.run(names, one), strict=True)) for one in inputs]


def test_as_many_are_found_as_the_reference_finds(package: Package, onnx_file: Path) -> None:
    inputs = [drawn(seed) for seed in range(100)]
    wanted = references(onnx_file, inputs)
    for one, want in zip(inputs, wanted, strict=True):
        assert not differences(package.run(one), want)
    assert all(len({w[name].shape for w in wanted}) > 2 for name in ("selected", "places", "columns", "once", "cut", "steps"))


def test_a_size_that_is_too_large_is_an_error(package: Package) -> None:
    with pytest.raises(AnswerIsNo) as caught:
        package.run({**drawn(0), "k": ints(8)})
    assert caught.value.slug == "size-out-of-bounds" and "steps_length 0..8" in caught.value.message


def test_memory_has_room_for_the_most(package: Package) -> None:
    manifest = json.loads((package.folder / "manifest.json").read_text())
    found = {size["name"]: size["high"] for size in manifest["sizes"] if size["found"]}
    assert found["selected_count"] == 5 * CLASSES and found["places_count"] == 21 and found["steps_length"] == 8
    selected = next(info for info in manifest["outputs"] if info["name"] == "selected")
    assert selected["shape"] == [10, 3] and selected["dims"] == ["selected_count", "3"]


def test_the_package_validates_and_tests_itself(package: Package, intaglio: Intaglio) -> None:
    assert intaglio("validate", package.folder).code == 0
    said = subprocess.run([package.folder / "bin" / "finder", "--selftest"], capture_output=True, text=True, check=False)
    assert said.returncode == 0, said.stdout


def test_steps_of_different_numbers_are_not_stacked(package: Package) -> None:
    two = {name: np.stack([drawn(1)[name], drawn(2)[name]]) for name in drawn(1)}
    with pytest.raises(UserError, match="different sizes in different steps"):
        package.run_steps(two)


def test_firmware_finds_the_same(onnx_file: Path, tmp_path: Path) -> None:
    firmware = intaglio.compile(onnx_file, output=tmp_path / "p", target="cortex-m4f", max={"steps": 8})
    inputs = [drawn(seed) for seed in (1, 2)]
    for one, want in zip(inputs, references(onnx_file, inputs), strict=True):
        assert not differences(firmware.run(one), want)


def test_the_text_says_where_a_size_comes_from(onnx_file: Path) -> None:
    graph, _ = load(onnx_file, most={"steps": 8})
    text = print_graph(graph)
    assert "size selected_count = 0..10 of " in text
    arrays = {v.name: v.data for v in graph.constants() if v.data is not None}
    assert print_graph(parse_graph(text, arrays)) == text


def test_a_length_without_a_bound_asks_for_one(onnx_file: Path) -> None:
    with pytest.raises(ModelError, match="the length of `Range` depends on data") as caught:
        load(onnx_file)
    assert "`--max steps=N`" in caught.value.hint


# Models that a new user tried ----------------------------------------------------------------------------------------

X = value("x", ["B", "T", 3])
ROW = value("row", [9])
POSITIVE = [node("Relu", "row", "p"), node("NonZero", "p", "places"), node("Squeeze", "places zero", "at")]
SMALL: dict[str, Any] = {
    "sizes in another order": model([node("Relu", "x", "y")], [X]),
    "the last step": model([node("Gather", "x last", "y", axis=1)], [X], constants={"last": np.asarray(-1)}),
    "steps from both ends": model([node("Gather", "x ends", "y", axis=1)], [X], constants={"ends": ints(0, -1)}),
    "as many as there are": model(
        [node("Shape", "x", "s", start=1, end=2), node("Min", "s five", "k"), node("TopK", "x k", "y i", axis=1)], [X],
        constants={"five": ints(5)},
    ),
    "the count": model(
        [*POSITIVE, node("Shape", "at", "y")], [ROW], [value("y", None, INT64)], constants={"zero": ints(0)}
    ),
    "the count as a number": model(
        [*POSITIVE, node("Shape", "at", "n"), node("Cast", "n", "f", to=FLOAT), node("Div", "row f", "y")], [ROW],
        constants={"zero": ints(0)},
    ),
    "as long as the count": model(
        [*POSITIVE, node("Shape", "at", "n"), node("Slice", "row zero n", "y")], [ROW], constants={"zero": ints(0)}
    ),
    "normalised along the range": model(
        [node("LayerNormalization", "x one", "y", axis=1)], [value("x", ["B", "T"])], constants={"one": np.ones(1, np.float32)}
    ),
    "a pool that rounds up": model(
        [node("Transpose", "x", "t", perm=[0, 2, 1]),
         node("MaxPool", "t", "p", kernel_shape=[2], strides=[2], ceil_mode=1, pads=[1, 0]),
         node("AveragePool", "t", "q", kernel_shape=[1], strides=[3], ceil_mode=1), node("Concat", "p q", "y", axis=2)], [X],
    ),
    "a reflected edge": model(
        [node("Concat", "x x", "two", axis=1), node("Pad", "two p", "y", mode="reflect")], [X],
        constants={"p": ints(0, 1, 0, 0, 1, 0)},
    ),
    "once of those that are found": model(
        [node("Greater", "row z", "c"), node("Compress", "row c", "k", axis=0), node("Round", "k", "r"), node("Unique", "r", "y")],
        [ROW], constants={"z": np.float32(1)},
    ),
    "sums of none": model(
        [*POSITIVE, node("Reshape", "at column", "c"), node("Gather", "row c", "g", axis=0),
         node("Expand", "g three", "w"), node("ReduceSum", "w one", "s", keepdims=0),
         node("ReduceMean", "c", "mean", axes=[1], keepdims=0), node("Cast", "mean", "m", to=FLOAT), node("Add", "s m", "y")],
        [ROW], constants={"zero": ints(0), "column": ints(-1, 1), "three": ints(1, 3), "one": ints(1)}, opset=17,
    ),
    "joined": model(
        [*POSITIVE, node("Gather", "row at", "found"), node("Concat", "found found row", "y", axis=0)], [ROW],
        constants={"zero": ints(0)},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", SMALL)
def test_small_models_with_sizes(name: str, tmp_path: Path) -> None:
    import onnxruntime

    path = saved(SMALL[name], tmp_path)
    moves = SMALL[name].graph.input[0].name == "x"
    package = intaglio.compile(path, dims={"T": (1, 9), "B": (1, 3)} if moves else {}, library_only=True)
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    for t, b in ((1, 1), (1, 3), (9, 1), (4, 2), (9, 3)):
        shape = (b, t, 3)[: len(SMALL[name].graph.input[0].type.tensor_type.shape.dim)] if moves else 9
        array = np.random.default_rng(t * b).standard_normal(shape).astype(np.float32)
        given = {"x" if moves else "row": array}
        want, got = session.run(["y"], given)[0], package.run(given)["y"]
        assert got.shape == want.shape and np.allclose(got, want, equal_nan=True), (t, b)


def test_a_computed_number_of_boxes(tmp_path: Path) -> None:
    proto = model(
        [node("NonMaxSuppression", "boxes scores k overlap", "y")],
        [value("boxes", [1, 8, 4]), value("scores", [1, 2, 8]), value("k", [1], INT64)], [value("y", None, INT64)],
        constants={"overlap": np.array([0.4], np.float32)},
    )  # fmt: skip
    path = saved(proto, tmp_path)
    package = intaglio.compile(path, library_only=True)
    random = np.random.default_rng(0)
    some = {name: random.random(shape).astype(np.float32) for name, shape in (("boxes", (1, 8, 4)), ("scores", (1, 2, 8)))}
    given = [{**some, "k": ints(k)} for k in (0, 1, 3, 100)]
    for one, want in zip(given, references(path, given), strict=True):
        assert not differences(package.run(one), want)


def test_a_bound_of_a_tensor_that_is_not_there_is_an_error(onnx_file: Path) -> None:
    for asked in ({"steps": 8, "stepz": 8}, {"stepz": 8}):  # also where the name that is wrong is what the model misses
        with pytest.raises(ModelError, match="no tensor of the model") as caught:
            load(onnx_file, most=asked)
        assert "`steps`" in caught.value.hint


def test_more_than_there_are_for_every_size_is_an_error(tmp_path: Path) -> None:
    nodes = [node("TopK", "x k", "y i", axis=1)]
    path = saved(model(nodes, [value("x", [2, "T"])], [value("y", None), value("i", None, INT64)], {"k": ints(10)}), tmp_path)
    with pytest.raises(ModelError, match="takes 10 of at most 8 elements, for every size of the range") as caught:
        load(path, dims={"T": Span(1, 8)})
    assert caught.value.hint == "give a range that reaches that far"
    package = intaglio.compile(path, dims={"T": (1, 16)}, output=tmp_path / "p")
    vectors = [np.load(path) for path in sorted((tmp_path / "p" / "test").rglob("in0.npy"))]
    assert len(vectors) == 4 and all(array.shape[1] >= 10 for array in vectors), "sizes that ONNX Runtime takes"
    subprocess.run([tmp_path / "p" / "bin" / "model", "--selftest"], check=True, capture_output=True)
    with pytest.raises(AnswerIsNo):
        package.run({"x": np.zeros((2, 9), np.float32)})


def test_a_package_of_ir_text_with_a_range_from_0_validates(tmp_path: Path, intaglio: Intaglio) -> None:
    """Random indices are out of range for the numpy references: they are drawn smaller."""
    nodes = [node("Gather", "table ids", "x"), node("Relu", "x", "y")]
    table = np.arange(12, dtype=np.float32).reshape(6, 2)
    path = saved(model(nodes, [value("ids", ["B", "T"], INT64)], constants={"table": table}), tmp_path)
    sizes = ("--dim", "B=1..2", "--dim", "T=0..3")
    assert intaglio("compile", path, *sizes, "-o", tmp_path / "m.ig", "--stop-after", "memory").code == 0
    assert intaglio("compile", tmp_path / "m.ig", "-o", tmp_path / "p").code == 0
    said = intaglio("validate", tmp_path / "p")
    assert said.code == 0 and "T=0" in said.out
    assert intaglio("profile", tmp_path / "p", "--size", "B=2", "--size", "T=0").code == 0


def _branches(then: Any, other: Any) -> Any:
    """b says which branch is taken; they have results of different shapes."""
    graphs = [onnx.helper.make_graph([one], "branch", [], [value(one.output[0], None)]) for one in (then, other)]
    nodes = [node("If", "b", "y", then_branch=graphs[0], else_branch=graphs[1])]
    return model(nodes, [value("b", [], BOOL), value("x", [3])], [value("y", None)])


def test_branches_of_different_shapes_that_are_the_result(tmp_path: Path) -> None:
    path = saved(_branches(node("Relu", "x", "t"), node("Concat", "x x", "e", axis=0)), tmp_path)
    package = intaglio.compile(path, output=tmp_path / "p")
    assert package.validate().ok
    x = np.array([1.0, -2.0, 3.0], np.float32)
    for b, want in ((True, np.maximum(x, 0)), (False, np.concatenate([x, x]))):
        np.testing.assert_array_equal(package.run({"b": np.array(b), "x": x})["y"], want)


def test_vectors_of_a_branch_that_was_left_out_are_not_kept(tmp_path: Path) -> None:
    """A scalar and three numbers are never one result: the branch that does not fit fails when it is taken."""
    path = saved(_branches(node("ReduceSum", "x", "t", keepdims=0), node("Identity", "x", "e")), tmp_path)
    package = intaglio.compile(path, output=tmp_path / "p")
    x = np.array([1.0, -2.0, 3.0], np.float32)
    np.testing.assert_array_equal(package.run({"b": np.array(True), "x": x})["y"], np.float32(2.0))
    with pytest.raises(AnswerIsNo, match="contradicts"):
        package.run({"b": np.array(False), "x": x})


def test_integers_whose_number_depends_on_data_are_compared_with_floats(tmp_path: Path) -> None:
    nodes = [node("Compress", "x m", "c", axis=0), node("MatMul", "c w", "p"), node("Relu", "p", "y")]
    weights = {"w": np.random.default_rng(0).standard_normal((4, 5)).astype(np.float32)}
    proto = model(nodes, [value("x", [12, 4]), value("m", [12], BOOL)], [value("y", None)], weights)
    package = intaglio.compile(saved(proto, tmp_path), output=tmp_path / "p", quantize="int8")
    assert package.validate().ok


LOW, HIGH = -(2**63), 2**63 - 1
STEPS: list[tuple[str, Any, Any, Any]] = [
    ("l", 0, HIGH, 2), ("l", -(2**62), 2**62, 2**59), ("l", LOW, HIGH, 1), ("l", LOW, HIGH, 2**60), ("l", HIGH, LOW, -1),
    ("l", HIGH, LOW, -(2**61)), ("l", HIGH, LOW, LOW), ("l", LOW, LOW + 1, HIGH), ("l", HIGH, LOW, 1), ("l", LOW, HIGH, -3),
    ("l", 3, 3, 1), ("l", 3, 20, 5), ("l", 20, 3, -5), ("l", 0, 9, 0), ("l", 0, 16, 1), ("l", 0, 17, 1),
    ("i", -(2**31), 2**31 - 1, 1), ("i", -(2**31), 2**31 - 1, 2**28), ("i", 2**31 - 1, -(2**31), -(2**30)), ("i", 4, 1, 0),
    ("i", 9, 0, -2), ("f", 0, 1, 0.25), ("f", 1, -1, -0.3), ("f", 0, 1, 0), ("f", 0, 0, 0), ("f", 1, 0, 0), ("f", 0, 1, np.nan),
    ("f", np.nan, 1, 1), ("f", 0, np.nan, 1), ("f", 0, np.inf, 1), ("f", 0, -3e38, 1e-3), ("f", 0, 3e38, 1e-3), ("f", 0, 1, -1),
]  # fmt: skip


def test_steps_are_counted_without_overflow_or_told_to_be_too_many(tmp_path: Path) -> None:
    kinds: dict[str, tuple[int, Any]] = {"l": (INT64, np.int64), "i": (6, np.int32), "f": (FLOAT, np.float32)}
    inputs = [value(f"{kind}{n}", [], code) for kind, (code, _) in kinds.items() for n in "abd"]
    outputs = [value(f"{kind}y", None, code) for kind, (code, _) in kinds.items()]
    nodes = [node("Range", f"{kind}a {kind}b {kind}d", f"{kind}y") for kind in kinds]
    path = saved(model(nodes, inputs, outputs, {}), tmp_path)
    package = intaglio.compile(path, max={f"{kind}y": 16 for kind in kinds}, library_only=True)
    meaning, _ = load(path, most={f"{kind}y": 16 for kind in kinds})
    usual = {f"{kind}{n}": np.asarray(1, dtype) for kind, (_, dtype) in kinds.items() for n in "abd"}
    for kind, *ends in STEPS:
        given = {**usual, **{f"{kind}{n}": np.asarray(end, kinds[kind][1]) for n, end in zip("abd", ends, strict=True)}}
        start, limit, delta = (float(given[f"{kind}{n}"]) if kind == "f" else int(given[f"{kind}{n}"]) for n in "abd")
        count = (np.ceil((limit - start) / delta) if kind == "f" else -((start - limit) // delta)) if delta else np.nan
        if not count <= 16:
            with pytest.raises(AnswerIsNo) as caught:
                package.run(given)
            assert caught.value.slug == "size-out-of-bounds", ends
            with pytest.raises(BadOperator):
                evaluate_graph(meaning, given)
            continue
        want = np.asarray([start + n * delta for n in range(max(0, int(count)))]).astype(kinds[kind][1])
        for got in (package.run(given), evaluate_graph(meaning, given)):
            assert got[f"{kind}y"].shape == want.shape and np.allclose(got[f"{kind}y"], want, rtol=1e-6, atol=0), ends
