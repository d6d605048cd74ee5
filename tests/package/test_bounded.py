"""Packages whose sizes the caller gives: one arena for the largest, results for every size, an error for every other."""

from __future__ import annotations

import ctypes
import json
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import intaglio
from intaglio.errors import ModelError, UserError
from intaglio.frontends.onnx import load
from intaglio.ir.graph import Array
from intaglio.ir.spans import Span
from intaglio.run.package import Package
from intaglio.targets.target import find_target, lacking
from support.commands import Intaglio
from support.onnx_models import FLOAT, INT64, ints, model, node, saved, value

MOST = 24


def weights(*shape: int) -> Array:
    return (np.random.default_rng(sum(shape)).standard_normal(shape) * 0.3).astype(np.float32)


def attention() -> Any:
    """Embeddings, positions up to the length, attention over the length, a mean over it."""
    nodes = [
        node("Gather", "table ids", "words"),
        node("Shape", "ids", "shape"), node("Gather", "shape one", "length"),
        node("Range", "zero length one", "places"), node("Gather", "positions places", "at"),
        node("Add", "words at", "x"),
        node("MatMul", "x q", "xq"), node("MatMul", "x k", "xk"),
        node("Transpose", "xk", "kt", perm=[0, 2, 1]), node("MatMul", "xq kt", "scores"), node("Softmax", "scores", "weights"),
        node("MatMul", "weights x", "mixed"), node("LayerNormalization", "mixed scale shift", "hidden"),
        node("ReduceMean", "hidden axis", "mean", keepdims=0),
    ]  # fmt: skip
    constants = {
        "table": weights(30, 16), "positions": weights(MOST, 16), "q": weights(16, 16), "k": weights(16, 16),
        "scale": weights(16), "shift": weights(16), "zero": np.asarray(0), "one": np.asarray(1), "axis": ints(1),
    }  # fmt: skip
    return model(nodes, [value("ids", [1, "T"], INT64)], [value("hidden", None), value("mean", None)], constants)


@pytest.fixture(scope="module")
def onnx_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return saved(attention(), tmp_path_factory.mktemp("model"), "words.onnx")


@pytest.fixture(scope="module")
def package(onnx_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Package:
    return intaglio.compile(onnx_file, output=tmp_path_factory.mktemp("package") / "words", dims={"T": (1, MOST)})


def expected(path: Path, ids: Array) -> dict[str, Array]:
    import onnxruntime

    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    return dict(zip(("hidden", "mean"), session.run(["hidden", "mean"], {"ids": ids}), strict=True))


def drawn(length: int) -> Array:
    return np.asarray(np.random.default_rng(length).integers(0, 30, (1, length))).astype(np.int64)


def test_every_length_is_right(package: Package, onnx_file: Path) -> None:
    for length in (1, 2, 7, 8, 17, MOST):
        got, want = package.run({"ids": drawn(length)}), expected(onnx_file, drawn(length))
        for name, array in want.items():
            assert got[name].shape == array.shape
            assert np.abs(got[name] - array).max() < 1e-5


def test_a_length_outside_of_the_bounds_is_refused(package: Package) -> None:
    with pytest.raises(UserError, match=r"`T` is 25, which is not within 1\.\.24"):
        package.run({"ids": drawn(MOST + 1)})


def test_the_library_touches_nothing_where_a_size_is_wrong(package: Package) -> None:
    library = ctypes.CDLL(str(package.folder / "lib" / "libwords.so"))
    arena = np.full(package.manifest.memory.arena_bytes + 64, 7, np.uint8)
    outputs = [np.full(info.shape, 7, np.float32) for info in package.manifest.outputs]
    start = arena.ctypes.data + -arena.ctypes.data % 64
    for length in (0, MOST + 1, 2**40):
        given = (ctypes.c_size_t * 2)(drawn(MOST).ctypes.data, length)
        taken = (ctypes.c_size_t * 5)(*[a.ctypes.data for a in outputs], 7, 7, 7)
        assert library.words_run_in(ctypes.c_void_p(start), given, taken) == 3
        assert (arena == 7).all() and all((a == 7).all() for a in outputs) and list(taken)[2:] == [7, 7, 7]


def test_the_shape_of_an_output_is_reported(package: Package) -> None:
    library = ctypes.CDLL(str(package.folder / "lib" / "libwords.so"))
    ids, outputs = drawn(5), [np.zeros(info.shape, np.float32) for info in package.manifest.outputs]
    given = (ctypes.c_size_t * 2)(ids.ctypes.data, 5)
    taken = (ctypes.c_size_t * 5)(*[a.ctypes.data for a in outputs], 0, 0, 0)
    assert library.words_run(given, taken) == 0
    assert list(taken)[2:] == [1, 5, 16]


def test_the_arena_is_that_of_the_largest(package: Package, onnx_file: Path, tmp_path: Path) -> None:
    alone = intaglio.compile(onnx_file, output=tmp_path / "p", dims={"T": MOST}, library_only=True)
    assert package.manifest.memory.arena_bytes == alone.manifest.memory.arena_bytes


def test_manifest_header_and_text_name_the_size(package: Package) -> None:
    manifest = json.loads((package.folder / "manifest.json").read_text())
    assert manifest["sizes"] == [{"name": "T", "low": 1, "high": MOST, "found": False, "step": 1}]
    assert manifest["inputs"][0]["dims"] == ["1", "T"]
    header = (package.folder / "include" / "words.h").read_text()
    assert "size_t size_T; /* 1 to 24 */" in header and "WORDS_SIZE_OUT_OF_BOUNDS" in header
    text = (package.folder / "ir" / "words.ig").read_text()
    assert "size T = 1..24\n" in text and "input ids: i64[1,T<=24]" in text


def test_the_application_takes_the_size_from_its_files(package: Package, tmp_path: Path) -> None:
    program = package.folder / "bin" / "words"
    assert subprocess.run([program, "--selftest"], capture_output=True, check=False).returncode == 0
    np.save(tmp_path / "ids.npy", drawn(9))
    said = subprocess.run([program, tmp_path / "ids.npy", "-o", f"{tmp_path}/"], capture_output=True, text=True, check=False)
    assert said.returncode == 0, said.stderr
    assert np.load(tmp_path / "hidden.npy").shape == (1, 9, 16)
    drawn(9).tofile(tmp_path / "ids.bin")
    for words, code in ((["--size", "T=9"], 0), ([], 2), (["--size", "T=10"], 2), (["--size", "T=99"], 2), (["--size", "S=9"], 2)):
        got = subprocess.run([program, tmp_path / "ids.bin", *words], capture_output=True, text=True, check=False)
        assert got.returncode == code, got.stderr


def test_validate_and_profile_know_sizes(package: Package, intaglio: Intaglio) -> None:
    said = intaglio("validate", package.folder, "--json")
    assert said.code == 0, said.err
    sizes = [row["sizes"]["T"] for row in json.loads(said.out)["sizes"]]
    assert {1, MOST} <= set(sizes) and len(sizes) > 3
    few = json.loads(intaglio("profile", package.folder, "--runs", "2", "--json", "--size", "T=3").out)
    assert 0 < few["total"]["macs"] < sum(layer.macs for layer in package.manifest.layers) / 4
    assert intaglio("profile", package.folder, "--size", "T=99").code == 2


def test_an_ir_file_keeps_its_sizes(package: Package, onnx_file: Path, tmp_path: Path) -> None:
    again = intaglio.compile(package.folder / "ir" / "words.ig", output=tmp_path / "p")
    assert np.array_equal(again.run({"ids": drawn(6)})["mean"], package.run({"ids": drawn(6)})["mean"])


def test_firmware_runs_at_every_size(onnx_file: Path, tmp_path: Path) -> None:
    firmware = intaglio.compile(onnx_file, output=tmp_path / "p", dims={"T": (1, MOST)}, target="cortex-m4f")
    for length in (1, 5, MOST):
        got, want = firmware.run({"ids": drawn(length)}), expected(onnx_file, drawn(length))
        assert got["hidden"].shape == (1, length, 16) and np.abs(got["hidden"] - want["hidden"]).max() < 1e-5


# What is refused -------------------------------------------------------------------------------------------------------


def test_what_a_size_decides_is_refused_with_the_node(tmp_path: Path) -> None:
    """T times four numbers are rows of eight only where T is even."""
    nodes = [node("Shape", "x", "s"), node("Slice", "s one two", "t"), node("Tile", "w t", "v"), node("Reshape", "v rows", "y")]
    constants = {"one": ints(1), "two": ints(2), "w": weights(4), "rows": ints(-1, 8)}
    path = saved(model(nodes, [value("x", [2, "T"])], constants=constants), tmp_path)
    with pytest.raises(ModelError, match="holds for some of T=1..4 and not for others".replace(".", r"\.")) as caught:
        load(path, dims={"T": Span(1, 4)})
    assert caught.value.slug == "size-decides" and "narrower range" in caught.value.hint and "Reshape" in caught.value.message


def test_too_many_combinations_are_refused(tmp_path: Path) -> None:
    path = saved(model([node("Relu", "x", "y")], [value("x", ["A", "B"], FLOAT)]), tmp_path)
    with pytest.raises(ModelError, match="combinations of sizes"):
        load(path, dims={"A": Span(1, 10000), "B": Span(1, 10000)})


@pytest.mark.parametrize("word", ["T=5..2", "T=1..", "T=..4", "T=1..x", "T=1...4"])
def test_damaged_ranges_are_refused(word: str, onnx_file: Path, intaglio: Intaglio, tmp_path: Path) -> None:
    said = intaglio("compile", onnx_file, "-o", tmp_path / "p", "--dim", word)
    assert said.code == 2 and "error[bad-option]" in said.err and not any(tmp_path.iterdir())


def test_a_range_of_one_size_is_that_size(onnx_file: Path) -> None:
    graph, _ = load(onnx_file, dims={"T": 7})
    assert graph.bounds is None and graph.inputs[0].shape == (1, 7)


def test_integers_are_equal_at_every_size(tmp_path: Path) -> None:
    """Rows of an 8-bit product, by the tiles of static shapes."""
    random = np.random.default_rng(5)
    scalars = {name: np.asarray(scale, np.float32) for name, scale in (("sx", 0.02), ("sw", 0.01), ("sy", 0.05))}
    constants = {**scalars, "zx": np.asarray(3, np.int8), "zw": np.asarray(0, np.int8), "zy": np.asarray(-5, np.int8)}
    constants["w"] = random.integers(-127, 128, (40, 24)).astype(np.int8)
    nodes = [node("QLinearMatMul", "x sx zx w sw zw sy zy", "y")]
    kind = 3  # INT8
    path = saved(model(nodes, [value("x", ["N", 40], kind)], [value("y", None, kind)], constants), tmp_path)
    package = intaglio.compile(path, output=tmp_path / "p", dims={"N": (1, 19)}, target="x86-64-v3")
    assert "using qmatmul_tiles" in (tmp_path / "p" / "ir" / "model.ig").read_text()
    if not lacking(find_target("x86-64-v3")):
        import onnxruntime

        session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
        for rows in range(1, 20):
            x = random.integers(-128, 128, (rows, 40)).astype(np.int8)
            assert np.array_equal(package.run({"x": x})["y"], session.run(["y"], {"x": x})[0])


def test_fields_of_the_struct_do_not_meet(tmp_path: Path) -> None:
    """An input called as the field of a size, an output called as the field of a shape."""
    nodes = [node("Relu", "size_N", "y"), node("Abs", "size_N", "shape_of_y")]
    outputs = [value("y", None), value("shape_of_y", None)]
    path = saved(model(nodes, [value("size_N", [1, "N", 3])], outputs), tmp_path)
    package = intaglio.compile(path, dims={"N": (1, 5)}, library_only=True)
    x = np.arange(6, dtype=np.float32).reshape(1, 2, 3) - 3
    got = package.run({"size_N": x})
    assert np.array_equal(got["y"], np.maximum(x, 0)) and np.array_equal(got["shape_of_y"], np.abs(x))


def test_two_ranges_of_one_dimension_are_refused(tmp_path: Path) -> None:
    path = saved(model([node("Add", "x z", "y")], [value(n, [1, "T"]) for n in "xz"]), tmp_path)
    with pytest.raises(ModelError, match=r"the dimension `T` is 1\.\.5 and 1\.\.9"):
        load(path, shapes={"x": (1, Span(1, 5)), "z": (1, Span(1, 9))})
    graph, _ = load(path, shapes={"z": (1, Span(1, 9)), "in0": (1, Span(1, 9))})
    assert graph.inputs[0].shape == graph.inputs[1].shape
