"""Compiled kernels give what the reference gives: all of them in one C file per instruction set, strict about warnings."""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from intaglio.kernels.choice import TABLE
from intaglio.run.toolchains import find_toolchain
from intaglio.targets.target import find_target, runs_here
from support.kernel_floats import FLOATS
from support.kernel_integer_tiles import INTEGER_TILES
from support.kernel_quick import ALL, ELSEWHERE, kernel_of, quick_cases
from support.kernel_running import SANITIZED, TARGETS, Case, assert_close, call_compiled, compile_c, prepare, write_c
from support.kernel_small_cores import SMALL_CORES

_BEST_FIRST = ("avx512_vnni", "avx512", "avx2_vnni", "avx2", "sse2", "neon_dot", "neon", "vec4", "scalar")
HERE = [isa for isa in _BEST_FIRST if runs_here(TARGETS[isa]) or isa in ("vec4", "scalar")]
WIDE = [isa for isa in HERE[1:] if isa.startswith("avx")]  # beside the best, which all cases are compiled for
TESTS = Path(__file__).parents[1]
WHICH: dict[str, Callable[[], dict[str, Case]]] = {"all": lambda: ALL, "quick": quick_cases}
EVERY = [pytest.param(i, "all", marks=pytest.mark.slow) for i in HERE]


def test_every_kernel_of_the_table_has_a_case_that_make_test_runs() -> None:
    """Compiled for this machine, or interpreted for the small cores (test_small_cores.py)."""
    used = {(c.op.NAME, kernel_of(c, TARGETS[isa])) for c in quick_cases().values() for isa in ("avx2", "scalar")}
    for core in map(find_target, ("cortex-m4f", "cortex-m55", "cortex-m0+")):
        used |= {(c.op.NAME, kernel_of(replace(c, using=""), core)) for c in {**SMALL_CORES, **INTEGER_TILES}.values()}
        used |= {(c.op.NAME, kernel_of(c, core)) for c in FLOATS.values()}
    table = {(op, choice.name) for op, choices in TABLE.items() for choice in choices}
    assert {row for row in table - used if row[0] not in ELSEWHERE} == {("offload", "offload")}  # the C of a plug-in


def compiled(cases: dict[str, Case], isa: str, folder: Path, *flags: str) -> list[str]:
    """What is wrong, by case."""
    calls = {name: prepare(c, TARGETS[isa]) for name, c in cases.items()}
    write_c(list(calls.values()), isa, folder / "kernels.c")
    compile_c(find_toolchain(), TARGETS[isa], folder / "kernels.c", folder / "kernels.so", *flags, "-shared", "-fPIC", "-lm")
    library = ctypes.CDLL(str(folder / "kernels.so"))
    wrong = []
    for name, call in calls.items():
        code = call_compiled(library, call)
        shapes = [o.shape for o in cases[name].node().outputs]
        got = [call.arrays[n].reshape(s) for n, s in zip(call.outputs, shapes, strict=True)]
        try:
            assert code == 0
            assert_close(cases[name], got, cases[name].expected())  # which the interpreter gives too: test_interpreter.py
        except AssertionError as error:
            wrong.append(f"{name}: {error}")
    return wrong


@pytest.mark.slow  # cases of the same kind as those that the sanitizers watch
def test_kernels_for_this_machine_equal_the_reference(tmp_path: Path) -> None:
    """All but those that the sanitizers watch: without optimisation they are compiled in a third of the time."""
    watched = {} if shutil.which("gcc") is None else quick_cases()
    cases = {name: case for name, case in ALL.items() if name not in watched}
    assert not (wrong := compiled(cases, HERE[0], tmp_path, "-O0")), "\n".join(wrong)


@pytest.mark.parametrize(("isa", "which"), [("scalar", "quick"), *((isa, "quick") for isa in WIDE), *EVERY])
def test_compiled_kernels_equal_the_reference(isa: str, which: str, tmp_path: Path) -> None:
    level = "-O0" if which == "quick" else "-O1"
    assert not (wrong := compiled(WHICH[which](), isa, tmp_path, level)), "\n".join(wrong)


@pytest.mark.skipif(shutil.which("gcc") is None, reason="sanitizers need gcc")
@pytest.mark.parametrize(("isa", "which"), [(HERE[0], "quick"), *[e for e in EVERY if e.values[0] != "vec4"]])
def test_no_kernel_reads_outside_or_is_undefined_or_wrong(isa: str, which: str, tmp_path: Path) -> None:
    cases = WHICH[which]()
    write_c([prepare(c, TARGETS[isa]) for c in cases.values()], isa, tmp_path / "kernels.c")
    flags = ["-O0", "-g0", "-shared", "-fPIC", *SANITIZED, "-lm"]
    compile_c(find_toolchain("gcc"), TARGETS[isa], tmp_path / "kernels.c", tmp_path / "kernels.so", *flags)
    (tmp_path / "kernels.json").write_text(json.dumps(list(cases)))
    found = subprocess.run(["gcc", "-print-file-name=libasan.so"], capture_output=True, text=True, check=True)
    paths = os.pathsep.join([str(TESTS), os.environ.get("PYTHONPATH", "")])
    preload = {"LD_PRELOAD": found.stdout.strip(), "ASAN_OPTIONS": "detect_leaks=0", "PYTHONPATH": paths}
    environment = {**os.environ, **preload}
    command = [sys.executable, str(TESTS / "support" / "kernel_sanitized.py"), str(tmp_path / "kernels.so"), isa]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stdout[-300:] + done.stderr[:4000]
    assert done.stdout.splitlines()[-1] == f"{len(cases)} kernels"


_ISAS = ("neon_dot", "avx2", "avx2_vnni", "avx512", "avx512_vnni", "sse2", "scalar")
_SLOW = [pytest.param(i, marks=pytest.mark.slow) for i in _ISAS]


@pytest.mark.slow
@pytest.mark.parametrize("isa", ["neon", *_SLOW])
def test_clang_has_no_complaints(isa: str, tmp_path: Path) -> None:
    write_c([prepare(c, TARGETS[isa]) for c in ALL.values()], isa, tmp_path / "kernels.c")
    compile_c(find_toolchain("zig"), TARGETS[isa], tmp_path / "kernels.c", tmp_path / "kernels.o", "-O0", "-c")
