"""Firmware that goes astray is stopped, and told where."""

from __future__ import annotations

from pathlib import Path

import pytest

from intaglio.errors import OurFault, UserError
from intaglio.run.emulator.core import Stack
from intaglio.run.emulator.image import read_image
from support.bare_programs import LIMIT, core_with, program

pytest.importorskip("unicorn")
ASTRAY = """
int reads(void) { return *(volatile int *)0x90000000; }
int writes(void) { *(volatile int *)0x90000000 = 1; return 0; }
int burns(void) { *(volatile int *)0x100 = 1; return 0; }
int jumps(void) { return ((int (*)(void))0x90000001)() + 1; }
int undefined(void) { __asm volatile("udf #0"); return 0; }
int traps(void) { __asm volatile("bkpt #0"); return 0; }
int forever(void) { for (;;) __asm volatile(""); }
int deep(int n) { volatile int a[64]; a[0] = n; return deep(n + 1) + a[0]; }
"""


@pytest.mark.parametrize(
    ("function", "says"),
    [
        ("reads", "reads from 0x90000000, where there is no memory"),
        ("writes", "writes to 0x90000000, where there is no memory"),
        ("burns", "writes to 0x00000100, `flash`, which is read only"),
        ("jumps", "jumps to 0x90000000, where there is no memory"),
        ("undefined", "runs an instruction that this core does not have"),
        ("traps", "raises exception 7 of the processor"),
        ("forever", "does not end: more than 262,144 instructions"),
        ("deep", "writes to 0x20fff"),
    ],
)
def test_what_happened_and_where(tmp_path: Path, function: str, says: str) -> None:
    core = core_with(program(tmp_path, ASTRAY))
    with pytest.raises(OurFault, match="firmware-fault") as caught:
        core.call(function, 1 << 20)
    assert says in caught.value.message
    assert f"`{function}" in caught.value.where


def test_an_access_that_the_core_cannot_do_is_a_fault(tmp_path: Path) -> None:
    image = program(tmp_path, "int odd(void) { return *(volatile int *)0x21000001; }", "cortex-m0+")
    with pytest.raises(OurFault, match="firmware-fault"):
        core_with(image, "cortex-m0+").call("odd", LIMIT)


RISCV = """
int reads(void) { return *(volatile int *)0x90000000; }
int burns(void) { *(volatile int *)0x20000100 = 1; return 0; }
int jumps(void) { return ((int (*)(void))0x90000000)() + 1; }
int undefined(void) { __asm volatile(".word 0"); return 0; }
"""


@pytest.mark.parametrize(
    ("function", "says"),
    [("reads", "where there is no memory"), ("burns", "read only"), ("jumps", "jumps to"), ("undefined", "does not have")],
)
def test_riscv_goes_astray_likewise(tmp_path: Path, function: str, says: str) -> None:
    core = core_with(program(tmp_path, RISCV, "rv32imc"), "rv32imc")
    with pytest.raises(OurFault, match=says) as caught:
        core.call(function, 1 << 20)
    assert f"`{function}" in caught.value.where


def test_a_core_goes_on_after_a_fault(tmp_path: Path) -> None:
    core = core_with(program(tmp_path, ASTRAY + "int seven(void) { return 7; }"))
    with pytest.raises(OurFault):
        core.call("reads", LIMIT)
    assert core.call("seven", LIMIT) == 7


@pytest.mark.parametrize("bytes_used", [8, 400, 4000])
def test_the_deepest_stack_is_found_by_its_paint(tmp_path: Path, bytes_used: int) -> None:
    text = f"int use(void) {{ volatile char a[{bytes_used}]; for (int i = 0; i < {bytes_used}; i++) a[i] = 1; return a[0]; }}"
    core = core_with(program(tmp_path, text))
    stack = Stack(core)
    assert stack.used_bytes() == 0
    core.call("use", LIMIT)
    assert bytes_used - 8 <= stack.used_bytes() <= bytes_used + 24


def test_a_file_that_is_no_firmware_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.elf").write_bytes(b"\x7fELF nothing")
    with pytest.raises(UserError, match=r"error\[not-built\]"):
        read_image(tmp_path / "x.elf")
