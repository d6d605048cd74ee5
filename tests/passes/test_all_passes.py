"""What holds for every pass: results stay, the graph stays legal, and each has its tests."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings

from intaglio.errors import UserError
from intaglio.ir.graph import Graph
from intaglio.ir.verify import verify
from intaglio.passes import PASSES, PIPELINE, Pass, optimise
from support.ir_text import TARGET, assert_same_results, graph_of, results
from support.random_graphs import graphs

SOURCES = "".join(p.read_text() for p in Path(__file__).parent.glob("test_*.py"))
SLOW = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@pytest.mark.parametrize("step", PASSES, ids=lambda p: p.name)
def test_each_pass_is_shown_before_and_after_and_where_it_does_not_apply(step: Pass) -> None:
    for wanted in (f"    {step.name},\n", f"({step.name}, "):
        if wanted in SOURCES:
            break
    else:
        raise AssertionError(f"no test of {step.name}")
    assert "->" in (step.run.__doc__ or "")


@SLOW
@given(graphs())
def test_an_optimised_graph_gives_what_it_gave(graph: Graph) -> None:
    before = results(graph)

    def legal(name: str, after: Graph) -> None:
        verify(after, name)

    assert_same_results(optimise(graph, TARGET, observe=legal), before, bound=1e-4)


@pytest.mark.parametrize("step", PASSES, ids=lambda p: p.name)
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(graph=graphs(5))
def test_each_pass_may_be_switched_off(step: Pass, graph: Graph) -> None:
    before = results(graph)
    after = optimise(graph, TARGET, disabled=frozenset({step.name}))
    verify(after)
    assert_same_results(after, before, bound=1e-4)


def test_a_pass_that_is_not_there_cannot_be_switched_off() -> None:
    with pytest.raises(UserError, match="there is no pass `dead_cod`"):
        optimise(graph_of("input x: f32[1]\ny: f32[1] = exp(x)\noutput y"), TARGET, disabled=frozenset({"dead_cod"}))


def test_the_pipeline_runs_each_pass() -> None:
    assert {p.name for p in PIPELINE} == {p.name for p in PASSES}
