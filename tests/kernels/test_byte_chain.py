"""A product in the place of a division where every byte is the same, and nowhere else."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from intaglio.ir.graph import Array
from intaglio.kernels.c_printer import print_kernel
from intaglio.ops.base import Step
from intaglio.ops.binary import Add, Mul
from intaglio.run.toolchains import find_toolchain
from support.kernel_byte_chain import BYTE_CHAINS, between_bytes
from support.kernel_running import TARGETS, Case, assert_close, compile_c, interpreted, prepare, write_c

HERE = TARGETS["avx2"]
ALIKE = (0.048875965, 0.05121015, 0.03586933)  # of a residual sum
EVERY = 256


def divides(found: Case) -> bool:
    kernel = prepare(found, HERE).lowered.kernel
    kernel.name = "k"
    text = print_kernel(kernel)
    assert "_mm256_cvtps_epi32" in text
    return "_mm256_div_ps" in text


def every_pair(found: Case) -> Case:
    """All combinations of two bytes."""
    low = np.arange(-128, 128).astype(np.int8)
    pairs: list[Array] = [np.repeat(low, EVERY), np.tile(low, EVERY)]
    return replace(found, operands=(*pairs, *found.operands[2:]))


@pytest.mark.parametrize("scales", [ALIKE, (1.0, 1.0, 3.0), (0.5, 0.25, 2.0)])
def test_a_product_gives_the_bytes_of_the_division_for_every_pair(scales: tuple[float, ...]) -> None:
    found = every_pair(between_bytes((EVERY * EVERY,), (EVERY * EVERY,), scales=scales, zeros=(-1, -1, -128)))
    assert not divides(found)
    code, results = interpreted(found, HERE)
    assert code == 0
    assert_close(found, results, found.expected())


@pytest.mark.parametrize(
    "found",
    [
        between_bytes((40,), (40,), scales=(0.1, 0.1, 0.2)),  # halves are rounded to the other side
        between_bytes((40,), (40,), scales=(3e37, 1e30, 1e-4)),  # beyond whole numbers of 32 bits
        BYTE_CHAINS["lanes quantised"],  # floats: too many to try them all
    ],
    ids=["halves", "far out", "floats"],
)
def test_the_division_stays_where_a_byte_would_differ_or_might(found: Case) -> None:
    assert divides(found)


@pytest.mark.parametrize("name", ["lanes quantised", "lanes dequantised", "lanes of a real sum that is no byte"])
def test_a_kernel_alone_has_all_that_it_calls(name: str, tmp_path: Path) -> None:
    """Floats that become bytes load no integers, and still need the functions of integers."""
    write_c([prepare(BYTE_CHAINS[name], HERE)], "avx2", tmp_path / "alone.c")
    compile_c(find_toolchain(), HERE, tmp_path / "alone.c", tmp_path / "alone.o", "-O0", "-c")


def test_operands_that_are_used_twice_are_tried_as_one() -> None:
    squared = (Step(Add(), (-2, -1)), Step(Mul(), (10, 10)))
    found = every_pair(between_bytes((EVERY * EVERY,), (EVERY * EVERY,), middle=squared, scales=(0.03, 0.02, 0.25)))
    code, results = interpreted(found, HERE)
    assert code == 0
    assert_close(found, results, found.expected())
