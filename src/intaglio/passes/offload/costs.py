"""What a node costs on the core, in its cycles: an estimate that is compared with what accelerators say of themselves.

Where there is no operating system: the cycles per multiply-accumulate that `profile` has measured over whole models, and some
cycles for every byte that is moved. Elsewhere the roofline of `--explain`, as cycles of the core's clock.
"""

from __future__ import annotations

from intaglio.ir.graph import Node
from intaglio.targets.accelerator import Cost
from intaglio.targets.roofline import roofline
from intaglio.targets.target import Target

CYCLES_PER_BYTE = 2.5  # loads, stores and the loop around them, of operators that only compute elements
NARROW = 2.0  # depthwise convolutions and the like use each operand once: this many times the usual cost of a MAC
HOST_MHZ = 1000.0


def core_cycles(node: Node, target: Target) -> float:
    if node.op.NAME == "reshape":
        return 0.0
    types = [None if v is None else v.type for v in node.inputs]
    macs = node.op.macs(types, node.output.type)
    if not target.bare:
        return HOST_MHZ * roofline(node, target).time_us
    per_mac = target.cycles_per_mac_float if node.output.dtype.is_float else target.cycles_per_mac_int
    if getattr(node.op, "group", 1) > 1:
        per_mac *= NARROW
    moved = sum(v.type.bytes for v in [*node.inputs, *node.outputs] if v is not None and not v.is_const)
    return float(macs * (per_mac or 2.0) + CYCLES_PER_BYTE * moved)


def region_cycles(cost: Cost, clock_mhz: float | None, core_mhz: float | None) -> float:
    """In cycles of the core; `clock_mhz` of the accelerator, None where it is that of the core."""
    ratio = (core_mhz or HOST_MHZ) / clock_mhz if clock_mhz else 1.0
    return (cost.cycles + cost.transfer_cycles) * ratio + cost.launch_cycles
