"""What patterns match, why it is not taken, and how matches become larger regions."""

from __future__ import annotations

import pytest

from intaglio.accelerator import Accelerator, Cost, Facts, Is, Layout, Pattern, Region, Target
from intaglio.errors import UserError
from intaglio.ir.graph import Graph
from intaglio.ir.offload import Offload
from intaglio.ops.activation import Relu
from intaglio.passes.offload import Offloaded, give_away
from intaglio.passes.offload.match import Flow, claims
from intaglio.targets.target import find_target
from support.ir_text import graph_of
from support.toy_accelerators import Chains, Sums, Wide, plugin


def regions(text: str, accelerator: Accelerator) -> list[list[str]]:
    """The results of the nodes of each region that it would take."""
    found, _ = claims(Flow.of(graph_of(text)), plugin(accelerator))
    return [[node.output.name for node in claim.region.nodes] for claim in found]


def reasons(text: str, accelerator: Accelerator) -> dict[str, str]:
    _, refused = claims(Flow.of(graph_of(text)), plugin(accelerator))
    return {r.node.output.name: r.reason for r in refused}


def test_a_chain_is_matched_where_nobody_else_reads_inside() -> None:
    text = """
        input x: f32[4]
        input z: f32[4]
        a: f32[4] = mul(x, z)
        y: f32[4] = relu(a)
        output y
        """
    assert ["a", "y"] in regions(text, Chains())
    read_twice = text.replace("output y", "b: f32[4] = exp(a)\n        output y\n        output b")
    assert regions(read_twice, Chains()) == [["a"]]


def test_an_output_of_the_model_is_not_inside_of_a_region() -> None:
    text = """
        input x: f32[4]
        input z: f32[4]
        a: f32[4] = mul(x, z)
        y: f32[4] = relu(a)
        output y
        output a
        """
    assert regions(text, Chains()) == [["a"]]


def test_every_refusal_has_a_reason() -> None:
    told = reasons(
        """
        input x: f32[4]
        input z: f32[1]
        a: f32[4] = add(x, z)
        y: f32[4] = relu(a)
        output y
        """,
        Sums(),
    )
    assert told == {"a": "add: both sides must have the same shape", "y": "it has no pattern for `relu`"}


def test_a_layout_that_the_accelerator_does_not_take() -> None:
    class Planes(Sums):
        facts = Facts("planes", layouts=(Layout.NONE, Layout.NCHW))

    told = reasons(
        """
        input x: f32[1,2,2,4] NHWC
        y: f32[1,2,2,4] NHWC = add(x, x)
        output y
        """,
        Planes(),
    )
    assert told == {"y": "add: `x` is NHWC, it takes NCHW"}


def test_a_guarded_node_stays_on_the_core() -> None:
    told = reasons(
        """
        input x: f32[4]
        input c: bool[]
        a: f32[4] = add(x, x) when c
        y: f32[4] = select(c, a, x)
        output y
        """,
        Sums(),
    )
    assert told["a"] == "add: it runs only under a condition"


def test_matches_grow_together_but_not_around_a_node_of_others() -> None:
    text = """
        input x: f32[4]
        input z: f32[4]
        a: f32[4] = tanh(x)
        b: f32[4] = exp(a)
        y: f32[4] = mul(a, b)
        output y
        """
    assert regions(text, Chains()) == [["a"], ["y"]]  # with both, `b` would have to run in the middle
    assert ["a", "y"] in regions(text.replace("b: f32[4] = exp(a)", "b: f32[4] = exp(z)"), Chains())


def chosen(text: str, accelerators: list[Accelerator], only: frozenset[str] = frozenset()) -> tuple[Graph, Offloaded]:
    graph = graph_of(text)
    made = give_away(graph, find_target("cortex-m4f"), [plugin(a) for a in accelerators], only=only)
    return graph, made


CHAIN = """
        input x: f32[64]
        input z: f32[64]
        a: f32[64] = mul(x, z)
        b: f32[64] = tanh(a)
        c: f32[64] = mul(b, z)
        y: f32[64] = exp(c)
        output y
        """


def test_one_launch_for_three_is_cheaper_than_three() -> None:
    graph, made = chosen(CHAIN, [Chains()])
    assert [sent.layers for sent in made.sent] == [("a", "b", "c")]
    assert [kept.layer for kept in made.kept] == ["y"]
    assert made.proven
    assert isinstance(graph.nodes[0].op, Offload)
    assert [n.output.name for n in graph.nodes[0].op.body] == ["a", "b", "c"]


def test_a_launch_that_costs_more_than_it_saves_is_not_done() -> None:
    class Slow(Chains):
        launch = 1e9

    graph, made = chosen(CHAIN, [Slow()])
    assert not made.sent
    assert "the core is cheaper" in made.kept[0].reasons[0]
    assert not any(isinstance(n.op, Offload) for n in graph.nodes)


def test_an_activation_stays_with_the_product_that_the_core_computes() -> None:
    """Alone it would cost the core more than the accelerator; behind the product it costs next to nothing."""

    class Relus(Chains):
        name = "relus"
        patterns = (Pattern("relu", Is(Relu)),)

        def cost(self, region: Region, target: Target) -> Cost:
            return Cost(3 * region.elements)

    text = """
        input x: f32[64,8]
        const w: f32[8,8] ...
        a: f32[64,8] = matmul(x, w)
        y: f32[64,8] = relu(a)
        output y
        """
    _, made = chosen(text, [Relus()])
    assert not made.sent
    alone = text.replace("a: f32[64,8] = matmul(x, w)", "a: f32[64,8] = transpose(z, perm=(1,0))").replace(
        "const w: f32[8,8] ...", "input z: f32[8,64]"
    )
    _, made = chosen(alone, [Relus()])
    assert [sent.layers for sent in made.sent] == [("y",)]


def test_two_accelerators_and_the_core() -> None:
    text = CHAIN.replace("y: f32[64] = exp(c)", "d: f32[64] = exp(c)\n        y: f32[64] = add(d, z)")
    _, made = chosen(text, [Chains(), Sums()])
    assert [sent.place for sent in made.sent] == ["chains.0", "sums.1"]


def test_operators_can_be_forced_and_only_those() -> None:
    class Slow(Chains):
        launch = 1e9

    _, made = chosen(CHAIN, [Slow()], only=frozenset({"mul"}))
    assert [sent.layers for sent in made.sent] == [("a",), ("c",)]


def test_what_is_not_forced_stays_for_that_reason() -> None:
    _, made = chosen(CHAIN, [Chains()], only=frozenset({"tanh"}))
    assert {kept.layer: kept.reasons for kept in made.kept}["a"] == ("`--accelerator-only` does not name it",)


def test_what_is_forced_must_be_there_and_be_taken() -> None:
    with pytest.raises(UserError, match="has no operator `conv`"):
        chosen(CHAIN, [Chains()], only=frozenset({"conv"}))
    with pytest.raises(UserError, match="no accelerator takes `exp`: it has no pattern"):
        chosen(CHAIN, [Chains()], only=frozenset({"exp"}))


def test_an_accelerator_for_another_core() -> None:
    class Elsewhere(Wide):
        def supports(self, target: object) -> str | None:
            return "it is beside a cortex-m7"

    with pytest.raises(UserError, match="`wide` is not for `cortex-m4f`: it is beside a cortex-m7"):
        chosen(CHAIN, [Elsewhere()])
