"""Loops as data flow: what belongs to the body, what stays in front of it, and what is copied."""

from __future__ import annotations

from intaglio.passes.clean import dead_code
from intaglio.passes.fusion import fuse_elementwise
from intaglio.passes.loops import gather_loops
from support.ir_text import assert_rewrites, assert_unchanged

TOP = """
        input x: f32[1,4]
        input z: f32[1,4]
        const t: bool[] ..."""
END = """
        d: bool[] = logical_not(c)
        c2: bool[], y: f32[1,4] = loop_end(c, h, d, b, carried=2)
        output y
"""


def test_what_does_not_depend_on_a_turn_is_computed_once() -> None:
    assert_rewrites(
        gather_loops,
        f"""{TOP}
        c: bool[], h: f32[1,4] = loop_start(t, x)
        a: f32[1,4] = relu(z)
        b: f32[1,4] = add(h, a){END}""",
        f"""{TOP}
        a: f32[1,4] = relu(z)
        c: bool[], h: f32[1,4] = loop_start(t, x)
        b: f32[1,4] = add(h, a){END}""",
    )


def test_values_that_change_places_are_copied_first() -> None:
    before = """
        c: bool[], h: f32[1,4], g: f32[1,4] = loop_start(t, x, z)
        d: bool[] = logical_not(c)"""
    assert_rewrites(
        gather_loops,
        f"""{TOP}{before}
        c2: bool[], y: f32[1,4], w: f32[1,4] = loop_end(c, h, g, d, g, h, carried=3)
        output y
        output w
        """,
        f"""{TOP}{before}
        g_1: f32[1,4] = copy(g)
        h_1: f32[1,4] = copy(h)
        c2: bool[], y: f32[1,4], w: f32[1,4] = loop_end(c, h, g, d, g_1, h_1, carried=3)
        output y
        output w
        """,
    )


def test_a_graph_without_loops_stays_as_it_is() -> None:
    text = "input x: f32[1,4]\na: f32[1,4] = relu(x)\noutput a\n"
    assert_unchanged(gather_loops, text)
    assert_unchanged(dead_code, text)


def test_what_is_computed_in_front_of_a_loop_is_not_joined_with_its_body() -> None:
    assert_unchanged(
        fuse_elementwise,
        f"""{TOP}
        a: f32[1,4] = relu(z)
        c: bool[], h: f32[1,4] = loop_start(t, x)
        b: f32[1,4] = add(h, a){END}""",
    )
