"""Weights that a layer copies to RAM before it runs, in room that the arena has anyway."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from intaglio.fitting.staged import Found, stage_weights, staged_line, staged_text
from intaglio.ir.graph import Array
from intaglio.kernels import lower
from intaglio.kernels.program import Program
from intaglio.memory import place
from intaglio.memory.checker import check
from intaglio.ops.evaluate import evaluate_graph
from intaglio.run.machine import Machine
from intaglio.targets.board import find_board
from intaglio.targets.target import find_target
from support.commands import Intaglio
from support.ir_text import graph_of
from support.small_networks import Layers

L4R5 = find_board("nucleo-l4r5zi")
_THREE = """
    input x: f32[1,32,32,4] NHWC
    const w: f32[4,4,3,3] ...
    const v: f32[16,4,3,3] ...
    const u: f32[64,10] ...
    a: f32[1,32,32,4] NHWC = conv(x, w, pads=(1,1,1,1), layout=NHWC)
    b: f32[1,4,4,16] NHWC = conv(a, v, pads=(0,0,0,0), strides=(8,8), layout=NHWC)
    c: f32[4,64] = reshape(b, shape=(4,64))
    y: f32[4,10] = matmul(c, u)
    output y
"""


def _staged(more: int) -> tuple[Program, list[Found], Program]:
    target = find_target("cortex-m4f")
    program = lower(graph_of(_THREE), target)
    program.placement = place(program, target)
    made, rows = stage_weights(program, target, L4R5, program.arena_bytes + more, slots=False)
    check(made)
    return made, rows, program


def test_room_that_is_free_while_a_layer_runs_is_used() -> None:
    made, rows, before = _staged(0)
    assert [f.layer for f in rows if not f.why_not] == ["a"]
    assert made.arena_bytes <= before.arena_bytes
    assert "staged, about" in staged_line(rows[0]) and "not staged: the copy would take as long" in staged_line(rows[2])
    assert staged_text(rows).startswith("1 of 3 layers copy their weights to RAM")
    x: Array = np.random.default_rng(0).standard_normal((1, 32, 32, 4)).astype(np.float32)
    found, expected = Machine(made).run({"x": x}), evaluate_graph(made.graph, {"x": x})
    np.testing.assert_allclose(found["y"], expected["y"], rtol=1e-4, atol=1e-4)


def test_without_room_nothing_is_staged() -> None:
    made, rows, before = _staged(-2000)
    assert made is before
    assert "bytes free" in rows[0].why_not


def test_a_board_without_waits_stages_nothing() -> None:
    program = lower(graph_of(_THREE), find_target("cortex-m4f"))
    program.placement = place(program, find_target("cortex-m4f"))
    made, rows = stage_weights(program, find_target("cortex-m4f"), None, 1 << 20, slots=False)
    assert made is program and all(f.why_not for f in rows)
    assert staged_text(rows).startswith("no weights are staged")


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Path:
    net = Layers((1, 24, 24, 4), 5)
    net.conv(16, (3, 3))
    net.conv(24, (3, 3), 2)
    net.conv(24, (3, 3))
    net.mean()
    net.dense(4)
    path = tmp_path_factory.mktemp("staged") / "net.tflite"
    path.write_bytes(net.file())
    return path


@pytest.mark.slow
def test_the_firmware_is_faster_with_the_same_arena(network: Path, intaglio: Intaglio, tmp_path: Path) -> None:
    found = {}
    for weights in ("mapped", "staged"):
        words = ["--board", "nucleo-l4r5zi", "--weights", weights, "--explain", "-o", tmp_path / weights]
        said = intaglio("compile", network, *words)
        assert said.code == 0, said.err
        assert ("cycles of waits for flash; staged, about" in said.err) == (weights == "staged")
        assert intaglio("validate", tmp_path / weights).code == 0
        found[weights] = json.loads(intaglio("profile", tmp_path / weights, "--json").out)["total"]
    assert found["staged"]["arena_bytes"] == found["mapped"]["arena_bytes"]
    assert found["staged"]["cycles"] < found["mapped"]["cycles"]
