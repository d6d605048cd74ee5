"""How far a result of floats may be from the reference, as a share of its largest value.

Half a unit in the last place of its type, or what reordered sums may cost in f32. Where a layer before it computes in a narrower
type, that type counts: two right results that differ in the last bit of an f32 are rounded to different f16 now and then.

    a: f16[1,8] = cast(x, to=f16)
    b: f16[1,8] = matmul(a, w)
    y: f32[1,8] = cast(b, to=f32)       the tolerance of f16
"""

from __future__ import annotations

from intaglio.ir.graph import Graph, Value
from intaglio.ir.types import DType
from intaglio.ops.convert import Cast

SELFTEST_TOLERANCE = {DType.F32: 1e-4, DType.F64: 1e-4, DType.F16: 2e-3, DType.BF16: 2e-2}
DEVICE_TOLERANCE = {"fp32": 1e-3, "mixed": 3e-2, "fp16": 6e-2}  # of floats that an OpenCL device computes, by its precision


def share(dtype: DType, rounded: str = "") -> float:
    """Of a tensor of this type, some of whose layers compute in the type `rounded`; 0: it is exact."""
    own = SELFTEST_TOLERANCE.get(dtype, 0.0)
    return max(own, SELFTEST_TOLERANCE[DType(rounded)]) if own and rounded else own


def narrowest(graph: Graph) -> dict[Value, str]:
    """Values of floats with a layer before them, or their own, that computes in a narrower type than theirs, and that type. A cast
    computes nothing."""
    behind: dict[Value, DType] = {}
    for node in graph.nodes:
        inputs = [value for value in node.inputs if value is not None and value.data is None]
        found = [behind[value] for value in inputs if value in behind]
        if not isinstance(node.op, Cast):
            found += [value.dtype for value in (*inputs, *node.outputs) if value.dtype in SELFTEST_TOLERANCE]
        if found:
            worst = max(found, key=lambda dtype: SELFTEST_TOLERANCE[dtype])
            behind |= dict.fromkeys(node.outputs, worst)
    return {v: d.value for v, d in behind.items() if SELFTEST_TOLERANCE[d] > SELFTEST_TOLERANCE.get(v.dtype, 1.0)}
