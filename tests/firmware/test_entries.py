"""Several entry points on a core without an operating system: one arena, one set of weights, one program that tests each."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path

import numpy as np
import pytest

import intaglio
from intaglio.package.manifest import read_manifest
from package.test_entries import RANDOM, WEIGHTS, decoder, encoder
from support.commands import Intaglio
from support.firmware_running import booted, selftest
from support.onnx_models import saved
from support.tflite_signatures import two_networks


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> intaglio.EntryPoints:
    pytest.importorskip("unicorn")
    folder = tmp_path_factory.mktemp("models")
    encode: dict[str, object] = {"model": saved(encoder(), folder, "encoder.onnx"), "dims": {"T": (1, 9)}}
    models: dict[str, object] = {"encode": encode, "step": saved(decoder(), folder, "decoder.onnx")}
    return intaglio.compile_entries(models, output=folder / "speech", board="mps2-an386", archive=True)


def test_each_entry_point_runs_on_the_core(package: intaglio.EntryPoints) -> None:
    w, v = WEIGHTS["w"], WEIGHTS["v"]
    for t in (1, 9):
        x = RANDOM.standard_normal((1, t, 32)).astype(np.float32)
        assert np.allclose(package.run({"x": x}, entry="encode")["y"], np.tanh(x @ w) @ v, atol=1e-4)
    x = RANDOM.standard_normal((1, 32)).astype(np.float32)
    assert np.allclose(package["step"].run(x)["y"], np.maximum(x @ w, 0), atol=1e-4)


def test_one_program_tests_all_in_one_arena(package: intaglio.EntryPoints) -> None:
    about, firmware = package.about, package.about.firmware
    assert firmware is not None and about.arena_bytes == max(entry.arena_bytes for entry in about.entries)
    separate = [read_manifest(package.folder / "entries" / entry).firmware for entry in package]
    assert all(one is not None and firmware.flash_bytes > one.flash_bytes for one in separate)
    assert firmware.ram_bytes < sum(one.ram_bytes for one in separate if one is not None)
    assert firmware.code_bytes < firmware.flash_bytes - about.weight_bytes + 64
    core = booted(package.folder, package.folder / firmware.elf, read_manifest(package.folder / "entries" / "step"))
    try:
        for name in ("speech_encode", "speech_step", "speech_encode"):
            assert selftest(core, name)[0] == 0
    finally:
        core.close()


def test_validate_and_profile_go_through_all(package: intaglio.EntryPoints, intaglio: Intaglio) -> None:
    said = intaglio("validate", package.folder, "--json")
    assert said.code == 0 and [row["ok"] for row in json.loads(said.out)["entries"].values()] == [True, True]
    told = json.loads(intaglio("profile", package.folder, "--entry", "step", "--json").out)
    assert told["total"]["instructions"] > 0


def test_all_of_it_is_in_the_archive(package: intaglio.EntryPoints) -> None:
    with tarfile.open(f"{package.folder}.tar.gz") as archive:
        names = archive.getnames()
    assert "speech/entries/step/manifest.json" in names and "speech/lib/libspeech.a" in names


@pytest.mark.slow
def test_a_board_that_is_too_small_for_all_is_told(tmp_path: Path, intaglio: Intaglio) -> None:
    path = tmp_path / "speech.tflite"
    path.write_bytes(two_networks())
    assert intaglio("compile", path, "--target", "cortex-m4f", "-o", tmp_path / "p").code == 0
    said = intaglio("compile", path, "--target", "cortex-m4f", "--flash", "4K", "-o", tmp_path / "q")
    assert said.code == 1 and "error[does-not-fit]" in said.err and not (tmp_path / "q").exists()
