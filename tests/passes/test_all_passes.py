"""What holds for every pass: results stay, the graph stays legal, and each has its tests."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings

from intaglio.errors import UserError
from intaglio.frontends.reading import read_source
from intaglio.ir.graph import Graph
from intaglio.ir.verify import verify
from intaglio.passes import OPTIMISE, PASSES, Pass, absorb, check_disabled, optimise
from intaglio.passes.context import Context
from intaglio.passes.line import UntilSettled, named, passes_of, run, settled
from support.examples import examples
from support.ir_text import CONTEXT, TARGET, assert_same_results, graph_of, noise, results
from support.random_graphs import graphs
from support.shared import SHARED, needs_shared

SOURCES = "".join(p.read_text() for p in Path(__file__).parent.glob("test_*.py"))
SLOW = settings(max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.too_slow])
EXP = "input x: f32[1]\ny: f32[1] = exp(x)\noutput y"


@pytest.mark.parametrize("step", PASSES, ids=lambda p: p.name)
def test_each_pass_is_shown_before_and_after_and_where_it_does_not_apply(step: Pass) -> None:
    calls = (f"    {step.name},\n", f"({step.name}, ", f" {step.name}(graph")
    assert any(call in SOURCES for call in calls), f"no test of {step.name}"
    assert "->" in (step.run.__doc__ or "")


@SLOW
@given(graphs())
def test_an_optimised_graph_gives_what_it_gave(graph: Graph) -> None:
    before, moves = results(graph), noise(graph)

    def legal(name: str, after: Graph) -> None:
        verify(after, name)

    assert_same_results(optimise(graph, replace(CONTEXT, observe=legal)), before, 1e-4, moves)


@pytest.mark.parametrize("step", [p for p in PASSES if not p.required], ids=lambda p: p.name)
@settings(max_examples=examples(15), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(graph=graphs(5))
def test_each_pass_may_be_switched_off(step: Pass, graph: Graph) -> None:
    before, moves = results(graph), noise(graph)
    after = optimise(graph, replace(CONTEXT, disabled=frozenset({step.name})))
    verify(after)
    assert_same_results(after, before, 1e-4, moves)


def test_a_pass_that_is_not_there_cannot_be_switched_off() -> None:
    with pytest.raises(UserError, match="unknown pass `dead_cod`"):
        check_disabled(frozenset({"dead_cod"}))


def test_a_pass_that_an_option_stands_for_cannot_be_switched_off() -> None:
    off = frozenset({"stream"})
    with pytest.raises(UserError, match="`--stream` needs the pass `stream`, which cannot be switched off"):
        optimise(graph_of(EXP), Context(TARGET, disabled=off, stream=0))
    assert optimise(graph_of(EXP), Context(TARGET, disabled=off)).nodes  # nobody asked for it


def test_each_pass_that_runs_is_observed_by_the_name_that_switches_it_off() -> None:
    seen: list[str] = []
    context = replace(CONTEXT, observe=lambda name, _: seen.append(name))
    optimise(graph_of(EXP), context)
    running = [p for p in passes_of(OPTIMISE) if p.when.holds(context)]
    always = {p.name for p in running}
    assert set(seen) == always
    for name in sorted({p.name for p in running if not p.required}):
        seen.clear()
        optimise(graph_of(EXP), replace(context, disabled=frozenset({name})))
        assert set(seen) == always - {name}


# Groups that run until nothing changes -----------------------------------------------------------------------------------------


def _longer(graph: Graph, context: Context) -> Graph:
    """Never ends: each round renames and exchanges a node."""
    node = graph.nodes[0]
    graph.nodes = [replace(node, inputs=list(node.inputs))]
    return graph


def _as_it_is(graph: Graph, context: Context) -> Graph:
    graph.nodes = list(graph.nodes)
    return graph


def test_a_group_ends_with_the_first_round_that_changes_nothing() -> None:
    assert settled(UntilSettled(named(_as_it_is)), graph_of(EXP), CONTEXT)[1] == 1


def test_a_group_that_goes_in_circles_ends_at_its_bound() -> None:
    seen: list[str] = []
    group = UntilSettled(named(_longer), most=5)
    verify(run((group,), graph_of(EXP), replace(CONTEXT, observe=lambda name, _: seen.append(name))))
    assert seen == ["_longer"] * 5


@SLOW
@given(graphs())
def test_groups_settle_before_their_bound(graph: Graph) -> None:
    for part in OPTIMISE:
        if isinstance(part, Pass):
            graph = run((part,), graph, CONTEXT)
            continue
        graph, rounds = settled(part, graph, CONTEXT)
        assert rounds < part.most


@needs_shared
@pytest.mark.parametrize("name", ["gtcrn_simple.onnx", "tract_qlstm.onnx", "wand5_onnx_f32.onnx", "yunet_n_320.onnx"])
def test_groups_settle_on_models_with_the_most_rounds(name: str) -> None:
    path = next(iter(SHARED.rglob(name)), None)
    assert path is not None
    context = replace(CONTEXT, source="onnx")
    graph = absorb(read_source(path, {}, {}, None, {}, lambda _: None).graph, context)
    most = 0
    for part in OPTIMISE:
        if isinstance(part, Pass):
            graph = run((part,), graph, context)
            continue
        graph, rounds = settled(part, graph, context)
        most = max(most, rounds)
    assert most <= 6
