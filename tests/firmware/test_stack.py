"""The bound of the stack, on programs whose depth is known."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from intaglio.run.firmware_tools import compile_flags, find_firmware_toolchain, link_command
from intaglio.run.stack import read_frames, stack_bytes
from intaglio.targets.target import find_target

CORES = ("cortex-m0+", "cortex-m4f", "rv32imc")
HIDDEN = "__attribute__((noinline)) "
CHAIN = f"""
void touch(volatile char *p);
{HIDDEN}void touch(volatile char *p) {{ *p = 1; }}
{HIDDEN}static void leaf(void) {{ volatile char room[100]; touch(room); touch(room + 1); }}
{HIDDEN}static void middle(void) {{ volatile char room[40]; touch(room); leaf(); touch(room); }}
int main(void) {{ middle(); leaf(); return 0; }}
"""


def bound(source: str, core: str, folder: Path, *, frames: bool = True) -> int | None:
    target = find_target(core)
    tools = find_firmware_toolchain(None, target)
    (folder / "a.c").write_text(source)
    (folder / "a.ld").write_text("ENTRY(main) SECTIONS { . = 0x10000; .text : { *(.text .text.* .rodata .rodata.*) } }")
    flags = compile_flags(tools, target)
    subprocess.run((*tools.compiler, *flags, "-c", "a.c", "-o", "a.o"), cwd=folder, check=True)
    subprocess.run((*link_command(tools, target, "a.ld"), "a.o", "-o", "a.elf"), cwd=folder, check=True)
    return stack_bytes(folder / "a.elf", read_frames(folder) if frames else {}, "main")


@pytest.mark.parametrize("core", CORES)
def test_frames_of_a_chain_add_up(core: str, tmp_path: Path) -> None:
    depth = bound(CHAIN, core, tmp_path)
    frames = read_frames(tmp_path)
    assert depth == sum(frames[name] or 0 for name in ("main", "middle", "leaf", "touch"))
    assert depth is not None and depth >= 140


@pytest.mark.parametrize("core", CORES)
def test_instructions_tell_frames_that_the_compiler_did_not(core: str, tmp_path: Path) -> None:
    assert bound(CHAIN, core, tmp_path, frames=False) == bound(CHAIN, core, tmp_path)


def test_a_function_of_assembly_alone_has_a_frame_too(tmp_path: Path) -> None:
    """The compiler says 0."""
    body = '__asm__ volatile("push {r3-r11, lr}; pop {r3-r11, pc}");'
    function = f"{HIDDEN}__attribute__((naked)) static void f(void) {{ {body} }}"
    assert (bound(f"{function} int main(void) {{ f(); return 0; }}", "cortex-m4f", tmp_path) or 0) >= 40


UNBOUNDED = {
    "recursion": f"""
{HIDDEN}int f(volatile int n) {{ volatile char a[8]; a[0] = 1; return n ? f(n - 1) + a[0] : 0; }}
int main(void) {{ return f(3); }}""",
    "two that call each other": f"""
int g(int n);
{HIDDEN}int f(int n) {{ volatile char a[8]; a[0] = 1; return n ? g(n - 1) + a[0] : 0; }}
{HIDDEN}int g(int n) {{ volatile char a[8]; a[0] = 1; return n ? f(n - 1) + a[0] : 1; }}
int main(void) {{ return f(3); }}""",
    "a call through a pointer": "int (*volatile f)(int) = 0; int main(void) { return f(3) + 1; }",
    "a frame of varying size": f"""
{HIDDEN}int f(int n) {{ volatile char a[n]; a[n - 1] = 1; return a[0]; }}
int main(void) {{ return f(3) + 1; }}""",
}


@pytest.mark.parametrize("core", CORES)
@pytest.mark.parametrize("source", UNBOUNDED.values(), ids=UNBOUNDED)
def test_what_has_no_bound_has_none(source: str, core: str, tmp_path: Path) -> None:
    assert bound(source, core, tmp_path) is None


def test_a_far_jump_is_no_call(tmp_path: Path) -> None:
    """Armv6-M has no other jump than BL over more than 2 KB."""
    steps = "".join(f"if (x & {1 << n % 31}) {{ x = x * {n + 3} + y[{n}]; y[{n}] = x >> {n % 30}; }}\n" for n in range(400))
    function = f"int f(volatile int *y, int x) {{ for (int i = 0; i < 9; i++) {{ {steps} }} return x; }}"
    assert bound(f"{function} int main(void) {{ return f(0, 1); }}", "cortex-m0+", tmp_path) is not None
