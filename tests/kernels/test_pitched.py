"""Kernels on rows that are apart, as the operands of a concat that is written in place are: proven, right, and nothing else."""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from intaglio.ir.types import DType
from intaglio.ir.views import Pitch
from intaglio.kernels.builder import Builder
from intaglio.kernels.interpret import interpret
from intaglio.kernels.loop import Buffer, Kernel, Load, Place, Type
from intaglio.kernels.pitched import Unproven, with_pitches
from intaglio.kernels.routines import Routine
from intaglio.run.toolchains import find_toolchain
from intaglio.targets.target import runs_here
from support.kernel_pitched import Apart, apart
from support.kernel_quick import ALL, kernel_of, quick_cases
from support.kernel_running import SANITIZED, TARGETS, call_compiled, compile_c, write_c

TESTS = Path(__file__).parents[1]
HERE = next((isa for isa in ("avx2", "sse2") if runs_here(TARGETS[isa])), "scalar")
PROVEN = (
    "attention", "average_pool_nhwc", "concat", "conv_nhwc", "depthwise_nhwc", "elementwise", "lookup", "matmul", "max_pool_nhwc",
    "qadd", "qaverage_pool", "qconv_tiles", "qdepthwise_lanes", "softmax", "transpose", "winograd",
)  # fmt: skip


@cache
def few() -> dict[str, str]:
    """Of each of these kernels, the first case that is proven."""
    found: dict[str, str] = {}
    for name, case in quick_cases().items():
        kernel = kernel_of(case, TARGETS["avx2"])
        if kernel in PROVEN and kernel not in found and next(apart(case, TARGETS["avx2"]), None) is not None:
            found[kernel] = name
    return found


def test_kernels_that_concats_meet_are_proven() -> None:
    assert set(few()) == set(PROVEN)


def test_the_interpreter_gives_what_the_reference_gives() -> None:
    for name in few().values():
        if sum(operand.size for operand in ALL[name].operands if operand is not None) < 4000:
            for made in apart(ALL[name], TARGETS["avx2"]):
                made.check(interpret(made.call.lowered.kernel, made.call.arrays))


def calls(names: list[str], isa: str) -> dict[str, Apart]:
    return {f"{name} {n}": made for name in names for n, made in enumerate(apart(ALL[name], TARGETS[isa]))}


@pytest.mark.slow
@pytest.mark.parametrize("isa", dict.fromkeys([HERE, "scalar"]))
def test_every_kernel_that_is_proven_is_right(isa: str, tmp_path: Path) -> None:
    made = calls(list(ALL), isa)
    assert len(made) > 300
    write_c([each.call for each in made.values()], isa, tmp_path / "k.c")
    compile_c(find_toolchain(), TARGETS[isa], tmp_path / "k.c", tmp_path / "k.so", "-O0", "-shared", "-fPIC", "-lm")
    library = ctypes.CDLL(str(tmp_path / "k.so"))
    for each in made.values():
        each.check(call_compiled(library, each.call))


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("gcc") is None, reason="sanitizers need gcc")
def test_no_kernel_touches_more_than_its_rows(tmp_path: Path) -> None:
    names = list(few().values())
    made = calls(names, HERE)
    write_c([each.call for each in made.values()], HERE, tmp_path / "k.c")
    flags = ["-O0", "-g0", "-shared", "-fPIC", *SANITIZED, "-lm"]
    compile_c(find_toolchain("gcc"), TARGETS[HERE], tmp_path / "k.c", tmp_path / "k.so", *flags)
    (tmp_path / "k.json").write_text(json.dumps(names))
    found = subprocess.run(["gcc", "-print-file-name=libasan.so"], capture_output=True, text=True, check=True)
    paths = os.pathsep.join([str(TESTS), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "LD_PRELOAD": found.stdout.strip(), "ASAN_OPTIONS": "detect_leaks=0", "PYTHONPATH": paths}
    command = [sys.executable, str(TESTS / "support" / "kernel_pitched.py"), str(tmp_path / "k.so"), HERE]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stdout[-300:] + done.stderr[:4000]
    assert done.stdout.splitlines()[-1] == f"{len(made)} kernels"


# What is refused --------------------------------------------------------------------------------------------------------

X, Y = Buffer("x", DType.F32), Buffer("y", DType.F32, const=False)
F32 = Type("f32")


def kernel(k: Builder) -> Kernel:
    return Kernel("k", (X, Y), k.body(), "a test")


def test_a_flat_loop_becomes_one_over_rows() -> None:
    k = Builder()
    with k.loop("i", 0, 24, 4) as i:
        k.store(Y, i, Load(X, i, Type("f32", 4)))
    made = with_pitches(kernel(k), {1: Pitch(8, 20)})
    assert made.pitches == ((1, 8, 20),)
    text = repr(made.body)
    assert text.count("For(") == 2 and "value=20" in text


def test_a_vector_over_the_end_of_a_row_is_refused() -> None:
    k = Builder()
    with k.loop("i", 0, 24, 4) as i:
        k.store(Y, i, Load(X, i, Type("f32", 4)))
    with pytest.raises(Unproven, match="rows of `y` are not kept apart"):
        with_pitches(kernel(k), {1: Pitch(6, 20)})


def test_a_run_that_is_not_whole_rows_is_refused() -> None:
    k = Builder()
    k.copy(Y, 0, X, 0, 12)
    with pytest.raises(Unproven, match="not whole rows"):
        with_pitches(kernel(k), {1: Pitch(8, 20)})


def test_a_run_that_starts_inside_of_a_row_is_refused() -> None:
    k = Builder()
    k.copy(Y, 4, X, 0, 8)
    with pytest.raises(Unproven, match="rows of `y` are not kept apart"):
        with_pitches(kernel(k), {1: Pitch(8, 20)})


def test_an_index_from_memory_is_refused_as_a_column_and_taken_as_a_row() -> None:
    indices = Buffer("n", DType.I32)

    def scattered(width: int) -> Kernel:
        k = Builder()
        with k.loop("i", 0, 4) as i:
            at = k.let("at", Load(indices, i, Type("idx")))
            k.store(Y, at * width, Load(X, i, F32))
        return Kernel("k", (X, indices, Y), k.body(), "a test")

    assert with_pitches(scattered(8), {2: Pitch(8, 20)}).pitches == ((2, 8, 20),)
    with pytest.raises(Unproven, match="not a sum of loops"):
        with_pitches(scattered(1), {2: Pitch(8, 20)})


def test_a_variable_that_changes_is_not_taken_for_its_first_value() -> None:
    k = Builder()
    row = k.var("row", 0)
    at = k.let("at", row * 8)
    k.assign(row, row + 1)
    with k.loop("c", 0, 8) as c:
        k.store(Y, at + c, Load(X, c, F32))
    with pytest.raises(Unproven):
        with_pitches(kernel(k), {1: Pitch(8, 20)})


def test_memory_of_a_routine_is_refused() -> None:
    k = Builder()
    k.call(Routine("r", ""), Place(Y, k.let("at", 0)))
    with pytest.raises(Unproven, match="`r` takes its memory in one piece"):
        with_pitches(kernel(k), {1: Pitch(8, 20)})
