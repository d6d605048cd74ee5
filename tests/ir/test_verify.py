"""Every rule of the verifier, broken once."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from intaglio.errors import ModelError, OurFault
from intaglio.ir.graph import Graph
from intaglio.ir.types import DType, TensorType
from intaglio.ir.verify import MAX_ELEMENTS, RULES, problems, verify, verify_edited
from intaglio.ops.matmul import MatMul
from support.ir_text import graph_of

TEXT = """
    input x: f32[2,3]
    input c: bool[]
    const k: f32[3] = [1.0, 2.0, 3.0]
    a: f32[2,3] = add(x, k)
    b: f32[2,3] = exp(a) when c
    y: f32[2,3] = select(c, b, a)
    output y
"""


def _rename(graph: Graph) -> None:
    graph.nodes[1].output.name = "a"


def _swap(graph: Graph) -> None:
    graph.nodes[0], graph.nodes[1] = graph.nodes[1], graph.nodes[0]


def _twice(graph: Graph) -> None:
    graph.nodes.append(graph.nodes[0])


def _never(graph: Graph) -> None:
    del graph.nodes[-1]


def _wrong_type(graph: Graph) -> None:
    graph.nodes[0].output.type = TensorType(DType.F64, (2, 3))


def _wrong_operator(graph: Graph) -> None:
    graph.nodes[0].op = MatMul()


def _wrong_data(graph: Graph) -> None:
    graph.constants()[0].data = np.zeros(4, np.float32)


def _wrong_data_type(graph: Graph) -> None:
    graph.constants()[0].data = np.zeros(3, np.float64)


def _wide_guard(graph: Graph) -> None:
    graph.nodes[1].when = graph.inputs[0]


def _negative(graph: Graph) -> None:
    graph.inputs[0].type = TensorType(DType.F32, (2, -3))


def _rank(graph: Graph) -> None:
    graph.inputs[0].type = TensorType(DType.F32, (1,) * 13)


def _guard_of_several(graph: Graph) -> None:
    graph.inputs[1].type = TensorType(DType.BOOL, (2,))


def _guard_of_a_number(graph: Graph) -> None:
    graph.inputs[1].type = TensorType(DType.F32, ())


def _large(graph: Graph) -> None:
    graph.inputs[0].type = TensorType(DType.F32, (MAX_ELEMENTS + 1,))


BROKEN: dict[str, tuple[Callable[[Graph], None], str, str]] = {
    "two names": (_rename, "names_are_unique", "two values have the name `a`"),
    "order": (_swap, "values_are_made_before_they_are_read", "`a` is read by .* before it is made"),
    "made twice": (_twice, "values_are_made_before_they_are_read", "`a` is computed twice"),
    "never made": (_never, "values_are_made_before_they_are_read", "the output `y` is never computed"),
    "type": (_wrong_type, "types_follow_from_operands", r"`a` is declared f64\[2,3\], its operator gives f32\[2,3\]"),
    "operands": (_wrong_operator, "types_follow_from_operands", "`matmul` is for matrices"),
    "shape of a constant": (_wrong_data, "constants_have_their_type", r"the constant `k` is float32\[4\], its type f32\[3\]"),
    "type of a constant": (_wrong_data_type, "constants_have_their_type", r"the constant `k` is float64\[3\]"),
    "guard": (_wide_guard, "guards_are_single_booleans", r"the guard `x` of .* is f32\[2,3\], not one bool"),
    "guard of several": (_guard_of_several, "guards_are_single_booleans", r"the guard `c` of .* is bool\[2\], not one bool"),
    "guard of a number": (_guard_of_a_number, "guards_are_single_booleans", r"the guard `c` of .* is f32\[\], not one bool"),
    "too many elements": (_large, "shapes_are_small_enough", "`x` has too many elements"),
    "negative dimension": (_negative, "shapes_are_small_enough", "`x` has a negative dimension"),
    "rank": (_rank, "shapes_are_small_enough", "`x` has rank 13"),
}


def test_a_legal_graph_has_no_problems() -> None:
    verify(graph_of(TEXT))


@pytest.mark.parametrize("shape", [(1,) * 12, (0, 3), (MAX_ELEMENTS,)])
def test_what_is_just_within_the_limits_is_legal(shape: tuple[int, ...]) -> None:
    graph = graph_of("input x: f32[2,3]\n y: f32[2,3] = exp(x)\n output y")
    for value in graph.values():
        value.type = TensorType(DType.F32, shape)
    verify(graph)


def test_the_largest_tensor_has_an_index_of_32_bits() -> None:
    assert MAX_ELEMENTS == 2**31 - 1


def test_every_rule_is_broken_here() -> None:
    assert {rule for _, rule, _ in BROKEN.values()} == {r.__name__ for r in RULES}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_rule_is_named(name: str) -> None:
    breaks, rule, message = BROKEN[name]
    graph = graph_of(TEXT)
    breaks(graph)
    assert rule in {found for found, _ in problems(graph)}
    with pytest.raises(OurFault):
        verify(graph)
    told = "\n".join(text for found, text in problems(graph) if found == rule)
    with pytest.raises(AssertionError, match=message):
        raise AssertionError(told)


def test_the_pass_that_broke_it_is_named() -> None:
    graph = graph_of(TEXT)
    _never(graph)
    with pytest.raises(OurFault, match=r"rule `values_are_made_before_they_are_read` after pass `dead_code`"):
        verify(graph, "dead_code")


def test_results_that_nobody_reads_may_be_left_out() -> None:
    """`topk` has a second result, the indices."""
    verify(graph_of("input x: f32[2,3]\n y: f32[2,2] = topk(x, k=2)\n output y"))


@pytest.mark.parametrize("text", ["the axis is 7", ""])
def test_an_operator_that_trips_over_its_operands_is_told(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = graph_of(TEXT)
    graph.nodes[0].op = MatMul()

    def trip(*_: object) -> None:
        raise LookupError(text) if text else AssertionError

    monkeypatch.setattr(MatMul, "infer", trip)
    (told,) = (problem for _, problem in problems(graph))
    assert told.endswith(f"its fields or operands do not fit together ({text or 'an operand is missing'})")


@pytest.mark.parametrize("name", ["type", "two names"])
def test_the_hint_for_an_edited_file_says_what_goes_together(name: str) -> None:
    breaks, rule, _ = BROKEN[name]
    graph = graph_of(TEXT)
    breaks(graph)
    with pytest.raises(ModelError) as found:
        verify_edited(graph)
    both = "change both the operator and the type, or neither"
    assert found.value.hint == (both if rule == "types_follow_from_operands" else "docs/reference/ir.md has the rules")
