"""Loop IR as C99. Vector operations come from the ISA's table; everything else is plain C.

Scalar operations whose C meaning is not ours (minimum with its NaN rule, integer division by zero, wrap-around, rounding
conversions) are calls of tiny inline functions, which `prelude.py` writes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import assert_never

from intaglio.errors import printable
from intaglio.kernels.c_functions import ARITHMETIC, C_TYPES, is_signed_int
from intaglio.kernels.isa import ISAS, Isa
from intaglio.kernels.loop import (
    IDX,
    Array,
    Assign,
    Barrier,
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
    Prefetch,
    Reload,
    RoutineCall,
    Stmt,
    Store,
    Type,
    Var,
    Verbatim,
    While,
)
from intaglio.kernels.routines import Routine
from intaglio.kernels.scalar_functions import function_of, with_needs

_INFIX = {
    "add": ("+", 12), "sub": ("-", 12), "mul": ("*", 13), "div": ("/", 13), "mod": ("%", 13),
    "lt": ("<", 10), "le": ("<=", 10), "gt": (">", 10), "ge": (">=", 10), "eq": ("==", 9), "ne": ("!=", 9),
    "bit_and": ("&", 8), "bit_xor": ("^", 7), "bit_or": ("|", 6), "and": ("&&", 5), "or": ("||", 4),
}  # fmt: skip
_NARROW = ("i8", "u8", "i16", "u16")


class Printer:
    """Prints kernels of one ISA and remembers which inline functions they call."""

    def __init__(self, isa: Isa) -> None:
        self.isa = isa
        self.used: dict[str, None] = {}  # inline functions, in order of first use
        self.vector_used: dict[str, None] = {}
        self.vectors = False  # is any vector type used at all?
        self.integers = False
        self.routines: dict[str, Routine] = {}
        self.narrow: dict[str, None] = {}  # small types that are loaded as f32

    def see(self, other: Printer) -> None:
        """Remember what another one has printed, too."""
        for mine, others in ((self.used, other.used), (self.vector_used, other.vector_used), (self.narrow, other.narrow)):
            for name in others:
                mine.setdefault(name)
        for name, routine in other.routines.items():
            self.routines.setdefault(name, routine)
        self.vectors, self.integers = self.vectors or other.vectors, self.integers or other.integers

    # Types --------------------------------------------------------------------------------------------------------------

    def ctype(self, type: Type) -> str:
        if type.lanes == 1:
            return C_TYPES[type.kind]
        known = (self.isa.integers.types or {}).get(str(type))
        return known or {"f32": self.isa.float_type, "i32": self.isa.int_type, "mask": self.isa.mask_type}[type.kind]

    # Expressions --------------------------------------------------------------------------------------------------------

    def expr(self, expr: Expr, outer: int = 0) -> str:
        text, level = self._expr(expr)
        return f"({text})" if level < outer else text

    def _expr(self, expr: Expr) -> tuple[str, int]:
        self.vectors = self.vectors or expr.type.lanes > 1
        match expr:
            case Num():
                return self._number(expr)
            case Var():
                return expr.name, 20
            case Load():
                place = f"{expr.buffer.name}[{self.expr(expr.index)}]"
                if expr.count:
                    return f"ig_load_part(&{place}, {self._count(expr)})", 20
                if expr.type.lanes > 1:
                    load = (self.isa.integers.loads or {}).get(str(expr.type), self.isa.load)
                    self.integers = self.integers or load is not self.isa.load
                    return load.format(place), 14
                return place, 20
            case Op():
                return self._op(expr)
        raise AssertionError(expr)

    def _number(self, num: Num) -> tuple[str, int]:
        kind = num.type.kind
        value = num.value
        if kind in ("f32", "f64"):
            return self._float(float(value), kind), 20 if value >= 0 else 14
        if kind == "i64":
            text = f"INT64_C({int(value)})" if int(value) > -(2**63) else "INT64_MIN"
            return text, 20
        if kind == "u64":
            return f"UINT64_C({int(value)})", 20
        if kind == "u32":
            return f"{int(value)}u", 20
        if kind == "i32" and int(value) == -(2**31):
            return "INT32_MIN", 20
        return str(int(value)), 20 if value >= 0 else 14

    def _float(self, value: float, kind: str) -> str:
        suffix = "f" if kind == "f32" else ""
        if value != value:
            return "NAN" if kind == "f32" else "(double)NAN"
        if value in (float("inf"), float("-inf")):
            sign = "-" if value < 0 else ""
            return f"{sign}INFINITY" if kind == "f32" else f"{sign}(double)INFINITY"
        if kind == "f32":
            import numpy as np

            text = repr(float(np.format_float_scientific(np.float32(value), unique=True)))
        else:
            text = repr(value)
        if "e" not in text and "." not in text:
            text += ".0"
        return text + suffix

    def _op(self, op: Op) -> tuple[str, int]:
        name, args = op.op, op.args
        if op.type.lanes > 1 or (name in self.isa.table and args and args[0].type.lanes > 1):
            return self._vector(op)
        if name == "select":
            cond, a, b = args
            return f"{self.expr(cond, 4)} ? {self.expr(a, 4)} : {self.expr(b, 4)}", 3
        if name == "cast":
            return self._cast(args[0], op.type)
        if name == "not":
            return f"!{self.expr(args[0], 14)}", 14
        kind = args[0].type.kind
        if name == "fma":
            return f"__builtin_fmaf({', '.join(self.expr(a) for a in args)})", 20
        if name in _INFIX and self._plain(name, kind):
            sign, level = _INFIX[name]
            inside = (level, level + 1)
            if name in ("and", "or", "bit_and", "bit_or", "bit_xor"):  # spelled out: -Wparentheses
                inside = (9, 9)
            elif level in (9, 10):
                inside = (11, 11)
            text = f"{self.expr(args[0], inside[0])} {sign} {self.expr(args[1], inside[1])}"
            if kind in _NARROW and name.startswith("bit_"):
                return f"({C_TYPES[kind]})({text})", 14
            return text, level
        if name == "neg" and kind in ("f32", "f64"):
            return f"-{self.expr(args[0], 15)}", 14
        function = function_of(op)
        if function is not None and function.is_call():
            return f"{function.c_text(kind)}({', '.join(self.expr(a) for a in args)})", 20
        return self._call(name.removeprefix("fn_"), kind, args), 20

    @staticmethod
    def _plain(name: str, kind: str) -> bool:
        """Does C's own operator mean what we mean for this type?"""
        if name in ("add", "sub", "mul", "div", "mod"):
            if kind in ("f32", "f64"):
                return name != "mod"
            return kind == "idx" or (kind in ("u32", "u64") and name in ("add", "sub", "mul"))
        return True

    def _call(self, name: str, kind: str, args: tuple[Expr, ...]) -> str:
        function = f"ig_{name}_{kind}"
        self.used.setdefault(function)
        return f"{function}({', '.join(self.expr(a) for a in args)})"

    def _cast(self, value: Expr, to: Type) -> tuple[str, int]:
        kind = value.type.kind
        if kind in ("f16", "bf16"):
            self.used.setdefault(f"ig_{kind}_to_f32")
            inner = f"ig_{kind}_to_f32({self.expr(value)})"
            return (inner, 20) if to.kind == "f32" else (f"({C_TYPES[to.kind]}){inner}", 14)
        if to.kind in ("f16", "bf16"):
            self.used.setdefault(f"ig_f32_to_{to.kind}")
            narrow = self.expr(value) if kind == "f32" else f"(float){self.expr(value, 15)}"
            return f"ig_f32_to_{to.kind}({narrow})", 20
        if to.kind == "bool":
            return (self.expr(value), 3) if kind == "bool" else (f"{self.expr(value, 10)} != 0", 9)
        if kind in ("f32", "f64") and to.kind not in ("f32", "f64"):
            name = f"ig_{kind}_to_{to.kind}"
            self.used.setdefault(name)
            return f"{name}({self.expr(value)})", 20
        return f"({C_TYPES[to.kind]}){self.expr(value, 15)}", 14

    def _vector(self, op: Op) -> tuple[str, int]:
        name = op.op
        if name == "cast":
            load = op.args[0]
            assert isinstance(load, Load) and not load.count and op.type.kind == "f32", f"no vector cast of {load.type}"
            self.narrow.setdefault(load.type.kind)
            return f"ig_load_{load.type.kind}(&{load.buffer.name}[{self.expr(load.index)}])", 20
        if name in self.isa.table:
            text = self.isa.table[name]
            level = 0 if text.startswith(("_mm", "ig_")) else 15  # function arguments need no parentheses
            return text.format(*[self.expr(a, level) for a in op.args]), 20 if level == 0 else 14
        if name.startswith("fn_"):
            for needed in with_needs(name[3:]):
                self.vector_used.setdefault(needed)
            return f"ig_v{name[3:]}({', '.join(self.expr(a) for a in op.args)})", 20
        raise AssertionError(f"no vector instruction {name}")

    # Statements ---------------------------------------------------------------------------------------------------------

    def stmts(self, body: tuple[Stmt, ...], depth: int) -> list[str]:
        lines: list[str] = []
        for stmt in body:
            self._stmt(stmt, "    " * depth, depth, lines)
        return lines

    def _count(self, part: Load | Store) -> str:
        """Of the lanes that a load or a store takes."""
        return str(part.count) if part.left is None else f"(int){self.expr(part.left, 14)}"

    def _stmt(self, stmt: Stmt, pad: str, depth: int, lines: list[str]) -> None:
        match stmt:
            case Let():
                const = "" if stmt.mutable else "const "
                lines.append(f"{pad}{const}{self.ctype(stmt.var.type)} {stmt.var.name} = {self._as(stmt.value, stmt.var.type)};")
            case Assign():
                lines.append(f"{pad}{self._assignment(stmt)};")
            case Store():
                place = f"{stmt.buffer.name}[{self.expr(stmt.index)}]"
                if stmt.count:
                    part = "ig_store_bytes" if stmt.value.type.kind in ("i8", "u8") else "ig_store_part"
                    self.integers = self.integers or part == "ig_store_bytes"
                    lines.append(f"{pad}{part}(&{place}, {self.expr(stmt.value)}, {self._count(stmt)});")
                elif stmt.value.type.lanes > 1:
                    store = (self.isa.integers.stores or {}).get(str(stmt.value.type), self.isa.store)
                    self.integers = self.integers or store is not self.isa.store
                    lines.append(f"{pad}{store.format(place, self.expr(stmt.value))};")
                else:
                    lines.append(f"{pad}{place} = {self._as(stmt.value, Type(stmt.buffer.dtype.value))};")
            case For():
                lines += [*self._head(stmt, pad), *self.stmts(stmt.body, depth + 1), f"{pad}}}"]
            case While():
                lines.append(f"{pad}while ({self.expr(stmt.cond)}) {{")
                lines += self.stmts(stmt.body, depth + 1)
                lines.append(f"{pad}}}")
            case If():
                lines.append(f"{pad}if ({self.expr(stmt.cond)}) {{")
                lines += self.stmts(stmt.then, depth + 1)
                if stmt.otherwise:
                    lines.append(f"{pad}}} else {{")
                    lines += self.stmts(stmt.otherwise, depth + 1)
                lines.append(f"{pad}}}")
            case Braces():
                lines.append(f"{pad}{{")
                lines += self.stmts(stmt.body, depth + 1)
                lines.append(f"{pad}}}")
            case Comment():
                lines.append(f"{pad}/* {comment_text(stmt.text)} */")
            case CopyRun():
                to = f"&{stmt.to.name}[{self.expr(stmt.to_index)}]"
                source = f"&{stmt.source.name}[{self.expr(stmt.source_index)}]"
                lines.append(f"{pad}memcpy({to}, {source}, {stmt.count * stmt.to.dtype.bytes});")
            case Prefetch():
                self.used.setdefault("ig_prefetch")
                lines.append(f"{pad}IG_PREFETCH({stmt.buffer.name}, {self.expr(stmt.index * stmt.buffer.dtype.bytes)});")
            case Reload():
                self.used.setdefault("ig_reload")
                lines.append(f"{pad}IG_RELOAD();")
            case RoutineCall():
                self.routines.setdefault(stmt.routine.name, stmt.routine)
                places = [f"&{a.buffer.name}[{self.expr(a.index)}]" if isinstance(a, Place) else self.expr(a) for a in stmt.args]
                lines.append(f"{pad}ig_{stmt.routine.name}({', '.join(places)});")
            case Fail():
                lines.append(f"{pad}return {stmt.code};")
            case Verbatim():
                lines += [f"{pad}{line}" if line else "" for line in stmt.lines]
            case Array():
                lines.append(f"{pad}{C_TYPES[stmt.buffer.dtype.value]} {stmt.buffer.name}[{stmt.size}];")
            case Barrier():
                raise AssertionError("only kernels of a device have these")
            case _:
                assert_never(stmt)

    def _head(self, loop: For, pad: str) -> list[str]:
        name = loop.var.name
        advance = f"{name}++" if loop.step == 1 else f"{name} += {loop.step}"
        start, stop = self.expr(loop.start), self.expr(loop.stop, 11)
        line = f"{pad}for (ptrdiff_t {name} = {start}; {name} < {stop}; {advance}) {{"
        if not loop.rolled:
            return [line]
        self.used.setdefault("ig_rolled")
        return [f"{pad}IG_ROLLED", line]

    def _assignment(self, stmt: Assign) -> str:
        name, value = stmt.var.name, stmt.value
        if isinstance(value, Op) and value.type in (IDX, Type("f32")) and value.op in ("add", "sub") and value.args[0] == stmt.var:
            return f"{name} {_INFIX[value.op][0]}= {self.expr(value.args[1])}"
        return f"{name} = {self._as(value, stmt.var.type)}"

    def _as(self, value: Expr, to: Type) -> str:
        """A value stored in a variable of its type; conditions become 0 or 1."""
        if to.kind == "bool" and value.type.kind == "bool" and not isinstance(value, (Num, Var, Load)):
            return (
                f"({self.expr(value)}) ? 1 : 0"
                if isinstance(value, Op) and value.op == "select"
                else f"{self.expr(value, 4)} ? 1 : 0"
            )
        return self.expr(value)


@dataclass(frozen=True, slots=True)
class _Printed:
    """A body as it was printed for `isa`, by a printer of its own."""

    body: tuple[Stmt, ...]
    isa: str
    lines: tuple[str, ...]
    printer: Printer


def body_lines(kernel: Kernel, seen_by: Printer | None = None) -> tuple[str, ...]:
    """The body in C, indented once. Estimates of size, packages and the search for equal kernels ask for it: it is printed once.
    `seen_by` remembers what the body uses, as if it had printed it."""
    kept = kernel.printed
    if not (isinstance(kept, _Printed) and kept.body is kernel.body and kept.isa == kernel.isa):
        printer = Printer(ISAS[kernel.isa])
        kept = _Printed(kernel.body, kernel.isa, tuple(printer.stmts(kernel.body, 1)), printer)
        kernel.printed = kept
    if seen_by is not None:
        seen_by.see(kept.printer)
    return kept.lines


def comment_text(text: str) -> str:
    """Text that may come from a model, safe inside a C comment."""
    text = printable(text, 300)
    safe = "".join(c if " " <= c <= "~" and c != "\\" else "?" for c in text)
    return safe.replace("*/", "* /").replace("/*", "/ *").replace("??", "? ?")


def _parameter(buffer: Buffer, restrict: str) -> str:
    const = "const " if buffer.const else ""
    return f"{const}{C_TYPES[buffer.dtype.value]} *{restrict}{buffer.name}"


def prototype(kernel: Kernel) -> str:
    """The declaration, without the semicolon. Kernels that may run in place do not promise that pointers differ; where they may
    write over one operand alone, all others still do."""
    over = kernel.params[kernel.over] if kernel.over >= 0 else None
    shared = [p for p in kernel.params if kernel.in_place and (over is None or p is over or not p.const)]
    result = "int" if kernel.fallible else "void"
    parameters = [_parameter(p, "" if any(p is s for s in shared) else "restrict ") for p in kernel.params]
    parameters += [f"ptrdiff_t {name}" for name in kernel.sizes]
    if kernel.split is not None:
        parameters += ["ptrdiff_t part", *(["ptrdiff_t step"] if kernel.split.steps > 1 else [])]
    return f"{result} {kernel.name}({', '.join(parameters)})"


def _header(kernel: Kernel) -> list[str]:
    lines = ["/*"]
    lines += [f" * {comment_text(line)}" for line in kernel.about.splitlines()]
    shown = kernel.used_by[:6]
    if shown:
        more = f" and {len(kernel.used_by) - len(shown)} more" if len(kernel.used_by) > len(shown) else ""
        lines.append(f" * Used by: {', '.join(comment_text(printable(s, 60)) for s in shown)}{more}")
    return [*lines, " */"]


def _unread(kernel: Kernel, text: list[str]) -> list[str]:
    """`(void)x;` for parameters that the body never mentions."""
    words = set(re.findall(r"[A-Za-z_]\w*", " ".join(text)))
    return [f"    (void){p.name};" for p in kernel.params if p.name not in words]


def print_kernel(kernel: Kernel, printer: Printer | None = None, renamed: Mapping[str, str] | None = None) -> str:
    """A complete function definition with its header comment. `renamed`: what the functions of the prelude are called here."""
    body = list(body_lines(kernel)) if printer is None else printer.stmts(kernel.body, 1)
    if kernel.fallible:
        body.append("    return 0;")
    if renamed:
        body = [rename(line, renamed) for line in body]
    lines = [*_header(kernel), prototype(kernel), "{", *_unread(kernel, body), *body, "}"]
    return "\n".join(lines) + "\n"


def rename(text: str, names: Mapping[str, str]) -> str:
    return re.sub(r"\b[A-Za-z_]\w*", lambda word: names.get(word[0], word[0]), text)


__all__ = ["ARITHMETIC", "Printer", "body_lines", "comment_text", "is_signed_int", "print_kernel", "prototype", "rename"]
