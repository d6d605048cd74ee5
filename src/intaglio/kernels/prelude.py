"""What kernels need above them in a C file: headers, vector types, inline functions, routines. Only what they use is written.

An instruction set and a routine bring pages of C. `prelude` splits them into items (a type, a macro, a function with its comment)
and keeps those that a kernel's text names, and those that these name. `own_names` gives each the prefix of its network, so that the
sources of two networks can be one file:

    ig_max_idx    ->    net_ig_max_idx
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from intaglio.kernels.c_functions import function_text
from intaglio.kernels.c_printer import Printer, body_lines
from intaglio.kernels.isa import ISAS, Isa
from intaglio.kernels.loop import Kernel
from intaglio.kernels.paired import paired
from intaglio.kernels.program import Program
from intaglio.kernels.routines import routine_texts
from intaglio.kernels.scalar_functions import vector_function

HEADERS = "#include <math.h>\n#include <stddef.h>\n#include <stdint.h>\n#include <string.h>"
_WORD = re.compile(r"\b(?:ig|IG)_\w+")
_MACRO = re.compile(r"^#\s*define\s+(\w+)", re.MULTILINE)
_DECLARED = re.compile(r"^(?:IG_[A-Z]+|static|typedef)\b.*?\b(ig_\w+)\s*(?:\(|\[|__attribute__|;|=)", re.MULTILINE)


def prelude(program: Program, kernels: Sequence[Kernel] | None = None, *, pairs: bool = False) -> str:
    """The text above these kernels (or all), under names that start with `ig_` and `IG_`. `pairs`: for a core that issues two
    instructions at a time."""
    own: dict[str, None] = {}
    for kernel in program.kernels if kernels is None else kernels:
        own |= dict.fromkeys(f'\n#include "{name}"' for name in kernel.includes)
    parts = [HEADERS + ("\n" if own else "") + "".join(own)]
    parts += _used(*_texts(program, program.kernels if kernels is None else kernels))
    text = "\n\n".join(map(paired, parts) if pairs else parts).replace("IG_INLINE", "static inline")
    return re.sub(r"^(typedef .*\n)\n(?=typedef )", r"\1", text, flags=re.MULTILINE) + "\n"


def own_names(text: str, network: str) -> dict[str, str]:
    """What the names that a prelude declares are called in a network."""
    found = {name for item in _items(text) for name in _declared(item)}
    return {n: f"{network.upper() if n.startswith('IG_') else network}_{n}" for n in sorted(found) if _WORD.fullmatch(n)}


def _texts(program: Program, kernels: Sequence[Kernel]) -> tuple[list[str], list[str]]:
    """Everything that may be needed, in an order that C accepts; and the text of the kernels."""
    isa = ISAS[program.isa]
    printer = Printer(isa)
    bodies = ["\n".join(body_lines(k, printer) if k.isa == program.isa else printer.stmts(k.body, 1)) for k in kernels]
    parts: list[str] = []
    if isa.prelude and printer.vectors:
        parts.append(isa.prelude)
    parts += [isa.narrow[kind] for kind in sorted(printer.narrow)]
    if isa.integers.prelude and printer.integers:
        parts.append(isa.integers.prelude)
    parts += [_vector_function(name, isa, printer) for name in list(printer.vector_used)]
    seen: dict[str, None] = {}
    for name in printer.used:
        for text in function_text(name):
            seen.setdefault(text)
    parts += list(seen)
    return [*parts, *routine_texts(printer.routines.values(), seen)], bodies


def _vector_function(name: str, isa: Isa, printer: Printer) -> str:
    function = vector_function(name, isa)
    kind = isa.float_type
    lines = [f"IG_INLINE {kind} ig_v{name}({kind} {function.param.name})", "{"]
    lines += printer.stmts(function.body, 1)
    lines += [f"    return {printer.expr(function.result)};", "}"]
    return "\n".join(lines)


def _used(parts: list[str], kernels: list[str]) -> list[str]:
    """Items that kernels name, and items that those name, in order."""
    items = [item for part in parts for item in _items(part)]
    by_name: dict[str, list[int]] = {}
    for number, item in enumerate(items):
        for name in _declared(item):
            by_name.setdefault(name, []).append(number)
    kept = {number for number, item in enumerate(items) if not _declared(item)}
    waiting = [*kernels, *(items[number] for number in kept)]
    while waiting:
        for name in set(_WORD.findall(waiting.pop())):
            fresh = set(by_name.get(name, [])) - kept
            kept |= fresh
            waiting += [items[number] for number in fresh]
    return [item for number, item in enumerate(items) if number in kept]


def _declared(item: str) -> set[str]:
    return {*_MACRO.findall(item), *_DECLARED.findall(item)}


def _items(text: str) -> Iterator[str]:
    """Declarations at file scope, each with the comment above it. An `#if` with all that is in it is one."""
    lines = iter(text.strip().splitlines())
    item: list[str] = []
    for line in lines:
        if not line and not item:
            continue
        item.append(line)
        if line.startswith("#if"):
            depth = 1
            while depth:
                item.append(next(lines))
                depth += item[-1].startswith("#if") - item[-1].startswith("#endif")
        elif line.startswith("#"):
            while item[-1].endswith("\\"):
                item.append(next(lines))
        elif _comment_goes_on(item):
            continue
        elif not line.endswith(";"):
            while not item[-1].startswith("}"):
                item.append(next(lines))
        yield "\n".join(item).strip()
        item = []
    assert not item, f"a comment without what it is about: {item}"


def _comment_goes_on(item: list[str]) -> bool:
    """Nothing but a comment so far, or blank lines behind it."""
    text = "\n".join(item).strip()
    return text.startswith("/*") and re.sub(r"/\*.*?(\*/|$)", "", text, flags=re.DOTALL).strip() == ""
