"""Constants of one element are written as numbers.

    y[i] = x[i] / scale[0];      ->      y[i] = x[i] / 0.05f;

A kernel that reads such a constant element by element gets no parameter for it. It keeps it where it hands the address on (to a
routine, a copy, the code of an accelerator) and for types without numbers in C (f16, bf16).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass, replace

from intaglio.ir.graph import Array
from intaglio.kernels.loop import Buffer, CopyRun, Expr, Load, Num, Op, Place, Prefetch, RoutineCall, Stmt, Type, Verbatim

_KINDS = ("f32", "f64", "i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64", "bool")
_WHOLE = {"i8": 8, "u8": 8, "i16": 16, "u16": 16, "i32": 32, "u32": 32}


def write_scalars(body: tuple[Stmt, ...], constants: Mapping[Buffer, Array]) -> tuple[tuple[Stmt, ...], set[Buffer]]:
    """The statements with numbers in place of loads; and the buffers that nobody reads any more."""
    numbers = {b: data.reshape(-1)[0].item() for b, data in constants.items() if data.size == 1 and b.dtype.value in _KINDS}
    if not numbers:
        return body, set()
    held: set[Buffer] = set()
    _walk(body, lambda found: held.update(_held(found)))
    numbers = {b: value for b, value in numbers.items() if b not in held}
    if not numbers:
        return body, set()
    return tuple(_replaced(stmt, numbers) for stmt in body), set(numbers)


def _held(found: object) -> set[Buffer]:
    """Buffers whose address a statement needs; vectors of them, which no number replaces."""
    match found:
        case Place():
            return {found.buffer}
        case CopyRun():
            return {found.to, found.source}
        case Prefetch():
            return {found.buffer}
        case Load() if found.type.lanes > 1 or found.count or found.type.kind != found.buffer.dtype.value:
            return {found.buffer}
    return set()


def _walk(part: object, visit: Callable[[object], None]) -> None:
    if isinstance(part, tuple):
        for each in part:
            _walk(each, visit)
    elif is_dataclass(part) and not isinstance(part, (Buffer, Type)):
        visit(part)
        for field in fields(part):
            _walk(getattr(part, field.name), visit)


def _replaced(stmt: Stmt, numbers: Mapping[Buffer, float]) -> Stmt:
    changed: dict[str, object] = {}
    for field in fields(stmt):
        old = getattr(stmt, field.name)
        new: object = old
        if isinstance(old, Expr):
            new = _number(old, numbers)
        elif isinstance(old, tuple) and not isinstance(stmt, (RoutineCall, Verbatim)):
            new = tuple(_replaced(part, numbers) for part in old)
        elif isinstance(old, tuple) and isinstance(stmt, RoutineCall):
            new = tuple(_number(part, numbers) if isinstance(part, Expr) else _place(part, numbers) for part in old)
        if new is not old:
            changed[field.name] = new
    return replace(stmt, **changed) if changed else stmt  # type: ignore[arg-type]


def _place(place: Place, numbers: Mapping[Buffer, float]) -> Place:
    return replace(place, index=_number(place.index, numbers))


def _number(expr: Expr, numbers: Mapping[Buffer, float]) -> Expr:
    match expr:
        case Load() if expr.buffer in numbers:
            return Num(numbers[expr.buffer], expr.type)
        case Load():
            return replace(expr, index=_number(expr.index, numbers))
        case Op():
            args = tuple(_number(arg, numbers) for arg in expr.args)
            return _cast_number(args[0], expr.type) if expr.op == "cast" and args != expr.args else replace(expr, args=args)
    return expr


def _cast_number(value: Expr, to: Type) -> Expr:
    """A small whole number is the same in a wider type."""
    if isinstance(value, Num) and to.lanes == 1 and value.type.kind in _WHOLE:
        wide = to.kind in ("f32", "f64", "idx", "i64") or _WHOLE.get(to.kind, 0) > _WHOLE[value.type.kind]
        if to.kind == "f32" and abs(value.value) > 2**24:
            wide = False
        if wide and (value.value >= 0 or not to.kind.startswith("u")):
            return Num(float(value.value) if to.kind in ("f32", "f64") else int(value.value), to)
    return Op("cast", (value,), to)
