"""Tiles of products whose number of rows has a range: near the best tile of every size, not of the largest alone."""

from __future__ import annotations

import numpy as np
import pytest

from intaglio.ir.graph import Node, Value
from intaglio.ir.sizes import Bounds
from intaglio.ir.types import DType, TensorType
from intaglio.kernels.choice import lower_node
from intaglio.kernels.contraction.tile import candidates, choose_tile, cycles
from intaglio.kernels.loop import Braces, For, If, Prefetch, Stmt
from intaglio.ops.matmul import MatMul
from intaglio.targets.target import find_target

SHAPES = [(384, 384), (1536, 384), (384, 1536)]  # columns and depth, of a BERT


@pytest.mark.parametrize(("name", "lanes"), [("x86-64-v3", 8), ("x86-64-v4", 16), ("aarch64", 4)])
@pytest.mark.parametrize(("columns", "depth"), SHAPES)
def test_a_range_costs_little_more_than_each_size_alone(name: str, lanes: int, columns: int, depth: int) -> None:
    target = find_target(name)
    chosen = choose_tile(target, Bounds({"T": (1, 128)}).size("T"), columns, depth, lanes)
    ratios = []
    for rows in range(1, 129):
        best = min(cycles(target, tile, rows, columns, depth, lanes) for tile in candidates(target))
        ratios.append(cycles(target, chosen, rows, columns, depth, lanes) / best)
    assert sum(ratios) / len(ratios) < 1.03 and ratios[-1] < 1.05


def test_one_size_has_its_own_tile() -> None:
    target = find_target("x86-64-v3")
    assert choose_tile(target, 128, 384, 384, 8) == choose_tile(target, Bounds({"T": (128, 128)}).size("T"), 384, 384, 8)


def _prefetches(body: tuple[Stmt, ...]) -> list[int]:
    """Requests for memory in each loop that has some."""
    found = []
    for stmt in body:
        if isinstance(stmt, (For, If, Braces)):
            inner = stmt.then + stmt.otherwise if isinstance(stmt, If) else stmt.body
            asked = sum(isinstance(part, Prefetch) for part in inner)
            found += ([asked] if asked else []) + _prefetches(inner)
    return found


def test_few_rows_of_a_range_ask_for_all_weights_of_the_next_block() -> None:
    """17 of at most 128 rows are 5 tiles, which have the time to fetch what the next block needs."""
    depth, columns, target = 384, 384, find_target("x86-64-v3")
    types = [TensorType(DType.F32, shape) for shape in ((1, Bounds({"T": (1, 128)}).size("T"), depth), (depth, columns))]
    x, w = Value("x", types[0]), Value("w", types[1], data=np.zeros((depth, columns), np.float32))
    lowered = lower_node(Node(MatMul(), [x, w], [Value("y", MatMul().infer(*types)[0])], "/dense"), target)
    tile = choose_tile(target, types[0].shape[1], columns, depth, 8)
    lines = -(-tile.vectors * 8 * depth * 4 // 64)
    asked = _prefetches(lowered.kernel.body)
    assert asked and min(asked) * (depth // 16) * -(-17 // tile.rows) >= lines
