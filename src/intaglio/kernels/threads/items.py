"""A body taken apart: statements that could be done in any order, or at the same time, and those that could not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from intaglio.kernels.accesses import Access, accesses, after_let, loads_in
from intaglio.kernels.forms import Atom, Form, Scope
from intaglio.kernels.loop import IDX, Braces, Buffer, Comment, CopyRun, For, Let, Num, Stmt, Var
from intaglio.kernels.threads.work import work_of

COPIED = 4096  # elements of a long run that are copied at a time
MOST_PAIRS = 40_000  # of accesses that are compared


@dataclass(frozen=True, slots=True)
class Item:
    """A statement with the names that it needs (`before`), and what it touches."""

    before: tuple[Let, ...]
    stmt: Stmt
    scope: Scope
    found: tuple[Access, ...]
    work: int

    @property
    def written(self) -> set[Buffer]:
        return {a.buffer for a in self.found if a.writes}


def items_of(body: tuple[Stmt, ...], scope: Scope, written: set[Buffer], before: tuple[Let, ...] = ()) -> list[Item]:
    """The statements of a body one by one. Those behind a name that changes, or that holds a number that the kernel writes, stay
    together with it."""
    found: list[Item] = []
    for n, stmt in enumerate(body):
        match stmt:
            case Let():
                if stmt.mutable or any(load.buffer in written for load in loads_in(stmt.value)):
                    return [*found, _item(Braces(body[n:]), scope, before)]
                before, scope = (*before, stmt), after_let(stmt, scope)
            case Comment():
                pass
            case Braces():
                found += items_of(stmt.body, scope, written, before)
            case CopyRun():
                found += [_item(part, scope, before) for part in _pieces(stmt)]
            case _:
                found.append(_item(stmt, scope, before))
    return found


def _item(stmt: Stmt, scope: Scope, before: tuple[Let, ...]) -> Item:
    return Item(before, stmt, scope, tuple(accesses((stmt,), scope)), work_of((stmt,), scope))


def _pieces(run: CopyRun) -> list[Stmt]:
    """A long copy as a loop of short ones, and what is left."""
    whole = run.count // COPIED * COPIED
    if whole <= COPIED:
        return [run]
    at = Var("copied", IDX)
    pieces: list[Stmt] = [
        For(at, Num(0), Num(whole), COPIED, (CopyRun(run.to, run.to_index + at, run.source, run.source_index + at, COPIED),))
    ]
    if run.count > whole:
        pieces.append(CopyRun(run.to, run.to_index + whole, run.source, run.source_index + whole, run.count - whole))
    return pieces


def conflict(a: Item, b: Item, same: Mapping[Buffer, Buffer], known: frozenset[Atom], own: frozenset[Buffer]) -> bool:
    """May one write what the other touches? `known` loops are in the same round in both; `own` memory each thread has itself."""
    left, right = (_by_buffer(item, same, own) for item in (a, b))
    for buffer in left.keys() & right.keys():
        pairs = [(p, q) for p in left[buffer] for q in right[buffer] if p[2] or q[2]]
        if len(pairs) > MOST_PAIRS or not all(_apart(p[0], p[1], q[0], q[1], known) for p, q in pairs):
            return True
    return False


def _by_buffer(
    item: Item, same: Mapping[Buffer, Buffer], own: frozenset[Buffer]
) -> dict[Buffer, set[tuple[Form | None, int, bool]]]:
    found: dict[Buffer, set[tuple[Form | None, int, bool]]] = {}
    for access in item.found:
        if access.buffer not in own:
            found.setdefault(same.get(access.buffer, access.buffer), set()).add((access.form, access.count, access.writes))
    return found


def _apart(a: Form | None, a_count: int, b: Form | None, b_count: int, known: frozenset[Atom]) -> bool:
    """Do the two never meet, whatever the rounds of their loops?

    y[m * 64 + 16 * block + lane]   and   y[m * 64 + 48 + lane]      0..47 and 48..63 of every 64
    """
    if a is None or b is None:
        return False
    if {t for t in a.terms if t[0] in known} != {t for t in b.terms if t[0] in known}:
        return False
    mine, theirs = (Form(f.const, tuple(t for t in f.terms if t[0] not in known)) for f in (a, b))
    (a_low, a_high), (b_low, b_high) = mine.range(), theirs.range()
    if a_high + a_count <= b_low or b_high + b_count <= a_low:
        return True
    for pitch in sorted({abs(c) for f in (mine, theirs) for _, c in f.terms}):
        (low_a, high_a), (low_b, high_b) = _within(mine, pitch), _within(theirs, pitch)
        wide_a, wide_b = high_a - low_a + a_count, high_b - low_b + b_count
        shift = (low_a - low_b) % pitch
        if shift >= wide_b and shift + wide_a <= pitch:
            return True
    return False


def _within(form: Form, pitch: int) -> tuple[int, int]:
    """The range of a form without the terms that go in steps of `pitch`."""
    return Form(form.const, tuple(t for t in form.terms if t[1] % pitch)).range()
