"""`.pt2` files as graphs: inputs are pinned, the program is walked, outputs are named."""

from __future__ import annotations

from pathlib import Path

from intaglio.errors import ModelError, UserError, quoted
from intaglio.frontends.finishing import finish
from intaglio.frontends.onnx.faults import Fault, Problem
from intaglio.frontends.onnx.pinning import Declared, pin
from intaglio.frontends.torch.archive import AGAIN
from intaglio.frontends.torch.program import Program, Size, read_program
from intaglio.frontends.torch.walk import Scope, Storage, Tensor, Unknown, Walk
from intaglio.ir.graph import Graph, Value
from intaglio.ir.sizes import Undecided
from intaglio.ir.spans import BY_MODEL, Dims, Extent, Shapes, Span
from intaglio.ir.types import TensorType


def load(
    path: Path, *, dims: Dims, shapes: Shapes, name: str | None = None
) -> tuple[Graph, list[str]]:
    """A graph with static shapes, and notes about what was assumed."""
    program = read_program(path)
    walk = Walk(program)
    inputs, outputs = _walked(walk, dims, shapes)
    states = walk.states()
    extra = [s.input for s in states]
    return finish(walk, [*inputs, *extra], outputs, name or path.stem, states), walk.notes


def check(path: Path, *, dims: Dims, shapes: Shapes) -> list[Problem]:
    """Everything that is unsupported, in one go. A file that cannot be read at all is still a ModelError."""
    walk = Walk(read_program(path), collect=True)
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
    """Open dimensions are pinned, or as large as in the example that the program was exported with."""
    program = walk.program
    wanted: list[Declared] = []
    for name in program.inputs:
        meta = program.graph.metas.get(name)
        if meta is None:  # a number
            hint = "give it as a tensor, or fix it when exporting"
            raise Fault("unsupported-type", f"the input {quoted(name)} is not a tensor", hint)
        if meta.dtype is None:
            raise Fault("unsupported-type", f"the input {quoted(name)} has an element type that is not supported")
        wanted.append(Declared(name, meta.dtype, tuple(s if isinstance(s, int) else s.symbol or None for s in meta.sizes)))
    named = _with_hints(program, wanted, dims, shapes, walk.notes)
    pinned = pin(wanted, named[0], named[1], program.file)
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


def _with_hints(
    program: Program, wanted: list[Declared], dims: Dims, shapes: Shapes, notes: list[str]
) -> tuple[Dims, Shapes]:
    """What the user says, completed by the sizes of the example."""
    by_position = {f"in{n}": item.name for n, item in enumerate(wanted)}
    dims = {name: _opened(program, name, size) for name, size in dims.items()}
    shapes = {key: _shape_opened(program, by_position.get(key, key), shape) for key, shape in shapes.items()}
    given = {by_position.get(key, key) for key in shapes}
    said = {s: n for item in wanted if item.name in given for s, n in _spoken(item, shapes, by_position)}
    for item in wanted:
        if item.name in given:
            continue
        sizes = program.graph.metas[item.name].sizes
        told = []
        for axis, size in enumerate(sizes):
            if not isinstance(size, Size) or size.hint is None:
                continue
            if size.symbol and size.symbol not in dims and size.symbol not in said:
                dims[size.symbol] = size.hint
                low, high = program.ranges.get(size.symbol, (None, None))
                open_ = f" (`--dim {size.symbol}=..` leaves it open, {max(1, low or 1)}..{high})" if high is not None else ""
                told.append(f"`{size.symbol}` is {size.hint}{open_}")
            elif not size.symbol:
                told.append(f"axis {axis} is {size.hint}")
        if any(isinstance(s, Size) and not s.symbol for s in sizes):
            known = [s if isinstance(s, int) else dims.get(s.symbol, said.get(s.symbol)) if s.symbol else s.hint for s in sizes]
            if all(n is not None for n in known):
                shapes[item.name] = tuple(n for n in known if n is not None)
        if told:
            notes.append(f"in the input {quoted(item.name)}, {', '.join(told)} as in the example; `--dim` and `--shape` change it")
    return dims, shapes


def _opened(program: Program, symbol: str, size: Extent) -> Extent:
    """`..` becomes the range that the program was exported with."""
    if size != BY_MODEL:
        return size
    low, high = program.ranges.get(symbol, (None, None))
    if high is None:
        known = ", ".join(f"`{name}`" for name, (_, most) in program.ranges.items() if most is not None) or "none"
        what = f"the program has no upper bound for {quoted(symbol or 'this axis')}"
        hint = f"give one: `--dim {symbol or 'NAME'}=1..512`, or export with `Dim(..., max=...)`; bounded: {known}"
        raise UserError("bad-option", what, where=program.file, hint=hint)
    first = max(1, low or 1)
    return Span(first, high) if first < high else high


def _shape_opened(program: Program, name: str, shape: tuple[Extent, ...]) -> tuple[Extent, ...]:
    if BY_MODEL not in shape or name not in program.graph.metas:
        return shape
    sizes = program.graph.metas[name].sizes
    symbols = [s.symbol if isinstance(s, Size) else "" for s in sizes] if len(sizes) == len(shape) else [""] * len(shape)
    return tuple(_opened(program, symbol, size) for symbol, size in zip(symbols, shape, strict=True))


def _spoken(item: Declared, shapes: Shapes, positions: dict[str, str]) -> list[tuple[str, Extent]]:
    shape = next((s for key, s in shapes.items() if positions.get(key, key) == item.name), ())
    return [(d, n) for d, n in zip(item.dims or (), shape, strict=False) if isinstance(d, str)]


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
