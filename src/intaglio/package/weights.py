"""Constants of a program as one block of bytes, each aligned, at named offsets.

Small blocks become a C array that any compiler reads. Larger ones stay binary: `NAME_weights.bin`, pulled in by the
assembler (`.incbin`), because a C compiler needs about a minute and 10 GB for 100 MB of numbers as text. Firmware has
arrays up to some megabytes: the builders of Arduino and PlatformIO know nothing of files beside the sources.

Weights in another flash (`memory/weights.py`) are a block of their own, `NAME_weights_QSPI`, in the section
`.rodata.intaglio_QSPI`.

With an address of their own, the weights are a binary that is written to flash apart from the code. It starts with a
header that says for which code it was made; NAME_weights_check compares.

    "IGWEIGHT"   format   size   CRC-32   0   SHA-256 of the layers' C and the offsets   0   data
    8 bytes      4        4      4        4   32                                         8   from byte 64
"""

from __future__ import annotations

import hashlib
import struct
import zlib
from collections.abc import Iterator, Mapping
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import Protocol

import numpy as np

from intaglio.fitting.weights import ALIGNMENT, FIRMWARE_ALIGNMENT, Weights
from intaglio.kernels.program import Constant
from intaglio.package.c_text import comment, identifier, macro
from intaglio.package.folder import Later, at_once
from intaglio.targets.deployment import WEIGHTS_HEADER_BYTES

MAGIC = b"IGWEIGHT"
FORMAT = 1
MOST_USERS = 4  # that a comment names


class Sink(Protocol):
    """A file, or what looks like one."""

    def write(self, data: bytes | memoryview, /) -> int: ...


def block_name(name: str, memory: str) -> str:
    """The C array of the weights in a memory."""
    return f"{identifier(name)}_weights" + (f"_{identifier(memory)}" if memory else "")


def factory_name(name: str) -> str:
    """Weights that are linked with the code, where slots may replace them."""
    return f"{identifier(name)}_factory_weights"


def offset_macro(network: str, constant: str) -> str:
    """Where a constant is in its block."""
    return macro(network, "W", constant)


def write_weights(
    constants: list[Constant], weights: Weights, name: str, source_folder: Path, later: Later = at_once, *, slots: bool = False
) -> None:
    """Write the files of the block, `later`, and the header with its offsets. Nothing when there are no constants. `slots`: the
    block is what the device starts with; others may take its place."""
    if not constants:
        return
    header = _header(constants, weights, name)
    if slots:
        header = header.replace(f"extern const unsigned char {name}_weights[];", _SLOTTED.replace("NAME", name))
    (source_folder / f"{name}_weights.h").write_text(header, encoding="ascii")
    if weights.binary:
        later(partial(_write_binary, constants, weights, name, source_folder))
        return
    for memory, block in (("", weights), *weights.apart):
        inside = [c for c in constants if c.memory == memory]
        if inside:
            array = factory_name(name) if slots else block_name(name, memory)
            later(partial(_write_linked, inside, block, name, array, source_folder))


def _write_linked(constants: list[Constant], weights: Weights, name: str, array: str, source_folder: Path) -> None:
    if weights.as_text:
        (source_folder / f"{array}.c").write_text(_c_array(constants, weights, name, array), encoding="ascii")
        return
    with open(source_folder / f"{array}.bin", "wb") as file:
        write_block(constants, weights, file)
    section = weights.section or ".rodata"
    text = _ASSEMBLY.replace("SECTION", section).replace("ALIGNMENT", str(weights.alignment)).replace("ARRAY", array)
    (source_folder / f"{array}.S").write_text(text, encoding="ascii")


def write_offsets(names: Mapping[str, str], prefix: str, network: str, source_folder: Path) -> None:
    """The header of a variant: its constants by name, with their names in the block of the network."""
    lines = [
        f"/* Weights of {prefix}: where each is in the block of {network}. */",
        f"#ifndef {prefix.upper()}_WEIGHTS_H",
        f"#define {prefix.upper()}_WEIGHTS_H",
        "",
        f'#include "{network}_weights.h"',
        "",
        f"#define {prefix}_weights {network}_weights",
        *(f"#define {offset_macro(prefix, own)} {offset_macro(network, name)}" for own, name in names.items()),
        "",
        "#endif",
        "",
    ]
    (source_folder / f"{prefix}_weights.h").write_text("\n".join(lines), encoding="ascii")


def weights_file(name: str) -> str:
    """The binary of weights with an address of their own, in the package."""
    return f"weights/{name}_weights.bin"


def _header(constants: list[Constant], weights: Weights, name: str) -> str:
    upper = name.upper()
    arrays = [f"extern {_const(block)}unsigned char {block_name(name, memory)}[];" for memory, block in weights.apart]
    if weights.read:
        return _file_header(constants, weights, name)
    block = "\n".join([f"extern const unsigned char {name}_weights[];" if weights.size_bytes else "", *arrays]).strip()
    if weights.address is not None:
        start = weights.address + WEIGHTS_HEADER_BYTES
        block = f"#define {name}_weights ((const unsigned char *)(uintptr_t){start:#x}u) /* behind the header of the binary */"
    least = FIRMWARE_ALIGNMENT if weights.alignment < ALIGNMENT else ALIGNMENT
    lines = [
        f"/* Weights of {name}: {_blocks_text(weights)}, each tensor at a multiple of {least}. */",
        f"#ifndef {upper}_WEIGHTS_H",
        f"#define {upper}_WEIGHTS_H",
        "",
        "#include <stddef.h>",
        "#include <stdint.h>",
        "",
        block,
        "",
    ]
    lines += [_definition(constant, weights, name) for constant in constants]
    return "\n".join([*lines, "", "#endif", ""])


def _definition(constant: Constant, weights: Weights, name: str) -> str:
    where = f", in {constant.memory}" if constant.memory else ""
    macro = offset_macro(name, constant.name)
    return f"#define {macro} ((size_t){weights.offsets[constant.name]}) /* {_described(constant)}{where} */"


def _described(constant: Constant) -> str:
    """Type and shape, the order of the numbers, and who reads it too."""
    text = f"{constant.dtype.value}[{','.join(map(str, constant.data.shape))}]"
    if constant.about:
        text += f", {constant.about}"
    others = constant.used_by[1:]
    if others:
        more = f" and {len(others) - MOST_USERS} more" if len(others) > MOST_USERS else ""
        text += f"; also used by {', '.join(others[:MOST_USERS])}{more}"
    return comment(text, 250)


def _file_header(constants: list[Constant], weights: Weights, name: str) -> str:
    lines = [
        f"/* Where the weights of {name} are in {name}_weights.bin, which has {weights.size_bytes} bytes behind its header. */",
        f"#ifndef {name.upper()}_WEIGHTS_H",
        f"#define {name.upper()}_WEIGHTS_H",
        "",
        "#include <stddef.h>",
        "",
    ]
    in_order = sorted(constants, key=lambda c: weights.offsets[c.name])
    lines += [_definition(constant, weights, name) for constant in in_order]
    return "\n".join([*lines, "", "#endif", ""])


def _blocks_text(weights: Weights) -> str:
    if not weights.apart:
        return f"one block, {weights.size_bytes} bytes"
    told = [f"{weights.size_bytes} bytes with the code", *(f"{b.size_bytes} bytes in {m}" for m, b in weights.apart)]
    return f"{len(told)} blocks, {', '.join(told)}"


def write_block(constants: list[Constant], weights: Weights, file: Sink) -> None:
    begin = end = WEIGHTS_HEADER_BYTES if weights.read else 0
    for constant in sorted(constants, key=lambda c: weights.offsets[c.name]):
        start = weights.offsets[constant.name]
        file.write(bytes(start - end))
        # Straight from the array's memory: a copy of the largest tensor would double the compiler's memory.
        data = np.ascontiguousarray(constant.data)
        if data.size:
            file.write(data.reshape(-1).view(np.uint8).data)
        end = start + data.nbytes
    file.write(bytes(weights.size_bytes + begin - end))


def _c_array(constants: list[Constant], weights: Weights, name: str, array: str) -> str:
    section = f', section("{weights.section}")' if weights.section else ""
    return (
        f'#include "{name}_weights.h"\n\n'
        f"/* The tensors listed in {name}_weights.h, byte by byte (little endian). */\n"
        "#if defined(__GNUC__)\n"
        f"__attribute__((aligned({weights.alignment}){section}))\n"
        "#endif\n"
        f"{_const(weights)}unsigned char {array}[] = {{\n" + "".join(_rows(constants, weights)) + "};\n"
    )


def _const(weights: Weights) -> str:
    """Start-up code copies what is not constant from flash to RAM."""
    return "" if weights.ram else "const "


def _rows(constants: list[Constant], weights: Weights) -> Iterator[str]:
    """Each tensor under a comment, then the bytes up to the next one."""
    texts = [f"{byte:3d}" for byte in range(256)]  # a lookup is five times as fast as formatting, and there are many
    in_order = sorted(constants, key=lambda c: weights.offsets[c.name])
    ends = [*(weights.offsets[c.name] for c in in_order[1:]), weights.size_bytes]
    for constant, end in zip(in_order, ends, strict=True):
        data = np.ascontiguousarray(constant.data).tobytes().ljust(end - weights.offsets[constant.name], b"\0")
        yield f"    /* {constant.name}: {_described(constant)} */\n"
        for at in range(0, len(data), 16):
            yield f"    {', '.join([texts[byte] for byte in data[at : at + 16]])},\n"


def _write_binary(constants: list[Constant], weights: Weights, name: str, source_folder: Path) -> None:
    """The binary, and the C that recognises it."""
    digest = hashlib.sha256()
    for path in sorted([source_folder / f"{name}.c", *source_folder.glob(f"{name}_kernels*"), source_folder / f"{name}_weights.h"]):
        digest.update(path.read_bytes())
    block = BytesIO()
    write_block(constants, weights, block)
    data = block.getvalue()
    head = MAGIC + struct.pack("<IIII", FORMAT, len(data), zlib.crc32(data), 0) + digest.digest()
    path = source_folder.parent / weights_file(name)
    path.parent.mkdir()
    path.write_bytes(head.ljust(WEIGHTS_HEADER_BYTES, b"\0") + data)
    expected = head[:16] + head[24:56]
    rows = ", ".join(f"0x{byte:02x}" for byte in expected)
    text = (_CHECK_READ if weights.read else _CHECK).replace("ROWS", rows).replace("SIZE", str(len(data))).replace("NAME", name)
    (source_folder / f"{name}_weights.c").write_text(text, encoding="ascii")


def is_sound(binary: bytes) -> bool:
    """Does a binary of weights match its own header?"""
    if len(binary) < WEIGHTS_HEADER_BYTES or binary[: len(MAGIC)] != MAGIC:
        return False
    form, size, crc = struct.unpack_from("<III", binary, len(MAGIC))
    data = binary[WEIGHTS_HEADER_BYTES:]
    return bool(form == FORMAT and size == len(data) and crc == zlib.crc32(data))


_SLOTTED = """extern const unsigned char NAME_factory_weights[]; /* linked with the code */
extern const unsigned char *NAME_current_weights; /* these, or those of a slot: NAME_slots.h */
#define NAME_weights NAME_current_weights"""

_CHECK_READ = """#include "NAME.h"

/* Format, size and digest of the file that this code was made with. */
static const unsigned char NAME_expected[48] = {
    ROWS,
};

static uint32_t NAME_word(const unsigned char *bytes)
{
    return bytes[0] | (uint32_t)bytes[1] << 8 | (uint32_t)bytes[2] << 16 | (uint32_t)bytes[3] << 24;
}

/* CRC-32 (IEEE 802.3), without a table: it runs once, at start-up. */
static uint32_t NAME_checksum(uint32_t crc, const unsigned char *bytes, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        crc ^= bytes[i];
        for (int bit = 0; bit < 8; bit++)
            crc = (crc >> 1) ^ (0xedb88320u & (0u - (crc & 1u)));
    }
    return crc;
}

int NAME_weights_check(void)
{
    unsigned char header[64];
    unsigned char part[64];
    uint32_t crc = 0xffffffffu;
    if (NAME_read(0, header, sizeof header) != 0)
        return 3;
    for (size_t i = 0; i < 16; i++)
        if (header[i] != NAME_expected[i])
            return 1;
    for (size_t i = 16; i < 48; i++)
        if (header[i + 8] != NAME_expected[i])
            return 1;
    for (size_t at = 0; at < SIZE; at += sizeof part) {
        const size_t count = SIZE - at < sizeof part ? SIZE - at : sizeof part;
        if (NAME_read(sizeof header + at, part, count) != 0)
            return 3;
        crc = NAME_checksum(crc, part, count);
    }
    return ~crc == NAME_word(header + 16) ? 0 : 2;
}
"""

_CHECK = """#include "NAME.h"
#include "NAME_weights.h"

/* Format, size and digest of the binary that this code was made with. */
static const unsigned char NAME_expected[48] = {
    ROWS,
};

static uint32_t NAME_word(const unsigned char *bytes)
{
    return bytes[0] | (uint32_t)bytes[1] << 8 | (uint32_t)bytes[2] << 16 | (uint32_t)bytes[3] << 24;
}

/* CRC-32 (IEEE 802.3), without a table: it runs once, at start-up. */
static uint32_t NAME_checksum(const unsigned char *bytes, size_t count)
{
    uint32_t crc = 0xffffffffu;
    for (size_t i = 0; i < count; i++) {
        crc ^= bytes[i];
        for (int bit = 0; bit < 8; bit++)
            crc = (crc >> 1) ^ (0xedb88320u & (0u - (crc & 1u)));
    }
    return ~crc;
}

int NAME_weights_check(void)
{
    const unsigned char *header = NAME_weights - 64;
    for (size_t i = 0; i < 16; i++)
        if (header[i] != NAME_expected[i])
            return 1;
    for (size_t i = 16; i < 48; i++)
        if (header[i + 8] != NAME_expected[i])
            return 1;
    return NAME_checksum(NAME_weights, SIZE) == NAME_word(header + 16) ? 0 : 2;
}
"""

_ASSEMBLY = """/* The weights as they are: ARRAY.bin, found through -I, placed in read-only memory. */
#if defined(__APPLE__)
    .section __TEXT,__const
    .globl _ARRAY
    .p2align 6
_ARRAY:
    .incbin "ARRAY.bin"
#elif defined(__wasm__)
    .section .rodata.ARRAY,"",@
    .globl ARRAY
    .type ARRAY,@object
    .p2align 6
ARRAY:
    .incbin "ARRAY.bin"
    .size ARRAY, . - ARRAY
#else
    .section SECTION,"a",%progbits
    .globl ARRAY
    .type ARRAY, %object
    .balign ALIGNMENT
ARRAY:
    .incbin "ARRAY.bin"
    .size ARRAY, . - ARRAY
    .section .note.GNU-stack,"",%progbits
#endif
"""
