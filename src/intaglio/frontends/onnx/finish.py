"""From a finished walk to a Graph: dead nodes out, outputs that are their own values, clean names."""

from __future__ import annotations

from typing import Any

from intaglio.errors import ModelError, quoted
from intaglio.frontends.onnx.call import Item, Unknown
from intaglio.frontends.onnx.faults import Problem
from intaglio.frontends.onnx.names import Names, identifier
from intaglio.frontends.onnx.tensors import DTYPES
from intaglio.frontends.onnx.walk import Walk
from intaglio.ir.graph import Graph, Node, Value
from intaglio.ops import Dequantize
from intaglio.ops.control import Copy


def finish(walk: Walk, inputs: list[Value], outputs: list[tuple[str, Item]], name: str) -> Graph:
    results = _own_outputs(walk, inputs, outputs)
    nodes = _with_dequantised(walk, _live(walk.nodes, results))
    graph = Graph(identifier(name, "model"), inputs, results, nodes)
    graph.output_names = [origin for origin, _ in outputs]
    names = Names()
    for position, value in enumerate(inputs):
        value.name = names.take(value.origin, f"in{position}")
    for value, (origin, _) in zip(results, outputs, strict=True):
        value.origin = origin
        value.name = names.take(origin, "out")
    for node in nodes:
        for operand in node.operands():
            if not operand.name:
                operand.name = names.take(operand.origin or "c", "c")
        for value in node.outputs:
            if not value.name:
                value.name = names.take(value.origin or node.op.NAME, node.op.NAME)
    graph.names = {v.name for v in graph.values()}
    return graph


def _own_outputs(walk: Walk, inputs: list[Value], outputs: list[tuple[str, Item]]) -> list[Value]:
    """An output that is an input, a constant or another output too is copied, so each is a value of its own."""
    produced = {v for node in walk.nodes for v in node.outputs}
    taken: set[Value] = set()
    results = []
    for name, item in outputs:
        if not isinstance(item, Value):
            raise ModelError("unsupported-type", f"the output {quoted(name)} is a sequence or an optional",
                             where=walk.file, hint="give tensors as outputs")  # fmt: skip
        if item in taken or item not in produced:
            copy = Value("", item.type, name)
            walk.nodes.append(Node(Copy(), [item], [copy], name))
            item = copy
        taken.add(item)
        results.append(item)
    return results


def _with_dequantised(walk: Walk, nodes: list[Node]) -> list[Node]:
    """Constants that were dequantised are integers again, behind a Dequantize: `absorb` decides what becomes of them."""
    made: dict[Value, Value] = {}
    out: list[Node] = []
    for node in nodes:
        for n, value in enumerate(node.inputs):
            if value is not None and value in walk.dequantised:
                if value not in made:
                    made[value] = Value("", value.type, value.origin)
                    out.append(Node(Dequantize(value.dtype), list(walk.dequantised[value]), [made[value]], node.source))
                node.inputs[n] = made[value]
        out.append(node)
    return out


def _live(nodes: list[Node], results: list[Value]) -> list[Node]:
    needed = set(results)
    kept: list[Node] = []
    for node in reversed(nodes):
        if node.op.EFFECT or any(v in needed for v in node.outputs):
            kept.append(node)
            needed.update(node.operands())
    return kept[::-1]


def check_declared(walk: Walk, graph: Any, results: list[Item]) -> None:
    """Outputs whose type is not what the model declares: another element type is an error, another shape a note."""
    for out, item in zip(graph.output, results, strict=True):
        if isinstance(item, Unknown):
            continue
        if not isinstance(item, Value):
            walk.problems.append(Problem(out.name, "output", "the output is a sequence or an optional", "give tensors as outputs"))
            continue
        if out.type.WhichOneof("value") != "tensor_type":
            continue
        tensor = out.type.tensor_type
        if tensor.elem_type and DTYPES.get(tensor.elem_type) is not item.dtype:
            slug = "shape-mismatch" if tensor.elem_type in DTYPES else "unsupported-type"
            reason = f"the output {quoted(out.name)} is {item.dtype.value}, which is not what the model declares"
            hint = "the declared types of the model are wrong; export it again"
            if not walk.collect:
                raise ModelError(slug, reason, where=walk.file, hint=hint)
            walk.problems.append(Problem(out.name, "output", reason, hint, slug, walk.file))
            continue
        if not tensor.HasField("shape"):
            continue
        dims = [d.dim_value if d.WhichOneof("value") == "dim_value" else None for d in tensor.shape.dim]
        fits = len(dims) == len(item.shape) and all(d is None or d <= 0 or d == s for d, s in zip(dims, item.shape, strict=True))
        if not fits:
            said = ", ".join("?" if d is None else str(d) for d in dims)
            walk.notes.append(f"the output {quoted(out.name)} is {item.type}; the model declares [{said}]")
