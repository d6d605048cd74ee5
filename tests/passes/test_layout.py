"""Convolutions in the layout their kernels want."""

from __future__ import annotations

import itertools

import pytest

from intaglio.passes.layout import choose_layout, expand_conv_transpose, flatten_one_dimension, lay_flat, store_wide_padding
from support.ir_text import assert_rewrites, assert_unchanged, graph_of, rewritten


def test_a_convolution_over_one_axis_is_one_over_a_flat_image() -> None:
    assert_rewrites(
        flatten_one_dimension,
        """
        input x: f32[1,6,9]
        const w: f32[8,6,3] ...
        y: f32[1,8,5] = conv(x, w, strides=(2), pads=(1,1), dilations=(1))
        output y
        """,
        """
        input x: f32[1,6,9]
        y_1: f32[1,6,1,9] = reshape(x, shape=(1,6,1,9))
        y_2: f32[1,8,1,5] = conv(y_1, w_1, strides=(1,2), pads=(0,1,0,1))
        y: f32[1,8,5] = reshape(y_2, shape=(1,8,5))
        output y
        """,
    )


def test_poolings_and_transposed_convolutions_over_one_axis_too() -> None:
    graph = rewritten(
        flatten_one_dimension,
        """
        input x: f32[1,6,9]
        const w: f32[6,2,3] ...
        a: f32[1,6,5] = max_pool(x, kernel=(3), strides=(2), pads=(1,1), dilations=(1))
        b: f32[1,6,5] = average_pool(x, kernel=(3), strides=(2), pads=(1,1), dilations=(1), count_include_pad=true)
        c: f32[1,2,20] = conv_transpose(x, w, strides=(2), pads=(0,0), dilations=(1), output_padding=(1))
        output a
        output b
        output c
        """,
    )
    assert [n.output.type.rank for n in graph.nodes] == [4, 4, 3] * 3


def test_what_is_two_dimensional_or_has_computed_weights_stays() -> None:
    assert_unchanged(
        flatten_one_dimension,
        """
        input x: f32[1,6,9]
        input w: f32[8,6,3]
        input i: f32[1,6,9,9]
        a: f32[1,8,7] = conv(x, w, strides=(1), pads=(0,0), dilations=(1))
        b: f32[1,6,8,8] = max_pool(i, kernel=(2,2))
        output a
        output b
        """,
    )


def test_convolutions_and_poolings_are_done_in_nhwc() -> None:
    assert_rewrites(
        choose_layout,
        """
        input x: f32[1,2,5,5]
        const w: f32[3,2,3,3] ...
        a: f32[1,3,3,3] = conv(x, w)
        y: f32[1,3,2,2] = max_pool(a, kernel=(2,2))
        output y
        """,
        """
        input x: f32[1,2,5,5]
        a_1: f32[1,5,5,2] NHWC = transpose(x, perm=(0,2,3,1))
        a_2: f32[1,3,3,3] NHWC = conv(a_1, w, layout=NHWC)
        a: f32[1,3,3,3] = transpose(a_2, perm=(0,3,1,2))
        y_1: f32[1,3,3,3] NHWC = transpose(a, perm=(0,2,3,1))
        y_2: f32[1,2,2,3] NHWC = max_pool(y_1, kernel=(2,2), layout=NHWC)
        y: f32[1,3,2,2] = transpose(y_2, perm=(0,3,1,2))
        output y
        """,
    )


def test_other_types_and_computed_weights_keep_their_layout() -> None:
    assert_unchanged(
        choose_layout,
        """
        input x: f32[1,2,5,5]
        input w: f32[3,2,3,3]
        input i: i32[1,2,5,5]
        a: f32[1,3,3,3] = conv(x, w)
        b: i32[1,2,4,4] = max_pool(i, kernel=(2,2))
        output a
        output b
        """,
    )


CASES = list(itertools.product([(1, 1), (2, 2), (1, 3)], [(0, 0, 0, 0), (1, 1, 1, 1), (0, 1, 2, 0)], [(1, 1), (2, 1)], [1, 2]))


@pytest.mark.parametrize(("strides", "pads", "dilations", "group"), CASES)
def test_a_transposed_convolution_is_one_with_zeros_between_the_pixels(
    strides: tuple[int, int], pads: tuple[int, int, int, int], dilations: tuple[int, int], group: int
) -> None:
    out = [
        (size - 1) * strides[n] + 2 * dilations[n] + 1 - pads[n] - pads[n + 2] + min(1, strides[n] - 1)
        for n, size in enumerate((4, 5))
    ]
    extra = tuple(min(1, s - 1) for s in strides)
    graph = rewritten(
        expand_conv_transpose,
        f"""
        input x: f32[1,4,5,4]
        const w: f32[4,3,3,3] ...
        const b: f32[{3 * group}] ...
        y: f32[1,{out[0]},{out[1]},{3 * group}] = conv_transpose(x, w, b, strides={strides}, pads={pads}, dilations={dilations},
        group={group}, output_padding={extra}, layout=NHWC)
        output y
        """.replace("\n        group", " group"),
    )
    assert graph.nodes[-1].op.NAME == "conv"


def test_a_transposed_convolution_cut_by_more_than_its_kernel_stays() -> None:
    assert_unchanged(
        expand_conv_transpose,
        """
        input x: f32[1,5,5,2]
        const w: f32[2,3,1,1] ...
        y: f32[1,3,3,3] = conv_transpose(x, w, pads=(1,1,1,1), layout=NHWC)
        output y
        """,
    )


def test_wide_padding_is_stored() -> None:
    assert_rewrites(
        store_wide_padding,
        """
        input x: f32[1,3,40,2]
        const w: f32[4,2,3,39] ...
        y: f32[1,3,40,4] = conv(x, w, pads=(1,19,1,19), layout=NHWC)
        output y
        """,
        """
        input x: f32[1,3,40,2]
        y_1: f32[1,5,78,2] = pad(x, pads=(0,1,19,0,0,1,19,0))
        y: f32[1,3,40,4] = conv(y_1, w, layout=NHWC)
        output y
        """,
    )


def test_narrow_padding_is_not_stored() -> None:
    assert_unchanged(
        store_wide_padding,
        """
        input x: f32[1,3,8,2]
        const w: f32[4,2,3,3] ...
        y: f32[1,3,8,4] = conv(x, w, pads=(1,1,1,1), layout=NHWC)
        output y
        """,
    )


def test_an_image_one_pixel_wide_is_laid_flat() -> None:
    assert_rewrites(
        lay_flat,
        """
        input x: f32[1,9,1,2]
        const w: f32[4,2,5,1] ...
        const b: f32[4] ...
        y: f32[1,5,1,4] = conv(x, w, b, strides=(2,1), pads=(2,0,2,0), layout=NHWC)
        output y
        """,
        """
        input x: f32[1,9,1,2]
        y_1: f32[1,1,9,2] = reshape(x, shape=(1,1,9,2))
        y_2: f32[1,1,5,4] NHWC = conv(y_1, w_1, b, strides=(1,2), pads=(0,2,0,2), layout=NHWC)
        y: f32[1,5,1,4] = reshape(y_2, shape=(1,5,1,4))
        output y
        """,
    )


def test_a_pooling_one_pixel_wide_is_laid_flat_with_what_it_counts() -> None:
    graph = rewritten(
        lay_flat,
        """
        input x: f32[1,9,1,2]
        y: f32[1,5,1,2] = average_pool(x, kernel=(3,1), strides=(2,1), pads=(1,0,1,0), layout=NHWC, count_include_pad=true,
        counted_pads=(1,0,0,0))
        output y
        """.replace("\n        counted", " counted"),
    )
    assert [n.op.NAME for n in graph.nodes] == ["reshape", "average_pool", "reshape"]


def test_what_is_wide_or_padded_sideways_is_not_laid_flat() -> None:
    assert_unchanged(
        lay_flat,
        """
        input x: f32[1,9,1,2]
        input z: f32[1,9,3,2]
        const w: f32[4,2,5,1] ...
        const u: f32[4,2,5,3] ...
        a: f32[1,5,3,4] = conv(z, w, layout=NHWC)
        b: f32[1,5,1,4] = conv(x, u, pads=(0,1,0,1), layout=NHWC)
        output a
        output b
        """,
    )


def test_the_text_of_these_tests_is_checked() -> None:
    """`graph_of` verifies: a wrong shape in a test is an error, not a test of nothing."""
    with pytest.raises(Exception, match="declared"):
        graph_of("input x: f32[2]\ny: f32[3] = exp(x)\noutput y")
