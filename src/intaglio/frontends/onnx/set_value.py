"""`x[:, a:b] = v` as Paddle's exporter writes it: indices a, a+1, .. b-1, repeated to the shape of the slice, and values expanded
to it, for `ScatterElements`. How long the slice is depends on data there. The same without such a length:

    Where(a <= i < b, v, x)        for all places i of the axis; v has one place, or as many as the axis

The nodes are replaced before the import."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

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
    """In the graph, and in those of its loops and branches."""
    if any(node.op_type == "ScatterElements" for graph in _graphs(model.graph) for node in graph.node):
        _join(model.graph, {})


def _join(graph: Any, outside: Mapping[str, Any]) -> None:
    """`outside`: constants of the graphs around it, by name."""
    own = {info.name for info in graph.input}
    known = {name: tensor for name, tensor in outside.items() if name not in own}
    known |= {tensor.name: tensor for tensor in graph.initializer}
    constants = [node for node in graph.node if node.op_type == "Constant" and node.attribute and node.attribute[0].HasField("t")]
    known |= {node.output[0]: node.attribute[0].t for node in constants}
    for node in graph.node:
        for inner in _inside(node):
            _join(inner, known)
    made = {name: node for node in graph.node for name in node.output}
    changed = False
    for node in list(graph.node):
        found = _found(node, made, known) if node.op_type == "ScatterElements" else None
        if found is not None:
            at = next(n for n, other in enumerate(graph.node) if other is node or other == node)
            written = _written(found, node.output[0])
            del graph.node[at]
            for offset, new in enumerate(written):
                graph.node.insert(at + offset, new)
            changed = True
    if changed:
        _remove_unused(graph)


def _found(node: Any, made: Mapping[str, Any], known: Mapping[str, Any]) -> Found | None:
    """None where anything differs from the pattern."""
    if any(a.name == "reduction" and a.s not in (b"", b"none") for a in node.attribute) or len(node.input) != 3:
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
    node = made.get(name)
    while node is not None and node.op_type in VIEWS:
        name = node.input[0]
        node = made.get(name)
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


def _remove_unused(graph: Any) -> None:
    """Nodes whose results nobody reads any more."""
    while True:
        read = Counter(name for inner in _graphs(graph) for node in inner.node for name in node.input)
        read.update(out.name for inner in _graphs(graph) for out in inner.output)
        unused = [n for n, node in enumerate(graph.node) if not any(read[name] for name in node.output)]
        if not unused:
            return
        for n in reversed(unused):
            del graph.node[n]


def _graphs(graph: Any) -> Iterator[Any]:
    yield graph
    for node in graph.node:
        for inner in _inside(node):
            yield from _graphs(inner)


def _inside(node: Any) -> Iterator[Any]:
    for attribute in node.attribute:
        if attribute.HasField("g"):
            yield attribute.g
        yield from attribute.graphs


__all__ = ["join_set_values"]
