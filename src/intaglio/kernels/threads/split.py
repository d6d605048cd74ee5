"""A kernel for one core becomes one that is called once per part, by several threads at a time.

    void net_matmul(x, w, y)                      void net_matmul(x, w, y, ptrdiff_t part)
      for (m = 0; m < 192; m += 6) {                for (m = part * 32 / 2 * 6; m < (part + 1) * 32 / 2 * 6; m += 6) {
        ...                                  ->       ...
      }                                             }

Rounds of a loop are divided among the parts where they are proven to be independent (`accesses.py`). Every number of the result is
computed by the same operations in the same order as by one core: its bits do not depend on the number of parts. Of the loops of a
nest, the one is divided that gives every part the same work and makes the parts touch different memory. Statements that wait for
others (a panel is packed, then used by all) are another step: the parts of a step start when those of the step before are done.

Not applied where a kernel may fail, where it calls routines or code of a plug-in, where it is short (`BARRIER_WORK`), or where
nothing is proven: then the thread that calls computes it alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Union

from intaglio.kernels.accesses import Opaque, accesses, enter, everything, known_in, may_run_at_once, most_rounds, written_in
from intaglio.kernels.forms import Atom, Scope
from intaglio.kernels.loop import (
    IDX,
    PART,
    STEP,
    Braces,
    Buffer,
    Expr,
    For,
    If,
    Kernel,
    Let,
    Num,
    Split,
    Stmt,
    Var,
    arith,
    idx,
    imax,
    imin,
)
from intaglio.kernels.threads.items import Item, conflict, items_of
from intaglio.kernels.threads.work import rounds_of, traffic
from intaglio.kernels.unused import drop_unused

BARRIER_WORK = 10_000  # operations that a core does while threads start and wait for each other, 2 to 3 us
ENOUGH = 0.9  # of the time of one core: what parts have to be below
MOST_STEPS = 4
LEAST_ROUND = 200  # operations of a round: loops inside of shorter ones are not looked at
MOST_WORK = 1 << 20  # shares are computed with numbers below this


@dataclass(frozen=True, slots=True)
class Share:
    """The rounds of a loop are divided."""

    item: Item
    loop: For
    rounds: int
    cost: float  # of the part that does most, with what memory costs it


@dataclass(frozen=True, slots=True)
class Inside:
    """Every part does all rounds of a loop, and in each a share of what is inside."""

    item: Item
    loop: For
    rounds: int
    inner: tuple[Plan, ...]
    cost: float


@dataclass(frozen=True, slots=True)
class Everyone:
    """What each part does for its own working memory."""

    item: Item


@dataclass(frozen=True, slots=True)
class Single:
    """What the first part does."""

    item: Item


Plan = Union[Share, Inside, Everyone, Single]


def split(
    kernel: Kernel, parts: int, same: Mapping[Buffer, Buffer], own: frozenset[Buffer], weights: frozenset[Buffer] = frozenset()
) -> Kernel | None:
    """The kernel in parts; None where that is not possible, or not worth it. `same` buffers may be the same memory; `own` ones are
    working memory in which no round of a loop finds what another round wrote, so that every part may have its own; `weights` are
    constants, and what the kernel packs itself."""
    if kernel.fallible or kernel.variants or kernel.wait is not None or kernel.includes:
        return None
    try:
        return _Splitter(kernel, parts, same, own, weights).split()
    except Opaque:
        return None


class _Splitter:
    def __init__(
        self, kernel: Kernel, parts: int, same: Mapping[Buffer, Buffer], own: frozenset[Buffer], weights: frozenset[Buffer]
    ) -> None:
        self.kernel, self.parts, self.same, self.own, self.weights = kernel, parts, same, own, weights
        self.written = written_in(kernel.body)
        self._taken = _names(kernel)

    def split(self) -> Kernel | None:
        items = items_of(self.kernel.body, Scope(), self.written)
        steps = self._steps(items)
        if steps is None:
            return None
        planned = [tuple(self._plan(item) for item in step) for step in steps]
        total = sum(item.work for item in items)
        longest = sum(self._longest(step) for step in planned)
        loops = tuple(dict.fromkeys(name for step in planned for plan in step for name in _divided(plan)))
        if not loops or longest + BARRIER_WORK * len(planned) > total * ENOUGH:
            return None
        bodies = [self._sequence(step) for step in planned]
        body = bodies[0] if len(bodies) == 1 else tuple(If(STEP.compare("eq", n), each) for n, each in enumerate(bodies))
        own = tuple(n for n, param in enumerate(self.kernel.params) if param in self.own)
        made = Split(self.parts, len(bodies), own, loops, longest * self.parts / total)
        about = f"{self.kernel.about}\nin {self.parts} parts, by {' and '.join(loops)}"
        return replace(self.kernel, body=drop_unused(body), split=made, about=about, used_by=[])

    def _steps(self, items: list[Item]) -> list[list[Item]] | None:
        """Statements that may be done at the same time; those that wait for others come in the next step."""
        steps: list[list[Item]] = [[]]
        for item in items:
            if any(conflict(item, other, self.same, frozenset(), self.own) for other in steps[-1]):
                steps.append([])
            steps[-1].append(item)
        return steps if len(steps) <= MOST_STEPS else None

    # Which loop --------------------------------------------------------------------------------------------------------------

    def _plan(self, item: Item) -> Plan:
        if item.written and item.written <= self.own:
            return Everyone(item)
        return self._divide(item) or Single(item)

    def _divide(self, item: Item) -> Share | Inside | None:
        loop = item.stmt
        if not isinstance(loop, For) or not may_run_at_once(loop, item.scope, self.same, self.own):
            return None
        rounds = most_rounds(loop, item.scope)
        if rounds is None:
            return None
        inside, atom = enter(loop, item.scope)
        share = self._share(item, loop, rounds, inside, atom)
        inner = self._inside(item, loop, rounds, inside)
        return inner if inner is not None and inner.cost < share.cost else share

    def _share(self, item: Item, loop: For, rounds: int, inside: Scope, atom: Atom) -> Share:
        part = min(1.0, -(-rounds // self.parts) / rounds_of(loop, item.scope))
        memory = traffic(accesses(loop.body, inside), atom, part, rounds, self.weights)
        return Share(item, loop, rounds, item.work * part + memory)

    def _inside(self, item: Item, loop: For, rounds: int, inside: Scope) -> Inside | None:
        """Where nothing inside waits for something else."""
        if item.work < LEAST_ROUND * rounds:
            return None
        found = items_of(loop.body, inside, self.written)
        known = known_in(inside)
        if any(conflict(a, b, self.same, known, self.own) for n, a in enumerate(found) for b in found[:n]):
            return None
        inner = tuple(self._plan(each) for each in found)
        if not any(isinstance(each, Share | Inside) for each in inner):
            return None
        plan = Inside(item, loop, rounds, inner, 0.0)
        memory = sum(each.cost - self._longest((each,)) for each in inner if isinstance(each, Share | Inside))
        return replace(plan, cost=self._longest((plan,)) + memory)

    # Who does what -----------------------------------------------------------------------------------------------------------

    def _longest(self, plans: tuple[Plan, ...]) -> float:
        """The work of the part that does most."""
        work = [0.0] * self.parts
        bounds = self._bounds(plans)
        for n, plan in enumerate(plans):
            match plan:
                case Share():
                    each = plan.item.work / rounds_of(plan.loop, plan.item.scope)
                    work = [w + each * (bounds[n][p + 1] - bounds[n][p]) for p, w in enumerate(work)]
                case Inside():
                    inside = rounds_of(plan.loop, plan.item.scope) * self._longest(plan.inner)
                    work = [w + inside for w in work]
                case Everyone():
                    work = [w + plan.item.work for w in work]
                case Single():
                    work[0] += plan.item.work
        return max(work)

    def _bounds(self, plans: tuple[Plan, ...]) -> dict[int, list[int]]:
        """For each loop that is divided, the round at which each part starts, and the end."""
        return {n: [_at(share, p) for p in range(self.parts + 1)] for n, share in self._numbers(plans).items()}

    def _numbers(self, plans: tuple[Plan, ...]) -> dict[int, _Place]:
        """What the first part alone does, then loops one after the other: a part that does more of one does less of the next."""
        alone = {n: plan for n, plan in enumerate(plans) if isinstance(plan, Share) and _varies(plan.loop)}
        shares = {n: plan for n, plan in enumerate(plans) if isinstance(plan, Share) and n not in alone}
        scale = max(1, sum(plan.item.work for plan in shares.values()) // MOST_WORK)
        each = {n: max(1, plan.item.work // plan.rounds // scale) for n, plan in shares.items()}
        if len(shares) == 1 and not any(isinstance(plan, Single) for plan in plans):
            each = dict.fromkeys(each, 1)
        before = sum(plan.item.work for plan in plans if isinstance(plan, Single)) // scale
        total = before + sum(each[n] * plan.rounds for n, plan in shares.items())
        found = {n: _Place(0, 1, plan.rounds, plan.rounds, self.parts) for n, plan in alone.items()}
        for n, plan in shares.items():
            found[n] = _Place(before, each[n], plan.rounds, total, self.parts)
            before += each[n] * plan.rounds
        return found

    # As statements -----------------------------------------------------------------------------------------------------------

    def _sequence(self, plans: tuple[Plan, ...]) -> tuple[Stmt, ...]:
        places = self._numbers(plans)
        out: list[Stmt] = []
        for n, plan in enumerate(plans):
            match plan:
                case Share():
                    stmts = self._shared(plan, places[n])
                case Inside():
                    stmts = (replace(plan.loop, body=self._sequence(plan.inner)),)
                case Everyone():
                    stmts = (plan.item.stmt,)
                case Single():
                    stmts = (If(PART.compare("eq", 0), (plan.item.stmt,)),)
            out.append(Braces((*plan.item.before, *stmts)))
        return tuple(out)

    def _shared(self, plan: Share, place: _Place) -> tuple[Stmt, ...]:
        first, last = (Var(self._fresh(stem), IDX) for stem in ("from", "until"))
        loop = plan.loop
        start, stop = loop.start + first * loop.step, loop.start + last * loop.step
        if not _is_even(loop, plan.rounds):
            stop = imin(loop.stop, stop)
        end = Var(self._fresh("end"), IDX)
        rounds: tuple[Let, ...] = ()
        low, high = _bound(place, PART), _bound(place, PART + 1)
        if _varies(loop):
            count = Var(self._fresh("rounds"), IDX)
            rounds = (Let(count, (loop.stop - loop.start + (loop.step - 1)) // loop.step),)
            low, high = (arith("div", arith("mul", part, count), idx(self.parts)) for part in (PART, PART + 1))
        return (*rounds, Let(first, low), Let(last, high), Let(end, stop), replace(loop, start=start, stop=end))

    def _fresh(self, stem: str) -> str:
        n = 0
        while (name := stem if n == 0 else f"{stem}_{n}") in self._taken:
            n += 1
        self._taken.add(name)
        return name


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a loop is in the work of all loops of its step: `before` comes first, each of its rounds costs `each`."""

    before: int
    each: int
    rounds: int
    total: int
    parts: int

    @property
    def alone(self) -> bool:
        return self.before == 0 and self.total == self.each * self.rounds


def _at(place: _Place, part: int) -> int:
    """The round at which a part starts."""
    if place.alone:
        return part * place.rounds // place.parts
    share = -(-place.total // place.parts)
    return min(max(part * share - place.before + place.each // 2, 0) // place.each, place.rounds)


def _bound(place: _Place, part: Expr) -> Expr:
    """The same as an expression."""
    if place.alone:
        return part * place.rounds // place.parts
    share = -(-place.total // place.parts)
    return imin(arith("div", imax(part * share + (place.each // 2 - place.before), 0), idx(place.each)), place.rounds)


def _varies(loop: For) -> bool:
    """Does it go round more often at some times than at others?"""
    return not (isinstance(loop.start, Num) and isinstance(loop.stop, Num))


def _is_even(loop: For, rounds: int) -> bool:
    """Does the last round do as much as the others?"""
    if not isinstance(loop.start, Num) or not isinstance(loop.stop, Num):
        return False
    return loop.step * rounds == int(loop.stop.value) - int(loop.start.value)


def _names(kernel: Kernel) -> set[str]:
    names = {param.name for param in kernel.params} | {PART.name, STEP.name}
    return names | {s.var.name for s in everything(kernel.body) if isinstance(s, For | Let)}


def _divided(plan: Plan) -> list[str]:
    match plan:
        case Share():
            return [plan.loop.var.name]
        case Inside():
            return [name for inner in plan.inner for name in _divided(inner)]
    return []
