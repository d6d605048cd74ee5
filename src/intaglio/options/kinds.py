"""How an option is written: its type in Python, and how words of the command line become a value of that type.

`N=1`, `in0=1,3,224,224`, `IN=OUT`, `64K`, `0x90000000`
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from intaglio.errors import UserError, quoted
from intaglio.ir.spans import BY_MODEL, NAME, Extent, Room, Span, fault_of, simplest
from intaglio.options import values
from intaglio.options.values import Taker

_BETWEEN = re.compile(r"(?<=[0-9])x(?=[0-9])")  # `1x3x224x224`
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
Reader = Callable[[list[str], str], object]  # the words as typed, and the option they belong to


@dataclass(frozen=True, slots=True)
class Kind:
    """`python` is shown in messages and in the documentation, `command` is the type on the command line. `take` is for values of
    keywords, `read` for words of the command line (None: the word is the value); a text as keyword is read as a word."""

    python: str
    command: type
    take: Taker
    many: bool = False  # may be repeated
    read: Reader | None = None


def pairs(words: list[str], option: str) -> dict[str, str]:
    """`KEY=VALUE` words; keys may hold anything but come once."""
    found: dict[str, str] = {}
    for word in words:
        # The last `=`: names in models may hold one, numbers do not.
        key, equals, value = word.rpartition("=")
        if not equals or not key or not value:
            raise UserError("bad-option", f"`{option} {quoted(word)[1:-1]}` is not of the form NAME=VALUE")
        if key in found:
            raise UserError("bad-option", f"`{option}` is given twice for {quoted(key)}")
        found[key] = value
    return found


def dims(words: list[str], option: str) -> dict[str, Extent]:
    return {key: _extent(value, f"{option} {key}={value}") for key, value in pairs(words, option).items()}


def counts(words: list[str], option: str) -> dict[str, int]:
    return {key: _room(value, f"{option} {key}={value}") for key, value in pairs(words, option).items()}


def _room(text: str, word: str) -> int:
    """`96`, or `16..96`."""
    option, _, name = word.rpartition("=")[0].partition(" ")
    hint = f"give the largest, from 1 on (`{option} {name}=96`), or the least and the largest (`{option} {name}=16..96`)"
    found = _extent(text, word, hint)
    if not found or (isinstance(found, Span) and (found.name or found.step != 1 or not found.high)):
        raise UserError("bad-option", f"{quoted(text)} in {quoted(word, 120)} is not a size", hint=hint)
    return Room.of(found) if isinstance(found, Span) else found


def lengths(words: list[str], option: str) -> dict[str, int]:
    return {key: _size(value, f"{option} {key}={value}") for key, value in pairs(words, option).items()}


def shapes(words: list[str], option: str) -> dict[str, tuple[Extent, ...]]:
    found = {}
    for key, value in pairs(words, option).items():
        sizes = [] if value in ("[]", "scalar") else _BETWEEN.sub(",", value.strip("[]")).split(",")
        found[key] = tuple(_extent(size, f"{option} {key}={value}") for size in sizes)
    return found


def _extent(text: str, word: str, hint: str = "") -> Extent:
    """`128`, or `1..512`, or `32..512:32`, or `..`, or the name of another."""
    low, dots, rest = text.partition("..")
    if text.strip() == "..":
        return BY_MODEL
    if not dots and NAME.fullmatch(text.strip()):
        return Span(0, 0, name=text.strip())
    if not dots:
        return _size(text, word, hint)
    high, colon, step = rest.partition(":")
    span = Span(_size(low, word, hint), _size(high, word, hint), _size(step, word, hint) if colon else 1)
    what, _, hint = fault_of(span).partition("; ")
    if what:
        raise UserError("bad-option", f"the range in {quoted(word, 120)} {what}", hint=hint)
    return simplest(span)


def _size(text: str, word: str, hint: str = "") -> int:
    hint = hint or (
        "sizes are integers from 0, for example `--shape in0=1,3,224,224` or `--dim N=1`, or a range: `--dim T=1..512`, in steps: "
        "`--dim H=32..512:32`"
    )
    if not text.strip():
        raise UserError("bad-option", f"{quoted(word, 120)} has an empty size", hint=hint)
    whole = text.strip().isascii() and text.strip().isdigit()
    if whole and len(text) > 18:
        raise UserError("bad-option", f"{quoted(text)} in {quoted(word, 120)} is too large for a size")
    if not whole:
        raise UserError("bad-option", f"{quoted(text)} in {quoted(word, 120)} is not a size", hint=hint)
    return int(text)


def size_bytes(words: list[str], option: str) -> int:
    """`65536`, `64K`, `64KB`, `64KiB`, `1M`: always in steps of 1024."""
    (text,) = words
    found = re.fullmatch(r"([0-9]{1,12})([KMG]?)(i?B)?", text.strip(), re.ASCII | re.IGNORECASE)
    if found is None or int(found[1]) == 0:
        hint = f"for example `{option} 64K` or `{option} 1M`"
        raise UserError("bad-option", f"`{option} {quoted(text)[1:-1]}` is not a size", hint=hint)
    return int(found[1]) * _UNITS[found[2].upper()]


def address(words: list[str], option: str) -> int:
    (text,) = words
    if re.fullmatch(r"0[xX][0-9a-fA-F]{1,8}", text.strip(), re.ASCII) is None:
        hint = f"use a hexadecimal number of up to 32 bits, for example `{option} 0x08080000`"
        raise UserError("bad-option", f"`{option} {quoted(text)[1:-1]}` is not an address", hint=hint)
    return int(text, 16)


def flags(words: list[str], option: str) -> tuple[str, ...]:
    (text,) = words
    try:
        return tuple(shlex.split(text))
    except ValueError:
        raise UserError("bad-option", f"`{option} {text}` has an open quote") from None


def operators(words: list[str], option: str) -> frozenset[str]:
    """`qconv,qmatmul`"""
    (text,) = words
    named = frozenset(filter(None, text.replace(" ", "").split(",")))
    if not named:
        raise UserError("bad-option", f"`{option}` names no operator", hint=f"e.g. `--accelerator NAME {option} qconv,qmatmul`")
    return named


def names(words: list[str], option: str) -> tuple[str, ...]:
    """`v3,v4`"""
    (text,) = words
    found = tuple(dict.fromkeys(filter(None, text.replace(" ", "").split(","))))
    if not found:
        example = {"--safety": "crc,golden", "--variants": "v3,v4"}.get(option)
        hint = f"for example `{option} {example}`, or omit it" if example else f"name something, or omit `{option}`"
        raise UserError("bad-option", f"`{option}` names nothing", hint=hint)
    return found


def once_each(words: list[str], _: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(words))


TEXT = Kind("str", str, values.text)
WHOLE = Kind("int", int, values.whole)
NUMBER = Kind("float", float, values.number)
FLAG = Kind("bool", bool, values.flag)
FILE = Kind("path", Path, values.path)
SIZE = Kind("int from 1, in bytes, or str such as `64K`", str, values.size, read=size_bytes)
ADDRESS = Kind("int of 32 bits, or str such as `0x08080000`", str, values.address, read=address)
FLAGS = Kind("sequence of str", str, values.texts, read=flags)
OPERATORS = Kind("sequence of str", str, values.text_set, read=operators)
NAMES = Kind("sequence of str", str, values.texts, read=names)
TEXTS = Kind("sequence of str", str, values.texts, many=True, read=lambda words, _: tuple(words))
SET = Kind("set of str", str, values.text_set, many=True, read=lambda words, _: frozenset(words))
DEVICES = Kind("str, or sequence of str", str, values.once_each, many=True, read=once_each)
DIMS = Kind(
    "mapping of str to int from 0, or to a range such as `1..512`", str, values.mapping(values.extent), many=True, read=dims
)
COUNTS = Kind(
    "mapping of str to int from 1, or to a range such as `16..96`", str, values.mapping(values.room), many=True, read=counts
)
LENGTHS = Kind("mapping of str to int from 0", str, values.mapping(values.length), many=True, read=lengths)
SHAPES = Kind(
    'mapping of str to tuple of int from 0, or of ranges such as `((1, 9), 64)` or `("1..9", 64)`',
    str, values.mapping(values.shape), many=True, read=shapes,
)  # fmt: skip
STATES = Kind("mapping of str to str", str, values.mapping(values.text), many=True, read=pairs)
LABELS = Kind("path, or sequence of int", Path, values.labels)
DATA = Kind("path, or mapping of str to array", Path, values.data)
