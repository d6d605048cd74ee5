"""Convolutions of bytes by Winograd in whole numbers: exact in every bit, and reasons for the choice."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from intaglio.ir.graph import Node, Value
from intaglio.ir.sizes import Bounds
from intaglio.ir.types import DType, TensorType
from intaglio.kernels.choice import lower_node, usual_way, ways_to_measure
from intaglio.kernels.considered import considered
from intaglio.kernels.contraction.qwinograd import winograd_of
from intaglio.kernels.contraction.transform import WHOLE_POINTS, whole_transform
from intaglio.kernels.job import Job, Scratch
from intaglio.targets import Target
from support.kernel_integer_tiles import INTEGER_TILES, conv
from support.kernel_running import TARGETS, Case, assert_close, interpreted, prepare

HERE = TARGETS["avx2"]
SAME = (1, 1, 1, 1)
LARGE = conv((1, 28, 28, 64), 64, (3, 3), pads=SAME)


@pytest.mark.parametrize("size", WHOLE_POINTS)
def test_the_transforms_compute_a_convolution_times_a_factor(size: int) -> None:
    whole = whole_transform(size)
    way = whole.way
    assert all(value.denominator == 1 for rows in (way.forward, way.weights, way.back) for row in rows for value in row)
    for i in range(size):
        for tap in range(3):
            for at in range(way.reach):
                found = sum(
                    (a * g[tap] * b[at] for a, g, b in zip(way.back[i], way.weights, way.forward, strict=True)), Fraction(0)
                )
                assert found**2 == whole.factor * (at == i + tap)


@pytest.mark.parametrize("size", WHOLE_POINTS)
def test_weights_of_8_bits_fit_16(size: int) -> None:
    rows = [int(sum(map(abs, row))) for row in whole_transform(size).way.weights]
    assert max(rows) ** 2 * 128 <= 32767


def test_the_cases_are_computed_by_it() -> None:
    cases = {name: c for name, c in INTEGER_TILES.items() if "qwinograd" in c.using}
    for isa, channels in (("avx2", 16), ("avx512", 32)):
        mine = {name: c for name, c in cases.items() if c.operands[0] is not None and c.operands[0].shape[-1] % channels == 0}
        assert mine
        assert all(prepare(c, TARGETS[isa]).lowered.using.startswith("qwinograd(m=") for c in mine.values())


def sizes(found: Case) -> list[int] | str:
    known = winograd_of(Job(found.node(), HERE))
    return known if isinstance(known, str) else list(known.weights)


@pytest.mark.parametrize(("channels", "weight", "expected"), [(224, 127, [2, 4]), (240, 127, [2]), (240, 100, [2, 4])])
def test_a_transform_is_taken_only_where_every_sum_can_be_recovered(channels: int, weight: int, expected: list[int]) -> None:
    """576 times a sum is known modulo 2^32: the sum itself if it is below 2^25."""
    found = conv((1, 3, 3, channels), 4, (3, 3), pads=SAME, weight=weight)
    assert sizes(found) == expected
    assert (9 * channels * weight * 128 < 2**25) == (4 in expected)


def test_weights_that_grow_beyond_16_bits_are_left_to_others() -> None:
    """Less their zero point they have 9 bits: 144 times 255 does not fit."""
    assert sizes(conv((1, 3, 3, 16), 4, (3, 3), pads=SAME, dtype=np.uint8, x_zero=3, w_zero=255, weight=0)) == [2]


def judged(found: Case, target: Target = HERE, using: str = "") -> tuple[str, str]:
    row = next(c for c in considered(found.node(), target, using) if c.name == "qwinograd")
    return row.reason, row.note


def test_large_layers_are_computed_by_it_and_say_why() -> None:
    reason, note = judged(LARGE)
    assert not reason
    assert note.startswith("estimated ") and " us direct, F(2x2) " in note and ", F(4x4) " in note
    assert usual_way(LARGE.node(), HERE).startswith("qwinograd(m=4,tile=")
    assert judged(LARGE, replace(HERE, exact=True)) == (reason, note)  # nothing is rounded


@pytest.mark.parametrize(
    ("found", "target", "reason"),
    [
        (LARGE, replace(HERE, optimize="size"), "`--optimize size` is set"),
        (LARGE, replace(HERE, limited=True), "memory has a limit"),
        (LARGE, TARGETS["avx2_vnni"], "the target has better products of bytes"),
        (LARGE, TARGETS["neon"], "the target has better products of bytes"),
        (LARGE, TARGETS["scalar"], "the target has no integer dot products"),
        (conv((1, 28, 28, 64), 64, (3, 3), (2, 2), SAME), HERE, "it is not 3x3 with stride 1"),
        (conv((1, 28, 28, 24), 64, (3, 3), pads=SAME), HERE, "the input channels are no multiple of 16"),
        (conv((1, 4, 4, 512), 256, (3, 3), pads=SAME), HERE, "it gains too little to pay for its weights: estimated "),
    ],
)
def test_other_layers_say_why_not(found: Case, target: Target, reason: str) -> None:
    assert reason in judged(found, target)[0]


def test_who_asks_for_it_gets_it_in_sizes_that_are_exact() -> None:
    large = conv((1, 3, 3, 240), 4, (3, 3), pads=SAME, weight=127)
    assert judged(large, using="qwinograd(m=2,tile=6x2)")[0] == ""
    assert judged(large, using="qwinograd(m=4,tile=6x2)")[0] == "m is one of 2"


def test_all_sizes_are_measured_and_none_where_memory_has_a_limit() -> None:
    uses = [way.using for way in ways_to_measure(LARGE.node(), HERE)]
    assert {use[:14] for use in uses} >= {"qwinograd(m=2,", "qwinograd(m=4,"}
    assert not any("winograd" in way.using for way in ways_to_measure(LARGE.node(), replace(HERE, limited=True)))


def ranged(found: Case, least: int) -> Node:
    """The same for pictures from `least` pixels on, in height and width, to those that it has."""
    node = found.node()
    x, *others = node.inputs
    assert x is not None
    t = Bounds({"T": (least, x.shape[1])}).size("T")
    image = TensorType(DType.I8, (x.shape[0], t, t, x.shape[3]))
    types = [image, *(None if v is None else v.type for v in others)]
    return Node(node.op, [Value("v0", image), *others], [Value("y0", node.op.infer(*types)[0])], "/conv")


@pytest.mark.parametrize("case", [LARGE, conv((1, 28, 28, 64), 64, (3, 3), (2, 2), SAME, largest=60)])
def test_a_range_of_sizes_has_the_kernel_and_scratch_memory_of_the_largest(case: Case) -> None:
    lowered = [lower_node(each, HERE) for each in (ranged(case, 7), case.node())]
    assert lowered[0].using == lowered[1].using
    needed = [sum(a.bytes for a in each.arguments if isinstance(a, Scratch)) for each in lowered]
    assert needed[0] == needed[1]


def test_a_range_of_sizes_is_judged_by_all_of_it() -> None:
    row = next(c for c in considered(ranged(LARGE, 7), HERE) if c.name == "qwinograd")
    assert not row.reason and row.note.startswith("estimated over the range, as a part of direct: F(2x2) 0.")
    few = conv((1, 9, 9, 512), 256, (3, 3), pads=SAME)
    row = next(c for c in considered(ranged(few, 1), HERE) if c.name == "qwinograd")
    assert row.reason.startswith("it gains too little to pay for its weights: estimated over the range")


def test_patches_go_in_blocks() -> None:
    found = conv((2, 5, 9, 16), 11, (3, 3), pads=SAME, using="qwinograd(m=2,tile=4x1)")
    target = replace(HERE, l2_bytes=30000)
    assert ", 12 patches at a time" in prepare(found, target).lowered.kernel.about
    code, results = interpreted(found, target)
    assert code == 0
    assert_close(found, results, found.expected())
