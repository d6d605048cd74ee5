"""Passes that an option asks for, before and after."""

from __future__ import annotations

from dataclasses import replace

from intaglio.ir.graph import Graph, Node
from intaglio.ir.types import DType
from intaglio.ir.verify import verify
from intaglio.passes.absorb import absorb_quantisation
from intaglio.passes.context import Context, Finding
from intaglio.passes.halves import store_halves
from intaglio.passes.offload import Offloaded, offload
from intaglio.passes.output_names import name_outputs
from intaglio.passes.read_tiles import split_reads
from intaglio.passes.rows_input import Turned, rows_of_pixels
from intaglio.passes.stream import Stream, stream
from intaglio.passes.weights import narrow_weights
from intaglio.targets.plugins import Plugin
from intaglio.targets.target import Target
from support.ir_text import CONTEXT, TARGET, assert_rewrites, assert_unchanged, graph_of, shown, wanted
from support.toy_accelerators import Sums


def test_what_is_between_dequantize_and_quantize_becomes_integers() -> None:
    text = """
        input x: i8[4]
        const s: f32[] ...
        const z: i8[] ...
        a: f32[4] = dequantize(x, s, z)
        b: f32[4] = tanh(a)
        y: i8[4] = quantize(b, s, z, to=i8)
        output y
    """
    assert_rewrites(
        absorb_quantisation,
        text,
        """
        input x: i8[4]
        y_1: i8[4] q(0.20134392380714417,1) = lookup(x, table)
        y: i8[4] = copy(y_1)
        output y
        """,
    )


def test_floats_alone_are_not_absorbed() -> None:
    assert_unchanged(absorb_quantisation, "input x: f32[4]\ny: f32[4] = exp(x)\noutput y")


def test_weights_are_stored_small() -> None:
    text = """
        input x: f32[1,32]
        const w: f32[32,16] ...
        y: f32[1,16] = matmul(x, w)
        output y
    """
    notes: list[Finding] = []
    graph = narrow_weights(graph_of(text), Context(TARGET, narrow="weights", report=notes.append))
    assert shown(graph) == wanted("""
        input x: f32[1,32]
        y_1: f32[1,16] = matmul(x, w_1)
        y: f32[1,16] = mul(y_1, y_scale)
        output y
    """)
    assert notes == ["weights are stored as i8: 576 bytes instead of 2,048"]


def test_small_weights_stay() -> None:
    text = """
        input x: f32[1,4]
        const w: f32[4,4] ...
        y: f32[1,4] = matmul(x, w)
        output y
    """
    assert_unchanged(narrow_weights, text, replace(CONTEXT, narrow="fp16"))


def test_regions_go_to_an_accelerator_and_are_reported() -> None:
    text = """
        input x: f32[4096]
        input z: f32[4096]
        a: f32[4096] = add(x, z)
        y: f32[4096] = exp(a)
        output y
    """
    found: list[Finding] = []
    context = replace(CONTEXT, accelerators=(Plugin(Sums(), "here"),), accelerator_only=frozenset({"add"}), report=found.append)
    graph = offload(graph_of(text), context)
    assert shown(graph) == wanted("""
        input x: f32[4096]
        input z: f32[4096]
        a: f32[4096] = add(x, z) on sums.0
        y: f32[4096] = exp(a)
        output y
    """)
    (told,) = found
    assert isinstance(told, Offloaded)
    assert [(s.place, s.ops) for s in told.sent] == [("sums.0", ("add",))]


RELU = """
    input x: f32[8]
    a: f32[8] = exp(x)
    y: f32[8] = relu(a)
    output y
"""


def halves(text: str, *takes: str) -> Graph:
    def has_kernel(node: Node, target: Target) -> bool:
        return node.op.NAME in takes and all(v.dtype is DType.F16 for v in node.outputs)

    graph = store_halves(graph_of(text), replace(CONTEXT, takes_halves=has_kernel))
    verify(graph)
    return graph


def test_values_become_halves_and_are_cast_at_the_border() -> None:
    assert shown(halves(RELU, "exp", "relu")) == wanted("""
        input x: f32[8]
        x_1: f16[8] = cast(x, to=f16)
        a: f16[8] = exp(x_1)
        y_half: f16[8] = relu(a)
        y: f32[8] = cast(y_half)  # output
        output y
    """)


def test_a_layer_without_a_kernel_for_halves_stays() -> None:
    assert shown(halves(RELU)) == wanted(RELU)
    assert shown(halves(RELU, "exp")) == wanted("""
        input x: f32[8]
        x_1: f16[8] = cast(x, to=f16)
        a: f16[8] = exp(x_1)
        a_1: f32[8] = cast(a)
        y: f32[8] = relu(a_1)
        output y
    """)


def test_outputs_get_the_names_that_they_had() -> None:
    assert_rewrites(
        name_outputs,
        "input x: f32[4]\ny_3: f32[4] = exp(x)\noutput y_3",
        "input x: f32[4]\ny: f32[4] = exp(x)\noutput y \"y_3\"",  # which is what the model calls it
        replace(CONTEXT, output_names=("y",)),
    )


def test_a_name_that_is_taken_is_not_given_twice() -> None:
    assert_unchanged(name_outputs, "input y: f32[4]\nz: f32[4] = exp(y)\noutput z", replace(CONTEXT, output_names=("y",)))


def test_a_stream_takes_the_next_frame_alone() -> None:
    text = """
        input x: f32[1,8,4]
        const w: f32[4,4,3] ...
        y: f32[1,6,4] = conv(x, w, strides=(1), pads=(0,0), dilations=(1), layout=NHWC)
        output y
    """
    found: list[Finding] = []
    graph = stream(graph_of(text), replace(CONTEXT, stream=1, report=found.append))
    verify(graph)
    assert shown(graph) == wanted("""
        input x: f32[1,1,4]
        input x_kept: f32[1,3,4]
        state x_kept = x_both
        x_both: f32[1,3,4] = roll(x_kept, x, axis=1)
        y: f32[1,1,4] = conv(x_both, w, strides=(1), pads=(0,0), dilations=(1), layout=NHWC)
        output y
    """)
    note, made = found
    assert note == "a step takes a frame; results are those of a window of 8 frames from step 8 on"
    assert isinstance(made, Stream) and (made.axis, made.hop, made.window) == (1, 1, 8)


PLANES = """
    input x: f32[1,3,8,6]
    t: f32[1,8,6,3] = transpose(x, perm=(0,2,3,1))
    y: f32[1,8,6,3] = exp(t)
    output y
"""


def test_an_input_of_planes_becomes_rows_of_pixels() -> None:
    found: list[Finding] = []
    graph = rows_of_pixels(graph_of(PLANES), replace(CONTEXT, feed_rows=True, report=found.append))
    verify(graph)
    assert shown(graph) == wanted("""
        input x: f32[1,8,6,3]
        y: f32[1,8,6,3] = exp(x)
        output y
    """)
    assert found == ["rows of the input are rows of pixels: [columns, channels]", Turned("x")]


def test_planes_that_somebody_reads_stay() -> None:
    both = PLANES.replace("output y", "z: f32[1,3,8,6] = exp(x)\n    output y\n    output z")
    assert_unchanged(rows_of_pixels, both, replace(CONTEXT, feed_rows=True))


DENSE = """
    input x: f32[1,256]
    const w: f32[256,40] ...
    y: f32[1,40] = matmul(x, w)
    output y
"""


def test_a_large_dense_layer_is_split_by_its_outputs() -> None:
    assert_rewrites(
        split_reads,
        DENSE,
        """
        input x: f32[1,256]
        y_part: f32[1,16] = matmul(x, w_part)
        y_part_1: f32[1,16] = matmul(x, w_part_1)
        y_part_2: f32[1,8] = matmul(x, w_part_2)
        y: f32[1,40] = concat(y_part, y_part_1, y_part_2, axis=1)
        output y
        """,
    )


def test_a_layer_with_several_rows_is_not_split() -> None:
    assert_unchanged(split_reads, DENSE.replace("[1,", "[2,"))
