"""Trees in assembly: an emulated core gives the bits of the reference, with the C beside it as without."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from intaglio.frontends.onnx.trees import Forest, Split
from intaglio.ir.types import DType
from intaglio.kernels.job import Job
from intaglio.kernels.tree_assembly import is_immediate, overlapping
from intaglio.kernels.tree_functions import assembly_applies
from intaglio.kernels.tree_tables import Tables, tables_of
from intaglio.ops.trees import THRESHOLDS, WHOLE, TreeEnsemble
from intaglio.targets.target import find_target
from support.kernel_emulated import emulated_cases
from support.kernel_running import Case, case, interpreted
from support.tree_models import TREES, forest_case

CORE = find_target("cortex-m4f")


def with_any_nan(given: Case) -> Case:
    """Missing values of both signs, with small and large payloads."""
    x = given.operands[0]
    assert x is not None
    bits = x.view(np.uint32)
    odd = np.array([0xFF800001, 0xFFFFFFFF, 0x7F800001, 0x7FFFFFFF, 0xFFC00000, 0x80000001], np.uint32)
    where = np.random.default_rng(3).random(bits.shape) < 0.3
    bits[where] = np.resize(odd, int(where.sum()))
    return given


def with_thresholds(given: Case, *values: float) -> Case:
    thresholds = given.operands[THRESHOLDS]
    assert thresholds is not None
    thresholds[:: len(thresholds) // 40 + 1] = np.resize(
        np.array(values, np.float32), len(thresholds[:: len(thresholds) // 40 + 1])
    )
    return given


def deep_case(depth: int, *forks: int) -> Case:
    """A tree that is a chain, with two chains below nodes at these heights."""
    rng = np.random.default_rng(5)
    nodes: list[Split | None] = []

    def grow(left: int) -> int:
        here = len(nodes)
        nodes.append(None)
        if left:
            side, feature, value = int(rng.integers(2)), int(rng.integers(60)), float(rng.standard_normal() * 3)
            low, high = (grow(left - 1 if left in forks or side == n else 0) for n in range(2))
            nodes[here] = Split("BRANCH_LEQ", feature, value, low, high, False)
        return here

    grow(depth)
    forest = Forest(DType.F32)
    forest.tree(0, lambda key: nodes[key] or ((0, float(key)),))
    x = (rng.standard_normal((40, 60)) * 4).astype(np.float32)
    return case(TreeEnsemble(1, "sum"), x, *forest.tables([0.5]), constant=range(1, 10), bound=1e-12)


def wide_thresholds() -> Case:
    """Those that a comparison has room for, and those that it has not."""
    given = forest_case(20, 3, depth=7, dtype=DType.I16)
    x, thresholds = given.operands[0], given.operands[THRESHOLDS]
    assert x is not None and thresholds is not None
    kinds = [0, 1, -1, 255, 256, -256, 257, 1020, 0x5500, 4080, 4081, 32767, -32768, -32767, 0x1234]
    thresholds[:] = np.resize(np.array(kinds, np.int16), len(thresholds))
    x[:] = np.random.default_rng(2).choice(np.array([*kinds, 2, 258, -2, -257, 32766], np.int16), x.shape)
    return given


CASES = {
    **{n: c for n, c in TREES.items() if c.op.NAME == "tree_ensemble" and assembly_applies(Job(c.node(), CORE)) is None},
    **{f"{targets} targets": forest_case(5, targets, depth=5) for targets in range(1, 9)},
    "features in memory": forest_case(20, 4, depth=7, count=40),
    "features far in memory": forest_case(60, 2, depth=8, count=300, rows=5),
    "missing values of many features": with_any_nan(forest_case(12, 3, depth=7, count=30, tracks=True)),
    "missing values of either sign": with_any_nan(forest_case(9, 2, tracks=True)),
    "thresholds of every kind": with_any_nan(with_thresholds(forest_case(9, 2, tracks=True), np.nan, np.inf, -np.inf, -0.0, 1e-45)),
    **{f"features of {dtype.value}": forest_case(20, 3, depth=7, count=40, dtype=dtype) for dtype in WHOLE},
    "thresholds of every width": wide_thresholds(),
    "as deep as can be": deep_case(60, 60, 57, 30, 20),
    "constants beyond reach": forest_case(2, 1, depth=13, count=12),
}
MANY = {"weights beyond 16 bits": forest_case(230, 8, depth=8, rows=3)}


def test_there_are_cases_of_every_kind() -> None:
    assert len(CASES) >= 20
    tables = tables_of(Job(MANY["weights beyond 16 bits"].node(), CORE))
    assert isinstance(tables, Tables) and max(overlapping(tables, 8)[1]) >= 1 << 16


@pytest.mark.parametrize("name", CASES)
def test_the_routine_means_what_the_reference_says(name: str) -> None:
    code, results = interpreted(replace(CASES[name], using="trees_assembly"), CORE)
    assert code == 0
    np.testing.assert_array_equal(results[0], CASES[name].expected()[0])


OTHERS = [pytest.param(core, marks=pytest.mark.slow) for core in ("cortex-m7", "cortex-m33")]


@pytest.mark.parametrize("core", ["cortex-m4f", *OTHERS])
def test_the_emulated_core_gives_the_same_bits(core: str, tmp_path: Path) -> None:
    cases = {n: replace(c, using="trees_assembly", bound=0.0) for n, c in (CASES | (MANY if core == "cortex-m4f" else {})).items()}
    assert not (wrong := emulated_cases(cases, find_target(core), tmp_path)), "\n".join(wrong)


def test_leaves_share_numbers_and_keep_their_weights() -> None:
    for forest in (forest_case(30, 3), CASES["8 targets"]):
        tables = tables_of(Job(forest.node(), CORE))
        assert isinstance(tables, Tables)
        width = len(tables.targets_of)
        few = np.resize(np.array([0, 1, 2, 0, 0, 3, 1], np.float32), tables.weights.size)  # so that ends are beginnings
        for weights in (tables.weights, few):
            held, numbers = overlapping(replace(tables, weights=weights), width)
            rows = weights.reshape(-1, width)
            np.testing.assert_array_equal([held[n : n + width] for n in numbers], rows)
    assert held.size < few.size


def test_numbers_that_a_comparison_has_room_for() -> None:
    """As the assembler takes them: #256 is a byte that is shifted, #257 is not."""
    room = [0, 255, 256, 1020, 4080, 0x5500, 0xFF00FF, 0xAB00AB00, 0xCDCDCDCD, 0xFF000000]
    assert [n for n in (*room, 257, 4081, 0x1FF, 0x1234, 0xFF0100) if is_immediate(n)] == room


def test_it_is_for_thumb_2_with_an_fpu() -> None:
    node = forest_case(3).node()
    assert assembly_applies(Job(node, CORE)) is None
    for other in ("cortex-m0+", "cortex-m3", "rv32imafc"):
        assert assembly_applies(Job(node, find_target(other))) == "it is for Thumb-2 cores with an FPU"
    assert "1024" in str(assembly_applies(Job(forest_case(3, count=1025).node(), CORE)))
    assert "f32" in str(assembly_applies(Job(forest_case(3, dtype=DType.F64).node(), CORE)))
