"""Weights become i8 with a scale per channel, or f16; what cannot or should not, stays."""

from __future__ import annotations

import numpy as np
import pytest

from intaglio.ir.graph import Graph
from intaglio.ir.verify import verify
from intaglio.passes import optimise
from intaglio.passes.context import Context
from intaglio.passes.fold_weights import fold_scale
from intaglio.passes.weights import narrow_weights
from support.ir_text import CONTEXT, TARGET, assert_unchanged, graph_of, results, shown, wanted

CONV = """
    input x: f32[1,8,8,4]
    const w: f32[16,4,3,3] ...
    const b: f32[16] ...
    y: f32[1,8,8,16] = conv(x, w, b, pads=(1,1,1,1), layout=NHWC)
    output y
"""


def narrowing(graph: Graph, scheme: str) -> tuple[Graph, list[str]]:
    notes: list[str] = []
    return narrow_weights(graph, Context(TARGET, narrow=scheme, report=lambda note: notes.append(str(note)))), notes


def narrowed(text: str, scheme: str) -> tuple[Graph, list[str]]:
    graph, notes = narrowing(graph_of(text), scheme)
    verify(graph)
    return graph, notes


def assert_near(text: str, graph: Graph, bound: float) -> None:
    """Also after all passes: none of them may turn the weights back."""
    for _ in range(2):
        for before, after in zip(results(graph_of(text)), results(graph), strict=True):
            assert np.max(np.abs(after - before)) <= bound * max(1e-9, float(np.max(np.abs(before))))
        kinds = {v.dtype.value for v in graph.constants() if v.type.elements >= 256}
        assert kinds <= {"i8", "f16"}, kinds
        graph = optimise(graph, CONTEXT)


def test_a_convolution_is_scaled_after_its_sum() -> None:
    graph, notes = narrowed(CONV, "weights")
    assert shown(graph) == wanted("""
        input x: f32[1,8,8,4]
        y_1: f32[1,8,8,16] = conv(x, w_1, pads=(1,1,1,1), layout=NHWC)
        y_2: f32[1,8,8,16] = mul(y_1, y_scale)
        y: f32[1,8,8,16] = add(y_2, b_1)
        output y
    """)
    assert notes == ["weights are stored as i8: 640 bytes instead of 2,304"]
    assert_near(CONV, graph, 0.01)


def test_half_precision_changes_no_node() -> None:
    graph, notes = narrowed(CONV, "fp16")
    assert shown(graph) == wanted("""
        input x: f32[1,8,8,4]
        y: f32[1,8,8,16] = conv(x, w_1, b, pads=(1,1,1,1), layout=NHWC)
        output y
    """)
    assert notes == ["weights are stored as f16: 1,152 bytes instead of 2,304"]
    assert_near(CONV, graph, 0.001)


def test_the_largest_weight_of_a_channel_is_127_steps() -> None:
    graph, _ = narrowed(CONV, "weights")
    before = next(v.data for v in graph_of(CONV).constants() if v.name == "w")
    steps, scale = (next(v.data for v in graph.constants() if v.name == n) for n in ("w_1", "y_scale"))
    assert before is not None and steps is not None and scale is not None
    assert np.all(np.abs(steps).reshape(16, -1).max(axis=1) == 127)
    assert np.max(np.abs(steps * scale.reshape(-1, 1, 1, 1) - before) / scale.reshape(-1, 1, 1, 1)) <= 0.501


PRODUCTS = {
    "matmul": "input x: f32[3,40]\nconst w: f32[40,24] ...\ny: f32[3,24] = matmul(x, w)\noutput y",
    "matmul transposed with bias": (
        "input x: f32[3,40]\nconst w: f32[24,40] ...\nconst b: f32[24] ...\n"
        "y: f32[3,24] = matmul(x, w, b, transpose_b=true)\noutput y"
    ),
    "matmul of several matrices": "input x: f32[2,3,40]\nconst w: f32[2,40,24] ...\ny: f32[2,3,24] = matmul(x, w)\noutput y",
    "depthwise": (
        "input x: f32[1,8,8,32]\nconst w: f32[32,1,3,3] ...\ny: f32[1,6,6,32] = conv(x, w, group=32, layout=NHWC)\noutput y"
    ),
    "conv of three axes": (
        "input x: f32[1,3,4,5,6]\nconst w: f32[8,3,2,2,2] ...\nconst b: f32[8] ...\ny: f32[1,8,3,4,5] = "
        "conv(x, w, b, strides=(1, 1, 1), pads=(0, 0, 0, 0, 0, 0), dilations=(1, 1, 1))\noutput y"
    ),
    "conv_transpose of groups": (
        "input x: f32[1,8,5,5]\nconst w: f32[8,6,3,3] ...\nconst b: f32[12] ...\n"
        "y: f32[1,12,11,11] = conv_transpose(x, w, b, strides=(2, 2), group=2)\noutput y"
    ),
    "gather": "input i: i32[5]\nconst t: f32[64,32] ...\ny: f32[5,32] = gather(t, i)\noutput y",
    "gather of columns": "input i: i32[5]\nconst t: f32[64,32] ...\ny: f32[64,5] = gather(t, i, axis=1)\noutput y",
    "gru": (
        "input x: f32[6,1,16]\nconst w: f32[1,48,16] ...\nconst r: f32[1,48,16] ...\nconst b: f32[1,96] ...\n"
        "y: f32[6,1,1,16], h: f32[1,1,16] = gru(x, w, r, b, hidden=16, activations=[Sigmoid, Tanh], alphas=(0.0, 0.0), "
        "betas=(0.0, 0.0), linear_before_reset=true)\noutput y\noutput h"
    ),
}


@pytest.mark.parametrize("name", PRODUCTS)
@pytest.mark.parametrize(("scheme", "bound"), [("weights", 0.02), ("fp16", 0.001)])
def test_products_stay_near(name: str, scheme: str, bound: float) -> None:
    graph, notes = narrowed(PRODUCTS[name], scheme)
    assert notes[0].startswith("weights are stored as ")
    assert_near(PRODUCTS[name], graph, bound * (4 if name == "gru" else 1))  # a recurrence carries its errors on


def test_small_weights_stay() -> None:
    text = "input x: f32[3,5]\nconst w: f32[5,12] ...\ny: f32[3,12] = matmul(x, w)\noutput y"
    for scheme in ("weights", "fp16"):
        graph, notes = narrowed(text, scheme)
        assert shown(graph) == wanted(text) and notes == ["no weights were stored smaller"]


def test_one_weight_per_channel_is_not_worth_a_scale() -> None:
    text = "input x: f32[1,4,4,128]\nconst w: f32[128,1,1,1] ...\ny: f32[1,4,4,128] = conv(x, w, group=128, layout=NHWC)\noutput y"
    graph, _ = narrowed(text, "weights")
    assert shown(graph) == wanted(text)


def test_numbers_beyond_half_precision_stay() -> None:
    graph = graph_of(CONV)
    weights = next(v for v in graph.constants() if v.name == "w")
    assert weights.data is not None
    weights.data = weights.data * np.float32(1e5)
    graph, notes = narrowing(graph, "fp16")
    assert shown(graph) == wanted(CONV)
    assert notes == ["`w` stays f32: it has numbers outside half precision (65504)", "no weights were stored smaller"]


def test_a_channel_of_zeros_has_a_scale() -> None:
    graph = graph_of(CONV)
    weights = next(v for v in graph.constants() if v.name == "w")
    assert weights.data is not None
    weights.data[3] = 0
    graph, _ = narrowing(graph, "weights")
    assert all(np.all(np.isfinite(a)) for a in results(graph))


def test_other_readers_keep_their_floats_and_it_is_told() -> None:
    text = (
        "input x: f32[64,8]\nconst w: f32[64,64] ...\nconst k: f32[8,16] ...\n"
        "a: f32[64,8] = matmul(w, x)\ny: f32[64,16] = matmul(a, k)\noutput y"
    )
    graph, notes = narrowed(text, "weights")
    assert notes[1:] == ["stays f32: `w` of `matmul`"]
    assert "a: f32[64,8] = matmul(w, x)" in shown(graph)


def test_integers_stay_as_they_are() -> None:
    text = "input x: i8[3,16]\nconst w: i8[16,24] ...\ny: i8[3,24] = matmul(x, w)\noutput y"
    for scheme in ("weights", "fp16"):
        graph, notes = narrowed(text, scheme)
        assert shown(graph) == wanted(text)
        assert notes == ["the weights of this model are already integers: they are not changed"]


@pytest.mark.parametrize("kind", ["i8", "f16"])
def test_small_weights_take_no_factor(kind: str) -> None:
    assert_unchanged(
        fold_scale,
        f"""
        input x: f32[1,4,4,2]
        const w: {kind}[3,2,3,3] ...
        const s: f32[3] ...
        a: f32[1,2,2,3] = conv(x, w, layout=NHWC)
        y: f32[1,2,2,3] = mul(a, s)
        output y
        """,
    )
