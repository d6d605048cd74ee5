"""C files that are templates: what varies is a macro, so a compiler, an editor and a linter read them as they are.

    IG_INLINE TYPE NAME(TYPE a)           render(file, NAME="ig_clip_i8", TYPE="int8_t", LIMIT=100, CLIPS=True)
    {
    #if CLIPS                             IG_INLINE int8_t ig_clip_i8(int8_t a)
        return a > LIMIT ? LIMIT : a;     {
    #else                         ->          return a > 100 ? 100 : a;
        return a;                         }
    #endif
    }

This is the part of the C preprocessor that templates need: `#if`, `#elif`, `#else` and `#endif` on macros that are known here,
`#define` of macros with and without parameters, `#undef`, `#include "file"`. A macro of several lines keeps them, each indented as
the line that uses it. Conditions on other names (`#ifdef IG_DSP`) and macros that start with `IG_` belong to the generated code
and stay in it. A line that starts with `//` is for readers of the template alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from textwrap import indent

_NAME = re.compile(r"\b[A-Z][A-Z0-9_]*\b")
_DEFINE = re.compile(r"#define ([A-Z][A-Z0-9_]*)(?:\(([\w, ]*)\))?(.*)")
_TERM = re.compile(r"(!?)(\w+)(?: (==|>) (\d+))?")
_FUNCTION = re.compile(r"^IG_INLINE .*?(ig_\w+)\(", re.MULTILINE)
_BREAK = "\v"  # between the lines of a macro


@dataclass(frozen=True, slots=True)
class _Macro:
    body: str
    parameters: tuple[str, ...] | None = None  # None: no parentheses follow


@dataclass(slots=True)
class _Branch:
    """An open condition. `printed`: it is one of the generated code, and both its branches count."""

    counts: bool
    taken: bool = False  # this branch or one before it
    printed: bool = False


def render(file: Path, /, **macros: str | int) -> str:
    """The text of a template for these macros; a flag is 1 or 0."""
    known = {name: _Macro(str(int(value) if isinstance(value, bool) else value)) for name, value in macros.items()}
    return _rendered(file, known)


@cache
def functions(file: Path) -> dict[str, str]:
    """The functions of a file by name. One empty line is between two of them, and none inside."""
    return {_FUNCTION.findall(text)[0]: text for text in _rendered(file, {}).split("\n\n")}


@cache
def _source(file: Path) -> tuple[str, ...]:
    return tuple(file.read_text(encoding="utf-8").replace("\\\n", _BREAK).split("\n"))


def _rendered(file: Path, macros: dict[str, _Macro]) -> str:
    return "\n".join(_lines(file, macros)).strip("\n")


def _lines(file: Path, macros: dict[str, _Macro]) -> Iterator[str]:
    open_: list[_Branch] = []
    for line in _source(file):
        word, _, rest = line.strip().partition(" ")
        if word in ("#if", "#ifdef", "#ifndef", "#elif", "#else", "#endif") and not _follow(word, rest, macros, open_):
            continue
        if line.startswith("//") or not all(branch.counts for branch in open_):
            continue
        if word == "#include" and rest.startswith('"'):
            yield indent(_rendered(file.parent / rest.strip('"'), macros), line[: line.index("#")], _is_code)
        elif word == "#undef":
            del macros[rest]
        elif word == "#define" and not rest.startswith("IG_"):
            _define(line.strip(), macros)
        else:
            yield from _expanded(line, macros)


def _is_code(line: str) -> bool:
    return bool(line.strip()) and not line.startswith("#")


def _follow(word: str, rest: str, macros: dict[str, _Macro], open_: list[_Branch]) -> bool:
    """Open, turn or close a condition; whether its line stays in the generated code."""
    if word.startswith("#if"):
        holds = _holds(rest, macros) if word == "#if" else None
        open_.append(_Branch(True, printed=True) if holds is None else _Branch(holds, holds))
        return holds is None
    branch = open_[-1]
    if word == "#endif":
        open_.pop()
    elif not branch.printed:
        branch.counts = not branch.taken and (word == "#else" or bool(_holds(rest, macros)))
        branch.taken = branch.taken or branch.counts
    return branch.printed


def _holds(condition: str, macros: dict[str, _Macro]) -> bool | None:
    """`A && !B || C == 4`; None where a name is not a macro of the template."""
    values = []
    for part in condition.split(" || "):
        terms = [_TERM.fullmatch(term) for term in part.split(" && ")]
        if any(term is None or term[2] not in macros for term in terms):
            return None
        values.append(all(_term_holds(term, macros) for term in terms if term is not None))
    return any(values)


def _term_holds(term: re.Match[str], macros: dict[str, _Macro]) -> bool:
    negated, name, comparison, number = term.groups()
    value = int(macros[name].body)
    if comparison is None:
        return (value == 0) == bool(negated)
    return value == int(number) if comparison == "==" else value > int(number)


def _define(line: str, macros: dict[str, _Macro]) -> None:
    found = _DEFINE.fullmatch(line)
    assert found is not None, line
    name, parameters, body = found.groups()
    lines = [part.strip() for part in body.split(_BREAK)]
    names = None if parameters is None else tuple(parameters.split(", "))
    macros[name] = _Macro(_BREAK.join(part for part in lines if part), names)


def _expanded(line: str, macros: dict[str, _Macro]) -> Iterator[str]:
    pad = line[: len(line) - len(line.lstrip())]
    if not line.strip():
        yield ""
    for part in _expand(line.strip(), macros).split(_BREAK):
        if part.strip():
            yield pad + part.strip()


def _expand(text: str, macros: dict[str, _Macro]) -> str:
    """An empty macro takes the space before it along."""
    out, at = "", 0
    while (found := _NAME.search(text, at)) is not None:
        macro, end = macros.get(found[0]), found.end()
        if macro is None:
            out += text[at:end]
            at = end
            continue
        body = macro.body
        if macro.parameters is not None:
            arguments, end = _arguments(text, end)
            values = dict(zip(macro.parameters, arguments, strict=True))
            body = "".join(values.get(word, word) for word in re.split(r"\b", body))
        body, before = _expand(body, macros), text[at : found.start()]
        out += (before if body else before.removesuffix(" ")) + body
        at = end
    return out + text[at:]


def _arguments(text: str, start: int) -> tuple[list[str], int]:
    """What stands in the parentheses at `start`, apart by the commas that are in no others; and where they end."""
    assert text[start] == "(", text
    found, depth = [""], 0
    for at, letter in enumerate(text[start:], start):
        depth += {"(": 1, "[": 1, ")": -1, "]": -1}.get(letter, 0)
        if depth == 0:
            return [part.strip() for part in found], at + 1
        if depth == 1 and letter == ",":
            found.append("")
        elif at > start:
            found[-1] += letter
    raise AssertionError(f"no end: {text}")
