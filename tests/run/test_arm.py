"""Packages for 64-bit Arm at work: their applications, run by qemu-user on processors with and without newer instructions."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.commands import DIGITS, Intaglio
from support.emulated import PROCESSORS, build_application, needs_qemu, run
from support.shared import SHARED, needs_shared

pytestmark = needs_qemu
VARIANTS = ("--target", "aarch64", "--variants", "dotprod,i8mm")
MODELS = ("mlperf_ic_int8.tflite", "mlperf_kws_f32.tflite", "mkws_qdq_onnx.onnx", "mlperf_ad_dynquant.tflite")
PICKS = {"cortex-a53": "aarch64", "neoverse-n1": "aarch64-dotprod", "max": "aarch64-i8mm"}


def application(intaglio: Intaglio, model: Path, folder: Path, *words: str) -> Path:
    said = intaglio("compile", model, "-o", folder, "--name", "net", "--stop-after", "package", *words)
    assert said.code == 0, said.err
    return build_application(folder)


def passes(program: Path, processor: str, *words: str) -> None:
    done = run(program, processor, *words, "--selftest")
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
def test_the_processor_decides_which_variant_runs(intaglio: Intaglio, tmp_path: Path) -> None:
    program = application(intaglio, DIGITS, tmp_path / "p", *VARIANTS)
    for processor, picks in PICKS.items():
        assert f"in use here   {picks}" in run(program, processor, "--info").stdout
        passes(program, processor)
    refused = run(program, "cortex-a53", "--variant", "aarch64-i8mm", "--selftest")
    assert refused.returncode == 2 and "cannot run it" in refused.stderr


@pytest.mark.slow  # in a new environment, the compiler builds a C library for Arm first
def test_a_small_network_runs(intaglio: Intaglio, tmp_path: Path) -> None:
    passes(application(intaglio, DIGITS, tmp_path / "p", "--target", "aarch64"), PROCESSORS["neon"])


@pytest.mark.slow
@needs_shared
@pytest.mark.parametrize("model", MODELS)
def test_models_compute_what_their_reference_does_on_every_processor(model: str, intaglio: Intaglio, tmp_path: Path) -> None:
    program = application(intaglio, SHARED / "models" / model, tmp_path / "p", *VARIANTS)
    for processor in PICKS:
        passes(program, processor)


@pytest.mark.slow
@needs_shared
@pytest.mark.parametrize("model", ["mlperf_ic_int8.tflite", "mlperf_ic_f32.tflite"])
def test_two_threads(model: str, intaglio: Intaglio, tmp_path: Path) -> None:
    program = application(intaglio, SHARED / "models" / model, tmp_path / "p", "--target", "aarch64-dotprod", "--threads", "2")
    passes(program, PROCESSORS["neon_dot"])
