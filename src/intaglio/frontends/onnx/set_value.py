"""`x[:, a:b] = v` as Paddle's exporter writes it: indices a, a+1, .. b-1, repeated to the shape of the slice, and values expanded
to it, for `ScatterElements`. How long the slice is depends on data there. The same without such a length:

    Where(a <= i < b, v, x)        for all places i of the axis; v has one place, or as many as the axis

The nodes are replaced before the import."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from intaglio.frontends.onnx.structure import graphs_in, subgraphs

VIEWS = ("Squeeze", "Unsqueeze", "Reshape", "Identity")


@dataclass(frozen=True, slots=True)
class Found:
    """The tensors by name; `places` is the constant shape of the indices before they are repeated."""

    data: str
    start: str
    end: str
    values: str
    places: str
    axis: int


def join_set_values(model: Any) -> None:
    """In the graph, and in those of its loops and branches. What nobody reads any more is not imported."""
    if any(node.op_type == "ScatterElements" for graph in graphs_in(model.graph) for node in graph.node):
        _join(model.graph, {}, carried=frozenset())


def _join(graph: Any, outside: Mapping[str, Any], carried: frozenset[str]) -> None:
    """`outside`: constants of the graphs around it, by name; `carried`: what begins anew in each turn of a loop. Where nothing is
    carried, the length of a slice is known, or follows from sizes."""
    own = {info.name for info in graph.input}
    known = {name: tensor for name, tensor in outside.items() if name not in own}
    known |= {tensor.name: tensor for tensor in graph.initializer}
    constants = [node for node in graph.node if node.op_type == "Constant" and node.attribute and node.attribute[0].HasField("t")]
    known |= {name: node.attribute[0].t for node in constants for name in node.output}
    for node in graph.node:
        for inner in subgraphs(node):
            _join(inner, known, frozenset(info.name for info in inner.input))
    made = {name: node for node in graph.node for name in node.output}
    written: list[Any] = []
    for node in graph.node:
        found = _found(node, made, known) if node.op_type == "ScatterElements" else None
        if found is not None and _source(found.start, made) not in carried:
            found = None
        written += [node] if found is None else _written(found, node.output[0])
    if len(written) > len(graph.node):
        copies = [type(node).FromString(node.SerializeToString()) for node in written]
        del graph.node[:]
        graph.node.extend(copies)


def _found(node: Any, made: Mapping[str, Any], known: Mapping[str, Any]) -> Found | None:
    """None where anything differs from the pattern, or is damaged."""
    try:
        return _matched(node, made, known)
    except (IndexError, ValueError, TypeError):
        return None


def _matched(node: Any, made: Mapping[str, Any], known: Mapping[str, Any]) -> Found | None:
    if len(node.input) != 3 or len(node.output) != 1:
        return None
    if any(a.name == "reduction" and a.s not in (b"", b"none") for a in node.attribute):
        return None
    axis = next((int(a.i) for a in node.attribute if a.name == "axis"), 0)
    tile, expand = made.get(node.input[1]), made.get(node.input[2])
    if tile is None or expand is None or tile.op_type != "Tile" or expand.op_type != "Expand":
        return None
    shaped, sized = made.get(tile.input[0]), made.get(expand.input[1])
    if shaped is None or sized is None or shaped.op_type != "Reshape" or sized.op_type != "Shape":
        return None
    numbers, cut = made.get(shaped.input[0]), made.get(sized.input[0])
    if numbers is None or cut is None or numbers.op_type != "Range" or cut.op_type != "Slice" or len(cut.input) < 4:
        return None
    bounds = [_source(name, made) for name in (numbers.input[0], numbers.input[1])]
    same = cut.input[0] == node.input[0] and bounds == [_source(name, made) for name in cut.input[1:3]]
    steps = [_numbers(_source(name, made), known) for name in (numbers.input[2], *cut.input[4:5])]
    axes = _numbers(cut.input[3], known)
    if not same or axes != [axis] or any(step != [1] for step in steps) or axis < 0:
        return None
    return Found(node.input[0], cut.input[1], cut.input[2], expand.input[0], shaped.input[1], axis)


def _source(name: str, made: Mapping[str, Any]) -> str:
    """Without what only changes the shape of one number."""
    for _ in range(len(made)):  # a damaged graph may have a cycle
        node = made.get(name)
        if node is None or node.op_type not in VIEWS:
            break
        name = node.input[0]
    return name


def _numbers(name: str, known: Mapping[str, Any]) -> list[int] | None:
    import onnx

    tensor = known.get(name)
    if tensor is None or tensor.data_type not in (onnx.TensorProto.INT64, onnx.TensorProto.INT32) or tensor.external_data:
        return None
    array = onnx.numpy_helper.to_array(tensor)
    return [int(n) for n in array.reshape(-1)] if array.size < 16 else None


def _written(found: Found, output: str) -> list[Any]:
    import onnx

    make = onnx.helper.make_node

    def own(word: str) -> str:
        return f"{output}.{word}"

    def number(word: str, value: int | list[int]) -> Any:
        tensor = onnx.numpy_helper.from_array(np.asarray(value, np.int64), own(word))
        return make("Constant", [], [own(word)], value=tensor)

    nodes = [number("zero", [0]), number("one", 1), number("none", 0), number("axis", [found.axis]), number("single", [])]
    nodes += [make("Shape", [found.data], [own("shape")]), make("Gather", [own("shape"), own("axis")], [own("size")], axis=0)]
    for word, name in (("start", found.start), ("end", found.end)):  # a negative one counts from the end
        nodes += [
            make("Less", [name, own("zero")], [own(f"{word}_is_negative")]),
            make("Add", [name, own("size")], [own(f"{word}_behind")]),
            make("Where", [own(f"{word}_is_negative"), own(f"{word}_behind"), name], [own(word)]),
        ]
    nodes += [
        make("Reshape", [own("size"), own("single")], [own("length")]),
        make("Range", [own("none"), own("length"), own("one")], [own("numbers")]),
        make("Reshape", [own("numbers"), found.places], [own("places")]),
        make("Less", [own("places"), own("start")], [own("before")]),
        make("Not", [own("before")], [own("from")]),
        make("Less", [own("places"), own("end")], [own("until")]),
        make("And", [own("from"), own("until")], [own("inside")]),
        make("Where", [own("inside"), found.values, found.data], [output]),
    ]
    return nodes


__all__ = ["join_set_values"]
