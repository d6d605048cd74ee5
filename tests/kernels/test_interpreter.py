"""The interpreter, which runs every kernel of every instruction set, gives what the operator's reference gives."""

from __future__ import annotations

import pytest

from intaglio.ir.offload import Offload
from intaglio.kernels.choice import TABLE
from intaglio.kernels.expressions import ROWS
from intaglio.ops.base import REGISTRY, Chain, Elementwise
from support.kernel_byte_chain import BYTE_CHAINS
from support.kernel_hybrid import HYBRID
from support.kernel_integer_tiles import INTEGER_TILES
from support.kernel_quick import ALL, ELSEWHERE, first_of_each_kind, quick_cases
from support.kernel_running import TARGETS, assert_close, interpreted


def test_every_kernel_has_a_case() -> None:
    lowered = {*TABLE, Chain.NAME, *(op.NAME for op in REGISTRY.values() if issubclass(op, Elementwise) and op.NAME in ROWS)}
    lowered -= {Offload.NAME, "narrow_float", *ELSEWHERE}  # the C of a plug-in, and what has tests of its own
    assert {c.op.NAME for c in ALL.values()} == lowered
    assert lowered <= set(REGISTRY)


# The interpreter takes long. All scalar and avx2 kernels are compiled in test_compiled; sse2 has the lanes of neon.
_OTHERS = [pytest.param(i, n, marks=pytest.mark.slow) for i in ("avx2", "sse2", "scalar", "avx512") for n in ALL]
_LARGE = ("in stripes", "in chunks", "few deep rows")  # minutes of interpreting, for loops that test_compiled runs
_QUICK = [n for n in quick_cases() if not n.endswith(_LARGE)]
_NEON = [pytest.param("neon", n, marks=[] if n in _QUICK else pytest.mark.slow) for n in ALL]
_DOTS = {**INTEGER_TILES, **HYBRID, **BYTE_CHAINS}
_DOT_ISAS = ("avx2_vnni", "neon_dot", "neon_i8mm", "avx512_vnni", "simd128")
_QUICK_DOTS = {i: {n for n in first_of_each_kind(_DOTS, TARGETS[i]) if not n.endswith(_LARGE)} for i in _DOT_ISAS}
_TILES = [pytest.param(i, n, marks=[] if n in _QUICK_DOTS[i] else pytest.mark.slow) for i in _DOT_ISAS for n in _DOTS]


@pytest.mark.parametrize(("isa", "name"), [*_NEON, *_OTHERS])
def test_the_kernel_means_what_the_reference_says(isa: str, name: str) -> None:
    code, results = interpreted(ALL[name], TARGETS[isa])
    assert code == 0
    assert_close(ALL[name], results, ALL[name].expected())


@pytest.mark.parametrize(("isa", "name"), _TILES)
def test_dot_products_mean_what_the_reference_says(isa: str, name: str) -> None:
    code, results = interpreted(_DOTS[name], TARGETS[isa])
    assert code == 0
    assert_close(_DOTS[name], results, _DOTS[name].expected())
