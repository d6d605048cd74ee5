"""Attention as exporters write it, as one operator that reads its operands where they are."""

from __future__ import annotations

import pytest

from intaglio.passes.attention import fuse_attention
from intaglio.passes.context import Context
from intaglio.targets.target import find_target
from support.ir_text import assert_rewrites, assert_unchanged

BERT = """
input a: f32[1,5,8]
input b: f32[1,6,8]
input c: f32[1,6,8]
input m: f32[1,1,1,6]
const eight: f32[] = 0.125
a4: f32[1,5,2,4] = reshape(a, shape=(1,5,2,4))
q: f32[1,2,5,4] = transpose(a4, perm=(0,2,1,3))
b4: f32[1,6,2,4] = reshape(b, shape=(1,6,2,4))
k: f32[1,2,4,6] = transpose(b4, perm=(0,2,3,1))
c4: f32[1,6,2,4] = reshape(c, shape=(1,6,2,4))
v: f32[1,2,6,4] = transpose(c4, perm=(0,2,1,3))
s: f32[1,2,5,6] = matmul(q, k)
t: f32[1,2,5,6] = mul(s, eight)
u: f32[1,2,5,6] = add(t, m)
p: f32[1,2,5,6] = softmax(u, axis=3)
z: f32[1,2,5,4] = matmul(p, v)
y: f32[1,5,2,4] = transpose(z, perm=(0,2,1,3))
output y
"""


def test_bert() -> None:
    assert_rewrites(
        fuse_attention,
        BERT,
        """
        input a: f32[1,5,8]
        input b: f32[1,6,8]
        input c: f32[1,6,8]
        input m: f32[1,1,1,6]
        y: f32[1,5,2,4] = attention(a, b, c, m, sizes=(1,2,5,6,4,4), q=(0,0,4,8,1), k=(0,0,4,8,1), v=(0,0,4,8,1), \
masks=((0,0,0,0,1)), scale=0.125, joined=true)
        output y
        """,
    )


def test_vit_reads_all_three_from_one_product() -> None:
    """Both sides are scaled by the root of the factor, as `scaled_dot_product_attention` is exported."""
    assert_rewrites(
        fuse_attention,
        """
        input x: f32[1,5,3,2,4]
        const root: f32[] = 0.5
        a: f32[1,5,1,2,4] = slice(x, starts=(0,0,0,0,0), steps=(1,1,1,1,1), shape=(1,5,1,2,4))
        b: f32[1,5,1,2,4] = slice(x, starts=(0,0,1,0,0), steps=(1,1,1,1,1), shape=(1,5,1,2,4))
        c: f32[1,5,1,2,4] = slice(x, starts=(0,0,2,0,0), steps=(1,1,1,1,1), shape=(1,5,1,2,4))
        as: f32[1,5,1,2,4] = mul(a, root)
        at: f32[1,1,2,5,4] = transpose(as, perm=(2,0,3,1,4))
        q: f32[1,2,5,4] = reshape(at, shape=(1,2,5,4))
        bs: f32[1,5,1,2,4] = mul(b, root)
        bf: f32[5,8] = reshape(bs, shape=(5,8))
        bt: f32[8,5] = transpose(bf, perm=(1,0))
        k: f32[1,2,4,5] = reshape(bt, shape=(1,2,4,5))
        ct: f32[1,1,2,5,4] = transpose(c, perm=(2,0,3,1,4))
        v: f32[1,2,5,4] = reshape(ct, shape=(1,2,5,4))
        s: f32[1,2,5,5] = matmul(q, k)
        p: f32[1,2,5,5] = softmax(s, axis=3)
        y: f32[1,2,5,4] = matmul(p, v)
        output y
        """,
        """
        input x: f32[1,5,3,2,4]
        y: f32[1,2,5,4] = attention(x, x, x, sizes=(1,2,5,5,4,4), q=(0,0,4,24,1), k=(8,0,4,24,1), v=(16,0,4,24,1), scale=0.25)
        output y
        """,
    )


def test_swin_has_a_bias_and_a_mask_of_windows() -> None:
    assert_rewrites(
        fuse_attention,
        """
        input q: f32[4,2,5,3]
        input k: f32[4,2,5,3]
        input v: f32[4,2,5,3]
        const bias: f32[1,2,5,5] ...
        const windows: f32[1,4,1,5,5] ...
        s: f32[4,2,5,5] = matmul(q, k, transpose_b=true)
        t: f32[4,2,5,5] = add(s, bias)
        t5: f32[1,4,2,5,5] = reshape(t, shape=(1,4,2,5,5))
        u5: f32[1,4,2,5,5] = add(t5, windows)
        u: f32[4,2,5,5] = reshape(u5, shape=(4,2,5,5))
        p: f32[4,2,5,5] = softmax(u, axis=-1)
        y: f32[4,2,5,3] = matmul(p, v)
        output y
        """,
        """
        input q: f32[4,2,5,3]
        input k: f32[4,2,5,3]
        input v: f32[4,2,5,3]
        y: f32[4,2,5,3] = attention(q, k, v, bias, windows, sizes=(4,2,5,5,3,3), q=(0,30,15,3,1), k=(0,30,15,3,1), \
v=(0,30,15,3,1), masks=((0,0,25,5,1),(0,25,0,5,1)))
        output y
        """,
    )


GPT = """
input q: f32[1,2,5,3]
input k: f32[1,2,5,3]
input v: f32[1,2,5,3]
const past: bool[1,1,5,5] ...
const fill: f32[] = -3.4028234663852886e+38
s: f32[1,2,5,5] = matmul(q, k, transpose_b=true)
t: f32[1,2,5,5] = where(past, s, fill)
p: f32[1,2,5,5] = softmax(t, axis=3)
y: f32[1,2,5,3] = matmul(p, v)
output y
"""


@pytest.mark.parametrize("choice", ["past, s, fill", "past, fill, s"])
def test_gpt_chooses_between_scores_and_a_very_small_number(choice: str) -> None:
    assert_rewrites(
        fuse_attention,
        GPT.replace("past, s, fill", choice),
        """
        input q: f32[1,2,5,3]
        input k: f32[1,2,5,3]
        input v: f32[1,2,5,3]
        y: f32[1,2,5,3] = attention(q, k, v, mask, sizes=(1,2,5,5,3,3), q=(0,0,15,3,1), k=(0,0,15,3,1), v=(0,0,15,3,1), \
masks=((0,0,0,5,1)))
        output y
        """,
    )


def test_a_computed_condition_becomes_a_mask_that_is_added() -> None:
    assert_rewrites(
        fuse_attention,
        GPT.replace("const past: bool[1,1,5,5] ...", "input past: bool[1,1,1,5]"),
        """
        input q: f32[1,2,5,3]
        input k: f32[1,2,5,3]
        input v: f32[1,2,5,3]
        input past: bool[1,1,1,5]
        mask: f32[1,1,1,5] = where(past, fill_1, fill_2)
        y: f32[1,2,5,3] = attention(q, k, v, mask, sizes=(1,2,5,5,3,3), q=(0,0,15,3,1), k=(0,0,15,3,1), v=(0,0,15,3,1), \
masks=((0,0,0,0,1)))
        output y
        """,
    )


def test_heads_in_the_first_axis_as_torch_has_them() -> None:
    assert_rewrites(
        fuse_attention,
        """
        input a: f32[5,6,3]
        input v: f32[6,5,3]
        q: f32[6,5,3] = transpose(a, perm=(1,0,2))
        s: f32[6,5,5] = matmul(q, v, transpose_b=true)
        p: f32[6,5,5] = softmax(s, axis=2)
        z: f32[6,5,3] = matmul(p, v)
        y: f32[5,6,3] = transpose(z, perm=(1,0,2))
        output y
        """,
        """
        input a: f32[5,6,3]
        input v: f32[6,5,3]
        z_1: f32[1,5,6,3] = attention(a, v, v, sizes=(1,6,5,5,3,3), q=(0,0,3,18,1), k=(0,0,15,3,1), v=(0,0,15,3,1), joined=true)
        y: f32[5,6,3] = reshape(z_1, shape=(5,6,3))
        output y
        """,
    )


def test_one_head_of_keys_for_all_queries() -> None:
    assert_rewrites(
        fuse_attention,
        """
        input q: f32[2,3,5,4]
        input k: f32[2,1,5,4]
        s: f32[2,3,5,5] = matmul(q, k, transpose_b=true)
        p: f32[2,3,5,5] = softmax(s, axis=3)
        y: f32[2,3,5,4] = matmul(p, k)
        output y
        """,
        """
        input q: f32[2,3,5,4]
        input k: f32[2,1,5,4]
        y: f32[2,3,5,4] = attention(q, k, k, sizes=(2,3,5,5,4,4), q=(0,60,20,4,1), k=(0,20,0,4,1), v=(0,20,0,4,1))
        output y
        """,
    )


ONNX = """
input q: f32[1,2,5,3]
input k: f32[1,2,5,3]
input v: f32[1,2,5,3]
input m: f32[5,5]
const least: f32[] = -inf
const zero: f32[] = 0.0
s: f32[1,2,5,5] = matmul(q, k, transpose_b=true)
t: f32[1,2,5,5] = add(s, m)
p: f32[1,2,5,5] = softmax(t, axis=3)
a: f32[5,1] = reduce(m, kind="max", axes=(1))
b: bool[5,1] = equal(a, least)
c: f32[1,2,5,5] = where(b, zero, p)
y: f32[1,2,5,3] = matmul(c, v)
output y
"""


def test_the_body_of_onnx_attention_makes_hidden_rows_zero() -> None:
    assert_rewrites(
        fuse_attention,
        ONNX,
        """
        input q: f32[1,2,5,3]
        input k: f32[1,2,5,3]
        input v: f32[1,2,5,3]
        input m: f32[5,5]
        y: f32[1,2,5,3] = attention(q, k, v, m, sizes=(1,2,5,5,3,3), q=(0,0,15,3,1), k=(0,0,15,3,1), v=(0,0,15,3,1), \
masks=((0,0,0,5,1)), hidden_zero=true)
        output y
        """,
    )


STAYS = {
    "other rows than the hidden ones become zero": ONNX.replace("-inf", "-1.0"),
    "hidden rows become another number": ONNX.replace("const zero: f32[] = 0.0", "const zero: f32[] = 1.0"),
    "the weights are read by somebody else": BERT.replace("output y", "output y\noutput p"),
    "the scores are read by somebody else": BERT.replace("output y", "output y\noutput s"),
    "softmax goes along another axis": BERT.replace("softmax(u, axis=3)", "softmax(u, axis=2)"),
    "the mask is scaled too": BERT.replace("mul(s, eight)", "add(s, m)").replace("add(t, m)", "mul(t, eight)"),
    "the factor is not one number": BERT.replace("mul(s, eight)", "mul(s, m)"),
    "the fill could be a score": GPT.replace("-3.4028234663852886e+38", "-10.0"),
    "there are few rows": GPT.replace("[1,2,5,", "[1,2,3,").replace("[1,1,5,5]", "[1,1,3,5]").replace(
        "k: f32[1,2,3,3]", "k: f32[1,2,5,3]").replace("v: f32[1,2,3,3]", "v: f32[1,2,5,3]"),
}  # fmt: skip


@pytest.mark.parametrize("name", STAYS)
def test_it_stays_where(name: str) -> None:
    assert_unchanged(fuse_attention, STAYS[name])


@pytest.mark.parametrize("target", ["cortex-m4f", "cortex-m55", "opencl-x86-64-v3", "generic"])
def test_layers_stay_separate_on(target: str) -> None:
    assert_unchanged(fuse_attention, BERT, Context(find_target(target)))
