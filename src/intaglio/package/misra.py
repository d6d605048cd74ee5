"""MISRA.md of a package (`--style misra`): where the generated C deviates from required rules of MISRA C:2012, and why.

Each deviation has a pattern that finds its places in the sources, so the file lists those of this very package. A test runs
cppcheck's MISRA addon over packages for plain C, Cortex-M0+ and Cortex-M4F: a finding of a required rule that no deviation names
is an error. Advisory rules are listed without places.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

MOST_LINES = 12  # that are named for a file
REVIEWED = re.compile(r"(_serial|_profile|_selftest|_vectors|_threads)\b|_weights(_\w+)?\.c$")  # not the network itself


@dataclass(frozen=True, slots=True)
class Deviation:
    """`rules`: that it deviates from; `pattern`: where."""

    rules: tuple[str, ...]
    about: str
    reason: str
    pattern: re.Pattern[str]


def _deviation(rules: str, about: str, reason: str, pattern: str) -> Deviation:
    return Deviation(tuple(rules.split()), about, reason, re.compile(pattern))


DEVIATIONS = (
    _deviation(
        "8.14", "the qualifier `restrict`",
        "Arguments of a kernel never overlap: the memory plan is proven for it, by a checker of its own, at every compile. Without "
        "the qualifier compilers reload values after every store.",
        r"\brestrict\b",
    ),
    _deviation(
        "10.1", "right shifts of signed numbers, and shifts by signed amounts",
        "Requantisation divides by powers of two. All supported compilers (gcc, clang, zig, armclang) define the shift as "
        "arithmetic. Amounts are constants of the weights, from 0 to 31.",
        r">>|<<|& \d|& 0x|\? 1 : 0",
    ),
    _deviation(
        "10.3 10.6", "sizes and truth values in a wider type",
        "Indices are `ptrdiff_t`. Comparisons are kept as `int` 0 or 1; a pointer moves by an index.",
        r"\+=|\bint \w+ = |const int|\? 1 : 4",
    ),
    _deviation(
        "10.4", "signed constants beside unsigned sizes",
        "Constants are positive and fit both types.",
        r"_ALIGNMENT|_SCRATCH_|_AT_|_READ_",
    ),
    _deviation(
        "10.7 10.8", "casts of whole expressions between signed and unsigned",
        "Sums that may wrap are computed unsigned, where C defines the result, and are cast back: two's complement on all cores.",
        r"\(u?int\d+_t\)\(|\(size_t\)\(|\(ptrdiff_t\)\(|\(float\)\(|\(double\)\(",
    ),
    _deviation(
        "14.2", "loops whose step changes at the end",
        "Rows of a tile that is not full are done one by one. The bound is constant; the dossier lists the bound of every loop.",
        r"for \(ptrdiff_t wide|for \(; |, \w+ \+= ",
    ),
    _deviation(
        "14.3", "conditions that are constant in one instance of a shared function",
        "Functions for all shapes of a family are written once. Compilers drop the ways that a shape does not take.",
        r"\bif \(|\?",
    ),
    _deviation(
        "15.6", "a single statement without braces",
        "Errors are returned on the line after their condition. Indentation is checked by -Wmisleading-indentation in our tests.",
        r"\b(if|for|while) \(",
    ),
    _deviation(
        "15.7", "`else if` without a last `else`",
        "The case that is left has nothing to do: a row beyond the border.",
        r"\belse if \(",
    ),
    _deviation(
        "2.2", "operations with 0 or 1 that change nothing",
        "Generated code names every term of a tile, also the first: `a + 0`. Compilers drop them.",
        r"[+*] [01]\b|\b[01] \*|\b0 - |smlad\(|smuad\(",
    ),
    _deviation(
        "5.7 5.3", "tags of structures without a name",
        "Structures are named by `typedef` alone.",
        r"\bstruct \{|\bunion \{|\benum \{",
    ),
    _deviation(
        "11.3 11.8 18.8", "buffers seen as elements of another type, through `void *`",
        "One arena serves all layers: its alignment is checked when a run begins, and the plan aligns each tensor.",
        r"\(void \*\)|\(const void \*\)|\(uintptr_t\)",
    ),
    _deviation(
        "21.15 21.16 17.7", "copies of memory as bytes, and results that are not used",
        "`memcpy` moves tensors of one type, and reads words that are not aligned; results that say nothing new are not used.",
        r"\bmem(cpy|set|move)\(|_pack_\w+\(",
    ),
    _deviation(
        "12.2 7.2", "constants of 32 bits, and shifts within words",
        "Two or four small numbers share a word on cores with instructions for that. Amounts are below the width of the word.",
        r"0x[0-9a-f]+|>>|<<",
    ),
)  # fmt: skip
ADVISORY = (
    ("2.5", "macros with offsets and sizes that an application may use, and this one does not"),
    ("8.7, 8.9", "functions and tables that another file of the package may use"),
    ("8.11", "arrays whose size is in the file that defines them"),
    ("11.4, 11.5", "an arena of bytes holds tensors of all types"),
    ("12.1", "products before sums, without parentheses"),
    ("12.3", "several pointers of a loop move together"),
    ("13.3, 13.4", "a counter is read where it is decremented; two variables get one value"),
    ("15.4, 15.5", "a function returns an error where it finds it"),
    ("17.8", "a parameter counts down"),
    ("18.4", "pointers move by indices"),
    ("19.2", "a union gives static memory its alignment where C99 has no other way"),
    ("20.1, 20.5, 2.3, 2.4, 2.7, 5.9, 8.13, 10.5, 15.1", "headers and names of generated code"),
)


def write_misra(folder: Path, name: str) -> None:
    (folder / "MISRA.md").write_text(misra_text(folder, name), encoding="utf-8")


def misra_text(folder: Path, name: str) -> str:
    files = sorted([*(folder / "src").glob("*.[ch]"), *(folder / "include").glob("*.h")])
    texts = {
        path.relative_to(folder).as_posix(): path.read_text(encoding="utf-8", errors="replace").splitlines()
        for path in files if not REVIEWED.search(path.name)
    }  # fmt: skip
    lines = [
        f"# MISRA C:2012 and the C of {name}", "",
        "Required rules that this code deviates from, each with its places and the reason. Other required and mandatory rules",
        "have no finding of cppcheck's MISRA addon (2.10). The files of the network are reviewed: not its test vectors, its",
        "self-test, its serial line and its profile, which a product leaves out. `intaglio dossier` has the bounds of loops,",
        "memory, stack and time.", "",
    ]  # fmt: skip
    for deviation in DEVIATIONS:
        places = [(file, _numbers(text, deviation.pattern)) for file, text in texts.items()]
        found = [(file, numbers) for file, numbers in places if numbers]
        if not found:
            continue
        rules = ", ".join(deviation.rules)
        lines += [f"## {rules}: {deviation.about}", "", deviation.reason, ""]
        lines += [f"- `{file}`: {_told(numbers)}" for file, numbers in found]
        lines.append("")
    lines += ["## Advisory rules", "", "| rules | why |", "| --- | --- |"]
    return "\n".join([*lines, *(f"| {rules} | {why} |" for rules, why in ADVISORY), ""])


def _numbers(text: list[str], pattern: re.Pattern[str]) -> list[int]:
    code = [line.split("/*")[0] for line in text]
    apart = ("*", "#include")
    return [n for n, line in enumerate(code, 1) if pattern.search(line) and not line.lstrip().startswith(apart)]


def _told(numbers: list[int]) -> str:
    shown = ", ".join(map(str, numbers[:MOST_LINES]))
    return f"lines {shown}" + (f" and {len(numbers) - MOST_LINES} more" if len(numbers) > MOST_LINES else "")
