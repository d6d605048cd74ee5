"""Cheaper operators, and operators put together again."""

from __future__ import annotations

import pytest

from intaglio.passes.recognise import join_norm_scale, recognise_layer_norm
from intaglio.passes.strength import reduce_strength
from support.ir_text import assert_rewrites, assert_unchanged

HEAD = """
input x: f32[2,3]
const two: f32[] = 2.0
const three: f32[] = 3.0
const half: f32[1] = [0.5]
const less: f32[] = -1.0
const one: f32[] = 1.0
const eight: f32[3] = [8.0, 8.0, 4.0]
const zero: f32[] = 0.0
const six: f32[] = 0.1666666716337204
"""
CHEAPER = {
    "a square": ("y: f32[2,3] = pow(x, two)", "y: f32[2,3] = mul(x, x)"),
    "a cube": ("y: f32[2,3] = pow(x, three)", "y_1: f32[2,3] = mul(x, x)\ny: f32[2,3] = mul(y_1, x)"),
    "a root": ("a: f32[2,3] = abs(x)\ny: f32[2,3] = pow(a, half)", "a: f32[2,3] = abs(x)\ny: f32[2,3] = sqrt(a)"),
    "an inverse": ("y: f32[2,3] = pow(x, less)", "y: f32[2,3] = reciprocal(x)"),
    "the first power": ("y: f32[2,3] = pow(x, one)", "y: f32[2,3] = reshape(x, shape=(2,3))"),
    "a division": ("y: f32[2,3] = div(x, eight)", "y: f32[2,3] = mul(x, eight_1)"),
    "a clip from 0": ("y: f32[2,3] = clip(x, low=0.0)", "y: f32[2,3] = relu(x)"),
    "a maximum with 0": ("y: f32[2,3] = max(zero, x)", "y: f32[2,3] = relu(x)"),
    "a minimum": ("y: f32[2,3] = min(x, two)", "y: f32[2,3] = clip(x, high=2.0)"),
    "relu6": ("a: f32[2,3] = relu(x)\ny: f32[2,3] = clip(a, low=-1.0, high=6.0)", "y: f32[2,3] = clip(x, low=0.0, high=6.0)"),
    "silu": ("a: f32[2,3] = sigmoid(x)\ny: f32[2,3] = mul(a, x)", "y: f32[2,3] = silu(x)"),
    "hard swish": (
        "a: f32[2,3] = hard_sigmoid(x, alpha=0.16666667, beta=0.5)\ny: f32[2,3] = mul(x, a)", "y: f32[2,3] = hard_swish(x)",
    ),
    "hard swish spelled out": (
        "a: f32[2,3] = add(x, three)\nb: f32[2,3] = clip(a, low=0.0, high=6.0)\nc: f32[2,3] = mul(x, b)\n"
        "y: f32[2,3] = mul(c, six)", "y: f32[2,3] = hard_swish(x)",
    ),
    "hard swish in another order": (
        "a: f32[2,3] = add(three, x)\nb: f32[2,3] = clip(a, low=0.0, high=6.0)\nc: f32[2,3] = mul(six, b)\n"
        "y: f32[2,3] = mul(c, x)", "y: f32[2,3] = hard_swish(x)",
    ),
    "a transpose that moves nothing": (
        "a: f32[2,1,3] = reshape(x, shape=(2,1,3))\ny: f32[1,2,3] = transpose(a, perm=(1,0,2))",
        "a: f32[2,1,3] = reshape(x, shape=(2,1,3))\ny: f32[1,2,3] = reshape(a, shape=(1,2,3))",
    ),
    "a choice that is known": (
        "const no: bool[3] = [false, false, false]\ny: f32[2,3] = where(no, two, x)", "y: f32[2,3] = reshape(x, shape=(2,3))",
    ),
    "an expansion by axes of one": ("y: f32[1,2,3] = expand(x, shape=(1,2,3))", "y: f32[1,2,3] = reshape(x, shape=(1,2,3))"),
}  # fmt: skip


@pytest.mark.parametrize("name", CHEAPER)
def test_there_is_something_cheaper_than(name: str) -> None:
    before, after = CHEAPER[name]
    assert_rewrites(reduce_strength, f"{HEAD}{before}\noutput y", f"input x: f32[2,3]\n{after}\noutput y")


STAYS = {
    "a choice of a number": "const yes: bool[3] = [true, true, true]\ny: f32[2,3] = where(yes, two, x)",
    "a choice by element": "const some: bool[3] = [true, false, true]\ny: f32[2,3] = where(some, two, x)",
    "a power of 4": "const four: f32[] = 4.0\ny: f32[2,3] = pow(x, four)",
    "a square that grows": "const twos: f32[2,1,1] = [2.0, 2.0]\ny: f32[2,2,3] = pow(x, twos)",
    "powers that differ": "const p: f32[3] = [2.0, 2.0, 3.0]\ny: f32[2,3] = pow(x, p)",
    "a division by what is computed": "a: f32[2,3] = exp(x)\ny: f32[2,3] = div(x, a)",
    "a division by zero": "y: f32[2,3] = div(x, zero)",
    "a division by what has no exact-enough inverse": "const huge: f32[] = 3e+38\ny: f32[2,3] = div(x, huge)",
    "a maximum of two values": "a: f32[2,3] = exp(x)\ny: f32[2,3] = max(x, a)",
    "a product with another's sigmoid": "a: f32[2,3] = exp(x)\nb: f32[2,3] = sigmoid(a)\ny: f32[2,3] = mul(x, b)",
    "a transpose that moves": "y: f32[3,2] = transpose(x, perm=(1,0))",
    "an expansion that repeats": "y: f32[2,2,3] = expand(x, shape=(2,2,3))",
}


@pytest.mark.parametrize("name", STAYS)
def test_nothing_is_cheaper_than(name: str) -> None:
    assert_unchanged(reduce_strength, f"{HEAD}{STAYS[name]}\noutput y")


def test_integer_division_is_not_multiplied() -> None:
    assert_unchanged(
        reduce_strength,
        """
        input x: i32[3]
        const d: i32[] = 2
        y: i32[3] = div(x, d)
        output y
        """,
    )


def test_a_gate_under_another_guard_stays() -> None:
    assert_unchanged(
        reduce_strength,
        """
        input x: f32[3]
        input c: bool[]
        a: f32[3] = sigmoid(x)
        b: f32[3] = mul(x, a) when c
        y: f32[3] = select(c, b, x)
        output y
        """,
    )


def test_a_layer_norm_that_was_spelled_out_is_one_operator() -> None:
    assert_rewrites(
        recognise_layer_norm,
        """
        input x: f32[2,3,4]
        const e: f32[] = 0.5
        m: f32[2,3,1] = reduce(x, kind="mean", axes=(-1))
        d: f32[2,3,4] = sub(x, m)
        q: f32[2,3,4] = mul(d, d)
        v: f32[2,3,1] = reduce(q, kind="mean", axes=(2))
        a: f32[2,3,1] = add(e, v)
        s: f32[2,3,1] = sqrt(a)
        y: f32[2,3,4] = div(d, s)
        output y
        """,
        """
        input x: f32[2,3,4]
        y: f32[2,3,4] = layer_norm(x, axis=2, epsilon=0.5)
        output y
        """,
    )


def test_a_layer_norm_by_a_reciprocal_and_two_differences() -> None:
    assert_rewrites(
        recognise_layer_norm,
        """
        input x: f32[2,3,4]
        const e: f32[] = 0.25
        m: f32[2,1,1] = reduce(x, kind="mean", axes=(1,2))
        d: f32[2,3,4] = sub(x, m)
        f: f32[2,3,4] = sub(x, m)
        q: f32[2,3,4] = mul(f, f)
        v: f32[2,1,1] = reduce(q, kind="mean", axes=(1,2))
        a: f32[2,1,1] = add(v, e)
        s: f32[2,1,1] = sqrt(a)
        r: f32[2,1,1] = reciprocal(s)
        y: f32[2,3,4] = mul(r, d)
        output y
        """,
        """
        input x: f32[2,3,4]
        y: f32[2,3,4] = layer_norm(x, axis=1, epsilon=0.25)
        output y
        """,
    )


@pytest.mark.parametrize(
    "change",
    [("axes=(2)", "axes=(1)"), ('q, kind="mean"', 'q, kind="l1"'), ("mul(d, d)", "mul(d, x)"), ('x, kind="mean"', 'x, kind="max"')],
    ids=["another axis", "not the mean square", "not a square", "not the mean"],
)
def test_what_only_looks_like_a_layer_norm_stays(change: tuple[str, str]) -> None:
    text = """
        input x: f32[2,3,3]
        const e: f32[] = 1e-05
        m: f32[2,3,1] = reduce(x, kind="mean", axes=(2))
        d: f32[2,3,3] = sub(x, m)
        q: f32[2,3,3] = mul(d, d)
        p: f32[2,3,3] = abs(q)
        v: f32[2,3,1] = reduce(q, kind="mean", axes=(2))
        a: f32[2,3,1] = add(e, v)
        s: f32[2,3,1] = sqrt(a)
        y: f32[2,3,3] = div(d, s)
        output y
        output p
        """
    assert change[0] in text
    if change[1] == "axes=(1)":
        text = text.replace("f32[2,3,1]", "f32[2,1,3]")
    assert_unchanged(recognise_layer_norm, text.replace(*change))


RMS = """
input x: f32[2,3,4]
const e: f32[] = 0.5
q: f32[2,3,4] = mul(x, x)
v: f32[2,3,1] = reduce(q, kind="mean", axes=(-1))
a: f32[2,3,1] = add(v, e)
s: f32[2,3,1] = sqrt(a)
"""


@pytest.mark.parametrize("form", ["y: f32[2,3,4] = div(x, s)", "r: f32[2,3,1] = reciprocal(s)\ny: f32[2,3,4] = mul(x, r)"])
def test_an_rms_norm_that_was_spelled_out_is_one_operator(form: str) -> None:
    after = "input x: f32[2,3,4]\ny: f32[2,3,4] = layer_norm(x, axis=2, epsilon=0.5, centred=false)\noutput y"
    assert_rewrites(recognise_layer_norm, f"{RMS}{form}\noutput y", after)


def test_the_mean_square_of_something_else_is_no_norm() -> None:
    text = RMS.replace("q: f32[2,3,4] = mul(x, x)", "z: f32[2,3,4] = abs(x)\nq: f32[2,3,4] = mul(z, z)")
    assert_unchanged(recognise_layer_norm, f"{text}y: f32[2,3,4] = div(x, s)\noutput y")


SCALED = """
input x: f32[2,3,4]
const s: f32[1,4] ...
const t: f32[4] ...
n: f32[2,3,4] = layer_norm(x, axis=2)
m: f32[2,3,4] = mul(s, n)
y: f32[2,3,4] = add(m, t)
output y
"""


def test_a_norm_applies_the_scale_and_bias_behind_it() -> None:
    after = "input x: f32[2,3,4]\ny: f32[2,3,4] = layer_norm(x, s_1, t, axis=2)\noutput y"
    assert_rewrites(join_norm_scale, SCALED, after)
    only = SCALED.replace("mul(s, n)", "relu(n)").replace("add(m, t)", "add(n, t)").replace("output y", "output y\noutput m")
    assert_unchanged(join_norm_scale, only)  # read twice


@pytest.mark.parametrize(
    "change", [("s: f32[1,4]", "s: f32[3,4]"), ("output y", "output y\noutput n\noutput m")], ids=["a scale per row", "read twice"]
)
def test_scale_and_bias_of_a_norm_stay_where(change: tuple[str, str]) -> None:
    assert_unchanged(join_norm_scale, SCALED.replace(*change))
