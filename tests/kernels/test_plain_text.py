"""Kernels say no more than they need: numbers as numbers, no braces around nothing, no tests of a border that is never reached."""

from __future__ import annotations

import pytest

from intaglio.ir.types import DType
from intaglio.kernels.builder import Builder
from intaglio.kernels.c_printer import print_kernel
from intaglio.kernels.choice import lower_node
from intaglio.kernels.loop import Braces, Buffer, If, Kernel, Num, Store, Type
from intaglio.kernels.unused import drop_unused
from intaglio.targets.target import find_target
from support.ir_text import graph_of

Y = Buffer("y", DType.F32, const=False)
ONE = Num(1.0, Type("f32"))


def text_of(graph: str, target: str) -> str:
    """The kernel of the last node, as C."""
    node = graph_of(graph).nodes[-1]
    kernel = lower_node(node, find_target(target)).kernel
    kernel.name = "k"
    return print_kernel(kernel)


@pytest.mark.parametrize("target", ["x86-64-v3", "cortex-m4f"])
def test_a_constant_of_one_element_is_a_number(target: str) -> None:
    text = text_of("input x: f32[1,64]\nconst s: f32[1] = [0.05]\ny: f32[1,64] = div(x, s)\noutput y", target)
    assert "0.05f" in text
    assert text.count("const float *") == 1  # x alone is a parameter


def test_a_constant_of_more_elements_is_read() -> None:
    text = text_of("input x: f32[1,2]\nconst s: f32[2] = [0.05, 0.5]\ny: f32[1,2] = div(x, s)\noutput y", "cortex-m4f")
    assert "0.05f" not in text and text.count("const float *") == 2


@pytest.mark.parametrize("target", ["x86-64-v3", "cortex-m4f", "cortex-m0+"])
@pytest.mark.parametrize(("pads", "size", "cut"), [("(0,0,0,0)", 4, False), ("(1,1,1,1)", 5, True)])
def test_pools_that_stay_inside_are_not_cut(pads: str, size: int, cut: bool, target: str) -> None:
    pool = f"qaverage_pool(x, kernel=(2,2), strides=(2,2), pads={pads}, low=-128, high=127)"
    text = text_of(f"input x: i8[1,8,8,16]\ny: i8[1,{size},{size},16] = {pool}\noutput y", target)
    assert ("row_first" in text and "ig_min_idx" in text) == cut
    assert ("_idx(" in text) == cut


def test_a_block_that_holds_nothing_apart_has_no_braces() -> None:
    k = Builder()
    with k.loop("i", 0, 9) as i, k.block(), k.block():
        k.store(Y, i, ONE)
    (loop,) = drop_unused(k.body())
    assert [type(s) for s in loop.body] == [Store]  # type: ignore[union-attr]


def test_blocks_that_use_a_name_twice_keep_their_braces() -> None:
    k = Builder()
    for n in (0, 1):
        with k.block():
            total = k.var("total", ONE)
            k.store(Y, n, total)
    assert [type(s) for s in drop_unused(k.body())] == [Braces, Braces]


def test_a_condition_around_nothing_goes() -> None:
    k = Builder()
    with k.when(ONE.compare("lt", 2.0)):
        k.let("unread", ONE + 1.0)
    assert not any(isinstance(s, If) for s in drop_unused(k.body()))


def test_a_long_name_of_a_layer_is_cut_in_the_comment() -> None:
    k = Builder()
    k.store(Y, 0, ONE)
    name = "model/functional_1/" + "batch_normalization_" * 3
    text = print_kernel(Kernel("k", (Y,), k.body(), "fill", name="k", used_by=[name]))
    assert f" * Used by: {name[:57]}...\n" in text
