"""What an accelerator is to Intaglio: patterns it can compute, what that costs, the C that does it, and what it means.

    class Vectors(Accelerator):
        name = "vectors"
        facts = Facts("a vector unit beside the core", alignment=4)
        patterns = (Pattern("add", Is(Add), lambda region: None if region.same_shape() else "it does not broadcast"),)

        def cost(self, region, target): return Cost(cycles=region.elements // 4, launch_cycles=20)
        def compile(self, region, target): return Code("vectors_add(in0, in1, out0, 64);", includes=("vectors.h",))

A plug-in is a Python package with an entry point of the group `intaglio.accelerators`. It sees operators, types and values of the
graph, never the phases of the compiler. docs/guides/write-an-accelerator.md goes through one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from intaglio.ir.graph import Array, Node, Value
from intaglio.ir.offload import evaluate_nodes
from intaglio.ir.operator import Op
from intaglio.ir.types import Layout
from intaglio.targets.target import Target


@dataclass(frozen=True, slots=True)
class Is:
    """A node with one of these operators. `operands` are patterns of what made its inputs, in order; None: anything."""

    op: type[Op] | tuple[type[Op], ...]
    operands: tuple[Is | None, ...] = ()


def chain(*ops: type[Op] | tuple[type[Op], ...]) -> Is:
    """One after the other, each on the first operand of the next: `chain(QConv, MaxPool)`."""
    made: Is | None = None
    for op in ops:
        made = Is(op, (made,) if made is not None else ())
    if made is None:
        raise ValueError("a chain of no operators")
    return made


@dataclass(frozen=True, slots=True, eq=False)
class Region:
    """Nodes that one launch computes, in order of execution. Values inside are not in memory."""

    nodes: tuple[Node, ...]
    inputs: tuple[Value, ...]  # made elsewhere, no constants
    outputs: tuple[Value, ...]  # read elsewhere
    constants: tuple[Value, ...]
    patterns: tuple[str, ...] = ()  # which pattern each part of it matched

    @property
    def node(self) -> Node:
        """The last one, which is the only one of a region of one operator."""
        return self.nodes[-1]

    @property
    def macs(self) -> int:
        return sum(n.op.macs([None if v is None else v.type for v in n.inputs], n.output.type) for n in self.nodes)

    @property
    def elements(self) -> int:
        """Of all results."""
        return sum(v.type.elements for v in self.outputs)

    def reference(self, inputs: Sequence[Array]) -> list[Array]:
        """What the model means: the numpy references of the operators."""
        return list(evaluate_nodes(self.nodes, dict(zip(self.inputs, inputs, strict=True)), self.outputs))

    def __str__(self) -> str:
        return ", ".join(dict.fromkeys(n.source or n.output.name for n in self.nodes))


@dataclass(frozen=True, slots=True)
class Pattern:
    """`check` says why a match is not taken, or None. A match is a region of its own: inner results are read by nobody else."""

    name: str
    root: Is
    check: Callable[[Region], str | None] = lambda _: None


@dataclass(frozen=True, slots=True)
class Pad:
    """A memory of the accelerator's own."""

    name: str
    bytes: int


@dataclass(frozen=True, slots=True)
class Facts:
    """`alignment` of tensors and constants; `layouts` of images that it takes; `reaches`: the memories of a board that it can
    read and write, None for all; `merges`: how many matches one region may have; `overlaps`: the core may go on meanwhile;
    `tolerance`: how far floats may be from the reference, of their largest. Integers are exact."""

    about: str
    clock_mhz: float | None = None  # None: as fast as the core
    alignment: int = 1
    layouts: tuple[Layout, ...] = tuple(Layout)
    memories: tuple[Pad, ...] = ()
    reaches: tuple[str, ...] | None = None
    merges: int = 1
    overlaps: bool = False
    tolerance: float = 1e-5


@dataclass(frozen=True, slots=True)
class Cost:
    """In cycles of the accelerator; `launch_cycles` are what the core does to start it and to hear that it is done.

    `transfer_cycles` is the time of moving `bytes` in and out that is not hidden behind the arithmetic."""

    cycles: float
    launch_cycles: float = 0
    bytes: int = 0
    transfer_cycles: float = 0


@dataclass(frozen=True, slots=True)
class Code:
    """C statements that compute a region: in0, in1, ..., out0, ..., the names of `constants` and `scratch` are pointers there.

    With `wait`, `body` only starts the accelerator and `wait` comes before the results are needed; it sees the same names. A body
    that can fail (`fallible`) returns a number that is not 0. `over`: the input that out0 may be written over, element by element,
    where nobody else needs it."""

    body: str
    constants: Mapping[str, Array] = field(default_factory=dict)
    scratch_bytes: int = 0
    wait: str = ""
    includes: tuple[str, ...] = ()
    fallible: bool = False
    over: int | None = None
    about: str = ""  # a line for the comment above the function


class Bus(Protocol):
    """What a device in an emulated machine sees of it."""

    def read(self, address: int, size_bytes: int) -> bytes: ...
    def write(self, address: int, data: bytes) -> None: ...

    def now(self) -> int:
        """Cycles of the core so far, waiting included."""

    def stall(self, cycles: int) -> None:
        """The core waits so long for the access that it makes now."""


class Device(Protocol):
    """Registers in the address space, served in the emulator."""

    address: int
    bytes: int

    def load(self, offset: int, size_bytes: int) -> int: ...
    def store(self, offset: int, size_bytes: int, value: int) -> None: ...


class Accelerator:
    """Derive from this. Everything but `cost` and `compile` has a default."""

    name: str = ""
    facts: Facts = Facts("")
    patterns: tuple[Pattern, ...] = ()

    def supports(self, target: Target) -> str | None:
        """Why it is not there beside this core, or None."""
        return None

    def accepts(self, region: Region) -> str | None:
        """Why these matches do not go together in one region, or None. Asked where `facts.merges` is more than 1."""
        return None

    def cost(self, region: Region, target: Target) -> Cost:
        raise NotImplementedError

    def compile(self, region: Region, target: Target) -> Code:
        raise NotImplementedError

    def emulate(self, region: Region, inputs: Sequence[Array]) -> Sequence[Array]:
        """What the hardware computes, in numpy (or in C through ctypes)."""
        return region.reference(inputs)

    def files(self, target: Target) -> Mapping[str, str]:
        """C files that its code needs, by name: `.c` files are built with the package, `.h` files may be in folders."""
        return {}

    def setup(self, target: Target) -> str:
        """C statements before its first region in a run; and after its last (`teardown`)."""
        return ""

    def teardown(self, target: Target) -> str:
        return ""

    def device(self, bus: Bus) -> Device | None:
        """Its registers in the emulator, if it has any."""
        return None
