"""Routines: pieces of C that several kernels call, for instruction sets whose speed needs more than one instruction at a time.

    with k.loop("p", 0, 64, 4) as p:                              a kernel: geometry, in loop IR
        k.call(gather(4, DType.I8), Place(x, p * 16), ...)        a routine: a page of C, written once per program
        k.call(tile(4, variant), Place(w, idx(0)), ...)

A routine is a value: a function of the variant (a small frozen type) makes it from a C template. The text is for the printer, the
meaning (on numpy arrays that start at the place given) for the interpreter.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from intaglio.kernels.c_functions import function_text
from intaglio.kernels.c_template import render


def no_meaning(*_: object) -> None:
    raise AssertionError("a part of routines, which have meanings of their own")


@dataclass(frozen=True, slots=True)
class Routine:
    """`needs` are other routines, `functions` the inline functions of c_functions.py that the text calls. `file` and `macros` are
    the template that the text was made from."""

    name: str  # in C, with `ig_` before it
    text: str
    meaning: Callable[..., None] = no_meaning
    needs: tuple[Routine, ...] = ()
    functions: tuple[str, ...] = ()
    file: Path | None = None
    macros: Mapping[str, str | int] = field(default_factory=dict)


def routine_of(
    file: Path, name: str, meaning: Callable[..., None], needs: tuple[Routine, ...], functions: tuple[str, ...] = (), /,
    **macros: str | int,
) -> Routine:  # fmt: skip
    """A routine from its template, in which `NAME` is its name in C."""
    macros["NAME"] = f"ig_{name}"
    return Routine(name, render(file, **macros), meaning, needs, functions, file, macros)


def routine_texts(routines: Iterable[Routine], already: dict[str, None]) -> list[str]:
    """What these routines need and they themselves, each once, in an order that C accepts."""
    found: dict[str, None] = {}

    def add(routine: Routine) -> None:
        for function in routine.functions:
            for text in function_text(function):
                if text not in already:
                    found.setdefault(text)
        for needed in routine.needs:
            add(needed)
        found.setdefault(routine.text)

    for routine in routines:
        add(routine)
    return list(found)
