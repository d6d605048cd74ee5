"""Loop IR: what a kernel is before it is C. Small, typed, and simplified while it is built.

    kernel relu_64(x: f32*, y: f32*)          Builder:
      for i in 0..64 step 8:                     with k.loop("i", 0, 64, 8) as i:
        v: f32x8 = x[i..]                            v = k.let("v", k.load(x, i, 8))
        y[i..] = max(0, v)                           k.store(y, i, vmax(k.splat(0.0), v))

Expressions carry their type; Python's operators build them and fold constants at once, so index arithmetic comes out short.
A loop with one iteration disappears, one with none takes its body along. The interpreter (`interpret.py`) runs kernels in
Python, the printer (`c_printer.py`) writes them as C99.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Union

from intaglio.ir.formulas import Formula
from intaglio.ir.sizes import Size
from intaglio.ir.types import DType

if TYPE_CHECKING:
    from intaglio.kernels.opencl.launch import Variant
    from intaglio.kernels.routines import Routine


@dataclass(frozen=True, slots=True)
class Type:
    """`kind` is a DType's text (`f32`, `u8`, ...) or `idx`, the type of indices (ptrdiff_t)."""

    kind: str
    lanes: int = 1

    def __str__(self) -> str:
        return self.kind if self.lanes == 1 else f"{self.kind}x{self.lanes}"


IDX = Type("idx")
F32 = Type("f32")
BOOL = Type("bool")


def type_of(dtype: DType) -> Type:
    return Type(dtype.value)


@dataclass(frozen=True, slots=True)
class Buffer:
    """A pointer parameter of the kernel; or an array of the work-group (`local`) or of one work-item (`private`) inside of it."""

    name: str
    dtype: DType
    const: bool = True
    space: str = ""


# Expressions ------------------------------------------------------------------------------------------------------------


class Expr:
    """Base of expressions; operators build and fold."""

    __slots__ = ()
    type: Type

    def __add__(self, other: Operand) -> Expr:
        return arith("add", self, as_expr(other, self.type))

    def __radd__(self, other: Operand) -> Expr:
        return arith("add", as_expr(other, self.type), self)

    def __sub__(self, other: Operand) -> Expr:
        return arith("sub", self, as_expr(other, self.type))

    def __rsub__(self, other: Operand) -> Expr:
        return arith("sub", as_expr(other, self.type), self)

    def __mul__(self, other: Operand) -> Expr:
        return arith("mul", self, as_expr(other, self.type))

    def __rmul__(self, other: Operand) -> Expr:
        return arith("mul", as_expr(other, self.type), self)

    def __floordiv__(self, other: Operand) -> Expr:
        """Truncating division; indices are not negative, so it is floor there."""
        return arith("div", self, as_expr(other, self.type))

    def __mod__(self, other: Operand) -> Expr:
        return arith("mod", self, as_expr(other, self.type))

    def compare(self, op: str, other: Operand) -> Expr:
        return Op(op, (self, as_expr(other, self.type)), Type("bool", self.type.lanes))


@dataclass(frozen=True, slots=True)
class Num(Expr):
    value: int | float
    type: Type = IDX


@dataclass(frozen=True, slots=True)
class Var(Expr):
    name: str
    type: Type


@dataclass(frozen=True, slots=True)
class Load(Expr):
    """`count` lanes are read where it is not 0; the others are 0.0. Only `left` of these, where it is given: at least 1."""

    buffer: Buffer
    index: Expr
    type: Type
    count: int = 0
    left: Union[Expr, None] = None


@dataclass(frozen=True, slots=True)
class Op(Expr):
    """`op` is a scalar primitive (add, lt, select, cast, ...), an instruction of the ISA (vfma, ...), or a function."""

    op: str
    args: tuple[Expr, ...]
    type: Type


Operand = Union[Expr, int, float]


def as_expr(value: Operand, type: Type = IDX) -> Expr:
    if isinstance(value, Expr):
        return value
    if isinstance(value, Size):
        return cast(of_formula(value.formula), type)
    return Num(value, type)


SIZE = "size_"  # what the parameter of a size of the caller starts with


def of_formula(formula: Formula) -> Expr:
    """A size in terms of those that the caller gives, which are parameters of the kernel."""
    if formula.op == "size":
        return Var(SIZE + formula.name, IDX)
    if formula.op == "num":
        return Num(formula.number)
    a, b = (of_formula(arg) for arg in formula.args)
    return arith(formula.op, a, b)


def idx(value: Operand) -> Expr:
    return as_expr(value, IDX)


_FOLD: dict[str, Callable[[int, int], int]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "div": lambda a, b: a // b,
    "mod": lambda a, b: a % b,
    "min": min,
    "max": max,
}


def arith(op: str, a: Expr, b: Expr) -> Expr:
    """A binary operation, simplified when it is index arithmetic."""
    if a.type != IDX or b.type != IDX:
        return Op(op, (a, b), a.type)
    if isinstance(a, Num) and isinstance(b, Num) and not (op in ("div", "mod") and b.value == 0):
        return Num(_FOLD[op](int(a.value), int(b.value)))
    if op == "add":
        if isinstance(a, Num):
            a, b = b, a
        if isinstance(b, Num):
            if b.value == 0:
                return a
            if isinstance(a, Op) and a.op == "add" and isinstance(a.args[1], Num):
                return arith("add", a.args[0], Num(int(a.args[1].value) + int(b.value)))
            if isinstance(a, Op) and a.op == "sub" and isinstance(a.args[1], Num):
                return arith("add", a.args[0], Num(int(b.value) - int(a.args[1].value)))
            if b.value < 0:
                return Op("sub", (a, Num(-int(b.value))), IDX)
        elif isinstance(a, Op) and a.op == "add" and isinstance(a.args[1], Num):  # (x + 3) + y -> (x + y) + 3
            return arith("add", arith("add", a.args[0], b), a.args[1])
        elif isinstance(b, Op) and b.op == "add" and isinstance(b.args[1], Num):
            return arith("add", arith("add", a, b.args[0]), b.args[1])
    elif op == "sub" and isinstance(b, Num):
        if b.value == 0:
            return a
        return arith("add", a, Num(-int(b.value)))
    elif op == "mul":
        if isinstance(a, Num):
            a, b = b, a
        if isinstance(b, Num):
            if b.value in (0, 1):
                return a if b.value else Num(0)
            if isinstance(a, Op) and a.op == "mul" and isinstance(a.args[1], Num):
                return arith("mul", a.args[0], Num(int(a.args[1].value) * int(b.value)))
            if isinstance(a, Op) and a.op == "add" and isinstance(a.args[1], Num):
                return arith("add", arith("mul", a.args[0], b), Num(int(a.args[1].value) * int(b.value)))
    elif op == "div" and isinstance(b, Num) and b.value == 1:
        return a
    elif op == "mod" and isinstance(b, Num) and b.value == 1:
        return Num(0)
    return Op(op, (a, b), IDX)


def imin(a: Operand, b: Operand) -> Expr:
    return arith("min", idx(a), idx(b))


def imax(a: Operand, b: Operand) -> Expr:
    return arith("max", idx(a), idx(b))


def select(cond: Expr, a: Expr, b: Expr) -> Expr:
    return Op("select", (cond, a, b), a.type)


def cast(value: Expr, to: Type) -> Expr:
    return value if value.type == to else Op("cast", (value,), to)


def both(a: Expr, b: Expr) -> Expr:
    return Op("and", (a, b), BOOL)


def either(a: Expr, b: Expr) -> Expr:
    return Op("or", (a, b), BOOL)


# Statements -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Let:
    """Declares a variable; `mutable` ones may be assigned later."""

    var: Var
    value: Expr
    mutable: bool = False


@dataclass(frozen=True, slots=True)
class Assign:
    var: Var
    value: Expr


@dataclass(frozen=True, slots=True)
class Store:
    """Writes all lanes, or the first `count`; only `left` of these, where it is given: at least 1."""

    buffer: Buffer
    index: Expr
    value: Expr
    count: int = 0
    left: Union[Expr, None] = None


@dataclass(frozen=True, slots=True)
class For:
    var: Var
    start: Expr
    stop: Expr
    step: int
    body: tuple[Stmt, ...]
    rolled: bool = False  # a compiler must not unroll it: on small cores, where code counts more


@dataclass(frozen=True, slots=True)
class While:
    cond: Expr
    body: tuple[Stmt, ...]


@dataclass(frozen=True, slots=True)
class If:
    cond: Expr
    then: tuple[Stmt, ...]
    otherwise: tuple[Stmt, ...] = ()


@dataclass(frozen=True, slots=True)
class Braces:
    """A scope of its own, so that short names can be used again."""

    body: tuple[Stmt, ...]


@dataclass(frozen=True, slots=True)
class Comment:
    text: str


@dataclass(frozen=True, slots=True)
class CopyRun:
    """Neighbouring elements from one buffer to another of the same type, which do not overlap."""

    to: Buffer
    to_index: Expr
    source: Buffer
    source_index: Expr
    count: int


@dataclass(frozen=True, slots=True)
class Prefetch:
    """Asks for the line of memory that holds an element, which is read later. Changes nothing."""

    buffer: Buffer
    index: Expr


@dataclass(frozen=True, slots=True)
class Reload:
    """What is in memory is read again behind this. A compiler that holds it in registers for a whole loop spills sums for that."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where in a buffer: an argument of a `Call`. What the routine touches there, where the builder tells: `count` elements, in
    each of `rows` that are `pitch` apart; all of the buffer where it does not."""

    buffer: Buffer
    index: Expr
    count: Union[Expr, None] = None
    rows: Union[Expr, None] = None
    pitch: int = 0


@dataclass(frozen=True, slots=True)
class RoutineCall:
    """A call of code that several kernels share, with its own text in C and its own meaning in numpy."""

    routine: Routine
    args: tuple[Union[Place, Expr], ...]


@dataclass(frozen=True, slots=True)
class Verbatim:
    """Lines of C that an accelerator's plug-in wrote. They name the kernel's parameters; the interpreter does not know them."""

    lines: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Fail:
    """Leave the kernel with an error code: an index that points outside."""

    code: int


@dataclass(frozen=True, slots=True)
class Array:
    """Declares a `local` or `private` buffer: a few numbers on the stack, and the memory of a work-group (kernels/opencl)."""

    buffer: Buffer
    size: int


@dataclass(frozen=True, slots=True)
class Barrier:
    """All work-items of a group get here, and see what the others wrote, before one goes on (kernels/opencl)."""


Stmt = Union[
    Let, Assign, Store, For, While, If, Braces, Comment,
    CopyRun, Prefetch, Reload, RoutineCall, Fail, Verbatim, Array, Barrier,
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Touched:
    """Elements of a parameter that one part reads or writes: `count` from `at` on, in each of `rows` that are `pitch` apart."""

    part: int
    param: int
    at: int
    count: int
    rows: int
    pitch: int
    writes: bool


@dataclass(frozen=True, slots=True)
class Split:
    """How a kernel is divided among threads: it is called for each part of a step, and steps come one after the other. `own` are
    the positions of parameters that are another piece of working memory for each part."""

    parts: int
    steps: int
    own: tuple[int, ...]
    loops: tuple[str, ...]  # whose rounds are divided
    balance: float  # the work of the part that does most, times parts, of all work
    touched: tuple[Touched, ...] = ()  # by parts that no proof has divided, for the check of the plan


@dataclass(slots=True)
class Kernel:
    """One C function. `name` is given when the program is put together; equal kernels share one."""

    stem: str
    params: tuple[Buffer, ...]
    body: tuple[Stmt, ...]
    about: str  # the header comment: operator, shapes, tile
    in_place: bool = False  # may the output be the same memory as an operand of its shape?
    over: int = -1  # which parameter alone may be that; -1: any
    fallible: bool = False
    name: str = ""
    used_by: list[str] = field(default_factory=list)
    isa: str = "scalar"
    includes: tuple[str, ...] = ()  # headers of an accelerator
    wait: Kernel | None = None  # then this one only starts the work, on the same arguments
    variants: tuple[Variant, ...] = ()  # ways to compute it on an OpenCL device; it runs there then, and has no body
    sizes: tuple[str, ...] = ()  # of the caller, which the body needs: its last parameters
    split: Split | None = None  # several threads compute it; the body names `part`, and `step` where there are several
    pitches: tuple[tuple[int, int, int], ...] = ()  # parameters that are rows of wider tensors: which, elements in a row, and apart
    printed: object = field(default=None, compare=False, repr=False)  # the text of the body, kept by `c_printer`


PART, STEP = Var("part", IDX), Var("step", IDX)  # parameters of a kernel that is divided over threads
INDEX_OUT_OF_RANGE = 1
ASSERTION_FAILED = 2
SIZE_OUT_OF_BOUNDS = 3
