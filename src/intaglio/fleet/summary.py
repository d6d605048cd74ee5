"""What a person wants to know of a run with thousands of rows: budgets, and jobs without an answer by their cause."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from intaglio.errors import counted
from intaglio.fleet.pieces import ANSWERS
from intaglio.fleet.store import Row
from intaglio.report.budgets import SIZES, check_limit
from intaglio.report.differences import MORE_IS_BETTER, figure_text
from intaglio.report.facts import EMULATED, Figure

_LITERAL = re.compile(r"`[^`]*`|\b\d[\d,.]*\b")  # what differs where the cause is the same: names, numbers


@dataclass(frozen=True, slots=True)
class Held:
    """The figure of one result beside its budget."""

    row: Row
    key: str
    value: float
    limit: float

    @property
    def ok(self) -> bool:
        return check_limit(self.key, self.value, self.limit)

    @property
    def texts(self) -> tuple[str, str, str]:
        """The figure, the budget, and by how much it is missed."""
        over = abs(self.value - self.limit)
        share = f" ({100 * over / self.limit:,.1f} %)" if self.limit else ""
        least = self.key in MORE_IS_BETTER
        by = "" if self.ok else f"{_text(self.key, over)}{share} {'below' if least else 'above'}"
        return _text(self.key, self.value), _text(self.key, self.limit), by

    @property
    def text(self) -> str:
        value, limit, by = self.texts
        return f"{where(self.row)}: {self.key} is {value}, {by} its budget of {limit}"


@dataclass(frozen=True, slots=True)
class Budget:
    """One budget of the file and all results that have its figure. None has it: nothing was checked, so it is not met."""

    key: str
    limit: float
    held: tuple[Held, ...]

    @property
    def broken(self) -> tuple[Held, ...]:
        """The worst first."""
        sign = -1 if self.key in MORE_IS_BETTER else 1
        return tuple(sorted((one for one in self.held if not one.ok), key=lambda one: -sign * one.value))

    @property
    def ok(self) -> bool:
        return bool(self.held) and not self.broken

    @property
    def text(self) -> str:
        wanted = limit_text(self.key, self.limit)
        if not self.held:
            return f"{wanted}: no result has this figure"
        return f"{wanted}: {len(self.held) - len(self.broken):,} of {counted(len(self.held), 'result')} within it"


def budgets_of(rows: Sequence[Row], limits: Sequence[tuple[str, float]]) -> tuple[Budget, ...]:
    return tuple(Budget(key, limit, tuple(_held(rows, key, limit))) for key, limit in limits)


def _held(rows: Sequence[Row], key: str, limit: float) -> Iterator[Held]:
    for row in rows:
        value = row.figures.get(key)
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            yield Held(row, key, float(value), limit)


def limit_text(key: str, limit: float) -> str:
    """`ram at most 1,024 bytes`"""
    return f"{key} {'at least' if key in MORE_IS_BETTER else 'at most'} {_text(key, limit)}"


def _text(key: str, value: float) -> str:
    unit = "bytes" if key in SIZES else "ms" if key == "time" else ""
    return figure_text(Figure(key, key, value, unit, EMULATED))


@dataclass(frozen=True, slots=True)
class Cause:
    """Jobs that have no answer for one reason; `reason`: that of the first, where names and numbers differ."""

    state: str
    reason: str
    rows: tuple[Row, ...]

    @property
    def text(self) -> str:
        told = f"{self.state or 'not run'}{f': {self.reason}' if self.reason else ''}"
        if len(self.rows) == 1:
            return f"{where(self.rows[0])}: {told}"
        return f"{counted(len(self.rows), 'job')}, e.g. {where(self.rows[0])}: {told}"


def unanswered(rows: Sequence[Row]) -> tuple[Cause, ...]:
    """By cause; that of most jobs first."""
    groups: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        if row.state not in ANSWERS:
            groups.setdefault((row.state, _LITERAL.sub("`", row.reason)), []).append(row)
    found = [Cause(own[0].state, " ".join(own[0].reason.split()), tuple(own)) for own in groups.values()]
    return tuple(sorted(found, key=lambda cause: -len(cause.rows)))


def where(row: Row) -> str:
    return f"{f'{row.model} {row.variant}'.strip()} on {row.place}, {row.kind}"


def shortened(lines: Sequence[str], most: int, say: Callable[[str], None], noun: str, look: str) -> None:
    """The first of them, how many more there are, and where to look."""
    for line in lines[:most]:
        say(line)
    if len(lines) > most:
        say(f"... and {counted(len(lines) - most, f'more {noun}')}; {look}")


__all__ = ["Budget", "Cause", "Held", "budgets_of", "limit_text", "shortened", "unanswered", "where"]
