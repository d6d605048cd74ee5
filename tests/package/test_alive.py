"""Memory in use while a layer runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from intaglio import compile
from intaglio.package.alive import alive_bytes
from intaglio.package.manifest import PlaceInfo
from intaglio.run.package import Package
from support.commands import DIGITS


def place(offset: int, size: int, first: int, last: int, region: str = "arena") -> PlaceInfo:
    return PlaceInfo("v", region, offset, size, first, last)


def test_memory_that_is_taken_over_counts_once() -> None:
    places = [place(0, 100, 0, 1), place(0, 100, 1, 2), place(100, 50, 1, 1), place(0, 30, 1, 1, "arena:fast")]
    assert [alive_bytes(places, n) for n in range(4)] == [100, 180, 100, 0]
    assert alive_bytes([place(0, 10, 0, 0), place(5, 10, 0, 0), place(2, 3, 0, 0)], 0) == 15


def test_a_layer_never_needs_more_than_the_arena(tmp_path: Path) -> None:
    pytest.importorskip("unicorn")
    made = compile(DIGITS, output=tmp_path / "d", target="cortex-m4f").profile()
    assert all(layer.ram_bytes is not None and 0 < layer.ram_bytes <= made.total.arena_bytes for layer in made.layers)


def test_the_total_is_the_sum_of_the_layers(digits: Path) -> None:
    made = Package(digits).profile(runs=3)
    assert made.total.time_ms == pytest.approx(sum(layer.time_ms or 0 for layer in made.layers))
