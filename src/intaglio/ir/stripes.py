"""Stripes: layers that are made a few rows at a time, so that most of their tensors are never there as a whole.

    stripe from conv_1 to pool_3 rows=2          in the IR file: these layers, two rows of each at a time

Between the layers of a stripe are windows: memory for the rows that are still needed. New rows come in at the end of a window,
after what is there has moved up (`roll`). What is read from outside, and what is read outside later, is whole.

`Stripe` is the program of it: actions, each one call of a kernel, and the order in which they happen. Everything is known when
the network is compiled; the C code is a table of small numbers and a switch. Where the caller says how many rows there are, each
number has an end of its own; where he says how long a row is, positions are formulas of it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Generic, TypeVar

from intaglio.ir.graph import Value

K = TypeVar("K")
A = TypeVar("A")


@dataclass(frozen=True, slots=True)
class StripeSpec:
    """What the IR file says. `up`: from the last row to the first. `fed`: rows of the input come one by one."""

    first: str  # the value that its first layer makes
    last: str
    rows: int
    up: bool = False
    fed: bool = False

    def __str__(self) -> str:
        flags = (" up" if self.up else "") + (" fed" if self.fed else "")
        return f"stripe from {self.first} to {self.last} rows={self.rows}{flags}"


@dataclass(frozen=True, slots=True)
class Window:
    """The rows of a value that are kept at once. It has contents that matter only while layers `first` to `last` are at work."""

    rows: int
    row_bytes: int
    first: int
    last: int

    @property
    def bytes(self) -> int:
        return self.rows * self.row_bytes


@dataclass(frozen=True, slots=True)
class Rows:
    """Where an action reads or writes rows: `at` bytes from the start of the value's memory, and `step` bytes further on each time
    that the layer is at work. In a window nothing moves but the rows: `step` is 0."""

    value: Value
    at: int
    step: int
    count: int  # rows
    top: int = 0  # rows of padding that the kernel puts above and below them
    bottom: int = 0


@dataclass(frozen=True, slots=True)
class Action(Generic[K, A]):
    """One call: `rolls` make room in the window of the result, then the kernel runs."""

    layer: int  # -1: a row of the input is taken
    kernel: K | None
    arguments: tuple[A, ...]
    rows: dict[Value, Rows]  # for each value that the kernel reads or writes by rows
    roll: int  # bytes by which the window of the result moves before
    about: str  # which rows, for a comment


@dataclass(frozen=True, slots=True)
class StripeEnd:
    """For one number of rows: the first `upto` steps of the order, then these."""

    upto: int
    order: tuple[int, ...]


@dataclass(slots=True)
class Stripe(Generic[K, A]):
    """Layers `first` to `last` of the program."""

    spec: StripeSpec
    first: int
    last: int
    axis: int
    windows: dict[Value, Window]
    actions: tuple[Action[K, A], ...]
    order: tuple[int, ...]  # numbers of actions
    apart: dict[tuple[Value, Value], int] = field(default_factory=dict)  # (lower, upper) whole values: least distance in bytes
    moved_bytes: int = 0  # by rolling, in a run
    size: str = ""  # of the caller, that says how many rows there are; `order` is for the largest
    ends: dict[int, StripeEnd] = field(default_factory=dict)  # for each value of `size`

    @property
    def counted(self) -> list[int]:
        """Layers that read or write rows of something whole: C counts how often they were at work."""
        return sorted({a.layer for a in self.actions if any(r.step for r in a.rows.values())})

    @property
    def feed_bytes(self) -> int:
        """Where rows are fed: the step to do next and these counters, 32 bits each."""
        return 4 * (1 + len(self.counted))
