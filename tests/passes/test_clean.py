"""Constants, identities, common subexpressions, dead code."""

from __future__ import annotations

import numpy as np

from intaglio.passes.clean import common_subexpressions, dead_code, fold_constants, remove_identities
from support.ir_text import assert_rewrites, assert_unchanged


def test_what_does_not_depend_on_the_input_is_computed_now() -> None:
    graph = assert_rewrites(
        fold_constants,
        """
        input x: f32[2]
        const w: f32[2] = [1.0, 2.0]
        const s: f32[] = 3.0
        a: f32[2] = mul(w, s)
        y: f32[2] = add(x, a)
        output y
        """,
        """
        input x: f32[2]
        y: f32[2] = add(x, a)
        output y
        """,
    )
    (a,) = graph.constants()
    np.testing.assert_array_equal(a.data, [3.0, 6.0])


def test_an_output_that_is_constant_is_still_computed() -> None:
    assert_unchanged(
        fold_constants,
        """
        const w: f32[2] = [1.0, 2.0]
        y: f32[2] = neg(w)
        output y
        """,
    )


def test_an_assertion_is_not_folded_away() -> None:
    assert_unchanged(
        fold_constants,
        """
        input x: f32[2]
        const c: bool[] = true
        a: bool[] = assert_true(c, message="fine")
        y: f32[2] = neg(x)
        output y
        """,
    )


def test_a_huge_constant_is_left_to_the_device() -> None:
    assert_unchanged(
        fold_constants,
        """
        input x: f32[1]
        const s: f32[1] = [3.0]
        a: f32[20000000] = expand(s, shape=(20000000))
        b: f32[1] = slice(a, starts=(0), steps=(1), shape=(1))
        y: f32[1] = add(x, b)
        output y
        """,
    )


def test_operators_that_change_nothing_go() -> None:
    assert_rewrites(
        remove_identities,
        """
        input x: f32[2,3]
        const one: f32[] = 1.0
        const zero: f32[3] = [0.0, 0.0, 0.0]
        n: f32[2,3] = neg(x)
        a: f32[2,3] = transpose(n, perm=(0,1))
        b: f32[2,3] = mul(a, one)
        c: f32[2,3] = add(zero, b)
        d: f32[2,3] = cast(c)
        e: f32[2,3] = clip(d)
        f: f32[2,3] = slice(e, starts=(0,0), steps=(1,1), shape=(2,3))
        y: f32[2,3] = exp(f)
        output y
        """,
        """
        input x: f32[2,3]
        n: f32[2,3] = neg(x)
        y: f32[2,3] = exp(n)
        output y
        """,
    )


def test_reshapes_of_reshapes_become_one() -> None:
    assert_rewrites(
        remove_identities,
        """
        input x: f32[2,3]
        a: f32[6] = reshape(x, shape=(6))
        b: f32[3,2] = reshape(a, shape=(3,2))
        y: f32[3,2] = exp(b)
        output y
        """,
        """
        input x: f32[2,3]
        b: f32[3,2] = reshape(x, shape=(3,2))
        y: f32[3,2] = exp(b)
        output y
        """,
    )


def test_an_output_that_is_the_input_keeps_its_copy() -> None:
    assert_unchanged(
        remove_identities,
        """
        input x: f32[2]
        y: f32[2] = copy(x)
        output y
        """,
    )


def test_two_outputs_do_not_become_one_value() -> None:
    assert_unchanged(
        remove_identities,
        """
        input x: f32[2]
        a: f32[2] = neg(x)
        y: f32[2] = copy(a)
        output a
        output y
        """,
    )


def test_a_sum_that_grows_its_operand_is_no_identity() -> None:
    assert_unchanged(
        remove_identities,
        """
        input x: f32[1,3]
        const zero: f32[2,1] = [0.0, 0.0]
        a: f32[2,3] = add(x, zero)
        y: f32[2,3] = exp(a)
        output y
        """,
    )


def test_a_slice_that_reverses_is_no_identity() -> None:
    assert_unchanged(
        remove_identities,
        """
        input x: f32[3]
        a: f32[3] = slice(x, starts=(2), steps=(-1), shape=(3))
        y: f32[3] = exp(a)
        output y
        """,
    )


def test_an_identity_across_a_guard_stays() -> None:
    assert_unchanged(
        remove_identities,
        """
        input x: f32[2]
        input c: bool[]
        a: f32[2] = neg(x)
        b: f32[2] = copy(a) when c
        y: f32[2] = select(c, b, a)
        output y
        """,
    )


def test_equal_things_are_computed_once() -> None:
    assert_rewrites(
        common_subexpressions,
        """
        input x: f32[2]
        a: f32[2] = leaky_relu(x, alpha=0.5)
        b: f32[2] = leaky_relu(x, alpha=0.5)
        y: f32[2] = add(a, b)
        output y
        """,
        """
        input x: f32[2]
        a: f32[2] = leaky_relu(x, alpha=0.5)
        y: f32[2] = add(a, a)
        output y
        """,
    )


def test_what_differs_in_an_attribute_is_not_equal() -> None:
    assert_unchanged(
        common_subexpressions,
        """
        input x: f32[2]
        a: f32[2] = leaky_relu(x, alpha=0.5)
        b: f32[2] = leaky_relu(x, alpha=0.25)
        y: f32[2] = sub(a, b)
        output y
        """,
    )


def test_equal_things_under_different_guards_stay_apart() -> None:
    assert_unchanged(
        common_subexpressions,
        """
        input x: f32[2]
        input c: bool[]
        a: f32[2] = exp(x) when c
        b: f32[2] = exp(x)
        y: f32[2] = select(c, a, b)
        output y
        """,
    )


def test_an_output_is_not_replaced_by_its_twin() -> None:
    assert_unchanged(
        common_subexpressions,
        """
        input x: f32[2]
        a: f32[2] = exp(x)
        y: f32[2] = exp(x)
        output a
        output y
        """,
    )


def test_what_nobody_reads_goes() -> None:
    assert_rewrites(
        dead_code,
        """
        input x: f32[2]
        a: f32[2] = exp(x)
        b: f32[2] = neg(a)
        y: f32[2] = neg(x)
        output y
        """,
        """
        input x: f32[2]
        y: f32[2] = neg(x)
        output y
        """,
    )


def test_guards_states_and_assertions_are_reasons_to_stay() -> None:
    assert_unchanged(
        dead_code,
        """
        input x: f32[2]
        input h: f32[2]
        input c: bool[]
        state h = n
        d: bool[] = logical_not(c)
        e: bool[] = assert_true(c, message="so")
        n: f32[2] = add(h, x)
        a: f32[2] = exp(x) when d
        y: f32[2] = select(d, a, x)
        output y
        """,
    )
