"""Estimated cycles: what each kind of instruction costs, and that the page says the same."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import pytest

from intaglio.run.board_cycles import BoardCycles, Stall, Sum
from intaglio.run.costs import CORES, Coster
from intaglio.run.emulator.counting import BasicBlock, Counts, Times, Traffic, Watched

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
        ("01ee107a", 1),  # vmov s2, r7
        ("44ec100a", 2),  # vmov s0, s1, r0, r4
        ("91fbf2f0", 7),  # sdiv r0, r1, r2
        ("b8bf 8818", 2),  # it lt; addlt
        ("8818 b8bf 8818", 2),  # the same after an instruction of 16 bits: the IT is folded into it
        ("09eb0201 b8bf 8818", 3),  # after one of 32 bits it is not
        ("0860 0868", 1 + 2),  # str r0, [r1]; ldr r0, [r1]: nothing is pipelined after a store
        ("0868 0360", 2 + 2),  # ldr r0, [r1]; str r3, [r0]: the address is what was loaded
        ("0868 0268", 2 + 2),  # ldr r0, [r1]; ldr r2, [r0]
        ("0868 0860", 2 + 1),  # ldr r0, [r1]; str r0, [r1]: the value may be what was loaded
        ("8818 0268", 1 + 2 + 1),  # adds r0, r1, r2; ldr r2, [r0]: the address is computed by the instruction before
        ("8818 0026 0268", 1 + 1 + 2),  # with a movs r6, #0 in between it is not
        ("8818 0860", 1 + 1),  # adds r0, r1, r2; str r0, [r1]: the value, not the address
        ("8818 03c8", 1 + 3 + 1),  # adds r0, r1, r2; ldm r0!, {r0, r1}
        ("54f8040b 54f8041b", 2 + 1),  # ldr r0, [r4], #4; ldr r1, [r4], #4: the base is not loaded
    ],
)
def test_kinds_of_instructions_on_a_cortex_m4(code: str, cycles: int) -> None:
    assert cost(code) == cycles


@pytest.mark.parametrize(
    ("code", "address", "refill"),
    [
        ("fed1", 0, 1),  # bne to itself
        ("fed1", 2, 1),  # an instruction of 16 bits may be anywhere
        ("09eb0201 fcd1", 0, 1),  # to an add.w at a multiple of 4
        ("09eb0201 fcd1", 2, 2),  # across two words
        ("7047", 0, 2),  # bx lr: where to is known late
        ("10bd", 0, 2),  # pop {r4, pc}
    ],
)
def test_a_branch_that_is_taken_fills_the_pipeline_again(code: str, address: int, refill: int) -> None:
    data = bytes(address) + bytes.fromhex(code)
    coster = Coster("cortex-m4", lambda at, size: data[at : at + size], riscv=False)
    block = BasicBlock(address, len(data) - address)
    never, often = (coster.add(Counts({block: Times(10, taken)})).cycles for taken in (0, 9))
    assert often - never == 9 * refill


def test_the_refill_of_an_m0_does_not_depend_on_the_target() -> None:
    assert [cost(code, "cortex-m0+", Times(1, 1)) for code in ("fed1", "7047")] == [2, 2]


@pytest.mark.parametrize(
    ("core", "cycles"),
    [("cortex-m0+", 2 + 2), ("cortex-m3", 2 + 1), ("cortex-m33", round(3 * 0.95))],
)
def test_cores_differ(core: str, cycles: int) -> None:
    assert cost("0868 4a68", core) == cycles


FACTOR = CORES["cortex-m7"].factor


@pytest.mark.parametrize(
    ("code", "cycles"),
    [
        ("0868 4a68", 1),  # ldr r0, [r1]; ldr r2, [r1, #4]: words in two banks
        ("0868 8a68", 2),  # ldr r0, [r1]; ldr r2, [r1, #8]: in the same bank
        ("0868 20fb0030", 3),  # ldr r0, [r1]; smlad r0, r0, r0, r3: a product waits for what is loaded
        ("22fb0240 0d68", 1),  # smlad r0, r2, r2, r4; ldr r5, [r1]: a product and a load
        ("22fb0240 22fb0250", 2),  # two products
        ("22fb0200 22fb0200", 2),  # ... whose sum is the next one's, too
        ("2ffa83f4 2ffa85f6", 2),  # sxtb16 r4, r3; sxtb16 r6, r5
        ("9118 5b19", 1),  # adds r1, r2, r2; adds r3, r3, r5
        ("9118 0a68", 2),  # adds r1, r2, r2; ldr r2, [r1]: an address is needed early
        ("d1e90023 9118", 2),  # ldrd: nothing is beside it
        ("0868 0860", 1),  # ldr r0, [r1]; str r0, [r1]
        ("0860 4a60", 2),  # two stores
        ("91fbf2f0", 6),  # sdiv
    ],
)
def test_a_cortex_m7_issues_pairs(code: str, cycles: int) -> None:
    assert cost(code, "cortex-m7") == round(cycles * FACTOR)


def test_a_branch_that_seldom_goes_its_way_is_mispredicted() -> None:
    often, always = (cost("0868 fed1", "cortex-m7", Times(1000, taken)) for taken in (900, 1000))
    assert often - always == round(100 * CORES["cortex-m7"].mispredicted * FACTOR)
    assert cost("0868 fee7", "cortex-m7", Times(1000, 900)) == always  # b: there is nothing to predict


def test_riscv_is_estimated_too() -> None:
    assert cost("03a50500 0545 3305b502", "rv32imc", riscv=True) == 2 + 1 + 1  # lw; c.li; mul


@pytest.mark.parametrize(
    ("code", "cycles"),
    [
        ("03a50500 33865600", 1 + 1),  # lw a0, 0(a1); add a2, a3, t0
        ("03a50500 3386a600", 1 + 1 + 1),  # lw a0, 0(a1); add a2, a3, a0: it waits for what is loaded
        ("03a50500 23a0a500", 1 + 1),  # lw a0, 0(a1); sw a0, 0(a1): a store does not
        ("03a50500 23205500", 1 + 1 + 1),  # ... but for its address: sw t0, 0(a0)
        ("03a50500 33c6a60a", 1 + 1 + 1),  # min a2, a3, a0, which capstone does not know
        ("33c5a502", 18),  # div
    ],
)
def test_a_hazard3_waits_for_a_load_only_where_it_is_used_next(code: str, cycles: int) -> None:
    assert cost(code, "hazard3", riscv=True) == cycles


def test_an_instruction_that_is_unknown_counts_as_one() -> None:
    data = bytes.fromhex("ffffffff")
    assert Coster("cortex-m4", lambda a, n: data, riscv=False).add(Counts({BasicBlock(0, 4): Times(5)})) == Sum(5, 5)


def test_a_low_overhead_loop_is_no_vector() -> None:
    assert cost("0ff001c0", "cortex-m55") == 1  # le lr
    assert cost("ffffffff", "cortex-m55") == 2


@pytest.mark.parametrize(
    ("code", "cycles", "vectors"),
    [
        ("90ed801e", 2, 1),  # vldrb.u8 q0, [r0]: a coprocessor's load to others
        ("90ed801e 90ed802e", 2 + 2, 2),  # one after the other in the same unit
        ("22ef4008", 2, 1),  # vadd.i32 q0, q1, q0: Neon to others
        ("90ed801e 22ef4008 90ed802e", 2 + 1 + 1, 3),  # in turn, one begins while the other ends
        ("90ed801e 8818 22ef4008", 2 + 1 + 2, 2),  # not across a scalar instruction
        ("71fe4d0f", 1, 0),  # vpst
        ("02f001e8", 1, 0),  # vctp.8 r2
        ("2ded088b", 1 + 8, 0),  # vpush {d8 - d11}
        ("a2ee100b", 1, 0),  # vdup.32 q1, r0
    ],
)
def test_vectors_have_four_beats_two_a_cycle(code: str, cycles: int, vectors: int) -> None:
    data = bytes.fromhex(code)
    found = Coster("cortex-m55", lambda a, n: data[:n], riscv=False).add(Counts({BasicBlock(0, len(data)): ONCE}))
    assert (found.cycles, found.vectors) == (cycles, vectors)


def test_wait_states_are_for_taken_branches_and_loads_from_flash() -> None:
    data = bytes.fromhex("fed1")
    timing = BoardCycles(4, watched=(Watched("flash", 0, 256), Watched("sdram", 512, 256, flash=False)))
    coster = Coster("cortex-m4", lambda a, n: data, riscv=False, timing=timing)
    found = coster.add(Counts({BasicBlock(0, 2): Times(10, 9)}, Traffic((3, 50))))
    assert found.cycles == 10 + 9 * 1 + (9 + 3) * 4
    assert found.stalls == (Stall("branches", 36, 9), Stall("loads from flash", 12, 3))


def test_a_block_that_an_emulator_divides_at_a_page_costs_the_same() -> None:
    data = bytes(1020) + bytes.fromhex("0868 4a68 8b68 cc68")  # four loads in a row, two of them before the page ends
    coster = Coster("cortex-m4", lambda a, n: data[a : a + n], riscv=False)
    whole, first, rest = BasicBlock(1020, 8), BasicBlock(1020, 4), BasicBlock(1024, 4)
    assert coster.add(Counts({whole: ONCE})).cycles == coster.add(Counts({first: ONCE, rest: ONCE})).cycles == 2 + 1 + 1 + 1
    assert coster.add(Counts({rest: ONCE})).cycles == 2 + 1
    data = bytes(1020) + bytes.fromhex("0868 51f8042b 51f8043b")  # the second load crosses it, and is a block of its own
    parts = {BasicBlock(1020, 2): ONCE, BasicBlock(1022, 4): ONCE, BasicBlock(1026, 4): ONCE}
    assert Coster("cortex-m4", lambda a, n: data[a : a + n], riscv=False).add(Counts(parts)).cycles == 2 + 1 + 1


def test_the_page_has_the_numbers_of_the_code() -> None:
    rows = re.findall(r"^\| `(\w+)` [^|]*\|(.*)\|$", PAGE.read_text(encoding="utf-8"), re.M)
    found = {name: [float(cell) for cell in cells.split("|")] for name, cells in rows}
    assert found == {f.name: [float(getattr(costs, f.name)) for costs in CORES.values()] for f in fields(CORES["cortex-m4"])}
