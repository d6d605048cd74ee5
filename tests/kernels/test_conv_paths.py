"""Ways through the convolution that small shapes do not take by themselves: caches are made small instead."""

from __future__ import annotations

from dataclasses import replace

import pytest

from intaglio.kernels.c_printer import print_kernel
from support.kernel_cases import real
from support.kernel_running import TARGETS, Case, assert_close, interpreted, prepare
from support.kernel_tiles import conv, matmul
from support.slow import quick_where

CASES: dict[str, tuple[Case, str]] = {
    "long rows go in chunks": (conv((1, 3, 64, 4), 11, (3, 3), pads=(1, 1, 1, 1)), "chunk_end"),
    "long rows, strided and dilated": (conv((1, 5, 90, 4), 9, (2, 3), (2, 2), (1, 2, 1, 0), (1, 2)), "chunk_end"),
    "long rows in groups": (conv((2, 3, 64, 4), 10, (1, 3), pads=(0, 1, 0, 1), group=2), "chunk_end"),
    "high images go in stripes": (conv((1, 23, 6, 4), 9, (3, 3), pads=(1, 1, 1, 1)), "stripe"),
    "patches go in blocks": (replace(conv((2, 13, 9, 4), 11, (3, 3), pads=(1, 1, 1, 1)), using="winograd(m=2,tile=4x1)"), "first"),
    "many pixels of a 1x1 go in chunks": (conv((1, 9, 9, 8), 11, (1, 1)), "chunk"),
    "many rows of a product go in chunks": (matmul(real(50, 16), real(16, 19)), "chunk"),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("isa", ["avx2", "neon", "scalar"])
def test_a_small_cache(isa: str, name: str) -> None:
    case, word = CASES[name]
    target = replace(TARGETS[isa], l2_bytes=1024)
    kernel = prepare(case, target).lowered.kernel
    kernel.name = "k"
    assert word in print_kernel(kernel)
    code, results = interpreted(case, target)
    assert code == 0
    assert_close(case, results, case.expected())


FAR: dict[str, Case] = {
    "a product": matmul(real(23, 160), real(160, 110)),
    "a 1x1 convolution": conv((1, 5, 7, 160), 110, (1, 1)),
    "a 3x3 convolution": conv((1, 3, 40, 18), 110, (3, 3), (2, 2), (1, 1, 1, 1)),
    "patches": replace(conv((1, 9, 9, 20), 110, (3, 3), pads=(1, 1, 1, 1)), using="winograd(m=2,tile=4x1)"),
}


@pytest.mark.parametrize("name", quick_where(lambda name: name != "patches", FAR))
@pytest.mark.parametrize("l2_bytes", [2048, 524288])
def test_large_weights_are_asked_for_a_block_ahead(name: str, l2_bytes: int) -> None:
    target = replace(TARGETS["avx2"], l2_bytes=l2_bytes)
    kernel = prepare(FAR[name], target).lowered.kernel
    kernel.name = "k"
    assert "IG_PREFETCH(" in print_kernel(kernel)
    code, results = interpreted(FAR[name], target)
    assert code == 0
    assert_close(FAR[name], results, FAR[name].expected())


def test_small_weights_are_not_asked_for() -> None:
    kernel = prepare(matmul(real(23, 16), real(16, 110)), TARGETS["avx2"]).lowered.kernel
    kernel.name = "k"
    assert "IG_PREFETCH(" not in print_kernel(kernel)
