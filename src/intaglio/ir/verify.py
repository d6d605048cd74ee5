"""Is this graph legal? A table of small named rules; the first that is broken is an error with the node's name."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from intaglio.errors import ModelError, OurFault, quoted
from intaglio.ir.graph import Graph, Value, needed_counts
from intaglio.ir.names import RESERVED, is_clean
from intaglio.ir.operator import BadOperator
from intaglio.ir.types import DType

MAX_ELEMENTS = 2**31 - 1
MOST_RANK = 12  # above that of any operator here


class Problem(str):
    """What is wrong, and the value on whose line it is."""

    about: str = ""

    @staticmethod
    def of(value: Value, text: str) -> Problem:
        problem = Problem(text)
        problem.about = value.name
        return problem


def names_are_unique(graph: Graph) -> Iterator[Problem]:
    seen: dict[str, Value] = {}
    for value in graph.values():
        if seen.setdefault(value.name, value) is not value:
            yield Problem.of(value, f"two values have the name {quoted(value.name)}")


def values_are_made_before_they_are_read(graph: Graph) -> Iterator[Problem]:
    known = set(graph.inputs)
    for node in graph.nodes:
        for value in node.operands():
            if not value.is_const and value not in known:
                yield Problem.of(node.output, f"{quoted(value.name)} is read by {node!r} before it is made")
        for value in needed_counts(node, graph.counts) - known:
            yield Problem.of(node.output, f"{quoted(value.name)} is a size of {node!r}, and is found after it")
        for out in node.outputs:
            if out in known:
                yield Problem.of(out, f"{quoted(out.name)} is computed twice")
            known.add(out)
    for value in [*graph.outputs, *(s.output for s in graph.states)]:
        if not value.is_const and value not in known:
            yield Problem.of(value, f"the output {quoted(value.name)} is never computed")


def types_follow_from_operands(graph: Graph) -> Iterator[Problem]:
    for node in graph.nodes:
        try:
            types = node.op.infer(*[None if v is None else v.type for v in node.inputs])
        except BadOperator as error:
            yield Problem.of(node.output, f"{node!r}: {error.reason}")
            continue
        except (ValueError, TypeError, LookupError, ArithmeticError, AttributeError, AssertionError) as error:
            reason = str(error) or "an operand is missing"
            yield Problem.of(node.output, f"{node!r}: its fields or operands do not fit together ({reason})")
            continue
        if len(node.outputs) > len(types):
            yield Problem.of(node.output, f"{node!r} has {len(types)} result(s), not {len(node.outputs)}")
        for out, type in zip(node.outputs, types, strict=False):
            if (out.dtype, out.shape) != (type.dtype, type.shape):
                yield Problem.of(out, f"{quoted(out.name)} is declared {out.type}, its operator gives {type}")


def constants_have_their_type(graph: Graph) -> Iterator[Problem]:
    for value in graph.constants():
        data = value.data
        if data is not None and (data.shape != value.shape or data.dtype != value.dtype.numpy):
            text = f"the constant {quoted(value.name)} is {data.dtype}{list(data.shape)}, its type {value.type}"
            yield Problem.of(value, text)


def guards_are_single_booleans(graph: Graph) -> Iterator[Problem]:
    for node in graph.nodes:
        if node.when is not None and (node.when.dtype is not DType.BOOL or node.when.type.elements != 1):
            yield Problem.of(node.output, f"the guard {quoted(node.when.name)} of {node!r} is {node.when.type}, not one bool")


def shapes_are_small_enough(graph: Graph) -> Iterator[Problem]:
    for value in graph.values():
        if value.type.rank > MOST_RANK and value.dtype is not DType.BOOL:
            yield Problem.of(value, f"{quoted(value.name)} has rank {value.type.rank}")
        if any(d < 0 for d in value.shape):
            yield Problem.of(value, f"{quoted(value.name)} has a negative dimension: {value.type}")
        if value.type.elements > MAX_ELEMENTS:
            yield Problem.of(value, f"{quoted(value.name)} has too many elements: {value.type}")


def states_keep_their_type(graph: Graph) -> Iterator[Problem]:
    fed: set[Value] = set()
    for state in graph.states:
        if state.input not in graph.inputs or state.input in fed:
            yield Problem.of(state.input, f"the state {quoted(state.input.name)} is not an input, or is fed twice")
        fed.add(state.input)
        if (state.input.type.dtype, state.input.type.shape) != (state.output.type.dtype, state.output.type.shape):
            text = f"the state {quoted(state.input.name)} is {state.input.type}, its next value {state.output.type}"
            yield Problem.of(state.output, text)


def outputs_are_there_once(graph: Graph) -> Iterator[Problem]:
    seen: set[Value] = set()
    for value in graph.outputs:
        if value in seen or value in graph.inputs:
            yield Problem.of(value, f"the output {quoted(value.name)} is already an input or an output; insert a `copy`")
        seen.add(value)


def names_are_clean(graph: Graph) -> Iterator[Problem]:
    if not is_clean(graph.name):
        yield Problem(f"the model cannot be called {quoted(graph.name)} in C")
    for value in graph.values():
        if not is_clean(value.name) or (value in graph.inputs and value.name.lower() in RESERVED):
            yield Problem.of(value, f"{quoted(value.name)} cannot be a name in C")


Rules = tuple[Callable[[Graph], Iterator[Problem]], ...]
RULES: Rules = (
    names_are_unique,
    values_are_made_before_they_are_read,
    types_follow_from_operands,
    constants_have_their_type,
    guards_are_single_booleans,
    shapes_are_small_enough,
)
# What a front end sees to: only a person who edits an IR file can get it wrong.
EDITED_RULES = (*RULES, states_keep_their_type, outputs_are_there_once, names_are_clean)


def problems(graph: Graph, rules: Rules = RULES) -> Iterator[tuple[str, Problem]]:
    for rule in rules:
        for problem in rule(graph):
            yield rule.__name__, problem


def verify(graph: Graph, after: str = "") -> None:
    """Raises OurFault with the rule and the node. Called after every pass in tests."""
    for rule, problem in problems(graph):
        place = f" after pass `{after}`" if after else ""
        raise OurFault("bad-graph", f"{problem} (rule `{rule}`{place})")


def verify_edited(graph: Graph) -> None:
    """The same for an IR file that was read: what is wrong there is an edit, and has a line."""
    if not graph.outputs:
        raise ModelError("bad-ir", "the graph has no outputs", where=graph.file, hint="add a line `output NAME`")
    for rule, problem in problems(graph, EDITED_RULES):
        hint = "change both the operator and the type, or neither" if rule == "types_follow_from_operands" else ""
        raise ModelError("bad-ir", problem, where=graph.where(problem.about), hint=hint or "docs/reference/ir.md has the rules")
