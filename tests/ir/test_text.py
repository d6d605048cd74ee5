"""`parse(print(g))` prints the same again, to the byte, and is the same graph."""

from __future__ import annotations

import dataclasses
import typing
from enum import Enum
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from intaglio.frontends.onnx import load
from intaglio.ir import files
from intaglio.ir.choices import OPEN, Choices
from intaglio.ir.files import read_network, write_ir
from intaglio.ir.graph import Array, Graph, Node, Value
from intaglio.ir.placement import NOWHERE, Address, Placement
from intaglio.ir.stripes import StripeSpec
from intaglio.ir.text import Network, parse_network, print_graph
from intaglio.ir.types import DType, Layout, Quant, TensorType
from intaglio.ir.verify import verify
from intaglio.ir.weights import save_weights
from intaglio.kernels import lower
from intaglio.memory import place
from intaglio.ops.base import REGISTRY, Op, Step
from intaglio.ops.evaluate import evaluate_graph
from intaglio.passes import Context, optimise
from intaglio.targets.target import host_target
from support.examples import examples
from support.ir_text import graph_of, random_array
from support.placing import at
from support.random_graphs import graphs
from support.shared import ONNX, SHARED, needs_shared, shapes_of
from support.slow import quick_where

NAMES = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,8}", fullmatch=True)
TEXTS = st.text(max_size=12)
SIMPLE = [cls for cls in REGISTRY.values() if not any("Step" in str(f.type) for f in dataclasses.fields(cls))]


def attribute(hint: object) -> st.SearchStrategy[object]:
    """Anything of a field's type."""
    if hint is bool:
        return st.booleans()
    if hint is int:
        return st.integers(-(2**63), 2**63)
    if hint is float:
        return st.floats(allow_nan=True)
    if hint is str:
        return TEXTS
    if isinstance(hint, type) and issubclass(hint, Enum):
        return st.sampled_from(list(hint))
    if typing.get_origin(hint) is tuple:
        inner = typing.get_args(hint)[0]
        items = steps() if inner is Step else attribute(inner)
        return st.lists(items, max_size=3).map(tuple)
    raise AssertionError(hint)


def operators(classes: list[type[Op]]) -> st.SearchStrategy[Op]:
    def fields(cls: type[Op]) -> st.SearchStrategy[Op]:
        hints = typing.get_type_hints(cls)
        return st.builds(cls, **{f.name: attribute(hints[f.name]) for f in dataclasses.fields(cls)})

    return st.sampled_from(classes).flatmap(fields)


def steps() -> st.SearchStrategy[Step]:
    return st.builds(Step, operators(SIMPLE), st.lists(st.integers(0, 9), min_size=1, max_size=3).map(tuple))


SHAPES = st.lists(st.integers(0, 9), max_size=4).map(tuple)
QUANTS = st.one_of(
    st.none(),
    st.builds(lambda s, z: Quant((s,), (z,)), st.floats(1e-6, 10), st.integers(-128, 127)),
    st.builds(lambda s, z, a: Quant((s, 1.0), (z, 0), a), st.floats(1e-6, 10), st.integers(-128, 127), st.integers(0, 3)),
)
TYPES = st.builds(TensorType, st.sampled_from(list(DType)), SHAPES, st.sampled_from(list(Layout)), QUANTS)
REGIONS = ["arena", "arena:sram", "input", "state", "=y", "moon"]
PLACES = st.one_of(st.none(), st.builds(at, st.sampled_from(REGIONS), st.integers(0, 2**40)))


@st.composite
def any_networks(draw: st.DrawFn) -> Network:
    """Graphs that need not make sense: every operator, any attributes, names and sources."""
    graph = Graph(draw(NAMES))
    kernels: dict[str, str] = {}
    addresses: dict[Value, Address] = {}

    def value() -> Value:
        made = graph.value(draw(NAMES), draw(TYPES), draw(TEXTS))
        if (address := draw(PLACES)) is not None:
            addresses[made] = address
        return made

    graph.inputs = [value() for _ in range(draw(st.integers(0, 2)))]
    known: list[Value] = list(graph.inputs)
    for _ in range(draw(st.integers(1, 5))):
        if draw(st.booleans()):
            dtype = draw(st.sampled_from(list(DType)))
            known.append(graph.constant(draw(NAMES), random_array(draw(NAMES), dtype, draw(SHAPES)), dtype, draw(TEXTS)))
        inputs = draw(st.lists(st.sampled_from([None, *known]), max_size=4))
        outputs = [value() for _ in range(draw(st.integers(1, 3)))]
        if using := draw(st.sampled_from(["", "view", "conv_nhwc(tile=6x2)", "reduce(lanes=8)"])):
            kernels[outputs[0].name] = using
        when = draw(st.sampled_from([None, *known])) if known else None
        graph.nodes.append(Node(draw(operators(list(REGISTRY.values()))), inputs, outputs, draw(TEXTS), when))
        known += outputs
    graph.outputs = draw(st.lists(st.sampled_from(known), min_size=1, max_size=3))
    graph.output_names = [draw(TEXTS.filter(bool)) for _ in graph.outputs]
    layers = st.sampled_from([out.name for node in graph.nodes for out in node.outputs])
    specs = st.builds(StripeSpec, layers, layers, st.integers(1, 9), st.booleans(), st.booleans())
    stripes = tuple(draw(st.lists(specs, max_size=2)))
    choices = Choices(draw(st.sampled_from(["", "x86-64-v3"])), kernels, stripes)
    return Network(graph, choices, Placement(addresses), draw(st.sampled_from(["import", "optimise", "kernels", "memory"])))


def stored(graph: Graph) -> dict[str, Array]:
    """As the side file holds it."""
    arrays = {v.name: v.data for v in graph.constants() if v.data is not None}
    return {n: a.view(np.uint8) if a.dtype == np.bool_ else a for n, a in arrays.items()}


def assert_round_trip(
    graph: Graph, choices: Choices = OPEN, placement: Placement = NOWHERE, stage: str = "import"
) -> Network:
    text = print_graph(graph, choices, placement, stage)
    network = parse_network(text, stored(graph))
    again = network.graph
    assert print_graph(again, network.choices, network.placement, network.stage) == text
    assert [n.op for n in again.nodes if "nan" not in repr(n.op)] == [n.op for n in graph.nodes if "nan" not in repr(n.op)]
    assert [n.source for n in again.nodes] == [n.source for n in graph.nodes]
    assert network.choices == choices
    assert again.output_names == graph.output_names
    for mine, theirs in zip(graph.constants(), again.constants(), strict=True):
        np.testing.assert_array_equal(mine.data, theirs.data)
    return network


@settings(deadline=None, max_examples=examples(100), suppress_health_check=[HealthCheck.too_slow])
@given(any_networks())
def test_print_and_parse_is_the_identity(network: Network) -> None:
    again = assert_round_trip(network.graph, network.choices, network.placement, network.stage)
    mine, theirs = list(network.graph.values()), list(again.graph.values())
    assert [(v.name, str(v.type)) for v in mine] == [(v.name, str(v.type)) for v in theirs]
    assert [network.placement.of(v) for v in mine] == [again.placement.of(v) for v in theirs]
    assert [v.origin or v.name for v in mine] == [v.origin or v.name for v in theirs]


@pytest.mark.parametrize("name", REGISTRY)
@settings(deadline=None, max_examples=5)
@given(data=st.data())
def test_every_operator_can_be_written_and_read(name: str, data: st.DataObject) -> None:
    op = data.draw(operators([REGISTRY[name]]))
    graph = Graph("t")
    graph.inputs = [graph.value("x", TensorType(DType.F32, (1,)))]
    graph.nodes = [Node(op, [graph.inputs[0]], [graph.value("y", TensorType(DType.F32, (1,)))])]
    graph.outputs = [graph.nodes[0].output]
    graph.output_names = ["y"]
    assert_round_trip(graph)


@settings(deadline=None, max_examples=examples(30), suppress_health_check=[HealthCheck.too_slow])
@given(graphs())
def test_a_graph_from_text_computes_the_same(graph: Graph) -> None:
    again = assert_round_trip(graph).graph
    verify(again)
    inputs = {v.name: random_array(v.name, v.dtype, v.shape) for v in graph.inputs}
    for mine, theirs in zip(evaluate_graph(graph, inputs).values(), evaluate_graph(again, inputs).values(), strict=True):
        np.testing.assert_array_equal(mine, theirs)


LARGE = {
    "tract_qlstm", "gtcrn_simple", "fastestdet", "swift_f0", "ppocr_cls", "ultraface_rfb320_simpl", "yunet_n_320",
    "basicpitch_onnx",
}  # fmt: skip


@needs_shared
@pytest.mark.parametrize("entry", quick_where(lambda m: m["id"] not in LARGE, ONNX, lambda m: str(m["id"])))
def test_a_real_model_round_trips_after_every_stage(entry: dict[str, Any], tmp_path: Path) -> None:
    shapes = shapes_of(entry)
    graph, _ = load(SHARED / entry["file"], shapes=shapes)
    target = host_target()
    assert_round_trip(graph)
    graph = optimise(graph, Context(target))
    assert_round_trip(graph)
    program = lower(graph, target)
    assert_round_trip(graph, program.choices)
    program.placement = place(program, target)
    write_ir(graph, tmp_path / "model.ig", program.choices, program.placement)
    again = read_network(tmp_path / "model.ig")
    assert print_graph(again.graph, again.choices, again.placement) == print_graph(graph, program.choices, program.placement)


def test_two_runs_may_write_one_file_at_the_same_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second starts and ends while the first is between its text and its weights."""
    path, waiting = tmp_path / "model.ig", [True]

    def save(graph: Graph, place: Path) -> None:
        if waiting and waiting.pop():
            write_ir(of_size(512), path)
        save_weights(graph, place)

    monkeypatch.setattr(files, "save_weights", save)
    write_ir(of_size(256), path)
    assert read_network(path).graph.constants()[0].shape == (256,)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["model.ig", "model.safetensors"]


def of_size(elements: int) -> Graph:
    text = f"""
        input x: f32[{elements}]
        const w: f32[{elements}] ...
        y: f32[{elements}] = add(x, w)
        output y
    """
    return graph_of(text)
