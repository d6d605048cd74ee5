"""Names that nobody reads are not declared, and braces that hold nothing apart are not written.

    const float v0 = x0[i];
    {                             ->      y[i] = 0;
        y[i] = 0;
    }

Builders name what they may need, and put parts into blocks where there may be several; what an operator's attributes then make
superfluous is dropped here, once for all of them.
"""

from __future__ import annotations

from dataclasses import replace
from typing import assert_never

from intaglio.kernels.loop import (
    Array,
    Assign,
    Barrier,
    Braces,
    Comment,
    CopyRun,
    Expr,
    Fail,
    For,
    If,
    Let,
    Load,
    Op,
    Place,
    Prefetch,
    Reload,
    RoutineCall,
    Stmt,
    Store,
    Var,
    Verbatim,
    While,
)


def drop_unused(body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
    return _body(body)[0]


def needed_names(body: tuple[Stmt, ...]) -> set[str]:
    """Names that the body needs and does not declare."""
    return _body(body)[1]


def _names(*exprs: Expr) -> set[str]:
    found: set[str] = set()
    for expr in exprs:
        match expr:
            case Var():
                found.add(expr.name)
            case Load():
                found |= _names(expr.index, *(() if expr.left is None else (expr.left,)))
            case Op():
                found |= _names(*expr.args)
    return found


def _body(body: tuple[Stmt, ...]) -> tuple[tuple[Stmt, ...], set[str]]:
    """The statements that stay, and the names they need from outside. Backwards: what is read later is known first."""
    kept: list[Stmt] = []
    used: set[str] = set()
    for stmt in reversed(body):
        if isinstance(stmt, Let):
            if not stmt.mutable and stmt.var.name not in used:
                continue
            used.discard(stmt.var.name)
        stmt, needed = _statement(stmt)
        if _is_empty(stmt):
            continue
        used |= needed
        kept.append(stmt)
    return _without_braces(tuple(reversed(kept))), used


def _is_empty(stmt: Stmt) -> bool:
    match stmt:
        case Braces() | For():
            return not stmt.body
        case If():
            return not stmt.then and not stmt.otherwise
    return False


def _without_braces(body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
    """A block that comes last and is the only one needs no scope of its own, unless it declares a name again."""
    last = body[-1] if body else None
    if not isinstance(last, Braces) or any(isinstance(stmt, (Braces, Verbatim)) for stmt in (*body[:-1], *last.body)):
        return body
    outside, inside = _declared(body), _declared(last.body)
    return body if outside & inside else (*body[:-1], *last.body)


def _declared(body: tuple[Stmt, ...]) -> set[str]:
    return {s.var.name if isinstance(s, Let) else s.buffer.name for s in body if isinstance(s, (Let, Array))}


def _statement(stmt: Stmt) -> tuple[Stmt, set[str]]:
    match stmt:
        case Let():
            return stmt, _names(stmt.value)
        case Assign():
            return stmt, _names(stmt.value, stmt.var)
        case Store():
            return stmt, _names(stmt.index, stmt.value, *(() if stmt.left is None else (stmt.left,)))
        case CopyRun():
            return stmt, _names(stmt.to_index, stmt.source_index)
        case Prefetch():
            return stmt, _names(stmt.index)
        case RoutineCall():
            return stmt, _names(*(a.index if isinstance(a, Place) else a for a in stmt.args))
        case For():
            inner, used = _body(stmt.body)
            return replace(stmt, body=inner), (used - {stmt.var.name}) | _names(stmt.start, stmt.stop)
        case While():
            inner, used = _body(stmt.body)
            return replace(stmt, body=inner), used | _names(stmt.cond)
        case If():
            then, used = _body(stmt.then)
            otherwise, more = _body(stmt.otherwise)
            return replace(stmt, then=then, otherwise=otherwise), used | more | _names(stmt.cond)
        case Braces():
            inner, used = _body(stmt.body)
            return replace(stmt, body=inner), used
        case Comment() | Reload() | Fail() | Verbatim() | Array() | Barrier():
            return stmt, set()
        case _:
            assert_never(stmt)
