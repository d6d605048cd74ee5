"""Forests as code, a function for each tree: for cores without an operating system, where `trees_coded` would be too much code.

    static uint32_t ig_forest_3f2a91c0_7(const int32_t *k)        trees_functions: k are the features of a row, as whole numbers of
    {                                                             the same order as the floats (`trees.py`); the result is where
        if (k[3] <= 1056964608) { ...                             the numbers of the leaf are
            return 12;

Functions are compiled for size: then compilers load a threshold from a pool of constants beside the code, by one instruction of 16
bits, instead of making it by two of 32. A step is four instructions: load, load, compare, branch. One function for all trees
would take minutes to compile. Of a forest of 100 trees of depth 10 with 30 features (35,798 nodes) on a Cortex-M4F, 0.50 of the
instructions of the tables and 1.09 of their bytes.

For sums and averages of floats where all leaves have all targets, and these are few.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

import numpy as np

from intaglio.ir.graph import Array
from intaglio.ir.types import DType
from intaglio.kernels.dsp.primitives import BASE
from intaglio.kernels.job import Job, Lowered
from intaglio.kernels.loop import Place, idx
from intaglio.kernels.routines import Routine
from intaglio.kernels.trees import (
    DEEPEST_CODED,
    FEW,
    Leaves,
    Tables,
    about,
    features_of_row,
    keys_of,
    ordered,
    tables_of,
    written_out,
)
from intaglio.ops.trees import TreeEnsemble

MOST_NODES = {"speed": 100_000, "balanced": 40_000, "size": 0}  # a thousand of them take the compiler about half a second
SMALL = Routine(
    "small_code",
    """/* Constants beside the code instead of in it. */
#if defined(__clang__)
#define IG_SMALL static __attribute__((noinline, minsize))
#else
#define IG_SMALL static __attribute__((noinline, optimize("Os")))
#endif""",
)


def functions_apply(job: Job) -> str | None:
    tables, op = tables_of(job), job.node.op
    assert isinstance(op, TreeEnsemble)
    if isinstance(tables, str):
        return tables
    if not job.target.bare:
        return "it is for cores without an operating system: others guess branches, and wait where they are wrong"
    if job.type(0).dtype is not DType.F32 or op.aggregate not in ("sum", "average"):
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
    k, tables, op = job.k, tables_of(job), job.node.op
    assert isinstance(tables, Tables) and isinstance(op, TreeEnsemble)
    x, y = job.operand(0, "x"), job.writes()
    keys = keys_of(job, tables, x)
    assert keys is not None
    leaves = Leaves(job, tables, y)
    forest = _forest(tables, op.targets)
    with k.loop("n", 0, job.type(0).shape[0]) as n:
        features_of_row(job, tables, x, n, keys)
        leaves.row = k.let("to", n * op.targets)
        k.call(forest, Place(keys, idx(0)), Place(leaves.weights, idx(0)), Place(y, leaves.row, idx(op.targets)))
        leaves.finish()
    note = "a function each; features and thresholds as whole numbers of the same order"
    return job.done("trees_functions", about(job, tables, note))


def _forest(tables: Tables, targets: int) -> Routine:
    limits = ordered(tables.thresholds)
    told = b"".join(np.ascontiguousarray(a).tobytes() for a in (tables.features, limits, tables.children, tables.roots))
    name = f"forest_{hashlib.sha256(told).hexdigest()[:8]}"
    trees = [_tree(f"ig_{name}_{t}", root, tables, limits, targets) for t, root in enumerate(tables.roots.tolist())]
    sums = [f"total{n}" for n in range(targets)]
    lines = [
        f"IG_ROUTINE void ig_{name}(const int32_t *k, const float *weights, float *y)", "{",
        f"    float {', '.join(f'{total} = 0.0f' for total in sums)};", "    const float *leaf;", "",
    ]  # fmt: skip
    for t in range(len(trees)):
        lines += [f"    leaf = weights + ig_{name}_{t}(k);", *(f"    {total} += leaf[{n}];" for n, total in enumerate(sums))]
    lines += [*(f"    y[{n}] = {total};" for n, total in enumerate(sums)), "}"]

    def meaning(keys: Array, weights: Array, y: Array) -> None:
        found = np.zeros(targets, np.float32)
        for root in tables.roots.tolist():
            node = root
            while node >= 0:
                node = int(tables.children[node, 0 if keys[tables.features[node]] <= limits[node] else 1])
            found = found + weights[(-1 - node) * targets : -node * targets]
        y[:targets] = found

    return Routine(name, "\n\n".join([*trees, "\n".join(lines)]), meaning, (BASE, SMALL))


def _tree(name: str, root: int, tables: Tables, limits: Array, targets: int) -> str:
    def go(place: int, margin: str) -> Iterator[str]:
        if place < 0:
            yield f"{margin}return {(-1 - place) * targets}u;"
            return
        limit = int(limits[place])
        yield f"{margin}if (k[{int(tables.features[place])}] <= {limit if limit > -(2**31) else 'INT32_MIN'}) {{"
        yield from go(int(tables.children[place, 0]), margin + "    ")
        yield f"{margin}}}"
        yield from go(int(tables.children[place, 1]), margin)

    unused = ["    (void)k;"] if root < 0 else []
    return "\n".join([f"IG_SMALL uint32_t {name}(const int32_t *k)", "{", *unused, *go(root, "    "), "}"])
