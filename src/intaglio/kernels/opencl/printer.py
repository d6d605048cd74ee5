"""Launches as OpenCL C 1.2. Scalars are written as the C printer writes them, with the language's names for types and functions."""

from __future__ import annotations

import math
import re

from intaglio.kernels.accesses import everything
from intaglio.kernels.c_functions import function_text
from intaglio.kernels.c_printer import Printer
from intaglio.kernels.loop import (
    Array,
    Barrier,
    Buffer,
    CopyRun,
    Expr,
    Fail,
    For,
    Let,
    Load,
    Num,
    Op,
    Stmt,
    Store,
    Type,
    Var,
)
from intaglio.kernels.opencl.isa import OPERATORS, TABLE, opencl
from intaglio.kernels.opencl.launch import Launch
from intaglio.kernels.scalar_functions import FUNCTIONS, ScalarFunction, function_of

TYPES = {
    "idx": "int", "f32": "float", "f16": "ushort", "bf16": "ushort", "i8": "char", "i16": "short", "i32": "int", "i64": "long",
    "u8": "uchar", "u16": "ushort", "u32": "uint", "u64": "ulong", "bool": "uchar",
}  # fmt: skip
KEYWORDS = frozenset(
    [
        "kernel",
        "global",
        "local",
        "constant",
        "private",
        "half",
        "bool",
        "uchar",
        "ushort",
        "uint",
        "ulong",
        "image",
        "event",
        "sampler",
        "pipe",
        "generic",
        "read_only",
        "write_only",
        "read_write",
        "float2",
        "float4",
        "float8",
        "float16",
        "int2",
        "int4",
        "int8",
        "int16",
    ]
)
STATUS = "ig_status"
C_WORDS = {
    "uint8_t": "uchar", "uint16_t": "ushort", "uint32_t": "uint", "uint64_t": "ulong", "int8_t": "char", "int16_t": "short",
    "int32_t": "int", "int64_t": "long", "ptrdiff_t": "int", "INT8_MIN": "CHAR_MIN", "INT8_MAX": "CHAR_MAX",
    "INT16_MIN": "SHRT_MIN", "INT16_MAX": "SHRT_MAX", "INT32_MIN": "INT_MIN", "INT32_MAX": "INT_MAX",
    "INT64_MIN": "LONG_MIN", "INT64_MAX": "LONG_MAX",
    "UINT8_MAX": "UCHAR_MAX", "UINT16_MAX": "USHRT_MAX", "UINT32_MAX": "UINT_MAX", "UINT64_MAX": "ULONG_MAX",
    "fabsf": "fabs", "rintf": "rint", "IG_INLINE": "static inline", "half": "half_",
    **{f"{row.c}f": row.c for row in FUNCTIONS.values() if row.is_call()},
}  # fmt: skip
TYPE_WORDS = re.compile(r"\bu?int(?:8|16|32|64)_t\b")


class NoOpenCL(Exception):
    """Something of the kernel has no text here: it stays on the CPU."""


def translated(text: str) -> str:
    """An inline function of the C printer in OpenCL C."""
    text = re.sub(r"memcpy\(&(\w+), &(\w+), sizeof \w+\);", r"\1 = as_@(\2);", text)
    for name, kind in re.findall(r"(\w+) = as_@", text) and [(n, _declared(text, n)) for n in re.findall(r"(\w+) = as_@", text)]:
        text = text.replace(f"{name} = as_@(", f"{name} = as_{kind}(", 1)
    text = re.sub(r"\bU?INT64_C\((\w+)\)", lambda m: f"{m[1]}{'UL' if m[0].startswith('U') else 'L'}", text)
    text = re.sub(r"static const (\w+) (\w+)\[", r"const \1 \2[", text)
    text = re.sub(r"\b[A-Za-z_]\w*\b", lambda m: C_WORDS.get(m[0], m[0]), text)
    if "double" in text or "memcpy" in text:
        raise NoOpenCL
    return text


def _declared(text: str, name: str) -> str:
    found = re.search(rf"\b(\w+) {name}[;,]", text) or re.search(rf"\b(\w+) {name} =", text)
    return C_WORDS.get(found[1], found[1]) if found else "int"


class CLPrinter(Printer):
    def __init__(self) -> None:
        super().__init__(opencl())
        self.helpers: dict[str, str] = {}
        self.divisors = Divisors()

    def ctype(self, type: Type) -> str:
        if type.kind not in (*TYPES, "mask"):
            raise NoOpenCL
        name = "int" if type.kind == "mask" else TYPES[type.kind]
        return name if type.lanes == 1 else f"{name}{type.lanes}"

    def _expr(self, expr: Expr) -> tuple[str, int]:
        if isinstance(expr, Load):
            return self._load(expr)
        text, level = super()._expr(expr)
        return (f"{text}_", level) if text in KEYWORDS else (text, level)

    def _load(self, load: Load) -> tuple[str, int]:
        at = self.expr(load.index)
        name = spelled(load.buffer.name)
        if load.type.lanes == 1:
            self.ctype(load.type)
            return f"{name}[{at}]", 20
        if load.count:
            kind = self.ctype(load.type)
            parts = [f"{name}[{self.expr(load.index + n)}]" if n < load.count else "0.0f" for n in range(load.type.lanes)]
            return f"({kind})({', '.join(parts)})", 20
        if self._aligned(load.buffer, load.index, load.type.lanes):
            return f"*(__global const {self.ctype(load.type)} *){place(name, at)}", 14
        return f"vload{load.type.lanes}(0, {place(name, at)})", 20

    def _aligned(self, buffer: Buffer, index: Expr, lanes: int) -> bool:
        """A vector that starts at a multiple of its size is read as what it is: some drivers call a function for `vload`.
        Buffers start at multiples of more than that."""
        return not buffer.space and self.divisors.of(index) % lanes == 0

    def _number(self, num: Num) -> tuple[str, int]:
        if num.type.kind == "f64":
            raise NoOpenCL
        if num.type.kind in ("i64", "u64"):
            text = f"{int(num.value)}{'L' if num.type.kind == 'i64' else 'UL'}"
            return (text, 20 if num.value >= 0 else 14) if int(num.value) > -(2**63) else ("LONG_MIN", 20)
        text, level = super()._number(num)
        return ("INT_MIN", 20) if text == "INT32_MIN" else (text, level)

    def _op(self, op: Op) -> tuple[str, int]:
        name, args = op.op, op.args
        if name in ("global_id", "local_id", "local_size"):
            return f"(int)get_{name}({self.expr(args[0])})", 14
        if any(a.type.kind == "f64" for a in (op, *args)):
            raise NoOpenCL
        if op.type.lanes > 1 or (args and args[0].type.lanes > 1):
            return self._vector(op)
        if name == "fma":
            return f"{self.expr(args[0], 13)} * {self.expr(args[1], 14)} + {self.expr(args[2], 13)}", 12
        function = function_of(op)
        if function is not None and function.builtin():
            return f"{function.builtin()}({', '.join(self.expr(a) for a in args)})", 20
        return super()._op(op)

    def _cast(self, value: Expr, to: Type) -> tuple[str, int]:
        if isinstance(value, Load) and value.type.kind == "f16" and to.kind == "f32" and not value.buffer.space:
            return f"vload_half({self.expr(value.index)}, (__global const half *){spelled(value.buffer.name)})", 20
        text, level = super()._cast(value, to)
        return re.sub(r"^\((\w+)\)", lambda m: f"({C_WORDS.get(m[1], m[1])})", text), level

    def _vector(self, op: Op) -> tuple[str, int]:
        name, lanes = op.op, op.type.lanes if op.type.lanes > 1 else op.args[0].type.lanes
        if name == "cast":
            return self._widened(op)
        if name == "select":
            return f"{self.expr(op.args[0], 4)} ? {self.expr(op.args[1], 4)} : {self.expr(op.args[2], 4)}", 3
        if name == "vector":
            return f"({self.ctype(op.type)})({', '.join(self.expr(a) for a in op.args)})", 20
        if name == "lane":
            assert isinstance(op.args[1], Num)
            return f"{self.expr(op.args[0], 19)}.s{int(op.args[1].value):x}", 20
        if name == "hsum":
            return self._sum(op.args[0])
        if name in TABLE:
            infix = name in OPERATORS
            if name in ("vmin", "vmax"):
                self.helpers.setdefault(f"ig_{name}{lanes}", _extreme(name, lanes))
            text = TABLE[name].format(*[self.expr(a, 15 if infix else 0) for a in op.args], n=lanes)
            return text, 3 if infix else 20
        function = function_of(op)
        assert function is not None, f"no vector instruction {name}"
        called = function.builtin() or self._inline(function, lanes)
        return f"{called}({', '.join(self.expr(a) for a in op.args)})", 20

    def _inline(self, function: ScalarFunction, lanes: int) -> str:
        """A function of vectors that the language does not have, by its name."""
        name = f"ig_v{function.name}{lanes}"
        self.helpers.setdefault(name, inline(f"float{lanes}", name, function.opencl_text()))
        return name

    def _widened(self, op: Op) -> tuple[str, int]:
        load, lanes = op.args[0], op.type.lanes
        assert isinstance(load, Load), f"no vector cast of {load.type}"
        at, name = self.expr(load.index), spelled(load.buffer.name)
        kind = load.type.kind
        if load.count:
            each = [self.expr(Op("cast", (Load(load.buffer, load.index + n, Type(kind)),), Type("f32"))) for n in range(load.count)]
            return f"(float{lanes})({', '.join([*each, *['0.0f'] * (lanes - load.count)])})", 20
        if kind == "f16":
            space = "__local" if load.buffer.space == "local" else "__global"
            return f"vload_half{lanes}(0, ({space} const half *){place(name, at)})", 20
        return f"convert_float{lanes}(vload{lanes}(0, {place(name, at)}))", 20

    def _sum(self, value: Expr) -> tuple[str, int]:
        lanes = value.type.lanes
        self.helpers.setdefault(f"ig_hsum{lanes}", _horizontal(lanes))
        return f"ig_hsum{lanes}({self.expr(value)})", 20

    def _stmt(self, stmt: Stmt, pad: str, depth: int, lines: list[str]) -> None:
        match stmt:
            case Store() if stmt.value.type.lanes > 1:
                self._store(stmt, pad, lines)
            case For():
                self.divisors.enter(stmt)
                name = spelled(stmt.var.name)
                advance = f"{name}++" if stmt.step == 1 else f"{name} += {stmt.step}"
                lines.append(f"{pad}for (int {name} = {self.expr(stmt.start)}; {name} < {self.expr(stmt.stop, 11)}; {advance}) {{")
                lines += self.stmts(stmt.body, depth + 1)
                lines.append(f"{pad}}}")
            case Let():
                self.divisors.name(stmt)
                const = "" if stmt.mutable else "const "
                kind = self.ctype(stmt.var.type)
                lines.append(f"{pad}{const}{kind} {spelled(stmt.var.name)} = {self._as(stmt.value, stmt.var.type)};")
            case CopyRun():
                to, source = self.expr(stmt.to_index, 13), self.expr(stmt.source_index, 13)
                left, right = f"{spelled(stmt.to.name)}[{to} + run]", f"{spelled(stmt.source.name)}[{source} + run]"
                lines.append(f"{pad}for (int run = 0; run < {stmt.count}; run++) {{")
                lines.append(f"{pad}    {left} = {right};")
                lines.append(f"{pad}}}")
            case Array():
                space = "__local " if stmt.buffer.space == "local" else ""
                lines.append(f"{pad}{space}{TYPES[stmt.buffer.dtype.value]} {stmt.buffer.name}[{stmt.size}];")
            case Barrier():
                lines.append(f"{pad}barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);")
            case Fail():
                lines.append(f"{pad}*{STATUS} = {stmt.code};")
                lines.append(f"{pad}return;")
            case _:
                super()._stmt(stmt, pad, depth, lines)

    def _store(self, stmt: Store, pad: str, lines: list[str]) -> None:
        lanes, name, at = stmt.value.type.lanes, spelled(stmt.buffer.name), self.expr(stmt.index)
        value = self.expr(stmt.value)
        narrow = stmt.buffer.dtype.value == "f16"
        if stmt.count:
            kind = self.ctype(stmt.value.type)
            if not re.fullmatch(r"\w+", value):
                lines.append(f"{pad}const {kind} part = {value};")
                value = "part"
            for n in range(stmt.count):
                lane = f"{value}.s{n:x}"
                if narrow:
                    self.used.setdefault("ig_f32_to_f16")
                    lane = f"ig_f32_to_f16({lane})"
                lines.append(f"{pad}{name}[{self.expr(stmt.index + n)}] = {lane};")
        elif narrow:
            lines.append(f"{pad}vstore_half{lanes}_rte({value}, 0, (__global half *){place(name, at)});")
        elif self._aligned(stmt.buffer, stmt.index, lanes):
            lines.append(f"{pad}*(__global {self.ctype(stmt.value.type)} *){place(name, at)} = {value};")
        else:
            lines.append(f"{pad}vstore{lanes}({value}, 0, {place(name, at)});")


class Divisors:
    """Powers of two that divide indices."""

    MOST = 16

    def __init__(self) -> None:
        self._names: dict[str, int] = {}

    def name(self, let: Let) -> None:
        self._names[let.var.name] = 1 if let.mutable or let.var.type.kind != "idx" else self.of(let.value)

    def enter(self, loop: For) -> None:
        self._names[loop.var.name] = math.gcd(self.of(loop.start), loop.step)

    def of(self, expr: Expr) -> int:
        match expr:
            case Num():
                return math.gcd(int(expr.value), self.MOST) or self.MOST
            case Var():
                return self._names.get(expr.name, 1)
            case Op(op="mul"):
                return math.gcd(self.of(expr.args[0]) * self.of(expr.args[1]), self.MOST)
            case Op(op="add" | "sub" | "min" | "max" | "mod"):
                return math.gcd(self.of(expr.args[0]), self.of(expr.args[1]))
            case Op(op="select"):
                return math.gcd(self.of(expr.args[1]), self.of(expr.args[2]))
        return 1


def spelled(name: str) -> str:
    return f"{name}_" if name in KEYWORDS else name


def place(name: str, at: str) -> str:
    return f"({name} + {at})" if at != "0" else name


def _extreme(name: str, lanes: int) -> str:
    sign = "<" if name == "vmin" else ">"
    kind = f"float{lanes}"
    return f"static inline {kind} ig_{name}{lanes}({kind} a, {kind} b)\n{{\n    return a {sign} b ? a : b;\n}}"


def inline(kind: str, name: str, expression: str) -> str:
    """A function of x."""
    return f"static inline {kind} {name}({kind} x)\n{{\n    return {expression};\n}}"


def _horizontal(lanes: int) -> str:
    terms = " + ".join(f"v.s{n:x}" for n in range(lanes))
    return f"static inline float ig_hsum{lanes}(float{lanes} v)\n{{\n    return {terms};\n}}"


def fails(launch: Launch) -> bool:
    return any(isinstance(s, Fail) for s in everything(launch.body))


def common(printer: CLPrinter) -> str:
    """What stands above the functions of this printer: contraction is off, so that integers scaled by floats are exact."""
    parts = ["#pragma OPENCL FP_CONTRACT OFF", *printer.helpers.values()]
    seen: dict[str, None] = {}
    for name in printer.used:
        for text in function_text(name):
            seen.setdefault(translated(text))
    return "\n\n".join([*parts, *seen]) + "\n"
