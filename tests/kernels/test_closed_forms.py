"""Costs and packing are closed forms: what Python does for a layer does not grow with its pixels, and hardly with its weights."""

from __future__ import annotations

import itertools
import time

import numpy as np
import pytest

from intaglio.ir.graph import Graph
from intaglio.ir.types import DType, TensorType
from intaglio.kernels import lower
from intaglio.kernels.contraction.problem import Problem
from intaglio.kernels.contraction.tile import all_blocks, blocks_of, pack_columns
from intaglio.kernels.fpu.conv import LOOP_NUMBER, LOOP_RESULT, by_loops
from intaglio.ops.conv import Conv
from intaglio.ops.matmul import MatMul
from intaglio.targets.deployment import target_of


def _problems() -> list[Problem]:
    sizes = itertools.product((1, 2, 7, 13), (1, 2, 3), (1, 2, 3), (1, 2), (0, 1, 2))
    found = []
    for width, kernel, stride, dilation, pad in sizes:
        out = (width + 2 * pad - (kernel - 1) * dilation - 1) // stride + 1
        if width + 2 * pad > (kernel - 1) * dilation:
            found.append(Problem(1, 1, width, 2, 1, out, 3, (1, kernel), (1, stride), (0, pad), (1, dilation), 1))
    return found


def test_tiles_inside_are_those_whose_taps_are_inside() -> None:
    for p, count in itertools.product(_problems(), (1, 2, 4)):
        inner = [c for c in range(0, p.out_width - count + 1, count) if p.all_inside(c, count)]
        assert p.inner_and_edges(count) == (inner, [c for c in range(0, p.out_width, count) if c not in inner]), (p, count)


def test_the_cost_of_loops_counts_the_taps_inside() -> None:
    for p in _problems():
        taps = [ow * p.strides[1] - p.pads[1] + kw * p.dilations[1] for ow in range(p.out_width) for kw in range(p.kernel[1])]
        share = p.share_inside * sum(0 <= at < p.width for at in taps) / len(taps)
        assert by_loops(p) == round(p.rows * p.out_channels * (p.taps * share * LOOP_NUMBER + LOOP_RESULT)), p


@pytest.mark.parametrize(("columns", "vectors", "lanes"), [(1, 1, 1), (7, 2, 4), (8, 2, 4), (9, 2, 4), (33, 3, 8), (70_001, 6, 1)])
def test_blocks_hold_all_columns_with_zeros_behind_them(columns: int, vectors: int, lanes: int) -> None:
    blocks = all_blocks(columns, vectors, lanes)
    one_by_one = blocks_of(columns, vectors, lanes)
    assert blocks.whole + len(blocks.last) == len(one_by_one)
    assert list(blocks.last) == one_by_one[blocks.whole :]
    matrix = np.arange(1, 3 * columns + 1, dtype=np.int32).reshape(3, columns)
    panels = []
    for block in one_by_one:
        panel = np.zeros((3, block.vectors * lanes), np.int32)
        panel[:, : block.width] = matrix[:, block.first : block.first + block.width]
        panels.append(panel.reshape(-1))
    assert np.array_equal(pack_columns(matrix, vectors, lanes), np.concatenate(panels))


@pytest.mark.parametrize("target", ["host", "generic", "cortex-m4f", "cortex-m0+"])
def test_a_million_columns_or_pixels_take_less_than_a_quarter_of_a_second(target: str) -> None:
    """It was 0.6 to 1.2 s of CPU on those without vectors."""
    size = 1_000_000
    for op, x, w in (
        (MatMul(), (1, 1), (1, size)),
        (MatMul(), (size, 1), (1, 4)),
        (Conv((1,), (1, 1), (1,), 1), (1, 2, size), (4, 2, 3)),
    ):
        graph = Graph("wide")
        graph.inputs = [graph.value("x", TensorType(DType.F32, x))]
        graph.outputs = [graph.add(op, [graph.inputs[0], graph.constant("w", np.ones(w, np.float32))], "y", "/y")]
        start = time.process_time()
        lower(graph, target_of(None, target, "host"))
        assert time.process_time() - start < 0.25, (target, op)
