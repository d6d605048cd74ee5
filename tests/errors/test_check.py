"""`check` lists everything in one go: what the front end cannot read, and what the target has no kernel for."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import helper

from intaglio.kernels.choice import TABLE
from intaglio.ops.activation import Tanh
from intaglio.ops.reduce import Softmax
from support.commands import Intaglio
from support.loop_models import LOOPS
from support.onnx_models import INT64, model, node, saved, value

NODES = [
    helper.make_node("Frobnicate", ["x"], ["a"], name="/one"),
    helper.make_node("ImageDecoder", ["x"], ["b"], name="/two"),
    helper.make_node("Softmax", ["x"], ["c"], name="/three", axis=9),
    helper.make_node("Relu", ["a"], ["d"], name="/behind/one"),
    helper.make_node("Conv", ["x", "w"], ["e"], name="/five"),
    helper.make_node("Relu", ["x"], ["f"], name="/fine"),
]
OUTPUTS = [*[value(n, None) for n in "abcde"], value("f", None, INT64)]
WEIGHTS = {"w": np.ones((4, 2, 3, 3), np.float32)}


def test_all_problems_of_the_front_end_are_listed(intaglio: Intaglio, tmp_path: Path) -> None:
    said = intaglio("check", saved(model(NODES, outputs=OUTPUTS, constants=WEIGHTS), tmp_path), "--json")
    assert said.code == 1
    problems = said.json["problems"]
    assert [p["node"] for p in problems] == ["/one", "/two", "/three", "/five", "f"]
    assert all(p["op"] and p["reason"] and p["hint"] for p in problems)
    assert not any("intaglio check" in p["hint"] for p in problems)


@pytest.fixture
def poor_target(monkeypatch: pytest.MonkeyPatch) -> None:
    for op in (Softmax, Tanh):
        monkeypatch.setitem(TABLE, op.NAME, ())


@pytest.mark.usefixtures("poor_target")
def test_all_operators_without_kernel_are_listed(intaglio: Intaglio, tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Softmax", ["x"], ["a"], name="/one", axis=0),
        helper.make_node("Softmax", ["a"], ["b"], name="/two", axis=1),
        helper.make_node("Softmax", ["b"], ["y"], name="/three", axis=0),
    ]
    said = intaglio("check", saved(model(nodes), tmp_path), "--target", "generic", "--json")
    assert said.code == 1
    assert [p["node"] for p in said.json["problems"]] == ["/one", "/two", "/three"]
    assert all("no kernel for `generic`" in p["reason"] and p["hint"] for p in said.json["problems"])


@pytest.mark.usefixtures("poor_target")
def test_both_kinds_of_problems_are_listed_together(intaglio: Intaglio, tmp_path: Path) -> None:
    nodes = [helper.make_node("Frobnicate", ["x"], ["a"], name="/one"), node("Softmax", "x", "y")]
    said = intaglio("check", saved(model(nodes, outputs=[value("a", None), value("y", None)]), tmp_path))
    assert said.code == 1
    assert "`Frobnicate` in node `/one`" in said.out
    assert "`softmax`" in said.out
    assert "2 problems" in said.out


def test_a_loop_is_refused_for_a_device(intaglio: Intaglio, tmp_path: Path) -> None:
    """Found by the hunter: a loop that goes on for as long as data says made one turn on OpenCL."""
    path = saved(LOOPS["a loop in a loop"].proto, tmp_path)
    told = intaglio("compile", path, "-o", tmp_path / "p", "--target", "opencl", "--stop-after", "package")
    assert told.code == 2 and not (tmp_path / "p").exists()
    assert "error[unsupported-operator]: the loop in node" in told.err and "not available for `opencl`" in told.err
    problems = intaglio("check", path, "--target", "opencl", "--json").json["problems"]
    assert sorted(p["op"] for p in problems) == ["loop_end", "loop_end", "loop_start", "loop_start"]
    assert intaglio("check", path, "--target", "cortex-m4f").code == 0
