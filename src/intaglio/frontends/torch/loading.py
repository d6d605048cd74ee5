"""`.pt2` files as graphs: inputs are pinned, the program is walked, outputs are named."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from intaglio.errors import ModelError, quoted
from intaglio.frontends.finishing import finish
from intaglio.frontends.most import check_most, unneeded
from intaglio.frontends.onnx.faults import Fault, Problem
from intaglio.frontends.onnx.pinning import Declared, pin
from intaglio.frontends.torch.archive import AGAIN
from intaglio.frontends.torch.asked import asked_for, symbol_of
from intaglio.frontends.torch.program import GraphRecord, Size, read_program
from intaglio.frontends.torch.walk import Scope, Storage, Tensor, Unknown, Walk
from intaglio.ir.graph import Graph, Value
from intaglio.ir.sizes import Undecided
from intaglio.ir.spans import Dims, Shapes
from intaglio.ir.types import TensorType

FIXED = (
    "a dimension that is not dynamic has the size of the example inputs; give other ones, or, for a range, the program of "
    "`torch.export.export(model, example_inputs, dynamic_shapes=...)` with a `torch.export.Dim`"
)


def load(
    path: Path, *, dims: Dims, shapes: Shapes, name: str | None = None, most: Mapping[str, int] | None = None, random: str = "0"
) -> tuple[Graph, list[str]]:
    """A graph with static shapes, and notes about what was assumed. `most`: the largest values of numbers that data gives;
    `random`: a seed, or `input`."""
    program = read_program(path)
    walk = Walk(program)
    walk.most, walk.random = most or {}, random
    check_most(walk.most, _numbers(program.graph), program.file, "number that data gives (`.item()`)")
    inputs, outputs = _walked(walk, dims, shapes)
    walk.notes += unneeded(walk.most, walk.most_used, walk.most_possible, walk.found_size)
    states = walk.states()
    extra = [s.input for s in states]
    return finish(walk, [*inputs, *walk.more_inputs, *extra], outputs, name or path.stem, states), walk.notes


def _numbers(graph: GraphRecord) -> set[str]:
    """Whole numbers that nodes compute, and their symbols; what a node makes where they say how much."""
    found = {*graph.symbols, *graph.symbols.values()} - {""}
    makers = [record for record in graph.calls if "repeat_interleave" in record.target or "bincount" in record.target]
    found |= {name for record in makers for name in record.outputs if isinstance(name, str)}
    inner = [a for record in graph.calls for a in record.arguments.values() if isinstance(a, GraphRecord)]
    return found.union(*map(_numbers, inner))


def check(
    path: Path, *, dims: Dims, shapes: Shapes, most: Mapping[str, int] | None = None
) -> list[Problem]:
    """Everything that is unsupported, in one go. A file that cannot be read at all is still a ModelError."""
    walk = Walk(read_program(path), collect=True)
    walk.most = most or {}
    _walked(walk, dims, shapes)
    return walk.problems


def _walked(walk: Walk, dims: Dims, shapes: Shapes) -> tuple[list[Value], list[tuple[str, Value]]]:
    program, scope = walk.program, Scope()
    try:
        inputs = _inputs(walk, scope, dims, shapes)
        for name, item in program.fixed.items():
            scope.items[name] = item
        walk.bind_weights(scope)
        walk.run(program.graph, scope)
        for buffer, after in program.mutations:
            target, new = scope.items.get(buffer), walk.look_up(after, scope)
            if isinstance(target, Tensor) and isinstance(new, Value):
                target.storage.value = new
        return inputs, _outputs(walk, scope)
    except Fault as fault:
        raise ModelError(fault.slug, fault.reason, where=program.file, hint=fault.hint or AGAIN) from None
    except Undecided as reason:
        raise ModelError("size-decides", str(reason), where=program.file, hint=reason.hint) from None
    except RecursionError:
        raise ModelError("bad-graph", "the graph is nested too deeply", where=program.file, hint=AGAIN) from None


def _inputs(walk: Walk, scope: Scope, dims: Dims, shapes: Shapes) -> list[Value]:
    """Open dimensions are as the user says, else within the bounds of the program, else as large as in its example."""
    program = walk.program
    wanted: list[Declared] = []
    for name in program.inputs:
        meta = program.graph.metas.get(name)
        if meta is None:  # a number
            hint = "give it as a tensor, or fix it when exporting"
            raise Fault("unsupported-type", f"the input {quoted(name)} is not a tensor", hint)
        if meta.dtype is None:
            raise Fault("unsupported-type", f"the input {quoted(name)} has an element type that is not supported")
        wanted.append(Declared(name, meta.dtype, tuple(s if isinstance(s, int) else symbol_of(s) for s in meta.sizes)))
    named = asked_for(program, wanted, dims, shapes, walk.notes)
    pinned = pin(wanted, named.dims, named.shapes, program.file, named.follows, shapes, FIXED, named.names)
    walk.notes += pinned.notes
    walk.bounds = pinned.bounds
    values = []
    for item, shape in zip(wanted, pinned.shapes, strict=True):
        sizes = program.graph.metas[item.name].sizes
        walk.pinned |= any(isinstance(s, Size) and s.hint != n for s, n in zip(sizes, shape, strict=True))
        value = Value("", TensorType(item.dtype, shape), item.name)
        scope.items[item.name] = Tensor(Storage(value, buffer=item.name), (), value)
        values.append(value)
    return values


def _outputs(walk: Walk, scope: Scope) -> list[tuple[str, Value]]:
    found: list[tuple[str, Value]] = []
    taken: set[str] = set()
    for name, argument in walk.program.outputs:
        item = walk.resolve(argument, scope)
        if isinstance(item, Unknown):
            if not walk.collect:
                raise Fault("unsupported-operator", f"the output {quoted(name)} is not computed")
            continue
        if isinstance(item, (bool, int, float)):
            walk.notes.append(f"the output {quoted(name)} is always {item} and is omitted")
            continue
        if item is None:
            continue
        if not isinstance(item, Value):
            raise Fault("unsupported-type", f"the output {quoted(name)} is not a tensor of real numbers",
                        "return its magnitude, or real and imaginary parts")  # fmt: skip
        fresh, n = name, 1
        while fresh in taken:
            n += 1
            fresh = f"{name}_{n}"
        taken.add(fresh)
        found.append((fresh, item))
    if not found and not walk.problems:
        raise Fault("bad-graph", "the program has no outputs that are tensors", "return a tensor")
    return found
