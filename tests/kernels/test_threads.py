"""Kernels in parts: what is divided, in how many steps, and that the bits are those of one thread."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from intaglio.ir.graph import Array
from intaglio.ir.types import Layout
from intaglio.kernels.choice import lower_node
from intaglio.kernels.interpret import interpret
from intaglio.kernels.job import Lowered, Scratch
from intaglio.kernels.loop import Split
from intaglio.kernels.threads import split as splitting
from intaglio.kernels.threads.lowering import in_parts
from intaglio.ops.activation import Relu
from intaglio.ops.base import Elementwise
from intaglio.ops.conv import Conv
from intaglio.ops.matmul import MatMul
from intaglio.ops.reduce import Cumsum, Softmax
from support.kernel_hybrid import hybrid, hybrid_rows
from support.kernel_integer_tiles import conv as qconv
from support.kernel_quick import ALL, quick_cases
from support.kernel_running import TARGETS, Call, Case, case, interpreted, prepare


def divided(case: Case, parts: int, isa: str = "avx2") -> Lowered:
    node = case.node()
    target = replace(TARGETS[isa], threads=parts)
    return in_parts(lower_node(node, target, case.using), node, target)


def split_of(case: Case, parts: int = 2) -> Split | None:
    return divided(case, parts).kernel.split


def zeros(*shape: int) -> Array:
    return np.zeros(shape, np.float32)


@pytest.fixture
def everything(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also kernels that are too short to gain by it."""
    monkeypatch.setattr(splitting, "HOST", splitting.Costs(0, 1.0))
    monkeypatch.setattr(splitting, "ENOUGH", 100.0)


def in_any_order(case: Case, isa: str, parts: int) -> tuple[Split | None, list[Array]]:
    """The parts of each step from the last to the first, each with working memory that is full of what would be noticed."""
    whole = prepare(case, TARGETS[isa])
    lowered = divided(case, parts, isa)
    arrays = list(whole.arrays)
    for n, source in enumerate(lowered.arguments):
        if isinstance(source, Scratch):
            arrays[n] = np.full(source.bytes, 0xFF, np.uint8).view(lowered.kernel.params[n].dtype.numpy)
    call = Call(lowered, arrays, whole.outputs)
    assert interpret(lowered.kernel, call.arrays) == 0
    shapes = [o.shape for o in case.node().outputs]
    return lowered.kernel.split, [call.arrays[n].reshape(s) for n, s in zip(call.outputs, shapes, strict=True)]


FIRST = {one.op.NAME: name for name, one in reversed(quick_cases().items())}  # the first case of each operator


def _cases() -> list[object]:
    """One case of each operator with loops of its own is quick; all of them on two instruction sets are slow."""
    quick = [("avx2", name, 3) for name in FIRST.values() if not isinstance(ALL[name].op, Elementwise)] + [("avx2", "add", 3)]
    slow = [pytest.param(isa, name, parts, marks=pytest.mark.slow) for name in ALL for isa, parts in (("avx2", 2), ("neon", 4))]
    return [*quick, *slow]


@pytest.mark.usefixtures("everything")
@pytest.mark.parametrize(("isa", "name", "parts"), _cases())
def test_parts_in_any_order_give_the_bits_of_one_thread(isa: str, name: str, parts: int) -> None:
    _, results = in_any_order(ALL[name], isa, parts)
    code, wanted = interpreted(ALL[name], TARGETS[isa])
    assert code == 0
    for result, want in zip(results, wanted, strict=True):
        assert result.tobytes() == want.tobytes()


@pytest.mark.usefixtures("everything")
def test_most_kernels_are_divided() -> None:
    """Not those that may fail, that go in order (det, topk, qlstm), or that are one tile or one run here."""
    kernels = {op: divided(ALL[name], 2).kernel for op, name in FIRST.items()}
    whole = {op for op, kernel in kernels.items() if kernel.split is None and not kernel.fallible}
    assert len(whole) < len(kernels) / 10
    assert not whole & {"conv", "qconv", "max_pool", "average_pool", "softmax", "layer_norm", "transpose", "concat", "reduce"}
    assert all(kernel.split is None for kernel in kernels.values() if kernel.fallible)


def test_a_product_is_divided_into_equal_parts() -> None:
    made = split_of(case(MatMul(), zeros(196, 192), zeros(192, 768), constant=[1]))
    assert made is not None and made.steps == 1
    assert made.balance < 1.05


def test_each_part_of_attention_packs_into_memory_of_its_own() -> None:
    """scores = q k for each head: the right side is packed into working memory, once per head."""
    lowered = divided(case(MatMul(), zeros(4, 130, 32), zeros(4, 32, 128)), 2)
    assert lowered.kernel.split is not None and lowered.kernel.split.loops == ("b0",)
    (scratch,) = [source for source in lowered.arguments if isinstance(source, Scratch)]
    assert scratch.each == 128 * 32 * 4 and scratch.bytes == 2 * scratch.each


def test_what_all_parts_read_is_made_in_a_step_before() -> None:
    """One product of two computed sides: all parts read what is packed."""
    lowered = divided(case(MatMul(), zeros(384, 64), zeros(64, 384)), 2)
    assert lowered.kernel.split is not None and lowered.kernel.split.steps >= 2
    assert lowered.kernel.split.own == ()


@pytest.mark.parametrize(
    ("name", "made_of"),
    [
        ("row", hybrid_rows(1, 640, 1280, True)),
        ("rows", hybrid_rows(64, 384, 384, False)),
        ("image", hybrid((1, 32, 32, 64), 64, (3, 3))),
    ],
)
def test_floats_are_quantised_in_steps_before_their_products(name: str, made_of: Case) -> None:
    """The extremes of a row or image, its numbers, the products; several rows are quantised by one thread each."""
    made = split_of(made_of)
    assert made is not None and made.steps == (2 if name == "rows" else 3)
    assert made.balance < 1.05


def test_an_uneven_loop_counts_what_its_last_round_does() -> None:
    """56 rows in stripes of 18: rounds of 18, 18, 18 and 2 are not two and two."""
    op, x, w = Conv(pads=(1, 1, 1, 1), layout=Layout.NHWC), zeros(1, 56, 56, 64), zeros(64, 64, 3, 3)
    made = split_of(case(op, x, w, constant=[1], using="conv_nhwc(tile=6x2)"))
    assert made is not None
    assert "stripe" not in made.loops and made.balance < 1.05


def by_winograd(size: int, kind: str) -> Case:
    if kind == "bytes":
        return qconv((1, size, size, 64), 64, (3, 3), pads=(1, 1, 1, 1), using="qwinograd(m=4)")
    op, x, w = Conv(pads=(1, 1, 1, 1), layout=Layout.NHWC), zeros(1, size, size, 64), zeros(64, 64, 3, 3)
    return case(op, x, w, constant=[1], using="winograd(m=4)")


@pytest.mark.parametrize("kind", ["floats", "bytes"])
@pytest.mark.parametrize(("size", "way"), [(56, ("first",)), (7, ("patch", "product"))])
def test_winograd_is_divided_by_patches_or_where_these_are_few_by_products(size: int, way: tuple[str, ...], kind: str) -> None:
    made = split_of(by_winograd(size, kind))
    assert made is not None and set(made.loops) >= set(way)
    assert made.steps == (1 if way == ("first",) else 3)
    assert made.balance < 1.2


@pytest.mark.parametrize(
    "short",
    [case(Relu(), zeros(64, 64)), case(MatMul(), zeros(4, 16), zeros(16, 16), constant=[1]), case(Softmax(axis=-1), zeros(2, 64))],
    ids=["relu", "matmul", "softmax"],
)
def test_short_kernels_stay_whole(short: Case) -> None:
    assert split_of(short) is None


def test_a_sum_that_goes_on_is_divided_where_it_does_not() -> None:
    """Along the rows every element needs the one before; the rows do not need each other."""
    made = split_of(case(Cumsum(axis=1), zeros(64, 4096)))
    assert made is not None and made.balance < 1.05
    assert split_of(case(Cumsum(axis=0), zeros(262144))) is None


def test_rows_of_a_tile_are_proven_to_be_different() -> None:
    from intaglio.kernels.forms import Atom, Form, rows_disjoint

    m, block = Atom("m", 0, 31), Atom("block", 0, 11)
    tile = [(Form(192 * r + 8 * v, ((m, 1152), (block, 16))), 8) for r in range(6) for v in range(2)]
    assert rows_disjoint(tile, block, frozenset())
    assert rows_disjoint(tile, m, frozenset())
    near = [(Form(form.const, ((m, 1151), (block, 16))), count) for form, count in tile]
    assert not rows_disjoint(near, m, frozenset())
    wide = [(form, 9) for form, _ in tile]
    assert not rows_disjoint(wide, block, frozenset())
