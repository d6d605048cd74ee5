"""Sizes with a bound: arithmetic, and questions that are answered for all of them or not at all."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import intaglio.ops  # noqa: F401  the text names operators
from intaglio.errors import ModelError, UserError
from intaglio.ir.apart import apart
from intaglio.ir.sizes import Bounds, Size, Undecided, cut, larger, least, most, pinned, possible, smaller, value_of
from intaglio.ir.spans import Span, named
from intaglio.ir.text import parse_graph, print_graph
from intaglio.ir.types import DType, TensorType, broadcast_shapes
from intaglio.ir.verify import verify
from support.examples import examples

BOUNDS = Bounds({"T": (1, 40), "B": (2, 3)})
T, B = BOUNDS.size("T"), BOUNDS.size("B")
ARITHMETIC: dict[str, Callable[[int, int], int]] = {
    "add": operator.add, "sub": operator.sub, "mul": operator.mul, "div": operator.floordiv, "mod": operator.mod,
    "min": smaller, "max": larger,
}  # fmt: skip


def formulas() -> st.SearchStrategy[Callable[[int, int], int]]:
    """Functions of two whole numbers, which a Size may be too."""
    leaves = st.one_of(
        st.just(lambda t, b: t), st.just(lambda t, b: b), st.integers(1, 9).map(lambda n: lambda t, b, n=n: n)
    )

    def joined(inner: st.SearchStrategy[Callable[[int, int], int]]) -> st.SearchStrategy[Callable[[int, int], int]]:
        def of(word: str, left: Callable[[int, int], int], right: Callable[[int, int], int]) -> Callable[[int, int], int]:
            return lambda t, b: ARITHMETIC[word](left(t, b), right(t, b))

        return st.builds(of, st.sampled_from(sorted(ARITHMETIC)), inner, inner)

    return st.recursive(leaves, joined, max_leaves=6)


@settings(max_examples=examples(100), deadline=None)
@given(formulas(), st.integers(1, 40), st.integers(2, 3))
def test_a_formula_is_what_its_numbers_give(formula: Callable[[int, int], int], t: int, b: int) -> None:
    bounds = Bounds({"T": (1, 40), "B": (2, 3)})  # of its own: a size keeps the first formula that it was made by
    try:
        size = formula(bounds.size("T"), bounds.size("B"))
    except (Undecided, ZeroDivisionError):  # a division by zero, or of something negative, for some sizes
        return
    wanted = formula(t, b)
    assert pinned(size, {"T": t, "B": b}) == wanted
    for first, second in (({"T": t}, {"B": b}), ({"B": b}, {"T": t})):  # one after the other
        assert pinned(pinned(size, first), second) == wanted
    assert value_of(str(size), {"T": t, "B": b}) == wanted, "the text says the same"
    assert least(size) <= wanted <= most(size) and wanted in possible(size)
    assert bounds.parse(str(size)) == size


def test_equal_means_equal_for_all_sizes() -> None:
    assert T * 64 // 64 == T
    assert T + T == 2 * T
    assert -(-T // 8) * 8 >= T
    assert T != 40 and T not in (1, 40)
    assert T - T == 0 and isinstance(T - T, int)


@pytest.mark.parametrize(
    "question",
    [
        lambda: T < 8, lambda: T > 1, lambda: bool(T // 2), lambda: range(T), lambda: int(T), lambda: np.zeros(T), lambda: T / 2,
        lambda: np.array([T], np.int64), lambda: min(T, 8), lambda: [0] * T, lambda: 2.0 * T, lambda: 7 % (T - 1),
        lambda: (T - 8) // 4,
    ],
)  # fmt: skip
def test_what_depends_on_the_size_is_not_guessed(question: Callable[[], object]) -> None:
    with pytest.raises(Undecided):
        question()


def test_a_question_with_one_answer_is_answered() -> None:
    assert T >= 1 and T <= 40 and not T < 1 and B > 1 and T * 2 != T
    assert bool(T) and sorted({T % 1, T * 0}) == [0]


def test_shapes_that_differ_for_some_sizes_are_told_by_example() -> None:
    """A picture that is halved and doubled again has another size where it was odd."""
    doubled = (T + 1) // 2 * 2
    assert apart((4, T, B), (4, T, B)) == apart((4, 3), (5, 3)) == ""
    told = apart((4, doubled, B), (4, T, B))
    assert "`(T+1)//2*2` and `T` differ for T=1 (equal for T=2; T=4; T=6; ...); `--dim T=2..40:2` takes these" in told
    assert "list of sizes" in apart((T % 7,), (1,))
    assert "are equal for no size" in apart((T + 1,), (T,))
    assert "differ for T=1, B=2 (equal for T=4, B=2; T=6, B=3)" in apart((T,), (B * 2,))
    with pytest.raises(ValueError, match=r"do not broadcast: .* differ for T=1 "):
        broadcast_shapes((2, T), (2, doubled))


def test_rounding_up_is_written_without_negative_numbers() -> None:
    assert str(-(-T // 8)) == "(T+7)//8"
    assert str((T + 1) * 2 + 3) == "(T+1)*2+3"
    assert str(smaller(T, 8)) == "min(T;8)"


def test_slices_are_those_of_python() -> None:
    for start, end, step in ((0, 10**9, 1), (1, -1, 1), (-3, 10**9, 1), (0, 10**9, 2), (2, 7, 3), (-1, -(10**9), -1)):
        for size in (8, 9, 40):
            first, count = cut(start, end, step, Bounds({"T": (8, 40)}).size("T"))
            places = range(*slice(start, end, step).indices(size))
            assert pinned((first, count), {"T": size}) == (places.start, len(places)), (start, end, step, size)


def test_memory_is_that_of_the_largest() -> None:
    type_ = TensorType(DType.F32, (B, T, 8))
    assert type_.bytes == 3 * 40 * 8 * 4
    assert str(type_) == "f32[B<=3,T<=40,8]"
    assert isinstance(type_.elements, Size) and math.prod(pinned(type_.shape, {"T": 5, "B": 2})) == 80


TEXT = """intaglio-ir 1
model net stage=import
size T = 1..40
input x: f32[1,T<=40,4]
a: f32[T*4<=160] = reshape(x, shape=({T*4}))
y: f32[T<=40,4] = reshape(a, shape=({T},4))
output y
"""


def test_sizes_are_part_of_the_text() -> None:
    graph = parse_graph(TEXT)
    verify(graph)
    assert print_graph(graph) == TEXT
    assert [v.shape for v in graph.pinned({"T": 7}).values()] == [(1, 7, 4), (28,), (7, 4)]
    from_zero = TEXT.replace("size T = 1..40", "size T = 0..40")
    assert print_graph(parse_graph(from_zero)) == from_zero


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("T<=40,4]\na", "T<=41,4]\na", "is at most 40"),
        ("T<=40,4]\na", "S<=40,4]\na", "is not a formula of the sizes T"),
        ("size T = 1..40\n", "", "is not a number"),
        ("size T = 1..40\n", "size T = 40..1\n", "has not two ends"),
        ("size T = 1..40\n", "size T = 1..9999999\n", "combinations"),
        ("{T*4}", "{T*4+__import__}", "is not a formula"),
        ("size T = 1..40\n", "size T = 1..40\nsize T = 1..40\n", "once each"),
    ],
)
def test_damaged_sizes_are_refused(old: str, new: str, said: str) -> None:
    with pytest.raises(ModelError, match=said):
        parse_graph(TEXT.replace(old, new))


def test_sizes_in_steps_have_no_numbers_between() -> None:
    bounds = Bounds({"H": Span(32, 96, 32), "N": (1, 2)})
    height, count = bounds.size("H"), bounds.size("N")
    assert possible(height) == [32, 64, 96] and height % 32 == 0 and height // 2 * 2 == height
    assert possible(height * count) == [32, 64, 96, 128, 192] and Bounds.combinations(bounds.ranges) == 6
    assert pinned((height * count, height), {"H": 64}) == (count * 64, 64) and str(bounds) == "H=32..96:32, N=1..2"
    assert bounds.ranges["H"].halved() == 32 and Span(8, 64, 8).halved() == Span(8, 32, 8) and Span(5, 7).halved() == 5
    with pytest.raises(Undecided, match=r"holds for some of H=32\.\.96:32"):
        assert height > 40
    text = "intaglio-ir 1\nmodel m stage=import\nsize H = 32..96:32\ninput x: f32[H<=96]\n"
    printed = print_graph(parse_graph(text + "y: f32[H<=96] = relu(x)\noutput y\n"))
    assert "size H = 32..96:32\n" in printed and print_graph(parse_graph(printed)) == printed


def test_a_size_may_be_that_of_another_name() -> None:
    rows = Span(1, 64)
    dims, shapes = named({"T": rows, "S": Span(0, 0, name="T"), "N": 4}, {"a": (1, Span(0, 0, name="N"))}, {"T", "S"})
    assert dims == {"T": rows, "S": rows._replace(name="T")} and shapes == {"a": (1, 4)}
    for wrong in ({"T": Span(0, 0, name="T")}, {"T": Span(0, 0, name="S"), "S": Span(0, 0, name="T")}, {"T": Span(0, 0, name="X")}):
        with pytest.raises(UserError, match=r"is not a size, nor the name of one|names itself|name each other"):
            named(wrong, {}, {"T", "S"})
