"""Advice: the gain of an option is that of a plan with it, and compiling with it reaches it."""

from __future__ import annotations

import shlex
from pathlib import Path

import numpy as np
import pytest

from intaglio import compile
from intaglio.package.manifest import read_manifest, target_of
from intaglio.report.advice import advice_of
from intaglio.report.facts import ESTIMATED, Advice
from intaglio.report.gains import gains_of
from intaglio.report.recorded import command_of
from support.commands import DIGITS, Intaglio
from support.onnx_models import model, node, saved, value


def advice(folder: Path) -> dict[str, Advice]:
    manifest = read_manifest(folder)
    target = target_of(manifest)
    return {one.flag.split()[0]: one for one in advice_of(manifest, target, (), (), gains_of(folder, manifest, target))}


@pytest.fixture(scope="module")
def board(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile(DIGITS, output=tmp_path_factory.mktemp("advice") / "p", board="nucleo-l4r5zi").folder


@pytest.mark.parametrize("word", ["--ram", "--quantize"])
def test_a_compile_with_the_flag_saves_what_was_told(word: str, board: Path, intaglio: Intaglio, tmp_path: Path) -> None:
    told = advice(board)[word]
    words = [w for w in shlex.split(told.flag) if w not in ("--calibrate", "DATA.npz")]
    said = intaglio("compile", DIGITS, "--board", "nucleo-l4r5zi", *words, "-o", tmp_path / "p", "--json")
    assert said.code == 0, said.err
    least = int(told.gain.partition("(arena 2,560 -> ")[2].partition(")")[0].replace(",", ""))
    assert f"saves {2560 - least:,} bytes of RAM" in told.gain and told.source == ESTIMATED
    # Under a limit, kernels may have less stack, and the arena then need not be as small as it can be.
    assert least <= said.json["arena_bytes"] <= (least if word == "--quantize" else least + 256)


@pytest.mark.slow
def test_frames_one_by_one(intaglio: Intaglio, tmp_path: Path) -> None:
    w = np.random.default_rng(1).standard_normal((2, 3, 3)).astype(np.float32)
    nodes = [node("Conv", "x w", "a", pads=[2, 0]), node("Relu", "a", "y")]
    path = saved(model(nodes, [value("x", [1, 3, 64])], constants={"w": w}), tmp_path)
    assert intaglio("compile", path, "--target", "cortex-m4f", "-o", tmp_path / "p").code == 0
    told = advice(tmp_path / "p")["--stream"]
    made = intaglio("compile", path, "--target", "cortex-m4f", *told.flag.split(), "-o", tmp_path / "q", "--json").json
    assert f"-> {made['arena_bytes']:,})" in told.gain


@pytest.mark.slow
def test_numbers_and_shapes_of_the_package_are_asked_for_again(intaglio: Intaglio, tmp_path: Path) -> None:
    words = ("--target", "cortex-m4f", "--shape", "image=1,1,8,8", "--disable-pass", "remove_identities", "--ram", "4K")
    assert intaglio("compile", DIGITS, "-o", tmp_path / "p", *words).code == 0
    assert "--ram" in advice(tmp_path / "p")
    w = np.ones((2, 3, 3), np.float32)
    path = saved(model([node("Conv", "x w", "y", pads=[2, 0])], [value("x", [1, 3, 64])], constants={"w": w}), tmp_path)
    assert intaglio("compile", path, "--target", "cortex-m4f", "--stream", "2", "-o", tmp_path / "q").code == 0
    assert "--stream" not in advice(tmp_path / "q")


def test_without_the_model_no_number_is_told(intaglio: Intaglio, tmp_path: Path) -> None:
    assert intaglio("compile", DIGITS, "-o", tmp_path / "p", "--target", "cortex-m4f", "--no-source").code == 0
    manifest = read_manifest(tmp_path / "p")
    target = target_of(manifest)
    assert gains_of(tmp_path / "p", manifest, target) is None
    assert not any(char.isdigit() for one in advice_of(manifest, target, (), (), None) for char in one.gain)


def test_the_command_has_the_options_of_the_quantisation(intaglio: Intaglio, tmp_path: Path) -> None:
    words = ("--quantize", "int8", "--ranges", "minmax", "--keep-float", "4", "--integer-io")
    assert intaglio("compile", DIGITS, "-o", tmp_path / "p", *words).code == 0
    made = command_of(read_manifest(tmp_path / "p"))
    assert "--quantize int8 --ranges minmax" in made and "--keep-float 4" in made and "--integer-io" in made
