"""Runs a kernel in Python: the definition that compiled code is tested against, for any ISA on any machine."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
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
Number = int | float | bool | np.integer[Any]
Code = Callable[["_Machine"], Scalar]
Act = Callable[["_Machine"], None]


@dataclass(slots=True)
class Codes:
    """What expressions and statements compute, by their `id`; they outlive it."""

    codes: dict[int, Code] = field(default_factory=dict)
    acts: dict[int, Act] = field(default_factory=dict)


class _Failed(Exception):
    def __init__(self, code: int) -> None:
        self.code = code


def interpret(kernel: Kernel, arrays: Sequence[Array], sizes: Mapping[str, int] | None = None) -> int:
    """Run on flat arrays, one per parameter, in their order; outputs are written in place. `sizes` are those of the caller, by
    name. Returns the error code."""
    memory = dict(zip(kernel.params, arrays, strict=True))
    try:
        with np.errstate(all="ignore"):
            if kernel.split is not None:
                _interpret_parts(kernel, kernel.split, memory)
            else:
                machine = _Machine(memory)
                machine.env |= {loop.SIZE + name: size for name, size in (sizes or {}).items()}
                machine.run(kernel.body)
    except _Failed as failed:
        return failed.code
    return 0


def _interpret_parts(kernel: Kernel, split: loop.Split, memory: dict[Buffer, Array]) -> None:
    """The parts of a step in the order that nobody expects: they may come in any."""
    codes = Codes()
    for step in range(split.steps):
        for part in reversed(range(split.parts)):
            own = {kernel.params[n]: memory[kernel.params[n]].reshape(split.parts, -1)[part] for n in split.own}
            machine = _Machine(memory | own, codes)
            machine.env |= {"part": part, "step": step}
            machine.run(kernel.body)


@cache
def numpy_type(type: Type) -> np.dtype[Any]:
    return np.dtype(np.int64) if type.kind == "idx" else DType(type.kind).numpy


class _Machine:
    """Machines of the same body may share `codes`."""

    def __init__(self, memory: dict[Buffer, Array], codes: Codes | None = None) -> None:
        self.memory = memory
        self.env: dict[str, Scalar] = {}
        self.codes = Codes() if codes is None else codes

    def run(self, body: tuple[Stmt, ...]) -> None:
        for stmt in body:
            self.act(stmt)(self)

    def act(self, stmt: Stmt) -> Act:
        act = self.codes.acts.get(id(stmt))
        if act is None:
            act = self.codes.acts[id(stmt)] = self.action(stmt)
        return act

    def actions(self, body: tuple[Stmt, ...]) -> Act:
        acts = [self.act(stmt) for stmt in body]

        def all_of_them(machine: _Machine) -> None:
            for act in acts:
                act(machine)

        return acts[0] if len(acts) == 1 else all_of_them

    def action(self, stmt: Stmt) -> Act:
        """What a statement does, with all decided that does not depend on a machine."""
        match stmt:
            case Let() | Assign():
                return _assigns(stmt.var.name, self.code(stmt.value))
            case Store():
                return self.stores(stmt)
            case For():
                return _counts(stmt.var.name, self.code(stmt.start), self.code(stmt.stop), stmt.step, self.actions(stmt.body))
            case While():
                return _repeats(self.code(stmt.cond), self.actions(stmt.body))
            case If():
                return _decides(self.code(stmt.cond), self.actions(stmt.then), self.actions(stmt.otherwise))
            case Braces():
                return self.actions(stmt.body)
            case CopyRun():
                return lambda machine: machine.copy(stmt)
            case RoutineCall():
                return lambda machine: machine.call(stmt)
            case Fail():
                return lambda machine: machine.fail(stmt)
            case Comment() | loop.Prefetch() | loop.Reload():
                return lambda machine: None
            case Verbatim():
                raise AssertionError("C of a plug-in is not interpreted: ask its `emulate`")
            case loop.Array():
                return lambda machine: machine.memory.update({stmt.buffer: np.zeros(stmt.size, stmt.buffer.dtype.numpy)})
            case loop.Barrier():
                raise AssertionError("a work-group runs in `opencl/interpret.py`")
            case _:
                assert_never(stmt)

    def copy(self, stmt: CopyRun) -> None:
        to, source = self.index(stmt.to_index), self.index(stmt.source_index)
        assert to >= 0 and to + stmt.count <= self.memory[stmt.to].size, f"{stmt.to.name}[{to}] is outside"
        assert source >= 0 and source + stmt.count <= self.memory[stmt.source].size, f"{stmt.source.name}[{source}] is outside"
        self.memory[stmt.to][to : to + stmt.count] = self.memory[stmt.source][source : source + stmt.count]

    def call(self, stmt: RoutineCall) -> None:
        args = [self.place(a) if isinstance(a, Place) else np.asarray(self.eval(a))[()] for a in stmt.args]
        stmt.routine.meaning(*args)

    def fail(self, stmt: Fail) -> None:
        raise _Failed(stmt.code)

    def place(self, place: Place) -> Array:
        array, at = self.memory[place.buffer], self.index(place.index)
        assert 0 <= at <= array.size, f"{place.buffer.name}[{at}] is outside of {array.size}"
        return array[at:]

    def index(self, expr: Expr) -> int:
        return int(self.eval(expr))

    def stores(self, stmt: Store) -> Act:
        buffer, lanes, some = stmt.buffer, stmt.count or stmt.value.type.lanes, stmt.count
        index, value, left = self.code(stmt.index), self.code(stmt.value), self.left(stmt)

        def store_left(machine: _Machine) -> None:
            array, at, some = machine.memory[buffer], int(index(machine)), left(machine)
            assert at >= 0 and at + some <= array.size, f"{buffer.name}[{at}] is outside of {array.size}"
            array[at : at + some] = np.asarray(value(machine))[:some]

        def store(machine: _Machine) -> None:
            array, at = machine.memory[buffer], int(index(machine))
            assert at >= 0 and at + lanes <= array.size, f"{buffer.name}[{at}] is outside of {array.size}"
            stored = value(machine)
            if lanes == 1 and not some:
                array[at] = stored if isinstance(stored, np.generic) else np.asarray(stored).reshape(())
            else:
                array[at : at + lanes] = np.asarray(stored)[:lanes] if some else stored

        return store if stmt.left is None else store_left

    def left(self, part: Load | Store) -> Callable[[_Machine], int]:
        """How many lanes a load or a store takes: at least one, and not all."""
        code, count = None if part.left is None else self.code(part.left), part.count

        def number(machine: _Machine) -> int:
            some = count if code is None else int(code(machine))
            assert 0 < some <= count, f"{part.buffer.name}: {some} lanes of {count}"
            return some

        return number

    def eval(self, expr: Expr) -> Scalar:
        code = self.codes.codes.get(id(expr))
        if code is None:
            code = self.codes.codes[id(expr)] = self.code(expr)
        return code(self)

    def code(self, expr: Expr) -> Code:
        """What computes an expression, with all decided that does not depend on a machine: most are in a loop."""
        match expr:
            case Num():
                number = int(expr.value) if expr.type.kind == "idx" else np.asarray(expr.value).astype(numpy_type(expr.type))[()]
                return lambda machine: number
            case Var():
                name = expr.name
                return lambda machine: machine.env[name]
            case Load():
                return self.load(expr)
            case Op():
                return self.operation(expr, [self.code(a) for a in expr.args])
        raise AssertionError(expr)

    def load(self, expr: Load) -> Code:
        buffer, at_code, lanes, all_lanes = expr.buffer, self.code(expr.index), expr.count or expr.type.lanes, expr.type.lanes
        some, left = expr.count > 0, self.left(expr)

        def loaded_left(machine: _Machine) -> Scalar:
            array, at, some = machine.memory[buffer], int(at_code(machine)), left(machine)
            assert at >= 0 and at + some <= array.size, f"{buffer.name}[{at}] is outside of {array.size}"
            part = np.zeros(all_lanes, array.dtype)
            part[:some] = array[at : at + some]
            return part

        def loaded(machine: _Machine) -> Scalar:
            array, at = machine.memory[buffer], int(at_code(machine))
            assert at >= 0 and at + lanes <= array.size, f"{buffer.name}[{at}] is outside of {array.size}"
            if some:
                part = np.zeros(all_lanes, array.dtype)
                part[:lanes] = array[at : at + lanes]
                return part
            return array[at] if lanes == 1 else array[at : at + lanes].copy()

        return loaded if expr.left is None else loaded_left

    def operation(self, op: Op, args: list[Code]) -> Code:
        if op.op == "select":
            condition, first, second = args
            return lambda machine: (first if condition(machine) else second)(machine)
        if op.op in ("and", "or"):
            first, second = args
            if op.op == "and":
                return lambda machine: bool(first(machine)) and bool(second(machine))
            return lambda machine: bool(first(machine)) or bool(second(machine))
        meaning = self.meaning(op)
        if len(args) == 1:
            (one,) = args
            return lambda machine: meaning(one(machine))
        if len(args) == 2:
            left, right = args
            return lambda machine: meaning(left(machine), right(machine))
        return lambda machine: meaning(*[a(machine) for a in args])

    def meaning(self, op: Op) -> Callable[..., Scalar]:
        """A function of the values of the operands."""
        name, to = op.op, op.type
        if name in ("vsplat", "visplat"):
            return lambda a: np.full(to.lanes, a, numpy_type(to))
        if name in REPEATS:
            return lambda a: np.resize(np.asarray(a, numpy_type(to)), to.lanes)
        if name in MEANING:
            return MEANING[name]
        if name == "fma":
            return lambda *args: MEANING["vfma"](*[np.asarray(a) for a in args])[()]
        if name == "cast":
            return partial(_cast, source=op.args[0].type, to=to)
        if name in _COMPARE:
            compare = _COMPARE[name]
            return lambda a, b: np.asarray(compare(np.asarray(a), np.asarray(b)))
        if name == "not":
            return lambda a: not a
        dtype = numpy_type(to)
        if name.startswith("fn_") and name[3:] in FIXED_POINT:
            return partial(_fixed_point, name, dtype)
        if name.startswith("fn_") and name[3:] in FUNCTIONS:
            function = FUNCTIONS[name[3:]].meaning
            return lambda *args: np.asarray(function(*[np.asarray(a, np.float64) for a in args])).astype(dtype)[()]
        return _INDEX_ARITHMETIC[name] if to.kind == "idx" else _scalar(name, dtype)


def _assigns(name: str, value: Code) -> Act:
    def act(machine: _Machine) -> None:
        machine.env[name] = value(machine)

    return act


def _counts(name: str, start: Code, stop: Code, step: int, body: Act) -> Act:
    def act(machine: _Machine) -> None:
        env = machine.env
        for i in range(int(start(machine)), int(stop(machine)), step):
            env[name] = i
            body(machine)

    return act


def _repeats(condition: Code, body: Act) -> Act:
    def act(machine: _Machine) -> None:
        while condition(machine):
            body(machine)

    return act


def _decides(condition: Code, then: Act, otherwise: Act) -> Act:
    return lambda machine: (then if condition(machine) else otherwise)(machine)


def _fixed_point(name: str, dtype: np.dtype[np.generic], *args: Scalar) -> Scalar:
    exact = [np.asarray(a) if np.asarray(a).dtype.kind == "f" else np.asarray(a, np.int64) for a in args]
    meaning = FIXED_POINT[name[3:]].meaning
    assert meaning is not None, f"{name} is a part of other functions"
    return np.asarray(meaning(*exact)).astype(dtype)[()]


def _index_division(a: Number, b: Number) -> int:
    a, b = int(a), int(b)
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


_INDEX_ARITHMETIC: dict[str, Callable[[Number, Number], int]] = {
    "add": lambda a, b: int(a) + int(b),
    "sub": lambda a, b: int(a) - int(b),
    "mul": lambda a, b: int(a) * int(b),
    "div": _index_division,
    "mod": lambda a, b: int(a) - _index_division(a, b) * int(b),
    "min": lambda a, b: min(int(a), int(b)),
    "max": lambda a, b: max(int(a), int(b)),
}
_UNARY = {"neg": np.negative, "abs": np.abs, "bit_not": np.invert}
_BINARY = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply,
    "bit_and": np.bitwise_and, "bit_or": np.bitwise_or, "bit_xor": np.bitwise_xor,
}  # fmt: skip

_OPERATORS: dict[str, Callable[[Any, Any], Scalar]] = {
    "add": operator.add, "sub": operator.sub, "mul": operator.mul,
    "bit_and": operator.and_, "bit_or": operator.or_, "bit_xor": operator.xor,
}  # fmt: skip


def _scalar(name: str, dtype: np.dtype[np.generic]) -> Callable[..., Scalar]:
    """A function of one or two operands, which are of this type."""
    if name in _UNARY:
        unary = _UNARY[name]
        return lambda a: unary(np.asarray(a, dtype))[()]
    if name in _BINARY:
        return _binary(_BINARY[name], _OPERATORS[name], dtype)
    others: dict[str, Callable[[Array, Array], Scalar]] = {
        "min": lambda a, b: (a if a < b else b)[()],
        "max": lambda a, b: (a if a > b else b)[()],
        "div": (lambda a, b: (a / b)[()]) if dtype.kind == "f" else partial(_division, name),
        "mod": partial(_division, name),
        "shift_left": partial(_shift, name),
        "shift_right": partial(_shift, name),
        "fn_ipow": lambda a, b: np.asarray(int(a) ** int(b) & (2**64 - 1) if int(b) >= 0 else 0).astype(dtype)[()],
    }
    other = others[name]
    return lambda a, b: other(np.asarray(a, dtype), np.asarray(b, dtype))


def _binary(ufunc: np.ufunc, plain: Callable[[Any, Any], Scalar], dtype: np.dtype[np.generic]) -> Callable[..., Scalar]:
    """Scalars of this type, as nearly all are, wrap and round in their own operators as they do in arrays."""
    own = dtype.type

    def computed(a: Scalar, b: Scalar) -> Scalar:
        if type(a) is own and type(b) is own:
            return plain(a, b)
        wide: Array = ufunc(np.asarray(a, dtype), np.asarray(b, dtype))
        return wide[()]

    return computed


def _division(name: str, a: Array, b: Array) -> Scalar:
    if b == 0:
        return np.zeros((), a.dtype)[()]
    quotient = abs(int(a)) // abs(int(b)) * (1 if (a < 0) == (b < 0) else -1)
    whole = quotient if name == "div" else int(a) - quotient * int(b)
    return np.asarray(whole).astype(a.dtype)[()]


def _shift(name: str, a: Array, b: Array) -> Scalar:
    if not 0 <= int(b) < a.dtype.itemsize * 8:  # what numpy does: everything is shifted out
        return np.asarray(-1 if name == "shift_right" and int(a) < 0 else 0, a.dtype)
    return (np.left_shift if name == "shift_left" else np.right_shift)(a, b)[()]


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

    def meaning(self, op: Op) -> Callable[..., Scalar]:
        if op.op.startswith("fn_"):
            return lambda a, *_: run_function(op.op[3:], self.isa, np.asarray(a))
        return super().meaning(op)


def run_function(name: str, isa: Isa, x: Array) -> Array:
    """The body for vectors of a row of `scalar_functions.py`, on one vector."""
    function = vector_function(name, isa)
    machine = _FunctionMachine(isa)
    machine.env[function.param.name] = x
    with np.errstate(all="ignore"):
        machine.run(function.body)
        return np.asarray(machine.eval(function.result))


__all__ = ["Var", "interpret", "run_function"]
