"""Cases of float activations with 8-bit weights: rows of every kind, tails, borders, batches. All but the last bit of rounding is
checked: a number that is rounded to its neighbour shows."""

from __future__ import annotations

import numpy as np

from intaglio.ir.graph import Array
from intaglio.ops.hybrid import HybridConv, HybridMatMul
from support.kernel_integer_tiles import numbers
from support.kernel_running import Case, case

_RANDOM = np.random.default_rng(11)
BOUND = 1e-12
_SAME = (1, 1, 1, 1)


def hybrid(
    shape: tuple[int, ...], out: int, kernel: tuple[int, int], asymmetric: bool = True, bias: bool = True, group: int = 1,
    strides: tuple[int, int] = (1, 1), dilations: tuple[int, int] = (1, 1), pads: tuple[int, int, int, int] | None = None,
    largest: int = 127, using: str = "",
) -> Case:  # fmt: skip
    x = _RANDOM.standard_normal(shape).astype(np.float32)
    w = numbers(out, shape[-1] // group, *kernel, low=-largest, high=largest)
    scale = np.linspace(0.01, 0.03, out, dtype=np.float32)
    b = _RANDOM.standard_normal(out).astype(np.float32) if bias else None
    around = (kernel[0] // 2, kernel[1] // 2, kernel[0] // 2, kernel[1] // 2) if pads is None else pads
    op = HybridConv(strides, around, dilations, group, asymmetric)
    return case(op, x, w, scale, b, constant=[1, 2, 3], using=using, bound=BOUND)


def hybrid_rows(
    rows: int, depth: int, out: int, asymmetric: bool, bias: bool = False, largest: int = 127, x: Array | None = None,
    using: str = "",
) -> Case:  # fmt: skip
    given = _RANDOM.standard_normal((rows, depth)).astype(np.float32) if x is None else x
    scale = np.linspace(0.01, 0.03, out, dtype=np.float32)
    w = numbers(out, depth, low=-largest, high=largest)
    b = _RANDOM.standard_normal(out).astype(np.float32) if bias else None
    return case(HybridMatMul(asymmetric), given, w, scale, b, constant=[1, 2, 3], using=using, bound=BOUND)


def special_rows() -> Array:
    """All zero; above zero; below zero; and one with numbers just below half a step, whose sum with a half is rounded up."""
    rows = np.zeros((4, 20), np.float32)
    rows[1], rows[2] = np.linspace(0.5, 3.0, 20), np.linspace(-7.0, -0.1, 20)
    rows[3, 0], rows[3, 3::3], rows[3, 4::3] = 127.0, 0.49999997, -2.5
    return rows


HYBRID: dict[str, Case] = {
    "hybrid row": hybrid_rows(1, 64, 40, False, bias=True),
    "hybrid row with a zero point": hybrid_rows(1, 37, 10, True, bias=True),
    "hybrid row that is short": hybrid_rows(1, 5, 3, True),
    "hybrid row of one vector and a half": hybrid_rows(1, 24, 9, False),
    "hybrid rows": hybrid_rows(5, 33, 19, False, bias=True),
    "hybrid rows with zero points": hybrid_rows(9, 70, 40, True, bias=True),
    "hybrid rows of small weights": hybrid_rows(3, 26, 24, True, largest=60),
    "hybrid rows of small weights without zero points": hybrid_rows(3, 26, 24, False, largest=60),
    "hybrid rows of a given size": hybrid_rows(7, 12, 40, True, using="hybrid_matmul_tiles(tile=3x2)"),
    "hybrid rows of all kinds": hybrid_rows(4, 20, 17, False, x=special_rows()),
    "hybrid rows of all kinds with zero points": hybrid_rows(4, 20, 17, True, x=special_rows()),
    "hybrid 1x1": hybrid((1, 5, 6, 8), 19, (1, 1)),
    "hybrid 1x1 of odd channels in batches": hybrid((2, 3, 5, 7), 21, (1, 1), asymmetric=False),
    "hybrid 1x1 strided": hybrid((1, 5, 7, 9), 9, (1, 1), strides=(2, 2)),
    "hybrid 3x3": hybrid((1, 5, 6, 8), 9, (3, 3)),
    "hybrid 3x3 without a border": hybrid((1, 6, 9, 5), 13, (3, 3), pads=(0, 0, 0, 0), bias=False),
    "hybrid 3x3 in batches": hybrid((2, 5, 6, 3), 9, (3, 3), strides=(2, 1)),
    "hybrid 3x3 of small weights": hybrid((1, 5, 6, 4), 9, (3, 3), largest=60),
    "hybrid 3x3 of small weights without a zero point": hybrid((1, 5, 6, 4), 9, (3, 3), asymmetric=False, largest=60),
    "hybrid of one channel": hybrid((1, 13, 10, 1), 12, (10, 4), strides=(2, 2), pads=(4, 1, 5, 1)),
    "hybrid 1 wide": hybrid((1, 31, 1, 3), 8, (5, 1), strides=(2, 1), pads=(2, 0, 2, 0)),
    "hybrid dilated": hybrid((1, 9, 11, 3), 4, (3, 3), dilations=(2, 3), pads=(2, 3, 2, 3)),
    "hybrid in groups": hybrid((1, 5, 9, 6), 27, (3, 3), group=3),
}
