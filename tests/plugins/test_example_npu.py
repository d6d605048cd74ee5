"""The NPU, installed from outside: tiles, times, and real models on an emulated core that has one."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import intaglio
from intaglio.conformance import check_accelerator
from intaglio.conformance.cases import cases
from intaglio.passes.offload.match import Flow, claims
from intaglio.targets.plugins import find_accelerator
from intaglio.targets.target import find_target
from support.commands import DIGITS, Intaglio
from support.shared import SHARED, needs_shared

pytestmark = pytest.mark.usefixtures("outside")


@pytest.mark.slow
def test_it_conforms() -> None:
    results = list(check_accelerator(find_accelerator("example_npu")))
    assert not [r for r in results if r.problem is not None]
    held = [r.check for r in results if r.refused is None]
    assert held.count("C on cortex-m4f") == held.count("C on host") == held.count("emulation") > 60


@pytest.mark.slow
def test_so_does_the_model_of_its_behaviour_in_firmware() -> None:
    assert not [r for r in check_accelerator(find_accelerator("example_npu_model")) if r.problem is not None]


def test_cycles_that_are_promised_are_those_of_the_model() -> None:
    """The cost of a region is a schedule in Python; the model in C counts for itself."""
    from example_npu import model
    from example_npu.hardware import encode
    from example_npu.layers import layer_of
    from example_npu.tiling import best_job

    plugin = find_accelerator("example_npu")
    compared = 0
    for pattern in plugin.patterns:
        for case in cases(pattern):
            for claim in claims(Flow.of(case.graph), plugin)[0]:
                job = best_job(layer_of(claim.region))
                out = np.zeros(claim.region.outputs[0].shape, np.int8)
                inputs = [np.zeros(v.shape, np.int8) for v in claim.region.inputs]
                both = inputs if len(inputs) > 1 else [*inputs, inputs[0]]
                assert model.run(encode(job.commands), job.constants, both, out) == job.cycles
                cost = plugin.cost(claim.region, find_target("cortex-m4f"))
                assert cost.cycles + cost.transfer_cycles == job.cycles
                compared += 1
    assert compared > 60


def test_dma_works_while_the_array_does() -> None:
    """With everything twice, a layer of many tiles takes less than loads, arithmetic and stores one after the other."""
    from example_npu.layers import layer_of
    from example_npu.tiling import best_job

    plugin = find_accelerator("example_npu")
    large = [c for c in cases(plugin.patterns[0]) if "24 to 40" in c.name]
    job = best_job(layer_of(claims(Flow.of(large[0].graph), plugin)[0][0].region))
    loads = sum(c.cycles for c in job.commands if not c.on_array)
    assert len(job.commands) > 8
    assert max(loads, job.array_cycles) <= job.cycles < 0.9 * (loads + job.array_cycles)


def test_what_does_not_fit_the_scratchpad_is_refused_with_its_size() -> None:
    from support.ir_text import graph_of

    graph = graph_of(
        """
        input x: i8[1,3,3,2000] NHWC
        const w: i8[16,2000,3,3] ...
        const b: i32[16] ...
        const m: i32[16] ...
        const s: i32[16] = [-7, -7, -7, -7, -7, -7, -7, -7, -7, -7, -7, -7, -7, -7, -7, -7]
        y: i8[1,1,1,16] NHWC = qconv(x, w, b, m, s)
        output y
        """
    )
    found, refused = claims(Flow.of(graph), find_accelerator("example_npu"))
    assert not found
    assert "bytes of the scratchpad's 32,768" in refused[0].reason


@needs_shared
@pytest.mark.slow  # quick: `test_it_conforms`, and digits in `test_compile_fit_and_profile_show_the_same_total`
@pytest.mark.parametrize("name", ["mlperf_ic_int8", "mlperf_vww_int8"])
def test_five_times_fewer_instructions_and_the_same_bits(name: str, tmp_path: Path) -> None:
    path = SHARED / "models" / f"{name}.tflite"
    alone = intaglio.compile(path, output=tmp_path / "core", board="nucleo-l4r5zi")
    both = intaglio.compile(path, output=tmp_path / "npu", board="nucleo-l4r5zi", accelerators=["example_npu"])
    data = np.load(SHARED / "ref" / f"{name}.npz")
    wanted = data["out0"][:2]
    for n in range(2):
        given = {alone.manifest.inputs[0].name: data["in0"][n]}
        results = [next(iter(package.run(given).values())) for package in (alone, both)]
        assert np.array_equal(results[0], wanted[n].reshape(results[0].shape))
        assert np.array_equal(results[1], results[0])
    counts = [package.profile().total.instructions for package in (alone, both)]
    assert counts[0] is not None and counts[1] is not None
    assert 5 * counts[1] < counts[0]
    assert both.manifest.accelerators == ("example_npu",)


@pytest.mark.slow
def test_the_core_goes_on_beside_it_and_waits_only_for_what_is_left(tmp_path: Path) -> None:
    """Two branches: while the NPU convolves one, the core pools the other; the cycles of the run are less than both."""
    from intaglio.ir.files import write_ir
    from support.ir_text import graph_of

    text = """
        input x: i8[1,24,24,16] NHWC
        const w: i8[16,16,3,3] ...
        const b: i32[16] ...
        const m: i32[16] ...
        const s: i32[16] = [-7, -7, -7, -7, -7, -7, -7, -7, -7, -7, -7, -7, -7, -7, -7, -7]
        a: i8[1,24,24,16] NHWC = qconv(x, w, b, m, s, pads=(1,1,1,1))
        c: i8[1,24,24,16] NHWC = qaverage_pool(x, kernel=(3,3), pads=(1,1,1,1))
        y: i8[1,24,24,32] NHWC = concat(a, c, axis=3)
        output y
        """
    write_ir(graph_of(text), tmp_path / "m.ig")
    package = intaglio.compile(tmp_path / "m.ig", output=tmp_path / "p", board="nucleo-l4r5zi", accelerators=["example_npu"])
    profile = package.profile()
    cycles = {layer.op: layer.cycles or 0 for layer in profile.layers}
    plugin = find_accelerator("example_npu")
    npu = plugin.cost(claims(Flow.of(graph_of(text)), plugin)[0][0].region, find_target("cortex-m4f"))
    assert npu.cycles > 5000
    assert cycles["qconv"] < 1000  # started and found done: the core never waited
    assert package.validate().ok


@pytest.mark.slow
@pytest.mark.usefixtures("one_board")
def test_compile_fit_and_profile_show_the_same_total(intaglio: Intaglio, tmp_path: Path) -> None:
    data = Path(DIGITS).with_suffix(".npz")
    words = (DIGITS, "--quantize", "int8", "--calibrate", data, "--board", "nucleo-l4r5zi", "--accelerator", "example_npu")
    said = intaglio("compile", *words, "--explain", "-o", tmp_path / "p")
    total = intaglio("profile", tmp_path / "p", "--json").json["total"]
    told = intaglio("fit", *words, "--json").json
    assert (told["cycles"], told["time_ms"], told["flash_bytes"]) == (total["cycles"], total["time_ms"], total["flash_bytes"])
    assert f"total: about {total['cycles']:,} cycles = {total['time_ms']:.3f} ms at 120 MHz" in said.out
    assert "estimate us" not in said.out and said.out.count("estimated") == 1, "no second total"
    (alone,) = told["boards"]
    assert alone["time_ms"] == told["time_ms"]
