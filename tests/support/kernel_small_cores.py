"""Cases of the kernels for small cores: borders, tails, sums that a convolution adds, factors shared or not. Bit for bit."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from intaglio.ir.types import DType, Layout
from intaglio.ops.base import Step
from intaglio.ops.pool import MaxPool
from intaglio.ops.quantised import QAdd, QConv, QMul, sum_factors
from intaglio.ops.quantised_rows import QAveragePool
from support.kernel_hybrid import hybrid, hybrid_rows
from support.kernel_integer_tiles import conv, dense, numbers
from support.kernel_running import Case, case
from support.tree_models import forest_case

_SAME = (1, 1, 1, 1)
_RANDOM = np.random.default_rng(11)


def added(base: Case, scales: tuple[float, float, float], swapped: bool = False, zeros: tuple[int, int, int] = (3, -7, 9)) -> Case:
    """A convolution that adds another tensor of its shape; `scales` of its own result, of the other, of the sum."""
    assert isinstance(base.op, QConv)
    to = base.op.to
    info = np.iinfo(to.numpy)
    (am, as_), (bm, bs), lift, (m, s) = sum_factors(*(scales[1::-1] if swapped else scales[:2]), scales[2], to)
    a_zero, b_zero = zeros[1::-1] if swapped else zeros[:2]
    op = QAdd(a_zero, am, as_, b_zero, bm, bs, lift, False, m, s, zeros[2], int(info.min), int(info.max), to)
    shape = base.node().output.shape
    fused = replace(base.op, epilogue=(Step(op, (1, 0) if swapped else (0, 1)),))
    return replace(base, op=fused, operands=(*base.operands, numbers(*shape, dtype=to.numpy.type)))


def with_large_weights(base: Case, *places: int) -> Case:
    """Four weights of 127 at these places of the first channel."""
    weights = np.array(base.operands[1])
    for place in places:
        weights[0, place : place + 4] = 127
    return replace(base, operands=(base.operands[0], weights, *base.operands[2:]))


_PLAIN = conv((1, 5, 6, 8), 12, (3, 3), pads=_SAME)
SMALL_CORES: dict[str, Case] = {
    "trees as code": forest_case(5, 2),
    "trees of bytes as code": forest_case(5, 2, dtype=DType.U8),
    "trees of 16 bits, a function for each": replace(forest_case(6, 3, dtype=DType.I16), using="trees_functions"),
    "windows that slide down": conv((1, 9, 4, 6), 6, (3, 3), pads=_SAME, group=6),
    "windows that slide without a border": conv((1, 6, 7, 3), 3, (3, 3), group=3),
    "windows that slide by two": conv((1, 8, 10, 5), 5, (3, 3), (2, 2), (0, 0, 1, 1), group=5),
    "windows that slide by two, both borders": conv((1, 7, 9, 5), 5, (3, 3), (2, 2), _SAME, group=5),
    "windows that slide by one and two": conv((1, 8, 8, 4), 4, (3, 3), (2, 1), _SAME, group=4, low=-100, high=90),
    "windows on two rows": conv((1, 2, 7, 3), 3, (3, 3), pads=_SAME, group=3),
    "windows of one result": conv((1, 3, 3, 9), 9, (3, 3), group=9, y_zero=-128),
    "windows of u8 that slide": conv((1, 5, 6, 3), 3, (3, 3), pads=_SAME, group=3, dtype=np.uint8, x_zero=200, w_zero=130),
    "windows of one row and of rows that are skipped": conv((1, 10, 9, 4), 4, (3, 3), (4, 2), (1, 1, 0, 1), group=4),
    "windows of many channels": conv((1, 6, 9, 8), 8, (3, 3), pads=_SAME, group=8, y_zero=-128),
    "windows of u8 of four channels": conv(
        (2, 7, 3, 4), 4, (3, 3), pads=_SAME, group=4, dtype=np.uint8, x_zero=200, w_zero=130
    ),
    "windows of long rows": conv((2, 4, 14, 7), 7, (3, 3), pads=_SAME, group=7, y_zero=-128),
    "windows of long rows by two": conv((1, 5, 21, 3), 3, (3, 3), (2, 2), (0, 1, 0, 0), group=3, y_zero=-128),
    "windows of long rows of u8 by two": conv(
        (1, 18, 5, 2), 2, (3, 3), (2, 1), _SAME, group=2, dtype=np.uint8, x_zero=3, w_zero=120, y_zero=7, low=7
    ),
    "channels of long rows": conv((1, 5, 7, 16), 7, (3, 3), pads=_SAME),
    "channels of long rows, apart": conv((1, 2, 9, 130), 3, (1, 1), weight=-128, real=1e-5),
    "channels as many as before": conv((1, 3, 7, 6), 6, (1, 1)),
    "channels clipped at the zero point": conv((1, 4, 6, 10), 9, (1, 1), y_zero=-128, spread=9.0),
    "channels clipped above the zero point": conv((1, 4, 5, 6), 7, (3, 3), pads=_SAME, y_zero=3, low=20, high=90),
    "channels of u8 clipped at the zero point": conv(
        (1, 3, 5, 6), 5, (1, 1), dtype=np.uint8, x_zero=131, w_zero=97, y_zero=0, spread=9.0
    ),
    "a sum of a larger side": added(_PLAIN, (0.5, 0.2, 0.4)),
    "a sum of a smaller side": added(_PLAIN, (0.1, 0.4, 0.3)),
    "a sum of equal sides": added(_PLAIN, (0.3, 0.3, 0.5)),
    "a sum the other way around": added(_PLAIN, (0.5, 0.2, 0.4), swapped=True),
    "a sum of rows that are left over": added(conv((1, 3, 7, 5), 7, (3, 3), pads=_SAME), (0.02, 0.5, 0.4)),
    "a sum of a pointwise convolution": added(conv((1, 4, 5, 6), 9, (1, 1)), (0.5, 0.45, 0.9)),
    "a sum of u8": added(
        conv((1, 4, 5, 4), 6, (3, 3), pads=_SAME, dtype=np.uint8, x_zero=9, w_zero=120), (0.5, 0.2, 0.4), zeros=(3, 200, 99)
    ),
    "a sum in groups": added(conv((1, 4, 5, 6), 9, (3, 3), pads=_SAME, group=3), (0.5, 0.2, 0.4)),
    "a product": case(QMul(3, -7, *(1518500250, -8), 5), numbers(3, 17), numbers(3, 17)),
    "rows of whole steps": dense(1, 64, 18, spread=30.0),
    "rows that share a factor": dense(1, 40, 22),
    "rows of u8 as they are": dense(1, 24, 9, dtype=np.uint8, a_zero=255),
    "rows that need a column": dense(1, 37, 6, largest=127),
    "channels of wide sums": conv((1, 3, 3, 600), 4, (1, 1), x_zero=-128, x=127, weight=127, real=1e-6),
    "channels of the lowest weights": conv((1, 3, 5, 6), 6, (1, 1), weight=-128, real=1e-4),
    "two pixels in a word": conv((2, 5, 7, 6), 9, (3, 3), pads=_SAME, largest=60),
    "two pixels in a word, split early": conv((1, 3, 3, 8), 3, (1, 1), x_zero=127, x=-128, weight=127, real=1e-3),
    "two pixels in a word at the limit": conv((1, 3, 3, 8), 3, (1, 1), x_zero=127, x=-128, weight=-64, real=1e-3),
    "two pixels in a word over a row": conv((1, 7, 3, 5), 4, (3, 2), (2, 1), (1, 0, 0, 1), scaling="once", largest=90),
    "two channels in a word": dense(1, 48, 6, largest=12, spread=3.0),
    "two channels in a word of u8": dense(1, 12, 5, dtype=np.uint8, a_zero=7, largest=60),
    "two channels in a word of a pixel": conv((1, 1, 1, 20), 11, (1, 1), x_zero=-128, largest=50),
    "two pixels in a word, a run that ends early": with_large_weights(dense(5, 1100, 2, largest=15), 8, 12, 1096),
    "two pixels in a word of rows": dense(6, 36, 7, spread=30.0),
    "quantised as they come": hybrid((1, 5, 6, 8), 9, (3, 3)),
    "quantised as they come, pointwise": hybrid((1, 5, 6, 8), 9, (1, 1), bias=False),
    "quantised as they come, without a zero point": hybrid((1, 4, 4, 3), 4, (3, 1), asymmetric=False),
    "a row quantised as it comes": hybrid_rows(1, 37, 10, True),
    "a row quantised without a zero point": hybrid_rows(1, 16, 4, False),
    "the largest of odd channels": case(MaxPool((3, 2), (1, 2), (1, 0, 1, 1), layout=Layout.NHWC), numbers(1, 5, 6, 7)),
    "the largest of u8": case(MaxPool((2, 2), (2, 2), layout=Layout.NHWC), numbers(2, 4, 4, 8, dtype=np.uint8)),
    "means of odd channels": case(QAveragePool((3, 3), (2, 2), (1, 1, 1, 1), -100, 100), numbers(1, 7, 5, 6)),
    "means of u8": case(QAveragePool((4, 4), (4, 4), (0, 0, 0, 0), 0, 255), numbers(1, 8, 8, 5, dtype=np.uint8)),
    "means of the lowest": case(QAveragePool((16, 16), (1, 1), (0, 0, 0, 0), -128, 127), np.full((1, 16, 16, 4), -128, np.int8)),
}
assert DType.I8 in {c.op.to for c in SMALL_CORES.values() if isinstance(c.op, QConv)}
