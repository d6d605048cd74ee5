"""Cases of floats on cores with an FPU: tiles of four pixels and channels, what is left of both, borders, what follows a sum."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from intaglio.ir.graph import Array
from intaglio.ir.types import Layout
from intaglio.ops.activation import Relu
from intaglio.ops.base import Step
from intaglio.ops.binary import Add
from intaglio.ops.conv import Conv
from intaglio.ops.matmul import MatMul
from support.kernel_running import Case, case
from support.tree_models import forest_case

_RANDOM = np.random.default_rng(5)
_SAME = (1, 1, 1, 1)
ADD, RELU, THEN_RELU = (Step(Add(), (1, 0)),), (Step(Relu(), (0,)),), (Step(Add(), (0, 1)), Step(Relu(), (2,)))


def _real(*shape: int) -> Array:
    return _RANDOM.normal(size=shape).astype(np.float32)


def conv(
    shape: tuple[int, ...], out: int, kernel: tuple[int, int], strides: tuple[int, int] = (1, 1),
    pads: tuple[int, int, int, int] = (0, 0, 0, 0), dilations: tuple[int, int] = (1, 1), group: int = 1,
    steps: tuple[Step, ...] = (), bias: bool = True, nan: bool = False,
) -> Case:  # fmt: skip
    op = Conv(strides, pads, dilations, group, Layout.NHWC, steps)
    w, x = _real(out, shape[-1] // group, *kernel), _real(*shape)
    if nan:
        x.reshape(-1)[:2] = (np.nan, -np.inf)
    operands: list[Array | None] = [x, w, _real(out) if bias else None]
    if any(isinstance(step.op, Add) for step in steps):
        operands.append(_real(*case(Conv(strides, pads, dilations, group, Layout.NHWC), x, w, constant=[1]).node().output.shape))
    return case(op, *operands, constant=[1, 2], using="conv_fpu")


def dense(rows: int, depth: int, out: int, steps: tuple[Step, ...] = (), *, transpose: bool = True) -> Case:
    extra = [_real(rows, out)] if any(isinstance(step.op, Add) for step in steps) else []
    w, op = _real(out, depth), MatMul(transpose_b=transpose, epilogue=steps)
    return case(op, _real(rows, depth), w if transpose else w.T.copy(), _real(out), *extra, constant=[1, 2], using="matmul_fpu")


FLOATS: dict[str, Case] = {
    "floats 1x1": conv((1, 5, 5, 8), 16, (1, 1), steps=RELU),
    "floats 1x1 of odd numbers": conv((1, 3, 3, 7), 11, (1, 1)),
    "floats 1x1 of one number": conv((1, 3, 5, 1), 5, (1, 1), steps=RELU, bias=False),
    "floats 1x1 strided": conv((1, 5, 7, 6), 8, (1, 1), (2, 2)),
    "floats 3x3": conv((1, 6, 9, 3), 8, (3, 3), pads=_SAME, steps=RELU),
    "floats 3x3 added": conv((1, 5, 6, 4), 6, (3, 3), pads=_SAME, steps=ADD),
    "floats 3x3 added, then positive": conv((2, 4, 7, 4), 8, (3, 3), pads=_SAME, steps=THEN_RELU),
    "floats 3x3 strided": conv((1, 9, 8, 5), 9, (3, 3), (2, 2), (0, 0, 1, 1)),
    "floats 5x5": conv((1, 7, 6, 2), 4, (5, 5), pads=(2, 2, 2, 2)),
    "floats dilated": conv((1, 9, 11, 3), 4, (3, 3), dilations=(2, 3), pads=(2, 3, 2, 3)),
    "floats in groups": conv((1, 5, 6, 6), 12, (3, 3), pads=_SAME, group=3),
    "floats of padding alone": conv((1, 2, 2, 2), 5, (3, 3), (3, 3), (3, 3, 3, 3)),
    "floats wider than the image": conv((1, 3, 3, 2), 4, (5, 5), pads=(2, 2, 2, 2)),
    "floats 1 wide": conv((1, 31, 1, 3), 8, (5, 1), (2, 1), (2, 0, 2, 0)),
    "floats that are not numbers": conv((1, 2, 4, 2), 5, (1, 1), steps=RELU, nan=True),
    "rows of floats": dense(5, 12, 10, RELU),
    "a row of floats": dense(1, 64, 12, RELU),
    "a row of an odd number of floats": dense(1, 35, 7),
    "a row of floats added": dense(1, 6, 9, THEN_RELU, transpose=False),
    "a row of one float": dense(1, 1, 6, ADD),
    "a forest, a function for each tree": replace(forest_case(5, 3), using="trees_functions"),
    "a forest in assembly": replace(forest_case(5, 3, count=12, tracks=True), using="trees_assembly"),
}
