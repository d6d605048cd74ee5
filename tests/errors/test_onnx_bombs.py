"""Models that are small in the file and would be endless in the compiler: refused, or left to the device, within seconds."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import helper

from intaglio.errors import ModelError
from intaglio.frontends.onnx import container, load
from intaglio.package.source import copy_model
from support.onnx_models import BOOL, INT64, ints, model, node, saved, value
from support.slow import quick_where


def slug_of(path: Path) -> str:
    with pytest.raises(ModelError) as caught:
        load(path)
    assert caught.value.hint
    return caught.value.slug


def test_two_gigabytes_of_zeros_are_not_read(tmp_path: Path) -> None:
    path = saved(model([node("Relu", "x", "y")]), tmp_path)
    os.truncate(path, 2**31 - 100)
    assert slug_of(path) == "not-a-model"


def _empty_nodes() -> bytes:
    body = b"\x0a\x00" * 200_000  # an empty node is two bytes of file and a hundred of memory
    return b"\x08\x0a\x3a\x80\xb5\x18" + body + b"\x42\x02\x10\x15"


def _doubling_functions(leaf: str) -> Any:
    """Each function calls the next one twice: 2**24 calls."""
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("own", 1)]
    functions = [helper.make_function("own", "F24", ["a"], ["b"], [node(leaf, "a", "b")], opsets)]
    for i in range(24):
        calls = [helper.make_node(f"F{i + 1}", [a], [b], domain="own") for a, b in (("a", "t"), ("t", "b"))]
        functions.append(helper.make_function("own", f"F{i}", ["a"], ["b"], calls, opsets))
    call = helper.make_node("F0", ["x"], ["y"], domain="own")
    return model([call], functions=functions, opsets=[helper.make_opsetid("own", 1)])


def _doubling_branches() -> Any:
    graph = helper.make_graph([node("Relu", "x", "t")], "b", [], [value("t", None)])
    for _ in range(14):
        graph = helper.make_graph([node("If", "c", "t", then_branch=graph, else_branch=graph)], "b", [], [value("t", None)])
    return model(
        [node("If", "c", "y", then_branch=graph, else_branch=graph)], [value("x", [1, 4]), value("c", [], BOOL)]
    )


def _doubling_constant() -> Any:
    body = helper.make_graph(
        [node("Identity", "c", "d"), node("Concat", "v v", "w", axis=0)], "b",
        [value("i", [], INT64), value("c", [], BOOL), value("v", None)], [value("d", [], BOOL), value("w", None)],
    )  # fmt: skip
    constants = {"m": np.array(60), "t": np.array(True), "k": np.ones((1, 4), np.float32)}
    return model([node("Loop", "m t k", "z", body=body), node("Add", "x z", "y")], constants=constants)


def _many_constants() -> Any:
    makers = [node("ConstantOfShape", "s", f"a{i}") for i in range(40)]
    names = " ".join(f"a{i}" for i in range(40))
    return model([*makers, node("Sum", names, "y")], [], constants={"s": ints(4000, 4000)})


BOMBS: dict[str, Callable[[], Any]] = {
    "200,000 empty nodes": _empty_nodes,
    "functions": lambda: _doubling_functions("Relu"),
    "functions without effect": lambda: _doubling_functions("Identity"),
    "branches": _doubling_branches,
    "a constant that doubles": _doubling_constant,
    "many constants": _many_constants,
}


@pytest.mark.parametrize("name", quick_where(lambda name: name != "functions without effect", BOMBS))
def test_a_small_file_that_would_grow_without_end_is_too_large(name: str, tmp_path: Path) -> None:
    assert slug_of(saved(BOMBS[name](), tmp_path)) == "too-large"


def _vocabulary(monkeypatch: pytest.MonkeyPatch, size: int) -> Any:
    monkeypatch.setattr(container, "MAX_FIELDS", 1000)
    monkeypatch.setattr(container, "MAX_VALUES", 5000)
    return model([node("Relu", "x", "y", keys=[f"word {n}" for n in range(size)])])


def test_strings_of_an_attribute_are_no_nodes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert load(saved(_vocabulary(monkeypatch, 4000), tmp_path))[0].nodes
    with pytest.raises(ModelError, match="more than 5,000 numbers and strings in attributes"):
        load(saved(_vocabulary(monkeypatch, 6000), tmp_path))


def test_a_large_product_of_constants_is_left_to_the_device(tmp_path: Path) -> None:
    nodes = [node("ConstantOfShape", "s", "a"), node("MatMul", "a a", "b"), node("MatMul", "b b", "y")]
    graph, _ = load(saved(model(nodes, [], constants={"s": ints(2000, 2000)}), tmp_path))
    assert [n.op.NAME for n in graph.nodes] == ["matmul", "matmul"]


def _sparse(indices: list[int], dims: list[int], shape: list[int], values: int = 2) -> Any:
    proto = model([node("Add", "x c", "y")])
    data = helper.make_tensor("c", 1, [values], [1.0] * values)
    proto.graph.sparse_initializer.append(helper.make_sparse_tensor(data, helper.make_tensor("i", 7, dims, indices), shape))
    return proto


SPARSE: dict[str, Any] = {
    "past the end": _sparse([1, 99], [2], [4]),
    "negative": _sparse([1, -3], [2, 1], [4]),
    "indices of another rank": _sparse([1, 1, 1, 1], [2, 2], [4]),
    "more values than indices": _sparse([1, 2], [2], [4], values=3),
    "rank over 8": _sparse([1, 2], [2], [1] * 40),
}


@pytest.mark.parametrize("name", SPARSE)
def test_a_malformed_sparse_tensor_is_told(name: str, tmp_path: Path) -> None:
    assert slug_of(saved(SPARSE[name], tmp_path)) == "bad-tensor"


PLACES = {"node": "QQQQ", "attribute": "axis", "input": "XXXX", "inner tensor": "TTTT", "output": "YYYY", "constant": "CCCC"}


@pytest.mark.parametrize("place", PLACES)
def test_a_name_that_is_not_utf8_is_told(place: str, tmp_path: Path) -> None:
    first = helper.make_node("Softmax", ["XXXX"], ["TTTT"], name="QQQQ", axis=1)
    proto = model([first, node("Add", "TTTT CCCC", "YYYY")], [value("XXXX", [1, 4])], [value("YYYY", None)],
                  {"CCCC": np.ones(4, np.float32)})  # fmt: skip
    content = proto.SerializeToString().replace(PLACES[place].encode(), b"\xff\xfe\xfd\xfc")
    assert slug_of(saved(content, tmp_path)) == "bad-graph"


IMAGE = [value("x", [1, 2, 8, 8])]
MORE_ATTRIBUTES: dict[str, tuple[Any, str]] = {
    "split into 2**40": (model([node("Split", "x", "y", num_outputs=2**40)], IMAGE), "bad-attribute"),
    "compress past the end": (
        model([node("Compress", "x c", "y", axis=1)], IMAGE, constants={"c": np.ones(4, bool)}),
        "bad-attribute",
    ),
    "unpool past the end": (
        model([node("MaxUnpool", "x i", "y", kernel_shape=[2, 2])], IMAGE, constants={"i": np.full((1, 2, 8, 8), 9999)}),
        "bad-attribute",
    ),
    "dequantise floats": (
        model([node("DequantizeLinear", "x s", "y")], IMAGE, constants={"s": np.float32(1)}),
        "bad-quantisation",
    ),
    "more than 2**31 elements": (model([node("Relu", "x", "y")], [value("x", [10**5, 10**5])]), "too-large"),
}


@pytest.mark.parametrize("name", MORE_ATTRIBUTES)
def test_what_cannot_be_is_told(name: str, tmp_path: Path) -> None:
    proto, slug = MORE_ATTRIBUTES[name]
    assert slug_of(saved(proto, tmp_path)) == slug


def test_external_data_that_no_node_reads_obeys_the_rules_too(tmp_path: Path) -> None:
    proto = model([node("Relu", "x", "y")])
    tensor = proto.graph.initializer.add()
    tensor.name, tensor.data_type, tensor.data_location = "dead", 1, 1
    tensor.dims[:] = [4]
    entry = tensor.external_data.add()
    entry.key, entry.value = "location", "../secret.bin"
    with pytest.raises(ModelError) as caught:
        copy_model(saved(proto, tmp_path), tmp_path / "copy.onnx")
    assert caught.value.slug == "external-data"
    assert not (tmp_path / "copy.onnx").exists()
