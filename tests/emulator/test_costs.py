"""Estimated cycles: what each kind of instruction costs, and that the page says the same."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import pytest

from intaglio.run.costs import CORES, Coster, Sum
from intaglio.run.emulator.counting import BasicBlock, Counts, Times

pytest.importorskip("capstone")
PAGE = Path(__file__).parents[2] / "docs" / "reference" / "cycle-estimate.md"
ONCE = Times(1)


def cost(code: str, core: str = "cortex-m4", times: Times = ONCE, *, riscv: bool = False) -> int:
    """Cycles of machine code, given in hex as it lies in memory."""
    data = bytes.fromhex(code)
    coster = Coster(core, lambda address, size: data[:size], riscv=riscv)
    return coster.add(Counts({BasicBlock(0, len(data)): times})).cycles


@pytest.mark.parametrize(
    ("code", "cycles"),
    [
        ("8818", 1),  # adds r0, r1, r2
        ("20fb0102", 1),  # smlad r2, r0, r1, r0
        ("0868", 2),  # ldr r0, [r1]
        ("0868 4a68 8b68", 2 + 1 + 1),  # three loads in a row
        ("0868 8818 4a68", 2 + 1 + 2),  # an addition in between
        ("0860", 1),  # str r0, [r1]
        ("d1e90023", 3),  # ldrd r2, r3, [r1]
        ("f8bd", 1 + 6),  # pop {r3, r4, r5, r6, r7, pc}
        ("2ded0a8b", 1 + 10),  # vpush {d8 - d12}
        ("b1ec080a", 1 + 8),  # vldmia r1!, {s0 - s7}
        ("e1ee020a", 3),  # vfma.f32
        ("91fbf2f0", 7),  # sdiv r0, r1, r2
        ("b8bf 8818", 2),  # it lt; addlt
    ],
)
def test_kinds_of_instructions_on_a_cortex_m4(code: str, cycles: int) -> None:
    assert cost(code) == cycles


def test_a_branch_costs_more_when_it_is_taken() -> None:
    assert cost("fed1", times=Times(ran=10, taken=9)) == 10 * 1 + 9 * 2


@pytest.mark.parametrize(
    ("core", "cycles"), [("cortex-m0+", 2 + 2), ("cortex-m3", 2 + 1), ("cortex-m7", round(3 * 0.6)), ("cortex-m33", round(3 * 0.9))]
)
def test_cores_differ(core: str, cycles: int) -> None:
    assert cost("0868 4a68", core) == cycles


def test_riscv_is_estimated_too() -> None:
    assert cost("03a50500 0545 3305b502", "rv32imc", riscv=True) == 2 + 1 + 1  # lw; c.li; mul


def test_an_instruction_that_is_unknown_counts_as_one() -> None:
    data = bytes.fromhex("ffffffff")
    assert Coster("cortex-m4", lambda a, n: data, riscv=False).add(Counts({BasicBlock(0, 4): Times(5)})) == Sum(5, 5)


def test_a_low_overhead_loop_is_no_vector() -> None:
    assert cost("0ff001c0", "cortex-m55") == 1  # le lr
    assert cost("ffffffff", "cortex-m55") == 2


def test_wait_states_are_for_taken_branches_and_loads_from_flash() -> None:
    data = bytes.fromhex("fed1")
    coster = Coster("cortex-m4", lambda a, n: data, riscv=False, wait_states=4)
    assert coster.add(Counts({BasicBlock(0, 2): Times(10, 9)}, flash_reads=3)).cycles == 10 + 9 * 2 + (9 + 3) * 4


def test_the_page_has_the_numbers_of_the_code() -> None:
    rows = re.findall(r"^\| `(\w+)` [^|]*\|(.*)\|$", PAGE.read_text(encoding="utf-8"), re.M)
    found = {name: [float(cell) for cell in cells.split("|")] for name, cells in rows}
    assert found == {f.name: [float(getattr(costs, f.name)) for costs in CORES.values()] for f in fields(CORES["cortex-m4"])}
