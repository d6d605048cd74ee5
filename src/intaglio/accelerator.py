"""Everything that an accelerator plug-in needs, in one place: docs/guides/write-an-accelerator.md goes through one."""

from intaglio.ir.graph import Array, Node, Value
from intaglio.ir.operator import Op, Step
from intaglio.ir.types import DType, Layout, TensorType
from intaglio.run.emulator.native import host_library
from intaglio.targets.accelerator import (
    Accelerator,
    Bus,
    Code,
    Cost,
    Device,
    Facts,
    Is,
    Pad,
    Pattern,
    Region,
    chain,
)
from intaglio.targets.target import Target

__all__ = [
    "Accelerator", "Array", "Bus", "Code", "Cost", "DType", "Device", "Facts", "Is", "Layout", "Node", "Op", "Pad", "Pattern",
    "Region", "Step", "Target", "TensorType", "Value", "chain", "host_library",
]  # fmt: skip
