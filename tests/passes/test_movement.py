"""Transposes and reshapes move until they cancel."""

from __future__ import annotations

import pytest

from intaglio.passes.movement import join_movement
from intaglio.passes.reshapes import move_reshapes
from intaglio.passes.transposes import fold_into_matmul, move_transposes
from support.ir_text import assert_rewrites, assert_unchanged, rewritten


def test_a_transpose_sinks_through_elementwise_work() -> None:
    assert_rewrites(
        move_transposes,
        """
        input x: f32[1,4,5,2]
        const s: f32[2,1,1] ...
        a: f32[1,2,4,5] = transpose(x, perm=(0,3,1,2))
        y: f32[1,2,4,5] = mul(a, s)
        output y
        """,
        """
        input x: f32[1,4,5,2]
        y_1: f32[1,4,5,2] NHWC = mul(x, s_1)
        y: f32[1,2,4,5] = transpose(y_1, perm=(0,3,1,2))
        output y
        """,
    )


def test_two_transposes_in_a_row_are_one() -> None:
    assert_rewrites(
        move_transposes,
        """
        input x: f32[2,3,4]
        a: f32[3,4,2] = transpose(x, perm=(1,2,0))
        y: f32[4,3,2] = transpose(a, perm=(1,0,2))
        output y
        """,
        """
        input x: f32[2,3,4]
        y: f32[4,3,2] = transpose(x, perm=(2,1,0))
        output y
        """,
    )


THROUGH = {
    "concat": "b: f32[2,8,5] = concat(a, a, axis=1)",
    "softmax": "b: f32[2,4,5] = softmax(a, axis=1)",
    "log_softmax": "b: f32[2,4,5] = log_softmax(a, axis=-1)",
    "cumsum": "b: f32[2,4,5] = cumsum(a, axis=1)",
    "reduce": 'b: f32[2,1,5] = reduce(a, kind="max", axes=(1))',
    "reduce without axis": "b: f32[4] = reduce(a, axes=(0,2), keepdims=false)",
    "arg_reduce": "b: i64[2,5] = arg_reduce(a, axis=1, keepdims=false)",
    "pad": "b: f32[3,4,7] = pad(a, pads=(1,0,0,0,0,2))",
    "slice": "b: f32[1,2,5] = slice(a, starts=(1,3,0), steps=(1,-2,1), shape=(1,2,5))",
    "tile": "b: f32[2,8,15] = tile(a, repeats=(1,2,3))",
    "resize": 'b: f32[2,6,5] = resize(a, shape=(2,6,5), scales=(1.0,1.5,1.0), mode="linear")',
    "gather": "b: f32[2,3,5] = gather(a, i, axis=1)",
    "copy": "b: f32[2,4,5] = copy(a)",
    "chain": "b: f32[2,4,5] = chain(a, a, steps=[neg(0), add(1, 2)])",
}


@pytest.mark.parametrize("name", THROUGH)
def test_a_transpose_sinks_through(name: str) -> None:
    before = f"""
        input x: f32[4,5,2]
        const i: i64[3] = [3, 0, 1]
        a: f32[2,4,5] = transpose(x, perm=(2,0,1))
        {THROUGH[name]}
        output b
        """
    graph = rewritten(move_transposes, before)
    assert name.split()[0] == graph.nodes[0].op.NAME
    assert graph.nodes[0].inputs[0] is graph.inputs[0]
    assert graph.nodes[-1].op.NAME in ("transpose", "reshape")


def test_a_transpose_stays_when_the_other_operand_lies_otherwise() -> None:
    assert_unchanged(
        move_transposes,
        """
        input x: f32[3,2]
        input z: f32[2,3]
        a: f32[2,3] = transpose(x, perm=(1,0))
        b: f32[2,3] = add(a, z)
        c: f32[4,3] = concat(a, z)
        d: f32[2,2,3] = expand(a, shape=(2,2,3))
        output b
        output c
        output d
        """,
    )


def test_a_transpose_stays_across_a_guard() -> None:
    assert_unchanged(
        move_transposes,
        """
        input x: f32[3,2]
        input z: f32[2,3]
        input c: bool[]
        a: f32[2,3] = transpose(x, perm=(1,0))
        b: f32[2,3] = exp(a) when c
        y: f32[2,3] = select(c, b, z)
        output y
        """,
    )


def test_a_reshape_sinks_through_elementwise_work() -> None:
    assert_rewrites(
        move_reshapes,
        """
        input x: f32[1,8,1,9]
        const s: f32[8,1] ...
        a: f32[1,8,9] = reshape(x, shape=(1,8,9))
        y: f32[1,8,9] = add(a, s)
        output y
        """,
        """
        input x: f32[1,8,1,9]
        y_1: f32[1,8,1,9] = add(x, s_1)
        y: f32[1,8,9] = reshape(y_1, shape=(1,8,9))
        output y
        """,
    )


def test_two_reshapes_of_one_shape_sink_together() -> None:
    assert_rewrites(
        move_reshapes,
        """
        input x: f32[2,6]
        input z: f32[2,6]
        a: f32[3,4] = reshape(x, shape=(3,4))
        b: f32[3,4] = reshape(z, shape=(3,4))
        y: f32[3,4] = mul(a, b)
        output y
        """,
        """
        input x: f32[2,6]
        input z: f32[2,6]
        y_1: f32[2,6] = mul(x, z)
        y: f32[3,4] = reshape(y_1, shape=(3,4))
        output y
        """,
    )


def test_a_reshape_stays_when_the_others_do_not_follow() -> None:
    assert_unchanged(
        move_reshapes,
        """
        input x: f32[2,6]
        input z: f32[3,4]
        input c: bool[]
        const s: f32[4] ...
        a: f32[3,4] = reshape(x, shape=(3,4))
        b: f32[3,4] = mul(a, z)
        d: f32[3,4] = mul(a, s)
        e: f32[2,3,4] = mul(a, t)
        f: f32[3,4] = exp(a) when c
        g: f32[3,4] = select(c, f, z)
        output b
        output d
        output e
        output g
        """.replace("const s:", "const t: f32[2,1,1] ...\n        const s:"),
    )


def test_a_chain_of_movement_goes_there_at_once() -> None:
    assert_rewrites(
        join_movement,
        """
        input x: f32[1,22,22,48]
        a: f32[1,48,22,22] = transpose(x, perm=(0,3,1,2))
        b: f32[1,2,24,22,22] = reshape(a, shape=(1,2,24,22,22))
        c: f32[1,24,2,22,22] = transpose(b, perm=(0,2,1,3,4))
        d: f32[1,48,22,22] = reshape(c, shape=(1,48,22,22))
        y: f32[1,22,22,48] = transpose(d, perm=(0,2,3,1))
        output y
        """,
        """
        input x: f32[1,22,22,48]
        y_1: f32[484,2,24] = reshape(x, shape=(484,2,24))
        y_2: f32[484,24,2] = transpose(y_1, perm=(0,2,1))
        y: f32[1,22,22,48] = reshape(y_2, shape=(1,22,22,48))
        output y
        """,
    )


def test_a_chain_that_cuts_an_axis_unevenly_stays() -> None:
    assert_unchanged(
        join_movement,
        """
        input x: f32[4,9]
        a: f32[9,4] = transpose(x, perm=(1,0))
        b: f32[6,6] = reshape(a, shape=(6,6))
        c: f32[6,6] = transpose(b, perm=(1,0))
        y: f32[6,6] = exp(c)
        output y
        """,
    )


def test_a_chain_with_one_transpose_stays() -> None:
    assert_unchanged(
        join_movement,
        """
        input x: f32[4,6]
        a: f32[4,2,3] = reshape(x, shape=(4,2,3))
        b: f32[2,4,3] = transpose(a, perm=(1,0,2))
        y: f32[8,3] = reshape(b, shape=(8,3))
        output y
        """,
    )


def test_a_transpose_of_the_right_side_is_the_products_own() -> None:
    assert_rewrites(
        fold_into_matmul,
        """
        input q: f32[2,3,4]
        input k: f32[2,5,4]
        a: f32[2,4,5] = transpose(k, perm=(0,2,1))
        y: f32[2,3,5] = matmul(q, a)
        output y
        """,
        """
        input q: f32[2,3,4]
        input k: f32[2,5,4]
        y: f32[2,3,5] = matmul(q, k, transpose_b=true)
        output y
        """,
    )


@pytest.mark.parametrize("transposed", [False, True])
def test_a_transpose_before_a_flat_product_turns_its_rows(transposed: bool) -> None:
    weights = "const w: f32[5,24] ..." if transposed else "const w: f32[24,5] ..."
    assert_rewrites(
        fold_into_matmul,
        f"""
        input x: f32[2,2,3,4]
        {weights}
        a: f32[2,4,2,3] = transpose(x, perm=(0,3,1,2))
        b: f32[2,24] = reshape(a, shape=(2,24))
        y: f32[2,5] = matmul(b, w{", transpose_b=true" if transposed else ""})
        output y
        """,
        """
        input x: f32[2,2,3,4]
        y_1: f32[2,24] = reshape(x, shape=(2,24))
        y: f32[2,5] = matmul(y_1, w_1)
        output y
        """,
    )


def test_a_transpose_of_the_batch_or_for_computed_weights_stays() -> None:
    assert_unchanged(
        fold_into_matmul,
        """
        input x: f32[2,3,4]
        input w: f32[12,5]
        const u: f32[8,5] ...
        a: f32[2,4,3] = transpose(x, perm=(0,2,1))
        b: f32[2,12] = reshape(a, shape=(2,12))
        c: f32[2,5] = matmul(b, w)
        d: f32[3,2,4] = transpose(x, perm=(1,0,2))
        e: f32[3,8] = reshape(d, shape=(3,8))
        f: f32[3,5] = matmul(e, u)
        output c
        output f
        """,
    )
