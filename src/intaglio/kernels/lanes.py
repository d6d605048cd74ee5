"""Arithmetic written once for one lane of any type and for a vector of f32.

`Lanes` turns `add`, `max`, `exp`, ... into a scalar primitive (`a + b`, `expf(a)`) or an instruction of the ISA and its vector
functions (`scalar_functions.py`). Elementwise rows (`expressions.py`) and epilogues are written against it.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass

from intaglio.ir.types import DType
from intaglio.kernels.isa import ISAS, Isa
from intaglio.kernels.loop import Buffer, Expr, Load, Num, Op, Operand, Type, cast, idx

MASK = "mask"
INSTRUCTIONS = frozenset({"sqrt", "floor", "ceil", "round"})  # functions that every vector unit has: `vsqrt`


@dataclass(frozen=True, slots=True)
class Lanes:
    """`kind` is the element type computed in; more than one lane means f32. `left`: loads take only so many lanes, which a size
    of the caller says: from 1 to all but one."""

    isa: Isa
    lanes: int = 1
    kind: str = "f32"
    left: Expr | None = None

    @staticmethod
    def scalar(kind: str = "f32") -> Lanes:
        return Lanes(ISAS["scalar"], 1, kind)

    @property
    def type(self) -> Type:
        return Type(self.kind, self.lanes)

    @property
    def dtype(self) -> DType:
        return DType(self.kind)

    @property
    def vector(self) -> bool:
        return self.lanes > 1

    @property
    def is_float(self) -> bool:
        return self.kind in ("f32", "f64")

    def const(self, value: float) -> Expr:
        if self.vector:
            return Op("vsplat", (Num(float(value), Type("f32")),), self.type)
        return Num(float(value) if self.is_float else value, self.type)

    def splat(self, value: Expr) -> Expr:
        return Op("vsplat", (value,), self.type) if self.vector else value

    def load(self, buffer: Buffer, index: Operand, count: int = 0) -> Expr:
        """Load in the type of the arithmetic: f16 and bf16 are widened. `count` lanes only, if given."""
        stored, count = Type(buffer.dtype.value, self.lanes), operator.index(count)  # lanes are never a size of the caller
        count = count if self.left is None else self.lanes - 1
        return cast(Load(buffer, idx(index), stored, 0 if count == self.lanes else count, self.left), self.type)

    def _binary(self, name: str, a: Expr, b: Expr) -> Expr:
        return Op(("v" if self.vector else "") + name, (a, b), self.type)

    def _unary(self, name: str, a: Expr) -> Expr:
        return Op(("v" if self.vector else "") + name, (a,), self.type)

    def add(self, a: Expr, b: Expr) -> Expr:
        return self._binary("add", a, b)

    def sub(self, a: Expr, b: Expr) -> Expr:
        return self._binary("sub", a, b)

    def mul(self, a: Expr, b: Expr) -> Expr:
        return self._binary("mul", a, b)

    def div(self, a: Expr, b: Expr) -> Expr:
        return self._binary("div", a, b)

    def fma(self, a: Expr, b: Expr, c: Expr) -> Expr:
        """a * b + c, rounded once where the hardware does."""
        if self.vector:
            return Op("vfma", (a, b, c), self.type)
        if self.isa.fused and self.kind == "f32":
            return Op("fma", (a, b, c), self.type)
        return Op("add", (Op("mul", (a, b), self.type), c), self.type)

    def lowest(self, a: Expr, b: Expr) -> Expr:
        """min; `b` when one is not a number."""
        return self._binary("min", a, b)

    def highest(self, a: Expr, b: Expr) -> Expr:
        """max; `b` when one is not a number."""
        return self._binary("max", a, b)

    def neg(self, a: Expr) -> Expr:
        return self._unary("neg", a)

    def abs(self, a: Expr) -> Expr:
        return self._unary("abs", a)

    def compare(self, op: str, a: Expr, b: Expr) -> Expr:
        """lt, le, gt, ge, eq, ne: a condition for `choose`."""
        if self.vector:
            return Op("v" + op, (a, b), Type(MASK, self.lanes))
        return Op(op, (a, b), Type("bool"))

    def choose(self, cond: Expr, a: Expr, b: Expr) -> Expr:
        return Op("vblend" if self.vector else "select", (cond, a, b), a.type)

    def call(self, name: str, *args: Expr) -> Expr:
        """A function of `scalar_functions.py`, or the instruction that computes it."""
        if self.vector and name in INSTRUCTIONS:
            return Op("v" + name, args, self.type)
        return Op(f"fn_{name}", args, self.type)
