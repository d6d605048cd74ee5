"""One node to lower, and what a kernel for it is made of: operands, packed constants, working memory.

    def softmax(job: Job) -> Lowered: ...            a builder: writes the loops of one kernel
    Choice("softmax", always, softmax)               a row of the table in `choice.py`

A `Choice` says whether its kernel applies before anything is built. What both `applies` and `build` need to know is a `fact`:
computed once per node.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TypeVar

from intaglio.errors import OurFault
from intaglio.ir.graph import Array, Node, Value
from intaglio.ir.sizes import Size, most
from intaglio.ir.types import DType, TensorType
from intaglio.kernels.accesses import everything, expressions_of, loads_in, written_in
from intaglio.kernels.builder import Builder
from intaglio.kernels.isa import ISAS, Isa
from intaglio.kernels.lanes import Lanes
from intaglio.kernels.loop import PART, SIZE, Buffer, CopyRun, Expr, Kernel, RoutineCall, Split, Stmt, Verbatim, idx, imin
from intaglio.kernels.scalars import write_scalars
from intaglio.kernels.unused import drop_unused, needed_names
from intaglio.targets import Target
from intaglio.targets.roofline import roofline

T = TypeVar("T")
LEAST_SHARED = 1000  # products, or results, of a layer that two cores of a board compute: a hand-over takes 100 to 200 cycles


@dataclass(frozen=True, slots=True)
class Packed:
    """A constant in the order in which the kernel reads it."""

    data: Array
    dtype: DType


@dataclass(frozen=True, slots=True)
class Scratch:
    """Working memory. `own`: no round of a loop around its use finds what another wrote there, so threads may each have a piece
    of it; `each` is the size of a piece where they do."""

    bytes: int
    own: bool = False
    each: int = 0


Source = Value | Packed | Scratch


@dataclass(slots=True)
class Lowered:
    kernel: Kernel
    arguments: list[Source]
    using: str


@dataclass(slots=True)
class Job:
    """One node to lower. `asked` is what an edited IR file says after `using`."""

    node: Node
    target: Target
    asked: str = ""
    k: Builder = field(default_factory=Builder)
    params: list[Buffer] = field(default_factory=list)
    arguments: list[Source] = field(default_factory=list)
    facts: dict[object, object] = field(default_factory=dict)
    split: Split | None = None  # how the builder itself divides the kernel among threads

    def fresh(self) -> Job:
        """The same node for the next builder: nothing written, facts kept."""
        return replace(self, k=Builder(), params=[], arguments=[], split=None)

    def without_asking(self) -> Job:
        """The same node, as if no IR file asked for a kernel."""
        return replace(self, asked="")

    @property
    def isa(self) -> Isa:
        return ISAS[self.target.isa]

    @property
    def vector(self) -> Lanes:
        return Lanes(self.isa, self.isa.lanes)

    @property
    def one(self) -> Lanes:
        return Lanes.scalar()

    def type(self, i: int) -> TensorType:
        value = self.node.inputs[i]
        assert value is not None
        return value.type

    def optional(self, i: int) -> Value | None:
        return self.node.inputs[i] if i < len(self.node.inputs) else None

    def reads(self, value: Value | None, name: str) -> Buffer:
        assert value is not None
        return self._param(name, value.dtype, True, value)

    def bytes_of(self, value: Value | None, name: str, *, const: bool = True) -> Buffer:
        """A value as the bytes that it is."""
        assert value is not None
        return self._param(name, DType.U8, const, value)

    def operand(self, i: int, name: str) -> Buffer:
        return self.reads(self.node.inputs[i], name)

    def writes(self, i: int = 0, name: str = "y") -> Buffer:
        out = self.node.outputs[i]
        return self._param(name, out.dtype, False, out)

    def packed(self, data: Array, name: str, dtype: DType | None = None) -> Buffer:
        return self._param(name, dtype or DType.of(data), True, Packed(data, dtype or DType.of(data)))

    def scratch(self, elements: int, name: str = "scratch", dtype: DType = DType.F32, *, own: bool = False) -> Buffer:
        return self._param(name, dtype, False, Scratch(most(elements) * dtype.bytes, own))

    def share(self, name: str, count: int, group: int, least: int = 0) -> tuple[Expr, Expr]:
        """From where to where a kernel goes of `count` things: all of them, or where several threads compute it the groups of its
        part. For loops over blocks, which are cut where a thread's share ends, and for those that no proof can see through.
        `least`: what each part needs, or there is only one."""
        threads, groups = self.target.threads, -(-count // group)
        if not self.is_shared(count, group, least):
            return idx(0), idx(count)
        self.split = Split(threads, 1, (), (name,), -(-groups // threads) * threads / groups)
        self.k.reserve("part")
        low, high = ((part * groups // threads) * group for part in (PART, PART + 1))
        return self.k.let("low", low), self.k.let("high", imin(count, high))

    def is_shared(self, count: int, group: int, least: int = 0) -> bool:
        """Do several threads compute a kernel with so many things? Cores of a board only where it has enough for both to do."""
        if self.target.threads == 1 or not self.target.bare:
            return self.target.threads > 1
        out = self.node.output.type
        types = [None if v is None else v.type for v in self.node.inputs]
        work = max(most(self.node.op.macs(types, out)), most(out.elements))
        threads, groups = self.target.threads, -(-count // group)
        last = count - groups * (threads - 1) // threads * group
        return groups >= threads and last >= least and work >= LEAST_SHARED

    @property
    def last_part(self) -> Expr | None:
        """Is this the part that does what is left over? None: there are no parts."""
        return None if self.split is None else PART.compare("eq", self.split.parts - 1)

    def _param(self, name: str, dtype: DType, const: bool, source: Source) -> Buffer:
        buffer = Buffer(name, dtype, const)
        self.k.reserve(name)
        self.params.append(buffer)
        self.arguments.append(source)
        return buffer

    def _written(self) -> tuple[tuple[Stmt, ...], set[Buffer]]:
        """The statements, with constants of one element as numbers; and the parameters that are not needed any more. A device keeps
        them all: its programs are stored, and shared by layers that differ in such a number."""
        if self.target.device:
            return self.k.body(), set()
        held = zip(self.params, self.arguments, strict=True)
        return write_scalars(self.k.body(), {p: a.data for p, a in held if not isinstance(a, Scratch) and a.data is not None})

    def done(self, stem: str, about: str, using: str = "", in_place: bool = False, over: Buffer | None = None) -> Lowered:
        """`over`: the one parameter whose memory the result may take."""
        body, written = self._written()
        kept = [n for n, param in enumerate(self.params) if param not in written]
        self.params, self.arguments = [self.params[n] for n in kept], [self.arguments[n] for n in kept]
        body = drop_unused(body)
        self._check_scratch(body)
        kernel = Kernel(
            stem,
            tuple(self.params),
            body,
            about,
            in_place=in_place or over is not None,
            over=-1 if over is None else self.params.index(over),
            fallible=self.k.fallible,
            isa=self.target.isa,
            sizes=tuple(sorted(n for n in needed_names(body) if n.startswith(SIZE))),
            split=self._own_memory(),
        )
        return Lowered(kernel, self.arguments, using or stem)

    def _check_scratch(self, body: tuple[Stmt, ...]) -> None:
        """Working memory that is read but never written would make results of whatever is there."""
        own = {p for p, source in zip(self.params, self.arguments, strict=True) if isinstance(source, Scratch)}
        if not own:
            return
        read: set[Buffer] = set()
        for stmt in everything(body):
            if isinstance(stmt, RoutineCall | Verbatim):
                return  # what these write is their own matter
            read |= {load.buffer for expr in expressions_of(stmt) for load in loads_in(expr)}
            read |= {stmt.source} if isinstance(stmt, CopyRun) else set()
        if never := sorted(b.name for b in (read & own) - written_in(body)):
            raise OurFault("unwritten-scratch", f"a kernel reads `{never[0]}` without writing it")

    def _own_memory(self) -> Split | None:
        """With the working memory that each part has itself."""
        own = (n for n, source in enumerate(self.arguments) if isinstance(source, Scratch) and source.own)
        return None if self.split is None else replace(self.split, own=tuple(own))



def stem(name: str, *sizes: int) -> str:
    """The name of a kernel for these sizes: `matmul_6_64_10`, with a letter where the caller gives one."""
    return "_".join([name, *("n" if isinstance(size, Size) else str(size) for size in sizes)])


def same_memory(lowered: Lowered, node: Node) -> dict[Buffer, Buffer]:
    """Operands that may share the memory of the result."""
    kernel = lowered.kernel
    if not kernel.in_place:
        return {}
    results = [p for p, a in zip(kernel.params, lowered.arguments, strict=True) if isinstance(a, Value) and a in node.outputs]
    if not results:
        return {}
    room = node.output.type.bytes
    found: dict[Buffer, Buffer] = {}
    for n, (param, source) in enumerate(zip(kernel.params, lowered.arguments, strict=True)):
        fits = isinstance(source, Value) and source.data is None and source.type.bytes == room and param.const
        if fits and kernel.over in (-1, n):
            found[param] = results[0]
    return found


def _roofline_us(job: Job) -> float:
    return roofline(job.node, job.target).time_us / job.target.threads


Applies = Callable[[Job], str | None]
Build = Callable[[Job], Lowered]


@dataclass(frozen=True, slots=True)
class Choice:
    """One way to compute an operator. `applies` returns None, or the reason why this kernel cannot be used here. `why` says what
    speaks for it where it is used; most need not say."""

    name: str
    applies: Applies
    build: Build
    why: Callable[[Job], str] = lambda _: ""
    ways: Callable[[Job], list[str]] | None = None  # all that are possible, as in `using`, the usual first; None: one
    estimate: Callable[[Job], float] = _roofline_us  # microseconds, of the way that is asked for


def always(_: Job) -> str | None:
    return None


def fact(compute: Callable[[Job], T]) -> Callable[[Job], T]:
    """What is known about a node, computed once however many kernels ask."""

    def known(job: Job) -> T:
        if compute not in job.facts:
            job.facts[compute] = compute(job)
        found: T = job.facts[compute]  # type: ignore[assignment]
        return found

    known.__doc__ = compute.__doc__
    return known


def unless(known: Callable[[Job], object]) -> Applies:
    """Whether a kernel applies, by a fact that is either what the kernel needs or the reason, a text, why it cannot be used."""

    def applies(job: Job) -> str | None:
        found = known(job)
        return found if isinstance(found, str) else None

    return applies
