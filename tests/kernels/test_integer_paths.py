"""Integer kernels that are meant to run in vectors do, on every target that has them; small caches change the loops only."""

from __future__ import annotations

from dataclasses import replace

import pytest

from intaglio.kernels.c_printer import print_kernel
from support.kernel_byte_chain import BYTE_CHAINS
from support.kernel_hybrid import HYBRID, hybrid
from support.kernel_integer_tiles import INTEGER_TILES, conv, dense
from support.kernel_running import TARGETS, Case, assert_close, interpreted, prepare

PLAIN = {"lanes of a sum with a factor over one": "elementwise", "bytes pooled with windows of padding": "pool_general"}


@pytest.mark.parametrize("isa", ["avx2", "avx2_vnni", "neon", "neon_dot", "neon_i8mm"])
def test_vectors_are_taken(isa: str) -> None:
    used = {name: prepare(c, TARGETS[isa]).lowered.using for name, c in {**INTEGER_TILES, **HYBRID, **BYTE_CHAINS}.items()}
    plain = {name: using for name, using in used.items() if not any(w in using for w in ("tile=", "lanes=", "pixels="))}
    assert plain == PLAIN


def test_a_target_without_vectors_has_plain_loops() -> None:
    assert prepare(INTEGER_TILES["tiles 3x3"], TARGETS["scalar"]).lowered.using == "qconv"


@pytest.mark.parametrize(
    ("name", "isa", "instruction"),
    [
        ("tiles 1x1", "avx2", "_mm256_madd_epi16(a0, w0)"),
        ("tiles of full pairs", "avx2", "_mm256_maddubs_epi16"),
        ("tiles of the lowest", "avx2", "_mm256_madd_epi16(a0, w0)"),  # two products of -128 and 255 do not fit 16 bits
        ("tiles 1x1", "avx2_vnni", "_mm256_dpbusd_avx_epi32"),
        ("tiles 1x1", "avx512", "_mm512_madd_epi16(a0, w0)"),
        ("tiles 1x1", "avx512_vnni", "_mm512_dpbusd_epi32"),
        ("tiles 3x3 of u8", "avx2_vnni", "_mm256_dpwssd_avx_epi32"),  # weights less their zero point need 9 bits
        ("tiles 1x1", "neon_dot", "vdotq_s32"),
        ("tiles 1x1", "neon_i8mm", "vmmlaq_s32"),
        ("tiles 1x1 of one pixel", "neon_i8mm", "vdotq_s32"),  # half of a matrix product would be wasted
        ("tiles 3x3 of u8", "neon_i8mm", "vmlal_s16"),  # weights less their zero point need 9 bits
        ("hybrid rows", "neon_i8mm", "vmmlaq_s32"),
        ("tiles 1x1", "neon", "vmlal_s16"),
        ("hybrid 3x3", "avx2", "_mm256_madd_epi16(a0, w0)"),
        ("hybrid 3x3 of small weights", "avx2", "_mm256_maddubs_epi16"),
        ("hybrid 3x3", "avx512_vnni", "_mm512_dpbusd_epi32"),
        ("hybrid rows", "neon_dot", "vdotq_s32"),
    ],
)
def test_the_dot_product_follows_the_weights(name: str, isa: str, instruction: str) -> None:
    kernel = prepare({**INTEGER_TILES, **HYBRID}[name], TARGETS[isa]).lowered.kernel
    kernel.name = "k"
    assert instruction in print_kernel(kernel)


SMALL: dict[str, Case] = {
    "stripes of one row": conv((1, 9, 7, 6), 10, (3, 3), (1, 2), (1, 1, 1, 1)),
    "stripes of lanes": conv((2, 9, 7, 18), 18, (3, 3), pads=(1, 1, 1, 1), group=18),
    "chunks of pixels": conv((1, 9, 9, 16), 11, (1, 1)),
    "chunks of rows": dense(37, 20, 19),
    "stripes of numbers that were floats": hybrid((1, 9, 7, 6), 10, (3, 3)),
}


@pytest.mark.parametrize("name", SMALL)
@pytest.mark.parametrize("isa", ["avx2", "neon"])
def test_a_small_cache(isa: str, name: str) -> None:
    target = replace(TARGETS[isa], l1_bytes=600)
    kernel = prepare(SMALL[name], target).lowered.kernel
    kernel.name = "k"
    assert "stripe" in print_kernel(kernel)
    code, results = interpreted(SMALL[name], target)
    assert code == 0
    assert_close(SMALL[name], results, SMALL[name].expected())
