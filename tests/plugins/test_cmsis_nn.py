"""CMSIS-NN, installed from outside, with a stand-in for the user's checkout: the same interface, plain C of our own."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

import intaglio
from intaglio.conformance import check_accelerator
from intaglio.conformance.checks import Result
from intaglio.errors import AnswerIsNo, UserError
from intaglio.ir.files import write_ir
from intaglio.passes.offload.match import Flow, claims
from intaglio.targets.plugins import Plugin, find_accelerator
from intaglio.targets.target import find_target
from support.ir_text import graph_of
from support.shared import SHARED, needs_shared
from support.strict import CLANG

STAND_IN = Path(__file__).parents[2] / "plugins" / "cmsis_nn" / "tests" / "stand_in"
SINGLE = "CMSIS_NN_USE_SINGLE_ROUNDING"

CONV = """
    input x: i8[1,6,6,3] NHWC
    const w: i8[2,3,3,3] ...
    const b: i32[2] ...
    const m: i32[2] = [1500000000, 1500000001]
    const s: i32[2] = [-7, -8]
    y: i8[1,6,6,2] NHWC = qconv(x, w, b, m, s, pads=(1,1,1,1))
    output y
    """
DENSE = """
    input x: i8[1,8]
    const w: i8[2,8] ...
    const m: i32[1] = [{multiplier}]
    const s: i32[1] = [-1]
    y: i8[1,2] = qmatmul(x, w, _, m, s, transpose_b=true, scaling=once)
    output y
    """


@pytest.fixture
def plugin(outside: Path, monkeypatch: pytest.MonkeyPatch) -> Plugin:
    monkeypatch.setenv("CMSIS_NN_PATH", str(STAND_IN))
    monkeypatch.delenv(SINGLE, raising=False)
    return find_accelerator("cmsis_nn")


def compiled(text: str, folder: Path, target: str = "cortex-m4f", cflags: tuple[str, ...] = ()) -> intaglio.Package:
    write_ir(graph_of(text), folder / "m.ig")
    only = ["qconv"] if "qconv" in text else ["qmatmul"]
    return intaglio.compile(
        folder / "m.ig", output=folder / "p", target=target, accelerators=["cmsis_nn"], accelerator_only=only, cflags=cflags
    )


def refusals(text: str, plugin: Plugin) -> list[str]:
    return [r.reason for r in claims(Flow.of(graph_of(text)), plugin)[1]]


def held(results: list[Result], check: str, pattern: str = "") -> int:
    return sum(r.check == check and r.case.startswith(pattern) and r.refused is None for r in results)


@pytest.mark.slow  # that of `example_npu` runs the suite too
def test_it_conforms(plugin: Plugin, monkeypatch: pytest.MonkeyPatch) -> None:
    """With fully connected layers that round once, as those of TFLite do: then every pattern has cases."""
    monkeypatch.setenv(SINGLE, "dense")
    results = list(check_accelerator(plugin))
    assert not [r for r in results if r.problem is not None]
    assert held(results, "C on cortex-m4f") == held(results, "C on host") == held(results, "cost") > 80
    assert all(held(results, "C on cortex-m4f", pattern.name) >= 9 for pattern in plugin.patterns)


@pytest.mark.slow
@needs_shared
def test_a_real_model_forced_onto_it_has_the_same_bits(plugin: Plugin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SINGLE, "dense")
    package = intaglio.compile(
        SHARED / "models" / "mlperf_kws_int8.tflite", output=tmp_path / "p", board="nucleo-l4r5zi", accelerators=["cmsis_nn"],
        accelerator_only=["qconv", "qmatmul", "qaverage_pool", "qsoftmax"],
    )  # fmt: skip
    data = np.load(SHARED / "ref" / "mlperf_kws_int8.npz")
    made = next(iter(package.run({package.manifest.inputs[0].name: data["in0"][0]}).values()))
    assert np.array_equal(made, data["out0"][0].reshape(made.shape))
    assert {layer.accelerator for layer in package.manifest.layers if layer.op != "reshape"} == {"cmsis_nn"}


def test_what_the_core_does_faster_stays_there(plugin: Plugin, tmp_path: Path) -> None:
    write_ir(graph_of(CONV), tmp_path / "m.ig")
    package = intaglio.compile(tmp_path / "m.ig", output=tmp_path / "p", target="cortex-m4f", accelerators=["cmsis_nn"])
    assert package.manifest.accelerators == ()


def test_without_a_checkout_it_says_what_to_do(plugin: Plugin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    core = find_target("cortex-m4f")
    assert plugin.supports(core) is None
    assert "not for `rv32imc`" in str(plugin.supports(find_target("rv32imc")))
    monkeypatch.setenv("CMSIS_NN_PATH", str(tmp_path))
    assert "has no `Include/arm_nnfunctions.h`" in str(plugin.supports(core))
    monkeypatch.delenv("CMSIS_NN_PATH")
    assert "`CMSIS_NN_PATH` is not set: give it the folder of a checkout" in str(plugin.supports(core))
    with pytest.raises(UserError, match="CMSIS_NN_PATH"):
        compiled(CONV, tmp_path)


def edited(folder: Path, file: str, old: str, new: str) -> Path:
    """Another version of the library."""
    shutil.copytree(STAND_IN, folder)
    path = next(folder.rglob(file))
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))
    return folder


def test_a_version_that_needs_more_scratch_memory_ends_with_an_error(
    plugin: Plugin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = edited(tmp_path / "other", "arm_convolve_get_buffer_sizes_s8.c", "return 2 * 2 *", "return 4 + 2 * 2 *")
    monkeypatch.setenv("CMSIS_NN_PATH", str(other))
    package = compiled(CONV, tmp_path)
    with pytest.raises(AnswerIsNo, match="an accelerator reports an error"):
        package.run({"x": np.zeros((1, 6, 6, 3), np.int8)})


def test_a_version_with_other_parameters_is_not_called(plugin: Plugin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = edited(tmp_path / "other", "arm_convolve_wrapper_s8.c", "const cmsis_nn_dims *bias_dims, ", "")
    monkeypatch.setenv("CMSIS_NN_PATH", str(other))
    assert "has 10 parameters, and 11 are given" in refusals(CONV, plugin)[0]


def test_only_files_that_are_needed_are_in_a_package(plugin: Plugin) -> None:
    files = plugin.files(find_target("cortex-m4f"))
    assert "Internal/arm_nn_compiler.h" in files and "arm_nn_dot_s8.c" in files  # named by others, not by us
    assert "arm_relu_q7.c" not in files
    assert len(files) == len(list(STAND_IN.rglob("*.[ch]")))  # one less, and `cmsis_nn_calls.h`


def test_layers_that_round_once_need_a_library_that_does(plugin: Plugin, monkeypatch: pytest.MonkeyPatch) -> None:
    text = DENSE.format(multiplier=1500000001)
    assert "it is rounded once, and CMSIS-NN is built to round twice" in refusals(text, plugin)[0]
    monkeypatch.setenv(SINGLE, "dense")
    assert refusals(text, plugin) == []
    assert refusals(CONV, plugin) == []
    monkeypatch.setenv(SINGLE, "1")
    assert refusals(text, plugin) == []
    assert "it is rounded twice, and CMSIS-NN is built to round once" in refusals(CONV, plugin)[0]


def test_halves_that_are_rounded_in_another_way_are_refused(plugin: Plugin, monkeypatch: pytest.MonkeyPatch) -> None:
    """A factor of 1/4: -2 is -0.5, which is -1 for TFLite and 0 for CMSIS-NN."""
    monkeypatch.setenv(SINGLE, "dense")
    assert "exactly between two results" in refusals(DENSE.format(multiplier=1 << 30), plugin)[0]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ("pads=(1,1,1,1), w_zero=3", "its weights have a zero point"),
        ("pads=(1,1,1,1), scaling=once", "it is rounded once"),
    ],
)
def test_what_it_would_compute_otherwise_is_refused(plugin: Plugin, change: str, reason: str) -> None:
    assert reason in refusals(CONV.replace("pads=(1,1,1,1)", change), plugin)[0]


def test_scratch_memory_is_what_the_library_asks_for_on_each_kind_of_core(plugin: Plugin) -> None:
    region = claims(Flow.of(graph_of(CONV)), plugin)[0][0].region
    sizes = {name: plugin.compile(region, find_target(name)).scratch_bytes for name in ("cortex-m4f", "cortex-m55", "cortex-m3")}
    assert sizes == {"cortex-m4f": 2 * 2 * 28, "cortex-m55": 4 * 32, "cortex-m3": 2 * 2 * 28}


def test_rows_that_the_function_for_rows_gets_wrong_go_to_the_one_for_all_shapes(plugin: Plugin) -> None:
    """5 columns under a kernel of 5 in steps of 2: the last window has two columns outside, and MVE code expects one."""
    text = """
        input x: i8[1,1,5,4] NHWC
        const w: i8[8,4,1,5] ...
        const b: i32[8] ...
        const m: i32[8] ...
        const s: i32[8] = [-7, -7, -7, -7, -7, -7, -7, -7]
        y: i8[1,1,3,8] NHWC = qconv(x, w, b, m, s, strides=(1,2), pads=(0,2,0,2))
        output y
        """
    region = claims(Flow.of(graph_of(text)), plugin)[0][0].region
    assert "if (arm_convolve_s8(" in plugin.compile(region, find_target("cortex-m55")).body
    plain = text.replace("strides=(1,2), pads=(0,2,0,2)", "").replace("1,1,3,8", "1,1,1,8").replace("m, s, )", "m, s)")
    region = claims(Flow.of(graph_of(plain)), plugin)[0][0].region
    assert "if (arm_convolve_wrapper_s8(" in plugin.compile(region, find_target("cortex-m55")).body


def test_windows_whose_middle_is_outside_are_refused(plugin: Plugin) -> None:
    text = """
        input x: i8[1,4,6,5] NHWC
        const w: i8[5,1,3,3] ...
        const m: i32[5] ...
        const s: i32[5] = [-7, -7, -7, -7, -7]
        y: i8[1,4,6,5] NHWC = qconv(x, w, _, m, s, pads=(1,0,1,2), group=5)
        output y
        """
    assert "the middle of every window inside" in refusals(text, plugin)[0]
    assert refusals(text.replace("(1,0,1,2)", "(1,1,1,1)"), plugin) == []


def test_our_code_has_no_warnings(plugin: Plugin, tmp_path: Path) -> None:
    compiled(CONV, tmp_path, "host", CLANG)
