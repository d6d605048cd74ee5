"""Elementwise work joins the loop that makes its operand."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from intaglio.kernels.epilogue import operand_kind
from intaglio.kernels.expressions import ROWS
from intaglio.ops.base import REGISTRY, Elementwise
from intaglio.passes.fusion import fits_epilogue, fuse_elementwise, fuse_epilogue
from support.ir_text import assert_rewrites, assert_unchanged


def test_every_operator_for_vectors_has_a_row_that_computes_it() -> None:
    assert set(ROWS) >= {op.NAME for op in REGISTRY.values() if issubclass(op, Elementwise) and op.VECTOR}


_DIMS = st.lists(st.sampled_from([1, 1, 2, 3]), max_size=4).map(tuple)


@given(_DIMS, _DIMS)
def test_passes_and_kernels_agree_on_what_an_epilogue_can_read(shape: tuple[int, ...], out: tuple[int, ...]) -> None:
    assert fits_epilogue(shape, out) == (operand_kind(shape, out) is not None)


def test_a_residual_and_an_activation_join_the_convolution() -> None:
    assert_rewrites(
        fuse_epilogue,
        """
        input x: f32[1,4,4,2]
        input r: f32[1,4,4,3]
        const w: f32[3,2,1,1] ...
        const b: f32[3] ...
        const s: f32[3] ...
        a: f32[1,4,4,3] = conv(x, w, b, layout=NHWC)
        c: f32[1,4,4,3] = add(r, a)
        d: f32[1,4,4,3] = prelu(c, s)
        y: f32[1,4,4,3] = relu(d)
        output y
        """,
        """
        input x: f32[1,4,4,2]
        input r: f32[1,4,4,3]
        y: f32[1,4,4,3] = conv(x, w, b, r, s, layout=NHWC, epilogue=[add(1, 0), prelu(3, 2), relu(4)])
        output y
        """,
    )


def test_the_later_of_two_products_takes_the_sum() -> None:
    assert_rewrites(
        fuse_epilogue,
        """
        input x: f32[2,4]
        const w: f32[4,3] ...
        const u: f32[4,3] ...
        a: f32[2,3] = matmul(x, w)
        b: f32[2,3] = matmul(x, u)
        y: f32[2,3] = sub(a, b)
        output y
        """,
        """
        input x: f32[2,4]
        a: f32[2,3] = matmul(x, w)
        y: f32[2,3] = matmul(x, u, _, a, epilogue=[sub(1, 0)])
        output y
        """,
    )


def test_a_product_moves_behind_what_it_joins() -> None:
    assert_rewrites(
        fuse_epilogue,
        """
        input x: f32[2,4]
        const w: f32[4,3] ...
        a: f32[2,3] = matmul(x, w)
        t: f32[3,2] = transpose(g, perm=(1,0))
        u: f32[2,3] = transpose(t, perm=(1,0))
        y: f32[2,3] = mul(a, u)
        output y
        """.replace("const w:", "input g: f32[2,3]\n        const w:"),
        """
        input x: f32[2,4]
        input g: f32[2,3]
        t: f32[3,2] = transpose(g, perm=(1,0))
        u: f32[2,3] = transpose(t, perm=(1,0))
        y: f32[2,3] = matmul(x, w, _, u, epilogue=[mul(0, 1)])
        output y
        """,
    )


def test_a_value_used_on_both_sides_joins_once() -> None:
    assert_rewrites(
        fuse_epilogue,
        """
        input x: f32[2,4]
        const w: f32[4,3] ...
        a: f32[2,3] = matmul(x, w)
        y: f32[2,3] = mul(a, a)
        output y
        """,
        """
        input x: f32[2,4]
        y: f32[2,3] = matmul(x, w, _, epilogue=[mul(0, 0)])
        output y
        """,
    )


def test_relu_stays_when_the_sum_is_read_twice() -> None:
    assert_unchanged(
        fuse_epilogue,
        """
        input x: f32[2,4]
        const w: f32[4,3] ...
        a: f32[2,3] = matmul(x, w)
        b: f32[2,3] = relu(a)
        y: f32[2,3] = concat(a, b)
        output y
        """.replace("y: f32[2,3]", "y: f32[4,3]"),
    )


def test_relu_stays_when_the_product_is_an_output_or_a_state() -> None:
    assert_unchanged(
        fuse_epilogue,
        """
        input x: f32[2,4]
        input h: f32[2,3]
        const w: f32[4,3] ...
        state h = b
        a: f32[2,3] = matmul(x, w)
        y: f32[2,3] = relu(a)
        b: f32[2,3] = matmul(x, w)
        z: f32[2,3] = relu(b)
        output a
        output y
        output z
        """,
    )


def test_relu_stays_across_a_guard() -> None:
    assert_unchanged(
        fuse_epilogue,
        """
        input x: f32[2,4]
        input c: bool[]
        const w: f32[4,3] ...
        a: f32[2,3] = matmul(x, w)
        b: f32[2,3] = relu(a) when c
        y: f32[2,3] = select(c, b, g)
        output y
        """.replace("const w:", "input g: f32[2,3]\n        const w:"),
    )


def test_what_vectors_cannot_do_or_broadcasts_otherwise_stays() -> None:
    assert_unchanged(
        fuse_epilogue,
        """
        input x: f32[2,4]
        const w: f32[4,3] ...
        const rows: f32[2,1] ...
        const more: f32[5,1,1] ...
        a: f32[2,3] = matmul(x, w)
        b: f32[2,3] = sin(a)
        c: f32[2,3] = matmul(x, w)
        d: f32[2,3] = mul(c, rows)
        e: f32[2,3] = matmul(x, w)
        f: f32[5,2,3] = add(e, more)
        g: f32[2,3] = matmul(x, w)
        i: i32[2,3] = cast(g, to=i32)
        output b
        output d
        output f
        output i
        """,
    )


def test_a_convolution_in_nchw_takes_nothing() -> None:
    assert_unchanged(
        fuse_epilogue,
        """
        input x: f32[1,2,4,4]
        const w: f32[3,2,1,1] ...
        a: f32[1,3,4,4] = conv(x, w)
        y: f32[1,3,4,4] = relu(a)
        output y
        """,
    )


def test_elementwise_operators_in_a_row_become_one_loop() -> None:
    assert_rewrites(
        fuse_elementwise,
        """
        input x: f32[2,3]
        const s: f32[3] ...
        const t: f32[2,1] ...
        a: f32[2,3] = mul(x, s)
        b: f32[2,3] = add(t, a)
        c: f32[2,3] = neg(x)
        y: f32[2,3] = max(b, c)
        output y
        """,
        """
        input x: f32[2,3]
        y: f32[2,3] = chain(x, s, t, steps=[neg(0), mul(0, 1), add(2, 4), max(5, 3)])
        output y
        """,
    )


def test_a_value_between_with_another_reader_stays() -> None:
    assert_unchanged(
        fuse_elementwise,
        """
        input x: f32[2,3]
        a: f32[2,3] = exp(x)
        b: f32[2,3] = neg(a)
        y: f32[4,3] = concat(a, b)
        output y
        """,
    )


def test_an_output_between_stays() -> None:
    assert_unchanged(
        fuse_elementwise,
        """
        input x: f32[2,3]
        a: f32[2,3] = exp(x)
        y: f32[2,3] = neg(a)
        output a
        output y
        """,
    )


def test_a_row_is_not_computed_again_for_every_repetition() -> None:
    assert_unchanged(
        fuse_elementwise,
        """
        input x: f32[2,3]
        input r: f32[3]
        a: f32[3] = exp(r)
        y: f32[2,3] = add(x, a)
        output y
        """,
    )


def test_rounding_to_f16_in_between_stays() -> None:
    assert_unchanged(
        fuse_elementwise,
        """
        input x: f16[3]
        a: f16[3] = exp(x)
        y: f16[3] = neg(a)
        output y
        """,
    )


def test_what_needs_libm_does_not_pull_vectors_down() -> None:
    assert_unchanged(
        fuse_elementwise,
        """
        input x: f32[3]
        a: f32[3] = exp(x)
        y: f32[3] = sin(a)
        output y
        """,
    )


def test_elementwise_operators_across_a_guard_stay() -> None:
    assert_unchanged(
        fuse_elementwise,
        """
        input x: f32[3]
        input c: bool[]
        a: f32[3] = exp(x)
        b: f32[3] = neg(a) when c
        y: f32[3] = select(c, b, x)
        output y
        """,
    )
