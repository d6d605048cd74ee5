"""Which values share a piece of memory, and how long each piece lives."""

from __future__ import annotations

from intaglio.ir.program import ValueArg
from intaglio.kernels import lower
from intaglio.kernels.program import Program
from intaglio.memory import place
from intaglio.memory.lifetimes import Buffer, find_storage, rolled_states
from support.ir_text import TARGET, graph_of


def program_of(text: str) -> Program:
    return lower(graph_of(text), TARGET)


def buffers_of(program: Program, *, slots: bool = False) -> dict[str, Buffer]:
    """By the names of the values in them, and by their own."""
    found = find_storage(program, 64, slots=slots).buffers
    return {buffer.name: buffer for buffer in found} | {value.name: buffer for buffer in found for value in buffer.values}


def taken(text: str, over: int | None = None) -> dict[str, str]:
    """Which result has the memory of which operand. `over`: all that the kernel of `y` may write over."""
    program = program_of(text)
    layer = next(each for each in program.layers if each.node.output.name == "b")
    layer.kernel.in_place = True
    if over is not None:
        assert isinstance(layer.arguments[over], ValueArg)
        layer.kernel.over = over
    return {out: of for out, of in find_storage(program, 64).in_place.items() if out == "b"}


SUM = """
    input x: f32[8,64]
    const w: f32[64,64] ...
    const u: f32[64,64] ...
    a: f32[8,64] = matmul(x, w)
    d: f32[8,64] = matmul(x, u)
    b: f32[8,64] = add(a, d)
    y: f32[8,64] = matmul(b, w)
    output y
"""


def test_a_kernel_may_name_the_only_argument_that_it_writes_over() -> None:
    assert taken(SUM, over=0) == {"b": "a"}
    assert taken(SUM, over=1) == {"b": "d"}
    later = SUM.replace("matmul(b, w)", "add(b, a)")
    assert taken(later) == {"b": "d"} and taken(later, over=0) == {}, "`a` is read again, and `d` may not be written over"


def test_one_that_is_read_twice_is_written_over_by_kernels_that_may_write_over_any() -> None:
    twice = SUM.replace("add(a, d)", "add(a, a)").replace("matmul(b, w)", "add(b, d)")
    assert taken(twice) == {"b": "a"} and taken(twice, over=0) == {}


def test_another_name_of_an_operand_has_to_be_walked_alike() -> None:
    same = SUM.replace("d: f32[8,64] = matmul(x, u)", "d: f32[8,64] = reshape(a, shape=(8,64))")
    assert taken(same).keys() == {"b"} and taken(same, over=0) == {}
    other = same.replace("d: f32[8,64] = reshape(a, shape=(8,64))", "d: f32[1,8,64] = reshape(a, shape=(1,8,64))")
    other = other.replace("b: f32[8,64] = add", "b: f32[1,8,64] = add").replace("y: f32[8,64]", "y: f32[1,8,64]")
    assert taken(other) == {}


LOOP = """
    input x: f32[1,64]
    const t: bool[] ...
    const o: f32[] ...
    const w: f32[64,64] ...
    a: f32[1,64] = matmul(x, w)
    i: f32[1,64] = matmul(x, w)
    j: f32[1,64] = matmul(i, w)
    c: bool[], h: f32[1,64] = loop_start(t, j)
    e: f32[1,64] = matmul(h, w)
    g: f32[1,64] = add(e, a)
    s: f32[] = reduce(g, kind="sum", axes=(0,1), keepdims=false)
    d: bool[] = less(s, o)
    c2: bool[], k: f32[1,64] = loop_end(c, h, d, g, carried=2)
    y: f32[1,64] = matmul(k, w)
    output y
"""


def test_what_a_loop_reads_lives_until_it_ends() -> None:
    program = program_of(LOOP)
    layers = {layer.node.output.name: n for n, layer in enumerate(program.layers)}
    buffers = buffers_of(program)
    assert buffers["a"].last == layers["c2"], "the next turn reads it again"
    assert (buffers["i"].first, buffers["i"].last) == (layers["i"], layers["j"]), "it is read before the loop begins"
    assert buffers["s"].last == layers["d"], "every turn makes it anew"


def test_the_arena_has_room_for_inputs_and_outputs_where_that_is_asked_for() -> None:
    program = program_of(SUM)
    assert [b.slot for b in find_storage(program, 64).buffers if b.slot] == []
    assert {b.slot for b in find_storage(program, 64, slots=True).buffers if b.slot} == {("input", 0), ("output", 0)}
    rooms = buffers_of(program, slots=True)
    layers = {layer.node.output.name: n for n, layer in enumerate(program.layers)}
    assert (rooms["x_input"].first, rooms["x_input"].last) == (0, layers["d"])
    assert (rooms["y_output"].first, rooms["y_output"].last) == (layers["y"], len(layers))


ROLLED = """
    input x: f32[1,1,4]
    input k: f32[1,3,4]
    state k = b
    b: f32[1,3,4] = roll(k, x, axis=1)
    y: f32[1,3,4] = exp(b)
    output y
"""


def test_a_state_that_is_rolled_is_written_in_place_unless_somebody_else_needs_it() -> None:
    def rolled(text: str) -> set[str]:
        return {value.name for value in rolled_states(program_of(text))}

    assert rolled(ROLLED) == {"b"}
    assert rolled(ROLLED + "    output b\n") == set(), "the next state is an output, too"
    assert rolled(ROLLED.replace("exp(b)", "add(b, k)")) == set(), "the old state is read again"
    assert rolled(ROLLED.replace("state k = b", "state k = y")) == set(), "it is not what comes next"


def test_the_bound_of_an_arena_has_the_state_in_it() -> None:
    program = program_of(ROLLED.replace("exp(b)", "add(b, k)"))
    found = place(program, TARGET)
    assert found.arena_bytes == found.lower_bound_bytes == 64 + 64, "the old state and the next one"
