"""A range of sizes as it is written: `1..512`, both ends included, or `32..512:32`, in steps; or the name of another size."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import NamedTuple

from intaglio.errors import UserError, quoted


class Span(NamedTuple):
    low: int
    high: int
    step: int = 1  # the high end is a whole number of steps above the low one
    name: str = ""  # of the size that it is; alone, without a range, it stands for that of this name

    def __repr__(self) -> str:
        if self.name:
            return repr(self.name)
        if not self.high:
            return "'..'"
        return f"({self.low}, {self.high})" if self.step == 1 else f"({self.low}, {self.high}, {self.step})"

    def __str__(self) -> str:
        if self.name and not self.high:
            return self.name
        if not self.high:
            return ".."
        return f"{self.low}..{self.high}" + (f":{self.step}" if self.step != 1 else "")

    @property
    def numbers(self) -> range:
        """All sizes in it."""
        return range(self.low, self.high + 1, self.step)

    def at(self, share: float) -> int:
        """A size between the ends: 0 is the least, 1 the largest."""
        return self.low + round((self.high - self.low) // self.step * share) * self.step

    def halved(self) -> Extent:
        """The sizes up to half of the largest, or the least one."""
        numbers = self.numbers
        return simplest(self._replace(high=numbers[max(0, (self.high // 2 - self.low) // self.step)]))

    def told(self) -> str:
        """For people: `from 32 to 512 in steps of 32`."""
        return f"from {self.low} to {self.high}" + (f" in steps of {self.step}" if self.step != 1 else "")


class Room(int):
    """The most that a size can be which depends on data; and the least."""

    least: int = 0

    @classmethod
    def of(cls, span: Span) -> Room:
        found = cls(span.high)
        found.least = span.low
        return found

    def __str__(self) -> str:
        return f"{self.least}..{int(self)}" if self.least else f"{int(self)}"

    def __repr__(self) -> str:
        return f"({self.least}, {int(self)})" if self.least else f"{int(self)}"

    __format__ = object.__format__


BY_MODEL = Span(0, 0)  # `..`: the model says from where to where

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.]{0,63}", re.ASCII)  # of a size, where a range could be written
SPAN = re.compile(r"([0-9]{1,18})\.\.([0-9]{1,18})(?::([0-9]{1,18}))?", re.ASCII)

Extent = int | Span  # a size, or the range that it is in
Dims = Mapping[str, Extent]  # by the name of a dimension
Shapes = Mapping[str, tuple[Extent, ...]]  # by input


def fault_of(span: Span) -> str:
    """What is wrong with a range that somebody wrote; "" if nothing is. A single size is a range too."""
    if span.low > span.high:
        return f"is empty; write `{span._replace(low=span.high, high=span.low)}`"
    if span.step < 1:
        return f"has steps below 1; write `{span._replace(step=1)}`"
    if (span.high - span.low) % span.step:
        below = span._replace(high=span.numbers[-1])
        return f"does not end on a step; write `{below}` or `{below._replace(high=below.high + span.step)}`"
    return ""


def simplest(span: Span) -> Extent:
    """A range with one size is that size."""
    return span.low if span.low == span.high else span


def named(dims: Dims, shapes: Shapes, symbols: Collection[str]) -> tuple[dict[str, Extent], dict[str, tuple[Extent, ...]]]:
    """With names of sizes replaced by what they are: `--dim T=1..64 --shape a=1,T --shape b=1,T`, or `--dim S=T`. What only
    `shapes` use is no longer in the dimensions: the model, which has these `symbols`, does not know it."""
    used = {size.name for shape in shapes.values() for size in shape if isinstance(size, Span) and size.name}

    def meant(size: Extent, seen: tuple[str, ...] = ()) -> Extent:
        if not isinstance(size, Span) or not size.name or size.high:
            return size
        if size.name in seen:
            names = " and ".join(f"`{name}`" for name in sorted(seen))
            what = f"{names} name each other" if len(seen) > 1 else f"{names} names itself"
            raise UserError("bad-option", what, hint=f"give a size or a range: `--dim {size.name}=1..64`")
        if size.name not in dims:
            known = ", ".join(f"`{name}`" for name in dims if name not in seen) or "none"
            hint = f"say what it is: `--dim {size.name}=1..64`; `--dim` names: {known}"
            raise UserError("bad-option", f"{quoted(size.name)} is not a size, nor the name of one", hint=hint)
        found = meant(dims[size.name], (*seen, size.name))
        return found._replace(name=found.name or size.name) if isinstance(found, Span) and found != BY_MODEL else found

    kept = {name: meant(size, (name,)) for name, size in dims.items() if name in symbols or name not in used}
    return kept, {key: tuple(meant(size) for size in shape) for key, shape in shapes.items()}
