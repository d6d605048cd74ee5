"""Weights of few values, stored in 4 bits and unpacked before a layer runs."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from intaglio.fitting.packed import Found, pack_weights, packed_line, packed_text
from intaglio.ir.graph import Array
from intaglio.kernels import lower
from intaglio.kernels.program import Program
from intaglio.memory import place
from intaglio.memory.checker import check
from intaglio.ops.evaluate import evaluate_graph
from intaglio.run.machine import Machine
from intaglio.targets.target import find_target
from support.commands import Intaglio
from support.ir_text import graph_of
from support.onnx_models import model, node, saved, value

_TEXT = """
    input x: i8[1,8,8,8] NHWC
    const w: i8[24,8,3,3] ...
    const b: i32[24] ...
    const m: i32[24] ...
    const s: i32[24] ...
    const v: i8[16,24,1,1] ...
    const c: i32[16] ...
    const n: i32[16] ...
    const t: i32[16] ...
    const u: i8[8,16,3,3] ...
    const d: i32[8] ...
    const o: i32[8] ...
    const r: i32[8] ...
    y: i8[1,8,8,24] NHWC = qconv(x, w, b, m, s, pads=(1,1,1,1))
    z: i8[1,8,8,16] NHWC = qconv(y, v, c, n, t, pads=(0,0,0,0))
    a: i8[1,6,6,8] NHWC = qconv(z, u, d, o, r, pads=(0,0,0,0))
    output a
"""


def _program(target: str, values: int) -> Program:
    """Three layers: the weights of the last have all values, those of the others `values`."""
    graph = graph_of(_TEXT)
    rng = np.random.default_rng(7)
    few = rng.choice(np.arange(-127, 128), values, replace=False)
    for v in {v for n in graph.nodes for v in n.inputs[1:] if v is not None}:
        if v.dtype.value == "i8":
            v.data = rng.choice(np.arange(-128, 128) if v.name == "u" else few, v.shape).astype(np.int8)
        else:
            low, high = {"b": (-900, 900), "c": (-900, 900), "d": (-900, 900)}.get(v.name, (2**30, 2**31 - 1))
            v.data = rng.integers(low, high, v.shape).astype(np.int32)
            if v.name in ("s", "t", "r"):
                v.data = np.full(v.shape, -9, np.int32)
    made = lower(graph, find_target(target))
    made.placement = place(made, find_target(target))
    return made


def _packed(program: Program, target: str, room: int | None = None) -> tuple[Program, list[Found]]:
    made, rows = pack_weights(program, find_target(target), room, slots=False)
    check(made)
    return made, rows


@pytest.mark.parametrize("target", ["cortex-m4f", "cortex-m0+", "rv32imc"])
@pytest.mark.parametrize("values", [15, 4])
def test_layers_that_unpack_compute_the_same(target: str, values: int) -> None:
    program = _program(target, values)
    made, rows = _packed(program, target)
    assert [f.why_not for f in rows] == ["", "", "they have too many values"]
    before, after = (sum(c.data.nbytes for c in p.constants) for p in (program, made))
    assert before - after > (24 * 72 + 16 * 24) / 2 - 2 * 512 and made.arena_bytes > program.arena_bytes
    x: Array = np.random.default_rng(0).integers(-128, 128, (1, 8, 8, 8)).astype(np.int8)
    found, expected = Machine(made).run({"x": x}), evaluate_graph(made.graph, {"x": x})
    np.testing.assert_array_equal(found["a"], expected["a"])
    assert np.unique(found["a"]).size > 20


def test_layers_of_the_same_values_share_a_table() -> None:
    program = _program("rv32imc", 6)
    for c in program.constants:
        if c.dtype.value == "i8" and len(np.unique(c.data)) <= 7:
            c.data = np.random.default_rng(1).choice(np.asarray([-7, 0, 3, 5], np.int8), c.data.shape)
    made, _ = _packed(program, "rv32imc")
    tables = [c for c in made.constants if c.name.startswith("weight_words")]
    assert len(tables) == 1 and len(tables[0].data) <= 16 and len(tables[0].used_by) == 2


def test_without_ram_the_largest_layers_are_given_up() -> None:
    program = _program("cortex-m4f", 15)
    made, rows = _packed(program, "cortex-m4f", program.arena_bytes + 600)
    assert rows[0].why_not == "there is no RAM to unpack them"
    made, rows = _packed(program, "cortex-m4f", 0)
    assert made.arena_bytes <= program.arena_bytes
    assert "no RAM" in packed_line(rows[0]) and "255" not in packed_line(rows[0])


def test_a_table_that_is_as_large_as_the_weights_is_not_made() -> None:
    found = Found(0, "conv", 1, "w", 128, 64, "the table would be as large")
    assert packed_line(found) == "`conv`: 128 bytes of weights, 64 values; not packed: the table would be as large"
    assert packed_text([found], 128, 128).startswith("no weights are packed")


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder, rng = tmp_path_factory.mktemp("packed"), np.random.default_rng(3)
    shapes = {"w1": (16, 3, 3, 3), "w2": (32, 16, 3, 3), "w3": (40, 1152), "w4": (10, 40)}
    constants = {name: (rng.standard_normal(s) / np.sqrt(np.prod(s[1:]))).astype(np.float32) for name, s in shapes.items()}
    nodes = [
        node("Conv", "x w1", "a", pads=[1, 1, 1, 1], strides=[2, 2]),
        node("Relu", "a", "a1"),
        node("Conv", "a1 w2", "b"),
        node("Relu", "b", "b1"),
        node("Flatten", "b1", "f"),
        node("Gemm", "f w3", "g", transB=1),
        node("Relu", "g", "g1"),
        node("Gemm", "g1 w4", "y", transB=1),
    ]
    path = saved(model(nodes, [value("x", [1, 3, 16, 16])], [value("y", [1, 10])], constants), folder)
    np.savez(folder / "data.npz", x=rng.standard_normal((6, 1, 3, 16, 16)).astype(np.float32))
    return path, folder / "data.npz"


@pytest.mark.parametrize(
    ("core", "scheme"),
    [
        ("cortex-m4f", "int4"),
        pytest.param("cortex-m0+", "palette", marks=pytest.mark.slow),
        pytest.param("cortex-m4f", "palette", marks=pytest.mark.slow),
        pytest.param("rv32imc", "int4", marks=pytest.mark.slow),
    ],
)
def test_firmware_has_half_of_the_weights(
    network: tuple[Path, Path], core: str, scheme: str, intaglio: Intaglio, tmp_path: Path
) -> None:
    found = {}
    for quantize in ("int8", scheme):
        words: list[str | Path] = [
            "--quantize",
            quantize,
            "--calibrate",
            network[1],
            "--target",
            core,
            "--explain",
            "-o",
            tmp_path / quantize,
        ]
        said = intaglio("compile", network[0], *words)
        assert said.code == 0, said.err
        assert ("layers are packed: " in said.err) == (quantize != "int8")
        assert ("values; packed" in said.err) == (quantize != "int8")
        assert intaglio("validate", tmp_path / quantize).code == 0
        found[quantize] = json.loads(intaglio("profile", tmp_path / quantize, "--json").out)["total"]
    few, many = found[scheme]["weight_bytes"], found["int8"]["weight_bytes"]
    assert few < 0.62 * many
    assert found[scheme]["flash_bytes"] < found["int8"]["flash_bytes"] - 0.3 * many
    assert found[scheme]["ram_bytes"] < 24_000  # a part of the large layer at a time


@pytest.mark.slow
def test_a_limit_of_ram_is_kept(network: tuple[Path, Path], intaglio: Intaglio, tmp_path: Path) -> None:
    words: list[str | Path] = [
        "--quantize",
        "int4",
        "--calibrate",
        network[1],
        "--target",
        "cortex-m4f",
        "--ram",
        "6K",
        "-o",
        tmp_path / "p",
    ]
    said = intaglio("compile", network[0], *words)
    assert said.code == 0, said.err
    total = json.loads(intaglio("profile", tmp_path / "p", "--json").out)["total"]
    assert total["ram_bytes"] <= 6144
