"""Index arithmetic as sums: constant + coefficient * atom + ...

An atom counts the rounds of a loop, or stands for something that is not a sum (a quotient, a minimum); each has a range. That is
enough to prove that two rounds of a loop never touch the same element:

    y[(n * 56 + oh) * 64 + c]      forms  3584 n + 64 oh + c,  c in 0..63, oh in 0..55
    the coefficients are a mixed radix (1 * 64 <= 64, 64 * 56 <= 3584): other n, oh or c, other element
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from intaglio.kernels.loop import Expr, Num, Op, Var

Range = tuple[int, int]
MOST_PITCHES = 16


@dataclass(frozen=True, slots=True)
class Atom:
    name: object  # a number of the loop, or what the expression is
    low: int
    high: int
    depends: frozenset[Atom] = frozenset()  # loops that a quotient, a minimum, ... changes with

    @property
    def extent(self) -> int:
        return self.high - self.low + 1

    def moved_by(self, loop: Atom) -> bool:
        return loop == self or loop in self.depends


@dataclass(frozen=True, slots=True)
class Form:
    const: int = 0
    terms: tuple[tuple[Atom, int], ...] = ()  # sorted by repr, no zeros

    def plus(self, other: Form, factor: int = 1) -> Form:
        total = dict(self.terms)
        for atom, coefficient in other.terms:
            total[atom] = total.get(atom, 0) + factor * coefficient
        kept = sorted(((a, c) for a, c in total.items() if c), key=lambda t: (repr(t[0].name), t[1]))
        return Form(self.const + factor * other.const, tuple(kept))

    def times(self, factor: int) -> Form:
        return Form().plus(self, factor)

    def range(self) -> Range:
        low = high = self.const
        for atom, c in self.terms:
            ends = (c * atom.low, c * atom.high)
            low, high = low + min(ends), high + max(ends)
        return low, high

    def coefficient(self, atom: Atom) -> int:
        return next((c for a, c in self.terms if a == atom), 0)


@dataclass(slots=True)
class Scope:
    """What names stand for; None: not known."""

    names: dict[str, Form | None] = field(default_factory=dict)
    loops: tuple[Atom, ...] = ()

    def inside(self, name: str, form: Form | None, loop: Atom | None = None) -> Scope:
        return Scope({**self.names, name: form}, self.loops if loop is None else (*self.loops, loop))

    def form(self, expr: Expr) -> Form | None:
        match expr:
            case Num():
                return Form(int(expr.value)) if expr.type.kind == "idx" else None
            case Var():
                return self.names.get(expr.name)
            case Op() if expr.type.kind == "idx":
                return self._of(expr)
        return None

    def _of(self, op: Op) -> Form | None:
        if op.op == "select":
            return self._opaque(
                op, [self.form(a) for a in op.args[1:]], lambda r: (min(r[0][0], r[1][0]), max(r[0][1], r[1][1])), None
            )
        parts = [self.form(a) for a in op.args]
        if op.op == "cast" or any(p is None for p in parts):
            return None
        a, b = parts[0], parts[1] if len(parts) > 1 else None
        assert a is not None
        if b is None:
            return None
        if op.op in ("add", "sub"):
            return a.plus(b, 1 if op.op == "add" else -1)
        if op.op == "mul" and (not a.terms or not b.terms):
            return b.times(a.const) if not a.terms else a.times(b.const)
        if op.op in ("div", "mod") and not b.terms and b.const > 0:
            return self._divided(op, a, b.const)
        if op.op in ("min", "max"):
            pick = min if op.op == "min" else max
            return self._opaque(op, [a, b], lambda r: (pick(r[0][0], r[1][0]), pick(r[0][1], r[1][1])), None)
        return None

    def _divided(self, op: Op, a: Form, by: int) -> Form | None:
        low, high = a.range()
        if low < 0:
            return self._opaque(op, [a], lambda r: (-(-r[0][0] // by), r[0][1] // by) if op.op == "div" else (1 - by, by - 1), by)
        if op.op == "div":
            if high < by:
                return Form()
            return self._opaque(op, [a], lambda r: (r[0][0] // by, r[0][1] // by), by)
        return a if high < by else self._opaque(op, [a], lambda r: (0, min(r[0][1], by - 1)), by)

    def _opaque(self, op: Op, parts: Iterable[Form | None], reach: Callable[[list[Range]], Range], extra: object) -> Form | None:
        known = list(parts)
        forms = [p for p in known if p is not None]
        if len(forms) < len(known):
            return None
        low, high = reach([f.range() for f in forms])
        if low == high:
            return Form(low)
        depends = frozenset(loop for f in forms for atom, _ in f.terms for loop in (atom, *atom.depends))
        cond = repr(op.args[0]) if op.op == "select" else ""
        return Form(0, ((Atom((op.op, tuple(forms), extra, cond), low, high, depends), 1),))


def disjoint(forms: list[tuple[Form, int]], loop: Atom, known: frozenset[Atom]) -> bool:
    """Do accesses (where, how many elements) of different rounds of `loop` never meet? `known` atoms are fixed meanwhile."""
    fixed: tuple[tuple[Atom, int], ...] | None = None
    step: int | None = None
    reach: dict[int, int] = {}
    low = high = 0
    for n, (form, count) in enumerate(forms):
        mine = tuple((a, c) for a, c in form.terms if a in known)
        inner = [(a, c) for a, c in form.terms if a not in known and a != loop]
        if any(a.moved_by(loop) for a, _ in inner):
            return False
        if (fixed is not None and mine != fixed) or (step is not None and form.coefficient(loop) != step):
            return False
        fixed, step = mine, form.coefficient(loop)
        start = form.const
        own: dict[int, int] = {}
        for atom, c in inner:
            start += min(c * atom.low, c * atom.high)
            own[abs(c)] = own.get(abs(c), 1) + atom.extent - 1
        for c, extent in own.items():
            reach[c] = max(reach.get(c, 1), extent)
        low, high = (start, start + count - 1) if n == 0 else (min(low, start), max(high, start + count - 1))
    if not step:
        return loop.extent <= 1
    reach[1] = reach.get(1, 1) + high - low
    spread = reach.pop(abs(step), 1)
    if spread > 1:  # another index runs at the same pace
        return False
    digits = sorted([*reach.items(), (abs(step), loop.extent)])
    total = 0
    for coefficient, extent in digits:
        if extent > 1:
            if coefficient <= total:
                return False
            total += coefficient * (extent - 1)
    return True


def rows_disjoint(forms: list[tuple[Form, int]], loop: Atom, known: frozenset[Atom]) -> bool:
    """The same where a round does several things: a tile of several rows, a row with its edges. Either all that a round touches
    lies within one step of the loop, or rounds are different columns of rows that are `pitch` apart:

    y[192 (6 m + r) + 16 block + c]      loop block in 0..11: 192 pitch, columns 16 block + 0..15, whatever m and r
    """
    step = forms[0][0].coefficient(loop) if forms else 0
    free: list[tuple[Form, int]] = []
    fixed = {t for t in forms[0][0].terms if t[0] in known} if forms else set()
    for form, count in forms:
        own = tuple(t for t in form.terms if t[0] not in known and t[0] != loop)
        if {t for t in form.terms if t[0] in known} != fixed or form.coefficient(loop) != step:
            return False
        if any(atom.moved_by(loop) for atom, _ in own):
            return False
        free.append((Form(form.const, own), count))
    if not step:
        return loop.extent <= 1
    low, high = _window(free, 0)
    if high - low <= abs(step):
        return True
    across = abs(step) * (loop.extent - 1)
    for pitch in sorted(p for p in _pitches(free) if p > across):
        low, high = _window(free, pitch)
        if high - low <= min(abs(step), pitch - across):
            return True
    return False


def _pitches(forms: list[tuple[Form, int]]) -> set[int]:
    """What rows may be apart: steps of the other loops, and distances between places."""
    starts = sorted({form.const for form, _ in forms})
    steps = {abs(c) for form, _ in forms for _, c in form.terms}
    return steps | {start - starts[0] for start in starts[1 : MOST_PITCHES + 1]}


def _window(forms: list[tuple[Form, int]], pitch: int) -> Range:
    """From where to where the forms reach; with a pitch, of each row that is so long."""
    low, high = forms[0][0].const, forms[0][0].const
    first = low
    for form, count in forms:
        kept = Form(form.const, tuple(t for t in form.terms if not pitch or t[1] % pitch))
        start, end = kept.range()
        if pitch:
            shift = (start - first) % pitch
            shift -= pitch if 2 * shift > pitch else 0
            start, end = first + shift, first + shift + end - start
        low, high = min(low, start), max(high, end + count)
    return low, high
