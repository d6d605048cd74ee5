"""Compiled kernels give what the reference gives: all of them in one C file per instruction set, strict about warnings."""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from intaglio.run.toolchains import find_toolchain
from intaglio.targets.target import host_target, runs_here
from support.kernel_cases import CASES
from support.kernel_integer_tiles import INTEGER_TILES
from support.kernel_narrow import NARROW
from support.kernel_quantised import QUANTISED
from support.kernel_running import TARGETS, Case, assert_close, call_compiled, compile_c, prepare, write_c
from support.kernel_tiles import TILED

ALL = {**CASES, **TILED, **QUANTISED, **INTEGER_TILES, **NARROW}
RUNNABLE = {"avx2": ["avx2", "sse2", "vec4", "scalar"], "sse2": ["sse2", "vec4", "scalar"], "neon": ["neon", "vec4", "scalar"]}
WIDE = [isa for isa in ("avx512", "avx512_vnni", "avx2_vnni") if runs_here(TARGETS[isa])]
HERE = [*RUNNABLE.get(host_target().isa, ["scalar"]), *WIDE]
TESTS = Path(__file__).parents[1]


def some(step: int) -> dict[str, Case]:
    """All kernels take long to compile: in `make test` it is every fifth, and those of packages are compiled everywhere."""
    return {name: ALL[name] for name in list(ALL)[::step]}


QUICK = 5
EVERY = [pytest.param(i, 1, marks=pytest.mark.slow) for i in HERE]


@pytest.mark.parametrize(("isa", "step"), [("scalar", QUICK), (HERE[0], QUICK), *((isa, QUICK) for isa in WIDE), *EVERY])
def test_compiled_kernels_equal_the_reference(isa: str, step: int, tmp_path: Path) -> None:
    calls = {name: prepare(c, TARGETS[isa]) for name, c in some(step).items()}
    write_c(list(calls.values()), isa, tmp_path / "kernels.c")
    flags = ["-O1", "-shared", "-fPIC", "-lm"]
    compile_c(find_toolchain(), TARGETS[isa], tmp_path / "kernels.c", tmp_path / "kernels.so", *flags)
    library = ctypes.CDLL(str(tmp_path / "kernels.so"))
    wrong = []
    for name, call in calls.items():
        code = call_compiled(library, call)
        shapes = [o.shape for o in ALL[name].node().outputs]
        got = [call.arrays[n].reshape(s) for n, s in zip(call.outputs, shapes, strict=True)]
        try:
            assert code == 0
            assert_close(ALL[name], got, ALL[name].expected())  # which the interpreter gives too: test_interpreter.py
        except AssertionError as error:
            wrong.append(f"{name}: {error}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.skipif(shutil.which("gcc") is None, reason="sanitizers need gcc")
@pytest.mark.parametrize(("isa", "step"), [(HERE[0], QUICK), *[e for e in EVERY if e.values[0] != "vec4"]])
def test_no_kernel_reads_outside_or_is_undefined(isa: str, step: int, tmp_path: Path) -> None:
    cases = some(step)
    write_c([prepare(c, TARGETS[isa]) for c in cases.values()], isa, tmp_path / "kernels.c")
    flags = ["-O0", "-g1", "-shared", "-fPIC", "-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-lm"]
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
