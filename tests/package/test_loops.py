"""Loops that stay loops: as many turns as ONNX Runtime makes, in the memory of one."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import numpy as np
import pytest

import intaglio
from intaglio.errors import AnswerIsNo, ModelError
from intaglio.frontends.onnx import load
from intaglio.ir.text import parse_graph, print_graph
from intaglio.run.package import Package
from support.commands import Intaglio
from support.loop_models import LOOPS, Case, body, decoder, remembering
from support.onnx_models import FLOAT, model, node, saved, value


def equal(package: Package, path: Path, case: Case, times: int) -> int:
    """How many different shapes there were."""
    import onnxruntime

    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    names, shapes = [output.name for output in session.get_outputs()], set()
    for seed in range(times):
        given = case.draw(np.random.default_rng(seed))
        got = package.run(given)
        for name, want in zip(names, session.run(names, given), strict=True):
            assert got[name].shape == want.shape, (seed, name)
            assert np.allclose(got[name], want, rtol=1e-4, atol=1e-5), (seed, name)
            shapes.add((name, want.shape))
    return len(shapes)


@pytest.mark.parametrize("name", LOOPS)
def test_loops_give_what_the_reference_gives(name: str, tmp_path: Path) -> None:
    case = LOOPS[name]
    path = saved(case.proto, tmp_path)
    package = intaglio.compile(path, output=tmp_path / "p", max=case.most, dims=case.dims, library_only=True)
    names = [layer.op for layer in package.manifest.layers]
    assert names.count("loop_end") == {"a loop in a loop": 2, "branches of different shapes": 0}.get(name, 1)
    different = equal(package, path, case, 100 if name == "a greedy decoder" else 12)
    assert different > (3 if case.most or case.dims or name == "a greedy decoder" else 0)


def test_more_turns_than_there_is_room_for_are_an_error(tmp_path: Path) -> None:
    case = LOOPS["as often as an input says"]
    package = intaglio.compile(saved(case.proto, tmp_path), max={"rows": 5}, library_only=True)
    x = np.ones((1, 4), np.float32)
    assert package.run({"x": x, "n": np.asarray(5)})["rows"].shape == (5, 1, 4)
    with pytest.raises(AnswerIsNo) as caught:
        package.run({"x": x, "n": np.asarray(6)})
    assert caught.value.slug == "size-out-of-bounds"


def test_check_and_fit_take_the_largest_number_too(intaglio: Intaglio, tmp_path: Path) -> None:
    path = saved(LOOPS["as often as an input says"].proto, tmp_path)
    asked = intaglio("check", path)
    assert asked.code == 1 and "`--max rows=N`" in asked.out
    assert intaglio("check", path, "--max", "rows=5").code == 0
    fitted = intaglio("fit", path, "--max", "rows=5", "--board", "nucleo-l4r5zi", "--quick")
    assert fitted.code == 0 and "other inputs may need more turns" in fitted.err, fitted.err


def test_rows_without_a_bound_ask_for_one(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="how often a loop runs depends on data") as caught:
        load(saved(LOOPS["as often as an input says"].proto, tmp_path))
    assert "`--max rows=N`" in caught.value.hint


def test_what_grows_in_each_turn_has_room_for_the_most(tmp_path: Path, intaglio: Intaglio) -> None:
    path = saved(remembering(), tmp_path)
    for target in ("host", "cortex-m4f"):
        assert intaglio("compile", path, "--dim", "P=3", "--target", target, "-o", tmp_path / target).code == 0
        assert intaglio("validate", tmp_path / target).code == 0
    text = print_graph(load(path, dims={"P": 3})[0])
    assert "size keys_length = 3..22 of " in text and "size keys_length_2 = 3..23 of " in text
    with pytest.raises(ModelError, match="the size of what it carries") as caught:
        load(saved(remembering(1 << 40), tmp_path), dims={"P": 3})
    assert "`--max said=N`" in caught.value.hint


@pytest.mark.parametrize("turns", [5, 100])
def test_what_changes_in_another_way_is_refused(tmp_path: Path, turns: int) -> None:
    nodes = [
        node("Concat", "a a", "b", axis=0), node("ReduceSum", "b", "s", keepdims=0), node("Less", "s limit", "again"),
    ]  # fmt: skip
    inside = body(nodes, [("a", "b", (FLOAT, [None, 4]))], (), "again")
    outer = [node("Loop", "turns true x", "y", body=inside)]
    constants = {"turns": np.asarray(turns), "true": np.array(True), "limit": np.float32(9)}
    proto = model(outer, [value("x", [1, 4])], [value("y", None)], constants, opset=17)
    with pytest.raises(ModelError, match=r"changes from turn to turn \(.* becomes \[a_length\+a_length<="):
        load(saved(proto, tmp_path))


def test_the_text_of_a_loop_is_read_back(tmp_path: Path) -> None:
    graph, _ = load(saved(decoder(), tmp_path))
    text = print_graph(graph)
    assert "size word_end_count = 0..501 of " in text and " = loop_end(" in text
    arrays = {v.name: v.data for v in graph.constants() if v.data is not None}
    assert print_graph(parse_graph(text, arrays)) == text


def test_memory_and_code_do_not_grow_with_the_number_of_turns(tmp_path: Path) -> None:
    few, many = (
        intaglio.compile(saved(decoder(n), tmp_path, f"d{n}.onnx"), library_only=True).manifest for n in (100, 501)
    )
    assert few.memory.arena_bytes == many.memory.arena_bytes and len(few.layers) == len(many.layers) < 30


def test_the_package_validates_tests_itself_and_tells_the_time_of_a_layer(tmp_path: Path, intaglio: Intaglio) -> None:
    path = saved(decoder(80), tmp_path, "decoder.onnx")
    assert intaglio("compile", path, "-o", tmp_path / "p").code == 0
    said = intaglio("validate", tmp_path / "p")
    assert said.code == 0, said.err
    test = subprocess.run([tmp_path / "p" / "bin" / "decoder", "--selftest"], capture_output=True, text=True, check=False)
    assert test.returncode == 0, test.stdout
    said = intaglio("profile", tmp_path / "p", "--json")
    assert "figures are those of one run" in said.err.lower()
    layers = json.loads(said.out)["layers"]
    times = {layer["name"]: layer["time_ms"] for layer in layers}
    assert times["logits"] > 3 * times["features"] / 12 / 16  # it ran many times


def test_firmware_loops_too(tmp_path: Path) -> None:
    case = LOOPS["until data says so"]
    path = saved(case.proto, tmp_path)
    firmware = intaglio.compile(path, output=tmp_path / "p", target="cortex-m4f", max=case.most)
    equal(firmware, path, case, 2)
