"""Routines: pieces of C that several kernels call, for instruction sets whose speed needs more than one instruction at a time.

    with k.loop("p", 0, 64, 4) as p:                          a kernel: geometry, in loop IR
        k.call("gather4_i8", Place(x, p * 16), ...)           a routine: a page of C, written once per program
        k.call("tile4_twice_i8", Place(w, idx(0)), ...)

A family makes the routines whose names start with its own; the rest of a name chooses a variant. The text is for the printer,
the meaning (on numpy arrays that start at the place given) for the interpreter.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

from intaglio.kernels.c_functions import function_text

Family = Callable[[str], "Routine"]
FAMILIES: dict[str, Family] = {}


@dataclass(frozen=True, slots=True)
class Routine:
    """`needs` are other routines, `functions` the inline functions of c_functions.py that the text calls."""

    text: str
    meaning: Callable[..., None]
    needs: tuple[str, ...] = ()
    functions: tuple[str, ...] = ()


def family(name: str) -> Callable[[Family], Family]:
    def register(make: Family) -> Family:
        FAMILIES[name] = make
        return make

    return register


@cache
def find_routine(name: str) -> Routine:
    start, _, variant = name.partition("_")
    return FAMILIES[start](variant)


def routine_texts(names: list[str], already: dict[str, None]) -> list[str]:
    """What these routines need and they themselves, each once, in an order that C accepts."""
    found: dict[str, None] = {}

    def add(name: str) -> None:
        routine = find_routine(name)
        for function in routine.functions:
            for text in function_text(function):
                if text not in already:
                    found.setdefault(text)
        for needed in routine.needs:
            add(needed)
        found.setdefault(routine.text.strip())

    for name in names:
        add(name)
    return list(found)
