"""The graph as text, and back. `parse_graph(print_graph(g))` prints the same again, to the byte.

    intaglio-ir 1
    model digits stage=memory target=x86-64-v3
    input x "input:0": f32[1,1,8,8] @input+0
    const b1: f32[4] = [0.5, 1.0, -1.0, 0.0]
    const w1 "conv1.weight": f32[16,1,3,3] sha256:0123456789abcdef
    h: f32[1,8,8,16] NHWC @arena+0 = conv(x, w1, b1, pads=(1,1,1,1), epilogue=[relu(0)]) using conv_nhwc(tile=6x2)  # /conv1
    output h "probabilities"

One line a value; each stage adds to the same line. After `#`: the node of the model it comes from. `_` is an absent operand.
`when c` guards a node. `on npu.0` says which accelerator computes it, and in which region. Attributes are the fields of the
operator's dataclass that differ from their defaults.
The grammar is in docs/reference/ir.md.
"""

from __future__ import annotations

import dataclasses
import json
import math
import re
from collections.abc import Mapping
from enum import Enum

import numpy as np

from intaglio.errors import ModelError, quoted
from intaglio.ir.choices import OPEN, Choices
from intaglio.ir.graph import FIRST_STAGE, Array, Graph, Node, State, Value
from intaglio.ir.offload import Offload, gather
from intaglio.ir.operator import REGISTRY, Op, Step
from intaglio.ir.placement import NOWHERE, Address, Placement, Region
from intaglio.ir.sizes import MOST_COMBINATIONS, Bounds, Size
from intaglio.ir.spans import SPAN, Span, fault_of
from intaglio.ir.stripes import StripeSpec
from intaglio.ir.text_parser import Line, ParseError, whole
from intaglio.ir.types import DType, TensorType
from intaglio.ir.weights import INLINE_ELEMENTS, digest

VERSION = 1
_PLAIN_SOURCE = re.compile(r"[!-~]([ -~]*[!-~])?")


# Printing ---------------------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, slots=True)
class Network:
    """What an IR file holds: the graph, the kernels of its layers with the stripes, where its values live, and the stage that it
    was written after."""

    graph: Graph
    choices: Choices = OPEN
    placement: Placement = NOWHERE
    stage: str = FIRST_STAGE


def print_graph(
    graph: Graph, choices: Choices = OPEN, placement: Placement = NOWHERE, stage: str = FIRST_STAGE
) -> str:
    lines = [
        f"intaglio-ir {VERSION}",
        f"model {graph.name} stage={stage}" + (f" target={choices.target}" if choices.target else "")
        + (f" weights={graph.weights}" if graph.weights else ""),
    ]
    if graph.bounds is not None:
        for name, span in graph.bounds.ranges.items():
            lines.append(f"size {name} = {span}" + (f" of {graph.counts[name].name}" if name in graph.counts else ""))
    for value in graph.inputs:
        lines.append(f"input {_declaration(value, placement)}")
    for value in graph.constants():
        lines.append(f"const {_declaration(value, placement)} {_contents(value)}")
    for state in graph.states:
        fill = f" fill {print_attribute(state.fill)}" if state.fill else ""
        lines.append(f"state {state.input.name} = {state.output.name}{fill}")
    for node in graph.nodes:
        inside = node.op if isinstance(node.op, Offload) else None
        body = [node] if inside is None else inside.body
        place = "" if inside is None else inside.place
        lines += [_node(each, choices.of(each), placement, place) for each in body]
    lines += [str(spec) for spec in choices.stripes]
    for value, name in zip(graph.outputs, graph.output_names or [""] * len(graph.outputs), strict=True):
        lines.append(f"output {value.name}" + (f" {json.dumps(name)}" if name and name != _usual_name(value) else ""))
    return "\n".join(lines) + "\n"


def _usual_name(value: Value) -> str:
    """What an output is called where nothing else is said."""
    return value.origin or value.name


def _declaration(value: Value, placement: Placement) -> str:
    origin = f" {json.dumps(value.origin)}" if value.origin and value.origin != value.name else ""
    address = placement.of(value)
    place = f" {address}" if address is not None else ""
    return f"{value.name}{origin}: {value.type}{place}"


def _contents(value: Value) -> str:
    assert value.data is not None
    if value.data.size > INLINE_ELEMENTS:
        return f"sha256:{digest(value.data)}"
    flat = [print_attribute(v.item()) for v in value.data.reshape(-1)]
    return f"= {flat[0]}" if value.data.shape == () else f"= [{', '.join(flat)}]"


def _node(node: Node, using: str, placement: Placement, place: str) -> str:
    outs = ", ".join(_declaration(v, placement) for v in node.outputs)
    args = ["_" if v is None else v.name for v in node.inputs]
    text = f"{outs} = {node.op.NAME}({', '.join(args + print_fields(node.op))})"
    if place:
        text += f" on {place}"
    if using:
        text += f" using {using}"
    if node.when is not None:
        text += f" when {node.when.name}"
    if node.source:
        plain = _PLAIN_SOURCE.fullmatch(node.source) and not node.source.startswith('"')
        text += f"  # {node.source if plain else json.dumps(node.source)}"
    return text


def print_fields(op: Op) -> list[str]:
    out = []
    for field in dataclasses.fields(op):
        value = getattr(op, field.name)
        if not _same(value, field.default):
            out.append(f"{field.name}={print_attribute(value)}")
    return out


def _same(a: object, b: object) -> bool:
    if type(a) is not type(b):
        return False
    return a == b or (isinstance(a, float) and isinstance(b, float) and math.isnan(a) and math.isnan(b))


def print_attribute(value: object) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case Size():
            return f"{{{value}}}"
        case int():
            return str(value)
        case float():
            return repr(value)
        case str():
            return json.dumps(value)
        case Enum():
            return str(value.value) or "none"
        case tuple() if value and isinstance(value[0], Step):
            steps = [f"{s.op.NAME}({', '.join([str(a) for a in s.args] + print_fields(s.op))})" for s in value]
            return f"[{', '.join(steps)}]"
        case tuple():
            return f"({','.join(print_attribute(v) for v in value)})"
    raise AssertionError(f"no text for {value!r}")


# Parsing ----------------------------------------------------------------------------------------------------------------


def parse_graph(text: str, arrays: Mapping[str, Array] | None = None, file: str = "text") -> Graph:
    """The graph alone. Raises ModelError with the line that is wrong."""
    return parse_network(text, arrays, file).graph


LONGEST_LINE = 4_000_000  # of characters; the longest that we write, with a scale for each of 10,000 channels, has 200,000


def parse_network(text: str, arrays: Mapping[str, Array] | None = None, file: str = "text") -> Network:
    """Raises ModelError with the line that is wrong."""
    graph = Graph("model", file=file)
    reader = _Reader(graph, arrays or {})
    lines = text.splitlines()
    if not lines or lines[0].split() != ["intaglio-ir", str(VERSION)]:
        found = quoted(lines[0], 40) if lines else "an empty file"
        raise ModelError("not-ir", f"{quoted(file)} starts with {found}", hint=f"IR files start with `intaglio-ir {VERSION}`")
    for number, raw in enumerate(lines[1:], 2):
        if not raw.strip() or raw.lstrip().startswith("#"):
            continue
        reader.number = number
        if len(raw) > LONGEST_LINE:
            what = f"line {number:,} has {len(raw):,} characters; at most {LONGEST_LINE:,} are read"
            raise ModelError("bad-ir", what, where=file, hint="large constants belong into the .safetensors file beside it")
        try:
            reader.line(Line(raw))
        except ParseError as error:
            where = f"{file}, line {number}"
            raise ModelError("bad-ir", str(error), where=where, hint=error.hint or "docs/reference/ir.md has the grammar") from None
    try:
        reader.finish()
    except ParseError as error:
        raise ModelError("bad-ir", str(error), where=file, hint=error.hint) from None
    choices = Choices(reader.target, reader.kernels, tuple(reader.stripes))
    return Network(graph, choices, Placement(reader.addresses), reader.stage)


class _Reader:
    def __init__(self, graph: Graph, arrays: Mapping[str, Array]) -> None:
        self.graph = graph
        self.arrays = arrays
        self.values: dict[str, Value] = {}
        self.states: list[tuple[str, str, float]] = []
        self.places: dict[Node, tuple[str, int]] = {}
        self.addresses: dict[Value, Address] = {}
        self.stage = FIRST_STAGE
        self.target = ""
        self.kernels: dict[str, str] = {}
        self.stripes: list[StripeSpec] = []
        self.spans: dict[str, Span] = {}
        self.counts: dict[str, str] = {}
        self.number = 0

    def line(self, line: Line) -> None:
        word = line.word_ahead()
        if self.graph.bounds is None and self.spans and word != "size":
            self.graph.bounds = Bounds({**self.spans})
        line.bounds = self.graph.bounds
        if word == "model":
            self._model(line)
        elif word == "size":
            self._size(line)
        elif word == "input":
            line.name()
            self.graph.inputs.append(self._declare(line))
            line.end()
        elif word == "const":
            self._const(line)
        elif word == "state":
            line.name()
            fed = line.name()
            line.expect("=")
            out = line.name()
            fill: object = 0
            if line.peek("fill"):
                line.expect("fill")
                fill = line.literal()
            if not isinstance(fill, (int, float)):
                raise ParseError("the fill of a state is a number")
            self.states.append((fed, out, fill))
            line.end()
        elif word == "stripe":
            self._stripe(line)
        elif word == "output":
            line.name()
            value = self._known(line.name())
            self.graph.outputs.append(value)
            self.graph.output_names.append(line.string() if line.peek('"') else _usual_name(value))
            line.end()
        else:
            self._node(line)

    def _model(self, line: Line) -> None:
        line.name()
        self.graph.name = line.name()
        while not line.at_end():
            key = line.name()
            line.expect("=")
            value = line.token(r"[\w.+-]+", "a word")
            if key == "stage":
                self.stage = value
            elif key == "target":
                self.target = value
            elif key == "weights" and value == "read":
                self.graph.weights = value
            else:
                raise ParseError(f"`model` has no {quoted(key)}")

    def _size(self, line: Line) -> None:
        line.name()
        name = line.name()
        line.expect("=")
        found = SPAN.fullmatch(line.token(r"\d+\.\.\d+(:\d+)?", "a range such as `1..512` or `32..512:32`"))
        if found is None:
            raise ParseError("a number of the range is too large")
        span = Span(whole(found[1]), whole(found[2]), whole(found[3] or "1"))
        if line.peek("of "):
            line.expect("of")
            self.counts[name] = line.name()
        line.end()
        if name in self.spans or self.graph.bounds is not None:
            raise ParseError("sizes are declared once each, before the inputs")
        if not span.low < span.high:
            raise ParseError(f"the range {span} of {quoted(name)} has not two ends, the smaller one first")
        if fault := fault_of(span):
            raise ParseError(f"the range {span} of {quoted(name)} {fault}")
        self.spans[name] = span
        if max(len(each.numbers) for each in self.spans.values()) > MOST_COMBINATIONS + 1:
            raise ParseError(f"the ranges allow more than {MOST_COMBINATIONS} combinations of sizes")

    def _stripe(self, line: Line) -> None:
        line.name()
        line.expect("from")
        first = self._known(line.name()).name
        line.expect("to")
        last = self._known(line.name()).name
        line.expect("rows=")
        rows = whole(line.token(r"\d+", "a number of rows"))
        if rows < 1:
            raise ParseError("a stripe has at least one row at a time")
        flags = set()
        while not line.at_end():
            flags.add(flag := line.name())
            if flag not in ("up", "fed"):
                raise ParseError(f"`stripe` has no {quoted(flag)}")
        self.stripes.append(StripeSpec(first, last, rows, "up" in flags, "fed" in flags))

    def _declare(self, line: Line) -> Value:
        name = line.name()
        if name in self.values:
            raise ParseError(f"{quoted(name)} is defined twice")
        origin = line.string() if line.peek('"') else ""
        line.expect(":")
        value = Value(name, line.type(), origin)
        if line.peek("@"):
            region, offset, stride = line.address()
            self.addresses[value] = Address(Region.of(region), offset, stride)
        self.values[name] = value
        self.graph.names.add(name)
        self.graph.lines[name] = self.number
        return value

    def _known(self, name: str) -> Value:
        if name not in self.values:
            raise ParseError(f"{quoted(name)} is not defined above this line")
        return self.values[name]

    def _const(self, line: Line) -> None:
        line.name()
        value = self._declare(line)
        if line.peek("="):
            line.expect("=")
            literal = line.literal()
            value.data = _array(literal, value.type)
        else:
            line.expect("sha256:")
            wanted = line.token(r"[0-9a-f]+", "a digest")
            value.data = _stored(value, self.arrays, wanted)
        line.end()

    def _node(self, line: Line) -> None:
        outputs = [self._declare(line)]
        while line.peek(","):
            line.expect(",")
            outputs.append(self._declare(line))
        line.expect("=")
        op, args = line.operator()
        node = Node(op, [None if a == "_" else self._known(a) for a in args], outputs)
        while not line.at_end():
            word = line.name()
            if word == "using":
                self.kernels[node.output.name] = line.using()
            elif word == "when":
                node.when = self._known(line.name())
            elif word == "on":
                accelerator = line.name()
                line.expect(".")
                self.places[node] = (accelerator, whole(line.token(r"\d+", "the number of a region")))
            else:
                raise ParseError(f"expected `using`, `on` or `when`, found {quoted(word)}")
        node.source = line.comment
        self.graph.nodes.append(node)

    def finish(self) -> None:
        self.graph.counts = {name: self._known(value) for name, value in self.counts.items()}
        for fed, out, fill in self.states:
            self.graph.states.append(State(self._known(fed), self._known(out), fill))
        for node in self.places:
            if node.when is not None:
                raise ParseError(f"{quoted(node.output.name)} is guarded: no accelerator computes it")
        try:
            gather(self.graph, self.places)
        except ValueError as error:
            raise ParseError(f"{error}: split one of them, with another number after `on`") from None


def _array(literal: object, type: TensorType) -> Array:
    items = list(literal) if isinstance(literal, (list, tuple)) else [literal]
    if type.moves or len(items) != type.elements:
        raise ParseError(f"the constant has {len(items)} elements, its type {type} has {type.elements}")
    try:
        return np.asarray(items, type.dtype.numpy).reshape(type.shape)
    except (ValueError, TypeError, OverflowError) as error:
        raise ParseError(f"the constant does not fit its type {type}: {error}") from None


def _stored(value: Value, arrays: Mapping[str, Array], wanted: str) -> Array:
    if value.name not in arrays:
        raise ParseError(
            f"the weights {quoted(value.name)} are not in the .safetensors file",
            "keep the .ig and its .safetensors together",
        )
    data = arrays[value.name]
    if value.type.dtype is DType.BOOL:
        data = data.view(np.bool_)
    if data.shape != value.type.shape or data.dtype != value.type.dtype.numpy:
        raise ParseError(f"{quoted(value.name)} is stored as {data.dtype}{list(data.shape)}, the text says {value.type}")
    if digest(data) != wanted:
        raise ParseError(f"the weights {quoted(value.name)} are not those of this text: the digest differs")
    return data


def attributes(op: type[Op]) -> list[str]:
    return [f.name for f in dataclasses.fields(op)]


__all__ = ["REGISTRY", "Network", "attributes", "parse_graph", "parse_network", "print_graph"]
