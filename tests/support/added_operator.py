"""Run by `tests/ops/test_guide.py` in a copy of the project that has the operator `swirl`: does everything know it?"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

import intaglio
from intaglio.cli.operators import ir_operators, onnx_operators, tflite_operators, torch_operators
from intaglio.frontends.keras.walk import FUNCTIONS, fill_tables
from support.kernel_cases import CASES
from support.kernel_opencl import on_device, source_of
from support.kernel_running import TARGETS, assert_close, interpreted
from support.onnx_models import model, node, saved, value

F = np.float32


def test_swirl_is_an_operator_of_every_front_end() -> None:
    fill_tables()
    assert "swirl" in ir_operators() and "Swirl" in onnx_operators() and "SWIRL" in tflite_operators()
    assert "swirl" in torch_operators() and "Swirl" in FUNCTIONS


@pytest.mark.parametrize("isa", TARGETS)
def test_swirl_is_interpreted(isa: str) -> None:
    for name in ("swirl", "swirl of odd numbers"):
        code, results = interpreted(CASES[name], TARGETS[isa])
        assert code == 0
        assert_close(CASES[name], results, CASES[name].expected())


def test_swirl_is_an_opencl_kernel() -> None:
    call = on_device(CASES["swirl"])
    assert call is not None
    assert "exp(" in source_of([call.lowered.kernel]).text


def test_swirl_of_an_onnx_model_runs_on_the_host(tmp_path: Path) -> None:
    step = [node("Add", "x x", "s"), node("Swirl", "s", "t"), node("Tanh", "t", "y")]
    path = saved(model(step, [value("x", (3, 19))], [value("y", (3, 19))]), tmp_path)
    package = intaglio.compile(path, output=tmp_path / "package")
    x = np.random.default_rng(1).standard_normal((3, 19)).astype(F)
    twice = 2 * x.astype(np.float64)
    np.testing.assert_allclose(package.run({"x": x})["y"], np.tanh(np.exp(-twice * twice)), rtol=1e-5, atol=1e-6)
    assert "swirl" in "".join(p.read_text(encoding="utf-8") for p in (tmp_path / "package").rglob("*.ig"))


def test_the_module_of_swirl_is_the_copy() -> None:
    assert str(import_module("intaglio").__file__).startswith(str(Path(__file__).resolve().parents[2]))
