"""Operators along an axis whose size has a range, against ONNX Runtime at several sizes; empty inputs too."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

import intaglio
from intaglio.errors import ModelError, UserError
from intaglio.ir.graph import Array
from support.building import needs_gcc
from support.commands import Intaglio
from support.onnx_models import ints, model, node, saved, value

RANDOM = np.random.default_rng(3)
BOOL, INT64 = onnx.TensorProto.BOOL, onnx.TensorProto.INT64
Feed = dict[str, Array]


def floats(*shape: int) -> Array:
    return RANDOM.standard_normal(shape).astype(np.float32)


def same(proto: Any, folder: Path, dims: dict[str, tuple[int, int]], feeds: list[Feed]) -> intaglio.Package:
    path = saved(proto, folder)
    package = intaglio.compile(path, output=folder / "p", dims=dims)
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    for feed in feeds:
        got = package.run(feed)
        for name, want in zip([o.name for o in session.get_outputs()], session.run(None, feed), strict=True):
            assert got[name].shape == want.shape and np.allclose(got[name], want, atol=1e-4)
    return package


def cache() -> Any:
    """A step of attention over what came before, and what comes next: `present` is one longer than `past`."""
    nodes = [
        node("Concat", "past new", "present", axis=2), node("Transpose", "present", "turned", perm=[0, 1, 3, 2]),
        node("MatMul", "q turned", "s"), node("Softmax", "s", "p", axis=-1), node("MatMul", "p present", "y"),
    ]  # fmt: skip
    inputs = [value("past", [1, 2, "P", 4]), value("new", [1, 2, 1, 4]), value("q", [1, 2, 1, 4])]
    return model(nodes, inputs, [value("present", None), value("y", None)], {})


def step(past: int) -> Feed:
    return {"past": floats(1, 2, past, 4), "new": floats(1, 2, 1, 4), "q": floats(1, 2, 1, 4)}


def test_a_cache_grows_from_nothing(tmp_path: Path) -> None:
    package = same(cache(), tmp_path, {"P": (0, 16)}, [step(n) for n in (0, 1, 5, 16)])
    assert package.validate().ok
    assert '"a size is not within its bounds: P 0..16"' in (package.folder / "src" / "model.c").read_text()
    grown: Array = np.zeros((1, 2, 0, 4), np.float32)
    for _ in range(17):
        grown = package.run({**step(0), "past": grown})["present"]
    assert grown.shape == (1, 2, 17, 4)


@needs_gcc
def test_a_call_takes_arrays_without_a_batch_and_several_samples(tmp_path: Path) -> None:
    package = same(one("Relu", [1, "T", 3]), tmp_path, {"T": (1, 9)}, [])
    x = floats(4, 5, 3)
    each = package(x)
    assert isinstance(each, np.ndarray) and np.array_equal(each, np.maximum(x, 0))
    single = package(x[2])
    assert isinstance(single, np.ndarray) and np.array_equal(single, np.maximum(x[2:3], 0))


def test_nothing_is_read_of_what_is_empty(tmp_path: Path) -> None:
    path = saved(cache(), tmp_path)
    flags = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all")
    package = intaglio.compile(path, output=tmp_path / "p", dims={"P": (0, 7)}, cflags=flags, cc="gcc")
    done = subprocess.run([package.folder / "bin" / "model", "--selftest"], capture_output=True, text=True, check=False)
    assert done.returncode == 0 and "P=0:" in done.stdout, done.stderr


def picture() -> Any:
    return one("Conv", [1, 32, "H", "W"], {"w": floats(32, 32, 3, 3), "b": floats(32)}, pads=[1, 1, 1, 1])


PIXELS: dict[str, Any] = {"H": (5, 24), "W": (7, 25)}  # of which most are computed faster by Winograd


@pytest.mark.slow
@needs_gcc
def test_patches_of_a_range_stay_inside_of_the_image(tmp_path: Path) -> None:
    flags = ("-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")
    path, out = saved(picture(), tmp_path), tmp_path / "p"
    package = intaglio.compile(path, output=out, dims=PIXELS, cflags=flags, cc="gcc", target="x86-64-v3")
    assert "winograd(m=4" in (package.folder / "manifest.json").read_text()
    done = subprocess.run([package.folder / "bin" / "model", "--selftest"], capture_output=True, text=True, check=False)
    assert done.returncode == 0 and "H=5, W=7:" in done.stdout, done.stdout + done.stderr


@needs_gcc
@pytest.mark.parametrize("target", ["x86-64-v3", pytest.param("x86-64", marks=pytest.mark.slow)])
def test_the_last_lanes_of_a_row_of_a_range_stay_inside_of_it(target: str, tmp_path: Path) -> None:
    twice = {"scales": np.asarray([1, 1, 2, 2], np.float32)}
    nodes = [
        node("Softmax", "x", "weights", axis=-1), node("GlobalAveragePool", "x", "mean"), node("ReduceMax", "x", "top", axes=[3]),
        node("Resize", "x _ scales", "near", mode="nearest"), node("Resize", "x _ scales", "between", mode="linear"),
    ]  # fmt: skip
    outputs = [value(name, None) for name in ("weights", "mean", "top", "near", "between")]
    path = saved(model(nodes, [value("x", [1, 5, "T", "T"])], outputs, twice, opset=17), tmp_path)
    flags = ("-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")
    package = intaglio.compile(path, output=tmp_path / "p", dims={"T": (1, 19)}, cflags=flags, cc="gcc", target=target)
    done = subprocess.run([package.folder / "bin" / "model", "--selftest"], capture_output=True, text=True, check=False)
    assert done.returncode == 0 and "T=1:" in done.stdout, done.stdout + done.stderr


@pytest.mark.slow
def test_patches_of_a_range_have_the_bits_of_each_size(tmp_path: Path) -> None:
    path = saved(picture(), tmp_path)
    package = intaglio.compile(path, output=tmp_path / "p", dims=PIXELS, target="x86-64-v3")
    for h, w in ((24, 25), (11, 14)):
        x = floats(1, 32, h, w)
        single = intaglio.compile(path, output=tmp_path / f"p{h}", dims={"H": h, "W": w}, target="x86-64-v3")
        assert "winograd(m=4" in (single.folder / "manifest.json").read_text()
        assert np.array_equal(package.run({"x": x})["y"], single.run({"x": x})["y"])


def quantised_picture() -> Any:
    """Convolutions of bytes of every kind, one after the other: scales of the weights differ by channel."""
    nodes: list[Any] = [node("QuantizeLinear", "x s z", "q0"), node("DequantizeLinear", "q0 s z", "d0")]
    constants: Feed = {"s": np.asarray(0.05, np.float32), "z": np.asarray(3, np.int8)}
    layers = ((16, 3, 3, 2, 1), (32, 16, 1, 1, 1), (32, 32, 3, 1, 1), (32, 1, 3, 1, 32), (32, 32, 3, 2, 1), (16, 32, 5, 1, 1))
    for n, (outs, depth, kernel, stride, group) in enumerate(layers, 1):
        weights, scale = np.clip(40 * floats(outs, depth, kernel, kernel), -127, 127), 0.02 / np.sqrt(depth) / kernel
        constants |= {f"w{n}": weights.astype(np.int8), f"z{n}": np.zeros(outs, np.int8)}
        constants[f"s{n}"] = np.linspace(scale, 2 * scale, outs, dtype=np.float32)
        nodes += [
            node("DequantizeLinear", f"w{n} s{n} z{n}", f"f{n}", axis=0),
            node("Conv", f"d{n - 1} f{n}", f"c{n}", pads=[kernel // 2] * 4, strides=[stride] * 2, group=group),
            node("QuantizeLinear", f"c{n} s z", f"q{n}"), node("DequantizeLinear", f"q{n} s z", f"d{n}"),
        ]  # fmt: skip
    nodes.append(node("Identity", f"d{len(layers)}", "y"))
    return model(nodes, [value("x", ["N", 3, "H", "W"])], [value("y", None)], constants, opset=17)


IMAGES: dict[str, Any] = {"N": (1, 2), "H": (9, 40), "W": (7, 42)}


def manifest_of(package: intaglio.Package) -> Any:
    return json.loads((package.folder / "manifest.json").read_text())


def kernels_of(package: intaglio.Package) -> list[str]:
    return [layer["kernel"].partition("(")[0] for layer in manifest_of(package)["layers"]]


@pytest.mark.slow
@needs_gcc
def test_quantised_convolutions_of_a_range_have_the_bits_and_kernels_of_each_size(tmp_path: Path) -> None:
    """And stay inside of the image, in the arena of the largest size."""
    flags = ("-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")
    path = saved(quantised_picture(), tmp_path)
    package = intaglio.compile(path, output=tmp_path / "p", dims=IMAGES, cflags=flags, cc="gcc", target="x86-64-v3")
    assert {"qwinograd", "qconv_listed", "qconv_tiles", "qdepthwise_lanes"} <= {*kernels_of(package)}
    for n, h, w in ((1, 9, 7), (1, 17, 33), (2, 32, 16), (2, 40, 42)):
        np.save(tmp_path / "x.npy", x := 3 * floats(n, 3, h, w))
        command: list[str | Path] = [package.folder / "bin" / "model", tmp_path / "x.npy", "-o", tmp_path / "y.npy"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        single = intaglio.compile(path, output=tmp_path / f"p{h}", dims={"N": n, "H": h, "W": w}, target="x86-64-v3")
        assert np.array_equal(np.load(tmp_path / "y.npy"), single.run({"x": x})["y"])
    arenas = [manifest_of(one)["memory"]["arena_bytes"] for one in (package, single)]
    assert kernels_of(package) == kernels_of(single) and arenas[0] == arenas[1]


def test_sums_and_means_over_nothing_are_zero(tmp_path: Path) -> None:
    nodes = [node("MatMul", "x w", "y"), node("ReduceSum", "y axes", "z", keepdims=0), node("ReduceMean", "y axes", "m")]
    outputs = [value("y", None), value("z", None), value("m", None)]
    proto = model(nodes, [value("x", ["T", 4])], outputs, {"w": floats(4, 3), "axes": np.asarray([0])})
    same(proto, tmp_path, {"T": (0, 12)}, [{"x": floats(n, 4)} for n in (0, 1, 12)])


def one(op: str, shape: list[int | str | None], constants: Feed | None = None, **attributes: object) -> Any:
    names = " ".join(["x", *(constants or {})])
    return model([node(op, names, "y", **attributes)], [value("x", shape)], [value("y", None)], constants or {}, opset=17)


CASES: dict[str, tuple[Callable[[], Any], tuple[int, int], tuple[int, ...], int]] = {
    "max pool, rounded up": (
        lambda: one("MaxPool", [1, 3, "T", 8], kernel_shape=[3, 3], strides=[2, 2], ceil_mode=1), (3, 12), (3, 8), 2
    ),
    "average pool, rounded up": (
        lambda: one("AveragePool", [1, 3, "T", 8], kernel_shape=[2, 2], strides=[2, 2], ceil_mode=1), (3, 12), (3, 8), 2
    ),
    "max pool, as large": (
        lambda: one("MaxPool", [1, 3, "T", 8], kernel_shape=[3, 3], strides=[2, 2], auto_pad="SAME_UPPER"), (5, 12), (3, 8), 2
    ),
    "average pool, as large": (
        lambda: one("AveragePool", [1, 3, "T", 8], kernel_shape=[3, 3], strides=[2, 2], auto_pad="SAME_LOWER"), (5, 12), (3, 8), 2
    ),
    "max pool, uneven pads": (
        lambda: one("MaxPool", [1, 3, "T", 8], kernel_shape=[3, 3], strides=[2, 2], pads=[0, 0, 1, 1]), (5, 12), (3, 8), 2
    ),
    "reflected": (
        lambda: one("Pad", [1, 3, "T", 8], {"p": np.asarray([0, 0, 2, 1, 0, 0, 2, 1])}, mode="reflect"), (3, 12), (3, 8), 2
    ),
    "layer norm over rows and columns": (
        lambda: one("LayerNormalization", [1, "T", 8], {"g": floats(1, 8), "b": floats(8)}, axis=1), (1, 12), (8,), 1
    ),
    "layer norm along the range": (lambda: one("LayerNormalization", [1, 8, "T"], {"g": floats(1)}, axis=-1), (1, 12), (8,), 2),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_an_operator_along_a_range(name: str, tmp_path: Path) -> None:
    make, (low, high), others, place = CASES[name]
    shapes = [(1, *others[: place - 1], n, *others[place - 1 :]) for n in (low, low + 1, high)]
    same(make(), tmp_path, {"T": (low, high)}, [{"x": floats(*shape)} for shape in shapes])


TO_16, TO_EIGHTS = "Sub sixteen s d", "Mod s eight m; Sub eight m n; Mod n eight d"


@pytest.mark.parametrize(("steps", "high"), [(TO_16, 16), (TO_16, 32), (TO_EIGHTS, 20)])
def test_pads_that_follow_from_a_size(steps: str, high: int, tmp_path: Path) -> None:
    """To 16 rows, which pads some and cuts others; to the next multiple of 8."""
    nodes = [node("Shape", "x", "s", start=1, end=2)]
    nodes += [node(op, f"{a} {b}", out) for op, a, b, out in (step.split() for step in steps.split("; "))]
    nodes += [node("Concat", "zeros zero d zero", "pads", axis=0), node("Pad", "x pads", "z"), node("MatMul", "z w", "y")]
    constants = {"sixteen": np.asarray([16]), "eight": np.asarray([8]), "zero": np.asarray([0]), "zeros": np.asarray([0, 0, 0])}
    outputs = [value("z", None), value("y", None)]
    proto = model(nodes, [value("x", [1, "T", 4])], outputs, {**constants, "w": floats(4, 3)}, opset=18)
    same(proto, tmp_path, {"T": (1, high)}, [{"x": floats(1, n, 4)} for n in (1, 7, 8, 9, 16, high)])


@pytest.mark.parametrize(
    ("nodes", "hint"),
    [
        ([node("Reshape", "x shape", "y")], "one package for each size: `dims={'T': N}`"),
        ([node("NonZero", "x", "found"), node("Reshape", "found shape", "y")], "only data tells `found_count`"),
    ],
)
def test_a_refusal_names_the_size(nodes: list[Any], hint: str, tmp_path: Path) -> None:
    inputs = [value("x", ["T", 4]), value("other", ["U", 4])]
    path = saved(model(nodes, inputs, [value("y", None)], {"shape": np.asarray([-1, 8])}), tmp_path)
    with pytest.raises(ModelError) as caught:
        intaglio.compile(path, dims={"T": (1, 5), "U": (1, 6)})
    assert hint in caught.value.hint and "U=" not in caught.value.message


def test_what_one_condition_chooses_has_one_size(tmp_path: Path) -> None:
    """Boxes and scores that a condition leaves, for `NonMaxSuppression`."""
    nodes = [
        node("Compress", "boxes c", "some", axis=1), node("Compress", "scores c", "theirs", axis=2),
        node("NonMaxSuppression", "some theirs most overlap least", "y"),
    ]  # fmt: skip
    constants = {"most": np.asarray([5]), "overlap": np.asarray([0.5], np.float32), "least": np.asarray([0.1], np.float32)}
    inputs = [value("boxes", [1, 10, 4]), value("scores", [1, 1, 10]), value("c", [10], BOOL)]
    feeds = [
        {"boxes": np.sort(np.abs(floats(1, 10, 4)), -1), "scores": np.abs(floats(1, 1, 10)), "c": RANDOM.random(10) < share}
        for share in (0.0, 0.3, 0.6, 1.0)
    ]
    same(model(nodes, inputs, [value("y", None, INT64)], constants), tmp_path, {}, feeds)


def test_resizing_to_a_size_by_more_than_two_elements_needs_to_know_from_which(tmp_path: Path) -> None:
    constants = {"r": np.zeros(0, np.float32), "s": np.zeros(0, np.float32), "sizes": np.asarray([1, 3, 8, 8])}
    path = saved(one("Resize", [1, 3, "H", 6], constants, mode="cubic"), tmp_path)
    with pytest.raises(ModelError, match="to a size that has a range is not supported"):
        intaglio.compile(path, dims={"H": (2, 12)})


def test_a_cache_from_nothing_on_is_told_once(tmp_path: Path, intaglio: Intaglio) -> None:
    """A range from 0: joined with rows that may be none, and no pass says the same twice."""
    nodes = [node("Concat", "past x", "present", axis=1), node("Softmax", "present", "y", axis=1)]
    cache = model(nodes, [value("past", [1, "P", 4]), value("x", [1, 1, 4])], [value("y", None), value("present", None)])
    said = intaglio("compile", saved(cache, tmp_path), "--dim", "P=0..9", "-o", tmp_path / "p")
    notes = [line for line in said.err.splitlines() if line.startswith("note:")]
    assert said.code == 0 and len(notes) == len(set(notes)) and not any("remove_identities" in line for line in notes)
    assert intaglio("validate", tmp_path / "p").code == 0


@pytest.mark.slow
def test_fit_has_the_largest_and_a_typical_time(tmp_path: Path, intaglio: Intaglio, one_board: None) -> None:
    pytest.importorskip("unicorn")
    w = np.eye(8, dtype=np.float32)
    path = saved(model([node("MatMul", "x w", "y")], [value("x", [1, "T", 8])], constants={"w": w}), tmp_path)
    words = ("--dim", "T=1..99", "--board", "nucleo-l4r5zi")
    told = intaglio("fit", path, *words, "--json").json
    assert told["typical"]["sizes"] == {"T": 50} and 0.4 < told["typical"]["cycles"] / told["cycles"] < 0.6
    assert intaglio("compile", path, *words, "-o", tmp_path / "p").code == 0
    profiled = intaglio("profile", tmp_path / "p", "--size", "T=50", "--json").json
    assert profiled["total"]["cycles"] == told["typical"]["cycles"]
    static = intaglio("fit", path, "--dim", "T=9", "--board", "nucleo-l4r5zi", "--json").json
    assert "typical" not in static


def test_layers_before_a_count_are_made_in_stripes(tmp_path: Path, intaglio: Intaglio) -> None:
    """What does not depend on a size is made to fit as ever."""
    random = np.random.default_rng(0)
    sizes = {"a": (16, 3, 3, 3), "b": (16, 16, 3, 3), "c": (8, 16, 3, 3)}
    weights = {name: (random.standard_normal(s) / 9).astype(np.float32) for name, s in sizes.items()}
    nodes = [
        node("Conv", "x a", "h1", pads=[1] * 4, strides=[2, 2]), node("Relu", "h1", "h2"), node("Conv", "h2 b", "h3", pads=[1] * 4),
        node("Relu", "h3", "h4"), node("Conv", "h4 c", "y", pads=[1] * 4, strides=[2, 2]), node("Relu", "y", "z"),
        node("NonZero", "z", "found"),
    ]  # fmt: skip
    outputs = [value("y", None), value("found", None, onnx.TensorProto.INT64)]
    path = saved(model(nodes, [value("x", [1, 3, 32, 32])], outputs, weights), tmp_path)
    said = intaglio("compile", path, "--ram", "25K", "--target", "generic", "-o", tmp_path / "p")
    assert said.code == 0 and re.search(r"stripes make the arena .*; code of \d+ kernels instead of \d+\)", said.err)
    assert intaglio("validate", tmp_path / "p").code == 0


@pytest.mark.slow
def test_sizes_at_which_the_reference_fails_are_named(tmp_path: Path, intaglio: Intaglio) -> None:
    """ONNX Runtime has no `Scan` over nothing."""
    turn = [node("Add", "s xi", "next"), node("Tanh", "next", "yi")]
    body = onnx.helper.make_graph(turn, "b", [value("s", [3]), value("xi", [3])], [value("next", [3]), value("yi", [3])])
    nodes = [node("Scan", "s0 x", "last y", body=body, num_scan_inputs=1)]
    path = saved(model(nodes, [value("s0", [3]), value("x", ["T", 3])], [value("last", [3]), value("y", None)], {}), tmp_path)
    assert intaglio("compile", path, "--dim", "T=0..5", "-o", tmp_path / "p").code == 0
    said = intaglio("validate", tmp_path / "p")
    told = " ".join(said.out.split())
    assert said.code == 0 and "T=0: NOT compared, ONNX Runtime fails on these inputs" in told and "T=5: pass" in told


def test_a_size_that_is_too_large_is_told_with_those_of_the_caller(tmp_path: Path) -> None:
    path = saved(model([node("NonZero", "x", "found")], [value("x", ["T"])], [value("found", None, INT64)], {}), tmp_path)
    package = intaglio.compile(path, dims={"T": (1, 5)})
    with pytest.raises(UserError) as caught:
        package.run({"x": floats(6)})
    assert caught.value.hint == "the sizes are `T` from 1 to 5"


def test_the_hint_of_a_largest_size_is_python(tmp_path: Path) -> None:
    constants = {"zero": np.asarray(0), "one": np.asarray(1)}
    proto = model([node("Range", "zero n one", "y")], [value("n", [], INT64)], [value("y", None, INT64)], constants)
    path = saved(proto, tmp_path)
    with pytest.raises(ModelError) as caught:
        intaglio.compile(path)
    assert "`max={'y': N}`" in caught.value.hint


def test_pads_to_a_multiple_and_to_a_least_size(tmp_path: Path) -> None:
    """Divided, multiplied and compared as single numbers, which follow from the size alone."""
    nodes = [
        node("Shape", "x", "s"), node("Gather", "s zero", "t"), node("Add", "t seven", "a"), node("Div", "a eight", "b"),
        node("Mul", "b eight", "c"), node("Max", "c least", "d"), node("Sub", "d t", "p"), node("Unsqueeze", "p first", "after"),
        node("Concat", "none after", "pads", axis=0), node("Pad", "x pads", "y"),
    ]  # fmt: skip
    numbers = {"zero": 0, "seven": 7, "eight": 8, "least": 16}
    constants = {name: np.asarray(number) for name, number in numbers.items()} | {"first": ints(0), "none": ints(0)}
    path = saved(model(nodes, [value("x", ["T"])], [value("y", None)], constants), tmp_path)
    package = intaglio.compile(path, output=tmp_path / "p", dims={"T": "1..40"})
    for size in (1, 7, 16, 17, 40):
        x = np.arange(1, size + 1, dtype=np.float32)
        y = package.run(x)["y"]
        assert len(y) == max(-(-size // 8) * 8, 16)
        np.testing.assert_array_equal(y, np.pad(x, (0, len(y) - size)))


def test_a_size_may_be_zero(tmp_path: Path, intaglio: Intaglio) -> None:
    """What a decoder remembers before its first word."""
    nodes = [node("Concat", "past x", "now", axis=1), node("MatMul", "now w", "y"), node("Relu", "past", "old")]
    given = [value("past", [1, "P", 8]), value("x", [1, 2, 8])]
    path = saved(model(nodes, given, [value("y", None), value("old", None)], {"w": np.ones((8, 3), np.float32)}), tmp_path)
    for words in (["--dim", "P=0"], ["--shape", "past=1,0,8"]):
        assert intaglio("compile", path, *words, "-o", tmp_path / "p", "--force").code == 0
        assert intaglio("validate", tmp_path / "p").code == 0
    refused = intaglio("compile", path, "--max", "y=0", "-o", tmp_path / "q")
    assert refused.code == 2 and "is not a size" in refused.err
