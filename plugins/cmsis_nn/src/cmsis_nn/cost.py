"""What functions of CMSIS-NN cost on a core, in its cycles.

Fitted to `intaglio profile` of single layers (CMSIS-NN of July 2026, arm-none-eabi-gcc 12, -O2; -O3 is within 6 %) on emulated
cores: a Cortex-M4F stands for those with DSP instructions, a Cortex-M55 for those with MVE, a Cortex-M3 for all others.
"""

from __future__ import annotations

from dataclasses import dataclass

from cmsis_nn.checks import geometry
from cmsis_nn.scratch import is_three_by_three
from intaglio.accelerator import Cost, Node, Region
from intaglio.ops.pool import MaxPool
from intaglio.ops.quantised import QAdd, QConv, QMatMul
from intaglio.ops.quantised_rows import QAveragePool

LAUNCH_CYCLES = 60  # structs filled, the wrapper's questions


@dataclass(frozen=True, slots=True)
class Cycles:
    conv_output: float
    conv_mac: float
    pointwise_mac: float
    column_element: float  # an image as columns: each number, and each pixel of a window
    column_pixel: float
    depthwise_3x3_mac: float
    depthwise_mac: float
    dense_output: float
    dense_mac: float
    add: float
    max_pool: float  # for each element of a window
    average_output: float
    average: float
    softmax: float


CYCLES = {
    "dsp": Cycles(50, 2.08, 2.08, 5.8, 100, 10.5, 15.7, 80, 2.84, 100, 15, 28, 8, 450),
    "mve": Cycles(16.5, 0.26, 0.26, 0.42, 32, 3.2, 3.2, 69, 0.385, 12, 2.4, 19, 1.6, 108),
    "plain": Cycles(53, 3.7, 5.0, 7.6, 106, 13.3, 35, 70, 6.1, 97, 15, 95, 18, 540),
}


def cost_of(region: Region, kind: str) -> Cost:
    node, c = region.node, CYCLES[kind]
    macs, elements = region.macs, region.elements
    match node.op:
        case QConv():
            cycles = _convolution(node, macs, elements, c)
        case QMatMul():
            cycles = elements * c.dense_output + macs * c.dense_mac
        case QAdd():
            cycles = elements * c.add
        case MaxPool():
            cycles = macs * c.max_pool
        case QAveragePool():
            cycles = elements * c.average_output + macs * c.average
        case _:
            cycles = elements * c.softmax
    return Cost(cycles, LAUNCH_CYCLES)


def _convolution(node: Node, macs: int, outputs: int, c: Cycles) -> float:
    g = geometry(node)
    if isinstance(node.op, QConv) and node.op.group > 1:
        return macs * (c.depthwise_3x3_mac if is_three_by_three(g) else c.depthwise_mac)
    if g.is_pointwise:
        return outputs * c.conv_output + macs * c.pointwise_mac
    pixels = outputs // node.output.shape[3]
    columns = pixels * (g.depth * c.column_element + g.kernel[0] * g.kernel[1] * c.column_pixel)
    return outputs * c.conv_output + macs * c.conv_mac + columns
