"""Small C programs for a core without an operating system, without the rest of a firmware."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from intaglio.run.emulator.image import Image, read_image
from intaglio.run.emulator.unicorn_core import UnicornCore
from intaglio.run.firmware_tools import compile_flags, find_firmware_toolchain, link_command, runtime
from intaglio.targets.board import find_board, generic_board
from intaglio.targets.bus import Cache
from intaglio.targets.target import find_target

LIMIT = 1 << 32
_START = """
#include <stdint.h>
extern uint32_t __stack_top[];
void Reset_Handler(void);
int main(void);
#define NAKED(name, text) __attribute__((naked)) int name(void) { __asm volatile(text); }
#if defined(__riscv)
__attribute__((naked, section(".vectors"), used)) void Reset_Handler(void) { __asm volatile("la sp, __stack_top\\nj main"); }
#else
static void stay(void) { for (;;) __asm volatile(""); }
__attribute__((section(".vectors"), used)) void (*const vectors[16])(void) = {
    (void (*)(void))(uintptr_t)__stack_top, Reset_Handler, stay, stay, stay, stay, stay, stay };
void Reset_Handler(void) { main(); stay(); }
#endif
__attribute__((noinline)) int main(void) { for (;;) __asm volatile(""); }
"""
_SCRIPT = """
ENTRY(Reset_Handler)
SECTIONS {
  . = FLASH; .vectors : { KEEP(*(.vectors)) } .text : { KEEP(*(.text*)) KEEP(*(.rodata*)) }
  . = RAM; .data : { *(.data*) } .bss (NOLOAD) : { KEEP(*(.bss*)) KEEP(*(COMMON)) }
  __stack_top = RAM + 0x100000;
  /DISCARD/ : { *(.ARM.exidx*) *(.eh_frame*) }
}
"""


def program(folder: Path, text: str, core: str = "cortex-m4f", level: str = "-O1") -> Image:
    """`text` is C; every function of it can be called by name."""
    target = find_target(core)
    board = generic_board(core, riscv=target.arch.startswith("riscv"))
    toolchain = find_firmware_toolchain(None, target)
    flash, ram = (hex(board.main(kind).address) for kind in ("flash", "ram"))
    (folder / "p.c").write_text(_START + text)
    (folder / "p.ld").write_text(_SCRIPT.replace("FLASH", flash).replace("RAM", ram))
    for command in (
        (*toolchain.compiler, *compile_flags(toolchain, target), level, "-c", "p.c", "-o", "p.o"),
        (*link_command(toolchain, target, "p.ld"), "--no-gc-sections", "p.o", runtime(toolchain, target), "-o", "p.elf"),
    ):
        done = subprocess.run(command, cwd=folder, env=toolchain.environment(), capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
    return read_image(folder / "p.elf")


def core_with(image: Image, name: str = "cortex-m4f", *, native: bool = True, caches: Sequence[Cache] | None = None) -> UnicornCore:
    """With `caches`, which may be none: loads from flash are counted."""
    pytest.importorskip("unicorn")
    target = find_target(name)
    board = generic_board(name, riscv=image.riscv) if name != "board" else find_board("mps2-an386")
    board = replace(board, caches=tuple(caches or ()))
    return UnicornCore(image, board, target.core, native=native, watch=caches is not None)
