"""Counts of instructions are exact: against loops of known length, with and without native code, and against QEMU."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from intaglio.run.board_cycles import survey_of
from intaglio.run.costs import Coster
from intaglio.run.emulator.core import Core
from intaglio.run.emulator.counting import Counts
from intaglio.run.emulator.qemu_core import QemuCore
from intaglio.run.emulator.unicorn_core import UnicornCore
from intaglio.targets.board import generic_board
from intaglio.targets.bus import Cache
from intaglio.targets.target import find_target
from support.bare_programs import LIMIT, core_with, program

pytest.importorskip("unicorn")
ARM_LOOP = 'NAKED(loop, "movs r0, #250\\n 1: nop\\n subs r0, #1\\n bne 1b\\n bx lr")'
RISCV_LOOP = 'NAKED(loop, "li a0, 250\\n 1: nop\\n addi a0, a0, -1\\n bnez a0, 1b\\n ret")'
# Half of the additions do not happen; they are fetched, decoded and counted all the same.
CONDITIONAL = """NAKED(some, "movs r1, #250\\n movs r0, #0\\n"
    "1: lsls r3, r1, #31\\n ite mi\\n addmi r0, #1\\n addpl r0, #2\\n subs r1, #1\\n bne 1b\\n bx lr")"""
# Longer than a page and than a translation block, with an instruction across every boundary of pages.
STRAIGHT = 'NAKED(straight, "nop\\n .rept 3000\\n add.w r3, r3, #1\\n .endr\\n bx lr")'
READS = """const volatile int table[64] = {1};
int reads(void) { int s = 0; for (int i = 0; i < 64; i++) s += table[i]; return s; }"""
WATCHED = """__attribute__((noinline)) void hook(int a) { __asm volatile("" :: "r"(a)); }
int run(void) { hook(7); hook(-1); return 0; }"""


def ran(core: Core, function: str) -> Counts:
    before = core.counts()
    core.call(function, LIMIT)
    after = core.counts()
    assert before is not None and after is not None
    return after.since(before)


def instructions(core: Core, name: str, function: str) -> int:
    return Coster(find_target(name).core, core.read, riscv=core.image.riscv).add(ran(core, function)).instructions


@pytest.mark.parametrize("name", ["cortex-m0+", "cortex-m3", "cortex-m4", "cortex-m4f", "cortex-m7", "cortex-m33"])
def test_a_loop_of_known_length_is_counted_to_the_instruction(tmp_path: Path, name: str) -> None:
    core = core_with(program(tmp_path, ARM_LOOP, name), name)
    assert instructions(core, name, "loop") == 1 + 3 * 250 + 1


@pytest.mark.parametrize("name", ["rv32imc", "rv32imafc"])
def test_so_it_is_on_riscv(tmp_path: Path, name: str) -> None:
    core = core_with(program(tmp_path, RISCV_LOOP, name), name)
    assert instructions(core, name, "loop") == 1 + 3 * 250 + 1


def test_conditional_instructions_count_whether_they_act_or_not(tmp_path: Path) -> None:
    core = core_with(program(tmp_path, CONDITIONAL))
    assert core.call("some", LIMIT) == 375
    assert instructions(core, "cortex-m4f", "some") == 2 + 6 * 250 + 1


def test_code_that_is_translated_in_pieces_counts_once(tmp_path: Path) -> None:
    core = core_with(program(tmp_path, STRAIGHT))
    assert instructions(core, "cortex-m4f", "straight") == 1 + 3000 + 1


def test_python_counts_what_native_code_counts(tmp_path: Path) -> None:
    image = program(tmp_path, ARM_LOOP + CONDITIONAL)
    native, python = core_with(image), core_with(image, native=False)
    for function in ("loop", "some"):
        assert ran(native, function) == ran(python, function)


def test_a_branch_knows_how_often_it_was_taken(tmp_path: Path) -> None:
    counts = ran(core_with(program(tmp_path, ARM_LOOP)), "loop")
    assert max(times.taken for times in counts.blocks.values()) == 250 - 2  # the first turn is in the block before


def test_the_same_function_again_counts_the_same(tmp_path: Path) -> None:
    core = core_with(program(tmp_path, ARM_LOOP))
    assert ran(core, "loop") == ran(core, "loop")


@pytest.mark.parametrize("native", [True, False])
def test_loads_from_flash_are_counted_when_asked(tmp_path: Path, native: bool) -> None:
    image = program(tmp_path, READS)
    assert ran(core_with(image, native=native, caches=()), "reads").traffic.accesses == (64,)
    assert ran(core_with(image, native=native), "reads").traffic.accesses == ()


@pytest.mark.parametrize("native", [True, False])
@pytest.mark.parametrize(
    ("cache", "misses"),
    [
        (Cache("c", "data", 8, 32), 8),  # a fill is a line: 256 bytes of the table
        (Cache("c", "data", 8, 32, fill_bytes=8), 32),
        (Cache("c", "data", 1, 4), 64),
    ],
    ids=str,
)
def test_a_cache_is_simulated_on_the_addresses(tmp_path: Path, native: bool, cache: Cache, misses: int) -> None:
    image = program(tmp_path, READS)
    counts = ran(core_with(image, native=native, caches=(cache,)), "reads")
    assert misses <= counts.traffic.data_misses[0] <= misses + 1  # where the table is not at the start of a line
    assert counts.traffic.code_misses == (0,)


@pytest.mark.parametrize("native", [True, False])
def test_what_is_in_a_cache_does_not_miss_again(tmp_path: Path, native: bool) -> None:
    image = program(tmp_path, READS)
    large, small = (core_with(image, native=native, caches=(Cache("c", "data", n, 32),)) for n in (16, 4))
    for core in (large, small):
        ran(core, "reads")
    assert ran(large, "reads").traffic.data_misses == (0,)
    assert ran(small, "reads").traffic.data_misses[0] >= 8


@pytest.mark.parametrize("native", [True, False])
def test_code_that_is_fetched_ahead_misses_only_after_a_branch(tmp_path: Path, native: bool) -> None:
    image = program(tmp_path, STRAIGHT)
    alone, ahead = (core_with(image, native=native, caches=(Cache("c", "code", 8, 32, prefetch=p),)) for p in (False, True))
    assert ran(alone, "straight").traffic.code_misses[0] >= 3000 * 4 // 32
    ran(ahead, "straight")  # its end is in the cache now, its start is not
    assert ran(ahead, "straight").traffic.code_misses == (1,)


def test_python_simulates_the_caches_of_native_code(tmp_path: Path) -> None:
    image = program(tmp_path, READS + CONDITIONAL + STRAIGHT)
    caches = (Cache("d", "data", 8, 16, ways=2, fill_bytes=8), Cache("c", "code", 64, 16, ways=4))
    native, python = core_with(image, caches=caches), core_with(image, native=False, caches=caches)
    for function in ("reads", "some", "straight", "reads"):
        assert ran(native, function) == ran(python, function)


@pytest.mark.parametrize("native", [True, False])
def test_caches_of_several_boards_are_simulated_at_once(tmp_path: Path, native: bool) -> None:
    image = program(tmp_path, READS + STRAIGHT)
    generic = generic_board("cortex-m4f")
    both = replace(generic, name="both", caches=(Cache("c", "both", 64, 16, ways=2),))
    apart = replace(generic, name="apart", caches=(Cache("c", "code", 8, 32, prefetch=True), Cache("d", "data", 4, 32)))
    boards = (both, apart, replace(apart, name="alike"))
    together = UnicornCore(image, generic, "cortex-m4", boards=boards, native=native)
    alone = {board.name: UnicornCore(image, board, "cortex-m4", watch=True, native=native) for board in boards}
    survey = survey_of(generic.main("flash"), boards)
    assert len(survey.watched) == 2 and survey.where["alike"] == survey.where["apart"]
    for function in ("reads", "straight", "reads"):
        counts = ran(together, function)
        for board in boards:
            assert survey.counts(board, counts) == ran(alone[board.name], function)


def test_a_function_can_be_watched_after_it_has_run_unwatched(tmp_path: Path) -> None:
    image = program(tmp_path, WATCHED)
    core = core_with(image)
    heard: list[int] = []
    core.call("run", LIMIT)
    core.call("run", LIMIT, {image.address("hook"): lambda: heard.append(core.argument(0))})
    core.call("run", LIMIT)
    assert heard == [7, -1]


@pytest.mark.skipif(shutil.which("qemu-system-arm") is None, reason="there is no qemu-system-arm here")
@pytest.mark.parametrize("name", ["cortex-m3", "cortex-m4f", "cortex-m7"])
def test_qemu_counts_the_same(tmp_path: Path, name: str) -> None:
    image = program(tmp_path, ARM_LOOP + CONDITIONAL + STRAIGHT, name)
    other = QemuCore(image, generic_board(name), find_target(name).core)
    core = core_with(image, name)
    try:
        for function in ("loop", "some", "straight"):
            assert instructions(other, name, function) == instructions(core, name, function)
    finally:
        other.close()
