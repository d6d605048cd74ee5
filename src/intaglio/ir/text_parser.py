"""One line of IR text, read from left to right."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import re
import typing
from collections.abc import Callable
from enum import Enum
from typing import TypeVar

from intaglio.errors import quoted
from intaglio.ir.operator import REGISTRY, Op, Step
from intaglio.ir.sizes import Bounds, Size, most
from intaglio.ir.types import DType, Layout, Quant, TensorType

_TYPE = re.compile(r"(\w+)\[([\w,\s+*/%();<=-]*)\]", re.ASCII)
_NUMBER = re.compile(r"-?(?:inf|nan|\d+\.?\d*(?:[eE][-+]?\d+)?)\b", re.ASCII)
_STRING = re.compile(r'"(?:[^"\\]|\\.)*"')
_DEEPEST = 8  # lists inside of lists


T = TypeVar("T")


class ParseError(Exception):
    def __init__(self, text: str, hint: str = "") -> None:
        super().__init__(text)
        self.hint = hint


def whole(text: str) -> int:
    """An integer of a length that somebody meant; Python refuses to read some of the others."""
    if len(text) > 24:
        raise ParseError(f"the number {quoted(text, 30)} is too large")
    return int(text)


class Line:
    def __init__(self, raw: str) -> None:
        self.text, self.comment = _split_comment(raw.rstrip("\n"))
        self.at = 0
        self.depth = 0
        self.bounds: Bounds | None = None  # of the sizes that the file declares

    def _skip(self) -> None:
        while self.at < len(self.text) and self.text[self.at] in " \t":
            self.at += 1

    def at_end(self) -> bool:
        self._skip()
        return self.at >= len(self.text)

    def end(self) -> None:
        if not self.at_end():
            raise ParseError(f"unexpected {quoted(self.text[self.at :], 40)}")

    def peek(self, text: str) -> bool:
        self._skip()
        return self.text.startswith(text, self.at)

    def expect(self, text: str) -> None:
        if not self.peek(text):
            found = quoted(self.text[self.at :], 30) if not self.at_end() else "the end of the line"
            raise ParseError(f"expected `{text}`, found {found}")
        self.at += len(text)

    def token(self, pattern: str, what: str) -> str:
        self._skip()
        match = re.compile(pattern, re.ASCII).match(self.text, self.at)
        if match is None:
            found = quoted(self.text[self.at :], 30) if not self.at_end() else "the end of the line"
            raise ParseError(f"expected {what}, found {found}")
        self.at = match.end()
        return match.group()

    def name(self) -> str:
        return self.token(r"[A-Za-z_]\w*", "a name")

    def word_ahead(self) -> str:
        """The first word, when what follows is a name too (`input x`), so that a value may be called `input`."""
        match = re.match(r"\s*([A-Za-z_]\w*)\s+[A-Za-z_]", self.text, re.ASCII)
        return match.group(1) if match else ""

    def string(self) -> str:
        self._skip()
        match = _STRING.match(self.text, self.at)
        if match is None:
            raise ParseError(f"expected a quoted string, found {quoted(self.text[self.at :], 30)}")
        self.at = match.end()
        try:
            return str(json.loads(match.group()))
        except ValueError:
            raise ParseError(f"{quoted(match.group(), 40)} is not a JSON string") from None

    def type(self) -> TensorType:
        self._skip()
        match = _TYPE.match(self.text, self.at)
        if match is None:
            raise ParseError(f"expected a type such as `f32[1,3,8,8]`, found {quoted(self.text[self.at :], 30)}")
        self.at = match.end()
        shape = tuple(self._dimension(d.strip()) for d in match.group(2).split(",") if d.strip())
        try:
            dtype = DType(match.group(1))
        except ValueError:
            raise ParseError(
                f"unknown element type {quoted(match.group(1))}", "types: " + ", ".join(d.value for d in DType)
            ) from None
        layout = Layout.NONE
        for candidate in (Layout.NCHW, Layout.NHWC, Layout.TEXT):
            if self.peek(candidate.value):
                self.expect(candidate.value)
                layout = candidate
        return TensorType(dtype, shape, layout, self.quant() if self.peek("q(") else None)

    def _dimension(self, text: str) -> int:
        """`64`, or `T*2<=1024`: a formula of the sizes, and the largest that it gets."""
        if text.isascii() and text.isdigit():
            return whole(text)
        formula, sign, bound = text.partition("<=")
        found = self._formula(formula)
        if sign and (not bound.strip().isdigit() or whole(bound.strip()) != most(found)):
            raise ParseError(f"`{formula.strip()}` is at most {most(found)}, not {quoted(bound.strip())}")
        return found

    def _formula(self, text: str) -> int:
        if self.bounds is None:
            raise ParseError(f"{quoted(text, 40)} is not a number", "sizes are declared in lines such as `size T = 1..512`")
        if len(text) > 200:
            raise ParseError(f"the formula {quoted(text, 40)} is too long")
        try:
            return self.bounds.parse(text)
        except ValueError as error:
            raise ParseError(str(error)) from None

    def quant(self) -> Quant:
        self.expect("q(")
        scales = tuple(self._each(float, r"[^,()]+", "scale"))
        self.expect(",")
        zeros = tuple(self._each(whole, r"[-\d;]+", "zero point"))
        axis: int | None = None
        if self.peek(","):
            self.expect(",")
            self.expect("axis=")
            axis = whole(self.token(r"\d+", "an axis"))
        self.expect(")")
        return Quant(scales, zeros, axis)

    def _each(self, read: Callable[[str], T], pattern: str, what: str) -> list[T]:
        """Numbers with `;` between them."""
        text = self.token(pattern, f"{what}s")
        try:
            return [read(part) for part in text.split(";")]
        except ValueError:
            raise ParseError(f"{quoted(text, 40)} is not a {what}") from None

    def address(self) -> tuple[str, int, int]:
        """Region, offset, and the bytes from row to row, 0 where there are none."""
        self.expect("@")
        part = self.peek("=")  # `@=y+64`: a part of an input or an output
        if part:
            self.expect("=")
        region = "=" * part + self.name()
        if self.peek(":"):  # one of several arenas: `@arena:sram+64`
            self.expect(":")
            region += f":{self.name()}"
        self.expect("+")
        offset = whole(self.token(r"\d+", "an offset"))
        if not self.peek("/"):
            return region, offset, 0
        self.expect("/")
        return region, offset, whole(self.token(r"\d+", "the bytes from row to row"))

    def using(self) -> str:
        kernel = self.name()
        if self.peek("("):
            kernel += self.token(r"\([^()]*\)", "kernel parameters")
        return kernel

    def literal(self) -> object:
        """A number, boolean, string, bare word, tuple, list, or a list of steps."""
        self._skip()
        if self.peek('"'):
            return self.string()
        if self.peek("("):
            return tuple(self._items("(", ")"))
        if self.peek("["):
            return self._items("[", "]")
        if self.peek("{"):
            return self._formula(self.token(r"\{[^{}]*\}", "a formula in braces")[1:-1])
        match = _NUMBER.match(self.text, self.at)
        if match:
            self.at = match.end()
            text = match.group()
            return float(text) if re.search(r"[.enfa]", text, re.I) else whole(text)
        word = self.name()
        if word in ("true", "false"):
            return word == "true"
        if self.peek("("):
            self.at -= len(word)
            op, args = self.operator()
            if not all(a.isdigit() for a in args):
                raise ParseError(f"the operands of step {quoted(word)} must be numbers")
            return Step(op, tuple(whole(a) for a in args))
        return word

    def _items(self, opening: str, closing: str) -> list[object]:
        self.expect(opening)
        self.depth += 1
        if self.depth > _DEEPEST:
            raise ParseError(f"lists are nested more than {_DEEPEST} deep")
        items: list[object] = []
        while not self.peek(closing):
            items.append(self.literal())
            if not self.peek(closing):
                self.expect(",")
        self.expect(closing)
        self.depth -= 1
        return items

    def operator(self) -> tuple[Op, list[str]]:
        """`name(operands, field=value)` as the operator and its operands' words."""
        name = self.name()
        if name not in REGISTRY:
            raise ParseError(f"unknown operator {quoted(name)}", "`intaglio ops` lists the operators")
        args: list[str] = []
        fields: dict[str, object] = {}
        self.expect("(")
        while not self.peek(")"):
            word = self.token(r"\w+", "an operand")
            if self.peek("="):
                self.expect("=")
                fields[word] = self.literal()
            else:
                args.append(word)
            if not self.peek(")"):
                self.expect(",")
        self.expect(")")
        return _make(REGISTRY[name], fields), args


def _split_comment(raw: str) -> tuple[str, str]:
    """The source after the last `  # ` that is outside of strings."""
    at, inside = 0, False
    while at < len(raw):
        c = raw[at]
        if c == "\\" and inside:
            at += 2
            continue
        if c == '"':
            inside = not inside
        elif c == "#" and not inside and at and raw[at - 1] == " ":
            comment = raw[at + 1 :].strip()
            if comment.startswith('"'):
                with contextlib.suppress(ValueError):
                    comment = str(json.loads(comment))
            return raw[:at], comment
        at += 1
    return raw, ""


_HINTS: dict[str, dict[str, object]] = {}


def _hints(cls: type[Op]) -> dict[str, object]:
    """Types of the fields; looking them up is slow, so once per operator."""
    if cls.NAME not in _HINTS:
        _HINTS[cls.NAME] = typing.get_type_hints(cls)
    return _HINTS[cls.NAME]


def _make(cls: type[Op], given: dict[str, object]) -> Op:
    known = {f.name for f in dataclasses.fields(cls)}
    for name in given:
        if name not in known:
            listed = ", ".join(sorted(known)) or "none"
            raise ParseError(f"{quoted(cls.NAME)} has no attribute {quoted(name)}", f"its attributes: {listed}")
    hints = _hints(cls)
    return cls(**{name: _coerce(value, hints[name], f"{cls.NAME}.{name}") for name, value in given.items()})


def _coerce(value: object, hint: object, what: str) -> object:
    if isinstance(hint, type) and issubclass(hint, Enum):
        try:
            return hint("" if value == "none" else value)
        except ValueError:
            raise ParseError(f"{quoted(str(value))} is not a {hint.__name__} for {quoted(what)}") from None
    origin = typing.get_origin(hint)
    if origin is tuple and isinstance(value, (tuple, list)):
        inner = typing.get_args(hint)[0]
        return tuple(_coerce(v, inner, what) for v in value)
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if isinstance(value, Size) and hint in (int, float):
        return value
    if isinstance(hint, type) and isinstance(value, hint) and (hint is not int or not isinstance(value, bool)):
        return value
    raise ParseError(f"{quoted(what)} cannot be {quoted(str(value), 40)}")
