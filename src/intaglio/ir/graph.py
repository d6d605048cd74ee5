"""The graph: inputs, constants, nodes in order of execution, outputs. The one mutable thing in the compiler.

Values are named by C-safe identifiers that are unique in the graph (the front end cleans them once); the name a value
had in the model is kept in `origin`, for people, for `validate` and for the C API's documentation.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from intaglio.ir.sizes import Bounds, names_of, pinned
from intaglio.ir.spans import Span
from intaglio.ir.types import DType, TensorType

if TYPE_CHECKING:
    from intaglio.ir.operator import Op

Array = np.ndarray[tuple[int, ...], np.dtype[Any]]  # the element type is a DType of ours, known at run time

FIRST_STAGE = "import"  # what a model file becomes first


@dataclass(slots=True, eq=False)
class Value:
    name: str
    type: TensorType
    origin: str = ""
    data: Array | None = None  # constants only

    @property
    def is_const(self) -> bool:
        return self.data is not None

    @property
    def shape(self) -> tuple[int, ...]:
        return self.type.shape

    @property
    def dtype(self) -> DType:
        return self.type.dtype

    def __repr__(self) -> str:
        return f"<{self.name}: {self.type}>"


@dataclass(slots=True, eq=False)
class Node:
    """One operator applied. `inputs` may hold None for an optional operand that is absent.

    `when` is a bool[] value that guards the node: it is executed only where that is true. A branch of an `If` whose
    condition is data comes in this way: flat, straight-line, joined by `select`."""

    op: Op
    inputs: list[Value | None]
    outputs: list[Value]
    source: str = ""
    when: Value | None = None

    @property
    def output(self) -> Value:
        return self.outputs[0]

    def operands(self) -> Iterator[Value]:
        """The values it reads, guard included."""
        for value in self.inputs:
            if value is not None:
                yield value
        if self.when is not None:
            yield self.when

    def __repr__(self) -> str:
        outs = ", ".join(v.name for v in self.outputs)
        ins = ", ".join("_" if v is None else v.name for v in self.inputs)
        return f"<{outs} = {self.op.NAME}({ins})>"


@dataclass(slots=True, eq=False)
class State:
    """An input that is fed from an output of the step before: `state h_in = h_out fill -128`."""

    input: Value
    output: Value
    fill: float = 0  # what every element is before the first step


def needed_counts(node: Node, counts: Mapping[str, Value]) -> set[Value]:
    """The values that say how large the operands and the results of a node are, where that follows from data."""
    if not counts:
        return set()
    names = names_of(node.op).union(*(names_of(v.type.shape) for v in (*node.operands(), *node.outputs)))
    return {counts[name] for name in names if name in counts and counts[name] not in node.outputs}


@dataclass(slots=True, eq=False)
class Graph:
    name: str
    inputs: list[Value] = field(default_factory=list)
    outputs: list[Value] = field(default_factory=list)
    nodes: list[Node] = field(default_factory=list)
    states: list[State] = field(default_factory=list)
    names: set[str] = field(default_factory=set)  # every value name in use
    output_names: list[str] = field(default_factory=list)  # as in the model, one per output
    file: str = ""  # the IR file it was read from, and the line of each value there
    lines: dict[str, int] = field(default_factory=dict)
    bounds: Bounds | None = None  # of the sizes that the caller gives, and of those that follow from data
    counts: dict[str, Value] = field(default_factory=dict)  # sizes that follow from data: the value that says how many
    weights: str = ""  # `read`: they are not mapped, each layer's are read into the arena

    def new_name(self, stem: str) -> str:
        """A value name that is free, as close to `stem` (a clean identifier) as possible."""
        stem = "value" if stem == "_" else stem  # which is an absent operand in the text
        name, n = stem, 1
        while name in self.names:
            name, n = f"{stem}_{n}", n + 1
        self.names.add(name)
        return name

    def value(self, stem: str, type: TensorType, origin: str = "") -> Value:
        return Value(self.new_name(stem), type, origin)

    def constant(self, stem: str, data: Array, dtype: DType | None = None, origin: str = "") -> Value:
        data = np.asarray(data)
        return Value(self.new_name(stem), TensorType(dtype or DType.of(data), data.shape), origin, data)

    def add(self, op: Op, inputs: list[Value | None], stem: str, source: str = "", when: Value | None = None) -> Value:
        """Append a node with one output, its type inferred."""
        types = op.infer(*[None if v is None else v.type for v in inputs])
        out = self.value(stem, types[0])
        self.nodes.append(Node(op, inputs, [out], source, when=when))
        return out

    def where(self, name: str) -> str:
        """The place of a value in the IR file that was read, for messages."""
        return f"{self.file}, line {self.lines[name]}" if name in self.lines else self.file

    def given_ranges(self) -> dict[str, Span]:
        """Sizes that the caller gives, from where to where."""
        return {} if self.bounds is None else {n: span for n, span in self.bounds.ranges.items() if n not in self.counts}

    def pinned(self, sizes: Mapping[str, int]) -> Graph:
        """A graph of its own, for these sizes of the caller; without any, a copy."""
        twins: dict[Value, Value] = {}

        def twin(value: Value) -> Value:
            if value not in twins:
                twins[value] = Value(value.name, pinned(value.type, sizes) if sizes else value.type, value.origin, value.data)
            return twins[value]

        copy = replace(self, inputs=[twin(v) for v in self.inputs], names=set(self.names))
        copy.nodes = [
            Node(
                pinned(node.op, sizes) if sizes else node.op,
                [None if v is None else twin(v) for v in node.inputs],
                [twin(v) for v in node.outputs],
                node.source,
                None if node.when is None else twin(node.when),
            )
            for node in self.nodes
        ]
        copy.outputs = [twin(v) for v in self.outputs]
        copy.states = [State(twin(s.input), twin(s.output), s.fill) for s in self.states]
        copy.bounds = None if sizes and not self.counts else self.bounds
        copy.counts = {name: twin(value) for name, value in self.counts.items()}
        return copy

    # Looking things up ----------------------------------------------------------------------------------------------

    def producers(self) -> dict[Value, Node]:
        return {out: node for node in self.nodes for out in node.outputs}

    def readers(self) -> dict[Value, list[Node]]:
        """Who reads each value; a node that reads it twice is listed twice."""
        table: dict[Value, list[Node]] = {}
        for node in self.nodes:
            for value in node.operands():
                table.setdefault(value, []).append(node)
        return table

    def constants(self) -> list[Value]:
        """Every constant that is read or is an output, in order of first use."""
        seen: dict[Value, None] = {}
        for node in self.nodes:
            for value in node.operands():
                if value.is_const:
                    seen.setdefault(value)
        for value in self.outputs:
            if value.is_const:
                seen.setdefault(value)
        return list(seen)

    def values(self) -> Iterator[Value]:
        yield from self.inputs
        yield from self.constants()
        for node in self.nodes:
            yield from node.outputs

    # Changing things ------------------------------------------------------------------------------------------------

    def replace_uses(self, old: Value, new: Value) -> None:
        for node in self.nodes:
            if any(v is old for v in node.inputs):
                node.inputs = [new if v is old else v for v in node.inputs]
            if node.when is old:
                node.when = new
        self.outputs = [new if v is old else v for v in self.outputs]
        for state in self.states:
            if state.output is old:
                state.output = new

    def remove(self, dead: Iterable[Node]) -> None:
        gone = set(dead)
        self.nodes = [n for n in self.nodes if n not in gone]
