"""Budgets: what a package may need at most.

    ram = "64K"              A TOML file; every line is optional. Sizes are bytes, or texts such as "64K". `time` is in ms,
    flash = "256K"           `accuracy` a share that has to be reached, everything else must not be exceeded.
    instructions = 4_000_000
    time = 12.5
    error = 1e-4
    accuracy = 0.92

`--fail-if 'ram>+2%'` compares two packages instead: a figure, `>` or `<`, and a change in percent or a number.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from intaglio.errors import UserError, quoted
from intaglio.options.kinds import size_bytes
from intaglio.report.differences import MORE_IS_BETTER, FigureChange, figure_text
from intaglio.report.facts import Facts, Figure

SIZES = ("ram", "flash", "arena", "weights")
KNOWN = (*SIZES, "instructions", "cycles", "macs", "time", "error", "accuracy")
_RULE = re.compile(r"\s*([a-z]+)\s*([<>])\s*([+-]?)\s*(\d+(?:\.\d+)?(?:e-?\d+)?)\s*([%KMG]?)\s*")


@dataclass(frozen=True, slots=True)
class Checked:
    """A budget and the figure that was held against it."""

    key: str
    ok: bool
    limit: float
    limit_text: str
    value_text: str
    text: str


@dataclass(frozen=True, slots=True)
class Rule:
    """`ram>+2%`: fails where RAM grows by more than that; `time>5`: where it is above 5 ms, whatever it was."""

    text: str
    key: str
    above: bool
    relative: bool
    number: float

    def can_tell(self, change: FigureChange) -> bool:
        """Is there what it compares? A rule that checks nothing must not pass."""
        return change.after is not None and (not self.relative or change.before is not None)

    def broken(self, change: FigureChange) -> bool:
        if change.after is None:
            return False
        if not self.relative:
            return change.after > self.number if self.above else change.after < self.number
        if change.before is None:
            return False
        if not change.before:
            return change.after > 0 if self.above else False
        share = 100 * (change.after - change.before) / change.before
        return share > self.number if self.above else share < self.number


def read_budgets(path: Path) -> dict[str, float]:
    hint = f"a budget file is TOML with any of {', '.join(KNOWN)}"
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError("no-such-file", f"cannot read {quoted(str(path), 200)}: {error.strerror}", hint=hint) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UserError("bad-budget", f"{quoted(path.name)} is not TOML: {error}", hint=hint) from None
    return limits_of(table, path.name)


def limits_of(table: Mapping[str, object], file: str) -> dict[str, float]:
    """The budgets of a table in a file of this name."""
    return {key: _limit(key, value, file) for key, value in table.items()}


def _limit(key: str, value: object, file: str) -> float:
    hint = f"budgets are any of {', '.join(KNOWN)}"
    if key not in KNOWN:
        raise UserError("bad-budget", f"{quoted(file)} has an unknown budget {quoted(key)}", hint=hint)
    if isinstance(value, str) and key in SIZES:
        try:
            return float(size_bytes([value], key))
        except UserError:
            what = f"the budget {quoted(key)} in {quoted(file)} is not a size: {quoted(value)}"
            raise UserError("bad-budget", what, hint=f'for example `{key} = "64K"`') from None
    if isinstance(value, bool) or not isinstance(value, int | float) or value - value != 0 or value < 0:
        unit = {"time": ", in ms", "accuracy": ", a share such as 0.92"}.get(key, "")
        what = f"the budget {quoted(key)} in {quoted(file)} is not a number from 0{unit}"
        raise UserError("bad-budget", what, hint=hint)
    return float(value)


def check_budgets(budgets: dict[str, float], facts: Facts) -> tuple[Checked, ...]:
    return tuple(check_figure(key, limit, facts.figure(key)) for key, limit in budgets.items())


def check_limit(key: str, value: float, limit: float) -> bool:
    return value >= limit if key in MORE_IS_BETTER else value <= limit


def check_figure(key: str, limit: float, figure: Figure | None) -> Checked:
    wanted = figure_text(Figure(key, key, limit, "bytes" if key in SIZES else "ms" if key == "time" else "", ""))
    if figure is None:
        return Checked(key, False, limit, wanted, "unknown", f"{key} is not known here, and its budget is {wanted}")
    least, ok = key in MORE_IS_BETTER, check_limit(key, figure.value, limit)
    told = figure_text(figure)
    relation = ("at least" if least else "at most") if ok else ("below" if least else "above")
    return Checked(key, ok, limit, wanted, told, f"{key} is {told}, {relation} its budget of {wanted}")


def read_rule(text: str) -> Rule:
    found = _RULE.fullmatch(text)
    if found is None or found[1] not in KNOWN:
        hint = f"write for example `ram>+2%` or `time>12.5`; figures: {', '.join(KNOWN)}"
        raise UserError("bad-rule", f"{quoted(text)} is not a rule", hint=hint)
    key, relation, sign, number, unit = found.groups()
    value = float(number) * (-1 if sign == "-" else 1)
    if unit != "%":
        if sign:
            raise UserError("bad-rule", f"{quoted(text)} is not a rule", hint="a change is in percent, such as `ram>+2%`")
        value *= {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}[unit]
    return Rule(text.strip(), key, relation == ">", unit == "%", value)


__all__ = ["KNOWN", "Checked", "Rule", "check_budgets", "check_limit", "limits_of", "read_budgets", "read_rule"]
