"""A model as a Python wheel: what it computes, what it refuses, and that it needs nothing of Intaglio."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest

from intaglio import Package, compile
from support.commands import DIGITS, Intaglio
from support.onnx_models import model as onnx_model
from support.onnx_models import node, saved, value
from support.small_networks import TFLITE

SCRIPT = """
import sys, numpy as np
sys.path[:0] = [sys.argv[1]]
import net
x = np.load(sys.argv[2])
one, model = net.run(x), net.Model()
for other in (model(x), model(x[0]), net.run(**{net.INPUTS[0]["field"]: x})):
    assert np.array_equal(one, other)
for wrong in ((x, x), (x.astype(complex),), (x[..., :-1],), ()):
    try:
        net.run(*wrong)
    except (TypeError, ValueError):
        continue
    raise SystemExit(f"taken: {wrong}")
assert "intaglio" not in sys.modules
np.save(sys.argv[3], one)
"""


def installed(package: Package, intaglio: Intaglio, folder: Path) -> Path:
    said = intaglio("wheel", package.folder, "-o", folder / "dist", "--wheel-version", "1.2.3")
    assert said.code == 0, said.err
    (wheel,) = (folder / "dist").iterdir()
    assert wheel.name.startswith("net-1.2.3-py3-none-")
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--target", str(folder / "site")]
    subprocess.run([*command, str(wheel)], check=True)
    return folder / "site"


@pytest.mark.parametrize("kind", ["keywords", pytest.param("floats", marks=pytest.mark.slow)])
def test_an_installed_wheel_computes_what_the_package_computes(kind: str, intaglio: Intaglio, tmp_path: Path) -> None:
    model = DIGITS
    if kind != "floats":
        model = tmp_path / "net.tflite"
        model.write_bytes(TFLITE[kind]())
    package = compile(model, output=tmp_path / "p", name="net")
    site = installed(package, intaglio, tmp_path)
    info = package.manifest.inputs[0]
    x = np.random.default_rng(0).integers(-100, 100, info.shape).astype(info.type.dtype.numpy)
    np.save(tmp_path / "x.npy", x)
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(site), str(tmp_path / "x.npy"), str(tmp_path / "y.npy")],
        capture_output=True, text=True, check=False, cwd=tmp_path, env={"PATH": ""},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    np.testing.assert_array_equal(np.load(tmp_path / "y.npy"), package(x))


SIZED = """
import sys; sys.path.insert(0, sys.argv[1])
import net, numpy as np
for t in (1, 3, 9):
    x = np.random.default_rng(t).standard_normal((1, t, 3)).astype(np.float32)
    assert np.array_equal(net.run(x), np.maximum(x, 0)) and net.run(x[0]).shape == (1, t, 3)
try:
    net.run(np.zeros((1, 10, 3), np.float32))
except ValueError as error:
    assert "T is 10, which is not within 1..9" in str(error)
else:
    raise AssertionError
"""


def test_a_wheel_takes_arrays_of_any_allowed_size(intaglio: Intaglio, tmp_path: Path) -> None:
    path = saved(onnx_model([node("Relu", "x", "y")], [value("x", [1, "T", 3])]), tmp_path)
    package = compile(path, output=tmp_path / "p", name="net", dims={"T": (1, 9)})
    site = installed(package, intaglio, tmp_path)
    done = subprocess.run([sys.executable, "-c", SIZED, str(site)], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stderr


def test_the_same_package_gives_the_same_wheel(digits: Path, intaglio: Intaglio, tmp_path: Path) -> None:
    for name in ("a", "b"):
        assert intaglio("wheel", digits, "-o", tmp_path / name).code == 0
    (a,), (b,) = (tmp_path / "a").iterdir(), (tmp_path / "b").iterdir()
    assert a.read_bytes() == b.read_bytes()
    assert zipfile.ZipFile(a).testzip() is None


@pytest.mark.parametrize(
    ("words", "reason"), [(("--target", "cortex-m4f"), "a wheel is for a host"), (("--name", "numpy"), "`numpy`")]
)
def test_what_cannot_be_a_wheel(words: tuple[str, str], reason: str, intaglio: Intaglio, tmp_path: Path) -> None:
    assert intaglio("compile", DIGITS, "-o", tmp_path / "p", *words).code == 0
    said = intaglio("wheel", tmp_path / "p", "-o", tmp_path / "dist")
    assert said.code == 2 and "error[no-wheel]" in said.err and reason in said.err and not (tmp_path / "dist").exists()


def test_a_version_that_is_none(digits: Path, intaglio: Intaglio, tmp_path: Path) -> None:
    assert "is not a version" in intaglio("wheel", digits, "-o", tmp_path, "--wheel-version", "one").err
