"""Constants of a program as one block of bytes, each aligned, at named offsets.

Small blocks become a C array that any compiler reads. Larger ones stay binary: `NAME_weights.bin`, pulled in by the
assembler (`.incbin`), because a C compiler needs about a minute and 10 GB for 100 MB of numbers as text.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np

from intaglio.kernels.program import Constant
from intaglio.package.c_text import identifier

ALIGNMENT = 64
AS_TEXT_BELOW_BYTES = 4096


@dataclass(frozen=True, slots=True)
class Weights:
    """Where each constant lies in the block."""

    offsets: dict[str, int]
    size_bytes: int

    @property
    def as_text(self) -> bool:
        return self.size_bytes < AS_TEXT_BELOW_BYTES


def plan_weights(constants: list[Constant]) -> Weights:
    offsets: dict[str, int] = {}
    end = 0
    for constant in constants:
        start = -(-end // ALIGNMENT) * ALIGNMENT
        offsets[identifier(constant.name)] = start
        end = start + max(constant.data.nbytes, 1)  # an empty tensor too has an address
    return Weights(offsets, end)


def write_weights(constants: list[Constant], weights: Weights, name: str, source_folder: Path) -> None:
    """Write the files of the block and the header with its offsets. Nothing when there are no constants."""
    if not constants:
        return
    (source_folder / f"{name}_weights.h").write_text(_header(constants, weights, name), encoding="ascii")
    if weights.as_text:
        (source_folder / f"{name}_weights.c").write_text(_c_array(constants, weights, name), encoding="ascii")
        return
    with open(source_folder / f"{name}_weights.bin", "wb") as file:
        _write_block(constants, weights, file)
    (source_folder / f"{name}_weights.S").write_text(_ASSEMBLY.replace("NAME", name), encoding="ascii")


def _header(constants: list[Constant], weights: Weights, name: str) -> str:
    upper = name.upper()
    lines = [
        f"/* Weights of {name}: one block, {weights.size_bytes} bytes, each tensor at a multiple of {ALIGNMENT}. */",
        f"#ifndef {upper}_WEIGHTS_H",
        f"#define {upper}_WEIGHTS_H",
        "",
        "#include <stddef.h>",
        "",
        f"extern const unsigned char {name}_weights[];",
        "",
    ]
    for constant in constants:
        shape = ",".join(map(str, constant.data.shape))
        offset = weights.offsets[constant.name]
        lines.append(f"#define W_{constant.name} ((size_t){offset}) /* {constant.dtype.value}[{shape}] */")
    return "\n".join([*lines, "", "#endif", ""])


def _write_block(constants: list[Constant], weights: Weights, file: BinaryIO) -> None:
    end = 0
    for constant in constants:
        start = weights.offsets[constant.name]
        file.write(bytes(start - end))
        # Straight from the array's memory: a copy of the largest tensor would double the compiler's memory.
        data = np.ascontiguousarray(constant.data)
        if data.size:
            file.write(data.reshape(-1).view(np.uint8).data)
        end = start + data.nbytes
    file.write(bytes(weights.size_bytes - end))


def _c_array(constants: list[Constant], weights: Weights, name: str) -> str:
    import io

    block = io.BytesIO()
    _write_block(constants, weights, block)
    data = block.getvalue() or b"\0"
    rows = [", ".join(f"{byte:3d}" for byte in data[i : i + 16]) for i in range(0, len(data), 16)]
    return (
        f'#include "{name}_weights.h"\n\n'
        f"/* The tensors listed in {name}_weights.h, byte by byte (little endian). */\n"
        "#if defined(__GNUC__)\n"
        f"__attribute__((aligned({ALIGNMENT})))\n"
        "#endif\n"
        f"const unsigned char {name}_weights[] = {{\n    " + ",\n    ".join(rows) + ",\n};\n"
    )


_ASSEMBLY = """/* The weights as they are: NAME_weights.bin, found through -I, placed in read-only memory. */
#if defined(__APPLE__)
    .section __TEXT,__const
    .globl _NAME_weights
    .p2align 6
_NAME_weights:
    .incbin "NAME_weights.bin"
#else
    .section .rodata
    .globl NAME_weights
    .type NAME_weights, %object
    .balign 64
NAME_weights:
    .incbin "NAME_weights.bin"
    .size NAME_weights, . - NAME_weights
    .section .note.GNU-stack,"",%progbits
#endif
"""
