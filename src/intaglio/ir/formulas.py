"""Formulas of sizes, for C and for people: `T*4+1`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True, slots=True)
class Formula:
    """`op` is `size` (a name), `num`, `add`, `sub`, `mul`, `div`, `mod`, `min` or `max`. Divisions round down."""

    op: str
    name: str = ""
    number: int = 0
    args: tuple[Formula, ...] = ()

    def __str__(self) -> str:
        return _text(self, 0)

    def at(self, sizes: Mapping[str, int]) -> int:
        if self.op == "size":
            return sizes[self.name]
        if self.op == "num":
            return self.number
        a, b = (arg.at(sizes) for arg in self.args)
        return int(COMPUTE[self.op](a, b))

    def names(self) -> set[str]:
        return {self.name} if self.op == "size" else {n for a in self.args for n in a.names()}


COMPUTE: dict[str, Callable[[Any, Any], Any]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "div": lambda a, b: a // b,
    "mod": lambda a, b: a % b,
    "min": np.minimum,
    "max": np.maximum,
}
_SIGNS = {"add": ("+", 1), "sub": ("-", 1), "mul": ("*", 2), "div": ("//", 2), "mod": ("%", 2)}


def _text(formula: Formula, outer: int) -> str:
    if formula.op == "size":
        return formula.name
    if formula.op == "num":
        return str(formula.number)
    a, b = formula.args
    if formula.op in ("min", "max"):
        return f"{formula.op}({_text(a, 0)};{_text(b, 0)})"  # without a comma: it stands in lists
    sign, level = _SIGNS[formula.op]
    text = f"{_text(a, level)}{sign}{_text(b, level + 1)}"
    return f"({text})" if level < outer else text


def num(value: int) -> Formula:
    return Formula("num", number=value)


def simple(op: str, a: Formula, b: Formula) -> Formula:
    """The formula with numbers gathered, so that what people read is short."""
    if op in ("add", "mul", "min", "max") and a.op == "num":
        a, b = b, a
    if b.op == "num" and a.args and a.args[1].op == "num":
        inner, n = a.args[0], a.args[1].number
        if op in ("add", "sub") and a.op in ("add", "sub"):
            total = (n if a.op == "add" else -n) + (b.number if op == "add" else -b.number)
            return inner if total == 0 else Formula("add" if total > 0 else "sub", args=(inner, num(abs(total))))
        if op == "mul" and a.op == "mul":
            return Formula("mul", args=(inner, num(n * b.number)))
        if op == "div" and a.op == "div" and n > 0 and b.number > 0:
            return Formula("div", args=(inner, num(n * b.number)))
    if b.op == "num" and (b.number, op) in ((0, "add"), (0, "sub"), (1, "mul"), (1, "div")):
        return a
    if b.op == "num" and b.number < 0 and op in ("add", "sub"):
        return Formula("sub" if op == "add" else "add", args=(a, num(-b.number)))
    return Formula(op, args=(a, b))
