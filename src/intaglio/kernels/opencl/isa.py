"""Vectors of OpenCL C as an instruction table: float4, float8, float16 with the language's own operators."""

from __future__ import annotations

from intaglio.kernels.isa import ISAS, Isa
from intaglio.kernels.lanes import Lanes

TABLE = {
    "vsplat": "(float{n})({0})",
    "vadd": "{0} + {1}",
    "vsub": "{0} - {1}",
    "vmul": "{0} * {1}",
    "vdiv": "{0} / {1}",
    "vfma": "{0} * {1} + {2}",
    "vmin": "ig_vmin{n}({0}, {1})",
    "vmax": "ig_vmax{n}({0}, {1})",
    "vsqrt": "sqrt({0})",
    "vneg": "-{0}",
    "vabs": "fabs({0})",
    "vfloor": "floor({0})",
    "vceil": "ceil({0})",
    "vround": "rint({0})",
    "vlt": "{0} < {1}",
    "vle": "{0} <= {1}",
    "vgt": "{0} > {1}",
    "vge": "{0} >= {1}",
    "veq": "{0} == {1}",
    "vne": "{0} != {1}",
    "vblend": "{0} ? {1} : {2}",
}
OPERATORS = frozenset(name for name, text in TABLE.items() if not text.endswith(")"))


def opencl() -> Isa:
    return ISAS["opencl"]


def vector(lanes: int) -> Lanes:
    """Arithmetic on vectors of so many floats."""
    return Lanes(opencl(), lanes)
