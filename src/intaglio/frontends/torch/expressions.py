"""Dimensions that follow from others, as torch.export writes them: `Add(Mul(Integer(2), Symbol('s39')), Integer(-1))`, in the
notation of sympy, or `2*s39 - 1`. They are read as text; nothing in them is run."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from functools import reduce

from intaglio.ir.sizes import larger, smaller

DEEPEST = 50


class NotAFormula(ValueError):
    """It has something in it that is not read here."""


def value_of(text: str, symbols: Mapping[str, int]) -> int:
    """What a formula gives for these sizes, which may be numbers or ranges."""
    return _value(_tree(text), symbols, 0)


def symbols_of(text: str) -> set[str]:
    """The symbols of a formula; none where it cannot be read."""
    try:
        return _symbols(_tree(text))
    except NotAFormula:
        return set()


def shown(text: str) -> str:
    """As people write it: `2*s39`."""
    try:
        return _shown(_tree(text))
    except NotAFormula:
        return text


def _shown(tree: ast.expr) -> str:
    match tree:
        case ast.Call(func=ast.Name(id="Symbol" | "Integer"), args=[ast.Constant(value=value), *_]):
            return str(value)
        case ast.Call(func=ast.Name(id="Integer"), args=[inner]):
            return _shown(inner)
        case ast.Call(func=ast.Name(id="Mul"), args=args):
            return "*".join(f"({_shown(arg)})" if ast.unparse(arg).startswith("Add(") else _shown(arg) for arg in args)
        case ast.Call(func=ast.Name(id="Add"), args=args):
            return "+".join(_shown(arg) for arg in args).replace("+-", "-")
        case ast.Call(func=ast.Name(id=word), args=args):
            return f"{word}({', '.join(_shown(arg) for arg in args)})"
    return ast.unparse(tree)


def _tree(text: str) -> ast.expr:
    try:
        return ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise NotAFormula(text) from None


def _symbols(tree: ast.expr) -> set[str]:
    match tree:
        case ast.Call(func=ast.Name(id="Symbol"), args=[ast.Constant(value=str(name)), *_]) | ast.Name(id=name):
            return {name}
        case ast.Call(args=args):
            return {name for arg in args for name in _symbols(arg)}
        case ast.BinOp(left=left, right=right):
            return _symbols(left) | _symbols(right)
        case ast.UnaryOp(operand=inner):
            return _symbols(inner)
    return set()


def _value(tree: ast.expr, symbols: Mapping[str, int], depth: int) -> int:
    if depth > DEEPEST:
        raise NotAFormula("it is nested too deeply")
    match tree:
        case ast.Constant(value=int(number)) | ast.Call(func=ast.Name(id="Integer"), args=[ast.Constant(value=int(number))]):
            return number
        case ast.UnaryOp(op=ast.USub(), operand=inner):
            return -_value(inner, symbols, depth + 1)
        case ast.Call(func=ast.Name(id="Integer"), args=[inner]):
            return _value(inner, symbols, depth + 1)
        case ast.Call(func=ast.Name(id="Symbol"), args=[ast.Constant(value=str(name)), *_]) | ast.Name(id=name) if name in symbols:
            return symbols[name]
        case ast.Call(func=ast.Name(id=word), args=[_, *_] as args):
            return _applied(word, [_value(arg, symbols, depth + 1) for arg in args])
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _SIGNS:
            return _applied(_SIGNS[type(op)], [_value(side, symbols, depth + 1) for side in (left, right)])
    raise NotAFormula(ast.unparse(tree))


_SIGNS: dict[type[ast.operator], str] = {
    ast.Add: "Add", ast.Mult: "Mul", ast.Sub: "Sub", ast.FloorDiv: "FloorDiv", ast.Mod: "Mod",
}  # fmt: skip


def _applied(word: str, args: list[int]) -> int:
    match word, args:
        case "Add", _:
            return sum(args[1:], args[0])
        case "Mul", _:
            return reduce(lambda a, b: a * b, args)
        case "Sub", [a, b]:
            return a - b
        case ("FloorDiv" | "CleanDiv"), [a, b] if b != 0:
            return a // b
        case ("Mod" | "PythonMod"), [a, b] if b != 0:
            return a % b
        case "Max", _:
            return reduce(larger, args)
        case "Min", _:
            return reduce(smaller, args)
    raise NotAFormula(word)
