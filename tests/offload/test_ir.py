"""Regions in IR text: `on npu.0`."""

from __future__ import annotations

import numpy as np
import pytest

from intaglio.errors import ModelError
from intaglio.ir.offload import Offload
from intaglio.ir.text import parse_graph, print_graph
from intaglio.ops.evaluate import evaluate_graph

TEXT = """intaglio-ir 1
model m stage=optimise
input x: f32[4]
const w: f32[2] = [1.0, 2.0]
a: f32[4] = relu(x) on npu.0  # /a
b: f32[4] = exp(a) on npu.0  # /b
c: f32[4] = tanh(b)  # /c
d: f32[4] = add(c, b) on npu.1  # /d
output d
"""


def test_a_region_is_one_node_and_reads_back_as_it_was() -> None:
    text = TEXT.replace("const w: f32[2] = [1.0, 2.0]\n", "")
    graph = parse_graph(text, {}, "m.ig")
    assert [type(n.op) is Offload for n in graph.nodes] == [True, False, True]
    first = graph.nodes[0].op
    assert isinstance(first, Offload)
    assert [v.name for v in first.inputs] == ["x"]
    assert [v.name for v in first.outputs] == ["b"]  # `a` is inside
    assert graph.nodes[0].source == "/a, /b"
    assert print_graph(graph, stage="optimise") == text


def test_it_means_what_its_nodes_mean() -> None:
    graph = parse_graph(TEXT, {}, "m.ig")
    x = np.array([-1.0, 0.0, 0.5, 2.0], np.float32)
    inner = np.exp(np.maximum(x, 0))
    assert np.allclose(evaluate_graph(graph, {"x": x})["d"], np.tanh(inner) + inner)


def test_a_region_with_a_way_out_and_back_in_cannot_be() -> None:
    with pytest.raises(ModelError, match="regions wait for each other"):
        parse_graph(TEXT.replace("on npu.1", "on npu.0"), {}, "m.ig")


def test_a_guarded_node_is_on_no_accelerator() -> None:
    text = TEXT.replace("input x: f32[4]\n", "input x: f32[4]\ninput g: bool[]\n").replace("tanh(b)", "tanh(b) on npu.3 when g")
    with pytest.raises(ModelError, match="`c` is guarded"):
        parse_graph(text, {}, "m.ig")


@pytest.mark.parametrize(
    ("words", "said"), [("on npu", "expected `.`"), ("on npu.x", "the number of a region"), ("at npu.0", "`on`")]
)
def test_words_that_are_wrong(words: str, said: str) -> None:
    with pytest.raises(ModelError, match=said):
        parse_graph(TEXT.replace("on npu.1", words), {}, "m.ig")
