"""Which elements statements touch, and whether the rounds of a loop may run at the same time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import count

from intaglio.kernels.forms import Atom, Form, Scope, disjoint, rows_disjoint
from intaglio.kernels.loop import (
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
    Let,
    Load,
    Num,
    Op,
    Prefetch,
    Reload,
    RoutineCall,
    Stmt,
    Store,
    Verbatim,
    While,
)

_numbers = count()


class Opaque(Exception):
    """A statement whose accesses are not known."""


@dataclass(frozen=True, slots=True)
class Access:
    buffer: Buffer
    form: Form | None
    count: int
    writes: bool


def loads_in(expr: Expr) -> Iterator[Load]:
    match expr:
        case Load():
            yield expr
            yield from loads_in(expr.index)
        case Op():
            for argument in expr.args:
                yield from loads_in(argument)


def expressions_of(stmt: Stmt) -> tuple[Expr, ...]:
    """Those of the statement itself, not of statements inside of it."""
    match stmt:
        case Let() | Assign():
            return (stmt.value,)
        case Store():
            return (stmt.index, stmt.value)
        case For():
            return (stmt.start, stmt.stop)
        case While() | If():
            return (stmt.cond,)
        case CopyRun():
            return (stmt.to_index, stmt.source_index)
        case Prefetch():
            return (stmt.index,)
        case RoutineCall() | Verbatim():
            raise Opaque
    return ()


def inner_of(stmt: Stmt) -> tuple[tuple[Stmt, ...], ...]:
    match stmt:
        case For() | While() | Braces():
            return (stmt.body,)
        case If():
            return (stmt.then, stmt.otherwise)
    return ()


def everything(body: tuple[Stmt, ...]) -> Iterator[Stmt]:
    for stmt in body:
        yield stmt
        for inner in inner_of(stmt):
            yield from everything(inner)


def written_in(body: tuple[Stmt, ...]) -> set[Buffer]:
    return {s.buffer if isinstance(s, Store) else s.to for s in everything(body) if isinstance(s, Store | CopyRun)}


def reads_any(stmt: Stmt, buffers: set[Buffer]) -> bool:
    """Does the statement itself load from one of them?"""
    return any(load.buffer in buffers for expr in expressions_of(stmt) for load in loads_in(expr))


def enter(loop: For, scope: Scope) -> tuple[Scope, Atom]:
    """The scope inside of a loop: its variable is start + step * round."""
    start = scope.form(loop.start)
    rounds = most_rounds(loop, scope)
    atom = Atom(next(_numbers), 0, rounds - 1 if rounds is not None else 1 << 40)
    if start is None or rounds is None:
        return scope.inside(loop.var.name, None, atom), atom
    return scope.inside(loop.var.name, start.plus(Form(0, ((atom, loop.step),))), atom), atom


def most_rounds(loop: For, scope: Scope) -> int | None:
    """How often the loop goes round at most."""
    start = scope.form(loop.start)
    if start is None:
        return None
    ends = [scope.form(end) for end in _ends(loop.stop)]
    spans = [end.plus(start, -1).range()[1] for end in ends if end is not None]
    return max(1, -(-min(spans) // loop.step)) if spans else None


def _ends(stop: Expr) -> list[Expr]:
    """A stop of min(a, b) is below both."""
    if isinstance(stop, Op) and stop.op == "min":
        return [end for argument in stop.args for end in _ends(argument)]
    return [stop]


def after_let(let: Let, scope: Scope) -> Scope:
    known = None if let.mutable or let.var.type.kind != "idx" else scope.form(let.value)
    return scope.inside(let.var.name, known)


def accesses(body: tuple[Stmt, ...], scope: Scope) -> Iterator[Access]:
    for stmt in body:
        for expr in expressions_of(stmt):
            for load in loads_in(expr):
                yield Access(load.buffer, scope.form(load.index), load.count or load.type.lanes, False)
        match stmt:
            case Let():
                scope = after_let(stmt, scope)
            case Store():
                yield Access(stmt.buffer, scope.form(stmt.index), stmt.count or stmt.value.type.lanes, True)
            case CopyRun():
                yield Access(stmt.to, scope.form(stmt.to_index), stmt.count, True)
                yield Access(stmt.source, scope.form(stmt.source_index), stmt.count, False)
            case For():
                yield from accesses(stmt.body, enter(stmt, scope)[0])
            case While() | Braces() | If():
                for inner in inner_of(stmt):
                    yield from accesses(inner, scope)
            case Barrier():
                raise Opaque
            case Assign() | Comment() | Prefetch() | Reload() | Fail() | Array():
                pass


def changes_outer_variables(body: tuple[Stmt, ...], own: frozenset[str] = frozenset()) -> bool:
    """Is a variable assigned that was declared outside?"""
    for stmt in body:
        if isinstance(stmt, Let):
            own = own | {stmt.var.name}
        elif (isinstance(stmt, Assign) and stmt.var.name not in own) or any(
            changes_outer_variables(inner, own) for inner in inner_of(stmt)
        ):
            return True
    return False


def may_run_at_once(loop: For, scope: Scope, same: Mapping[Buffer, Buffer], own: frozenset[Buffer] | None = None) -> bool:
    """No round touches what another writes. `same` buffers may be the same memory. For threads: of `own` buffers each has another,
    and a round may write parts of several rows."""
    if changes_outer_variables(loop.body):
        return False
    inside, atom = enter(loop, scope)
    if inside.names[loop.var.name] is None:
        return False
    try:
        found = list(accesses(loop.body, inside))
    except Opaque:
        return False
    arrays = {s.buffer for s in everything(loop.body) if isinstance(s, Array)}
    written = {same.get(a.buffer, a.buffer) for a in found if a.writes} - arrays - (own or frozenset())
    known = known_in(scope)
    proofs = [disjoint] if own is None else [disjoint, rows_disjoint]
    for buffer in written:
        touching = _that_meet([a for a in found if same.get(a.buffer, a.buffer) == buffer], known)
        forms = [(a.form, a.count) for a in touching if a.form is not None]
        if len(forms) < len(touching) or not any(proof(forms, atom, known) for proof in proofs):
            return False
    return True


def _that_meet(found: list[Access], known: frozenset[Atom]) -> list[Access]:
    """Without reads of a part of the buffer that is not written here. What all depend on alike, the outer loops, is left out."""
    if any(a.form is None for a in found if a.writes):
        return found
    outer = {tuple(t for t in a.form.terms if t[0] in known) for a in found if a.form is not None}
    ranges: dict[int, tuple[int, int]] = {}
    for n, a in enumerate(found):
        if a.form is not None:
            inner = Form(a.form.const, tuple(t for t in a.form.terms if t[0] not in known)) if len(outer) == 1 else a.form
            low, high = inner.range()
            ranges[n] = (low, high + a.count - 1)
    low = min(ranges[n][0] for n, a in enumerate(found) if a.writes)
    high = max(ranges[n][1] for n, a in enumerate(found) if a.writes)
    return [a for n, a in enumerate(found) if a.writes or n not in ranges or not (ranges[n][1] < low or ranges[n][0] > high)]


def known_in(scope: Scope) -> frozenset[Atom]:
    """Loops around this place, and what else is fixed here."""
    return frozenset(scope.loops) | {atom for form in scope.names.values() if form is not None for atom, _ in form.terms}


def loop_of(run: CopyRun) -> For:
    """A run of neighbouring elements as a loop over them."""
    from intaglio.kernels.loop import IDX, Type, Var

    i = Var("run", IDX)
    value = Load(run.source, run.source_index + i, Type(run.source.dtype.value))
    return For(i, Num(0), Num(run.count), 1, (Store(run.to, run.to_index + i, value),))
