"""The time that a roofline gives an operator: the larger of its arithmetic at the peak and its bytes at the bandwidth.

    time = max(2 * MACs / peak arithmetic, bytes / memory bandwidth)

Bytes count every operand and result once, weights included; caches make real traffic smaller. It is an estimate for comparing
layers, not a promise.
"""

from __future__ import annotations

from dataclasses import dataclass

from intaglio.ir.graph import Node
from intaglio.ir.sizes import most
from intaglio.targets.target import Target


@dataclass(frozen=True, slots=True)
class Roofline:
    macs: int
    bytes_moved: int
    compute_us: float
    memory_us: float

    @property
    def time_us(self) -> float:
        return max(self.compute_us, self.memory_us)

    @property
    def bound(self) -> str:
        return "compute" if self.compute_us > self.memory_us else "memory"


def roofline(node: Node, target: Target, *, is_view: bool = False) -> Roofline:
    """`is_view`: nothing is moved."""
    types = [None if v is None else v.type for v in node.inputs]
    macs = most(node.op.macs(types, node.output.type))
    moved = 0 if is_view else sum(t.bytes for t in types if t is not None) + sum(o.type.bytes for o in node.outputs)
    return Roofline(macs, moved, 2 * macs / (target.gflops * 1e3), moved / (target.gbytes_per_s * 1e3))
