"""Loops of a kernel for one core become work-items.

A nest whose rounds are proven to be independent (`accesses.py`) is an index space: one work-item per round. Neighbours in a
body become launches of their own where that gives more to do at once. What has to go in order (time in an LSTM, a running sum)
is done by one work-group, whose items share the loops inside that do not.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from intaglio.kernels.accesses import (
    Opaque,
    after_let,
    enter,
    everything,
    expressions_of,
    inner_of,
    loop_of,
    may_run_at_once,
    most_rounds,
    reads_any,
    written_in,
)
from intaglio.kernels.forms import Scope
from intaglio.kernels.loop import (
    IDX,
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
    Num,
    Stmt,
    Store,
    Var,
    While,
    idx,
)
from intaglio.kernels.opencl.launch import Launch, global_id, group_for, local_id
from intaglio.kernels.unused import drop_unused

ENOUGH = 128  # independent rounds: no need to look for more by taking loops apart
GROUP = 64  # items of a group that works in order
MOST_LAUNCHES = 12


@dataclass(frozen=True, slots=True)
class _Loop:
    loop: For
    rounds: int


@dataclass(frozen=True, slots=True)
class _Phase:
    """Statements for each round of the loops before them; names given on the way stand between."""

    before: tuple[Let | _Loop, ...]
    body: tuple[Stmt, ...]
    scope: Scope

    @property
    def rounds(self) -> int:
        return math.prod(step.rounds for step in self.before if isinstance(step, _Loop))


def spread(kernel: Kernel, same: dict[Buffer, Buffer]) -> tuple[Launch, ...] | None:
    """Launches that do what the kernel does; None where its accesses are not known. `same` buffers may be the same memory."""
    try:
        for stmt in everything(kernel.body):
            expressions_of(stmt)
    except Opaque:
        return None
    split = _Split(written_in(kernel.body), same)
    phases = split.phases(kernel.body, (), Scope())
    if len(phases) > MOST_LAUNCHES:
        phases = [_Phase((), kernel.body, Scope())]
    launches = []
    for phase in phases:
        in_order = any(isinstance(s, Fail) for s in everything(phase.body))
        if phase.rounds < ENOUGH and not in_order and split.shares(phase.body, phase.scope):
            launches.append(split.grouped(kernel, phase))
        else:
            launches.append(_at_once(kernel, phase))
    return tuple(launches)


class _Split:
    def __init__(self, written: set[Buffer], same: dict[Buffer, Buffer]) -> None:
        self.written = written | {b for b, root in same.items() if any(same.get(w, w) == root for w in written)}
        self.same = same

    def phases(self, body: tuple[Stmt, ...], before: tuple[Let | _Loop, ...], scope: Scope) -> list[_Phase]:
        whole = [_Phase(before, body, scope)]
        items = [s for s in body if not isinstance(s, Let | Comment)]
        rounds = whole[0].rounds
        if any(isinstance(s, Let) and (s.mutable or reads_any(s, self.written)) for s in body):
            return whole
        if not items or any(not isinstance(s, For | Braces | CopyRun | Store) for s in items):
            return whole
        if len(items) > 1 and rounds >= ENOUGH:
            return whole
        found: list[_Phase] = []
        for stmt in body:
            match stmt:
                case Let():
                    before, scope = (*before, stmt), after_let(stmt, scope)
                case Comment():
                    pass
                case Braces():
                    found += self.phases(stmt.body, before, scope)
                case For() | CopyRun():
                    found += self._loop(stmt if isinstance(stmt, For) else loop_of(stmt), before, scope)
                case _:
                    found.append(_Phase(before, (stmt,), scope))
        return found if len(found) <= MOST_LAUNCHES else whole

    def _loop(self, loop: For, before: tuple[Let | _Loop, ...], scope: Scope) -> list[_Phase]:
        rounds = most_rounds(loop, scope)
        if rounds is None or not may_run_at_once(loop, scope, self.same):
            return [_Phase(before, (loop,), scope)]
        return self.phases(loop.body, (*before, _Loop(loop, rounds)), enter(loop, scope)[0])

    # One group, in order ------------------------------------------------------------------------------------------------

    def shares(self, body: tuple[Stmt, ...], scope: Scope) -> bool:
        """Is there a loop inside that items of a group can share?"""
        for stmt in body:
            match stmt:
                case Let():
                    scope = after_let(stmt, scope)
                case CopyRun():
                    return True
                case For():
                    if may_run_at_once(stmt, scope, self.same):
                        return True
                    if self.shares(stmt.body, enter(stmt, scope)[0]):
                        return True
                case _:
                    if any(self.shares(inner, scope) for inner in inner_of(stmt)):
                        return True
        return False

    def grouped(self, kernel: Kernel, phase: _Phase) -> Launch:
        """A group of work-items per round of the outer loops."""
        body = tuple(self._in_order(phase.body, phase.scope))
        loops = [s for s in phase.before if isinstance(s, _Loop)]
        body = _nested(phase.before, body, {id(loop): t for loop, t in zip(loops, _collapsed(loops, 1), strict=True)}, set())
        rounds = phase.rounds
        size, group = ((GROUP, rounds), (GROUP, 1)) if rounds > 1 else ((GROUP,), (GROUP,))
        return Launch(kernel.stem, _params(kernel, body), body, size, group, group, fixed=True)

    def _in_order(self, body: tuple[Stmt, ...], scope: Scope) -> list[Stmt]:
        out: list[Stmt] = []
        for stmt in body:
            if isinstance(stmt, For | While | If | Braces) and not written_in((stmt,)):  # every item does it for itself
                out.append(stmt)
                if any(reads_any(s, self.written) for s in everything((stmt,))):
                    out.append(Barrier())
                continue
            match stmt:
                case Let():
                    out.append(stmt)
                    scope = after_let(stmt, scope)
                    if reads_any(stmt, self.written):
                        out.append(Barrier())  # nobody writes it before all have read
                case Assign():
                    out.append(stmt)
                    if reads_any(stmt, self.written):
                        out.append(Barrier())
                case Store():
                    first = local_id(0).compare("eq", 0)
                    if reads_any(stmt, self.written):
                        out.append(Barrier())
                    out += [If(first, (stmt,)), Barrier()]
                case For() | CopyRun():
                    loop = stmt if isinstance(stmt, For) else loop_of(stmt)
                    if may_run_at_once(loop, scope, self.same):
                        out += [*self._shared(loop, scope), Barrier()]
                    else:
                        inside = tuple(self._in_order(loop.body, enter(loop, scope)[0]))
                        out.append(For(loop.var, loop.start, loop.stop, loop.step, inside))
                case While():
                    inner = self._in_order(stmt.body, scope)
                    if reads_any(stmt, self.written):
                        inner = [Barrier(), *inner]
                    out.append(While(stmt.cond, tuple(inner)))
                    if reads_any(stmt, self.written):
                        out.append(Barrier())
                case If():
                    then, otherwise = (self._in_order(part, scope) for part in (stmt.then, stmt.otherwise))
                    if reads_any(stmt, self.written):
                        then, otherwise = [Barrier(), *then], [Barrier(), *otherwise]
                    out.append(If(stmt.cond, tuple(then), tuple(otherwise)))
                case Braces():
                    out.append(Braces(tuple(self._in_order(stmt.body, scope))))
                case _:
                    out.append(stmt)
        return out

    def _shared(self, loop: For, scope: Scope) -> list[Stmt]:
        """Each item takes one round in `GROUP` of a loop, together with loops right inside of it."""
        nest, body, inside = [(loop, most_rounds(loop, scope) or 1)], loop.body, enter(loop, scope)[0]
        while len(body) == 1 and isinstance(body[0], For) and may_run_at_once(body[0], inside, self.same):
            rounds = most_rounds(body[0], inside)
            if rounds is None:
                break
            nest.append((body[0], rounds))
            inside, body = enter(body[0], inside)[0], body[0].body
        total = math.prod(rounds for _, rounds in nest)
        turn = Var("turn", IDX)
        left: Expr = turn
        rounds_of: list[Expr] = []
        for _, rounds in reversed(nest[1:]):
            rounds_of.insert(0, left % rounds)
            left = left // rounds
        rounds_of.insert(0, left)
        inner: tuple[Stmt, ...] = body
        for (step, _), at in zip(reversed(nest), reversed(rounds_of), strict=True):
            checked: tuple[Stmt, ...] = (If(step.var.compare("lt", step.stop), inner),) if _varies(step) else inner
            inner = (Let(step.var, step.start + at * step.step), *checked)
        if total <= GROUP:  # not a loop: LLVM 14 vectorises it for AVX-512, and PoCL 3.0 then loses all of it between two barriers
            return [Braces((Let(turn, local_id(0)), If(turn.compare("lt", total), inner)))]
        return [For(turn, local_id(0), Num(total), GROUP, inner)]


def _varies(loop: For) -> bool:
    """Does the loop go round less often sometimes?"""
    return not (isinstance(loop.start, Num) and isinstance(loop.stop, Num))


# An index space -----------------------------------------------------------------------------------------------------------


def _at_once(kernel: Kernel, phase: _Phase) -> Launch:
    loops = [s for s in phase.before if isinstance(s, _Loop)]
    inner, middle, outer = loops[-1:], loops[-2:-1], loops[:-2]
    rounds: dict[int, Expr] = {id(loop): global_id(d) for d, group in enumerate((inner, middle)) for loop in group}
    rounds |= {id(loop): t for loop, t in zip(outer, _collapsed(outer, 2), strict=True)}
    checked = {id(loop) for loop in (*inner, *middle, *outer[:1])}
    size = tuple(math.prod(s.rounds for s in group) for group in (inner, middle, outer) if group) or (1,)
    body = _nested(phase.before, phase.body, rounds, checked)
    return Launch(kernel.stem, _params(kernel, body), body, size, group_for(size, 64, 32), group_for(size, 256, 256))


def _collapsed(loops: list[_Loop], dimension: int) -> list[Expr]:
    """The rounds of several loops from one dimension."""
    out: list[Expr] = []
    left: Expr = global_id(dimension)
    for n, step in enumerate(reversed(loops)):
        last = n == len(loops) - 1
        out.insert(0, left if last else left % step.rounds)
        left = left // step.rounds
    return out


def _nested(
    before: tuple[Let | _Loop, ...], body: tuple[Stmt, ...], rounds: dict[int, Expr], checked: set[int]
) -> tuple[Stmt, ...]:
    for step in reversed(before):
        if isinstance(step, Let):
            body = (step, *body)
            continue
        loop = step.loop
        if id(step) in checked or not isinstance(loop.stop, Num) or not isinstance(loop.start, Num):
            body = (If(loop.var.compare("lt", loop.stop), body),)
        body = (Let(loop.var, loop.start + idx(rounds[id(step)]) * loop.step), *body)
    return drop_unused(body)


def _params(kernel: Kernel, body: tuple[Stmt, ...]) -> tuple[Buffer, ...]:
    """Those of the kernel that the body touches."""
    from intaglio.kernels.accesses import loads_in

    used = written_in(body) | {load.buffer for s in everything(body) for e in expressions_of(s) for load in loads_in(e)}
    used |= {s.source for s in everything(body) if isinstance(s, CopyRun)}
    return tuple(p for p in kernel.params if p in used)
