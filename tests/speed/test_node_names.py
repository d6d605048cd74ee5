"""Layers of runtimes are compared by the nodes of the model that they compute, under whatever name."""

from __future__ import annotations

from onnx import helper

from figures import LayerTime
from node_names import of_nodes, renamed


def test_an_activation_and_results_are_named_after_the_layer_before() -> None:
    nodes = [helper.make_node("Conv", ["x", "w"], ["a"], name="conv"), helper.make_node("Relu", ["a"], ["b"], name="relu")]
    assert of_nodes(nodes) == {"conv": "conv", "a": "conv", "relu": "conv", "b": "conv"}


def test_an_activation_of_a_value_that_others_read_is_a_layer_of_its_own() -> None:
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"], name="conv"),
        helper.make_node("Relu", ["a"], ["b"], name="relu"),
        helper.make_node("Add", ["a", "b"], ["c"], name="add"),
    ]
    known = of_nodes(nodes)
    assert known["b"] == "relu" and known["c"] == "add"


def test_names_of_a_layer_that_mean_one_node_become_one() -> None:
    layer = LayerTime("fused", "Conv", 1.0, ("a", "relu", "unknown"))
    assert renamed([layer], {"a": "conv", "relu": "conv"}) == [LayerTime("fused", "Conv", 1.0, ("conv", "unknown"))]
