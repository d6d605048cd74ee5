"""Is this graph legal? A table of small named rules; the first that is broken is an error with the node's name."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from intaglio.errors import OurFault, quoted
from intaglio.ir.graph import Graph, Value
from intaglio.ir.operator import BadOperator
from intaglio.ir.types import MAX_RANK, DType

Problem = str


def names_are_unique(graph: Graph) -> Iterator[Problem]:
    seen: dict[str, Value] = {}
    for value in graph.values():
        if seen.setdefault(value.name, value) is not value:
            yield f"two values are called {quoted(value.name)}"


def values_are_made_before_they_are_read(graph: Graph) -> Iterator[Problem]:
    known = set(graph.inputs)
    for node in graph.nodes:
        for value in node.operands():
            if not value.is_const and value not in known:
                yield f"{quoted(value.name)} is read by {node!r} before it is made"
        for out in node.outputs:
            if out in known:
                yield f"{quoted(out.name)} is made twice"
            known.add(out)
    for value in [*graph.outputs, *(s.output for s in graph.states)]:
        if not value.is_const and value not in known:
            yield f"the output {quoted(value.name)} is never made"


def types_follow_from_operands(graph: Graph) -> Iterator[Problem]:
    for node in graph.nodes:
        try:
            types = node.op.infer(*[None if v is None else v.type for v in node.inputs])
        except BadOperator as error:
            yield f"{node!r}: {error.reason}"
            continue
        for out, type in zip(node.outputs, types, strict=False):
            if (out.dtype, out.shape) != (type.dtype, type.shape):
                yield f"{quoted(out.name)} is declared {out.type}, its operator gives {type}"


def constants_have_their_type(graph: Graph) -> Iterator[Problem]:
    for value in graph.constants():
        data = value.data
        if data is not None and (data.shape != value.shape or data.dtype != value.dtype.numpy):
            yield f"the constant {quoted(value.name)} is {data.dtype}{list(data.shape)}, its type {value.type}"


def guards_are_single_booleans(graph: Graph) -> Iterator[Problem]:
    for node in graph.nodes:
        if node.when is not None and (node.when.dtype is not DType.BOOL or node.when.type.elements != 1):
            yield f"the guard {quoted(node.when.name)} of {node!r} is {node.when.type}, not one bool"


def shapes_are_small_enough(graph: Graph) -> Iterator[Problem]:
    for value in graph.values():
        if value.type.rank > MAX_RANK and value.dtype is not DType.BOOL and value.type.rank > 12:
            yield f"{quoted(value.name)} has rank {value.type.rank}"
        if any(d < 0 for d in value.shape):
            yield f"{quoted(value.name)} has a negative dimension: {value.type}"


RULES: tuple[Callable[[Graph], Iterator[Problem]], ...] = (
    names_are_unique,
    values_are_made_before_they_are_read,
    types_follow_from_operands,
    constants_have_their_type,
    guards_are_single_booleans,
    shapes_are_small_enough,
)


def problems(graph: Graph) -> Iterator[tuple[str, Problem]]:
    for rule in RULES:
        for problem in rule(graph):
            yield rule.__name__, problem


def verify(graph: Graph, after: str = "") -> None:
    """Raises OurFault with the rule and the node. Called after every pass in tests, and after reading an edited IR file."""
    for rule, problem in problems(graph):
        place = f" after pass `{after}`" if after else ""
        raise OurFault("bad-graph", f"{problem} (rule `{rule}`{place})")
