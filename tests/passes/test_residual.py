"""A convolution adds what runs beside it, on cores whose kernels can."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from intaglio.ir.graph import Graph
from intaglio.passes.context import Context
from intaglio.passes.residual import fuse_sum
from intaglio.targets.target import find_target
from support.ir_text import assert_rewrites, assert_unchanged

_SUM = "a_multiplier=1073741824, b_multiplier=1500000000, b_shift=-1, multiplier=1500000000, shift=-18"
_TOP = """
        input x: i8[1,4,4,2]
        input r: i8[1,4,4,3]
        const w: i8[3,2,1,1] ...
        const b: i32[3] ...
        const m: i32[3] ...
        const s: i32[3] ..."""


def on_m4(graph: Graph, _: Context) -> Graph:
    return fuse_sum(graph, Context(find_target("cortex-m4f")))


def on_m0(graph: Graph, _: Context) -> Graph:
    return fuse_sum(graph, Context(find_target("cortex-m0+")))


@pytest.mark.parametrize("on_core", [on_m4, on_m0])
def test_a_residual_joins_the_convolution(on_core: Callable[[Graph, Context], Graph]) -> None:
    assert_rewrites(
        on_core,
        f"""{_TOP}
        a: i8[1,4,4,3] NHWC = qconv(x, w, b, m, s)
        y: i8[1,4,4,3] NHWC = qadd(r, a, {_SUM})
        output y
        """,
        f"""
        input x: i8[1,4,4,2]
        input r: i8[1,4,4,3]
        y: i8[1,4,4,3] NHWC = qconv(x, w, b, m, s, r, epilogue=[qadd(1, 0, {_SUM})])
        output y
        """,
    )


def test_a_result_with_another_reader_stays() -> None:
    assert_unchanged(
        on_m4,
        f"""{_TOP}
        a: i8[1,4,4,3] NHWC = qconv(x, w, b, m, s)
        y: i8[1,4,4,3] NHWC = qadd(r, a, {_SUM})
        output y
        output a
        """,
    )


def test_without_the_dsp_extension_the_lowest_weight_keeps_the_sum_apart() -> None:
    text = f"""{_TOP.replace("i8[3,2,1,1] ...", "i8[3,2,1,1] = [1, 2, 3, 4, 5, -128]")}
        a: i8[1,4,4,3] NHWC = qconv(x, w, b, m, s)
        y: i8[1,4,4,3] NHWC = qadd(r, a, {_SUM})
        output y
        """
    assert_unchanged(on_m0, text)


def test_other_targets_keep_the_sum_apart() -> None:
    assert_unchanged(
        fuse_sum,
        f"""{_TOP}
        a: i8[1,4,4,3] NHWC = qconv(x, w, b, m, s)
        y: i8[1,4,4,3] NHWC = qadd(r, a, {_SUM})
        output y
        """,
    )
