"""`compile --verify` names the pass or the kernel that changes a result."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import intaglio.passes as passes
from intaglio.errors import OurFault
from intaglio.ir.graph import Graph
from intaglio.kernels.program import Program
from intaglio.ops.activation import Relu
from intaglio.ops.unary import Abs
from intaglio.options.request import Request
from intaglio.passes.context import Context
from intaglio.passes.line import Pass
from intaglio.pipeline import plan_request
from intaglio.stages import verifying
from intaglio.stages.verifying import Verifier
from intaglio.stages.watch import Watch
from support.commands import DIGITS, Intaglio
from support.small_networks import anomalies


def plan(model: Path, target: str = "generic", **options: bool) -> Program:
    return plan_request(Request(model, model.with_name("out"), target=target, **options), Watch()).program  # type: ignore[arg-type]


def test_what_was_verified_and_its_cost_are_told(intaglio: Intaglio, tmp_path: Path) -> None:
    said = intaglio("compile", DIGITS, "-o", tmp_path / "p", "--verify", "--target", "generic", "--stop-after", "memory")
    assert said.code == 0
    assert "note: verified: " in said.err and "6 kernels by interpretation" in said.err and " s)" in said.err


def test_a_layer_that_is_too_large_is_told(monkeypatch: pytest.MonkeyPatch, intaglio: Intaglio, tmp_path: Path) -> None:
    monkeypatch.setattr(verifying, "MOST_PRODUCTS", 5_000)
    said = intaglio("compile", DIGITS, "-o", tmp_path / "p", "--verify", "--target", "generic", "--stop-after", "memory")
    assert said.code == 0
    assert "NOT interpreted, over 5,000 products or not of ours: `relu2_1`" in said.err


def spoil(graph: Graph, context: Context) -> Graph:
    """A relu becomes another function."""
    for node in graph.nodes:
        if isinstance(node.op, Relu):
            node.op = Abs()
    return graph


def test_a_pass_that_changes_a_result_is_named(monkeypatch: pytest.MonkeyPatch, intaglio: Intaglio, tmp_path: Path) -> None:
    monkeypatch.setattr(passes, "OPTIMISE", (Pass("spoil", spoil), *passes.OPTIMISE))
    words = ("compile", DIGITS, "-o", tmp_path / "p", "--target", "generic", "--stop-after", "memory")
    assert intaglio(*words).code == 0  # nobody looks
    said = intaglio(*words, "--verify", "--force")
    assert said.code == 3
    assert "error[miscompiled]: the pass `spoil` changed the output `" in said.err
    assert "`--disable-pass spoil` compiles without that pass" in said.err


def test_a_kernel_that_computes_something_else_is_named() -> None:
    program = plan(DIGITS)
    first = program.constants[0]
    wrong = replace(first, data=np.asarray(first.data) + np.float32(0.01))
    spoiled = replace(program, constants=[wrong, *program.constants[1:]])
    with pytest.raises(OurFault, match=r"the kernel `\w+` of layer `\w+` \(conv\) is wrong: by up to"):
        Verifier().kernels(spoiled)


def test_integer_kernels_are_tried_at_the_extremes_of_their_types(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    model = tmp_path / "ad.tflite"
    model.write_bytes(anomalies())
    program = plan(model, "cortex-m4f")
    verifier = Verifier()
    verifier.kernels(program)
    assert verifier.layers == verifier.at_extremes == len(program.layers) > 3
    monkeypatch.setattr(verifying, "inputs_of", lambda graph: iter(()))
    at = next(n for n, c in enumerate(program.constants) if np.asarray(c.data).dtype == np.int32)
    wrong = replace(program.constants[at], data=np.asarray(program.constants[at].data) + 100_000)
    constants = [*program.constants[:at], wrong, *program.constants[at + 1 :]]
    with pytest.raises(OurFault, match=r"is wrong on the (least|largest|mixed) numbers"):
        Verifier().kernels(replace(program, constants=constants))
