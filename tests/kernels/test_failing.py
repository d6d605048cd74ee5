"""Data that leads outside ends the run with a code; nothing outside is read, which the interpreter asserts."""

from __future__ import annotations

import numpy as np
import pytest

from intaglio.kernels.loop import ASSERTION_FAILED, INDEX_OUT_OF_RANGE
from intaglio.ops.control import AssertTrue
from intaglio.ops.index import Gather, GatherElements, GatherNd, ScatterElements, ScatterNd
from intaglio.ops.move import ReverseSequence
from intaglio.ops.recurrent import Lstm
from intaglio.ops.sample import MaxUnpool, RoiAlign
from support.kernel_cases import F, ints, real
from support.kernel_running import TARGETS, Case, case, interpreted
from support.kernel_tiles import recurrent

_LSTM = recurrent(Lstm, lens=True)


def _with_lengths(*lens: int) -> Case:
    return case(_LSTM.op, *_LSTM.operands[:4], np.array(lens, np.int32), *_LSTM.operands[5:], constant=[1, 2, 3])


def _region(*numbers: float, image: int = 0) -> Case:
    return case(RoiAlign(2, 2, 1), real(1, 1, 4, 4), np.array([numbers], F), ints(image))


OUTSIDE = {
    "gather": case(Gather(0), real(5), ints(0, 5)),
    "gather below": case(Gather(0), real(5), ints(-6)),
    "gather far away": case(Gather(0), real(5), ints(2**62)),
    "gather_elements": case(GatherElements(0), real(3, 2), np.array([[3, 0]])),
    "gather_nd": case(GatherNd(), real(3, 2), np.array([[0, 2]])),
    "scatter_nd": case(ScatterNd(), real(3, 2), np.array([[3]]), real(1, 2)),
    "scatter_elements": case(ScatterElements(), real(3, 2), np.array([[-4, 0]]), real(1, 2)),
    "max_unpool": case(MaxUnpool((1, 1, 2, 2)), real(1, 1, 1, 1), np.full((1, 1, 1, 1), 4)),
    "reverse_sequence": case(ReverseSequence(), real(4, 2), ints(1, 5)),
    "lstm lengths": _with_lengths(4, 5),
    "lstm negative lengths": _with_lengths(-1, 2),
    "roi_align of no image": _region(0, 0, 1, 1, image=1),
    "roi_align of an image below": _region(0, 0, 1, 1, image=-1),
    "roi_align of NaN": _region(0, float("nan"), 1, 1),
    "roi_align of infinity": _region(0, 0, float("inf"), 1),
    "roi_align of absurd size": _region(0, 0, 1e9, 1),
}


@pytest.mark.parametrize("name", OUTSIDE)
@pytest.mark.parametrize("isa", ["avx2", "scalar"])
def test_an_index_outside_ends_the_run(isa: str, name: str) -> None:
    assert interpreted(OUTSIDE[name], TARGETS[isa])[0] == INDEX_OUT_OF_RANGE


def test_an_assertion_that_does_not_hold_ends_the_run() -> None:
    assert interpreted(case(AssertTrue("x"), np.array(False)), TARGETS["scalar"])[0] == ASSERTION_FAILED


def test_an_index_that_is_a_constant_is_not_checked_again() -> None:
    known = case(Gather(0), real(5), ints(1, 4), constant=[1])
    assert interpreted(known, TARGETS["scalar"])[0] == 0
