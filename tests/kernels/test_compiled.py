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
from intaglio.targets.target import host_target
from kernel_cases import CASES
from kernel_integer_tiles import INTEGER_TILES
from kernel_narrow import NARROW
from kernel_quantised import QUANTISED
from kernel_running import TARGETS, assert_close, call_compiled, compile_c, prepare, write_c
from kernel_tiles import TILED

ALL = {**CASES, **TILED, **QUANTISED, **INTEGER_TILES, **NARROW}
RUNNABLE = {"avx2": ["avx2", "sse2", "vec4", "scalar"], "sse2": ["sse2", "vec4", "scalar"], "neon": ["neon", "vec4", "scalar"]}
HERE = RUNNABLE.get(host_target().isa, ["scalar"])
TESTS = Path(__file__).parents[1]


# Whatever else is compiled for this machine has the vectors of HERE[0]: in `make test` the plain ones are compared here.
@pytest.mark.parametrize("isa", [i if i == "scalar" else pytest.param(i, marks=pytest.mark.slow) for i in HERE])
def test_compiled_kernels_equal_the_reference(isa: str, tmp_path: Path) -> None:
    calls = {name: prepare(c, TARGETS[isa]) for name, c in ALL.items()}
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
@pytest.mark.parametrize("isa", [HERE[0], *[pytest.param(i, marks=pytest.mark.slow) for i in HERE[1:] if i != "vec4"]])
def test_no_kernel_reads_outside_or_is_undefined(isa: str, tmp_path: Path) -> None:
    write_c([prepare(c, TARGETS[isa]) for c in ALL.values()], isa, tmp_path / "kernels.c")
    flags = ["-O0", "-g1", "-shared", "-fPIC", "-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-lm"]
    compile_c(find_toolchain("gcc"), TARGETS[isa], tmp_path / "kernels.c", tmp_path / "kernels.so", *flags)
    (tmp_path / "kernels.json").write_text(json.dumps(list(ALL)))
    found = subprocess.run(["gcc", "-print-file-name=libasan.so"], capture_output=True, text=True, check=True)
    environment = {**os.environ, "LD_PRELOAD": found.stdout.strip(), "ASAN_OPTIONS": "detect_leaks=0", "PYTHONPATH": str(TESTS)}
    command = [sys.executable, str(TESTS / "kernel_sanitized.py"), str(tmp_path / "kernels.so"), isa]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stdout[-300:] + done.stderr[:4000]
    assert done.stdout.splitlines()[-1] == f"{len(ALL)} kernels"


_SLOW = [pytest.param(i, marks=pytest.mark.slow) for i in ("neon_dot", "avx2", "avx2_vnni", "sse2", "scalar")]


@pytest.mark.slow
@pytest.mark.parametrize("isa", ["neon", *_SLOW])
def test_clang_has_no_complaints(isa: str, tmp_path: Path) -> None:
    write_c([prepare(c, TARGETS[isa]) for c in ALL.values()], isa, tmp_path / "kernels.c")
    compile_c(find_toolchain("zig"), TARGETS[isa], tmp_path / "kernels.c", tmp_path / "kernels.o", "-O0", "-c")
