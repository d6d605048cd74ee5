"""The ONNX front end: `load` gives a Graph, `check` lists everything that stands in the way."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from intaglio.errors import ModelError, quoted
from intaglio.frontends.most import check_most, unneeded
from intaglio.frontends.onnx.call import Item
from intaglio.frontends.onnx.faults import Fault, Problem
from intaglio.ir.graph import Array, Graph, Node, State, Value
from intaglio.ir.spans import Dims, Shapes

GRAPH, GRAPHS = 5, 10  # kinds of attributes

__all__ = ["Problem", "check", "load", "survey"]


def load(
    path: str | Path,
    *,
    dims: Dims | None = None,
    shapes: Shapes | None = None,
    name: str | None = None,
    states: Sequence[tuple[str, str]] = (),
    constants: dict[str, Array] | None = None,
    most: Mapping[str, int] | None = None,
    lengths: Mapping[str, int] | None = None,
    random: str = "0",
) -> tuple[Graph, list[str]]:
    """A graph with static shapes, and notes about what was assumed. `states` are (input, output) pairs by name.

    `constants` fixes inputs to a value, so that shapes may follow from them; they are no inputs of the graph then."""
    seen = Asked(constants or {}, most or {}, lengths or {}, random)
    walk, inputs, outputs = _walk(Path(path), dims or {}, shapes or {}, seen, collect=False)
    from intaglio.frontends.onnx.finish import finish

    graph = finish(walk, inputs, outputs, name or Path(path).stem)
    walk.notes += unneeded(walk.most, walk.most_used, walk.most_possible, walk.found_size)
    for source, result in states:
        graph.states.append(_state(graph, source, result, Path(path).name))
    return graph, walk.notes


def _tensors(graph: Any) -> set[str]:
    """The names of all tensors, those of inner graphs too."""
    found = {info.name for info in graph.input}
    for node in graph.node:
        found |= set(node.output)
        for attribute in node.attribute:
            for inner in [attribute.g, *attribute.graphs] if attribute.type in (GRAPH, GRAPHS) else []:
                found |= _tensors(inner)
    return found


def check(
    path: str | Path, *, dims: Dims | None = None, shapes: Shapes | None = None
) -> list[Problem]:
    """Everything that is unsupported, in one go. A file that cannot be read at all is still a ModelError."""
    return survey(path, dims=dims, shapes=shapes)[0]


def survey(
    path: str | Path, *, dims: Dims | None = None, shapes: Shapes | None = None, most: Mapping[str, int] | None = None,
    lengths: Mapping[str, int] | None = None,
) -> tuple[list[Problem], list[Node]]:  # fmt: skip
    """The problems, and the nodes that could be imported in spite of them."""
    walk, _, _ = _walk(Path(path), dims or {}, shapes or {}, Asked(most=most or {}, lengths=lengths or {}), collect=True)
    return list(walk.problems), list(walk.nodes)


@dataclass(frozen=True, slots=True)
class Asked:
    """What is asked for beside shapes."""

    constants: Mapping[str, Array] = field(default_factory=dict)
    most: Mapping[str, int] = field(default_factory=dict)
    lengths: Mapping[str, int] = field(default_factory=dict)
    random: str = "0"  # a seed, or `input`


def _walk(path: Path, dims: Dims, shapes: Shapes, asked: Asked, collect: bool) -> tuple[Any, Any, Any]:
    from intaglio.frontends.onnx.container import opsets_of, read_model
    from intaglio.frontends.onnx.finish import check_declared
    from intaglio.frontends.onnx.given import flat, forms_of, text_input, trimmed
    from intaglio.frontends.onnx.pinning import declared, fixed, pin
    from intaglio.frontends.onnx.rows import fill_table
    from intaglio.frontends.onnx.set_value import join_set_values
    from intaglio.frontends.onnx.tensors import PACKED, SMALL
    from intaglio.frontends.onnx.walk import Walk
    from intaglio.ir.types import TensorType

    fill_table()
    model = read_model(path)
    join_set_values(model)
    walk = Walk(model, path, collect)
    constants = asked.constants
    walk.most = asked.most
    walk.random_inputs = asked.random == "input"
    walk.random_seed = 0 if walk.random_inputs else int(asked.random)
    try:
        scope = walk.open_scope(model.graph, None, opsets_of(model.opset_import))
        infos = [i for i in model.graph.input if i.name not in scope.tensors and i.name not in scope.items]
        forms = forms_of([info for info in infos if info.name not in constants], asked.lengths, path.name)
        leaves = [leaf for form in forms for leaf in form.leaves()]
        wanted = [item for item, _ in leaves]
        if asked.most:
            named = {*_tensors(model.graph), *(item.name for item in wanted)}
            check_most(asked.most, named, path.name, "tensor whose size depends on data")
        for info in infos:
            if info.name in constants:
                scope.items[info.name] = fixed(walk, declared(info, path.name), constants[info.name])
        pinned = pin(wanted, dims, shapes, path.name)
        walk.bounds = pinned.bounds
        walk.notes += pinned.notes
        inputs: list[Value] = []
        items: dict[str, Item] = {}
        for (item, code), shape in zip(leaves, pinned.shapes, strict=True):
            value = text_input(walk, item, shape) if item.text else Value("", TensorType(item.dtype, shape), item.name)
            inputs.append(value)
            items[item.name] = trimmed(walk, value) if item.text else value
            if code in (*PACKED, *SMALL):
                walk.packed[value] = code
        given = [info.name for info in infos if info.name not in constants]
        scope.items |= {name: form.item(items) for name, form in zip(given, forms, strict=True)}
        results = walk.run_graph(model.graph, scope)
        check_declared(walk, model.graph, results)
    except Fault as fault:
        hint = fault.hint or "export the model again"
        raise ModelError(fault.slug, fault.reason, where=path.name, hint=hint) from None
    except RecursionError:
        raise ModelError("bad-graph", "the graph is nested too deeply", where=path.name, hint="flatten it") from None
    outputs = [found for out, item in zip(model.graph.output, results, strict=True) for found in flat(out.name, item)]
    return walk, [*inputs, *walk.more_inputs], outputs


def _state(graph: Graph, source: str, result: str, file: str) -> State:
    given = next((v for v in graph.inputs if v.origin == source), None)
    made = next((v for v, n in zip(graph.outputs, graph.output_names, strict=True) if n == result), None)
    if given is None or made is None:
        missing = source if given is None else result
        kind = "input" if given is None else "output"
        raise ModelError("unknown-input", f"the state names {quoted(missing)}, which is not an {kind}", where=file,
                         hint="a state is a pair of an input and an output of the model")  # fmt: skip
    if given.type != made.type:
        raise ModelError("shape-mismatch", f"the state {quoted(source)} is {given.type}, its next value {made.type}",
                         where=file, hint="a state keeps its type and shape from step to step")  # fmt: skip
    return State(given, made)
