"""Kernels of OpenCL devices: what the interpreter says, what PoCL computes, what a compiler for another device accepts."""

from __future__ import annotations

import itertools
import subprocess
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

from intaglio.ir.types import DType
from intaglio.kernels.accesses import everything, may_run_at_once
from intaglio.kernels.builder import Builder
from intaglio.kernels.choice import DEVICE
from intaglio.kernels.forms import Scope
from intaglio.kernels.interpret import interpret
from intaglio.kernels.loop import Buffer, Expr, For, Kernel, Load, Type, idx
from intaglio.kernels.opencl.interpret import run_variant
from intaglio.kernels.opencl.launch import Variant
from intaglio.kernels.opencl.lowering import device_job
from intaglio.kernels.opencl.spread import spread
from intaglio.run.opencl.loader import find_loader
from intaglio.run.toolchains import find_toolchain
from support.kernel_cases import CASES
from support.kernel_integer_tiles import INTEGER_TILES
from support.kernel_narrow import NARROW
from support.kernel_opencl import OPENCL, Driver, asked_of, halves_of, interpreted_on_device, on_device, results_of, source_of
from support.kernel_quantised import QUANTISED
from support.kernel_running import Case, assert_close
from support.kernel_tiles import TILED
from support.tree_models import TREES

ALL = {**CASES, **TILED, **QUANTISED, **INTEGER_TILES, **NARROW, **TREES}
# Loops for one core that are spread over work-items: elementwise, in steps of time, with integers, with atomic order, sorted.
SPREAD = ("softsign", "cast f16 to u64", "gru f16", "qlstm of a coupled gate", "qconv", "scatter_nd add", "topk", "conv_transpose")
PER_PROGRAM = 24


# What the drivers' headers declare; a bare compiler has the functions alone.
_VECTORS = "".join(
    f"typedef {kind} {kind.split()[-1] if ' ' not in kind else 'u' + kind.split()[-1]}{n} __attribute__((ext_vector_type({n})));\n"
    for kind in ("float", "int", "short")
    for n in (4, 8)
)
LANGUAGE = (
    "typedef unsigned char uchar;\ntypedef unsigned short ushort;\ntypedef unsigned int uint;\ntypedef unsigned long ulong;\n"
    "typedef __SIZE_TYPE__ size_t;\ntypedef uint cl_mem_fence_flags;\n"
    + _VECTORS
    + "#ifdef IG_FP16\n#pragma OPENCL EXTENSION cl_khr_fp16 : enable\n"
    + "".join(f"typedef half half{n} __attribute__((ext_vector_type({n})));\n" for n in (4, 8))
    + "#endif\n#define CLK_LOCAL_MEM_FENCE 1\n#define CLK_GLOBAL_MEM_FENCE 2\n#define INFINITY __builtin_inff()\n"
    + '#define NAN __builtin_nanf("")\n#define INT_MIN (-2147483647 - 1)\n#define INT_MAX 2147483647\n'
    + "#define CHAR_MIN (-128)\n#define CHAR_MAX 127\n#define SHRT_MIN (-32768)\n#define SHRT_MAX 32767\n#define UCHAR_MAX 255\n"
    + "#define USHRT_MAX 65535\n#define UINT_MAX 0xffffffffU\n#define LONG_MAX 0x7fffffffffffffffL\n"
    + "#define LONG_MIN (-LONG_MAX - 1L)\n#define ULONG_MAX 0xffffffffffffffffUL\n"
    + "#define as_int(x) __builtin_astype((x), int)\n#define as_uint(x) __builtin_astype((x), uint)\n"
    + "#define as_float(x) __builtin_astype((x), float)\n"
)


@cache
def quick_cases() -> dict[str, Case]:
    """A driver takes about 50 ms a kernel: in `make test` the smallest case of every row of the table for devices, in floats and
    with narrow weights, and some that are spread; all of them in `make test-all`."""
    smallest: dict[tuple[str, str, bool], str] = {}
    for name in sorted(ALL, key=lambda n: sum(a.size for a in ALL[n].operands if a is not None)):
        node = ALL[name].node()
        job = device_job(node, OPENCL, asked_of(ALL[name]))
        reasons = [row.applies(job) for row in DEVICE.get(node.op.NAME, ())]
        if None in reasons:
            row = DEVICE[node.op.NAME][reasons.index(None)].name
            smallest.setdefault((node.op.NAME, row, name in NARROW), name)
    return {name: ALL[name] for name in (*smallest.values(), *SPREAD)}


WHICH: dict[str, Callable[[], dict[str, Case]]] = {"quick": quick_cases, "all": lambda: ALL}


def test_every_kernel_for_devices_has_a_case_that_make_test_runs() -> None:
    rows = {(op, row.name) for op, choices in DEVICE.items() for row in choices}
    for name in quick_cases():
        node = ALL[name].node()
        job = device_job(node, OPENCL, asked_of(ALL[name]))
        rows -= {(node.op.NAME, row.name) for row in DEVICE.get(node.op.NAME, ()) if row.applies(job) is None}
    assert not rows


def test_what_needs_doubles_stays_on_the_cpu() -> None:
    """Not every device has them. Every other operator has code for a device."""
    by_operator: dict[str, list[Case]] = {}
    for case in ALL.values():
        by_operator.setdefault(case.op.NAME, []).append(case)
    only_here = {name for name, cases in by_operator.items() if all(on_device(case) is None for case in cases)}
    assert only_here == {"det", "grid_sample", "qdense", "roi_align"}


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Driver:
    pytest.importorskip("pyopencl", reason="pyopencl is not installed")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("POCL_CACHE_DIR", str(tmp_path_factory.mktemp("pocl")))
        found = find_loader()
        if not found.answer.whole:
            pytest.skip("no driver here has a compiler that knows this processor")
        for name, value in found.environment.items():  # its drivers are those of pyopencl too
            patch.setenv(name, value)
        return Driver()


@pytest.mark.parametrize("which", ["quick", pytest.param("all", marks=pytest.mark.slow)])
def test_a_driver_computes_what_the_reference_says(driver: Driver, which: str) -> None:
    calls = {name: call for name, case in WHICH[which]().items() if (call := on_device(case)) is not None}
    names, wrong = list(calls), []
    for first in range(0, len(names), PER_PROGRAM):
        part = names[first : first + PER_PROGRAM]
        built = source_of([calls[n].lowered.kernel for n in part])
        program = driver.build(built.text)
        for name in part:
            call = calls[name]
            fresh = [a.copy() for a in call.arrays]
            for variant in call.lowered.kernel.variants:
                for array, value in zip(call.arrays, fresh, strict=True):
                    array[...] = value
                code = driver.run(program, built, call, variant, cpu=variant.cpu)
                try:
                    assert code == 0
                    assert_close(ALL[name], results_of(ALL[name], call), ALL[name].expected())
                except AssertionError as error:
                    wrong.append(f"{name}, {variant.label}: {error}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("name", [n if n in quick_cases() else pytest.param(n, marks=pytest.mark.slow) for n in ALL])
def test_the_launches_mean_what_the_reference_says(name: str) -> None:
    call = on_device(ALL[name])
    if call is None:
        pytest.skip("it stays on the CPU")
    for n, variant in enumerate(call.lowered.kernel.variants):
        code, results = interpreted_on_device(ALL[name], n, cpu=variant.cpu)
        assert code == 0
        assert_close(ALL[name], results, ALL[name].expected())


@pytest.mark.parametrize("define", [(), ("-DIG_FP16",)], ids=["floats", "halves"])
@pytest.mark.parametrize("which", ["quick", pytest.param("all", marks=pytest.mark.slow)])
def test_a_compiler_for_spirv_accepts_every_kernel(which: str, define: tuple[str, ...], tmp_path: Path) -> None:
    """The language itself, without the extras of one driver: every kernel of fp32, and those of halves."""
    zig = find_toolchain("zig")
    target = replace(OPENCL, precision="fp16") if define else OPENCL
    cases = WHICH[which]()
    if define:
        cases = {n: h for n, c in cases.items() if (h := halves_of(c)) is not None}
    calls = [call for case in cases.values() if (call := on_device(case, target)) is not None]
    assert len(calls) > 10
    (tmp_path / "all.cl").write_text(LANGUAGE + source_of([c.lowered.kernel for c in calls]).text)
    flags = ["-cc1", "-triple", "spirv64-unknown-unknown", "-cl-std=CL1.2", "-fdeclare-opencl-builtins", "-fsyntax-only"]
    flags += ["-D__opencl_c_named_address_space_builtins=1", "-Wall", "-Wno-unused-function", "-Wno-unused-const-variable"]
    command = [*zig.compiler[:-1], "clang", *flags, *define, "all.cl"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, env=zig.environment())
    assert done.returncode == 0, done.stderr[:4000]
    assert "error" not in done.stderr


# Independence is proven, never guessed ------------------------------------------------------------------------------------

COEFFICIENTS = st.integers(-9, 9)


@settings(max_examples=300, deadline=None)
@given(
    rounds=st.tuples(*[st.integers(1, 5)] * 3),
    write=st.tuples(*[COEFFICIENTS] * 3),
    read=st.one_of(st.none(), st.tuples(*[COEFFICIENTS] * 3)),
    shift=st.integers(-3, 3),
    step=st.integers(1, 3),
)
def test_rounds_that_run_at_once_never_meet(
    rounds: tuple[int, ...], write: tuple[int, ...], read: tuple[int, ...] | None, shift: int, step: int
) -> None:
    """y[a i + b j + c k] = y[d i + e j + f k + shift]: what the proof allows is true by trying all pairs."""
    k, y = Builder(), Buffer("y", DType.F32, const=False)

    def at(coefficients: tuple[int, ...], indices: list[Expr], more: int) -> Expr:
        total: Expr = idx(200 + more)
        for c, i in zip(coefficients, indices, strict=True):
            total = total + i * c
        return total

    with (
        k.loop("i", 0, rounds[0] * step + 1, step) as i,
        k.loop("j", 0, rounds[1] + 1) as j,
        k.loop("l", 0, rounds[2] + 1) as inner,
    ):
        source = read if read is not None else write
        k.store(y, at(write, [i, j, inner], 0), Load(y, at(source, [i, j, inner], shift if read is not None else 0), Type("f32")))
    loop = k.body()[0]
    assert isinstance(loop, For)
    if not may_run_at_once(loop, Scope(), {}):
        return
    touched: list[set[int]] = []
    written: list[set[int]] = []
    for i_ in range(0, rounds[0] * step + 1, step):
        pairs = list(itertools.product(range(rounds[1] + 1), range(rounds[2] + 1)))
        w = {sum(c * v for c, v in zip(write, (i_, *p), strict=True)) for p in pairs}
        r = {sum(c * v for c, v in zip(source, (i_, *p), strict=True)) + (shift if read is not None else 0) for p in pairs}
        written.append(w)
        touched.append(w | r)
    for a, b in itertools.permutations(range(len(written)), 2):
        assert not written[a] & touched[b]


@pytest.mark.parametrize(("rounds", "loops"), [(40, 0), (64, 0), (65, 1)])
def test_items_with_one_round_each_have_no_loop(rounds: int, loops: int) -> None:
    """PoCL 3.0 drops such a loop between two barriers when LLVM vectorises it for AVX-512 first: a GRU with lengths was NaN."""
    k = Builder()
    x, h = Buffer("x", DType.F32), Buffer("h", DType.F32, const=False)
    with k.loop("t", 0, 5) as t, k.loop("u", 0, rounds) as u:
        k.store(h, u, Load(h, u, Type("f32")) + Load(x, t, Type("f32")))
    launches = spread(Kernel("sums", (x, h), k.body(), "about"), {})
    assert launches is not None and len(launches) == 1 and launches[0].fixed
    shared = [s for s in everything(launches[0].body) if isinstance(s, For) and s.var.name == "turn"]
    assert len(shared) == loops
    values, got = np.arange(5, dtype=np.float32), np.ones(rounds, np.float32)
    run_variant(Kernel("sums", (x, h), k.body(), "about"), Variant("spread", launches), [values, got])
    np.testing.assert_array_equal(got, 11)


def test_time_goes_in_order_and_the_rest_at_once() -> None:
    """h[t + 1, u] depends on all of h[t]: one group, whose items share u."""
    k = Builder()
    x, h = Buffer("x", DType.F32), Buffer("h", DType.F32, const=False)
    with k.loop("t", 0, 5) as t, k.loop("u", 0, 40) as u:
        total = k.var("total", Load(x, u, Type("f32")))
        with k.loop("j", 0, 40) as j:
            k.assign(total, total + Load(h, t * 40 + j, Type("f32")))
        k.store(h, (t + 1) * 40 + u, total * 0.01)
    kernel = Kernel("recurrence", (x, h), k.body(), "about")
    launches = spread(kernel, {})
    assert launches is not None
    assert [(launch.size, launch.fixed) for launch in launches] == [((64,), True)]
    rng = np.random.default_rng(1)
    values = rng.standard_normal(40).astype(np.float32)
    wanted, got = np.zeros(240, np.float32), np.zeros(240, np.float32)
    interpret(kernel, [values, wanted])
    run_variant(kernel, Variant("spread", launches), [values, got])
    np.testing.assert_allclose(got, wanted, rtol=1e-6)
