"""What a report knows of a package: figures with their source, memory over time, reasons, code."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import onnx
import pytest

from intaglio import compile
from intaglio.report.code import code_of
from intaglio.report.differences import difference
from intaglio.report.facts import ESTIMATED, Facts, Figure
from intaglio.report.gather import Wanted, gather
from intaglio.report.layout import layered
from intaglio.report.names import shortened
from intaglio.report.placement import with_profile
from intaglio.report.roof import roof_of
from intaglio.run.package import Package
from intaglio.targets.board import all_boards
from intaglio.targets.target import find_target
from support.commands import DIGITS


@pytest.fixture(scope="module")
def firmware(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("unicorn")
    folder = tmp_path_factory.mktemp("m4") / "digits"
    return compile(DIGITS, output=folder, target="cortex-m4f", quantize="int8").folder


@pytest.fixture(scope="module")
def facts(firmware: Path) -> Facts:
    return gather(firmware, Wanted(), lambda _: None)


@pytest.fixture(scope="module")
def on_host(digits: Path) -> Facts:
    return gather(digits, Wanted(), lambda _: None)


def test_every_figure_says_where_it_comes_from(facts: Facts, on_host: Facts) -> None:
    sources = {f.key: f.source for f in facts.figures}
    assert sources == {
        "ram": "measured", "flash": "measured", "arena": "computed", "weights": "computed", "macs": "computed",
        "instructions": "emulated", "cycles": "estimated", "error": "emulated",
    }  # fmt: skip
    assert {f.key: f.source for f in on_host.figures}["time"] == "measured"


def test_parts_add_up_to_the_figures(facts: Facts) -> None:
    ram, flash = facts.figure("ram"), facts.figure("flash")
    assert ram is not None and ram.value == sum(part.bytes for part in facts.ram)
    assert flash is not None and flash.value == sum(part.bytes for part in facts.flash)


def test_buffers_that_live_together_do_not_overlap_and_fit(facts: Facts) -> None:
    (region,) = facts.regions
    for a in facts.blocks:
        assert a.offset >= 0 and a.offset + a.bytes <= region.bytes
        for b in facts.blocks:
            together = a is not b and a.first <= b.last and b.first <= a.last
            apart = a.offset + a.bytes <= b.offset or b.offset + b.bytes <= a.offset
            over = a.first == b.last or b.first == a.last  # a result may take over the memory of an operand in its last layer
            assert not together or apart or over, (a, b)
    assert region.live[region.peak] == max(region.live) <= region.bytes


def test_layers_have_costs_errors_reasons_and_code(facts: Facts, firmware: Path) -> None:
    code, reason = code_of(Package(firmware))
    assert reason == ""
    for layer in facts.layers:
        assert layer.instructions and layer.cycles
        assert not layer.error  # quantised here: the model has few of these layers, and those are equal
        assert layer.why and layer.function in code
        assert layer.function in code[layer.function].c and code[layer.function].file.startswith("src/")
    conv = next(layer for layer in facts.layers if layer.op == "qconv")
    assert "bl" in code[conv.function].assembly or "smla" in code[conv.function].assembly
    assert any(row.kernel == "qconv_tiles" and "no integer dot products" in row.reason for row in conv.refused)
    assert sum(layer.instructions or 0 for layer in facts.layers) <= (facts.figure("instructions") or facts.figures[0]).value


def test_layers_of_a_float_model_are_compared_with_its_own(on_host: Facts) -> None:
    errors = [layer.error for layer in on_host.layers]
    assert all(error is not None and error < 1e-5 for error in errors)
    assert on_host.numerics is not None and on_host.numerics.ok


def test_the_graph_has_every_layer_and_its_edges_go_down(facts: Facts) -> None:
    assert sorted(node.layer for node in facts.nodes if node.layer >= 0) == list(range(len(facts.layers)))
    assert facts.edges and all(facts.nodes[a].y < facts.nodes[b].y for a, b in facts.edges)
    assert facts.nodes[0].op == "input" and facts.nodes[-1].op == "output"


def test_passes_say_what_they_changed(on_host: Facts) -> None:
    fused = next(info for info in on_host.passes if info["name"] == "fuse_epilogue")
    assert fused["removed"] == {"conv": 2, "relu": 2} and fused["added"] == {"conv": 2}


def test_the_snippet_for_zephyr_names_the_symbol_of_the_package(facts: Facts, firmware: Path) -> None:
    [zephyr] = [snippet.text for snippet in facts.snippets if snippet.title == "Zephyr"]
    symbol = (firmware / "zephyr" / "Kconfig").read_text().split()[1]
    assert f"CONFIG_{symbol}=y" in zephyr.splitlines() and symbol == "INTAGLIO_DIGITS"


def test_the_state_of_a_network_is_in_its_memory(tmp_path: Path) -> None:
    tensor = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [1, 16]) for name in ("x", "s", "y", "t")]
    nodes = [onnx.helper.make_node("Add", ["x", "s"], ["t"]), onnx.helper.make_node("Exp", ["t"], ["y"])]
    graph = onnx.helper.make_graph(nodes, "sums", tensor[:2], tensor[2:])
    onnx.save(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)]), tmp_path / "sums.onnx")
    folder = compile(tmp_path / "sums.onnx", output=tmp_path / "p", target="generic", states={"s": "t"}).folder
    found = gather(folder, Wanted(run=False), lambda _: None)
    state = next(block for block in found.blocks if block.kind == "state")
    assert state.offset == 0 and state.bytes == Package(folder).manifest.memory.state_bytes > 0
    assert min(found.regions[0].live) >= state.bytes


def test_the_command_makes_the_package_again(facts: Facts) -> None:
    assert facts.command == "intaglio compile digits.onnx --target cortex-m4f -o digits --quantize int8"


def test_without_running_there_are_no_times(digits: Path) -> None:
    quiet = gather(digits, Wanted(run=False), lambda _: None)
    assert quiet.numerics is None and all(layer.time is None for layer in quiet.layers)


def test_a_package_without_ir_has_a_note_instead_of_a_graph(tmp_path: Path) -> None:
    folder = compile(DIGITS, output=tmp_path / "d", library_only=True).folder
    found = gather(folder, Wanted(run=False), lambda _: None)
    assert not found.nodes and found.notes


# Names, places, differences ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("names", "short"),
    [
        (["net_a_conv_out", "net_b_conv_out"], ["a", "b"]),
        (["net_conv1", "net_conv12", "y"], ["conv1", "conv12", "y"]),
        (["one"], ["one"]),
        (["a_b", "a_b"], ["b", "b"]),
        (["x" * 60], ["…" + "x" * 39]),
        ([], []),
    ],
)
def test_names_lose_what_they_share(names: list[str], short: list[str]) -> None:
    assert shortened(names) == short


def test_a_chain_is_a_straight_column_and_nodes_of_a_row_are_apart() -> None:
    chain = layered(5, [(n, n + 1) for n in range(4)])
    assert len(set(chain.columns)) == 1 and chain.rows == (0, 1, 2, 3, 4)
    wide = layered(42, [(0, n) for n in range(1, 41)] + [(n, 41) for n in range(1, 41)])
    columns = sorted(wide.columns[1:41])
    assert all(b - a >= 0.99 for a, b in pairwise(columns)) and wide.rows[41] == 2
    assert layered(0, []).columns == ()


def test_two_packages_beside_each_other(facts: Facts, on_host: Facts) -> None:
    same = difference(facts, facts)
    assert all(change.change_text == "same" and not change.worse for change in same.figures) and not same.layers
    made = difference(on_host, facts)
    by_key = {change.key: change for change in made.figures}
    assert by_key["weights"].better and by_key["weights"].share is not None and by_key["weights"].share < -0.5
    assert by_key["instructions"].change_text == "new" and by_key["time"].change_text == "gone"
    assert any(change.what == "gone" for change in made.layers) and any(change.what == "new" for change in made.layers)


@pytest.mark.parametrize(("source", "worse"), [("measured", False), ("estimated", True), ("emulated", True)])
def test_only_measured_times_have_noise(facts: Facts, source: str, worse: bool) -> None:
    one, two = (replace(facts, figures=(Figure("time", "time", value, "ms", source),)) for value in (100.0, 109.5))
    [change] = difference(one, two).figures
    assert change.worse is worse and change.change_text == "+9.5 %"


def test_accelerators_have_the_cycles_of_the_profile(facts: Facts) -> None:
    first, second = facts.layers[0], facts.layers[1]
    sent = replace(first, accelerator="npu", kernel="npu(region=0)", cycles=70)
    layers = (sent, replace(second, cycles=30))
    places: dict[str, object] = {
        "cycles": 800.5, "core_cycles": 9000.0,
        "regions": [{"place": "npu.0", "layers": [first.source], "cycles": 500}],
        "core": [{"layer": second.source or second.name, "op": second.op, "cycles": 25.0, "reasons": ["none"]}],
    }  # fmt: skip
    made = with_profile(places, layers, 110)
    assert made is not None and made["profiled_cycles"] == 110 and made["cycles"] == 800.5
    told = json.loads(json.dumps(made))
    assert told["regions"][0]["profiled_cycles"] == 70 and told["core"][0]["profiled_cycles"] == 30
    unknown = with_profile(places, tuple(replace(layer, cycles=None) for layer in layers), None)
    assert unknown is not None and unknown["profiled_cycles"] is None


def test_no_layer_is_above_the_roof(facts: Facts, on_host: Facts) -> None:
    for told in (facts, on_host):
        assert told.roof is not None
        for layer in told.layers:
            spent = layer.time if told.roof.unit == "us" else layer.cycles
            if layer.macs and spent and spent >= told.roof.least:
                assert layer.macs / spent <= told.roof.macs * 1.001
                assert (layer.weight_bytes + layer.result_bytes) / spent <= told.roof.bytes * 1.001
    assert facts.roof is not None and (facts.roof.macs, facts.roof.bytes, facts.roof.unit) == (2, 4, "cycle")


def test_a_layer_of_a_nanosecond_raises_no_roof(on_host: Facts) -> None:
    """What was measured is the clock then."""
    first, *others = on_host.layers
    short = replace(first, macs=10**6, time=0.001)
    host = find_target("x86-64-v3")
    assert roof_of(host, None, (short, *others)) == roof_of(host, None, tuple(others))


def test_the_roof_of_a_board_has_its_clock_and_its_wait_states(facts: Facts) -> None:
    roof = roof_of(find_target("cortex-m4f"), all_boards()["nucleo-l4r5zi"], facts.layers)
    assert roof is not None and (roof.macs, roof.bytes, roof.unit, roof.source) == (240, 480, "us", ESTIMATED)
    assert roof.flash == pytest.approx(120 * 8 / 6) and "5 wait states" in roof.words and "120 MHz" in roof.words
    floats = tuple(replace(layer, result="f32[1]") for layer in facts.layers)
    assert roof_of(find_target("cortex-m3"), None, floats) is None, "floats in software"


def test_layers_and_what_is_between_them_are_the_whole_run(facts: Facts, on_host: Facts) -> None:
    cycles = facts.figure("cycles")
    assert cycles is not None and [one.name for one in facts.between] == ["calls between layers"]
    assert sum(layer.cycles or 0 for layer in facts.layers) + facts.between[0].cost == cycles.value
    assert on_host.between == (), "the total is the sum of the layers"
