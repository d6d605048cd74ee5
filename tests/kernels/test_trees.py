"""Trees as tables: compiled code gives the bits of the reference, and tables are as small as they can be."""

from __future__ import annotations

import ctypes
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from intaglio.ir.types import DType
from intaglio.kernels.choice import usual_way
from intaglio.kernels.job import Job, Packed
from intaglio.kernels.tree_functions import functions_apply
from intaglio.kernels.tree_tables import Tables, code_tables_of, places_of, short_from
from intaglio.kernels.trees import abreast_applies, coded_applies
from intaglio.ops.fixed_point import order, short_order
from intaglio.ops.trees import BASE, CHILDREN, ROOTS, WEIGHTS, TreeEnsemble
from intaglio.run.toolchains import find_toolchain
from intaglio.targets.target import Target, find_target, optimized
from support.kernel_running import TARGETS, Case, call_compiled, compile_c, interpreted, prepare, write_c
from support.tree_models import TREES, forest_case


@pytest.mark.parametrize("using", ["trees_walked", ""])
def test_compiled_trees_give_the_bits_of_the_reference(using: str, tmp_path: Path) -> None:
    cases = {name: replace(case, using=using or case.using) for name, case in TREES.items() if case.op.NAME == "tree_ensemble"}
    assert_compiled(cases, TARGETS["scalar"], tmp_path)


def assert_compiled(cases: dict[str, Case], target: Target, tmp_path: Path) -> None:
    """Built for this machine, kernels of the target give the bits of the reference."""
    calls = {name: prepare(case, target) for name, case in cases.items()}
    write_c(list(calls.values()), target.isa, tmp_path / "kernels.c")
    made = tmp_path / "kernels.so"
    compile_c(find_toolchain(), TARGETS["scalar"], tmp_path / "kernels.c", made, "-O2", "-shared", "-fPIC", "-lm")
    library = ctypes.CDLL(str(made))
    for name, call in calls.items():
        assert call_compiled(library, call) == 0
        wanted = cases[name].expected()[0]
        np.testing.assert_array_equal(call.arrays[call.outputs[0]].reshape(wanted.shape), wanted, err_msg=name)


@pytest.mark.parametrize("using", ["trees_walked", "trees_coded"])
@pytest.mark.parametrize("name", [n for n, case in TREES.items() if case.op.NAME == "tree_ensemble"])
def test_small_cores_compare_whole_numbers_and_give_the_same_bits(name: str, using: str) -> None:
    code, results = interpreted(replace(TREES[name], using=using), CORE)
    assert code == 0
    np.testing.assert_array_equal(results[0], TREES[name].expected()[0])


@pytest.mark.parametrize("using", ["trees_walked", "trees_coded", "trees_functions"])
@pytest.mark.parametrize(
    "name", ["trees", "trees of several targets", "trees with one target each", "trees, average", "trees of bytes"]
)
def test_sums_of_whole_numbers_are_nearer_to_the_real_ones_than_is_promised(name: str, using: str) -> None:
    forest, core = replace(TREES[name], using=using), find_target("cortex-m0+")
    job = Job(forest.node(), core)
    places = places_of(job)
    if using == "trees_functions" and functions_apply(job):
        pytest.skip(str(functions_apply(job)))
    assert places is not None and places_of(Job(forest.node(), CORE)) is None
    trees, weights, base = (np.asarray(forest.operands[n]) for n in (ROOTS, WEIGHTS, BASE))
    doubles = [o if n not in (WEIGHTS, BASE) else np.asarray(o, np.float64) for n, o in enumerate(forest.operands)]
    real = TreeEnsemble.reference(forest.op, *doubles)[0]  # type: ignore[arg-type]
    code, (found,) = interpreted(forest, core)
    largest = 2.0 ** (30 - places)
    assert np.abs(weights).max() * len(trees) >= np.abs(real - base).max() and code == 0
    error = np.abs(found - real) - np.abs(real) * 2.0**-22  # the last roundings are those of floats
    assert error.max() <= (len(trees) + 1) * largest / 2**30


def test_whole_sums_are_for_cores_without_a_unit_for_floats() -> None:
    job = {name: Job(forest_case(9, 2).node(), find_target(name)) for name in ("cortex-m0+", "cortex-m3", "cortex-m4f", "host")}
    assert {name: places_of(one) is not None for name, one in job.items()} == {
        "cortex-m0+": True, "cortex-m3": True, "cortex-m4f": False, "host": False,
    }  # fmt: skip
    assert places_of(Job(forest_case(3, aggregate="max").node(), find_target("cortex-m0+"))) is None


CORE = replace(find_target("cortex-m0+"), exact=True)  # sums are those of floats
AS_FUNCTIONS = {
    name: replace(case, using="trees_functions")
    for name, case in TREES.items()
    if case.op.NAME == "tree_ensemble" and functions_apply(Job(case.node(), CORE)) is None
}


@pytest.mark.parametrize("name", AS_FUNCTIONS)
def test_functions_of_trees_mean_the_same(name: str) -> None:
    code, results = interpreted(AS_FUNCTIONS[name], CORE)
    assert code == 0
    np.testing.assert_array_equal(results[0], AS_FUNCTIONS[name].expected()[0])


def test_functions_of_trees_compute_the_same(tmp_path: Path) -> None:
    assert len(AS_FUNCTIONS) >= 3
    assert_compiled(AS_FUNCTIONS, CORE, tmp_path)


def test_functions_of_trees_are_for_sums_of_a_few_targets() -> None:
    reasons = {name: functions_apply(Job(forest.node(), CORE)) for name, forest in {
        "largest": forest_case(3, aggregate="max"), "many targets": forest_case(3, 9), "any leaves": forest_case(9, 4, "any"),
        "doubles": forest_case(3, dtype=DType.F64),
    }.items()}  # fmt: skip
    assert all(reasons.values()), reasons
    assert "guess branches" in str(functions_apply(Job(forest_case(3).node(), find_target("x86-64-v3"))))


def test_whole_numbers_are_ordered_as_floats_are() -> None:
    rising = np.array([-np.inf, -3e38, -1.0, -1e-45, -0.0, 0.0, 1e-45, 1.0, 3e38, np.inf, np.nan], np.float32)
    assert (np.diff(order(rising).astype(np.int64)) > 0).all()
    assert order(np.array(0.0, np.float32)) == 0


def test_missing_values_are_on_either_side_of_short_numbers() -> None:
    rng = np.random.default_rng(0)
    for limits in ([0.5, -0.5], [1e-30, -3e3, 2.5], [0.0, 1.5, -1e-20], [np.inf, 7.25, 7.25 + 2**-21]):
        thresholds = np.array(limits, np.float32)
        least = short_from(thresholds)
        assert least is not None
        up, down = (np.nextafter(thresholds, np.float32(side)) for side in (np.inf, -np.inf))
        x = np.concatenate([thresholds, up, down, rng.standard_normal(99), 10.0 ** rng.integers(-44, 38, 99), [0, -0.0, -np.inf]])
        x = x.astype(np.float32)[:, None]
        keys, codes = short_order(x, least), short_order(thresholds, least)
        np.testing.assert_array_equal(keys <= codes, x <= thresholds)
        np.testing.assert_array_equal(keys.view(np.uint32) <= codes.view(np.uint32), x <= thresholds)
        missing = short_order(np.array([np.nan, -np.nan], np.float32)[:, None], least)
        assert (missing <= codes).all() and (missing.view(np.uint32) > codes.view(np.uint32)).all()


def test_thresholds_that_are_too_far_from_each_other_ask_about_negations() -> None:
    assert short_from(np.array([0.0, 2.5], np.float32)) is None  # numbers between zero and 2.5 take 31 bits by themselves
    assert short_from(np.array([1e-30, 1e30], np.float32)) is None
    for name, short in {"trees of many magnitudes": True, "trees of many magnitudes and zero": False, "trees": False}.items():
        found = code_tables_of(Job(TREES[name].node(), CORE))
        assert isinstance(found, Tables) and (found.least is not None) == short and found.negated == ("zero" in name)


def test_signed_features_are_widened_where_many_nodes_ask() -> None:
    def widened(name: str) -> bool:
        lowered = prepare(replace(TREES[name], using="trees_functions"), CORE).lowered
        return "keys" in [param.name for param in lowered.kernel.params]

    assert [widened(name) for name in ("trees of 16 bits, many nodes", "trees of bytes")] == [True, False]


def tables(case: Case, target: str = "cortex-m4f") -> dict[str, DType]:
    lowered = prepare(replace(case, using="trees_walked"), find_target(target)).lowered
    held = zip(lowered.kernel.params, lowered.arguments, strict=True)
    return {param.name: source.dtype for param, source in held if isinstance(source, Packed)}


def test_features_take_a_byte_and_children_one_or_two() -> None:
    small, large = tables(forest_case(2, depth=3)), tables(forest_case(40))
    assert (small["features"], small["left"], small["right"]) == (DType.U8, DType.I8, DType.I8)
    assert (large["features"], large["left"], large["right"]) == (DType.U8, DType.I16, DType.I16)


def test_leaves_that_all_have_the_same_targets_list_none() -> None:
    assert not {"targets", "starts"} & set(tables(forest_case(9, 3)))
    assert "starts" not in tables(forest_case(9, 3, "one"))
    assert {"targets", "starts"} <= set(tables(forest_case(9, 4, "any")))


def test_trees_are_walked_abreast_where_a_processor_has_several_units() -> None:
    node = forest_case(11).node()
    assert abreast_applies(Job(node, find_target("x86-64-v3"))) is None
    assert "one unit" in str(abreast_applies(Job(node, find_target("cortex-m4f"))))


def test_trees_are_code_on_a_small_core_where_they_are_few_nodes() -> None:
    few, many = forest_case(11).node(), forest_case(200).node()
    core = find_target("cortex-m4")
    assert usual_way(few, core) == "trees_coded"
    assert usual_way(many, core) == "trees_functions"
    for way in (core, optimized(core, "speed")):
        assert {usual_way(node, replace(way, fpu="single")) for node in (few, many)} == {"trees_assembly"}
    assert usual_way(many, optimized(core, "size")) == "trees_walked"
    assert usual_way(many, replace(core, limited=True)) == "trees_walked"
    assert usual_way(many, optimized(core, "speed")) == "trees_coded"
    assert usual_way(few, optimized(core, "size")) == "trees_walked"
    assert "too much code" in str(coded_applies(Job(many, core)))
    assert usual_way(few, find_target("x86-64-v3")) == "trees_abreast"


def test_an_edited_tree_with_a_cycle_has_no_kernel() -> None:
    case = forest_case(3)
    children = case.operands[CHILDREN]
    assert children is not None
    children[-1, 0] = len(children) - 1
    assert abreast_applies(Job(case.node(), find_target("x86-64-v3"))) == "a tree has a cycle"
