"""Values of keywords: each function takes what was given and returns a value of the kind, or raises `Unfit`."""

from __future__ import annotations

import operator
import os
from collections.abc import Callable, Iterable, Mapping, Set
from numbers import Real
from os import PathLike
from pathlib import Path

from intaglio.ir.spans import BY_MODEL, NAME, SPAN, Extent, Room, Span, fault_of, simplest

MOST_ADDRESS = 0xFFFFFFFF
Taker = Callable[[object], object]


class Unfit(Exception):
    """The value is not of the kind. With arguments: what is wrong, and a hint."""


def text(given: object) -> str:
    if isinstance(given, str):
        return given
    return str(path(given))


def path(given: object) -> Path:
    found = os.fspath(given) if isinstance(given, (str, PathLike)) else None
    if not isinstance(found, str):
        raise Unfit
    return Path(found)


def flag(given: object) -> bool:
    if isinstance(given, bool):
        return given
    raise Unfit


def whole(given: object) -> int:
    """Integers of numpy too, but no truth values."""
    if isinstance(given, bool) or not hasattr(given, "__index__"):
        raise Unfit
    try:
        return operator.index(given)
    except TypeError:
        raise Unfit from None


def size(given: object) -> int:
    found = whole(given)
    if found < 1:
        raise Unfit
    return found


def length(given: object) -> int:
    found = whole(given)
    if found < 0:
        raise Unfit
    return found


def extent(given: object) -> Extent:
    """A size, or a range: `(1, 512)` or `"1..512"`, in steps `(32, 512, 32)` or `"32..512:32"`, or the name of another."""
    if given == "..":
        return BY_MODEL
    if isinstance(given, str) and ".." not in given and NAME.fullmatch(given):
        return Span(0, 0, name=given)
    if isinstance(given, str):
        found = SPAN.fullmatch(given)
        given = tuple(int(part) for part in found.groups() if part is not None) if found is not None else ()
    if not isinstance(given, tuple):
        return length(given)
    if len(given) not in (2, 3):
        raise Unfit
    span = Span(length(given[0]), length(given[1]), size(given[2]) if len(given) == 3 else 1)
    what, _, hint = fault_of(span).partition("; ")
    if what:
        raise Unfit(f"the range `{span}` {what}", hint)
    return simplest(span)


def room(given: object) -> int:
    """The largest size, or the least and the largest: `96`, `(16, 96)` or `"16..96"`."""
    found = extent(given)
    if not found or (isinstance(found, Span) and (found.name or found.step != 1 or not found.high)):
        raise Unfit
    return Room.of(found) if isinstance(found, Span) else found


def address(given: object) -> int:
    found = whole(given)
    if not 0 <= found <= MOST_ADDRESS:
        raise Unfit
    return found


def number(given: object) -> float:
    if isinstance(given, bool) or not isinstance(given, Real):
        raise Unfit
    return float(given)


def texts(given: object) -> tuple[str, ...]:
    if not isinstance(given, (list, tuple, Set)) or not all(isinstance(part, str) for part in given):
        raise Unfit
    return tuple(given)


def text_set(given: object) -> frozenset[str]:
    return frozenset(texts(given))


def once_each(given: object) -> tuple[str, ...]:
    return tuple(dict.fromkeys(texts(given)))


def shape(given: object) -> tuple[Extent, ...]:
    if not isinstance(given, (list, tuple)):
        raise Unfit
    return tuple(extent(part) for part in given)


def mapping(value: Taker) -> Taker:
    """Of names to values that `value` takes."""

    def take(given: object) -> dict[str, object]:
        if not isinstance(given, Mapping) or not all(isinstance(key, str) for key in given):
            raise Unfit
        return {key: value(one) for key, one in given.items()}

    return take


def array(given: object) -> object:
    """What numpy makes an array of, which is done where it is read."""
    if isinstance(given, (list, tuple)) or hasattr(given, "shape"):
        return given
    raise Unfit


def labels(given: object) -> object:
    """A file, or whole numbers: a list, a tuple, an array."""
    if isinstance(given, (str, PathLike)):
        return path(given)
    flat = given.reshape(-1) if hasattr(given, "reshape") else given
    if not isinstance(flat, (list, tuple)) and not (hasattr(flat, "shape") and isinstance(flat, Iterable)):
        raise Unfit
    return tuple(whole(one) for one in flat)


def data(given: object) -> object:
    return path(given) if isinstance(given, (str, PathLike)) else mapping(array)(given)
