"""Weights that start-up code copies to RAM: the layers that wait most for flash first, as far as there is room."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from intaglio.fitting.fast_weights import IN_RAM, moved_text, to_ram, waits
from intaglio.kernels import lower
from intaglio.targets.board import find_board
from intaglio.targets.target import find_target
from support.commands import DIGITS, Intaglio
from support.ir_text import graph_of

L4R5 = find_board("nucleo-l4r5zi")
_TWO = """
    input x: f32[1,16,16,4] NHWC
    const w: f32[4,4,3,3] ...
    const u: f32[1024,10] ...
    a: f32[1,16,16,4] NHWC = conv(x, w, pads=(1,1,1,1), layout=NHWC)
    b: f32[1,1024] = reshape(a, shape=(1,1024))
    y: f32[1,10] = matmul(b, u)
    output y
"""


def test_waits_are_those_of_the_cache() -> None:
    assert waits(L4R5, 1024, 10.0) == 1024 / 8 * 10 * 4  # fills of 8 bytes, 4 cycles each
    assert waits(L4R5, 256, 10.0) == 256 / 8 * 4  # the cache holds it
    assert waits(find_board("nucleo-g0b1re"), 1024, 10.0) == 1024 / 4 * 10 * 2  # no cache, 2 wait states
    assert waits(None, 1024, 10.0) == 0


@pytest.mark.parametrize(("free", "layers"), [(100_000, ["a", "y"]), (1_000, ["a"]), (100, [])])
def test_the_layer_that_gains_most_per_byte_comes_first(free: int, layers: list[str]) -> None:
    program = lower(graph_of(_TWO), find_target("cortex-m4f"))
    moved = to_ram(program, L4R5, free)
    assert [m.layer for m in moved] == layers
    inside = sum(c.data.nbytes for c in program.constants if c.memory == IN_RAM)
    assert inside == sum(m.bytes for m in moved) <= free
    assert f"{len(layers)} of 2 layers" in moved_text(moved, program) or not layers


def test_the_firmware_has_them_in_ram(intaglio: Intaglio, tmp_path: Path) -> None:
    found = {}
    for weights in ("mapped", "ram"):
        said = intaglio("compile", DIGITS, "--board", "nucleo-l4r5zi", "--weights", weights, "-o", tmp_path / weights)
        assert said.code == 0, said.err
        assert ("are in RAM" in said.err) == (weights == "ram")
        assert intaglio("validate", tmp_path / weights).code == 0
        found[weights] = json.loads(intaglio("profile", tmp_path / weights, "--json").out)["total"]
    mapped, ram = found["mapped"], found["ram"]
    assert ram["weights_ram_bytes"] == ram["weight_bytes"] == mapped["weight_bytes"]
    assert ram["ram_bytes"] - mapped["ram_bytes"] == ram["weight_bytes"]
    assert abs(ram["flash_bytes"] - mapped["flash_bytes"]) < 64
    assert ram["cycles"] < mapped["cycles"]


def test_a_limit_leaves_room_for_some(intaglio: Intaglio, tmp_path: Path) -> None:
    said = intaglio("compile", DIGITS, "--board", "nucleo-l4r5zi", "--weights", "ram", "--ram", "6K", "-o", tmp_path / "p")
    assert said.code == 0, said.err
    memory = json.loads((tmp_path / "p" / "manifest.json").read_text())["memory"]
    assert 0 < memory["weights_ram"] < memory["weight_bytes"]
