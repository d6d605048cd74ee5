"""From a float model to integers on the command line: accuracy, the account, what is kept, what is refused."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_digits

from intaglio.ir.graph import Array
from support.commands import DIGITS, DIGITS_DATA, Intaglio
from support.onnx_models import model, node, saved, value
from support.shared import SHARED, needs_shared


@pytest.fixture
def digits(tmp_path: Path) -> tuple[Path, Path, Array]:
    """All digits of scikit-learn as calibration data and labels."""
    data = load_digits()
    images = (data.images / 16).astype(np.float32)[:, None, None]
    np.savez(tmp_path / "images.npz", image=images)
    np.save(tmp_path / "labels.npy", data.target)
    return tmp_path / "images.npz", tmp_path / "labels.npy", images


def test_digits_lose_less_than_a_point(intaglio: Intaglio, digits: tuple[Path, Path, Array], tmp_path: Path) -> None:
    images, labels, _ = digits
    np.savez(tmp_path / "few.npz", image=np.load(images)["image"][:300])
    np.save(tmp_path / "some.npy", np.load(labels)[:300])
    words: list[str | Path] = ["compile", DIGITS, "-o", tmp_path / "p", "--quantize", "int8", "--calibrate", tmp_path / "few.npz"]
    said = intaglio(*words, "--labels", tmp_path / "some.npy", "--json")
    assert said.code == 0, said.err
    accuracy, account = said.json["accuracy"], said.json["quantization"]
    assert accuracy["float"] > 0.97
    assert accuracy["quantized"] >= accuracy["float"] - 0.01
    assert account["samples"] == 300 and set(account["tried"]) >= {"minmax", "percentile", "entropy", "mse"}
    assert [row["op"] for row in account["layers"]] == ["conv", "conv", "matmul", "softmax"]
    assert all(0 <= row["alone"] < 0.2 and 0 <= row["accumulated"] < 0.3 for row in account["layers"])
    ops = {layer["op"] for layer in json.loads((tmp_path / "p" / "manifest.json").read_text())["layers"]}
    assert {"qconv", "qmatmul", "qsoftmax"} <= ops and not ops & {"conv", "matmul"}
    checked = intaglio("validate", tmp_path / "p", "--inputs", shown_digits(tmp_path), "--steps")
    assert checked.code == 0, checked.out
    assert "to the float model" in checked.out and "numpy references" in checked.out


def shown_digits(folder: Path) -> Path:
    path = folder / "shown.npz"
    np.savez(path, image=np.load(DIGITS_DATA)["image"])
    return path


@pytest.mark.slow
@needs_shared
def test_gestures_trained_here_lose_less_than_a_point(intaglio: Intaglio, tmp_path: Path) -> None:
    script = Path(__file__).parents[2] / "scripts" / "make_gesture_model.py"
    command = [sys.executable, str(script), str(SHARED / "data" / "wand5"), str(tmp_path / "gestures.onnx")]
    reached = float(subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()[0]) / 100
    assert reached >= 0.8
    words: list[str | Path] = ["compile", tmp_path / "gestures.onnx", "-o", tmp_path / "p", "--quantize", "int8"]
    assert intaglio(*words, "--calibrate", tmp_path / "gestures-calibration.npz").code == 0
    data = np.load(tmp_path / "gestures.npz")
    np.savez(tmp_path / "x.npz", imu=data["imu"][:, None])
    np.save(tmp_path / "y.npy", data["labels"])
    said = intaglio("validate", tmp_path / "p", "--inputs", tmp_path / "x.npz", "--steps", "--labels", tmp_path / "y.npy", "--json")
    assert said.json["accuracy"]["package"] >= said.json["accuracy"]["reference"] - 0.01
    assert said.json["accuracy"]["reference"] == pytest.approx(reached)


NETWORKS = [pytest.param(name, marks=pytest.mark.slow) for name in ("mlperf_ic_f32", "mlperf_vww_f32", "tmx_mbnet96_0.25_f")]


@needs_shared
@pytest.mark.parametrize("name", NETWORKS)
def test_networks_of_others_stay_close(name: str, intaglio: Intaglio, tmp_path: Path) -> None:
    reference = np.load(SHARED / "ref" / f"{name}.npz")
    np.savez(tmp_path / "x.npz", in0=reference["in0"])
    words: list[str | Path] = ["compile", SHARED / "models" / f"{name}.tflite", "-o", tmp_path / "p", "--quantize", "int8"]
    said = intaglio(*words, "--calibrate", tmp_path / "x.npz", "--json")
    assert said.code == 0, said.err
    assert min(out["cosine"] for out in said.json["quantization"]["outputs"]) >= 0.99
    checked = intaglio("validate", tmp_path / "p", "--inputs", tmp_path / "x.npz", "--steps", "--json")
    assert checked.code == 0
    assert min(row["cosine"] for row in checked.json["against_float"]) >= 0.99


def small(folder: Path) -> Path:
    """Convolution, depthwise, residual sum, hard swish, mean, dense: most of what small networks have."""
    rng = np.random.default_rng(0)

    def w(*shape: int) -> Array:
        return np.asarray(rng.standard_normal(shape) / np.sqrt(np.prod(shape[1:])), np.float32)

    nodes = [
        node("Conv", "x w1 b1", "a", pads=[1, 1, 1, 1]),
        node("Relu", "a", "a1"),
        node("Conv", "a1 w2 b2", "d", pads=[1, 1, 1, 1], group=8),
        node("HardSwish", "d", "d1"),
        node("Conv", "d1 w3 b3", "e"),
        node("Add", "a1 e", "r"),
        node("GlobalAveragePool", "r", "m"),
        node("Flatten", "m", "f"),
        node("Gemm", "f w4 b4", "y", transB=1),
    ]
    constants = {
        "w1": w(8, 3, 3, 3),
        "b1": w(8),
        "w2": w(8, 1, 3, 3),
        "b2": w(8),
        "w3": w(8, 8, 1, 1),
        "b3": w(8),
        "w4": w(5, 8),
        "b4": w(5),
    }
    for name in ("b1", "b2", "b3", "b4"):
        constants[name] = constants[name].reshape(-1)
    proto = model(nodes, [value("x", [1, 3, 10, 10])], [value("y", [1, 5])], constants)
    np.savez(folder / "data.npz", x=rng.standard_normal((12, 1, 3, 10, 10)).astype(np.float32))
    return saved(proto, folder)


@pytest.mark.parametrize("scheme", ["int8", pytest.param("int16x8", marks=pytest.mark.slow)])
def test_most_of_what_small_networks_have(scheme: str, intaglio: Intaglio, tmp_path: Path) -> None:
    path = small(tmp_path)
    said = intaglio("compile", path, "-o", tmp_path / "p", "--quantize", scheme, "--calibrate", tmp_path / "data.npz", "--json")
    assert said.code == 0, said.err
    limit = 0.05 if scheme == "int8" else 0.02
    assert said.json["quantization"]["outputs"][0]["relative"] < limit
    ops = [layer["op"] for layer in json.loads((tmp_path / "p" / "manifest.json").read_text())["layers"]]
    assert ops.count("qconv") == 3 and "qadd" in ops and "qmatmul" in ops
    assert "lookup" in ops or scheme == "int16x8"
    assert intaglio("validate", tmp_path / "p").code == 0


@pytest.mark.slow
def test_layers_stay_as_wide_as_it_takes(intaglio: Intaglio, tmp_path: Path) -> None:
    path, data = small(tmp_path), tmp_path / "data.npz"
    plain = intaglio("compile", path, "-o", tmp_path / "a", "--quantize", "int8", "--calibrate", data, "--json").json[
        "quantization"
    ]
    wanted = plain["outputs"][0]["relative"] * 0.7
    said = intaglio(
        "compile", path, "-o", tmp_path / "b", "--quantize", "int8", "--calibrate", data, "--max-error", str(wanted), "--json"
    )
    assert said.code == 0, said.err
    wide = said.json["quantization"]
    assert wide["kept"] and wide["outputs"][0]["relative"] <= wanted
    assert intaglio("validate", tmp_path / "b").code == 0
    said = intaglio(
        "compile", path, "-o", tmp_path / "c", "--quantize", "int8", "--calibrate", data, "--max-error", "1e-9", "--json"
    )
    assert set(said.json["quantization"]["kept"].values()) == {"f32"}


def test_named_layers_are_kept(intaglio: Intaglio, tmp_path: Path) -> None:
    path, data = small(tmp_path), tmp_path / "data.npz"
    words: list[str | Path] = ["compile", path, "--quantize", "int8", "--calibrate", data]
    said = intaglio(*words, "-o", tmp_path / "a", "--keep-float", "1", "--keep-int16", "e*", "--json")
    assert said.code == 0, said.err
    kept = said.json["quantization"]["kept"]
    assert sorted(kept.values()) == ["f32", "i16"]
    ops = [layer["op"] for layer in json.loads((tmp_path / "a" / "manifest.json").read_text())["layers"]]
    assert ops.count("conv") == 1 and ops.count("qconv") == 2
    assert intaglio("validate", tmp_path / "a").code == 0
    said = intaglio(*words, "-o", tmp_path / "b", "--keep-float", "nothing")
    assert said.code == 2 and "no-such-layer" in said.err and "hint" in said.err


def test_integers_in_and_out(intaglio: Intaglio, tmp_path: Path) -> None:
    path, data = small(tmp_path), tmp_path / "data.npz"
    said = intaglio("compile", path, "-o", tmp_path / "p", "--quantize", "int8", "--calibrate", data, "--integer-io")
    assert said.code == 0, said.err
    manifest = json.loads((tmp_path / "p" / "manifest.json").read_text())
    x, y = manifest["inputs"][0], manifest["outputs"][0]
    assert (x["dtype"], y["dtype"]) == ("i8", "i8")
    assert x["quant"]["scale"][0] > 0 and y["quant"]["scale"][0] > 0
    assert intaglio("validate", tmp_path / "p").code == 0


@pytest.mark.slow
def test_without_data_it_warns(intaglio: Intaglio, tmp_path: Path) -> None:
    said = intaglio("compile", small(tmp_path), "-o", tmp_path / "p", "--quantize", "int8")
    assert said.code == 0
    assert "warning: no calibration data" in said.err and "random inputs" in said.err
    assert "error alone" in said.out and "accumulated" in said.out


def test_a_folder_of_samples(intaglio: Intaglio, tmp_path: Path) -> None:
    path = small(tmp_path)
    (tmp_path / "samples").mkdir()
    for n, x in enumerate(np.load(tmp_path / "data.npz")["x"][:5]):
        np.save(tmp_path / "samples" / f"{n}.npy", x)
    said = intaglio("compile", path, "-o", tmp_path / "p", "--quantize", "int8", "--calibrate", tmp_path / "samples", "--json")
    assert said.json["quantization"]["samples"] == 5


@pytest.mark.slow
def test_the_same_data_give_the_same_integers(intaglio: Intaglio, tmp_path: Path) -> None:
    path, data = small(tmp_path), tmp_path / "data.npz"
    for name in ("a", "b"):
        intaglio(
            "compile", path, "-o", tmp_path / f"{name}.ig", "--stop-after", "optimise", "--quantize", "int8", "--calibrate", data
        )
    assert (tmp_path / "a.ig").read_text() == (tmp_path / "b.ig").read_text()


BAD: dict[str, tuple[Array, str]] = {
    "another shape": (np.zeros((4, 1, 3, 9, 10), np.float32), "the shape [4, 1, 3, 9, 10]; the input is [1, 3, 10, 10] per sample"),
    "integers": (np.zeros((4, 1, 3, 10, 10), np.uint8), "is uint8, the input is f32"),
    "not a number": (np.full((4, 1, 3, 10, 10), np.nan, np.float32), "is not finite"),
    "nothing": (np.zeros((0, 1, 3, 10, 10), np.float32), "no samples"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_data_that_does_not_fit(name: str, intaglio: Intaglio, tmp_path: Path) -> None:
    array, message = BAD[name]
    path = small(tmp_path)
    np.savez(tmp_path / "bad.npz", x=array)
    said = intaglio("compile", path, "-o", tmp_path / "p", "--quantize", "int8", "--calibrate", tmp_path / "bad.npz")
    assert said.code == 2 and "bad-calibration" in said.err and message in said.err and "hint" in said.err
    assert not (tmp_path / "p").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--quantize", "int3"], "unknown quantisation `int3`"),
        (["--quantize", "int8", "--ranges", "guess"], "unknown method `guess`"),
        (["--calibrate", "x.npz"], "need `--quantize`"),
        (["--quantize", "int8", "--max-error", "-1"], "is not a relative error"),
        (["--quantize", "int8", "--calibrate", "none.npz"], "there is no file"),
        (["--weights", "fp8"], "unknown value `fp8` of `--weights`"),
    ],
)  # fmt: skip
def test_words_that_make_no_sense(words: list[str], message: str, intaglio: Intaglio, tmp_path: Path) -> None:
    said = intaglio("compile", small(tmp_path), "-o", tmp_path / "p", *words)
    assert said.code == 2 and message in said.err


def test_labels_for_another_number_of_samples(intaglio: Intaglio, tmp_path: Path) -> None:
    path = small(tmp_path)
    np.save(tmp_path / "y.npy", np.zeros(3, np.int64))
    words: list[str | Path] = ["compile", path, "-o", tmp_path / "p", "--quantize", "int8", "--calibrate", tmp_path / "data.npz"]
    said = intaglio(*words, "--labels", tmp_path / "y.npy")
    assert said.code == 2 and "3 labels for 12 samples" in said.err


def test_a_quantised_model_is_not_quantised_again(intaglio: Intaglio, tmp_path: Path) -> None:
    path = small(tmp_path)
    words: list[str | Path] = ["--stop-after", "import", "--quantize", "int8", "--calibrate", tmp_path / "data.npz"]
    assert intaglio("compile", path, "-o", tmp_path / "a.ig", *words).code == 0
    said = intaglio("compile", tmp_path / "a.ig", "-o", tmp_path / "p", "--quantize", "int8")
    assert said.code == 2 and "already-quantized" in said.err


def test_a_model_with_state(intaglio: Intaglio, tmp_path: Path) -> None:
    """Samples are steps, in order; the state goes from one to the next."""
    rng = np.random.default_rng(0)
    w = rng.standard_normal((6, 6)).astype(np.float32) / 4
    nodes = [node("MatMul", "x w", "a"), node("MatMul", "h u", "b"), node("Add", "a b", "c"), node("Tanh", "c", "next")]
    proto = model(nodes, [value("x", [1, 6]), value("h", [1, 6])], [value("next", [1, 6])], {"w": w, "u": w.T.copy()})
    path = saved(proto, tmp_path)
    np.savez(tmp_path / "x.npz", x=rng.standard_normal((20, 1, 6)).astype(np.float32))
    said = intaglio(
        "compile",
        path,
        "-o",
        tmp_path / "p",
        "--state",
        "h=next",
        "--quantize",
        "int8",
        "--calibrate",
        tmp_path / "x.npz",
        "--json",
    )
    assert said.code == 0, said.err
    assert said.json["quantization"]["outputs"][0]["relative"] < 0.1
    checked = intaglio("validate", tmp_path / "p", "--inputs", tmp_path / "x.npz", "--steps")
    assert checked.code == 0, checked.out


@pytest.mark.slow
def test_a_sum_that_is_kept_in_floats_is_one(intaglio: Intaglio, tmp_path: Path) -> None:
    path, data = small(tmp_path), tmp_path / "data.npz"
    said = intaglio("compile", path, "-o", tmp_path / "p", "--quantize", "int8", "--calibrate", data, "--keep-float", "r")
    assert said.code == 0, said.err
    ops = [layer["op"] for layer in json.loads((tmp_path / "p" / "manifest.json").read_text())["layers"]]
    assert "qadd" not in ops


@pytest.mark.slow
def test_outputs_keep_their_names(intaglio: Intaglio, tmp_path: Path) -> None:
    path, data = small(tmp_path), tmp_path / "data.npz"
    for name, more in (("a", []), ("b", ["--integer-io"])):
        assert intaglio("compile", path, "-o", tmp_path / name, "--quantize", "int8", "--calibrate", data, *more).code == 0
        assert json.loads((tmp_path / name / "manifest.json").read_text())["outputs"][0]["field"] == "y"
