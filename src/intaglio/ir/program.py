"""What the kernel stage hands to the stages after it: plain data, no C text yet.

Program
  layers     in order of execution: which kernel is called with which arguments
  kernels    each distinct kernel once; layers of equal shape share one
  constants  packed weights by name, in the order in which kernels read them
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

from intaglio.ir.choices import OPEN, Choices
from intaglio.ir.graph import Array, Graph, Node, Value
from intaglio.ir.placement import NOWHERE, Arena, Placement
from intaglio.ir.stripes import Stripe, Window
from intaglio.ir.types import DType
from intaglio.ir.views import Pitch, storage_pitches, storage_roots


class PartTouched(Protocol):
    """Elements of an argument that one part of a kernel reads or writes: `count` in each of `rows` that are `pitch` apart."""

    @property
    def part(self) -> int: ...
    @property
    def param(self) -> int: ...
    @property
    def at(self) -> int: ...
    @property
    def count(self) -> int: ...
    @property
    def rows(self) -> int: ...
    @property
    def pitch(self) -> int: ...
    @property
    def writes(self) -> bool: ...


class Divided(Protocol):
    """How several cores compute a kernel."""

    @property
    def parts(self) -> int: ...
    @property
    def own(self) -> tuple[int, ...]: ...  # arguments of which each part has a piece
    @property
    def touched(self) -> tuple[PartTouched, ...]: ...


class KernelFacts(Protocol):
    """What the stages after the kernels need to know of one."""

    in_place: bool  # may the output be the same memory as an operand of its shape?
    over: int  # which argument alone may be that; -1: any
    fallible: bool
    used_by: list[str]  # nodes of the model
    pitches: tuple[tuple[int, int, int], ...]  # arguments that are rows of wider tensors: which, elements in a row, and apart

    @property
    def split(self) -> Divided | None: ...

    @property
    def wait(self) -> KernelFacts | None: ...  # it only starts the work of an accelerator; this one waits for the results


K = TypeVar("K", bound=KernelFacts)


@dataclass(frozen=True, slots=True)
class ValueArg:
    """A value of the graph: in the arena, or a pointer that the caller of NAME_run gave."""

    value: Value


@dataclass(frozen=True, slots=True)
class ConstantArg:
    """A packed constant of the program, by name."""

    name: str


@dataclass(frozen=True, slots=True)
class ScratchArg:
    """Working memory of this layer only, in the arena; `at` is where this piece of it starts. Where `each` is not 0, every part of
    a kernel that several threads compute has so many bytes of it."""

    bytes: int
    at: int = 0
    each: int = 0


Argument = ValueArg | ConstantArg | ScratchArg


@dataclass(slots=True)
class Layer(Generic[K]):
    """One call in NAME_run. `arguments` are in the order of `kernel.params`."""

    name: str  # C-safe, unique
    node: Node
    kernel: K
    arguments: tuple[Argument, ...]
    macs: int
    striped_scratch: int = 0  # the most that one of the kernels of a stripe needs

    @property
    def scratch_bytes(self) -> int:
        return max([self.striped_scratch, scratch_of(self.arguments)])


def scratch_of(arguments: tuple[Argument, ...]) -> int:
    return max((a.at + a.bytes for a in arguments if isinstance(a, ScratchArg)), default=0)


@dataclass(slots=True)
class Constant:
    name: str
    data: Array
    dtype: DType
    memory: str = ""  # which flash has it; "": that of the code
    about: str = ""  # the order of its numbers, where it is not that of the tensor
    used_by: list[str] = field(default_factory=list)  # layers, the first of which gave it its name


@dataclass(slots=True)
class Program(Generic[K]):
    graph: Graph
    layers: list[Layer[K]]
    kernels: list[K]  # distinct, `kernel.name` is the C function's name
    constants: list[Constant]
    isa: str  # instruction set of the vector types, "scalar" where there is none
    alignment: int = 64  # of tensors in memory
    choices: Choices = OPEN  # the kernels of its layers, and which nodes are views
    placement: Placement = NOWHERE  # what an IR file gives, and after the memory stage where everything is
    given_layers: list[Layer[K]] = field(default_factory=list)  # before the memory stage changed them; empty: it did not
    stripes: list[Stripe[K, Argument]] = field(default_factory=list)  # layers that are made a few rows at a time, in order
    asynchronous: bool = False  # some layers only start an accelerator
    _waits: tuple[list[Layer[K]], dict[int, int]] = field(default=([], {}), init=False)

    def stripe_at(self, layer: int) -> Stripe[K, Argument] | None:
        return next((s for s in self.stripes if s.first <= layer <= s.last), None)

    def span(self, layer: int) -> tuple[int, int]:
        """The layers that work together with this one: those of its stripe, those beside an accelerator, or itself alone."""
        if self.asynchronous and layer in (waits := self.waits()):
            return (layer, waits[layer])
        return self._striped(layer)

    def waits(self) -> dict[int, int]:
        """Layers that only start an accelerator, and the layer before which their results are waited for: one that reads them, or
        that the same accelerator computes; the number of layers stands for the end of the run."""
        if not self.asynchronous:
            return {}
        if self._waits[0] != self.layers:
            self._waits = (list(self.layers), self._find_waits())
        return self._waits[1]

    def _find_waits(self) -> dict[int, int]:
        roots = self.storage_roots()
        found: dict[int, int] = {}
        for index, layer in enumerate(self.layers):
            if layer.kernel.wait is None:
                continue
            made = {roots.get(v, v) for v in layer.node.outputs}
            unit = getattr(layer.node.op, "accelerator", "")
            found[index] = len(self.layers)
            for later in range(index + 1, len(self.layers)):
                node = self.layers[later].node
                same = unit == getattr(node.op, "accelerator", None)
                if same or any(roots.get(v, v) in made for v in [*node.operands(), *node.outputs]):
                    found[index] = self._striped(later)[0]
                    break
        return found

    def storage_roots(self) -> dict[Value, Value]:
        """Everything that lives in the memory of another value, and which one that is."""
        return storage_roots(self.graph, self.choices)

    def storage_pitches(self) -> dict[Value, Pitch]:
        """Values that do not lie in one piece."""
        return storage_pitches(self.graph, self.choices)

    def _striped(self, layer: int) -> tuple[int, int]:
        stripe = self.stripe_at(layer)
        return (layer, layer) if stripe is None else (stripe.first, stripe.last)

    @property
    def stripes_fed(self) -> bool:
        return any(stripe.spec.fed for stripe in self.stripes)

    def window_of(self, value: Value) -> Window | None:
        return next((s.windows[value] for s in self.stripes if value in s.windows), None)

    @property
    def arena_bytes(self) -> int:
        return self.placement.arena_bytes

    @property
    def lower_bound_bytes(self) -> int:
        return self.placement.lower_bound_bytes

    @property
    def arenas(self) -> tuple[Arena, ...]:
        return self.placement.arenas

    @property
    def has_slots(self) -> bool:
        """Inputs and outputs have room in the arena."""
        return any(kind in ("input", "output") for kind, _ in self.placement.slots)

    @property
    def has_addresses(self) -> bool:
        """Everything has one: a person gave them in an IR file, or the memory stage is done."""
        return self.placement.covers([*self.graph.inputs, *(out for node in self.graph.nodes for out in node.outputs)])

    @property
    def optimal(self) -> bool:
        """No plan of the same buffers has a smaller arena."""
        return self.arena_bytes == self.lower_bound_bytes
