"""A package for OpenCL devices, its application and the functions of its header: requests are served, or refused with a reason."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from support.building import needs_gcc
from support.opencl_faults import Bench, World, make_world
from support.pocl import needs_pocl

pytestmark = needs_pocl


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    base = tmp_path_factory.getbasetemp()
    return make_world((base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "opencl-faults")


@pytest.fixture
def bench(world: World, tmp_path: Path) -> Bench:
    return Bench(world, tmp_path / "cache")


def application(bench: Bench, *words: str) -> subprocess.CompletedProcess[str]:
    line = [str(bench.world.application), "--cache", str(bench.cache), *words]
    return subprocess.run(line, env=bench.environment({}), capture_output=True, text=True, timeout=100)


def test_warm_says_what_it_did(bench: Bench) -> None:
    done = application(bench, "--warm", "--shipped", "none")
    assert done.returncode == 0 and done.stdout.startswith("2 programs for ") and done.stdout.endswith(f" in {bench.cache}\n")


@pytest.mark.parametrize("words", [("--selftest",), ("--benchmark", "2"), ("--selftest", "--benchmark", "2")])
def test_a_profile_is_told_beside_all_else(words: tuple[str, ...], bench: Bench) -> None:
    done = application(bench, *words, "--profile")
    assert done.returncode == 0 and "us  transfers" in done.stdout
    assert ("self-test passed" in done.stdout) is ("--selftest" in words) and ("2 runs" in done.stdout) is ("--benchmark" in words)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--shipped", "/nonexistent"), "hint: `--warm --cache FILE` makes one"),
        (("--cache", ""), "`--cache` has an empty value"),
        (("--device", ""), "`--device` has an empty value"),
        (("--device", "0"), "\n0.0  cpu"),
    ],
)
def test_what_there_is_not_is_refused(words: tuple[str, str], said: str, bench: Bench) -> None:
    done = application(bench, "--benchmark", "1", *words)
    assert done.returncode == 2 and said in done.stderr


CALLS = """
#include "tiny.h"
#include <stdio.h>
#define SAY(call) (code = (call), printf("%d %s\\n", code, tiny_message()))
int main(void)
{
    static float x[108], y[5];
    static double times[TINY_LAYERS + 1];
    tiny_inputs in = {x}, none = {NULL};
    tiny_outputs out = {y};
    int code;
    SAY(tiny_set_cache_check(77));
    SAY(tiny_set_kernel_time_limit(-1.0));
    SAY(tiny_set_cache(NULL, 5));
    SAY(tiny_run(&none, &out));
    SAY(tiny_layer_times(times));
    SAY(tiny_set_profiling(1));
    SAY(tiny_layer_times(times));
    SAY(tiny_run(&in, &out));
    SAY(tiny_layer_times(times));
    return 0;
}
"""
ANSWERS = (
    "40 the check of a cache is TINY_CHECK_FIRST, _ALWAYS or _NEVER, not 77",
    "40 the time limit of kernels is -1 ms; it must be at least 0 (no limit)",
    "40 a shipped cache of 5 bytes at NULL",
    "16 the pointer to input `x` is NULL",
    "41 profiling is off: tiny_set_profiling(1) comes before the run",
    "0 ",
    "41 no run has succeeded since profiling was switched on",
    "0 ",
    "0 ",
)


@needs_gcc
def test_every_failure_has_a_message_of_its_own(bench: Bench, tmp_path: Path) -> None:
    package, source = bench.world.application.parent.parent, tmp_path / "calls.c"
    source.write_text(CALLS)
    line = [
        "gcc",
        f"-I{package / 'include'}",
        str(source),
        str(package / "lib" / "libtiny.a"),
        "-o",
        str(tmp_path / "calls"),
        "-lm",
        "-ldl",
    ]
    subprocess.run(line, check=True)
    done = subprocess.run([tmp_path / "calls"], env=bench.environment({}), capture_output=True, text=True, timeout=100)
    assert tuple(done.stdout.splitlines()) == ANSWERS


@needs_gcc
def test_make_keeps_the_flags_that_the_sources_need(world: World, tmp_path: Path) -> None:
    line = [
        "make",
        "-n",
        "-C",
        str(world.folder / "package"),
        f"BUILD={tmp_path}",
        "CFLAGS=-O1",
        "LDFLAGS=-Wl,-O1",
        "install",
        "PREFIX=/p",
    ]
    told = subprocess.run(line, capture_output=True, text=True, check=True).stdout
    compiled = [text for text in told.splitlines() if " -c " in text]
    assert compiled and all("-O1 -std=c99 -fPIC -ffp-contract=off" in text for text in compiled)
    assert "-Wl,-O1" in told and "/p/lib" in told
