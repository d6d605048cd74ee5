"""Forests as code, a function for each tree: for cores without an operating system, where `trees_coded` would be too much code.

    static uint32_t ig_forest_3f2a91c0_7(const int32_t *k)        trees_functions: k are the features of a row, as whole numbers of
    {                                                             the same order as the floats (`trees.py`); the result is where
        if (k[3] <= 1056964608) { ...                             the numbers of the leaf are
            return 12;

Functions are compiled for size: then compilers load a threshold from a pool of constants beside the code, by one instruction of 16
bits, instead of making it by two of 32. A step is four instructions: load, load, compare, branch. One function for all trees
would take minutes to compile. Of a forest of 100 trees of depth 10 with 30 features (35,798 nodes) on a Cortex-M4F, 0.50 of the
instructions of the tables and 1.09 of their bytes.

For sums and averages of f32 where all leaves have all targets, and these are few. Where the core has no unit for floats, sums are
whole numbers (`places_of`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from intaglio.ir.graph import Array
from intaglio.ir.types import DType
from intaglio.kernels.dsp.primitives import BASE
from intaglio.kernels.job import Job, Lowered
from intaglio.kernels.loop import Place, idx
from intaglio.kernels.routines import Routine
from intaglio.kernels.tree_assembly import C_TYPES, MOST_WORDS, Row, forest_text, overlapping, slots_of
from intaglio.kernels.tree_tables import Tables, code_tables_of, compared_as, limits_of, without_sign, written_out
from intaglio.kernels.trees import DEEPEST_CODED, FEW, Leaves, about, features_of_row, keys_of
from intaglio.ops.fixed_point import order, short_order
from intaglio.ops.trees import TreeEnsemble

MOST_NODES = {"speed": 100_000, "balanced": 40_000, "size": 0}  # a thousand of them take the compiler about half a second
SMALL = Routine(
    "small_code",
    """/* Constants beside the code instead of in it. */
#if defined(__clang__)
#define IG_SMALL static __attribute__((noinline, minsize))
#else
#define IG_SMALL static __attribute__((noinline, optimize("Os")))
#endif
/* A sum is complete here. Else clang adds all leaves at the end, and keeps them on the stack until then. */
#define IG_SETTLE(sum) __asm__ volatile("" : "+r"(sum))""",
)


def functions_apply(job: Job) -> str | None:
    tables, op = code_tables_of(job), job.node.op
    assert isinstance(op, TreeEnsemble)
    if isinstance(tables, str):
        return tables
    if not job.target.bare:
        return "it is for cores without an operating system: others guess branches, and wait where they are wrong"
    if job.type(0).dtype is DType.F64 or job.node.output.dtype is not DType.F32 or op.aggregate not in ("sum", "average"):
        return "it is for sums of f32"
    if op.targets > FEW or tables.targets_of != tuple(range(op.targets)):
        return f"leaves have other targets than all of at most {FEW}"
    if int(tables.depths.max(initial=0)) > DEEPEST_CODED:
        return f"a tree is deeper than {DEEPEST_CODED} nodes"
    most = 0 if job.target.limited else MOST_NODES[job.target.optimize]
    if (count := written_out(tables)) > most:
        return f"{count} nodes would be too much code; at most {most} with `--optimize {job.target.optimize}`"
    return None


def trees_functions(job: Job) -> Lowered:
    k, tables, op = job.k, code_tables_of(job), job.node.op
    assert isinstance(tables, Tables) and isinstance(op, TreeEnsemble)
    x, y = job.operand(0, "x"), job.writes()
    keys = keys_of(job, tables, x, as_code=True)
    weights, numbers = overlapping(tables, op.targets)
    leaves = Leaves(job, replace(tables, weights=weights), y)
    forest = _forest(tables, op.targets, numbers, (keys or x).dtype, leaves.sums.dtype)
    with k.loop("n", 0, job.type(0).shape[0]) as n:
        row = Place(*features_of_row(job, tables, x, n, keys), idx(job.type(0).shape[1] * (1 + tables.negated)))
        leaves.begin(n)
        k.call(forest, row, Place(leaves.weights, idx(0)), Place(leaves.sums, leaves.first, idx(op.targets)))
        leaves.finish()
    return job.done("trees_functions", about(job, tables, f"a function each; {compared_as(tables)}"))


def assembly_applies(job: Job) -> str | None:
    target, tables = job.target, code_tables_of(job)
    if reason := functions_apply(job):
        return reason
    assert isinstance(tables, Tables)
    if target.arch != "arm" or target.fpu == "none":
        return "it is for Thumb-2 cores with an FPU"
    if job.type(0).shape[1] > MOST_WORDS or len(slots_of(tables)) > MOST_WORDS:
        return f"a load reaches {MOST_WORDS} features"
    return None


def trees_assembly(job: Job) -> Lowered:
    k, tables, op = job.k, code_tables_of(job), job.node.op
    assert isinstance(tables, Tables) and isinstance(op, TreeEnsemble)
    weights, numbers = overlapping(tables, op.targets)
    row = Row(slots_of(tables), job.type(0).shape[1], job.type(0).dtype, tables.least)
    x, y = job.operand(0, "x"), job.writes()
    keys = [Place(job.scratch(max(1, len(row.slots)), "keys", DType.I32), idx(0))] if row.dtype.is_float else []
    leaves = Leaves(job, replace(tables, weights=weights), y)
    forest = _assembly(tables, op.targets, row, numbers)
    with k.loop("n", 0, job.type(0).shape[0]) as n:
        leaves.begin(n)
        given = Place(x, k.let("from", n * row.count), idx(row.count))
        k.call(forest, given, *keys, Place(leaves.weights, idx(0)), Place(y, leaves.row, idx(op.targets)))
        leaves.finish()
    return job.done("trees_assembly", about(job, tables, f"a function each; {compared_as(tables)}"))


def _assembly(tables: Tables, targets: int, row: Row, numbers: list[int]) -> Routine:
    """In assembly, and the same in C for other compilers and for `-DIG_NO_ASSEMBLY`: keys, then the forest of functions."""
    limits, keyed = limits_of(tables), row.dtype.is_float
    number = {feature: n for n, feature in enumerate(row.slots)}
    placed = replace(tables, features=np.array([number[f] for f in tables.features.tolist()], np.int32))
    plain = _forest(placed if keyed else tables, targets, numbers, DType.I32 if keyed else row.dtype, DType.F32)
    name = f"{plain.name}_rows"
    features = [f"{'-' if feature >= row.count else ''}x[{feature % row.count}]" for feature in row.slots] if keyed else []
    helper, least = ("order", "") if tables.least is None else ("short_order", f", {tables.least}")
    keys = [f"    k[{n}] = ig_{helper}_f32({feature}{least});" for n, feature in enumerate(features)]
    c = [
        f"IG_ROUTINE void ig_{name}({', '.join(row.parameters)})", "{",
        *(keys or ["    (void)x;"]), f"    ig_{plain.name}({'k' if keyed else 'x'}, weights, y);", "}",
    ]  # fmt: skip
    text = "\n".join([
        "#if defined(__thumb2__) && defined(__ARM_FP) && defined(__OPTIMIZE__) && !defined(IG_NO_ASSEMBLY)",
        forest_text(f"ig_{name}", tables, limits, row, numbers, targets), "#else", plain.text, "", *c, "#endif",
    ])  # fmt: skip

    def of_keys(x: Array, k: Array, weights: Array, y: Array) -> None:
        both = np.concatenate([x[: row.count], -x[: row.count]])[list(row.slots)]
        plain.meaning(order(both) if tables.least is None else short_order(both, tables.least), weights, y)

    return Routine(name, text, of_keys if keyed else plain.meaning, (BASE, SMALL), (f"ig_{helper}_f32",) if keyed else ())


def _forest(tables: Tables, targets: int, numbers: list[int], features: DType, sums: DType) -> Routine:
    """`numbers` of leaves: where their weights are."""
    limits, kind = limits_of(tables), C_TYPES[sums]
    parts = (tables.features, limits, tables.children, tables.roots, np.array(numbers, np.int32), tables.missing)
    told = b"".join(np.ascontiguousarray(part).tobytes() for part in parts) + f"{features} {sums} {tables.least}".encode()
    name = f"forest_{hashlib.sha256(told).hexdigest()[:8]}"
    row = f"const {C_TYPES[features]} *k"
    trees = [_tree(f"ig_{name}_{t}({row})", root, tables, limits, numbers) for t, root in enumerate(tables.roots.tolist())]
    totals = [f"total{n}" for n in range(targets)]
    zero, settle = ("0.0f", "") if sums.is_float else ("0", " IG_SETTLE({0});")
    lines = [
        f"IG_ROUTINE void ig_{name}({row}, const {kind} *weights, {kind} *y)", "{",
        f"    {kind} {', '.join(f'{total} = {zero}' for total in totals)};", f"    const {kind} *leaf;", "",
    ]  # fmt: skip
    for t in range(len(trees)):
        added = (f"    {total} += leaf[{n}];{settle.format(total)}" for n, total in enumerate(totals))
        lines += [f"    leaf = weights + ig_{name}_{t}(k);", *added]
    lines += [*(f"    y[{n}] = {total};" for n, total in enumerate(totals)), "}"]

    def meaning(keys: Array, weights: Array, y: Array) -> None:
        found = np.zeros(targets, sums.numpy)
        for root in tables.roots.tolist():
            node = root
            while node >= 0:
                key = int(keys[tables.features[node]]) & (0xFFFFFFFF if without_sign(tables, node) else -1)
                node = int(tables.children[node, 0 if key <= limits[node] else 1])
            found = found + weights[numbers[-1 - node] :][:targets]
        y[:targets] = found

    return Routine(name, "\n\n".join([*trees, "\n".join(lines)]), meaning, (BASE, SMALL))


def _tree(head: str, root: int, tables: Tables, limits: Array, numbers: list[int]) -> str:
    def go(place: int, margin: str) -> Iterator[str]:
        if place < 0:
            yield f"{margin}return {numbers[-1 - place]}u;"
            return
        limit, key = int(limits[place]), f"k[{int(tables.features[place])}]"
        if without_sign(tables, place):
            yield f"{margin}if ((uint32_t){key} <= {limit}u) {{"
        else:
            yield f"{margin}if ({key} <= {limit if limit > -(2**31) else 'INT32_MIN'}) {{"
        yield from go(int(tables.children[place, 0]), margin + "    ")
        yield f"{margin}}}"
        yield from go(int(tables.children[place, 1]), margin)

    unused = ["    (void)k;"] if root < 0 else []
    return "\n".join([f"IG_SMALL uint32_t {head}", "{", *unused, *go(root, "    "), "}"])
