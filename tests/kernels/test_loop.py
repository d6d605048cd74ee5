"""Loop IR: what folding leaves means what was written, names do not clash, loops of one turn and of none go away."""

from __future__ import annotations

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from intaglio.ir.graph import Array
from intaglio.ir.types import DType
from intaglio.kernels.builder import Builder
from intaglio.kernels.c_printer import Printer
from intaglio.kernels.interpret import interpret
from intaglio.kernels.isa import ISAS
from intaglio.kernels.loop import (
    IDX,
    Assign,
    Buffer,
    Expr,
    For,
    Kernel,
    Let,
    Load,
    Num,
    Op,
    Store,
    Type,
    Var,
    arith,
    cast,
    idx,
)
from intaglio.kernels.unused import drop_unused

NAMES = ("i", "j", "k")
Tree = tuple[str, "Tree", "Tree"] | str | int


def trees() -> st.SearchStrategy[Tree]:
    leaves = st.one_of(st.sampled_from(NAMES), st.integers(-9, 99))
    return st.recursive(leaves, lambda t: st.tuples(st.sampled_from(["add", "sub", "mul", "min", "max"]), t, t), max_leaves=12)


def folded(tree: Tree) -> Expr:
    if isinstance(tree, tuple):
        return arith(tree[0], folded(tree[1]), folded(tree[2]))
    return Var(tree, IDX) if isinstance(tree, str) else Num(tree)


def plain(tree: Tree) -> Expr:
    if isinstance(tree, tuple):
        return Op(tree[0], (plain(tree[1]), plain(tree[2])), IDX)
    return Var(tree, IDX) if isinstance(tree, str) else Num(tree)


def value_of(expr: Expr, at: tuple[int, int, int]) -> int:
    k = Builder()
    for name, number in zip(NAMES, at, strict=True):
        k.emit(Let(Var(name, IDX), Num(number)))
    y = Buffer("y", DType.I64, const=False)
    k.store(y, 0, cast(expr, Type("i64")))
    out: Array = np.zeros(1, np.int64)
    interpret(Kernel("t", (y,), k.body(), ""), [out])
    return int(out[0])


@given(trees(), st.tuples(*[st.integers(0, 50)] * 3))
@settings(suppress_health_check=[HealthCheck.too_slow])  # a busy machine
def test_a_folded_expression_means_what_was_written(tree: Tree, at: tuple[int, int, int]) -> None:
    assert value_of(folded(tree), at) == value_of(plain(tree), at)


@given(trees(), st.integers(1, 9), st.sampled_from(["div", "mod"]), st.tuples(*[st.integers(0, 50)] * 3))
def test_division_of_what_is_not_negative_is_exact(tree: Tree, by: int, op: str, at: tuple[int, int, int]) -> None:
    positive: Tree = ("max", 0, tree)
    assert value_of(arith(op, folded(positive), idx(by)), at) == value_of(Op(op, (plain(positive), Num(by)), IDX), at)


@given(trees())
def test_the_printed_index_is_the_index(tree: Tree) -> None:
    """C's own precedence reads what we meant; checked with Python, whose rules for these operators are the same."""
    expr = folded(tree)
    text = Printer(ISAS["scalar"]).expr(expr).replace("ig_min_idx", "min").replace("ig_max_idx", "max")
    assert eval(text, {"min": min, "max": max, "i": 3, "j": 5, "k": 11}) == value_of(expr, (3, 5, 11))


def test_index_arithmetic_comes_out_short() -> None:
    i = Var("i", IDX)
    printed = [Printer(ISAS["scalar"]).expr(e) for e in (i * 1 + 0, (i + 3) * 4, (i + 3) - 3, (i + 1) + (i + 2), i * 0, i % 1)]
    assert printed == ["i", "i * 4 + 12", "i", "i + i + 3", "0", "0"]


def test_floats_are_not_folded() -> None:
    """x + 0.0 is not x for x = -0.0, and rounding makes (x + 1) + 2 another number than x + 3."""
    x = Var("x", Type("f32"))
    assert isinstance(x + 0.0, Op)
    assert Printer(ISAS["scalar"]).expr((x + 1.0) + 2.0) == "x + 1.0f + 2.0f"


def test_a_loop_of_one_turn_is_its_body() -> None:
    k = Builder()
    y = Buffer("y", DType.F32, const=False)
    with k.loop("i", 3, 4) as i:
        k.store(y, i, Num(1.0, Type("f32")))
    assert k.body() == (Store(y, Num(3), Num(1.0, Type("f32"))),)


def test_a_loop_of_no_turn_takes_its_body_along() -> None:
    k = Builder()
    with k.loop("i", 4, 4) as i:
        k.let("t", Load(Buffer("x", DType.F32), i, Type("f32")))
    assert k.body() == ()


def test_a_long_step_over_a_short_range_is_one_turn() -> None:
    k = Builder()
    y = Buffer("y", DType.F32, const=False)
    with k.loop("i", 0, 5, 8) as i:
        k.store(y, i, Num(1.0, Type("f32")))
    assert len(k.body()) == 1 and isinstance(k.body()[0], Store)


def test_names_are_fresh_inside_and_free_again_outside() -> None:
    k = Builder()
    x = Buffer("x", DType.F32)
    k.reserve("x")
    read = [k.let("x", Load(x, idx(0), Type("f32")))]
    for _ in range(2):
        with k.loop("i", 0, 9) as i:
            read.append(k.let("t", Load(x, i, Type("f32"))))
            with k.loop("i", 0, 9) as inner:
                read.append(inner)
                read.append(k.let("t", Load(x, inner, Type("f32"))))
    assert [v.name for v in read if isinstance(v, Var)] == ["x_1", "t", "i_1", "t_1", "t", "i_1", "t_1"]


def test_names_of_a_loop_that_vanished_stay_taken() -> None:
    k = Builder()
    x = Buffer("x", DType.F32)
    names = []
    for turn in (0, 1):
        with k.loop("i", turn, turn + 1) as i:
            value = k.let("t", Load(x, i, Type("f32")))
            assert isinstance(value, Var)
            names.append(value.name)
    assert names == ["t", "t_1"]


def test_what_nobody_reads_is_not_declared() -> None:
    k = Builder()
    x, y = Buffer("x", DType.F32), Buffer("y", DType.F32, const=False)
    with k.loop("i", 0, 9) as i:
        a = k.let("a", Load(x, i, Type("f32")))
        k.let("b", a + 1.0)
        c = k.let("c", Load(x, i + 1, Type("f32")))
        k.store(y, i, c)
    (loop,) = drop_unused(k.body())
    assert isinstance(loop, For)
    assert [s.var.name for s in loop.body if isinstance(s, Let)] == ["c"]


def test_what_changes_stays_declared() -> None:
    k = Builder()
    total = k.var("total", Num(0.0, Type("f32")))
    with k.loop("i", 0, 9):
        k.assign(total, total + 1.0)
    first, loop = drop_unused(k.body())
    assert isinstance(first, Let) and isinstance(loop, For)
    assert isinstance(loop.body[0], Assign)
