"""Concat, split and slice without copies: parts are where they belong, and results are what the references say."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from intaglio.errors import OurFault, UserError
from intaglio.ir.choices import VIEW, Choices
from intaglio.ir.graph import Node
from intaglio.ir.verify import verify
from intaglio.ir.views import storage_places
from intaglio.kernels import lower
from intaglio.kernels.program import Program
from intaglio.memory import place, share
from intaglio.memory.checker import check
from intaglio.memory.lifetimes import find_storage
from intaglio.memory.order import reorder
from intaglio.memory.planner import lower_bound
from intaglio.memory.share import share_parts
from intaglio.ops.evaluate import evaluate_graph
from intaglio.pipeline import plan_request
from intaglio.run.machine import Machine
from intaglio.stages import Request, Watch
from intaglio.targets import Target
from support.commands import Intaglio
from support.examples import examples
from support.ir_text import TARGET, graph_of, random_array
from support.kernel_running import TARGETS
from support.placing import at, memory_text, move, read_again
from support.shared import SHARED, needs_shared
from support.tangles import tangle

PLAIN = TARGETS["scalar"]


def shared(text: str) -> tuple[Program, list[str]]:
    program = lower(graph_of(text), TARGET)
    program, made = share_parts(program, TARGET)
    program.placement = place(program, TARGET)
    return program, made


def address(program: Program, name: str) -> str:
    return str(next(program.placement.of(v) for v in program.graph.values() if v.name == name))


CONCAT = """
    input x: f32[1,4,16]
    const w: f32[16,16] ...
    const u: f32[16,16] ...
    a: f32[1,4,16] = matmul(x, w)
    b: f32[1,4,16] = matmul(x, u)
    c: f32[1,8,16] = concat(a, b, axis=1)
    y: f32[16,8,1] = transpose(c, perm=(2,1,0))
    output y
"""


def test_operands_of_a_concat_are_made_where_they_belong() -> None:
    program, made = shared(CONCAT)
    assert made == ["c"]
    assert [layer.name for layer in program.layers] == ["a", "b", "y"]
    assert [address(program, n) for n in "abc"] == ["@arena+0", "@arena+256", "@arena+0"]
    assert program.arena_bytes == 512
    assert all(kernel.stem != "concat" for kernel in program.kernels)


def test_the_text_of_a_program_with_parts_is_read_again() -> None:
    program, _ = shared(CONCAT.replace("output y", "output y\n    output c"))
    text = memory_text(program)
    assert "a: f32[1,4,16] @=c+0" in text
    assert "b: f32[1,4,16] @=c+256" in text
    again = read_again(text, program, TARGET)
    assert share_parts(again, TARGET) == (again, [])
    again.placement = place(again, TARGET)
    assert memory_text(again) == text


def test_a_reshape_of_an_output_that_is_the_next_state_is_read_again() -> None:
    """It is a copy until the memory stage has a look at it."""
    program, made = shared("""
        input x: f32[8]
        input h: f32[2,4]
        state h = r
        o: f32[8] = abs(x)
        r: f32[2,4] = reshape(o, shape=(2,4))
        output o
    """)
    assert made == ["r"]
    text = memory_text(program)
    again = read_again(text, program, TARGET)
    again.placement = place(again, TARGET)
    assert memory_text(again) == text


def test_pieces_of_a_split_are_parts_of_their_source() -> None:
    program, made = shared("""
        input x: f32[4,16]
        const w: f32[16,16] ...
        a: f32[4,16] = matmul(x, w)
        p: f32[1,16] = slice(a, starts=(0,0), steps=(1,1), shape=(1,16))
        q: f32[3,16] = slice(a, starts=(1,0), steps=(1,1), shape=(3,16))
        r: f32[3,16] = mul(p, q)
        y: f32[16,3] = transpose(r, perm=(1,0))
        output y
    """)
    assert made == ["p", "q"]
    assert address(program, "q") == str(at("arena", int(address(program, "a").split("+")[1]) + 64))


UNSHARED = {
    "an operand that is an input": "c: f32[8,16] = concat(x, a, axis=0)",
    "an operand that is a constant": "c: f32[8,16] = concat(k, a, axis=0)",
    "an operand that is there twice": "c: f32[8,16] = concat(a, a, axis=0)",
    "parts that do not lie in one piece": "c: f32[4,32] = concat(a, b, axis=1)",
    "an operand that is an output": "c: f32[8,16] = concat(o, a, axis=0)",
    "a slice of columns": "c: f32[4,8] = slice(a, starts=(0,0), steps=(1,1), shape=(4,8))",
    "a slice of every other row": "c: f32[2,16] = slice(a, starts=(0,0), steps=(2,1), shape=(2,16))",
}


@pytest.mark.parametrize("name", UNSHARED)
def test_there_is_a_copy_for(name: str) -> None:
    line = UNSHARED[name]
    rows, columns = line.split("[")[1].split("]")[0].split(",")
    _, made = shared(f"""
        input x: f32[4,16]
        const w: f32[16,16] ...
        const u: f32[16,16] ...
        const k: f32[4,16] ...
        a: f32[4,16] = matmul(x, w)
        b: f32[4,16] = matmul(x, u)
        o: f32[4,16] = matmul(b, u)
        {line}
        y: f32[{columns},{rows}] = transpose(c, perm=(1,0))
        output y
        output o
    """)
    assert made == []


def test_a_small_piece_that_lives_long_is_copied() -> None:
    """A view of it would keep all of its source alive."""
    _, made = shared("""
        input x: f32[64,16]
        const w: f32[16,16] ...
        const v: f32[16,1024] ...
        a: f32[64,16] = matmul(x, w)
        p: f32[1,16] = slice(a, starts=(0,0), steps=(1,1), shape=(1,16))
        q: f32[64,1] = reduce(a, kind="max", axes=(1), keepdims=true)
        b: f32[64,1024] = matmul(x, v)
        m: f32[64,1] = reduce(b, kind="max", axes=(1), keepdims=true)
        n: f32[64,1] = mul(q, m)
        y: f32[64,16] = mul(n, p)
        output y
    """)
    assert made == []


def test_a_part_somewhere_else_is_found_by_the_checker() -> None:
    program, _ = shared(CONCAT)
    values = {v.name: v for v in program.graph.values()}
    move(program, values["b"], at("arena", 128))
    with pytest.raises(OurFault, match=r"memory was given away|which is elsewhere"):
        check(program)
    program.placement = replace(program.placement, arena_bytes=1024)
    move(program, values["b"], at("arena", 512))
    with pytest.raises(OurFault, match="`c` is a view of `b`, which is elsewhere"):
        check(program)


def test_a_whole_whose_part_is_overwritten_is_found_by_the_checker() -> None:
    program, _ = shared("""
        input x: f32[4,16]
        const w: f32[16,16] ...
        a: f32[4,16] = matmul(x, w)
        b: f32[4,16] = matmul(x, w)
        c: f32[8,16] = concat(a, b, axis=0)
        d: f32[4,16] = matmul(b, w)
        e: f32[16,4] = transpose(d, perm=(1,0))
        f: f32[16,8] = transpose(c, perm=(1,0))
        y: f32[4,8] = matmul(d, f)
        output y
        output e
    """)
    values = {v.name: v for v in program.graph.values()}
    move(program, values["d"], program.placement.addresses[values["a"]])
    with pytest.raises(OurFault, match=r"`f` reads `c`, whose memory was given away"):
        check(program)


def test_a_view_that_cannot_be_is_an_error() -> None:
    with pytest.raises(UserError, match="has no kernel `view`"):
        lower(graph_of(TWICE), TARGET, Choices(TARGET.name, {"c": VIEW}))


def test_a_view_for_another_target_does_not_count() -> None:
    program = lower(graph_of(TWICE), TARGET, Choices("another", {"c": VIEW}))
    assert program.choices.kernels["c"] == "concat" and program.choices.target == TARGET.name


TWICE = """
    input x: f32[4,16]
    a: f32[4,16] = exp(x)
    c: f32[8,16] = concat(a, a, axis=0)
    y: f32[8,16] = exp(c)
    output y
"""


# Random graphs of little but concats and slices -------------------------------------------------------------------------


@settings(max_examples=examples(150), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.randoms(use_true_random=False), st.integers(1, 16), st.booleans())
def test_a_tangle_of_parts_gives_what_the_graph_gives(rng: random.Random, steps: int, slots: bool) -> None:
    graph = tangle(rng, steps)
    program = lower(graph, PLAIN)
    before = lower_bound(find_storage(program, PLAIN.alignment, slots=slots).buffers, PLAIN.alignment)
    program, _ = share_parts(program, PLAIN, slots=slots)
    assert lower_bound(find_storage(program, PLAIN.alignment, slots=slots).buffers, PLAIN.alignment) <= before
    program = reorder(program, PLAIN, slots=slots)
    verify(graph)
    program.placement = place(program, PLAIN, slots=slots)
    machine = Machine(program)
    inputs = {v.name: random_array(v.name, v.dtype, v.shape) for v in graph.inputs}
    inputs |= {s.input.name: np.zeros(s.input.shape, s.input.dtype.numpy) for s in graph.states}
    for _ in range(2):
        wanted, got = evaluate_graph(graph, inputs, keep=True), machine.run(inputs)
        for out in graph.outputs:
            np.testing.assert_array_equal(got[out.name], wanted[out.name])
        inputs |= {s.input.name: wanted[s.output.name] for s in graph.states}
    for value, (root, start) in storage_places(graph, program.choices).items():
        assert start % 4 == 0 or value.type.bytes == 0
        assert start + value.type.bytes <= root.type.bytes


@settings(max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.randoms(use_true_random=False), st.integers(1, 16))
def test_a_tangle_of_parts_is_read_again_as_it_was_written(rng: random.Random, steps: int) -> None:
    graph = tangle(rng, steps)
    program = lower(graph, PLAIN)
    program = reorder(share_parts(program, PLAIN)[0], PLAIN)
    program.placement = place(program, PLAIN)
    text = memory_text(program)
    again = read_again(text, program, PLAIN)
    again.placement = place(again, PLAIN)
    assert memory_text(again) == text
    assert again.arena_bytes == program.arena_bytes


# Built and run ----------------------------------------------------------------------------------------------------------

BYTES = """intaglio-ir 1
model parts stage=import
input x: i8[1,6,8]
t: i8[1,5,8] = slice(x, starts=(0,1,0), steps=(1,1,1), shape=(1,5,8))
d: i8[1,5,8] = neg(t)
a: i8[1,6,8] = neg(x)
s: i8[1,5,8] = slice(a, starts=(0,1,0), steps=(1,1,1), shape=(1,5,8))
b: i8[1,5,8] = abs(s)
c: i8[1,10,8] = concat(b, d, axis=1)
e: i8[1,10,8] = neg(c)
f: i8[8,10,1] = transpose(e, perm=(2,1,0))
output c
output f
"""


@pytest.mark.parametrize("words", [("--target", "host"), ("--board", "mps2-an386"), ("--target", "cortex-m0+")])
def test_parts_are_right_in_the_c_that_is_built(intaglio: Intaglio, tmp_path: Path, words: tuple[str, ...]) -> None:
    if words[-1] != "host":
        pytest.importorskip("unicorn")
    (tmp_path / "parts.ig").write_text(BYTES)
    said = intaglio("compile", tmp_path / "parts.ig", "-o", tmp_path / "p", *words)
    assert said.code == 0, said.err
    text = (tmp_path / "p" / "ir" / "parts.ig").read_text()
    assert "t: i8[1,5,8] @=x+8" in text
    if words[-1] == "host":  # with input and output inside of the arena, this one would make it larger
        assert "b: i8[1,5,8] @=c+0" in text
        assert "d: i8[1,5,8] @=c+40" in text
    assert text.count("using view") >= 2
    told = intaglio("validate", tmp_path / "p", "--layers", "--json")
    assert told.json["ok"], told.out


def test_an_output_made_of_parts_has_its_room_from_the_first_one_on() -> None:
    program = lower(graph_of(CONCAT.replace("output y", "output y\n    output c")), TARGET)
    program, made = share_parts(program, TARGET, slots=True)
    assert made == ["c"]
    program.placement = place(program, TARGET, slots=True)
    room = next(b for b in find_storage(program, TARGET.alignment, slots=True).buffers if b.slot == ("output", 1))
    assert (room.first, room.last) == (0, 3)


ARENAS = {
    "mp_hand_recrop.tflite": 1_310_720,
    "mww_okay_nabu.tflite": 7_136,
    "dtln1_tfl.tflite": 6_144,
    "litert_rope.tflite": 822_400,
}


@needs_shared
@pytest.mark.parametrize("name", ARENAS)
def test_arenas_of_real_models_do_not_grow_again(name: str) -> None:
    made = plan_request(Request(SHARED / "models" / name, Path(), "cortex-m4f"), Watch())
    assert made.program.arena_bytes <= ARENAS[name]


def steps_of(count: int) -> str:
    """A loop that was unrolled: every step takes its part of the input, and the parts of the result are put together."""
    lines = [f"input x: f32[{count},16]", "const w: f32[16,16] ..."]
    for n in range(count):
        lines.append(f"p{n}: f32[1,16] = slice(x, starts=({n},0), steps=(1,1), shape=(1,16))")
        lines.append(f"q{n}: f32[1,16] = matmul(p{n}, w)")
    lines.append(f"c: f32[{count},16] = concat({', '.join(f'q{n}' for n in range(count))}, axis=0)")
    return "\n".join([*lines, f"y: f32[16,{count}] = transpose(c, perm=(1,0))", "output y"])


def test_many_parts_are_tried_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each trial looks at all layers: unrolled loops would take hours, one layer after the other."""
    looked: list[int] = []
    loads = share._loads

    def counted(program: Program, target: Target, *, slots: bool) -> dict[Node, int]:
        looked.append(len(program.layers))
        return loads(program, target, slots=slots)

    monkeypatch.setattr(share, "_loads", counted)
    program, made = shared(steps_of(600))
    assert len(made) == 601 and len(program.layers) == 601
    assert len(looked) <= 1 + share.MOST_TRIALS + share.MOST_LOOKS // 1801
    assert program.arena_bytes == 600 * 16 * 4
