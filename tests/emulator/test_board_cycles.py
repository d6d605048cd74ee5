"""Cycles of a board: what is added for its memories, the interval, and the measurements that the model rests on."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from intaglio.run.board_cycles import LEAST_FACTOR, MOST_FACTOR, MOST_STALLS, Stall, Sum, cycles_of, watched_memories
from intaglio.run.emulator.counting import Counts, Traffic
from intaglio.targets.board import Board, all_boards, find_board
from intaglio.targets.bus import Cache, Timing
from intaglio.targets.memories import Memory

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "cycle-estimate.md"
FLASH, SRAM = Memory("flash", "flash", 0x08000000, 1 << 20), Memory("sram", "ram", 0x20000000, 1 << 18)
SLOW = Memory("sdram", "ram", 0xC0000000, 1 << 23, bytes_per_cycle=1, latency=6)
SILENT = Board("mine", "a board of mine", "cortex-m4f", 100, 5, (FLASH, SRAM, SLOW))
ART = (Cache("art_code", "code", 32, 32, prefetch=True), Cache("art_data", "data", 8, 32, miss_cycles=4.0))
CACHED = replace(SILENT, caches=ART)
MEASURED = replace(CACHED, timing=Timing(1.1, 4, "measured"))
# 1000 loads from flash, 10 words of the slow memory; 20 fills of the cache of code, 300 of that of data
COUNTS = Counts({}, Traffic((1000, 10), (4000, 40), (0, 300), (20, 0)))


def total(board: Board, wait_states: int | None = None, counts: Counts = COUNTS) -> Sum:
    return cycles_of(board, wait_states).sum(500, 10_000, 70, counts)


def test_a_board_that_says_nothing_keeps_zero_wait_states() -> None:
    found = total(SILENT)
    assert (found.cycles, found.stalls) == (10_000, ())
    assert (found.cycles_low, found.cycles_high) == (10_000 * LEAST_FACTOR, 10_000 * MOST_FACTOR + 5 * (70 + 1000))
    assert "5 wait states and nothing else is known" in cycles_of(SILENT, None).basis


def test_a_core_without_a_board_has_no_interval() -> None:
    assert total(replace(SILENT, name="")) == Sum(500, 10_000)


def test_a_number_of_wait_states_is_for_any_board() -> None:
    for board in (SILENT, CACHED, MEASURED):
        found = total(board, 2)
        assert found.stalls == (Stall("branches", 140, 70), Stall("loads from flash", 2000, 1000))
        assert (found.cycles, found.cycles_low) == (12_140, None)


def test_caches_have_a_cost_of_a_miss_or_that_of_the_wait_states() -> None:
    found = total(CACHED)
    slow = 10 * 6 + 40 - 10  # latency, and a word in four cycles instead of one
    assert found.stalls == (Stall("art_code code", 100, 20), Stall("art_data data", 1200, 300), Stall("sdram", slow, 10))
    assert found.cycles == 10_000 + 1300 + slow
    assert (found.cycles_low, found.cycles_high) == (10_000 * LEAST_FACTOR, 10_000 * MOST_FACTOR + (1300 + slow) * MOST_STALLS)


def test_a_board_that_was_measured_has_a_factor_and_the_error_of_its_fit() -> None:
    found = total(MEASURED)
    assert found.cycles == 11_000 + 1300 + 90
    assert (found.cycles_low, found.cycles_high) == (round(found.cycles * 0.96), round(found.cycles * 1.04))
    assert cycles_of(MEASURED, None).basis == "+-4 %: measured"


def test_flash_without_a_cache_makes_branches_and_loads_wait() -> None:
    found = total(replace(SILENT, timing=Timing(1.0, 10, "measured")))
    assert Stall("branches", 350, 70) in found.stalls and Stall("flash", 5000, 1000) in found.stalls


def test_waits_for_devices_are_a_cause_too() -> None:
    found = total(MEASURED, counts=replace(COUNTS, stalls=77))
    assert found.stalls[-1] == Stall("devices", 77, 1) and found.cycles == total(MEASURED).cycles + 77


def test_memories_are_watched_that_the_core_waits_for() -> None:
    flash, slow = watched_memories(CACHED)
    assert (flash.name, flash.code_cache, flash.data_cache, flash.writes) == ("flash", 0, 1, False)
    assert (slow.name, slow.code_cache, slow.data_cache, slow.writes) == ("sdram", None, None, True)


def rows() -> list[tuple[str, str, list[int], float]]:
    """Of the page: board, firmware; cycles of the core, branches, loads, fills of data and code, measured; error."""
    numbers = r" \| ".join([r"([\d,]+)"] * 6)
    found = re.findall(rf"^\| (\S+) \| (v1\.\d [^|]+) \| {numbers} \| ([-+][\d.]+) % \|$", PAGE.read_text(encoding="utf-8"), re.M)
    return [(r[0], r[1], [int(cell.replace(",", "")) for cell in r[2:8]], float(r[8])) for r in found]


def test_the_page_has_every_board_that_was_measured() -> None:
    assert len(rows()) == 28
    measured = {board.name for board in all_boards().values() if board.timing.error_percent}
    assert measured == {row[0] for row in rows()} | {"nucleo-f746zg"}  # the chip and the clock of the stm32f746g-disco


@pytest.mark.parametrize(("name", "firmware", "numbers", "said"), rows(), ids=lambda value: str(value)[:30])
def test_the_model_of_a_board_meets_what_was_measured_on_it(name: str, firmware: str, numbers: list[int], said: float) -> None:
    board = find_board(name)
    core, taken, loads, data, code, measured = numbers
    fills = [tuple(count if c.holds(what) else 0 for c in board.caches) for what, count in (("data", data), ("code", code))]
    estimate = cycles_of(board, None).sum(0, core, taken, Counts({}, Traffic((loads,), (4 * loads,), *fills)))
    assert estimate.cycles_low is not None and estimate.cycles_high is not None
    assert estimate.cycles_low <= measured <= estimate.cycles_high
    assert 100 * (estimate.cycles / measured - 1) == pytest.approx(said, abs=0.06)
