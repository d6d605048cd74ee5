"""Concats along an inner axis without copies: rows of the operands are made side by side, by every kernel that can be proven to."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from intaglio.fitting.side_by_side import without_copies
from intaglio.ir.graph import Graph
from intaglio.kernels import lower
from intaglio.kernels.program import Program
from intaglio.memory import placed
from intaglio.memory.share import share_parts
from intaglio.ops.evaluate import evaluate_graph
from intaglio.targets import Target
from support.ir_text import graph_of, random_array
from support.kernel_running import TARGETS
from support.program_running import Machine
from support.tangles import tangle

BLOCK = """
    input x: f32[1,6,5,8] NHWC
    const w1: f32[16,8,1,1] ...
    const w2: f32[8,8,3,3] ...
    const w3: f32[8,1,3,3] ...
    const w4: f32[12,40,1,1] ...
    a: f32[1,6,5,16] NHWC = conv(x, w1, _, layout=NHWC)
    b: f32[1,6,5,8] NHWC = conv(x, w2, _, pads=(1,1,1,1), layout=NHWC, epilogue=[relu(0)])
    d: f32[1,6,5,8] NHWC = conv(x, w3, _, pads=(1,1,1,1), group=8, layout=NHWC)
    p: f32[1,6,5,8] NHWC = max_pool(x, kernel=(3,3), pads=(1,1,1,1), layout=NHWC)
    c: f32[1,6,5,40] NHWC = concat(a, b, d, p, axis=3)
    y: f32[1,6,5,12] NHWC = conv(c, w4, _, layout=NHWC)
    output y
"""
DENSE = """
    input x: f32[1,6,6,8] NHWC
    const s: f32[8] ...
    const w0: f32[8,8,3,3] ...
    const w1: f32[8,16,3,3] ...
    const w2: f32[16,24,1,1] ...
    const w3: f32[8,40,1,1] ...
    x0: f32[1,6,6,8] NHWC = mul(x, s)
    x1: f32[1,6,6,8] NHWC = conv(x0, w0, _, pads=(1,1,1,1), layout=NHWC)
    c1: f32[1,6,6,16] NHWC = concat(x0, x1, axis=3)
    r1: f32[1,6,6,16] NHWC = relu(c1)
    x2: f32[1,6,6,8] NHWC = conv(r1, w1, _, pads=(1,1,1,1), layout=NHWC)
    c2: f32[1,6,6,24] NHWC = concat(x0, x1, x2, axis=3)
    r2: f32[1,6,6,24] NHWC = relu(c2)
    x3: f32[1,6,6,16] NHWC = conv(r2, w2, _, layout=NHWC)
    c3: f32[1,6,6,40] NHWC = concat(x0, x1, x2, x3, axis=3)
    y: f32[1,6,6,8] NHWC = conv(c3, w3, _, layout=NHWC)
    output y
"""
SKIP = """
    input x: f32[1,8,8,4] NHWC
    const w0: f32[8,4,3,3] ...
    const w1: f32[16,8,3,3] ...
    const w2: f32[8,24,3,3] ...
    e: f32[1,8,8,8] NHWC = conv(x, w0, _, pads=(1,1,1,1), layout=NHWC, epilogue=[relu(0)])
    p: f32[1,4,4,8] NHWC = max_pool(e, kernel=(2,2), strides=(2,2), layout=NHWC)
    m: f32[1,4,4,16] NHWC = conv(p, w1, _, pads=(1,1,1,1), layout=NHWC)
    u: f32[1,8,8,16] NHWC = resize(m, scales=(1.0,2.0,2.0,1.0), shape=(1,8,8,16), mode="nearest")
    c: f32[1,8,8,24] NHWC = concat(e, u, axis=3)
    y: f32[1,8,8,8] NHWC = conv(c, w2, _, pads=(1,1,1,1), layout=NHWC)
    output y
"""
MODELS = {"inception": BLOCK, "dense": DENSE, "skip": SKIP}


def planned(graph: Graph, target: Target) -> Program:
    program = lower(graph, target)
    share_parts(program, target)
    return placed(program, target)


def in_rows(graph: Graph, target: Target) -> Program:
    """The program without copies, whatever that does to the arena."""
    plain = planned(graph, target)
    made = without_copies(plain, target, slots=False)
    assert made is not None, "nothing is shared"
    return made


def assert_runs(program: Program) -> None:
    graph = program.graph
    inputs = {v.name: random_array(v.name, v.dtype, v.shape) for v in graph.inputs}
    wanted, got = evaluate_graph(graph, inputs), Machine(program).run(inputs)
    for out in graph.outputs:
        scale = float(np.abs(wanted[out.name]).max(initial=1.0))
        np.testing.assert_allclose(got[out.name], wanted[out.name], rtol=0, atol=1e-4 * scale)


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("isa", ["avx2", "scalar"])
@pytest.mark.parametrize("threads", [1, 2])
def test_a_block_without_copies_gives_what_the_graph_gives(model: str, isa: str, threads: int) -> None:
    target = replace(TARGETS[isa], threads=threads)
    program = in_rows(graph_of(MODELS[model]), target)
    assert not any(layer.node.op.NAME == "concat" for layer in program.layers)
    assert_runs(program)


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.randoms(use_true_random=False), st.integers(4, 20), st.sampled_from(["avx2", "scalar"]), st.booleans())
def test_a_tangle_of_rows_gives_what_the_graph_gives(rng: random.Random, steps: int, isa: str, slots: bool) -> None:
    target = TARGETS[isa]
    graph = tangle(rng, steps, inner=0.7)
    program = lower(graph, target)
    share_parts(program, target, slots=slots)
    plain = placed(program, target, slots=slots)
    program = without_copies(plain, target, slots=slots) or plain
    assert program.arena_bytes <= plain.arena_bytes
    machine = Machine(program)
    inputs = {v.name: random_array(v.name, v.dtype, v.shape) for v in graph.inputs}
    inputs |= {s.input.name: np.zeros(s.input.shape, s.input.dtype.numpy) for s in graph.states}
    for _ in range(2):
        wanted, got = evaluate_graph(graph, inputs, keep=True), machine.run(inputs)
        for out in graph.outputs:
            np.testing.assert_array_equal(got[out.name], wanted[out.name])
        inputs |= {s.input.name: wanted[s.output.name] for s in graph.states}
