"""Tiles of products whose number of rows has a range: near the best tile of every size, not of the largest alone."""

from __future__ import annotations

import pytest

from intaglio.ir.sizes import Bounds
from intaglio.kernels.contraction.tile import candidates, choose_tile, cycles
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
