"""Writes loop IR: statements are collected, loops and conditions are context managers.

    with k.loop("i", 0, 64, 8) as i:                  for i in 0..64 step 8:
        v = k.let("v", k.load(x, i, 8))                 v: f32x8 = x[i..]
        k.store(y, i, vmax(k.splat(0.0), v))            y[i..] = max(0, v)

A loop with one iteration disappears, one with none takes its body along.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from intaglio.ir.sizes import Size, possible
from intaglio.kernels.loop import (
    IDX,
    Assign,
    Braces,
    Buffer,
    Comment,
    CopyRun,
    Expr,
    Fail,
    For,
    If,
    Let,
    Load,
    Num,
    Operand,
    Place,
    Prefetch,
    Reload,
    RoutineCall,
    Stmt,
    Store,
    Type,
    Var,
    While,
    as_expr,
    idx,
)  # fmt: skip

if TYPE_CHECKING:
    from intaglio.kernels.routines import Routine

_TAKEN = ("char", "const", "double", "float", "int", "long", "register", "short", "signed", "static", "unsigned", "void")



class Builder:
    """Collects statements; loops and conditions are context managers."""

    def __init__(self) -> None:
        self._stack: list[list[Stmt]] = [[]]
        self._names: dict[str, int] = dict.fromkeys(_TAKEN, 1)  # words of C are no names
        self.fallible = False

    def fresh(self, stem: str) -> str:
        n = self._names.get(stem, 0)
        self._names[stem] = n + 1
        return stem if n == 0 else f"{stem}_{n}"

    def reserve(self, *names: str) -> None:
        for name in names:
            self._names.setdefault(name, 1)

    def emit(self, stmt: Stmt) -> None:
        self._stack[-1].append(stmt)

    def body(self) -> tuple[Stmt, ...]:
        assert len(self._stack) == 1
        return tuple(self._stack[0])

    def let(self, name: str, value: Operand, type: Type = IDX) -> Expr:
        """Name a value. Constants and variables are not worth a name."""
        expr = as_expr(value, type)
        if isinstance(expr, (Num, Var)):
            return expr
        var = Var(self.fresh(name), expr.type)
        self.emit(Let(var, expr))
        return var

    def var(self, name: str, value: Operand, type: Type = IDX) -> Var:
        """A variable that changes."""
        expr = as_expr(value, type)
        var = Var(self.fresh(name), expr.type)
        self.emit(Let(var, expr, mutable=True))
        return var

    def assign(self, var: Var, value: Operand) -> None:
        self.emit(Assign(var, as_expr(value, var.type)))

    def store(self, buffer: Buffer, index: Operand, value: Expr, count: int = 0, left: Expr | None = None) -> None:
        """All lanes, the first `count`, or the first `left` where the caller's size says how many there are: fewer than all."""
        count = operator.index(count) if left is None else value.type.lanes - 1  # lanes are never a size of the caller
        self.emit(Store(buffer, idx(index), value, 0 if count == value.type.lanes else count, left))

    def comment(self, text: str) -> None:
        self.emit(Comment(text))

    def copy(self, to: Buffer, to_index: Operand, source: Buffer, source_index: Operand, count: int) -> None:
        if isinstance(count, Size):
            with self.loop("i", 0, count) as i:
                self.emit(Store(to, idx(to_index) + i, Load(source, idx(source_index) + i, Type(source.dtype.value))))
        elif count == 1:
            self.emit(Store(to, idx(to_index), Load(source, idx(source_index), Type(source.dtype.value))))
        elif count:
            self.emit(CopyRun(to, idx(to_index), source, idx(source_index), count))

    def call(self, routine: Routine, *args: Place | Operand) -> None:
        self.emit(RoutineCall(routine, tuple(a if isinstance(a, Place) else idx(a) for a in args)))

    def fail(self, code: int) -> None:
        self.fallible = True
        self.emit(Fail(code))

    @contextmanager
    def _scope(self) -> Iterator[list[Stmt]]:
        """Names given inside are free again outside."""
        outer = dict(self._names)
        body: list[Stmt] = []
        self._stack.append(body)
        yield body
        self._stack.pop()
        self._names = outer

    @contextmanager
    def loop(self, name: str, start: Operand, stop: Operand, step: int = 1, *, rolled: bool = False) -> Iterator[Expr]:
        first, last, step = idx(start), idx(stop), operator.index(step)
        if isinstance(first, Num) and isinstance(last, Num) and int(last.value) - int(first.value) <= step:
            self._stack.append([])  # not a loop: its names stay taken
            yield first
            inline = self._stack.pop()
            if last.value > first.value:
                self._stack[-1].extend(inline)
            return
        with self._scope() as body:
            var = Var(self.fresh(name), IDX)
            yield var
        if body and first != last:
            self.emit(For(var, first, last, step, tuple(body), rolled))

    @contextmanager
    def steps(self, name: str, stop: int, step: int) -> Iterator[Expr]:
        """A loop from 0 on, in steps that may be a size of the caller."""
        if not isinstance(step, Size):
            with self.loop(name, 0, stop, step) as at:
                yield at
            return
        with self.loop("number", 0, (stop + step - 1) // step) as number:
            yield self.let(name, number * step)

    def prefetch(self, buffer: Buffer, index: Expr) -> None:
        self.emit(Prefetch(buffer, index))

    def reload(self) -> None:
        self.emit(Reload())

    @contextmanager
    def block(self) -> Iterator[None]:
        with self._scope() as body:
            yield
        if body:
            self.emit(Braces(tuple(body)))

    @contextmanager
    def loops(self, names: list[str], sizes: list[int]) -> Iterator[list[Expr]]:
        """A nest over a box."""
        if not names:
            yield []
            return
        with self.loop(names[0], 0, sizes[0]) as first, self.loops(names[1:], sizes[1:]) as rest:
            yield [first, *rest]

    @contextmanager
    def when(self, cond: Expr) -> Iterator[None]:
        with self._scope() as body:
            yield
        self.emit(If(cond, tuple(body)))

    @contextmanager
    def otherwise(self) -> Iterator[None]:
        """The other side of the `when` just closed."""
        last = self._stack[-1].pop()
        assert isinstance(last, If)
        with self._scope() as body:
            yield
        self.emit(If(last.cond, last.then, tuple(body)))

    def one_of(self, size: int, body: Callable[[int], None]) -> None:
        """`body(n)` for the n that `size` is: known now, or one of those that it can be. Nothing where it is 0."""
        if not isinstance(size, Size):
            if size:
                body(size)
            return
        value = self.let("count", size)
        for n in (n for n in possible(size) if n):
            with self.when(value.compare("eq", n)):
                body(n)

    @contextmanager
    def during(self, cond: Expr) -> Iterator[None]:
        with self._scope() as body:
            yield
        self.emit(While(cond, tuple(body)))
