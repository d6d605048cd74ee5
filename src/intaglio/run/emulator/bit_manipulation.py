"""RISC-V's Zba, Zbb and Zbs, which Unicorn does not have: it stops at such an instruction, and this says what it gives.

Encodings and meanings: "RISC-V Bit-Manipulation ISA-extensions", version 1.0.0. All are one instruction of 32 bits that writes a
register, from one or two others or a constant.
"""

from __future__ import annotations

from collections.abc import Callable

MASK = 0xFFFFFFFF
OP, OP_IMM = 0x33, 0x13
Meaning = Callable[[int, int], int]


def _signed(value: int) -> int:
    return value - (1 << 32) if value >> 31 else value


def _rotated(value: int, by: int) -> int:
    return value >> (by & 31) | value << (32 - (by & 31))


def _zeros_below(value: int) -> int:
    return (value & -value).bit_length() - 1 if value else 32


def _bytes_or(value: int) -> int:
    return sum(0xFF << at for at in range(0, 32, 8) if value >> at & 0xFF)


# By `funct7` and `funct3`.
TWO_REGISTERS: dict[tuple[int, int], Meaning] = {
    (0x10, 2): lambda a, b: (a << 1) + b,  # sh1add
    (0x10, 4): lambda a, b: (a << 2) + b,  # sh2add
    (0x10, 6): lambda a, b: (a << 3) + b,  # sh3add
    (0x20, 7): lambda a, b: a & ~b,  # andn
    (0x20, 6): lambda a, b: a | ~b,  # orn
    (0x20, 4): lambda a, b: ~(a ^ b),  # xnor
    (0x05, 4): lambda a, b: a if _signed(a) < _signed(b) else b,  # min
    (0x05, 5): min,  # minu
    (0x05, 6): lambda a, b: a if _signed(a) > _signed(b) else b,  # max
    (0x05, 7): max,  # maxu
    (0x30, 1): lambda a, b: _rotated(a, -b),  # rol
    (0x30, 5): _rotated,  # ror
    (0x24, 1): lambda a, b: a & ~(1 << (b & 31)),  # bclr
    (0x24, 5): lambda a, b: a >> (b & 31) & 1,  # bext
    (0x34, 1): lambda a, b: a ^ 1 << (b & 31),  # binv
    (0x14, 1): lambda a, b: a | 1 << (b & 31),  # bset
}
CONSTANT = {key: TWO_REGISTERS[key] for key in ((0x30, 5), (0x24, 1), (0x24, 5), (0x34, 1), (0x14, 1))}
# By `funct7`, `funct3` and the number in the place of the second register.
ONE_REGISTER: dict[tuple[int, int, int], Callable[[int], int]] = {
    (0x30, 1, 0): lambda a: 32 - a.bit_length(),  # clz
    (0x30, 1, 1): _zeros_below,  # ctz
    (0x30, 1, 2): int.bit_count,  # cpop
    (0x30, 1, 4): lambda a: (a & 0xFF ^ 0x80) - 0x80,  # sext.b
    (0x30, 1, 5): lambda a: (a & 0xFFFF ^ 0x8000) - 0x8000,  # sext.h
    (0x14, 5, 7): _bytes_or,  # orc.b
    (0x34, 5, 24): lambda a: int.from_bytes(a.to_bytes(4, "little"), "big"),  # rev8
}
ZEXT_H = (0x04, 4)  # with register 0 as the second


def result_of(word: int, register: Callable[[int], int]) -> tuple[int, int] | None:
    """The register that an instruction writes, and the value; None: it is none of these."""
    kind, funct3, funct7 = word & 0x7F, word >> 12 & 7, word >> 25
    to, first, second = (word >> at & 31 for at in (7, 15, 20))
    if kind == OP_IMM and (one := ONE_REGISTER.get((funct7, funct3, second))) is not None:
        return to, one(register(first)) & MASK
    if kind == OP_IMM and (meaning := CONSTANT.get((funct7, funct3))) is not None:
        return to, meaning(register(first), second) & MASK
    if kind == OP and (funct7, funct3) == ZEXT_H and second == 0:
        return to, register(first) & 0xFFFF
    if kind == OP and (meaning := TWO_REGISTERS.get((funct7, funct3))) is not None:
        return to, meaning(register(first), register(second)) & MASK
    return None
