"""Concats along an inner axis without copies: rows of the operands are made side by side, by every kernel that can be proven to."""

from __future__ import annotations

import random
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from intaglio.errors import ModelError, OurFault, UserError
from intaglio.fitting.side_by_side import without_copies
from intaglio.ir.choices import VIEW, Choices
from intaglio.ir.files import write_ir
from intaglio.ir.graph import Graph
from intaglio.ir.views import storage_pitches
from intaglio.kernels import lower
from intaglio.kernels.program import Program
from intaglio.memory import placed
from intaglio.memory.check_views import Span, meet
from intaglio.memory.checker import check
from intaglio.memory.share import share_parts
from intaglio.ops.evaluate import evaluate_graph
from intaglio.run.machine import Machine
from intaglio.targets import Target
from support.commands import Intaglio
from support.examples import examples
from support.ir_text import TARGET, graph_of, random_array
from support.kernel_running import TARGETS
from support.onnx_models import model, node, saved, value
from support.placing import memory_text, move, read_again
from support.tangles import dense, tangle

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
WIDE = """
    input x: f32[1,6,5,32] NHWC
    const w1: f32[32,32,1,1] ...
    const w2: f32[32,1,3,3] ...
    const w3: f32[32,96,3,3] ...
    a: f32[1,6,5,32] NHWC = conv(x, w1, _, layout=NHWC)
    b: f32[1,6,5,32] NHWC = conv(x, w2, _, pads=(1,1,1,1), group=32, layout=NHWC, epilogue=[relu(0)])
    p: f32[1,6,5,32] NHWC = max_pool(x, kernel=(3,3), pads=(1,1,1,1), layout=NHWC)
    c: f32[1,6,5,96] NHWC = concat(a, b, p, axis=3)
    y: f32[1,6,5,32] NHWC = conv(c, w3, _, pads=(1,1,1,1), layout=NHWC)
    output y
"""
MODELS = {"inception": BLOCK, "dense": DENSE, "skip": SKIP}


def planned(graph: Graph, target: Target) -> Program:
    program = lower(graph, target)
    program, _ = share_parts(program, target)
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


@pytest.mark.parametrize(
    ("model", "isa", "threads"), [*((model, "avx2", threads) for model in MODELS for threads in (1, 2)), ("inception", "scalar", 1)]
)
def test_a_block_without_copies_gives_what_the_graph_gives(model: str, isa: str, threads: int) -> None:
    target = replace(TARGETS[isa], threads=threads)
    program = in_rows(graph_of(MODELS[model]), target)
    assert not any(layer.node.op.NAME == "concat" for layer in program.layers)
    assert_runs(program)


def test_rows_of_the_operands_are_side_by_side() -> None:
    program = in_rows(graph_of(BLOCK), TARGET)
    text = memory_text(program)
    c = next(str(program.placement.of(v)) for v in program.graph.values() if v.name == "c")
    base = int(c.removeprefix("@arena+"))
    for name, columns in (("a", 0), ("b", 16), ("d", 24), ("p", 32)):
        assert f"{name}: f32[1,6,5," in text and f" @arena+{base + 4 * columns}/160 = " in text
    assert "concat(a, b, d, p, axis=3) using view" in text


def test_a_part_of_several_results_has_the_rows_of_the_widest() -> None:
    program = in_rows(graph_of(DENSE), TARGET)
    found = {v.name: (p.width, p.stride) for v, p in storage_pitches(program.graph, program.choices).items()}
    assert found == {"x0": (8, 40), "x1": (8, 40), "x2": (8, 40), "x3": (16, 40), "c1": (16, 40), "c2": (24, 40)}


def test_concats_of_concats_through_a_reshape() -> None:
    program = in_rows(
        graph_of("""
            input x: f32[6,8]
            a: f32[6,8] = exp(x)
            b: f32[6,8] = neg(x)
            c: f32[6,16] = concat(a, b, axis=1)
            r: f32[2,3,16] = reshape(c, shape=(2,3,16))
            d: f32[6,8] = abs(x)
            s: f32[2,3,8] = reshape(d, shape=(2,3,8))
            e: f32[2,3,24] = concat(r, s, axis=2)
            y: f32[24,3,2] = transpose(e, perm=(2,1,0))
            output y
        """),
        TARGET,
    )
    found = {v.name: (p.width, p.stride) for v, p in storage_pitches(program.graph, program.choices).items()}
    assert found == {"a": (8, 24), "b": (8, 24), "c": (16, 24), "r": (16, 24), "d": (8, 24), "s": (8, 24)}
    assert_runs(program)


@pytest.mark.parametrize("model", MODELS)
def test_the_text_is_read_again_as_it_was_written(model: str) -> None:
    program = in_rows(graph_of(MODELS[model]), TARGET)
    text = memory_text(program)
    again = placed(read_again(text, program, TARGET), TARGET)
    assert memory_text(again) == text
    assert [layer.kernel.pitches for layer in again.layers] == [layer.kernel.pitches for layer in program.layers]


def test_the_arena_is_smaller_without_the_copy() -> None:
    graph = graph_of("""
        input x: f32[64,16]
        const w: f32[16,64] ...
        const u: f32[16,64] ...
        const v: f32[128,8] ...
        a: f32[64,64] = matmul(x, w)
        b: f32[64,64] = matmul(x, u)
        c: f32[64,128] = concat(a, b, axis=1)
        y: f32[64,8] = matmul(c, v)
        output y
    """)
    assert planned(graph, TARGET).arena_bytes == 2 * 64 * 128 * 4
    assert in_rows(graph, TARGET).arena_bytes == 64 * 128 * 4


def test_a_view_that_keeps_more_alive_is_not_made() -> None:
    """The small operand is there for long: with it, all of the large result would be."""
    graph = graph_of("""
        input x: f32[64,16]
        const w: f32[16,256] ...
        const u: f32[16,512] ...
        const k: f32[512,4] ...
        s: f32[64,4] = slice(x, starts=(0,0), steps=(1,1), shape=(64,4))
        a: f32[64,512] = matmul(x, u)
        b: f32[64,512] = exp(a)
        d: f32[64,4] = matmul(b, k)
        t: f32[64,4] = add(s, d)
        f: f32[64,256] = matmul(x, w)
        c: f32[64,264] = concat(t, f, s, axis=1)
        y: f32[264,64] = transpose(c, perm=(1,0))
        output y
    """)
    assert without_copies(planned(graph, TARGET), TARGET, slots=False) is None


COPIES = {
    "an operand that is an input": "c: f32[4,32] = concat(x, a, axis=1)",
    "an operand that is a constant": "c: f32[4,32] = concat(k, a, axis=1)",
    "an operand that is there twice": "c: f32[4,32] = concat(a, a, axis=1)",
    "an operand that is an output": "c: f32[4,32] = concat(o, a, axis=1)",
    "rows that vectors cross": "c: f32[4,28] = concat(a, n, axis=1)",
}


@pytest.mark.parametrize("name", COPIES)
def test_there_is_a_copy_for(name: str) -> None:
    line = COPIES[name]
    width = line.split(",")[1].split("]")[0]
    graph = graph_of(f"""
        input x: f32[4,16]
        input z: f32[4,12]
        const k: f32[4,16] ...
        a: f32[4,16] = exp(x)
        n: f32[4,12] = exp(z)
        o: f32[4,16] = neg(x)
        {line}
        y: f32[{width},4] = transpose(c, perm=(1,0))
        output y
        output o
    """)
    assert without_copies(planned(graph, TARGET), TARGET, slots=False) is None


def test_where_one_kernel_cannot_the_other_concats_are_still_in_place() -> None:
    program = in_rows(
        graph_of("""
            input x: f32[4,16]
            input z: f32[4,12]
            a: f32[4,16] = exp(x)
            n: f32[4,12] = exp(z)
            m: f32[4,16] = neg(x)
            o: f32[4,16] = abs(x)
            c: f32[4,28] = concat(a, n, axis=1)
            e: f32[4,32] = concat(m, o, axis=1)
            f: f32[4,60] = concat(c, e, axis=1)
            y: f32[60,4] = transpose(f, perm=(1,0))
            output y
        """),
        TARGET,
    )
    assert [layer.name for layer in program.layers if layer.node.op.NAME == "concat"] == ["c"]
    assert_runs(program)


# Faults -----------------------------------------------------------------------------------------------------------------


def test_a_view_that_a_kernel_cannot_make_is_an_error() -> None:
    graph = graph_of("""
        input x: f32[4,12]
        a: f32[4,12] = exp(x)
        b: f32[4,12] = neg(x)
        c: f32[4,24] = concat(a, b, axis=1)
        y: f32[24,4] = transpose(c, perm=(1,0))
        output y
    """)
    with pytest.raises(UserError, match=r"`elementwise\(lanes=8\)` of `a` cannot use rows that are apart \(`a`, by `using view`\)"):
        lower(graph, TARGET, Choices(TARGET.name, {"c": VIEW}))


def test_stripes_of_rows_that_are_apart_are_an_error() -> None:
    program = in_rows(graph_of(SKIP), TARGET)
    text = memory_text(program).replace("output y", "stripe from e to p rows=1\noutput y")
    with pytest.raises(ModelError, match=r"is a part of rows .* which stripes do not make"):
        read_again(text, program, TARGET)


def test_another_distance_in_an_ir_file_is_an_error() -> None:
    program = in_rows(graph_of(BLOCK), TARGET)
    again = read_again(memory_text(program).replace("/160", "/164"), program, TARGET)
    with pytest.raises(ModelError, match="its rows are 160 bytes apart"):
        placed(again, TARGET)


def test_the_checker_finds_a_kernel_for_another_distance() -> None:
    program = in_rows(graph_of(BLOCK), TARGET)
    plain = {layer.name: layer for layer in planned(graph_of(BLOCK), TARGET).layers}
    program.layers = [replace(each, kernel=plain[each.name].kernel) if each.name == "b" else each for each in program.layers]
    with pytest.raises(OurFault, match=r"layer . `b` is for rows with another distance"):
        check(program)


def test_the_checker_finds_rows_on_other_rows() -> None:
    program = in_rows(graph_of(BLOCK), TARGET)
    values = {v.name: v for v in program.graph.values()}
    there = program.placement.addresses[values["b"]]
    move(program, values["d"], replace(there, offset=there.offset + 16))
    with pytest.raises(OurFault, match=r"which is elsewhere|was given away"):
        check(program)


def test_the_checker_knows_where_the_last_row_ends() -> None:
    program = in_rows(graph_of(BLOCK), TARGET)
    whole = next(v for v in program.graph.values() if v.name == "c")
    end = program.placement.addresses[whole].offset + whole.type.bytes
    program.placement = replace(program.placement, arena_bytes=end)
    check(program)
    program.placement = replace(program.placement, arena_bytes=end - 1)
    with pytest.raises(OurFault, match="`p` lies outside of the arena"):
        check(program)


def test_the_checker_finds_another_distance() -> None:
    program = in_rows(graph_of(BLOCK), TARGET)
    values = {v.name: v for v in program.graph.values()}
    move(program, values["d"], replace(program.placement.addresses[values["d"]], stride=0))
    with pytest.raises(OurFault, match="the rows of `d` are not as far apart as its address says"):
        check(program)


def test_spans_of_rows_meet_where_a_byte_is_in_both() -> None:
    """Against the bytes themselves."""
    rng = random.Random(3)
    for _ in range(400):
        stride = rng.choice([6, 8])
        spans = []
        for _ in range(2):
            width, rows, at = rng.randrange(1, stride), rng.randrange(1, 4), rng.randrange(20)
            spans.append(Span(at, (rows - 1) * stride + width, width, stride))
        taken = [{s.at + r * stride + n for r in range(9) for n in range(s.width) if r * stride + n < s.bytes} for s in spans]
        common = bool(taken[0] & taken[1])
        assert meet(*spans) >= common  # never fewer
        if spans[0].bytes > 2 * stride < spans[1].bytes and abs(spans[0].at - spans[1].at) < stride:
            assert meet(*spans) == common


# Random graphs ----------------------------------------------------------------------------------------------------------


@settings(max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.randoms(use_true_random=False), st.integers(4, 20), st.sampled_from(["avx2", "scalar"]), st.booleans(), st.booleans())
def test_a_tangle_of_rows_gives_what_the_graph_gives(
    rng: random.Random, steps: int, isa: str, slots: bool, deep: bool
) -> None:
    target = TARGETS[isa]
    graph = dense(rng, steps) if deep else tangle(rng, steps, inner=0.7)
    program = lower(graph, target)
    program, _ = share_parts(program, target, slots=slots)
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


# Built and run ----------------------------------------------------------------------------------------------------------

BUILT = {
    "host": ("--target", "host"),
    "host, two threads": ("--target", "host", "--threads", "2"),
    "generic": ("--target", "generic"),
    "Cortex-M4F": ("--board", "mps2-an386"),
    "host, int8": ("--target", "host", "--quantize", "int8"),
    "Cortex-M4F, int8": ("--board", "mps2-an386", "--quantize", "int8"),
}
SLOW = ("host", "generic", "Cortex-M4F")


@pytest.mark.parametrize("how", [pytest.param(h, marks=pytest.mark.slow) if h in SLOW else h for h in BUILT])
def test_rows_are_right_in_the_c_that_is_built(intaglio: Intaglio, tmp_path: Path, how: str) -> None:
    if "Cortex" in how:
        pytest.importorskip("unicorn")
    write_ir(replace(graph_of(WIDE if "int8" in how else DENSE), name="block"), tmp_path / "block.ig")
    said = intaglio("compile", tmp_path / "block.ig", "-o", tmp_path / "p", *BUILT[how])
    assert said.code == 0, said.err
    text = (tmp_path / "p" / "ir" / "block.ig").read_text()
    apart = set(re.findall(r"^(\w+).*: \w+\[.*\] .*@\S+/\d+ = ", text, re.M))
    assert bool(apart) == (how != "Cortex-M4F, int8"), "its kernels are routines"
    told = intaglio("validate", tmp_path / "p", "--json")
    assert told.json["ok"], told.out


def test_layers_whose_rows_are_apart_are_compared_with_the_model(intaglio: Intaglio, tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    shapes = {"w": (8, 4, 3, 3), "u": (16, 4, 1, 1), "v": (8, 24, 1, 1)}
    nodes = [
        node("Conv", "x w", "a", pads=[1, 1, 1, 1]),
        node("Conv", "x u", "b"),
        node("Concat", "a b", "c", axis=1),
        node("Conv", "c v", "y"),
    ]
    constants = {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
    path = saved(model(nodes, [value("x", [1, 4, 6, 6])], [value("y", [1, 8, 6, 6])], constants), tmp_path)
    assert intaglio("compile", path, "-o", tmp_path / "p").code == 0
    assert len(re.findall(r"@\S+/96 = ", (tmp_path / "p" / "ir" / "model.ig").read_text())) == 2
    told = intaglio("validate", tmp_path / "p", "--layers", "--json").json
    assert told["ok"]
    assert {"a", "b"} <= {layer["tensor"] for layer in told["layers"]}
