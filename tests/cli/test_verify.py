"""`compile --verify` names the pass or the kernel that changes a result."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import intaglio.passes as passes
from intaglio.errors import OurFault
from intaglio.ir.graph import Graph
from intaglio.ir.spans import Span
from intaglio.kernels.program import Program
from intaglio.ops.activation import Relu
from intaglio.ops.evaluate import evaluate_graph
from intaglio.ops.sizes import Dimensions
from intaglio.ops.unary import Abs
from intaglio.options.request import Request
from intaglio.passes.context import Context
from intaglio.passes.line import Pass
from intaglio.pipeline import plan_request
from intaglio.run.machine import Machine
from intaglio.stages import verifying
from intaglio.stages.verifying import Verifier
from intaglio.stages.watch import Watch
from support.commands import DIGITS, Intaglio
from support.loop_models import LOOPS
from support.onnx_models import model, node, saved, value
from support.small_networks import anomalies


def plan(path: Path, target: str = "generic", **options: object) -> Program:
    return plan_request(Request(path, path.with_name("out"), target=target, **options), Watch()).program  # type: ignore[arg-type]


def test_what_was_verified_and_its_cost_are_told(intaglio: Intaglio, tmp_path: Path) -> None:
    said = intaglio("compile", DIGITS, "-o", tmp_path / "p", "--verify", "--target", "generic", "--stop-after", "memory")
    assert said.code == 0
    assert "note: verified: " in said.err and "6 kernels by interpretation" in said.err and " s)" in said.err


def test_a_layer_that_is_too_large_is_told(monkeypatch: pytest.MonkeyPatch, intaglio: Intaglio, tmp_path: Path) -> None:
    monkeypatch.setattr(verifying, "MOST_PRODUCTS", 5_000)
    said = intaglio("compile", DIGITS, "-o", tmp_path / "p", "--verify", "--target", "generic", "--stop-after", "memory")
    assert said.code == 0
    assert "NOT interpreted, over 5,000 products or not of ours: `relu2_1`" in said.err


def spoil(graph: Graph, context: Context) -> Graph:
    """A relu becomes another function."""
    for each in graph.nodes:
        if isinstance(each.op, Relu):
            each.op = Abs()
    return graph


def test_a_pass_that_changes_a_result_is_named(monkeypatch: pytest.MonkeyPatch, intaglio: Intaglio, tmp_path: Path) -> None:
    monkeypatch.setattr(passes, "OPTIMISE", (Pass("spoil", spoil), *passes.OPTIMISE))
    words = ("compile", DIGITS, "-o", tmp_path / "p", "--target", "generic", "--stop-after", "memory")
    assert intaglio(*words).code == 0  # nobody looks
    said = intaglio(*words, "--verify", "--force")
    assert said.code == 3
    assert "error[miscompiled]: the pass `spoil` changed the output `" in said.err
    assert "`--disable-pass spoil` compiles without that pass" in said.err


def test_a_kernel_that_computes_something_else_is_named() -> None:
    program = plan(DIGITS)
    first = program.constants[0]
    wrong = replace(first, data=np.asarray(first.data) + np.float32(0.01))
    spoiled = replace(program, constants=[wrong, *program.constants[1:]])
    with pytest.raises(OurFault, match=r"the kernel `\w+` of layer `\w+` \(conv\) is wrong: by up to"):
        Verifier().kernels(spoiled)


def test_integer_kernels_are_tried_at_the_extremes_of_their_types(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = tmp_path / "ad.tflite"
    path.write_bytes(anomalies())
    program = plan(path, "cortex-m4f")
    verifier = Verifier()
    verifier.kernels(program)
    assert verifier.layers == verifier.at_extremes == len(program.layers) > 3
    monkeypatch.setattr(verifying, "inputs_of", lambda graph: iter(()))
    at = next(n for n, c in enumerate(program.constants) if np.asarray(c.data).dtype == np.int32)
    wrong = replace(program.constants[at], data=np.asarray(program.constants[at].data) + 100_000)
    constants = [*program.constants[:at], wrong, *program.constants[at + 1 :]]
    with pytest.raises(OurFault, match=r"is wrong on the (least|largest|mixed) numbers"):
        Verifier().kernels(replace(program, constants=constants))


def planned(name: str, folder: Path) -> Program:
    case = LOOPS[name]
    dims = {n: Span(*span) for n, span in case.dims.items()}
    return plan(saved(case.proto, folder), most=case.most, dims=dims)


@pytest.mark.parametrize("name", ["along an axis with a range", "branches of different shapes", "until data says so"])
def test_ranges_loops_and_what_data_says_are_interpreted(name: str, tmp_path: Path) -> None:
    program = planned(name, tmp_path)
    verifier = Verifier()
    verifier.begin(program.graph)
    verifier.kernels(program)
    inside = [layer for layer in program.layers if not layer.node.op.LOOP]
    assert verifier.layers >= len(inside) - 2 > 0  # all but those of a branch that no input takes
    assert len(verifier.feeds) == (5 if program.graph.given_ranges() else 3)


def test_what_is_found_in_a_loop_is_another_in_each_turn(tmp_path: Path) -> None:
    program = planned("until data says so", tmp_path)
    feed = {"x": np.array([[-2.5, -1.5, -0.5, 0.25]], np.float32)}
    want, got = evaluate_graph(program.graph, feed), Machine(program).run(feed)
    counts = next(array for array in want.values() if array.shape[1:] == (1,))
    assert len(set(counts.reshape(-1).tolist())) > 1
    for out in program.graph.outputs:
        assert np.allclose(got[out.name], want[out.name])


def test_a_kernel_that_is_wrong_at_the_least_size_alone_is_named(tmp_path: Path) -> None:
    nodes = [node("Shape", "x", "n"), node("Cast", "n", "f", to=1), node("ReduceMax", "f", "m"), node("Mul", "x m", "y")]
    program = plan(saved(model(nodes, [value("x", ["T", 2])]), tmp_path), dims={"T": Span(3, 9)})
    layer = next(one for one in program.layers if isinstance(one.node.op, Dimensions))
    size = program.graph.inputs[0].shape[0]
    layer.node.op = Dimensions((size + (9 - size) // 6, 2), (2,))  # the same but where T is 3
    with pytest.raises(OurFault, match=r"the kernel `\w+` of layer `\w+` \(dimensions\) is wrong: 1 element differ"):
        Verifier().kernels(program)


def test_stripes_of_a_range_are_interpreted(tmp_path: Path) -> None:
    wide = {"a": np.ones((16, 64), np.float32), "b": np.ones((64, 16), np.float32)}
    nodes = [node("MatMul", "x a", "h1"), node("Relu", "h1", "h2"), node("MatMul", "h2 b", "y")]
    program = plan(saved(model(nodes, [value("x", [1, "T", 16])], constants=wide), tmp_path), dims={"T": Span(0, 40)}, ram=7000)
    assert program.stripes
    Verifier().kernels(program)


def test_a_model_that_takes_no_random_input_is_told(monkeypatch: pytest.MonkeyPatch, intaglio: Intaglio, tmp_path: Path) -> None:
    monkeypatch.setattr(verifying, "_results", lambda graph, feed: None)
    said = intaglio("compile", DIGITS, "-o", tmp_path / "p", "--verify", "--target", "generic", "--stop-after", "memory")
    assert said.code == 0
    assert "NOT verified: the model takes none of the inputs that were drawn at random" in said.err


@pytest.mark.parametrize("nodes", [
    [node("ReduceMean", "x", "y", axes=[1], keepdims=0)], [node("ReduceMax", "x", "y", axes=[1])], [node("Relu", "x", "y")],
    [node("Transpose", "x", "t", perm=[0, 2, 1]), node("ReduceMean", "t", "y", axes=[1, 2])],
], ids=["mean", "largest", "nothing", "of moved"])  # fmt: skip
@pytest.mark.parametrize("target", ["generic", "cortex-m3"])
def test_layers_of_no_elements_are_right(nodes: list[object], target: str, intaglio: Intaglio, tmp_path: Path) -> None:
    path = saved(model(nodes, [value("x", [2, 0, 3])], [value("y", None)]), tmp_path)
    said = intaglio("compile", path, "-o", tmp_path / "p", "--verify", "--target", target, "--stop-after", "memory")
    assert said.code == 0, said.err
    assert "NOT interpreted" not in said.err
