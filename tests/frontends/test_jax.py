"""Functions of JAX, in an environment of their own under `build/`: `support/jax_models.py` compares them there."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from support.commands import Intaglio
from support.own_environment import ROOT, environment, ran

NAMES = (
    "network",
    "transposed",
    "attention",
    "places",
    "arithmetic",
    "embedding",
    "few turns",
    "many turns",
    "until",
    "branches",
    "nested",
    "missing",
    "near zero",
    "sorting",
    "putting",
    "taking",
    "bits",
    "rounded",
    "spectra",
    "halves",
    "drawn",
    "window",
)


@pytest.mark.slow
def test_functions_of_jax() -> None:
    done = ran(environment("jax", "jax", "flatbuffers"), ROOT / "tests" / "support" / "jax_models.py")
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.split("\n")[:-1] == [f"{name} ok" for name in (*NAMES, "symbolic", "refusals")]


@pytest.mark.skipif(importlib.util.find_spec("jax") is not None, reason="JAX is installed here")
def test_a_file_of_jax_needs_jax(tmp_path: Path, intaglio: Intaglio) -> None:
    (tmp_path / "m.jax").write_bytes(b"x")
    said = intaglio("compile", tmp_path / "m.jax", "-o", tmp_path / "out")
    assert said.code == 2
    assert "is a function of JAX, which is not installed" in said.err and "hint:" in said.err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("option", ["--random=3", "--max=N=3", "--signature=a"])
def test_options_of_other_formats_are_told(option: str, tmp_path: Path, intaglio: Intaglio) -> None:
    (tmp_path / "m.jax").write_bytes(b"x")
    said = intaglio("compile", tmp_path / "m.jax", option, "-o", tmp_path / "out")
    assert said.code == 2
    assert "error[bad-option]" in said.err
