"""TFLite files as graphs. The library with the schema is imported when the first file is read."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from intaglio.errors import ModelError, UserError, quoted
from intaglio.frontends.onnx.faults import Problem
from intaglio.frontends.onnx.names import Names, identifier
from intaglio.frontends.onnx.pinning import Declared, bounded
from intaglio.frontends.tflite.container import STRING, Model, Subgraph, Tensor, read_model
from intaglio.frontends.tflite.signatures import choose
from intaglio.frontends.tflite.walk import Walk, constant, type_quant
from intaglio.ir.graph import Graph, Node, State, Value, needed_counts
from intaglio.ir.spans import Dims, Shapes, named
from intaglio.ir.strings import USUAL_BYTES
from intaglio.ir.types import DType, Layout, TensorType
from intaglio.ops.binary import Add
from intaglio.ops.control import Copy
from intaglio.ops.strings import TextTrim


def load(
    path: Path, *, dims: Dims, shapes: Shapes, name: str | None = None, signature: str | None = None, random: str = "0"
) -> tuple[Graph, list[str]]:
    """`signature` says which of several networks in the file, `random` a seed or `input`."""
    walk = Walk(choose(read_model(path), signature), random=random)
    left, shapes = named(dims, shapes, ())
    graph, notes = _graph(walk, shapes, name or path.stem)
    if left:
        raise UserError(
            "unknown-dimension",
            f"a TFLite model has no named dimensions, got `--dim {next(iter(left))}`",
            hint="use `--shape INPUT=...`; `--dim T=1..64 --shape in0=1,T` gives dimensions a name",
        )
    return graph, notes


def check(path: Path, *, dims: Dims, shapes: Shapes, signature: str | None = None) -> list[Problem]:
    walk = Walk(choose(read_model(path), signature), collect=True)
    _graph(walk, named(dims, shapes, ())[1], path.stem)
    return walk.problems


def _graph(walk: Walk, shapes: Shapes, name: str) -> tuple[Graph, list[str]]:
    model, main = walk.model, walk.model.main
    notes: list[str] = []
    inputs: list[Value] = []
    given: dict[int, Value] = {}
    told = [_told(model, index, f"in{n}") for n, index in enumerate(main.inputs)]
    declared = [Declared(name, t.dtype or DType.F32, t.shape) for name, (_, t) in zip(told, _tensors(main), strict=True)]
    said = bounded(declared, {}, shapes, model.file)
    walk.bounds, left = said.bounds, dict(said.shapes)
    for position, index in enumerate(main.inputs):
        tensor = main.tensors[index]
        origin = told[position]
        if tensor.dtype is None and tensor.kind != STRING:
            raise ModelError("unsupported-type", f"the input {quoted(origin)} is not a tensor of numbers", where=model.file)
        asked = left.pop(origin, None) or left.pop(f"in{position}", None)
        if asked is not None and asked != tensor.shape:
            fits = len(asked) == len(tensor.shape) and all(
                a == b or n in tensor.open_axes for n, (a, b) in enumerate(zip(asked, tensor.shape, strict=True))
            )
            hint = "the other axes are fixed in the file"
            if not fits:
                raise UserError(
                    "shape-mismatch",
                    f"the input {quoted(origin)} is {list(tensor.shape)}, not {list(asked)}",
                    where=model.file,
                    hint=hint,
                )
            if any(n < 1 for n in asked):
                raise UserError("bad-shape", f"the input {quoted(origin)} cannot be {list(asked)}", where=model.file)
            walk.pinned = True
        shape = tensor.shape if asked is None else asked
        if tensor.dtype is None:  # strings, with room for the longest that any table has
            value = Value("", TensorType(DType.U8, (*shape, max(USUAL_BYTES, _longest(model))), Layout.TEXT), origin)
            given[index] = Value("", value.type, "")
            walk.nodes.append(Node(TextTrim(), [value], [given[index]], f"{origin}_trimmed"))
        else:
            value = given[index] = Value("", TensorType(tensor.dtype, shape, quant=type_quant(tensor.quant)), origin)
        inputs.append(value)
    if left:
        names = ", ".join(quoted(v.origin) for v in inputs)
        raise UserError("unknown-input", f"unknown input {quoted(next(iter(left)))}", where=model.file, hint=f"inputs: {names}")
    loose = [] if walk.pinned else [(n, main.tensors[i]) for n, i in enumerate(main.inputs) if main.tensors[i].open_axes]
    notes += [_note(n, tensor, inputs[n].origin) for n, tensor in loose]
    try:
        values = walk.run(main, given)
    except ModelError as error:
        first = next(((n, t) for n, t in loose if t.open_axes != (0,) or error.slug == "shape-mismatch"), None)
        if first is None:
            raise
        n, tensor = first
        hint = f"{_note(n, tensor, inputs[n].origin)}. {error.hint}".removesuffix(" ")
        raise ModelError(error.slug, error.message, where=error.where, hint=hint) from None
    if walk.problems:
        return Graph("model"), notes
    return _finish(walk, model, inputs, values, name), [*notes, *walk.notes]


def _longest(model: Model) -> int:
    """Bytes of the longest constant string."""
    constants = (t.data for graph in model.subgraphs for t in graph.tensors if t.kind == STRING and t.data is not None)
    return max((len(word) for data in constants for word in data.reshape(-1)), default=0)


def _tensors(main: Subgraph) -> list[tuple[int, Tensor]]:
    return [(index, main.tensors[index]) for index in main.inputs]


def _told(model: Model, index: int, otherwise: str) -> str:
    """The name of an input or output in the signature or of the tensor; some files have none."""
    return model.signature.get(index, model.main.tensors[index].name) or otherwise


def _note(position: int, tensor: Tensor, name: str) -> str:
    """What stands for the axes that the file leaves open."""
    sizes = [tensor.shape[n] for n in tensor.open_axes]
    which, them = ("axis", "it is") if len(sizes) == 1 else ("axes", "they are")
    taken = ", ".join(map(str, sizes))
    axes = ", ".join(map(str, tensor.open_axes))
    word = ",".join("N" if n in tensor.open_axes else str(d) for n, d in enumerate(tensor.shape))
    return f"{which} {axes} of the input {quoted(name)} can be chosen with `--shape in{position}={word}`; {them} {taken} here"


def _finish(walk: Walk, model: Model, inputs: list[Value], values: dict[int, Value], name: str) -> Graph:
    main = model.main
    produced = {v for node in walk.nodes for v in node.outputs}
    outputs: list[Value] = []
    names: list[str] = []
    for n, index in enumerate(main.outputs):
        if index not in values:
            raise ModelError("bad-graph", f"the output {quoted(main.tensors[index].name)} is never computed", where=model.file)
        if values[index] in walk.cuts:
            shown = quoted(main.tensors[index].name)
            raise ModelError("unsupported-operator", f"the size of the output {shown} depends on data", where=model.file)
        if main.tensors[index].dtype is None and values[index].type.layout is not Layout.TEXT:
            shown = quoted(main.tensors[index].name)
            raise ModelError("unsupported-type", f"the output {shown} is not a tensor of real numbers", where=model.file)
        outputs.append(_own(walk, values[index], produced, outputs))
        names.append(_told(model, index, f"out{n}"))
    states: list[State] = []
    for variable in dict.fromkeys(walk.variables.values()):
        if variable.entry is None or variable.now is variable.entry or variable.now is None:
            continue
        fills = np.unique(variable.start) if variable.start is not None else np.zeros(1)
        after = _own(walk, variable.now, produced, [*outputs, *(s.output for s in states)])
        states.append(State(variable.entry, after, fills[0].item() if len(fills) == 1 else 0))
    if walk.started is not None:
        states.append(State(walk.started, _own(walk, constant(np.asarray(True)), produced, [])))
    if walk.random_run is not None:
        after = Value("", walk.random_run.type, f"{walk.random_run.origin}_next")
        walk.nodes.append(Node(Add(), [walk.random_run, constant(np.ones(1, np.uint32))], [after], after.origin))
        states.append(State(walk.random_run, after))
    graph = Graph(identifier(name, "model"), [*inputs, *walk.extra_inputs], outputs, [])
    graph.states, graph.output_names, graph.bounds = states, names, walk.bounds
    needed = {*outputs, *(s.output for s in states)}
    for node in reversed(walk.nodes):
        if node.op.EFFECT or any(o in needed for o in node.outputs):
            graph.nodes.append(node)
            needed.update(node.operands())
            needed |= needed_counts(node, walk.counts)
    graph.nodes.reverse()
    alive = {v for node in graph.nodes for v in node.outputs}
    graph.counts = {name: value for name, value in walk.counts.items() if value in alive}
    _name(graph)
    return graph


def _own(walk: Walk, value: Value, produced: set[Value], taken: list[Value]) -> Value:
    """An output that is an input, a constant or another output too gets a copy of its own."""
    if value in produced and not any(value is t for t in taken):
        return value
    copy = Value("", value.type, value.origin)
    walk.nodes.append(Node(Copy(), [value], [copy], value.origin))
    return copy


def _name(graph: Graph) -> None:
    names = Names()
    told = dict(zip(graph.outputs, graph.output_names, strict=True))  # names of the signature, which the C API has too
    for n, value in enumerate(graph.inputs):
        value.name = names.take(value.origin, f"in{n}")
    for node in graph.nodes:
        for operand in node.operands():
            if not operand.name:
                operand.name = names.take(operand.origin or "c", "c")
        for out in node.outputs:
            out.name = names.take(told.get(out) or out.origin or node.op.NAME, node.op.NAME)
    graph.names = {v.name for v in graph.values()}
