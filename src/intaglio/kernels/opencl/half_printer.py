"""The same kernels with arithmetic in halves: the type is `ig_real`, which is half where the device computes in it and float else.

Values are `ig_real`, `ig_real4`, ...; buffers stay what they are: f16 is loaded as it is, f32 is narrowed on the way in and widened
on the way out. `-DIG_FP16` decides when the program is built, on the device.
"""

from __future__ import annotations

from intaglio.kernels.loop import Expr, Load, Num, Op, Store, Type
from intaglio.kernels.opencl.isa import TABLE
from intaglio.kernels.opencl.printer import CLPrinter, inline, place, spelled
from intaglio.kernels.scalar_functions import ScalarFunction

REAL = "ig_real"
LANES = (4, 8)


def _half_side(n: str) -> list[str]:
    return [
        f"typedef half{n} {REAL}{n};",
        f"#define ig_load{n}(p) " + (f"vload{n}(0, (__global const half *)(p))" if n else "(*(__global const half *)(p))"),
        f"#define ig_store{n}(v, p) " + (f"vstore{n}(v, 0, (__global half *)(p))" if n else "(*(__global half *)(p) = (v))"),
        f"#define ig_narrow{n}(v) convert_half{n}(v)",
        f"#define ig_wide{n}(v) convert_float{n}(v)",
    ]


def _float_side(n: str) -> list[str]:
    return [
        f"typedef float{n} {REAL}{n};",
        f"#define ig_load{n}(p) vload_half{n}(0, (__global const half *)(p))",
        f"#define ig_store{n}(v, p) vstore_half{n}_rte(v, 0, (__global half *)(p))",
        f"#define ig_narrow{n}(v) (v)",
        f"#define ig_wide{n}(v) (v)",
    ]


def real_types() -> str:
    sizes = ["", *(str(n) for n in LANES)]
    halves = ["#pragma OPENCL EXTENSION cl_khr_fp16 : enable", *(line for n in sizes for line in _half_side(n))]
    floats = [line for n in sizes for line in _float_side(n)]
    masks = [f"typedef short{n} ig_mask{n};" for n in LANES], [f"typedef int{n} ig_mask{n};" for n in LANES]
    return "\n".join(["#ifdef IG_FP16", *halves, *masks[0], "#else", *floats, *masks[1], "#endif"])


class HalfPrinter(CLPrinter):
    """Shares the helpers of another printer, so that all functions of a program stand below one head."""

    def __init__(self, owner: CLPrinter) -> None:
        super().__init__()
        self.helpers, self.used = owner.helpers, owner.used
        self.helpers.setdefault("ig_real", real_types())

    def ctype(self, type: Type) -> str:
        if type.kind not in ("f32", "mask"):
            return super().ctype(type)
        name = "ig_mask" if type.kind == "mask" else REAL
        return name if type.lanes == 1 else f"{name}{type.lanes}"

    def _number(self, num: Num) -> tuple[str, int]:
        text, level = super()._number(num)
        return (f"({REAL}){text}", 14) if num.type.kind == "f32" else (text, level)

    def _lanes(self, type: Type) -> str:
        return "" if type.lanes == 1 else str(type.lanes)

    def _load(self, load: Load) -> tuple[str, int]:
        if load.type.kind != "f32":
            return super()._load(load)
        at, name, n = self.expr(load.index), spelled(load.buffer.name), self._lanes(load.type)
        if load.count:
            each = [self.expr(Load(load.buffer, load.index + i, Type("f32"))) for i in range(load.count)]
            return f"({REAL}{n})({', '.join([*each, *['0'] * (load.type.lanes - load.count)])})", 20
        return (f"ig_narrow{n}(vload{n}(0, {place(name, at)}))" if n else f"ig_narrow({name}[{at}])"), 20

    def _cast(self, value: Expr, to: Type) -> tuple[str, int]:
        if isinstance(value, Load) and value.type.kind == "f16" and to.kind == "f32" and not value.buffer.space:
            return f"ig_load({place(spelled(value.buffer.name), self.expr(value.index))})", 20
        return super()._cast(value, to)

    def _widened(self, op: Op) -> tuple[str, int]:
        load, lanes = op.args[0], op.type.lanes
        assert isinstance(load, Load)
        if load.type.kind != "f16" or load.count:
            text, level = super()._widened(op)
            return text.replace(f"(float{lanes})", f"({REAL}{lanes})", 1).replace("0.0f", "0"), level
        return f"ig_load{lanes}({place(spelled(load.buffer.name), self.expr(load.index))})", 20

    def _vector(self, op: Op) -> tuple[str, int]:
        lanes = op.type.lanes if op.type.lanes > 1 else op.args[0].type.lanes
        if op.op == "vsplat":
            return f"({REAL}{lanes})({self.expr(op.args[0])})", 20
        if op.op in ("vmin", "vmax"):
            sign, kind, name = "<" if op.op == "vmin" else ">", f"{REAL}{lanes}", f"ig_half_{op.op}{lanes}"
            text = f"static inline {kind} {name}({kind} a, {kind} b)\n{{\n    return a {sign} b ? a : b;\n}}"
            self.helpers.setdefault(name, text)
            return f"{name}({', '.join(self.expr(a) for a in op.args)})", 20
        assert op.op in TABLE or op.op.startswith("fn_") or op.op in ("cast", "select", "vector", "lane"), op.op
        return super()._vector(op)

    def _inline(self, function: ScalarFunction, lanes: int) -> str:
        name = f"ig_half_v{function.name}{lanes}"
        self.helpers.setdefault(name, inline(f"{REAL}{lanes}", name, function.opencl_text(f"({REAL}){{}}f")))
        return name

    def _store(self, stmt: Store, pad: str, lines: list[str]) -> None:
        n, name = self._lanes(stmt.value.type), spelled(stmt.buffer.name)
        value, narrow = self.expr(stmt.value), stmt.buffer.dtype.value == "f16"
        if not stmt.count:
            where = place(name, self.expr(stmt.index))
            lines.append(f"{pad}ig_store{n}({value}, {where});" if narrow else f"{pad}vstore{n}(ig_wide{n}({value}), 0, {where});")
            return
        lines.append(f"{pad}const {REAL}{n} part = {value};")
        for i in range(stmt.count):
            where = place(name, self.expr(stmt.index + i))
            lines.append(f"{pad}ig_store(part.s{i:x}, {where});" if narrow else f"{pad}*{where} = ig_wide(part.s{i:x});")
