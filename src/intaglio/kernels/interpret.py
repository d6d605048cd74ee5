"""Runs a kernel in Python: the definition that compiled code is tested against, for any ISA on any machine."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, assert_never

import numpy as np

from intaglio.ir.graph import Array
from intaglio.ir.types import DType
from intaglio.kernels import loop
from intaglio.kernels.fixed_point_functions import FIXED_POINT
from intaglio.kernels.isa import MEANING, REPEATS, Isa
from intaglio.kernels.loop import (
    Assign,
    Braces,
    Buffer,
    Comment,
    CopyRun,
    Expr,
    Fail,
    For,
    If,
    Kernel,
    Let,
    Load,
    Num,
    Op,
    Place,
    RoutineCall,
    Stmt,
    Store,
    Type,
    Var,
    Verbatim,
    While,
)
from intaglio.kernels.scalar_functions import FUNCTIONS, vector_function
from intaglio.ops.base import f32_to_bf16, widen

_COMPARE = {
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "eq": np.equal,
    "ne": np.not_equal,
}
Scalar = int | float | bool | np.generic | Array


class _Failed(Exception):
    def __init__(self, code: int) -> None:
        self.code = code


def interpret(kernel: Kernel, arrays: Sequence[Array]) -> int:
    """Run on flat arrays, one per parameter, in their order; outputs are written in place. Returns the error code."""
    memory = dict(zip(kernel.params, arrays, strict=True))
    try:
        with np.errstate(all="ignore"):
            if kernel.split is not None:
                _interpret_parts(kernel, kernel.split, memory)
            else:
                _Machine(memory).run(kernel.body)
    except _Failed as failed:
        return failed.code
    return 0


def _interpret_parts(kernel: Kernel, split: loop.Split, memory: dict[Buffer, Array]) -> None:
    """The parts of a step in the order that nobody expects: they may come in any."""
    for step in range(split.steps):
        for part in reversed(range(split.parts)):
            own = {kernel.params[n]: memory[kernel.params[n]].reshape(split.parts, -1)[part] for n in split.own}
            machine = _Machine(memory | own)
            machine.env |= {"part": part, "step": step}
            machine.run(kernel.body)


def numpy_type(type: Type) -> np.dtype[Any]:
    return np.dtype(np.int64) if type.kind == "idx" else DType(type.kind).numpy


class _Machine:
    def __init__(self, memory: dict[Buffer, Array]) -> None:
        self.memory = memory
        self.env: dict[str, Scalar] = {}

    def run(self, body: tuple[Stmt, ...]) -> None:
        for stmt in body:
            match stmt:
                case Let() | Assign():
                    self.env[stmt.var.name] = self.eval(stmt.value)
                case Store():
                    self.store(stmt)
                case For():
                    for i in range(self.index(stmt.start), self.index(stmt.stop), stmt.step):
                        self.env[stmt.var.name] = i
                        self.run(stmt.body)
                case While():
                    while self.eval(stmt.cond):
                        self.run(stmt.body)
                case If():
                    self.run(stmt.then if self.eval(stmt.cond) else stmt.otherwise)
                case Braces():
                    self.run(stmt.body)
                case CopyRun():
                    to, source = self.index(stmt.to_index), self.index(stmt.source_index)
                    assert to >= 0 and to + stmt.count <= self.memory[stmt.to].size, f"{stmt.to.name}[{to}] is outside"
                    assert source >= 0 and source + stmt.count <= self.memory[stmt.source].size, (
                        f"{stmt.source.name}[{source}] is outside"
                    )
                    self.memory[stmt.to][to : to + stmt.count] = self.memory[stmt.source][source : source + stmt.count]
                case RoutineCall():
                    args = [self.place(a) if isinstance(a, Place) else np.asarray(self.eval(a))[()] for a in stmt.args]
                    stmt.routine.meaning(*args)
                case Fail():
                    raise _Failed(stmt.code)
                case Comment():
                    pass
                case Verbatim():
                    raise AssertionError("C of a plug-in is not interpreted: ask its `emulate`")
                case loop.Array() | loop.Barrier():
                    raise AssertionError("a work-group runs in `opencl/interpret.py`")
                case _:
                    assert_never(stmt)

    def place(self, place: Place) -> Array:
        array, at = self.memory[place.buffer], self.index(place.index)
        assert 0 <= at <= array.size, f"{place.buffer.name}[{at}] is outside of {array.size}"
        return array[at:]

    def index(self, expr: Expr) -> int:
        return int(self.eval(expr))

    def store(self, stmt: Store) -> None:
        array, at, lanes = self.memory[stmt.buffer], self.index(stmt.index), stmt.count or stmt.value.type.lanes
        assert at >= 0 and at + lanes <= array.size, f"{stmt.buffer.name}[{at}] is outside of {array.size}"
        value = np.asarray(self.eval(stmt.value))
        array[at : at + lanes] = value[:lanes] if stmt.count else value

    def eval(self, expr: Expr) -> Scalar:
        match expr:
            case Num():
                return int(expr.value) if expr.type.kind == "idx" else np.asarray(expr.value).astype(numpy_type(expr.type))[()]
            case Var():
                return self.env[expr.name]
            case Load():
                array, at, lanes = self.memory[expr.buffer], self.index(expr.index), expr.count or expr.type.lanes
                assert at >= 0 and at + lanes <= array.size, f"{expr.buffer.name}[{at}] is outside of {array.size}"
                if expr.count:
                    part = np.zeros(expr.type.lanes, array.dtype)
                    part[:lanes] = array[at : at + lanes]
                    return part
                return array[at] if lanes == 1 else array[at : at + lanes].copy()
            case Op():
                if expr.op == "select":
                    return self.eval(expr.args[1] if self.eval(expr.args[0]) else expr.args[2])
                if expr.op in ("and", "or"):
                    first = bool(self.eval(expr.args[0]))
                    return first and bool(self.eval(expr.args[1])) if expr.op == "and" else first or bool(self.eval(expr.args[1]))
                return self.apply(expr, [self.eval(a) for a in expr.args])
        raise AssertionError(expr)

    def apply(self, op: Op, args: list[Scalar]) -> Scalar:
        name, to = op.op, op.type
        if name in ("vsplat", "visplat"):
            return np.full(to.lanes, args[0], numpy_type(to))
        if name in REPEATS:
            return np.resize(np.asarray(args[0], numpy_type(to)), to.lanes)
        if name in MEANING:
            return MEANING[name](*args)
        if name == "fma":
            return MEANING["vfma"](*[np.asarray(a) for a in args])[()]
        if name == "cast":
            return _cast(args[0], op.args[0].type, to)
        if name in _COMPARE:
            return np.asarray(_COMPARE[name](np.asarray(args[0]), np.asarray(args[1])))
        if name == "not":
            return not args[0]
        if name.startswith("fn_") and name[3:] in FIXED_POINT:
            exact = [np.asarray(a) if np.asarray(a).dtype.kind == "f" else np.asarray(a, np.int64) for a in args]
            meaning = FIXED_POINT[name[3:]].meaning
            assert meaning is not None, f"{name} is a part of other functions"
            return np.asarray(meaning(*exact)).astype(numpy_type(to))[()]
        if name.startswith("fn_") and name[3:] in FUNCTIONS:
            wide = [np.asarray(a, np.float64) for a in args]
            return np.asarray(FUNCTIONS[name[3:]].meaning(*wide)).astype(numpy_type(to))[()]
        if to.kind == "idx":
            return _index_arithmetic(name, int(args[0]), int(args[1]))
        return _scalar(name, args, numpy_type(to))


def _index_arithmetic(name: str, a: int, b: int) -> int:
    match name:
        case "add":
            return a + b
        case "sub":
            return a - b
        case "mul":
            return a * b
        case "div":
            return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)
        case "mod":
            return a - _index_arithmetic("div", a, b) * b
        case "min":
            return min(a, b)
        case "max":
            return max(a, b)
    raise AssertionError(name)


def _scalar(name: str, args: list[Scalar], dtype: np.dtype[np.generic]) -> Scalar:
    a = np.asarray(args[0], dtype)
    if len(args) == 1:
        unary = {"neg": np.negative, "abs": np.abs, "bit_not": np.invert}
        return unary[name](a)[()]
    b = np.asarray(args[1], dtype)
    if name in ("add", "sub", "mul", "bit_and", "bit_or", "bit_xor"):
        binary = {
            "add": np.add, "sub": np.subtract, "mul": np.multiply,
            "bit_and": np.bitwise_and, "bit_or": np.bitwise_or, "bit_xor": np.bitwise_xor,
        }  # fmt: skip
        return binary[name](a, b)[()]
    if name == "min":
        return (a if a < b else b)[()]
    if name == "max":
        return (a if a > b else b)[()]
    if name == "div" and dtype.kind == "f":
        return (a / b)[()]
    if name in ("div", "mod"):
        if b == 0:
            return dtype.type(0)
        quotient = abs(int(a)) // abs(int(b)) * (1 if (a < 0) == (b < 0) else -1)
        whole = quotient if name == "div" else int(a) - quotient * int(b)
        return np.asarray(whole).astype(dtype)[()]
    if name in ("shift_left", "shift_right"):
        if not 0 <= int(b) < dtype.itemsize * 8:  # what numpy does: everything is shifted out
            return np.asarray(-1 if name == "shift_right" and int(a) < 0 else 0, dtype)
        return (np.left_shift if name == "shift_left" else np.right_shift)(a, b)[()]
    if name == "fn_ipow":
        return np.asarray(int(a) ** int(b) & (2**64 - 1) if int(b) >= 0 else 0).astype(dtype)[()]
    raise AssertionError(name)


def _cast(value: Scalar, source: Type, to: Type) -> Scalar:
    array = np.asarray(value)
    if source.kind in ("f16", "bf16"):
        array = widen(array.reshape(-1), DType(source.kind)).reshape(array.shape)
    if to.kind == "bf16":
        return np.asarray(f32_to_bf16(np.atleast_1d(array.astype(np.float32)))[0])
    if to.kind == "bool":
        return bool(array)
    if to.kind == "idx":
        return int(array)
    dtype = numpy_type(to)
    if array.dtype.kind == "f" and dtype.kind in "iu":  # saturates, NaN is 0
        if np.isnan(array):
            return np.asarray(0, dtype)
        limits = np.iinfo(dtype)
        return np.asarray(min(max(int(np.clip(array, -1e30, 1e30)), limits.min), limits.max), dtype)
    return array.astype(dtype)[()]


class _FunctionMachine(_Machine):
    """Runs vector functions by their bodies, for testing these; kernels get the exact meaning instead."""

    def __init__(self, isa: Isa) -> None:
        super().__init__({})
        self.isa = isa

    def apply(self, op: Op, args: list[Scalar]) -> Scalar:
        if op.op.startswith("fn_"):
            return run_function(op.op[3:], self.isa, np.asarray(args[0]))
        return super().apply(op, args)


def run_function(name: str, isa: Isa, x: Array) -> Array:
    """The body for vectors of a row of `scalar_functions.py`, on one vector."""
    function = vector_function(name, isa)
    machine = _FunctionMachine(isa)
    machine.env[function.param.name] = x
    with np.errstate(all="ignore"):
        machine.run(function.body)
        return np.asarray(machine.eval(function.result))


__all__ = ["Var", "interpret", "run_function"]
