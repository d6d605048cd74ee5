"""What a safety reviewer asks of a kernel, read from its loop IR: does every loop have a bound that no data changes? Is every index
that depends on data checked or limited before it is used?

    for i in 0..64: y[i] = x[i]                        bounded
    k = x[i]; if k < 0 or k >= 8: fail; y[i] = t[k]    an index from data, checked: the kernel has a `Fail`
    y[i] = t[x[i] + 128], x of 8 bits                  an index from data, limited to 0..255 by its type
    while x[i] > 0: ...                                no bound

The language has no recursion, no heap and no pointers to functions: none of its statements can say that. What plug-ins write
(`Verbatim`) is not read; a kernel that has some is said to.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from intaglio.kernels.loop import (
    Assign,
    Braces,
    CopyRun,
    Expr,
    Fail,
    For,
    If,
    Kernel,
    Let,
    Load,
    Num,
    Op,
    Place,
    Prefetch,
    RoutineCall,
    Stmt,
    Store,
    Type,
    Var,
    Verbatim,
    While,
)  # fmt: skip

RANGES = {"i8": (-128, 127), "u8": (0, 255), "bool": (0, 1), "i16": (-32768, 32767), "u16": (0, 65535)}
Span = tuple[int, int]


@dataclass(slots=True)
class LoopFacts:
    """`indices`: those that depend on data, in words."""

    loops: int = 0
    unbounded: list[str] = field(default_factory=list)
    indices: list[str] = field(default_factory=list)
    unchecked: list[str] = field(default_factory=list)
    routines: list[str] = field(default_factory=list)
    fails: bool = False
    foreign: bool = False

    @property
    def sound(self) -> bool:
        return not (self.unbounded or self.unchecked or self.foreign)


def loop_facts(kernel: Kernel) -> LoopFacts:
    reader = _Reader()
    reader.facts.fails = any(isinstance(statement, Fail) for statement in _all(kernel.body))
    changed = True
    while changed:  # a variable may get data in a later turn of a loop
        before = len(reader.data), dict(reader.spans)
        reader.facts = LoopFacts(fails=reader.facts.fails)
        reader.read(kernel.body)
        changed = (len(reader.data), reader.spans) != before
    return reader.facts


def _all(body: Iterable[Stmt]) -> Iterable[Stmt]:
    for statement in body:
        yield statement
        match statement:
            case For(body=inner) | While(body=inner) | Braces(body=inner):
                yield from _all(inner)
            case If(then=then, otherwise=otherwise):
                yield from _all(then)
                yield from _all(otherwise)
            case _:
                pass


class _Reader:
    def __init__(self) -> None:
        self.facts = LoopFacts()
        self.data: set[str] = set()  # variables that depend on data
        self.spans: dict[str, Span] = {}  # of those, what they can be

    def read(self, body: Iterable[Stmt]) -> None:
        for statement in body:
            self._statement(statement)

    def _statement(self, statement: Stmt) -> None:
        match statement:
            case Let(var=var, value=value) | Assign(var=var, value=value):
                self._expression(value)
                if self._depends(value):
                    self.data.add(var.name)
                    span, known = self._span(value), self.spans.get(var.name)
                    if isinstance(statement, Let) and not statement.mutable and span is not None:
                        self.spans[var.name] = span if known is None else (min(span[0], known[0]), max(span[1], known[1]))
            case Store(buffer=buffer, index=index, value=value):
                self._index(buffer.name, index)
                self._expression(value)
            case For(var=var, start=start, stop=stop, body=inner):
                self.facts.loops += 1
                if self._depends(start) or self._depends(stop):
                    self.facts.unbounded.append(f"the loop over `{var.name}` ends where data says")
                self.read(inner)
            case While(cond=cond, body=inner):
                self.facts.loops += 1
                self.facts.unbounded.append("a loop goes on while data says so")
                self._expression(cond)
                self.read(inner)
            case If(cond=cond, then=then, otherwise=otherwise):
                self._expression(cond)
                self.read(then)
                self.read(otherwise)
            case Braces(body=inner):
                self.read(inner)
            case CopyRun(to=to, to_index=to_index, source=source, source_index=source_index):
                self._index(to.name, to_index)
                self._index(source.name, source_index)
            case Prefetch():
                pass
            case RoutineCall(routine=routine, args=args):
                self._call(routine.name, args)
            case Verbatim():
                self.facts.foreign = True
            case _:
                pass

    def _call(self, name: str, args: tuple[Place | Expr, ...]) -> None:
        if name not in self.facts.routines:
            self.facts.routines.append(name)
        for arg in args:
            if isinstance(arg, Place):
                self._index(arg.buffer.name, arg.index)
            elif self._depends(arg) and arg.type == Type("idx"):
                self.facts.unbounded.append(f"`{name}` gets a size from data")

    def _expression(self, expression: Expr) -> None:
        match expression:
            case Load(buffer=buffer, index=index):
                self._index(buffer.name, index)
            case Op(args=args):
                for arg in args:
                    self._expression(arg)
            case _:
                pass

    def _index(self, buffer: str, index: Expr) -> None:
        self._expression(index)
        if not self._depends(index):
            return
        span = self._span(index)
        if span is not None and span[0] >= 0:
            told = f"`{buffer}[...]`: {span[0]} to {span[1]} by its type or a limit"
        elif self.facts.fails:
            told = f"`{buffer}[...]`: checked before it is used, with an error code"
        else:
            told = f"`{buffer}[...]`"
            self.facts.unchecked.append(told)
        if told not in self.facts.indices:
            self.facts.indices.append(told)

    def _depends(self, expression: Expr) -> bool:
        match expression:
            case Load():
                return True
            case Var(name=name):
                return name in self.data
            case Op(args=args):
                return any(self._depends(arg) for arg in args)
            case _:
                return False

    def _span(self, expression: Expr) -> Span | None:
        """What it can be, where types and limits say so; other variables are not looked into."""
        match expression:
            case Num(value=value):
                return int(value), int(value)
            case Load(type=type):
                return RANGES.get(type.kind)
            case Var(name=name, type=type):
                return self.spans.get(name) or RANGES.get(type.kind) or ((0, 0) if name not in self.data else None)
            case Op(op="cast", args=(inner,), type=type):
                return self._span(inner) or RANGES.get(type.kind)
            case Op(op=op, args=(a, b)):
                return _of_two(op, self._span(a), self._span(b))
            case _:
                return None


def _of_two(op: str, a: Span | None, b: Span | None) -> Span | None:
    if op == "min" and (a or b) and not (a and b):
        return None
    if a is None or b is None:
        return None
    match op:
        case "add":
            return a[0] + b[0], a[1] + b[1]
        case "sub":
            return a[0] - b[1], a[1] - b[0]
        case "mul":
            ends = [x * y for x in a for y in b]
            return min(ends), max(ends)
        case "min":
            return min(a[0], b[0]), min(a[1], b[1])
        case "max":
            return max(a[0], b[0]), max(a[1], b[1])
        case _:
            return None
