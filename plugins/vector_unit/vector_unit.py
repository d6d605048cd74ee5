"""A float vector unit beside the core: sums, differences, products and relu of whole tensors, eight elements at a time.

One command works on one operator; up to four of them are one region, so that the core is asked once. Results between them are in
the scratch memory of the region.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from intaglio.accelerator import Accelerator, Array, Code, Cost, DType, Facts, Is, Pattern, Region, Target
from intaglio.ops.activation import Relu
from intaglio.ops.binary import Add, Mul, Sub

COMMANDS = {"add": "a[i] + b[i]", "sub": "a[i] - b[i]", "mul": "a[i] * b[i]", "relu": "a[i] > 0.0f ? a[i] : 0.0f"}
LANES, LAUNCH_CYCLES, COMMAND_CYCLES = 8, 50, 12

HEADER = """/* The vector unit. Here it is plain C; on your chip these are four instructions or a few registers. */
#ifndef VECTOR_UNIT_H
#define VECTOR_UNIT_H
#include <stdint.h>
typedef enum { VECTOR_ADD, VECTOR_SUB, VECTOR_MUL, VECTOR_RELU } vector_command;
void vector_unit(vector_command command, const float *a, const float *b, float *y, int32_t count);
#endif
"""
CASES = "\n".join(
    f"        case VECTOR_{name.upper()}:\n            y[i] = {text};\n            break;" for name, text in COMMANDS.items()
)
SOURCE = f"""#include "vector_unit.h"

void vector_unit(vector_command command, const float *a, const float *b, float *y, int32_t count)
{{
    for (int32_t i = 0; i < count; i++)
        switch (command) {{
{CASES}
        }}
}}
"""


def check(region: Region) -> str | None:
    values = [v for v in (*region.node.inputs, region.node.output) if v is not None]
    if any(v.dtype is not DType.F32 for v in values):
        return "it computes in f32"
    if any(v.is_const for v in values):
        return "it reads no constants"
    return None if len({v.shape for v in values}) == 1 else "all shapes must be the same"


class VectorUnit(Accelerator):
    name = "vector_unit"
    facts = Facts("a float vector unit of eight lanes", alignment=4, merges=4)
    patterns = tuple(Pattern(op.NAME, Is(op), check) for op in (Add, Sub, Mul, Relu))

    def accepts(self, region: Region) -> str | None:
        return "all tensors of a region have one shape" if len({n.output.shape for n in region.nodes}) > 1 else None

    def cost(self, region: Region, target: Target) -> Cost:
        elements = region.node.output.type.elements
        moved = 4 * elements * (len(region.inputs) + len(region.outputs))
        return Cost(len(region.nodes) * (elements / LANES + COMMAND_CYCLES), LAUNCH_CYCLES, moved, transfer_cycles=moved / 8)

    def compile(self, region: Region, target: Target) -> Code:
        count = region.node.output.type.elements
        names = {v: f"in{n}" for n, v in enumerate(region.inputs)} | {v: f"out{n}" for n, v in enumerate(region.outputs)}
        inner = [node.output for node in region.nodes if node.output not in names]
        names |= {value: f"((float *)(void *)scratch + {n * count})" for n, value in enumerate(inner)}
        lines = []
        for node in region.nodes:
            a, *b = [names[v] for v in node.inputs if v is not None]
            second = b[0] if b else "NULL"
            lines.append(f"vector_unit(VECTOR_{node.op.NAME.upper()}, {a}, {second}, {names[node.output]}, {count});")
        return Code("\n".join(lines), scratch_bytes=4 * count * len(inner), includes=("vector_unit.h",))

    def emulate(self, region: Region, inputs: Sequence[Array]) -> list[Array]:
        meaning: dict[str, Callable[..., Array]] = {
            "add": np.add, "sub": np.subtract, "mul": np.multiply, "relu": lambda a: np.where(a > 0, a, np.float32(0)),
        }  # fmt: skip
        values = dict(zip(region.inputs, inputs, strict=True))
        for node in region.nodes:
            values[node.output] = meaning[node.op.NAME](*[values[v] for v in node.inputs if v is not None])
        return [values[v] for v in region.outputs]

    def files(self, target: Target) -> Mapping[str, str]:
        return {"vector_unit.h": HEADER, "vector_unit.c": SOURCE}
