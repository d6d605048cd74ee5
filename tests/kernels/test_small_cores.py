"""Kernels of cores without an operating system: interpreter, the same C on this machine, and emulated core agree, bit for bit."""

from __future__ import annotations

import ctypes
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from intaglio.ir.graph import Array
from intaglio.kernels.considered import considered
from intaglio.kernels.contraction import halves
from intaglio.ops.hybrid import HybridConv, HybridMatMul
from intaglio.ops.trees import TreeEnsemble
from intaglio.run.toolchains import find_toolchain
from intaglio.targets.target import find_target, host_target
from support.kernel_emulated import emulated_cases, operand_of, program_of, wrong_cases
from support.kernel_floats import FLOATS
from support.kernel_integer_tiles import INTEGER_TILES
from support.kernel_quick import first_of_each_kind
from support.kernel_running import Case, assert_close, call_compiled, compile_c, interpreted, prepare, write_c
from support.kernel_small_cores import SMALL_CORES

LARGE = ("in stripes", "in chunks", "large window")  # for caches that these cores do not have
ALL = {n: replace(c, using="") for n, c in {**SMALL_CORES, **INTEGER_TILES}.items() if not n.endswith(LARGE)}
LITTLE = "cortex-m4f in little memory"
CORES = {
    "cortex-m4f": find_target("cortex-m4f"),
    "cortex-m4f for speed": replace(find_target("cortex-m4f"), optimize="speed"),
    LITTLE: replace(find_target("cortex-m4f"), limited=True),
    "cortex-m4": find_target("cortex-m4"),
    "cortex-m55": find_target("cortex-m55"),
    "rv32imc": find_target("rv32imc"),
    "cortex-m0+": find_target("cortex-m0+"),
    "cortex-m3": find_target("cortex-m3"),
}
# What has no kernel of its own on these cores: windows that are larger, dilated or of several channels.
PLAIN = ("of padding alone", "two channels from one", "lanes dilated", "large window", "even windows", "1 wide", "18 channels")


_EMULATED = ("cortex-m4", "cortex-m4f for speed", LITTLE, "cortex-m3")  # below; others show that the interpreter agrees


def interpreted_quickly(name: str, core: str) -> bool:
    """rv32imc has the kernels of every processor without vectors, which test_compiled.py compiles, and those of the Cortex-M0+."""
    return core not in _EMULATED and (core != "rv32imc" or name in _FIRST)


_FIRST = first_of_each_kind(ALL, CORES["rv32imc"])
_EACH = [pytest.param(n, c, marks=[] if interpreted_quickly(n, c) else pytest.mark.slow) for n in ALL for c in CORES]


@pytest.mark.parametrize(("name", "core"), _EACH)
def test_the_kernel_means_what_the_reference_says(name: str, core: str) -> None:
    code, results = interpreted(ALL[name], CORES[core])
    assert code == 0
    assert_close(ALL[name], results, ALL[name].expected())


@pytest.mark.parametrize("name", FLOATS)
def test_floats_on_an_fpu_are_what_the_reference_says(name: str) -> None:
    call = prepare(FLOATS[name], CORES["cortex-m4f"])
    assert "_fpu(" in call.lowered.using or FLOATS[name].using
    code, results = interpreted(FLOATS[name], CORES["cortex-m4f"])
    assert code == 0
    assert_close(FLOATS[name], results, FLOATS[name].expected())


def test_the_dsp_extension_is_taken() -> None:
    starts = ("tiles", "windows", "a sum", "a product", "rows", "channels", "dense", "quantised", "the largest", "means")
    used = {n: prepare(c, CORES["cortex-m4f"]).lowered.using for n, c in ALL.items() if n.startswith(starts)}
    plain = [n for n, using in used.items() if "dsp" not in using and not any(words in n for words in PLAIN)]
    assert plain == []


@pytest.mark.parametrize("core", ["cortex-m0+", "rv32imc"])
def test_two_pixels_or_channels_share_a_product_without_the_dsp_extension(core: str) -> None:
    used = {n: prepare(c, CORES[core]).lowered.using for n, c in ALL.items()}
    meant = [using for name, using in used.items() if name.startswith(("two ", "a sum of a", "a sum of eq"))]
    assert all("_halves(" in using for using in meant), meant


def test_runs_say_which_fours_fit() -> None:
    assert halves.runs_of_fours(np.asarray([True, True, False, False, True])) == [2, 0, 1]
    assert halves.runs_of_fours(np.asarray([False, True, False])) == [0, 1]
    assert halves.runs_of_fours(np.asarray([*[True] * 257, False])) == [255, 1]  # the 256th is split, though it fits


REASONS = [
    ("lanes of even windows", "cortex-m4f", "qdepthwise_dsp", "the window is 2x4, this kernel takes 3x3"),
    ("lanes dilated", "cortex-m4f", "qdepthwise_dsp", "the window is dilated"),
    ("tiles 1x1", "cortex-m4f", "qdepthwise_dsp", "it is not depthwise"),
    ("tiles of two channels from one", "cortex-m4f", "qconv_dsp", "every group has one input channel"),
    ("lanes of a product of u8", "cortex-m4f", "qmul_dsp", "one side is repeated"),
    ("bytes pooled with windows of padding", "cortex-m4f", "max_pool_dsp", "a window has no pixel"),
    ("tiles 3x3 of u8", "cortex-m55", "qconv_rows", "the weights do not fit 8 bits"),
    ("tiles 3x3 of u8", "cortex-m55", "qconv_dsp", "the core has no DSP extension"),
    ("a sum of a larger side", "cortex-m55", "qconv_rows", "another layer is fused into it"),
    ("tiles 1x1", "cortex-m4f", "qconv_halves", "the target is neither a Cortex-M without the DSP extension nor a 32-bit RISC-V"),
    ("tiles of two channels from one", "cortex-m0+", "qconv_halves", "every group has one input channel"),
    ("rows that need a column", "cortex-m0+", "qmatmul_halves", "there is one row, and its length is not a multiple of four"),
    ("tiles of the lowest", "cortex-m0+", "qconv_halves", "two neighbouring weights are -128"),
    ("tiles 3x3 of u8", "cortex-m0+", "qconv_halves", "the weights do not fit 8 bits"),
    ("tiles shifted up", "cortex-m0+", "qconv_halves", "sums are scaled in a slow way"),
    ("quantised as they come", "cortex-m55", "hybrid_conv_dsp", "the core has no DSP extension"),
    ("floats 1x1", "cortex-m4", "conv_fpu", "the target is not a Cortex-M with an FPU and without vectors"),
    ("floats 1x1", "rv32imc", "conv_fpu", "the target is not a Cortex-M with an FPU and without vectors"),
]


@pytest.mark.parametrize(("name", "core", "kernel", "reason"), REASONS, ids=lambda part: part)
def test_a_kernel_says_why_it_is_not_used(name: str, core: str, kernel: str, reason: str) -> None:
    assert [c.reason for c in considered((ALL | FLOATS)[name].node(), CORES[core]) if c.name == kernel] == [reason]


@pytest.mark.parametrize("layout", ["joined", "apart", "wide"])
def test_an_edited_layout_of_weights_counts(layout: str) -> None:
    edited = replace(ALL["tiles 3x3"], using=f"qconv_dsp({layout}_twice_i8)")
    assert prepare(edited, CORES["cortex-m4f"]).lowered.using == edited.using
    assert_close(edited, interpreted(edited, CORES["cortex-m4f"])[1], edited.expected())


def test_a_layout_that_the_weights_do_not_fit_does_not_count() -> None:
    edited = replace(ALL["tiles of the lowest"], using="qconv_dsp(joined_twice_i8)")
    assert prepare(edited, CORES["cortex-m4f"]).lowered.using == "qconv_dsp(apart_twice_i8)"


@pytest.mark.skipif(shutil.which("gcc") is None, reason="sanitizers need gcc")
@pytest.mark.parametrize(
    "core", ["cortex-m4f", "cortex-m0+", *(pytest.param(c, marks=pytest.mark.slow) for c in ("cortex-m4f for speed", "rv32imc"))]
)
def test_the_same_c_on_this_machine(core: str, tmp_path: Path) -> None:
    """What assembly says, the C beside it says too; nothing is undefined, nothing warns."""
    cases = ALL | FLOATS if core == "cortex-m4f" else ALL
    calls = {name: prepare(c, CORES[core]) for name, c in cases.items()}
    write_c(list(calls.values()), CORES[core].isa, tmp_path / "k.c")
    flags = ["-O0", "-shared", "-fPIC", "-fsanitize=undefined", "-fno-sanitize-recover=all", "-lm"]
    compile_c(find_toolchain("gcc"), host_target(), tmp_path / "k.c", tmp_path / "k.so", *flags)
    library = ctypes.CDLL(str(tmp_path / "k.so"))

    def run(name: str) -> list[Array]:
        call = calls[name]
        assert call_compiled(library, call) == 0
        return [call.arrays[n].reshape(o.shape) for n, o in zip(call.outputs, cases[name].node().outputs, strict=True)]

    assert not (found := wrong_cases(cases, run)), "\n".join(found)


def _needs_floats(c: Case) -> bool:
    return isinstance(c.op, (HybridConv, HybridMatMul, TreeEnsemble)) or getattr(c.op, "scaling", "") == "float"


def test_cores_with_the_dsp_extension_have_the_same_kernels() -> None:
    """So that what the emulated Cortex-M4F gives, a Cortex-M33 gives too."""
    whole = {n: c for n, c in ALL.items() if not _needs_floats(c)}
    assert program_of(whole, find_target("cortex-m33"))[0] == program_of(whole, find_target("cortex-m4f"))[0]


@pytest.mark.parametrize(
    "core",
    [
        *("cortex-m4f", "cortex-m0+", "rv32imc"),
        pytest.param("cortex-m7", marks=pytest.mark.slow),  # the kernels of the M4F in another order
        pytest.param(LITTLE, marks=pytest.mark.slow),
        pytest.param("cortex-m3", marks=pytest.mark.slow),  # the kernels of the M0+, with a multiplication of 64 bits
        pytest.param("cortex-m4", marks=pytest.mark.slow),  # integers: the kernels of the M4F
        pytest.param("cortex-m4f for speed", marks=pytest.mark.slow),
        pytest.param("cortex-m33", marks=pytest.mark.slow),
    ],
)
def test_the_emulated_core_gives_the_same(core: str, tmp_path: Path) -> None:
    target = CORES.get(core) or find_target(core)
    whole = {n: c for n, c in ALL.items() if not _needs_floats(c)} | ({} if target.fpu == "none" else FLOATS)
    assert not (wrong := emulated_cases(whole, target, tmp_path)), "\n".join(wrong)


@pytest.mark.parametrize("core", ["cortex-m4f", pytest.param("cortex-m4", marks=pytest.mark.slow), "cortex-m0+"])
def test_a_result_may_take_the_memory_of_itsoperand_of(core: str, tmp_path: Path) -> None:
    """The emulated core gives the same where a kernel says that it can."""
    found = {}
    for name, c in ALL.items():
        call = prepare(c, CORES[core])
        same = call.arrays[operand_of(call)].nbytes == call.arrays[call.outputs[0]].nbytes
        if call.lowered.kernel.in_place and same and not _needs_floats(c):
            found[name] = c
    assert {"channels as many as before"} <= set(found)
    assert core == "cortex-m0+" or {"windows of many channels", "windows on two rows"} <= set(found)
    assert not (wrong := emulated_cases(found, CORES[core], tmp_path, over=True)), "\n".join(wrong)
