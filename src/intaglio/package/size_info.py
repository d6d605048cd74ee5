"""Sizes in a manifest: those that the caller gives, and those that are found in data."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from intaglio.ir.names import is_clean
from intaglio.ir.spans import Span, fault_of


@dataclass(frozen=True, slots=True)
class SizeInfo:
    """A size that the caller gives, between two numbers, both included, in steps. In C it is the field
    `size_NAME` of the inputs."""

    name: str
    low: int
    high: int
    found: bool = False  # it follows from data: an output says what it is
    step: int = 1

    @property
    def span(self) -> Span:
        return Span(self.low, self.high, self.step)

    def told(self) -> str:
        return f"`{self.name}` {self.span.told()}"


def size_of_row(row: dict[str, Any]) -> SizeInfo:
    """As it stands in the file; whatever does not fit raises."""
    info = SizeInfo(**row)
    assert is_clean(info.name) and type(info.low) is int and type(info.high) is int and 0 <= info.low <= info.high
    assert type(info.step) is int and not fault_of(info.span)
    return info


def depends(formulas: Iterable[str], names: Iterable[str]) -> bool:
    """Does one of the formulas name one of the sizes?"""
    words = {word for text in formulas for word in re.findall(r"[A-Za-z_]\w*", text)}
    return not words.isdisjoint(names)
