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
