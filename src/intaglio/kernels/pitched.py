"""A kernel whose operands or result are rows inside of wider ones: every index gets the pitch of its buffer.

    for p in 0..3136:                                   for p in 0..3136:
      for c in 0..32 step 8:                      ->      for c in 0..32 step 8:
        y[p * 32 + c..] = ...                               y[p * 256 + c..] = ...

An index of rows of C elements that are now S apart is taken apart into C * row + rest, where the range of the loops has to prove
that rest and all lanes stay inside of the row; it becomes S * row + rest. Nothing is known of the kernel but its statements:

- A loop over all elements in one, of which rows are whole multiples, becomes one over rows and one inside of a row.
- A run that is copied over several rows is copied row by row.

Not applied where the proof fails: vectors and runs that cross the end of a row, memory that is handed to a routine, code of a
plug-in, kernels of a device. Then the value that has the pitch needs a copy.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import gcd
from typing import assert_never

from intaglio.ir.views import Pitch
from intaglio.kernels.accesses import after_let, enter, everything
from intaglio.kernels.forms import Atom, Form, Scope
from intaglio.kernels.loop import (
    IDX,
    Array,
    Assign,
    Barrier,
    Braces,
    Buffer,
    Comment,
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
    Reload,
    RoutineCall,
    Stmt,
    Store,
    Type,
    Var,
    Verbatim,
    While,
)
from intaglio.kernels.unused import drop_unused

ZERO = Num(0)


class Unproven(Exception):
    """Why a kernel cannot have rows with a pitch."""


def with_pitches(kernel: Kernel, pitches: Mapping[int, Pitch]) -> Kernel:
    """The same on rows with these pitches, by position of the parameter. Raises Unproven."""
    if kernel.variants or kernel.wait is not None or kernel.includes:
        raise Unproven("its code is not a loop of this core")
    named = {kernel.params[n]: pitch for n, pitch in pitches.items()}
    split = kernel.split
    parts = {"part": split.parts, "step": split.steps} if split is not None else {}
    scope = Scope({name: Form(0, ((Atom(name, 0, n - 1), 1),)) if n > 1 else Form() for name, n in parts.items()})
    body = _Rows(named, _names_in(kernel)).body(kernel.body, _Known(scope))
    told = "".join(f"\n{b.name}: rows of {p.width} elements, {p.stride} apart" for b, p in named.items())
    rows = tuple(sorted((n, p.width, p.stride) for n, p in pitches.items()))
    return replace(kernel, body=drop_unused(body), about=kernel.about + told, pitches=rows, used_by=[])


def _names_in(kernel: Kernel) -> set[str]:
    declared = {s.var.name for s in everything(kernel.body) if isinstance(s, (Let, For))}
    return declared | {p.name for p in kernel.params} | {"part", "step"}


@dataclass(frozen=True, slots=True)
class _Known:
    """What is known at a place: ranges of names, values of those that never change, and the loops around it."""

    scope: Scope
    values: Mapping[str, Expr] = field(default_factory=dict)
    loops: Mapping[str, For] = field(default_factory=dict)

    def after(self, let: Let) -> _Known:
        """Values that are computed from variables that change, or are loaded, are names only."""
        values = self._without(let.var.name)
        if not let.mutable and let.var.type == IDX and self._is_fixed(let.value):
            values[let.var.name] = let.value
        loops = {name: loop for name, loop in self.loops.items() if name != let.var.name}
        return _Known(after_let(let, self.scope), values, loops)

    def _is_fixed(self, expr: Expr) -> bool:
        match expr:
            case Var():
                return expr.name in self.values or expr.name in self.loops
            case Op():
                return expr.type == IDX and all(self._is_fixed(a) for a in expr.args)
        return isinstance(expr, Num)

    def inside(self, loop: For) -> _Known:
        return _Known(_enter(loop, self.scope), self._without(loop.var.name), {**self.loops, loop.var.name: loop})

    def _without(self, name: str) -> dict[str, Expr]:
        """Values once a name stands for something else."""
        if name not in self.scope.names:
            return dict(self.values)
        return {other: value for other, value in self.values.items() if other != name and not _mentions(value, name)}


def _mentions(expr: Expr, name: str) -> bool:
    return expr.name == name if isinstance(expr, Var) else isinstance(expr, Op) and any(_mentions(a, name) for a in expr.args)


def _enter(loop: For, scope: Scope) -> Scope:
    """The scope inside. Of a loop whose start is not a number, the stop says more than the count of rounds does."""
    start, stop = scope.form(loop.start), scope.form(loop.stop)
    inside, _ = enter(loop, scope)
    if start is None or stop is None or not start.terms:
        return inside
    step = loop.step if not any(n % loop.step for n in (start.const, *(c for _, c in start.terms))) else 1
    low, high = start.range()[0] // step, (stop.range()[1] - 1) // step
    return inside.inside(loop.var.name, Form(0, ((Atom(("within", loop.var.name), low, max(low, high)), step),)))


class _Rows:
    """Writes statements again. `names` are taken."""

    def __init__(self, pitches: Mapping[Buffer, Pitch], names: set[str]) -> None:
        self._pitches, self._names = pitches, names

    def body(self, body: tuple[Stmt, ...], known: _Known) -> tuple[Stmt, ...]:
        out: list[Stmt] = []
        for stmt in body:
            out.append(self._stmt(stmt, known))
            if isinstance(stmt, Let):
                known = known.after(stmt)
        return tuple(out)

    def _stmt(self, stmt: Stmt, known: _Known) -> Stmt:
        match stmt:
            case Let() | Assign():
                return replace(stmt, value=self._expr(stmt.value, known))
            case Store():
                count = stmt.count or stmt.value.type.lanes
                index = self._index(stmt.buffer, stmt.index, count, known)
                return replace(stmt, index=index, value=self._expr(stmt.value, known))
            case For():
                return self._loop(stmt, known)
            case While():
                return While(self._expr(stmt.cond, known), self.body(stmt.body, known))
            case If():
                then, otherwise = self.body(stmt.then, known), self.body(stmt.otherwise, known)
                return If(self._expr(stmt.cond, known), then, otherwise)
            case Braces():
                return Braces(self.body(stmt.body, known))
            case CopyRun():
                return self._run(stmt, known)
            case RoutineCall():
                if any(isinstance(a, Place) and a.buffer in self._pitches for a in stmt.args):
                    raise Unproven(f"`{stmt.routine.name}` takes its memory in one piece")
                return replace(stmt, args=tuple(a if isinstance(a, Place) else self._expr(a, known) for a in stmt.args))
            case Comment() | Fail() | Prefetch() | Reload():
                return stmt
            case Verbatim() | Array() | Barrier():
                raise Unproven("its code is not a loop of this core")
            case _:
                assert_never(stmt)

    def _loop(self, loop: For, known: _Known) -> Stmt:
        loop = replace(loop, start=self._expr(loop.start, known), stop=self._expr(loop.stop, known))
        try:
            return replace(loop, body=self.body(loop.body, known.inside(loop)))
        except Unproven:
            nests = (self._by_rows(loop, width) for width in sorted({pitch.width for pitch in self._pitches.values()}))
            nest = next((found for found in nests if found is not None), None)
            if nest is None:
                raise
            return replace(nest, body=self.body(nest.body, known.inside(nest)))

    def _by_rows(self, loop: For, width: int) -> For | None:
        """A loop over elements as one over rows, and one over the elements of a row."""
        if not isinstance(loop.start, Num) or not isinstance(loop.stop, Num) or width % loop.step or width == loop.step == 1:
            return None
        first, last = int(loop.start.value), int(loop.stop.value)
        if first % width or last % width or last - first <= width:
            return None
        row, column = Var(self._fresh("row"), IDX), Var(self._fresh(f"{loop.var.name}_in_row"), IDX)
        let = Let(loop.var, row * width + column)
        return For(row, Num(first // width), Num(last // width), 1, (For(column, ZERO, Num(width), loop.step, (let, *loop.body)),))

    def _fresh(self, stem: str) -> str:
        name, n = stem, 2
        while name in self._names:
            name, n = f"{stem}_{n}", n + 1
        self._names.add(name)
        return name

    def _run(self, run: CopyRun, known: _Known) -> Stmt:
        widths = {self._pitches[b].width for b in (run.to, run.source) if b in self._pitches}
        width = min(widths, default=run.count)
        if run.count <= width:
            to = self._index(run.to, run.to_index, run.count, known)
            return replace(run, to_index=to, source_index=self._index(run.source, run.source_index, run.count, known))
        if run.count % width:
            raise Unproven("it copies runs that are not whole rows")
        row = For(Var(self._fresh("row"), IDX), ZERO, Num(run.count // width), 1, ())
        inside = known.inside(row)
        to = self._index(run.to, run.to_index + row.var * width, width, inside)
        source = self._index(run.source, run.source_index + row.var * width, width, inside)
        return replace(row, body=(CopyRun(run.to, to, run.source, source, width),))

    def _expr(self, expr: Expr, known: _Known) -> Expr:
        match expr:
            case Load():
                index = self._index(expr.buffer, expr.index, expr.count or expr.type.lanes, known)
                return replace(expr, index=index)
            case Op():
                return replace(expr, args=tuple(self._expr(a, known) for a in expr.args))
        return expr

    def _index(self, buffer: Buffer, index: Expr, count: int, known: _Known) -> Expr:
        """Where `count` elements are now."""
        pitch = self._pitches.get(buffer)
        if pitch is None:
            return self._expr(index, known)
        row, rest = _divided(index, pitch.width, known)
        form = known.scope.form(rest)
        if form is None:
            raise Unproven(f"an index of `{buffer.name}` is not a sum of loops")
        low, high = form.range()
        more = low // pitch.width  # rows that are in the constant
        if high - more * pitch.width + count > pitch.width:
            raise Unproven(f"rows of `{buffer.name}` are not kept apart")
        return self._expr((row + more) * pitch.stride + rest - more * pitch.width, known)


def _divided(index: Expr, width: int, known: _Known) -> tuple[Expr, Expr]:
    """(row, rest) with index == width * row + rest."""
    match index:
        case Var():
            if (value := known.values.get(index.name)) is not None:
                row, rest = _divided(value, width, known)
                return (ZERO, index) if row == ZERO else (row, rest)
            loop = known.loops.get(index.name)
            if loop is not None and loop.step % width == 0 and isinstance(loop.start, Num) and loop.start.value % width == 0:
                return index // width, ZERO
        case Op(op="add" | "sub", args=(a, b), type=Type(kind="idx")):
            (row, rest), (other, left) = _divided(a, width, known), _divided(b, width, known)
            return (row + other, rest + left) if index.op == "add" else (row - other, rest - left)
        case Op(op="mul", args=(a, Num(value=factor)), type=Type(kind="idx")):
            shared = gcd(int(factor), width)
            if shared == width:
                return a * (int(factor) // width), ZERO
            row, rest = _divided(a, width // shared, known)
            return row * (int(factor) // shared), rest * int(factor)
    return ZERO, index
