"""Integer kernels that are meant to run in vectors do, on every target that has them; small caches change the loops only."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from intaglio.kernels.c_printer import print_kernel
from intaglio.kernels.considered import considered
from intaglio.kernels.contraction.listed import ORDERS, unfit
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


LISTED = {name: c for name, c in INTEGER_TILES.items() if "listed" in c.using}


@pytest.mark.parametrize("isa", ["avx2", "avx512"])
def test_steps_by_lists_are_taken(isa: str) -> None:
    assert all("_listed(tile=" in prepare(c, TARGETS[isa]).lowered.using for c in LISTED.values())


def test_pairs_fit_whatever_the_activations_are() -> None:
    """The first order in which they do is taken for a block, -1 where there is none."""
    weights = np.array([[[127, 1, -127, 1], [127, 1, 1, 1], [64, 65, 1, -128], [100, 100, 100, 1]]])
    bad = unfit(weights)
    for order, found in zip(ORDERS, bad, strict=True):
        pairs = weights[..., list(order)].reshape(1, 4, 2, 2)
        sums = [np.maximum(s * pairs, 0).sum(axis=-1) * 255 for s in (1, -1)]
        np.testing.assert_array_equal(found, ((sums[0] > 32767) | (sums[1] > 32768)).any(axis=-1))
    assert [list(np.flatnonzero(~bad[:, 0, step])) for step in range(4)] == [[0, 1, 2], [0, 1, 2], [1, 2], []]


@pytest.mark.parametrize(
    ("name", "isa", "reason"),
    [
        ("tiles 3x3 of odd channels", "avx2", "channels do not come in whole steps of four"),
        ("tiles in groups", "avx2", "channels do not come in whole steps of four"),
        ("tiles 1x1 of small weights", "avx2", "products of 16 bits are not needed"),
        ("tiles 1x1", "avx2_vnni", "products of 16 bits are not needed"),
        ("tiles 1x1", "neon", "products of 16 bits are not needed"),
        ("tiles 1x1", "avx2", "an estimate says that it is not faster"),
        ("tiles 3x3", "scalar", "the target has no integer dot products"),
    ],
)
def test_why_there_are_no_lists(name: str, isa: str, reason: str) -> None:
    found = {c.name: c.reason for c in considered(INTEGER_TILES[name].node(), TARGETS[isa])}
    assert found["qconv_listed"] == reason


@pytest.mark.parametrize("name", ["listed 3x3", "listed 1x1"])
def test_lists_with_a_small_cache(name: str) -> None:
    target = replace(TARGETS["avx2"], l2_bytes=4000)
    kernel = prepare(INTEGER_TILES[name], target).lowered.kernel
    kernel.name = "k"
    assert "stripe" in print_kernel(kernel)
    code, results = interpreted(INTEGER_TILES[name], target)
    assert code == 0
    assert_close(INTEGER_TILES[name], results, INTEGER_TILES[name].expected())


@pytest.mark.parametrize("name", SMALL)
@pytest.mark.parametrize("isa", ["avx2", "neon"])
def test_a_small_cache(isa: str, name: str) -> None:
    target = replace(TARGETS[isa], l1_bytes=600, l2_bytes=600)
    kernel = prepare(SMALL[name], target).lowered.kernel
    kernel.name = "k"
    assert "stripe" in print_kernel(kernel)
    code, results = interpreted(SMALL[name], target)
    assert code == 0
    assert_close(SMALL[name], results, SMALL[name].expected())
