"""Batch norm, scales, shifts and padding move into the operator before them."""

from __future__ import annotations

from intaglio.passes.fold_weights import fold_pad, fold_scale, split_batch_norm
from support.ir_text import assert_rewrites, assert_unchanged, rewritten


def test_a_batch_norm_is_a_product_and_a_sum() -> None:
    assert_rewrites(
        split_batch_norm,
        """
        input x: f32[1,3,2,2]
        const s: f32[3] = [1.0, 2.0, 3.0]
        const b: f32[3] = [0.0, 1.0, 2.0]
        const m: f32[3] = [0.5, 0.5, 0.5]
        const v: f32[3] = [1.0, 4.0, 9.0]
        y: f32[1,3,2,2] = batch_norm(x, s, b, m, v)
        output y
        """,
        """
        input x: f32[1,3,2,2]
        y_1: f32[1,3,2,2] = mul(x, y_scale)
        y: f32[1,3,2,2] = add(y_1, y_shift)
        output y
        """,
    )


def test_a_batch_norm_with_a_computed_parameter_stays() -> None:
    assert_unchanged(
        split_batch_norm,
        """
        input x: f32[1,3,2,2]
        input v: f32[3]
        const s: f32[3] = [1.0, 2.0, 3.0]
        w: f32[3] = abs(v)
        y: f32[1,3,2,2] = batch_norm(x, s, s, s, w)
        output y
        """,
    )


def test_a_factor_and_a_shift_go_into_a_convolution() -> None:
    assert_rewrites(
        fold_scale,
        """
        input x: f32[1,2,4,4]
        const w: f32[3,2,3,3] ...
        const s: f32[1,3,1,1] ...
        const t: f32[3,1,1] ...
        a: f32[1,3,2,2] = conv(x, w)
        b: f32[1,3,2,2] = mul(a, s)
        y: f32[1,3,2,2] = add(t, b)
        output y
        """,
        """
        input x: f32[1,2,4,4]
        y: f32[1,3,2,2] = conv(x, w_1, y_bias)
        output y
        """,
    )


def test_a_shift_is_subtracted_from_the_bias() -> None:
    assert_rewrites(
        fold_scale,
        """
        input x: f32[2,4]
        const w: f32[3,4] ...
        const b: f32[3] ...
        const t: f32[3] ...
        a: f32[2,3] = matmul(x, w, b, transpose_b=true)
        y: f32[2,3] = sub(a, t)
        output y
        """,
        """
        input x: f32[2,4]
        y: f32[2,3] = matmul(x, w, y_bias, transpose_b=true)
        output y
        """,
    )


def test_a_factor_goes_into_the_groups_of_a_transposed_convolution() -> None:
    assert_rewrites(
        fold_scale,
        """
        input x: f32[1,4,3,3]
        const w: f32[4,3,2,2] ...
        const b: f32[6] ...
        const s: f32[6,1,1] ...
        a: f32[1,6,4,4] = conv_transpose(x, w, b, group=2)
        y: f32[1,6,4,4] = mul(a, s)
        output y
        """,
        """
        input x: f32[1,4,3,3]
        y: f32[1,6,4,4] = conv_transpose(x, w_1, y_bias, group=2)
        output y
        """,
    )


def test_a_factor_stays_when_the_product_is_read_twice() -> None:
    assert_unchanged(
        fold_scale,
        """
        input x: f32[2,4]
        const w: f32[4,3] ...
        const s: f32[3] ...
        a: f32[2,3] = matmul(x, w)
        b: f32[2,3] = mul(a, s)
        y: f32[2,3] = add(a, b)
        output y
        """,
    )


def test_a_factor_stays_when_the_product_is_an_output() -> None:
    assert_unchanged(
        fold_scale,
        """
        input x: f32[2,4]
        const w: f32[4,3] ...
        const s: f32[3] ...
        a: f32[2,3] = matmul(x, w)
        y: f32[2,3] = mul(a, s)
        output a
        output y
        """,
    )


def test_a_factor_stays_when_the_weights_are_computed() -> None:
    assert_unchanged(
        fold_scale,
        """
        input x: f32[2,4]
        input w: f32[4,3]
        const s: f32[3] ...
        a: f32[2,3] = matmul(x, w)
        y: f32[2,3] = mul(a, s)
        output y
        """,
    )


def test_a_factor_per_row_or_that_grows_the_result_stays() -> None:
    assert_unchanged(
        fold_scale,
        """
        input x: f32[2,4]
        const w: f32[4,3] ...
        const s: f32[2,1] ...
        const t: f32[5,1,1] ...
        a: f32[2,3] = matmul(x, w)
        b: f32[2,3] = mul(a, s)
        c: f32[2,3] = matmul(b, w2)
        y: f32[5,2,3] = mul(c, t)
        output y
        """.replace("const t:", "const w2: f32[3,3] ...\n        const t:"),
    )


def test_a_constant_minus_a_product_and_a_factor_across_a_guard_stay() -> None:
    assert_unchanged(
        fold_scale,
        """
        input x: f32[2,4]
        input c: bool[]
        const w: f32[4,3] ...
        const s: f32[3] ...
        a: f32[2,3] = matmul(x, w)
        b: f32[2,3] = sub(s, a)
        d: f32[2,3] = matmul(x, w)
        e: f32[2,3] = mul(d, s) when c
        y: f32[2,3] = select(c, e, b)
        output y
        """,
    )


def test_zeros_around_the_image_are_the_convolutions_own() -> None:
    assert_rewrites(
        fold_pad,
        """
        input x: f32[1,2,4,4]
        const w: f32[3,2,3,3] ...
        a: f32[1,2,7,5] = pad(x, pads=(0,0,1,0,0,0,2,1))
        y: f32[1,3,7,5] = conv(a, w, pads=(1,1,1,1))
        output y
        """,
        """
        input x: f32[1,2,4,4]
        y: f32[1,3,7,5] = conv(x, w, pads=(2,1,3,2))
        output y
        """,
    )


def test_zeros_behind_a_relu_are_no_maximum() -> None:
    assert_rewrites(
        fold_pad,
        """
        input x: f32[1,4,4,2] NHWC
        r: f32[1,4,4,2] NHWC = relu(x)
        a: f32[1,6,6,2] NHWC = pad(r, pads=(0,1,1,0,0,1,1,0))
        y: f32[1,2,2,2] NHWC = max_pool(a, kernel=(3,3), strides=(2,2), layout=NHWC)
        output y
        """,
        """
        input x: f32[1,4,4,2] NHWC
        r: f32[1,4,4,2] NHWC = relu(x)
        y: f32[1,2,2,2] NHWC = max_pool(r, kernel=(3,3), strides=(2,2), pads=(1,1,1,1), layout=NHWC)
        output y
        """,
    )


def test_the_lowest_integer_is_no_maximum() -> None:
    assert_rewrites(
        fold_pad,
        """
        input x: i8[1,2,4,4]
        a: i8[1,2,6,5] = pad(x, pads=(0,0,1,0,0,0,1,1), value=-128.0)
        y: i8[1,2,4,3] = max_pool(a, kernel=(3,3))
        output y
        """,
        """
        input x: i8[1,2,4,4]
        y: i8[1,2,4,3] = max_pool(x, kernel=(3,3), pads=(1,0,1,1))
        output y
        """,
    )


def test_padding_that_can_be_a_maximum_stays() -> None:
    assert_unchanged(
        fold_pad,
        """
        input x: f32[1,1,4,4]
        input z: i8[1,1,4,4]
        a: f32[1,1,6,6] = pad(x, pads=(0,0,1,1,0,0,1,1))
        b: f32[1,1,4,4] = max_pool(a, kernel=(3,3))
        c: i8[1,1,6,6] = pad(z, pads=(0,0,1,1,0,0,1,1), value=-127.0)
        d: i8[1,1,4,4] = max_pool(c, kernel=(3,3))
        r: f32[1,1,4,4] = relu(x)
        e: f32[1,1,8,8] = pad(r, pads=(0,0,2,2,0,0,2,2))
        f: f32[1,1,7,7] = max_pool(e, kernel=(2,2))
        output b
        output d
        output f
        """,
    )


def test_other_padding_stays() -> None:
    assert_unchanged(
        fold_pad,
        """
        input x: f32[1,1,4,4]
        const w: f32[3,2,3,3] ...
        const u: f32[3,1,3,3] ...
        a: f32[1,2,4,4] = pad(x, pads=(0,0,0,0,0,1,0,0))
        b: f32[1,3,2,2] = conv(a, w)
        c: f32[1,1,6,6] = pad(x, pads=(0,0,1,1,0,0,1,1), value=1.0)
        d: f32[1,3,4,4] = conv(c, u)
        e: f32[1,1,6,6] = pad(x, pads=(0,0,1,1,0,0,1,1), mode="edge")
        f: f32[1,3,4,4] = conv(e, u)
        output b
        output d
        output f
        """,
    )


def test_padding_with_the_zero_point_is_the_padding_of_an_integer_convolution() -> None:
    text = """
        input x: i8[1,4,4,2]
        const w: i8[3,2,3,3] ...
        const m: i32[3] = [1073741824, 1073741824, 1073741824]
        const s: i32[3] = [0, 0, 0]
        a: i8[1,6,6,2] = pad(x, pads=(0,1,1,0,0,1,1,0), value=-7.0)
        y: i8[1,4,4,3] = qconv(a, w, _, m, s, x_zero=-7)
        output y
        """
    graph = rewritten(fold_pad, text)
    assert [n.op.NAME for n in graph.nodes] == ["qconv"]
    assert graph.nodes[0].inputs[0] is graph.inputs[0]
    assert_unchanged(fold_pad, text.replace("value=-7.0", "value=3.0"))
