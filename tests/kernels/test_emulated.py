"""Kernels for 64-bit Arm, run by qemu-user: they give what the reference gives."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from support.emulated import PROCESSORS, emulated, needs_qemu
from support.kernel_hybrid import HYBRID
from support.kernel_integer_tiles import INTEGER_TILES
from support.kernel_quick import ALL, quick_cases
from support.kernel_running import Case

_DOTS = {**INTEGER_TILES, **HYBRID}
_FEW = ("tiles 3x3", "tiles 1x1", "tiles of a given size", "tiles in groups", "hybrid 3x3", "hybrid rows")
SETS: dict[str, Callable[[], dict[str, Case]]] = {
    "few": lambda: {name: _DOTS[name] for name in _FEW},
    "dots": lambda: _DOTS,
    "quick": quick_cases,
    "all": lambda: ALL,
}
SLOW = [("neon_i8mm", "dots"), *((isa, which) for isa in PROCESSORS for which in ("quick", "all"))]


@needs_qemu
@pytest.mark.parametrize(("isa", "which"), [pytest.param(*case, marks=pytest.mark.slow) for case in (("neon_i8mm", "few"), *SLOW)])
def test_kernels_for_arm_equal_the_reference(isa: str, which: str, tmp_path: Path) -> None:
    assert not (wrong := emulated(SETS[which](), isa, tmp_path, "-O1")), "\n".join(wrong)
