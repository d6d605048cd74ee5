"""Decision trees as tables. Each step reads a feature, a threshold and two children, and takes one without a branch:

    while node >= 0:                                     trees_walked: one tree after the other, until a leaf
        node = x[features[node]] <= thresholds[node] ? left[node] : right[node]

    if x[3] <= 0.5: if x[7] <= 2.0: leaf = 4 ...         trees_coded: comparisons as code, on small cores for a few nodes. Of a
                                                         table's, 0.7 of the instructions and 1.5 of the bytes (10 trees of
                                                         depth 7 on a Cortex-M4F)

    for step in 0..depth:                                trees_abreast: several trees at once, all of them to the depth of the
        n0 = children[2 * n0 + ...]                      deepest; leaves are nodes whose children are themselves. A processor
        n1 = children[2 * n1 + ...]                      with several units has work while it waits for memory.

Cores without an operating system compare whole numbers that are ordered as the floats are, which each feature becomes once: a
core compares them in one instruction, also where it has no unit for floats. Features that are whole numbers stay as they are.

Features and children are stored in as few bytes as they need. In tables, nodes where a missing value goes left ask `-x <= t'` with
swapped children instead, so that a step is the same for all: the kernel has a row with every feature and its negation. Code
compares with signs there, and without at the other nodes (`code_tables_of`).
"""

from __future__ import annotations

import numpy as np

from intaglio.ir.graph import Array
from intaglio.ir.types import DType
from intaglio.kernels.job import Job, Lowered
from intaglio.kernels.lanes import Lanes
from intaglio.kernels.loop import F32, IDX, Buffer, Expr, Load, Num, Op, Type, Var, cast, idx, select
from intaglio.kernels.tree_tables import (
    Tables,
    code_tables_of,
    compared_as,
    limits_of,
    ordered,
    places_of,
    tables_of,
    without_sign,
    written_out,
)
from intaglio.ops.trees import TreeEnsemble

ABREAST = 8  # trees: what hides the latency of a step, and still fits the registers of x86-64
MOST_CODED = {"speed": 4000, "balanced": 1000, "size": 0}  # nodes; one is about 20 bytes of code, 9 in a table
DEEPEST_CODED = 60  # conditions inside each other
FEW = 8  # targets whose sums stay in registers
WIDENED = 16  # nodes to a feature from which widening pays: an eighth of them or so is on the ways of a row
WASTE = 2.0  # steps to the full depth, of the steps to an average leaf: above, walking until a leaf is faster
_SMALL = {False: (DType.I8, DType.I16, DType.I32), True: (DType.U8, DType.U16, DType.I32)}


def _packed(job: Job, numbers: Array, name: str) -> Buffer:
    """Whole numbers in as few bytes as they need."""
    low, high = int(numbers.min(initial=0)), int(numbers.max(initial=0))
    fits = (d for d in _SMALL[low >= 0] if np.iinfo(d.numpy).min <= low and high <= np.iinfo(d.numpy).max)
    kind = next(fits)
    return job.packed(numbers.astype(kind.numpy).reshape(-1), name, kind)


def _at(buffer: Buffer, place: Expr) -> Expr:
    return cast(Load(buffer, place, Type(buffer.dtype.value)), IDX)


class Leaves:
    """What leaves add to the targets of one row."""

    def __init__(self, job: Job, tables: Tables, y: Buffer) -> None:
        op = job.node.op
        assert isinstance(op, TreeEnsemble)
        self.k, self.op, self.tables, self.y = job.k, op, tables, y
        self.places = places_of(job)
        self.e = Lanes.scalar(y.dtype.value if self.places is None else "i32")
        self.sums = y if self.places is None else job.scratch(op.targets, "sums", DType.I32)
        self.row: Expr = idx(0)
        self.first: Expr = idx(0)  # of the sums of this row
        self.totals: list[Var] = []  # of the targets, where they are few and all leaves have all of them
        self.base = job.packed(tables.base, "base") if tables.base.any() else None  # a sum is never -0: adding 0 changes nothing
        dense = bool(tables.targets_of)
        width = len(tables.targets_of)
        weights = tables.weights.reshape(-1, width) if dense else tables.weights
        self.weights = job.packed(self.stored(weights.reshape(-1)), "weights", self.e.dtype)
        self.starts = None if dense or tables.target_of else _packed(job, tables.starts, "starts")
        natural = tables.targets_of == tuple(range(width))
        ids = np.array(tables.targets_of or tables.target_of or tables.ids)
        self.ids = None if dense and natural else _packed(job, ids, "targets")
        either = op.aggregate in ("min", "max")
        self.seen = job.scratch(op.targets, "seen", DType.U8) if either and not dense else None

    def stored(self, weights: Array) -> Array:
        return weights if self.places is None else np.rint(np.ldexp(weights.astype(np.float64), self.places)).astype(np.int32)

    def begin(self, row: Expr) -> None:
        """Where the results of this row go, and its sums until then."""
        self.row = self.k.let("to", row * self.op.targets)
        self.first = self.row if self.places is None else idx(0)

    def start(self, row: Expr) -> None:
        k, zero = self.k, self.e.const(0)
        self.begin(row)
        if self.op.targets <= FEW and self.tables.targets_of == tuple(range(self.op.targets)):
            self.totals = [k.var("total", zero, self.e.type) for _ in range(self.op.targets)]
            return
        with k.loop("j", 0, self.op.targets) as j:
            k.store(self.sums, self.first + j, zero)
            if self.seen is not None:
                k.store(self.seen, j, Num(0, Type("u8")))

    def add(self, tree: Expr, leaf: Expr) -> None:
        k, width = self.k, len(self.tables.targets_of)
        for n, total in enumerate(self.totals):
            k.assign(total, self._joined(tree, idx(n), total, self.e.load(self.weights, leaf * width + n)))
        if self.totals:
            return
        if width:
            with k.loop("j", 0, width) as j:
                target = k.let("target", _at(self.ids, j)) if self.ids is not None else j
                self._into(tree, target, leaf * width + j)
        elif self.tables.target_of:
            assert self.ids is not None
            self._into(tree, k.let("target", _at(self.ids, tree)), leaf)
        else:
            assert self.ids is not None and self.starts is not None
            first, last = k.let("first", _at(self.starts, leaf)), k.let("last", _at(self.starts, leaf + 1))
            with k.loop("j", first, last) as j:
                self._into(tree, k.let("target", _at(self.ids, j)), j)

    def _into(self, tree: Expr, target: Expr, weight: Expr) -> None:
        place = self.k.let("place", self.first + target)
        total = self._joined(tree, target, self.e.load(self.sums, place), self.e.load(self.weights, weight))
        self.k.store(self.sums, place, total)
        if self.seen is not None:
            self.k.store(self.seen, target, Num(1, Type("u8")))

    def _joined(self, tree: Expr, target: Expr, total: Expr, weight: Expr) -> Expr:
        """The first weight of a target is its smallest and largest."""
        if self.op.aggregate in ("sum", "average"):
            return self.e.add(total, weight)
        if isinstance(tree, Num) and self.seen is None and tree.value == 0:
            return weight
        weight = self.k.let("weight", weight)
        join = self.e.lowest if self.op.aggregate == "min" else self.e.highest
        if isinstance(tree, Num) and self.seen is None:
            return join(total, weight)
        first = tree.compare("eq", 0) if self.seen is None else _at(self.seen, target).compare("eq", 0)
        return select(first, weight, join(total, weight))

    def finish(self) -> None:
        k, e = self.k, self.e
        for n, total in enumerate(self.totals):
            self._write(idx(n), total)
        complete = self.places is None and self.base is None and self.op.aggregate != "average"
        if not self.totals and not complete:
            with k.loop("j", 0, self.op.targets) as j:
                self._write(j, e.load(self.sums, self.first + j))

    def _write(self, target: Expr, total: Expr) -> None:
        e = Lanes.scalar(self.y.dtype.value)
        if self.places is not None:
            total = Op("fn_divide_power", (total, Num(self.places, Type("i32"))), e.type)
        if self.op.aggregate == "average":
            total = e.div(total, e.const(float(len(self.tables.roots))))
        self.k.store(self.y, self.row + target, total if self.base is None else e.add(total, e.load(self.base, target)))


def features_of_row(job: Job, tables: Tables, x: Buffer, n: Expr, keys: Buffer | None) -> tuple[Buffer, Expr]:
    """The features of a row as they are compared, and where they start: x itself, or `keys`."""
    k, count = job.k, job.type(0).shape[1]
    if keys is None:
        return x, k.let("from", n * count)
    e = Lanes.scalar(x.dtype.value)
    whole = keys.dtype is DType.I32
    with k.loop("i", 0, count) as i:
        value = k.let("v", e.load(x, n * count + i))
        for place, number in ((i, value), (i + count, e.neg(value)))[: 1 + tables.negated]:
            k.store(keys, place, _key(number, tables.least) if whole else number)
    return keys, idx(0)


def _key(feature: Expr, least: int | None) -> Expr:
    if feature.type != F32:
        return cast(feature, Type("i32"))
    if least is None:
        return Op("fn_order", (feature,), Type("i32"))
    return Op("fn_short_order", (feature, Num(least, Type("i32"))), Type("i32"))


def keys_of(job: Job, tables: Tables, x: Buffer, as_code: bool = False) -> Buffer | None:
    """Room for the features of one row: as whole numbers, or with their negations where missing values matter.

    Code for Arm's small cores reads signed numbers of 8 and 16 bits by two instructions or a long one: they are widened once."""
    whole = job.target.bare and x.dtype is DType.F32
    if as_code and job.target.arch == "arm" and x.dtype in (DType.I8, DType.I16):
        whole = len(tables.features) > WIDENED * job.type(0).shape[1]
    size = job.type(0).shape[1] * (1 + tables.negated)
    return job.scratch(size, "keys", DType.I32 if whole else x.dtype) if whole or tables.negated else None


def _thresholds(job: Job, numbers: Array, keys: Buffer | None) -> Buffer:
    """As the features are compared."""
    if keys is None or keys.dtype is not DType.I32:
        return job.packed(numbers, "thresholds")
    return job.packed(ordered(numbers), "thresholds")


def about(job: Job, tables: Tables, note: str) -> str:
    x, y = job.type(0), job.node.output
    nodes, trees = len(tables.features), len(tables.roots)
    return (
        f"tree_ensemble\n{x.dtype.value}{list(x.shape)} -> {y.dtype.value}{list(y.shape)}: {trees} trees, {nodes} nodes, "
        f"{len(tables.starts) - 1} leaves, {note}"
    )


def trees_walked(job: Job) -> Lowered:
    k, tables = job.k, tables_of(job)
    assert isinstance(tables, Tables)
    x, y = job.operand(0, "x"), job.writes()
    keys = keys_of(job, tables, x)
    features, thresholds = _packed(job, tables.features, "features"), _thresholds(job, tables.thresholds, keys)
    left, right = (_packed(job, tables.children[:, side], name) for side, name in enumerate(("left", "right")))
    roots = _packed(job, tables.roots, "roots")
    leaves = Leaves(job, tables, y)
    kind = Type(thresholds.dtype.value)
    with k.loop("n", 0, job.type(0).shape[0]) as n:
        source, row = features_of_row(job, tables, x, n, keys)
        leaves.start(n)
        with k.loop("t", 0, len(tables.roots)) as t:
            node = k.var("node", _at(roots, t))
            if len(tables.features):
                with k.during(node.compare("ge", 0)):
                    value = Load(source, row + _at(features, node), kind)
                    lower = value.compare("le", Load(thresholds, node, kind))
                    k.assign(node, select(lower, _at(left, node), _at(right, node)))
            leaves.add(t, k.let("leaf", -1 - node))
        leaves.finish()
    return job.done("trees_walked", about(job, tables, "each walked to its leaf"))


def coded_applies(job: Job) -> str | None:
    tables, most = code_tables_of(job), 0 if job.target.limited else MOST_CODED[job.target.optimize]
    if isinstance(tables, str):
        return tables
    if not job.target.bare:
        return "it is for cores without an operating system: others guess branches, and wait where they are wrong"
    if job.type(0).dtype is DType.F64:
        return "the features are f64"
    if int(tables.depths.max(initial=0)) > DEEPEST_CODED:
        return f"a tree is deeper than {DEEPEST_CODED} nodes"
    if (count := written_out(tables)) > most:
        return f"{count} nodes would be too much code; at most {most} with `--optimize {job.target.optimize}`"
    return None


def trees_coded(job: Job) -> Lowered:
    k, tables = job.k, code_tables_of(job)
    assert isinstance(tables, Tables)
    x, y = job.operand(0, "x"), job.writes()
    keys = keys_of(job, tables, x, as_code=True)
    limits, features, pairs = limits_of(tables).tolist(), tables.features.tolist(), tables.children.tolist()
    leaves = Leaves(job, tables, y)
    row: tuple[Buffer, Expr] = x, idx(0)

    def go(leaf: Var, place: int) -> None:
        if place < 0:
            k.assign(leaf, idx(-1 - place))
            return
        kind = Type("u32" if without_sign(tables, place) else "i32")
        feature = cast(Load(row[0], row[1] + features[place], Type(row[0].dtype.value)), kind)
        with k.when(feature.compare("le", Num(limits[place], kind))):
            go(leaf, pairs[place][0])
        with k.otherwise():
            go(leaf, pairs[place][1])

    with k.loop("n", 0, job.type(0).shape[0]) as n:
        row = features_of_row(job, tables, x, n, keys)
        leaves.start(n)
        for t, root in enumerate(tables.roots.tolist()):
            with k.block():
                leaf = k.var("leaf", idx(0))
                go(leaf, root)
                leaves.add(idx(t), leaf)
        leaves.finish()
    return job.done("trees_coded", about(job, tables, f"as code; {compared_as(tables)}"))


def abreast_applies(job: Job) -> str | None:
    tables = tables_of(job)
    if isinstance(tables, str):
        return tables
    if job.target.bare:
        return "the core has one unit: it would only take more steps"
    if len(tables.roots) < 2 or not len(tables.features):
        return "there are no trees to walk at once"
    if float(tables.depths.mean()) > WASTE * tables.average_depth:
        return "the trees are too uneven: most leaves are far above the deepest"
    return None


def trees_abreast(job: Job) -> Lowered:
    """Leaves are nodes from `inner` on: they stay where they are."""
    k, tables = job.k, tables_of(job)
    assert isinstance(tables, Tables)
    x, y = job.operand(0, "x"), job.writes()
    inner, ends, count = len(tables.features), len(tables.starts) - 1, len(tables.roots)
    down = np.where(tables.children < 0, inner - 1 - tables.children, tables.children)
    stay = np.repeat(np.arange(inner, inner + ends), 2).reshape(-1, 2)
    keys, kind = keys_of(job, tables, x), Type(x.dtype.value)
    features = _packed(job, np.concatenate([tables.features, np.zeros(ends, np.int32)]), "features")
    thresholds = job.packed(np.concatenate([tables.thresholds, np.zeros(ends, tables.thresholds.dtype)]), "thresholds")
    children = _packed(job, np.concatenate([down, stay]), "children")
    roots = _packed(job, np.where(tables.roots < 0, inner - 1 - tables.roots, tables.roots), "roots")
    groups = [range(t, min(t + ABREAST, count)) for t in range(0, count, ABREAST)]
    depths = _packed(job, np.array([int(tables.depths[g.start : g.stop].max()) for g in groups]), "depths")
    leaves = Leaves(job, tables, y)

    def together(source: Buffer, row: Expr, group: Expr, size: int) -> None:
        first = k.let("tree", group * ABREAST)
        nodes = [k.var(f"n{j}", _at(roots, first + j)) for j in range(size)]
        with k.loop("step", 0, k.let("depth", _at(depths, group))):
            for node in nodes:
                value = Load(source, row + _at(features, node), kind)
                side = select(value.compare("le", Load(thresholds, node, kind)), idx(0), idx(1))
                k.assign(node, _at(children, node * 2 + side))
        for j, node in enumerate(nodes):
            leaves.add(k.let("t", first + j), k.let("leaf", node - inner))

    with k.loop("n", 0, job.type(0).shape[0]) as n:
        source, row = features_of_row(job, tables, x, n, keys)
        leaves.start(n)
        with k.loop("g", 0, count // ABREAST) as g:
            together(source, row, g, ABREAST)
        if count % ABREAST:
            together(source, row, idx(count // ABREAST), count % ABREAST)
        leaves.finish()
    return job.done("trees_abreast", about(job, tables, f"{ABREAST} walked at once"))
