"""Regular expressions, of RE2's syntax, as automata over the bytes of UTF-8: a table that a kernel walks along.

    parse -> a tree -> states with edges over ranges of bytes -> sets of states -> the table

A whole string has to match, so greedy and lazy are the same. Anchors and borders of words are edges that are free only between
certain characters, so a set of states also knows what the character before it was.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from intaglio.frontends.onnx.faults import Fault, unsupported
from intaglio.ir.graph import Array

MOST_STATES = 4096
MOST_REPEATS = 1000  # as in RE2
LAST = 0x10FFFF
Ranges = tuple[tuple[int, int], ...]  # of code points, both ends included
DIGITS: Ranges = ((48, 57),)
WORDS: Ranges = ((48, 57), (65, 90), (95, 95), (97, 122))
BLANKS: Ranges = ((9, 10), (12, 13), (32, 32))
POSIX: dict[str, Ranges] = {
    "alnum": ((48, 57), (65, 90), (97, 122)), "alpha": ((65, 90), (97, 122)), "ascii": ((0, 127),), "blank": ((9, 9), (32, 32)),
    "cntrl": ((0, 31), (127, 127)), "digit": DIGITS, "graph": ((33, 126),), "lower": ((97, 122),), "print": ((32, 126),),
    "punct": ((33, 47), (58, 64), (91, 96), (123, 126)), "space": ((9, 13), (32, 32)), "upper": ((65, 90),), "word": WORDS,
    "xdigit": ((48, 57), (65, 70), (97, 102)),
}  # fmt: skip
ESCAPES = {"a": 7, "f": 12, "t": 9, "n": 10, "r": 13, "v": 11}
CLASSES = {"d": DIGITS, "w": WORDS, "s": BLANKS}


@dataclass(frozen=True, slots=True)
class Tables:
    """`classes`: the kind of each byte; `after`: the next state by state and kind; `accepts`: by state. State 0 is the first."""

    classes: Array
    after: Array
    accepts: Array


def inverted(ranges: Ranges) -> Ranges:
    found, start = [], 0
    for low, high in merged(ranges):
        if low > start:
            found.append((start, low - 1))
        start = high + 1
    return tuple([*found, (start, LAST)] if start <= LAST else found)


def merged(ranges: Ranges) -> Ranges:
    found: list[tuple[int, int]] = []
    for low, high in sorted(ranges):
        if found and low <= found[-1][1] + 1:
            found[-1] = (found[-1][0], max(found[-1][1], high))
        else:
            found.append((low, high))
    return tuple(found)


def byte_ranges(low: int, high: int) -> list[list[tuple[int, int]]]:
    """A range of code points as sequences of ranges of bytes."""
    for limit in (0x7F, 0x7FF, 0xFFFF):
        if low <= limit < high:
            return byte_ranges(low, limit) + byte_ranges(limit + 1, high)
    if high < 0x80:
        return [[(low, high)]]
    for shift in (6, 12, 18):
        span = (1 << shift) - 1
        if low >> shift != high >> shift:
            if low & span:
                return byte_ranges(low, low | span) + byte_ranges((low | span) + 1, high)
            if high & span != span:
                return byte_ranges(low, (high & ~span) - 1) + byte_ranges(high & ~span, high)
    first, last = (_utf8(code) for code in (low, high))
    return [list(zip(first, last, strict=True))]


def _utf8(code: int) -> bytes:
    return chr(code).encode("utf-8", "surrogatepass")


@dataclass(slots=True)
class Machine:
    """States with edges over bytes, and edges that cost nothing."""

    free: list[list[int]] = field(default_factory=list)
    edges: list[list[tuple[int, int, int]]] = field(default_factory=list)  # low, high, to
    tests: list[list[tuple[str, int]]] = field(default_factory=list)  # free where a test holds: `^`, `$`, `b`, `B`

    def state(self) -> int:
        if len(self.free) > 16 * MOST_STATES:
            raise unsupported("the pattern of `RegexFullMatch` is too large", "use a shorter pattern, with smaller repetitions")
        self.free.append([])
        self.edges.append([])
        self.tests.append([])
        return len(self.free) - 1

    def test(self, kind: str) -> tuple[int, int]:
        first, last = self.state(), self.state()
        self.tests[first].append((kind, last))
        return first, last

    def reach(self, states: frozenset[int], before: bool | None, behind: bool | None) -> frozenset[int]:
        """What is reached for free. `before` and `behind`: is that character of a word; None: there is none."""
        border = (before is True) != (behind is True)
        holds = {"^": before is None, "$": behind is None, "b": border, "B": not border}
        found, open_ = set(states), list(states)
        while open_:
            at = open_.pop()
            for after in [*self.free[at], *(to for kind, to in self.tests[at] if holds[kind])]:
                if after not in found:
                    found.add(after)
                    open_.append(after)
        return frozenset(found)


class Parser:
    """Builds the machine while it reads: each method returns the first and the last state of what it has read."""

    def __init__(self, pattern: str) -> None:
        self.text = pattern
        self.at = 0
        self.machine = Machine()
        self.ignore_case = False

    def fault(self, what: str) -> Fault:
        return unsupported(f"the pattern of `RegexFullMatch` has {what} at character {self.at}", "write the pattern without it")

    def peek(self, ahead: str) -> bool:
        return self.text.startswith(ahead, self.at)

    def take(self, ahead: str) -> bool:
        if self.peek(ahead):
            self.at += len(ahead)
            return True
        return False

    def whole(self) -> tuple[int, int]:
        if self.take("(?i)"):
            self.ignore_case = True
        found = self.alternatives(0)
        if self.at < len(self.text):
            raise self.fault("a `)` without `(`")
        return found

    def alternatives(self, depth: int) -> tuple[int, int]:
        if depth > 200:
            raise self.fault("too many nested groups")
        first, last = self.machine.state(), self.machine.state()
        while True:
            start, end = self.sequence(depth)
            self.machine.free[first].append(start)
            self.machine.free[end].append(last)
            if not self.take("|"):
                return first, last

    def sequence(self, depth: int) -> tuple[int, int]:
        first = last = self.machine.state()
        while self.at < len(self.text) and not self.peek("|") and not self.peek(")"):
            mark = self.at
            start, end = self.atom(depth)
            start, end = self.repeated(mark, start, end, depth)
            self.machine.free[last].append(start)
            last = end
        return first, last

    def repeated(self, mark: int, start: int, end: int, depth: int) -> tuple[int, int]:
        behind = self.at
        bounds = self.bounds()
        if bounds is None:
            return start, end
        after = self.at
        self.take("?")
        if self.bounds() is not None:
            raise self.fault("a repetition of a repetition")
        low, high = bounds
        after = self.at
        first, last = self.machine.state(), self.machine.state()
        at = first
        for n in range(max(low, 1 if high is None else high)):
            if n:
                self.at = mark
                start, end = self.atom(depth)
                assert self.at == behind
            if n >= low:
                self.machine.free[at].append(last)
            self.machine.free[at].append(start)
            at = end
        if high is None:
            if low == 0:
                self.machine.free[first].append(last)
            self.machine.free[at].append(start)
        self.machine.free[at].append(last)
        self.at = after
        return first, last

    def bounds(self) -> tuple[int, int | None] | None:
        for sign, found in (("*", (0, None)), ("+", (1, None)), ("?", (0, 1))):
            if self.take(sign):
                return found
        close = self.text.find("}", self.at)
        if not self.peek("{") or close < 0:
            return None
        low, comma, high = self.text[self.at + 1 : close].partition(",")
        if not low.isdecimal() or not (high.isdecimal() or not high):
            return None
        least, most = int(low), int(low) if not comma else int(high) if high else None
        if max(least, most or 0) > MOST_REPEATS or (most is not None and most < least):
            raise self.fault(f"the repetition {self.text[self.at : close + 1]}")
        self.at = close + 1
        return least, most

    def atom(self, depth: int) -> tuple[int, int]:
        if self.take("("):
            return self.group(depth)
        if self.take("["):
            return self.characters(self.bracket())
        if self.take("."):
            return self.characters(inverted(((10, 10),)))
        for words, kind in ((("^", "\\A"), "^"), (("$", "\\z"), "$"), (("\\b",), "b"), (("\\B",), "B")):
            if any(self.take(word) for word in words):
                return self.machine.test(kind)
        if self.peek("*") or self.peek("+") or self.peek("?"):
            raise self.fault("a repetition of nothing")
        return self.characters(self.character())

    def group(self, depth: int) -> tuple[int, int]:
        if self.take("?P<") or self.take("?<"):
            close = self.text.find(">", self.at)
            if close < 0 or not self.text[self.at : close].isidentifier():
                raise self.fault("a group that is not supported")
            self.at = close + 1
        elif self.peek("?") and not self.take("?:"):
            raise self.fault("a group that is not supported")
        found = self.alternatives(depth + 1)
        if not self.take(")"):
            raise self.fault("a `(` without `)`")
        return found

    def character(self) -> Ranges:
        """One character, or an escape that stands for several."""
        letter = self.text[self.at : self.at + 1]
        if not letter:
            raise self.fault("an end where a character is expected")
        self.at += 1
        if letter != "\\":
            return ((ord(letter), ord(letter)),)
        kind = self.text[self.at : self.at + 1]
        self.at += 1
        if kind.lower() in CLASSES and kind:
            return CLASSES[kind] if kind in CLASSES else inverted(CLASSES[kind.lower()])
        if kind in ESCAPES:
            return ((ESCAPES[kind], ESCAPES[kind]),)
        if kind == "x":
            return self.hexadecimal()
        if not kind or kind.isalnum() or ord(kind) >= 128:
            self.at -= 1
            raise self.fault(f"the escape `\\{kind}`")
        return ((ord(kind), ord(kind)),)

    def hexadecimal(self) -> Ranges:
        close = self.text.find("}", self.at) if self.peek("{") else self.at + 2
        digits = self.text[self.at + 1 : close] if self.peek("{") else self.text[self.at : close]
        try:
            code = int(digits, 16)
        except ValueError:
            raise self.fault("an escape `\\x` without a number") from None
        if code > LAST:
            raise self.fault("a character beyond Unicode")
        self.at = close + 1 if self.peek("{") else close
        return ((code, code),)

    def bracket(self) -> Ranges:
        negative = self.take("^")
        found: list[tuple[int, int]] = []
        first = True
        while first or not self.peek("]"):
            first = False
            if self.at >= len(self.text):
                raise self.fault("a `[` without `]`")
            if self.take("[:"):
                close = self.text.find(":]", self.at)
                name = self.text[self.at : close]
                if close < 0 or name.lstrip("^") not in POSIX:
                    raise self.fault("an unknown class of characters")
                self.at = close + 2
                ranges = POSIX[name.lstrip("^")]
                found += inverted(ranges) if name.startswith("^") else ranges
                continue
            low = self.character()
            ranged = self.peek("-") and self.text[self.at + 1 : self.at + 2] not in ("]", "")
            if ranged and len(low) == 1 and low[0][0] == low[0][1]:
                self.at += 1
                high = self.character()
                if len(high) != 1 or high[0][1] < low[0][0]:
                    raise self.fault("a range that is empty")
                low = ((low[0][0], high[0][1]),)
            found += low
        self.at += 1
        return inverted(tuple(found)) if negative else merged(tuple(found))

    def characters(self, ranges: Ranges) -> tuple[int, int]:
        if self.ignore_case:
            letters = [code for low, high in ranges for code in range(low, min(high, 127) + 1) if chr(code).isalpha()]
            ranges = merged((*ranges, *((code ^ 32, code ^ 32) for code in letters)))
        first, last = self.machine.state(), self.machine.state()
        for low, high in ranges:
            for sequence in byte_ranges(low, high):
                at = first
                for n, (bottom, top) in enumerate(sequence):
                    to = last if n == len(sequence) - 1 else self.machine.state()
                    self.machine.edges[at].append((bottom, top, to))
                    at = to
        return first, last


def automaton(pattern: str) -> Tables:
    """Without the last step of theory, which would make the table as small as it can be."""
    parser = Parser(pattern)
    first, last = parser.whole()
    machine = parser.machine
    borders = {0, 256} | {edge for row in machine.edges for low, high, _ in row for edge in (low, high + 1)}
    words = any(kind in "bB" for row in machine.tests for kind, _ in row)
    if words:
        borders |= {edge for low, high in WORDS for edge in (low, high + 1)}
    starts = sorted(borders)
    classes = np.zeros(256, np.uint8)
    for n, (low, high) in enumerate(pairwise(starts)):
        classes[low:high] = n
    numbers, rows = _sets(machine, first, starts[:-1], words)
    accepts = np.array([last in machine.reach(states, before, None) for states, before in numbers], np.uint8)
    return Tables(classes, np.array(rows, np.uint16), accepts)


def _sets(
    machine: Machine, first: int, starts: list[int], words: bool
) -> tuple[list[tuple[frozenset[int], bool | None]], list[list[int]]]:
    """Sets of states, each with the character before it, and where each kind of byte leads."""
    beginning: tuple[frozenset[int], bool | None] = (frozenset({first}), None)
    numbers = {beginning: 0}
    waiting, rows = [beginning], []
    while waiting:
        states, before = waiting.pop(0)
        row = []
        for low in starts:
            word = words and any(bottom <= low <= top for bottom, top in WORDS)
            open_ = machine.reach(states, before, word)
            after = frozenset(to for state in open_ for bottom, top, to in machine.edges[state] if bottom <= low <= top)
            key = (after, bool(word) if after else False)
            if key not in numbers:
                if len(numbers) >= MOST_STATES:
                    raise unsupported(f"the pattern of `RegexFullMatch` needs more than {MOST_STATES} states", "use a simpler one")
                numbers[key] = len(numbers)
                waiting.append(key)
            row.append(numbers[key])
        rows.append(row)
    return list(numbers), rows
