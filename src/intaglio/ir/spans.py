"""A range of sizes as it is written: `1..512`, both ends included."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class Span(NamedTuple):
    low: int
    high: int

    def __repr__(self) -> str:
        return f"({self.low}, {self.high})" if self.high else "'..'"

    def __str__(self) -> str:
        return f"{self.low}..{self.high}" if self.high else ".."


BY_MODEL = Span(0, 0)  # `..`: the model says from where to where

Extent = int | Span  # a size, or the range that it is in
Dims = Mapping[str, Extent]  # by the name of a dimension
Shapes = Mapping[str, tuple[Extent, ...]]  # by input
