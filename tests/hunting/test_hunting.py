"""The hunter: models that it makes are valid, bounds hold and are tight, and a planted miscompile is found and reduced."""

from __future__ import annotations

import os
import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from hunting import chains, compare, flows, hunt
from hunting.chains import Chain, chain_of, failures_of, reduced_chain
from hunting.compare import Case, case_of, compiled, configs, in_python
from hunting.devices import devices, on_device
from hunting.flows import KINDS, Flow, case_of_flow, failures_of_flow, flow_of
from hunting.generate import generate
from hunting.recipe import Recipe, Step, Type
from intaglio.frontends.reading import read_source
from intaglio.frontends.tflite.rows.tables import TABLES
from intaglio.ir.graph import Graph
from intaglio.ops.activation import Relu
from intaglio.ops.unary import Neg

FIRST = 10**6


def cases(folder: Path, count: int) -> list[Case]:
    made = [case_of(FIRST + n, generate(FIRST + n), folder) for n in range(count)]
    return [case for case in made if case is not None]


def test_models_at_random_are_right_in_every_way(tmp_path: Path) -> None:
    made = cases(tmp_path, 12)
    assert len(made) >= 10
    assert [f for case in made for f in in_python(case, random.Random(0))] == []


@pytest.mark.slow
def test_compiled_models_at_random_are_right(tmp_path: Path) -> None:
    made = cases(tmp_path, 12)
    assert [f for config in configs() for f in compiled(made, config)] == []


def test_one_compiled_batch_is_right(tmp_path: Path) -> None:
    assert list(compiled(cases(tmp_path, 3), configs()[1])) == []


def test_bounds_are_tight(tmp_path: Path) -> None:
    """A bound that allows everything finds nothing: half of the models have bounds below a hundred thousandth of their results."""
    shares = []
    for case in cases(tmp_path, 40):
        known = case.bounds[0]
        assert known is not None
        for value in case.graph.outputs:
            bound = known.get(value.name)
            if bound is not None and bound.value.size:
                shares.append(float(np.max(bound.error)) / max(float(np.max(np.abs(bound.value))), 1e-30))
    assert np.median(shares) < 1e-5


def _broken(model: Path, disabled: frozenset[str]) -> Graph:
    """As if a pass took a relu for a negation."""
    graph = read_source(model, {}, {}, None, {}, lambda note: None).graph
    for node in graph.nodes:
        if isinstance(node.op, Relu):
            node.op = Neg()
    return graph


LONG = Recipe(
    (Type((2, 3)),),
    (
        Step("Tanh", (0,), Type((2, 3))),
        Step("Add", (1, np.ones(3, np.float32)), Type((2, 3))),
        Step("Transpose", (2,), Type((3, 2)), {"perm": [1, 0]}),
        Step("Relu", (3,), Type((3, 2))),
        Step("Softmax", (4,), Type((3, 2)), {"axis": 1}),
        Step("Mul", (5, 5), Type((3, 2))),
        Step("Sigmoid", (6,), Type((3, 2))),
    ),
    (7,),
)


def test_a_planted_miscompile_is_found_and_reduced(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    case = case_of(1, LONG, tmp_path)
    assert case is not None and hunt.tried(case) == []
    monkeypatch.setattr(compare, "optimised", _broken)
    monkeypatch.setattr(compare, "OPTIONAL", compare.OPTIONAL[:3])
    found = hunt.tried(case)
    assert {f.config.partition(":")[0] for f in found} == {"passes", "pass"}
    small = hunt.reduced(1, LONG, "passes", tmp_path)
    assert [step.op for step in small.steps] == ["Relu"]
    text = hunt.as_test(1, small, found[0])
    assert "Step('Relu', (" in text and text.endswith("assert_right(1, recipe)\n")


def test_a_step_that_is_left_out_becomes_an_input() -> None:
    smaller = LONG.without(4).pruned()
    assert smaller.inputs == (Type((2, 3)), Type((3, 2)))
    assert [step.op for step in smaller.steps] == ["Softmax", "Mul", "Sigmoid"]
    assert smaller.steps[0].operands == (1,)


def test_integer_chains_agree_with_litert_in_every_bit(tmp_path: Path) -> None:
    pytest.importorskip("ai_edge_litert", reason="LiteRT is not installed")
    assert [f for seed in range(12) for f in failures_of(chain_of(seed), tmp_path)] == []
    assert list(failures_of(Chain(53, ("SOFTMAX", "TANH")), tmp_path)) == []  # tanh in fixed point was one off, nearly half-way


def test_a_planted_difference_of_integers_is_found_and_reduced(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pytest.importorskip("ai_edge_litert", reason="LiteRT is not installed")
    chain = Chain(3, ("RELU", "TANH", "ADD", "RELU"))
    monkeypatch.setitem(TABLES, "TANH", TABLES["LOGISTIC"])
    wrong = next(failures_of(chain, tmp_path))
    assert wrong.config == "tflite meaning"
    assert reduced_chain(chain, wrong.config, tmp_path).kinds == ("TANH",)


@pytest.mark.parametrize("kind", KINDS)
def test_states_and_control_flow_agree_with_the_reference(kind: str, tmp_path: Path) -> None:
    made = Flow(FIRST, kind, ("conv", "relu") if kind == "stream" else ("dot", "add"), () if kind == "stream" else ("swap",))
    assert list(failures_of_flow(case_of_flow(made, tmp_path), random.Random(0))) == []


@pytest.mark.slow
@pytest.mark.parametrize("target", [*devices(), "c"])
def test_states_and_control_flow_compiled(target: str, tmp_path: Path) -> None:
    made = [case_of_flow(flow_of(FIRST + n), tmp_path) for n in range(len(KINDS))]
    assert {flow_of(FIRST + n).kind for n in range(len(KINDS))} == set(KINDS)
    if target == "c":
        assert [f for config in configs() for f in compiled(made, config)] == []
    else:
        assert [f for case in made for f in on_device(case, target)] == []


def test_a_planted_fault_in_a_loop_is_found_and_reduced(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """As if a result were one more than it is, where a loop makes more than one turn."""
    made = Flow(7, "loop", ("abs", "add", "half"), ("neg",))
    assert list(failures_of_flow(case_of_flow(made, tmp_path), random.Random(0))) == []
    right = compare.stepwise
    monkeypatch.setattr(flows, "stepwise", lambda graph, feeds: ([a + (len(r) > 1) for a in r] for r in right(graph, feeds)))
    small = hunt.smallest(made, "flow passes", tmp_path, hunt.of_flow)
    assert small == Flow(7, "loop", (), ())


def test_a_package_on_a_core_is_right_and_a_wrong_one_is_found(tmp_path: Path) -> None:
    pytest.importorskip("unicorn")
    case = case_of_flow(Flow(2, "state", ("add",)), tmp_path)
    assert list(on_device(case, "cortex-m4f")) == []
    wrong = replace(case, bounds=tuple(reversed(case.bounds)))
    assert [f.config for f in on_device(wrong, "cortex-m4f")] == ["on:cortex-m4f"]


def _ends(path: Path, steps: object) -> None:
    os._exit(6)


def test_a_reference_that_ends_the_process_ends_no_hunt(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """LiteRT does so where a check of its own fails."""
    monkeypatch.setattr(chains, "all_by_litert", _ends)
    assert hunt.report_chain(Chain(1, ("RELU",)), tmp_path) is False
