"""Zba, Zbb and Zbs in the emulator: each instruction gives what its specification says, and a compiler's code runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from intaglio.run.emulator.bit_manipulation import result_of
from support.bare_programs import core_with, program

A, B, TO = 10, 11, 12  # registers


def two(funct7: int, funct3: int) -> int:
    return funct7 << 25 | B << 20 | A << 15 | funct3 << 12 | TO << 7 | 0x33


def constant(funct7: int, funct3: int, number: int) -> int:
    return funct7 << 25 | number << 20 | A << 15 | funct3 << 12 | TO << 7 | 0x13


@pytest.mark.parametrize(
    ("name", "word", "a", "b", "result"),
    [
        ("sh1add", two(0x10, 2), 3, 0xFFFFFFFF, 5),
        ("sh2add", two(0x10, 4), 3, 1, 13),
        ("sh3add", two(0x10, 6), 0x40000000, 7, 7),
        ("andn", two(0x20, 7), 0xFF, 0x0F, 0xF0),
        ("orn", two(0x20, 6), 0, 0xFFFFFFF0, 0xF),
        ("xnor", two(0x20, 4), 5, 5, 0xFFFFFFFF),
        ("min", two(5, 4), 0xFFFFFFFF, 1, 0xFFFFFFFF),
        ("minu", two(5, 5), 0xFFFFFFFF, 1, 1),
        ("max", two(5, 6), 0x80000000, 1, 1),
        ("maxu", two(5, 7), 0x80000000, 1, 0x80000000),
        ("rol", two(0x30, 1), 0x80000001, 4, 0x18),
        ("ror", two(0x30, 5), 0x18, 4, 0x80000001),
        ("ror by nothing", two(0x30, 5), 0x18, 32, 0x18),
        ("bclr", two(0x24, 1), 0xFF, 35, 0xF7),
        ("bext", two(0x24, 5), 8, 3, 1),
        ("binv", two(0x34, 1), 8, 3, 0),
        ("bset", two(0x14, 1), 0, 31, 0x80000000),
        ("zext.h", two(4, 4) & ~(31 << 20), 0x12345678, 0, 0x5678),
        ("rori", constant(0x30, 5, 8), 0x12345678, 0, 0x78123456),
        ("bexti", constant(0x24, 5, 3), 8, 0, 1),
        ("clz", constant(0x30, 1, 0), 1, 0, 31),
        ("clz of zero", constant(0x30, 1, 0), 0, 0, 32),
        ("ctz", constant(0x30, 1, 1), 0x80, 0, 7),
        ("ctz of zero", constant(0x30, 1, 1), 0, 0, 32),
        ("cpop", constant(0x30, 1, 2), 0xF0F0, 0, 8),
        ("sext.b", constant(0x30, 1, 4), 0x1280, 0, 0xFFFFFF80),
        ("sext.h", constant(0x30, 1, 5), 0x7FFF, 0, 0x7FFF),
        ("orc.b", constant(0x14, 5, 7), 0x00100001, 0, 0x00FF00FF),
        ("rev8", constant(0x34, 5, 24), 0x12345678, 0, 0x78563412),
    ],
)
def test_instructions_give_what_they_say(name: str, word: int, a: int, b: int, result: int) -> None:
    assert result_of(word, {A: a, B: b, 0: 0}.__getitem__) == (TO, result), name


@pytest.mark.parametrize("word", [two(0, 0), two(1, 0), constant(0, 1, 3), constant(0x20, 5, 3), 0x00052503])
def test_others_are_not_taken_for_them(word: int) -> None:
    """add, mul, slli, srai, lw."""
    assert result_of(word, {A: 1, B: 2, 0: 0}.__getitem__) is None


def test_code_of_a_compiler_runs_and_is_counted(tmp_path: Path) -> None:
    pytest.importorskip("unicorn")
    text = """
        int clamp(void);
        volatile int given = -300;
        int clamp(void)
        {
            int x = given;
            x = x < -128 ? -128 : x;
            return x > 127 ? 127 : x;
        }
    """
    counts = {}
    for core in ("hazard3", "rv32imc"):
        (tmp_path / core).mkdir()
        machine = core_with(program(tmp_path / core, text, core, "-O2"), core)
        try:
            before = machine.counts()
            assert machine.call("clamp", 1 << 12) == -128
            counts[core] = sum(b.size_bytes * t.ran for b, t in machine.counts().since(before).blocks.items())
        finally:
            machine.close()
    assert 0 < counts["hazard3"] <= counts["rv32imc"] + 8
