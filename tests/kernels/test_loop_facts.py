"""What is read from the loop IR: bounds of loops, and indices that depend on data."""

from __future__ import annotations

from intaglio.ir.types import DType
from intaglio.kernels.loop import (
    F32,
    IDX,
    Buffer,
    Expr,
    Fail,
    For,
    If,
    Kernel,
    Let,
    Load,
    Num,
    Op,
    Stmt,
    Store,
    Type,
    Var,
    Verbatim,
    While,
    cast,
)  # fmt: skip
from intaglio.kernels.loop_facts import loop_facts

X = Buffer("x", DType.U8)
N = Buffer("n", DType.I32)
T = Buffer("t", DType.F32)
Y = Buffer("y", DType.F32, const=False)
AT = Var("i", IDX)


def kernel(*body: Stmt) -> Kernel:
    return Kernel("k", (X, N, T, Y), body, "")


def loop(*body: Stmt, stop: Expr = Num(8)) -> For:  # noqa: B008 (never written)
    return For(AT, Num(0), stop, 1, body)


def test_a_loop_with_constant_ends_is_bounded() -> None:
    facts = loop_facts(kernel(loop(loop(Store(Y, AT, Num(0.0, F32)), stop=AT + 3))))
    assert facts.sound
    assert facts.loops == 2


def test_an_end_from_data_is_none() -> None:
    count = Let(Var("count", IDX), cast(Load(N, Num(0), Type("i32")), IDX))
    facts = loop_facts(kernel(count, loop(Store(Y, AT, Num(0.0, F32)), stop=Var("count", IDX))))
    assert not facts.sound
    assert "ends where data says" in facts.unbounded[0]


def test_a_while_is_none() -> None:
    assert loop_facts(kernel(While(Load(N, Num(0), Type("i32")).compare("gt", 0), ()))).unbounded


def test_an_index_of_a_byte_is_limited_by_its_type() -> None:
    facts = loop_facts(kernel(loop(Store(Y, AT, Load(T, cast(Load(X, AT, Type("u8")), IDX), F32)))))
    assert facts.sound
    assert facts.indices == ["`t[...]`: 0 to 255 by its type or a limit"]


def test_an_index_of_data_is_unchecked_unless_something_fails() -> None:
    index = Let(Var("k", IDX), cast(Load(N, AT, Type("i32")), IDX))
    read = Store(Y, AT, Load(T, Var("k", IDX), F32))
    assert loop_facts(kernel(loop(index, read))).unchecked
    guard = If(Op("lt", (Var("k", IDX), Num(0)), Type("bool")), (Fail(1),))
    facts = loop_facts(kernel(loop(index, guard, read)))
    assert facts.sound
    assert "checked before it is used" in facts.indices[0]


def test_a_byte_that_may_be_negative_is_no_limit() -> None:
    signed = Buffer("s", DType.I8)
    facts = loop_facts(kernel(loop(Store(Y, AT, Load(T, cast(Load(signed, AT, Type("i8")), IDX), F32)))))
    assert facts.unchecked
    lifted = cast(Load(signed, AT, Type("i8")), IDX) + 128
    assert loop_facts(kernel(loop(Store(Y, AT, Load(T, lifted, F32))))).sound


def test_what_others_wrote_is_not_read() -> None:
    assert not loop_facts(kernel(Verbatim(("npu();",)))).sound
