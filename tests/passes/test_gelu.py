"""GELU put together again, in the forms that exporters write."""

from __future__ import annotations

import pytest

from intaglio.passes.gelu import recognise_gelu
from support.ir_text import assert_rewrites, assert_unchanged

HEAD = """
input x: f32[2,3]
const half: f32[] = 0.5
const one: f32[] = 1.0
const root: f32[1] = [0.7071067690849304]
const pi: f32[] = 0.7978845834732056
const cube: f32[] = 0.044714998453855515
"""
ERF = "a: f32[2,3] = mul(x, root)\ne: f32[2,3] = erf(a)\np: f32[2,3] = add(e, one)\n"
CUBE = "s: f32[2,3] = mul(x, x)\nt: f32[2,3] = mul(s, x)\nu: f32[2,3] = mul(cube, t)\nv: f32[2,3] = add(x, u)\n"
TANH = "i: f32[2,3] = mul(pi, v)\ne: f32[2,3] = tanh(i)\np: f32[2,3] = add(one, e)\n"
SQUARE = (
    "c: f32[2,3] = mul(x, cube)\ns: f32[2,3] = mul(c, x)\nv: f32[2,3] = add(s, one)\nw: f32[2,3] = mul(x, pi)\n"
    "i: f32[2,3] = mul(w, v)\ne: f32[2,3] = tanh(i)\np: f32[2,3] = add(e, one)\n"
)
FORMS = {
    "torch": (ERF + "m: f32[2,3] = mul(x, p)\ny: f32[2,3] = mul(m, half)", "gelu(x)"),
    "keras": (ERF + "m: f32[2,3] = mul(half, x)\ny: f32[2,3] = mul(m, p)", "gelu(x)"),
    "half of the gate": (ERF + "m: f32[2,3] = mul(p, half)\ny: f32[2,3] = mul(m, x)", "gelu(x)"),
    "tanh of a cube": (CUBE + TANH + "m: f32[2,3] = mul(x, half)\ny: f32[2,3] = mul(m, p)", "gelu(x, approximate=true)"),
    "tanh of a square": (SQUARE + "m: f32[2,3] = mul(p, x)\ny: f32[2,3] = mul(half, m)", "gelu(x, approximate=true)"),
}


@pytest.mark.parametrize("name", FORMS)
def test_gelu_as_it_is_written_by(name: str) -> None:
    before, after = FORMS[name]
    assert_rewrites(recognise_gelu, f"{HEAD}{before}\noutput y", f"input x: f32[2,3]\ny: f32[2,3] = {after}\noutput y")


STAYS = {
    "another constant": FORMS["torch"][0].replace("mul(m, half)", "mul(m, one)"),
    "another scale inside": FORMS["torch"][0].replace("mul(x, root)", "mul(x, half)"),
    "another number than 1": FORMS["torch"][0].replace("add(e, one)", "add(e, half)"),
    "the square of x": FORMS["tanh of a cube"][0].replace("mul(s, x)", "mul(s, one)"),
    "another function": FORMS["torch"][0].replace("erf", "tanh"),
    "two different x": "q: f32[2,3] = abs(x)\n" + FORMS["torch"][0].replace("mul(x, p)", "mul(q, p)"),
}


@pytest.mark.parametrize("name", STAYS)
def test_what_only_looks_like_gelu_stays(name: str) -> None:
    assert_unchanged(recognise_gelu, f"{HEAD}{STAYS[name]}\noutput y")


def test_gelu_is_not_recognised_across_a_guard() -> None:
    text = HEAD + "input c: bool[]\n" + ERF + "m: f32[2,3] = mul(x, p) when c\nz: f32[2,3] = mul(m, half) when c\n"
    assert_unchanged(recognise_gelu, text + "y: f32[2,3] = select(c, z, x)\noutput y")
