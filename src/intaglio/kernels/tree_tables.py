"""The tables of a forest, as all its kernels read them, and whole numbers in place of floats.

Cores without an operating system compare whole numbers that are ordered as the floats are. Where they have no unit for floats, they
also add whole numbers (`places_of`): each weight as a multiple of 2^-places, so that the sums of all trees fit 32 bits.

A missing value goes right by itself, since nothing is above it. Where it goes left, tables ask about `-x`. Code asks about x with
signs: the whole numbers have 31 bits then (`short_order`), and a missing value is below them with signs, and above without.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from intaglio.ir.graph import Array
from intaglio.ir.types import DType
from intaglio.kernels.job import Job, fact
from intaglio.ops.base import BadOperator
from intaglio.ops.fixed_point import order, short_order
from intaglio.ops.trees import BASE, TreeEnsemble, depth_of

MOST_PLACES = 100  # 2^-places is a normal float


@dataclass(frozen=True, slots=True)
class Tables:
    """The constants of a forest, nodes in the order of a walk. `targets_of` is the list of targets that all leaves have; else
    `target_of` is the target of each tree; else every leaf has its own list."""

    features: Array
    thresholds: Array
    children: Array
    roots: Array
    heights: tuple[int, ...]  # of each node: the longest way to a leaf
    depths: Array  # of each tree
    average_depth: float
    missing: Array  # of each node: does a missing value go left?
    starts: Array
    ids: Array
    weights: Array
    base: Array
    targets_of: tuple[int, ...] = ()
    target_of: tuple[int, ...] = ()
    negated: bool = False  # nodes where a missing value goes left ask about the negation of their feature
    least: int | None = None  # of `short_order`, where these nodes compare with signs instead, and the others without


def _constants(job: Job) -> list[Array] | str:
    found = [value.data for value in job.node.inputs[1:] if value is not None and value.data is not None]
    return found if len(found) == BASE else "its tables are not constants"


@fact
def tables_of(job: Job) -> Tables | str:
    """For kernels with one comparison for all nodes."""
    tables = _plain_tables(job)
    if isinstance(tables, str) or not tables.missing.any():
        return tables
    features, thresholds, children = _negated(tables, job.type(0).shape[1])
    return replace(tables, features=features, thresholds=thresholds, children=children, negated=True)


@fact
def code_tables_of(job: Job) -> Tables | str:
    """For kernels whose comparisons are code."""
    tables = _plain_tables(job)
    if isinstance(tables, str) or not tables.missing.any():
        return tables
    least = short_from(tables.thresholds)
    return replace(tables, least=least) if least is not None else tables_of(job)


def short_from(thresholds: Array) -> int | None:
    """From where the bits of magnitudes are counted, so that the thresholds are different numbers of `short_order`."""
    if thresholds.dtype != np.float32 or np.isnan(thresholds).any() or np.isneginf(thresholds).any():
        return None
    sizes = np.abs(thresholds[np.isfinite(thresholds)]).view(np.int32)
    least = max(int(sizes.min(initial=2**31 - 1)) - 1, 0)
    return least if int(sizes.max(initial=0)) - least < 2**30 - 1 else None


@fact
def _plain_tables(job: Job) -> Tables | str:
    given = _constants(job)
    if isinstance(given, str):
        return given
    features, thresholds, children, missing, roots, starts, ids, weights, base = given
    places = np.concatenate([children.reshape(-1), roots])
    leaves = len(starts) - 1
    wrong = places.size and (int(places.max()) >= len(features) or int(places.min()) < -leaves)
    if wrong or (features.size and not 0 <= int(features.min()) <= int(features.max()) < job.type(0).shape[1]):
        return "a table points outside of another"
    try:
        depth_of(children, roots)
    except BadOperator as error:
        return error.reason
    walked, heights, depths, average = _walk_order(children, roots)
    features, thresholds, children, missing = (a[walked] for a in (features, thresholds, children, missing))
    place = np.zeros(max(len(given[0]), 1), np.int64)
    place[walked] = np.arange(len(walked))
    children, roots = (np.where(a >= 0, place[np.maximum(a, 0)], a).astype(np.int32) for a in (children, roots))
    if not job.type(0).dtype.is_float:
        missing = np.zeros_like(missing)
    return Tables(
        features, thresholds, children, roots, heights, depths, average, missing, starts, ids, weights, base,
        _same_targets(starts, ids), _target_of_tree(children, roots, starts, ids),
    )  # fmt: skip


def _walk_order(children: Array, roots: Array) -> tuple[Array, tuple[int, ...], Array, float]:
    """Nodes as a walk meets them, left first, and how high each is; how deep each tree is, and an average leaf. Shared subtrees
    count once."""
    walked: list[int] = []
    pairs = children.tolist()
    height: dict[int, int] = {}
    seen: set[int] = set()
    ends = steps = 0
    for root in roots.tolist():
        waiting = [(root, 0)]
        while waiting:
            node, level = waiting.pop()
            if node < 0:
                ends, steps = ends + 1, steps + level
            elif node not in seen:
                seen.add(node)
                walked.append(node)
                waiting += [(pairs[node][1], level + 1), (pairs[node][0], level + 1)]
        _measure(root, pairs, height)
    depths = [height.get(root, 0) for root in roots.tolist()]
    heights = tuple(height[node] for node in walked)
    return np.array(walked, np.int64), heights, np.array(depths, np.int32), steps / max(ends, 1)


def _measure(root: int, pairs: list[list[int]], height: dict[int, int]) -> None:
    """The longest way to a leaf from each node of a tree, children before their parents."""
    waiting = [root] if root >= 0 else []
    while waiting:
        node = waiting[-1]
        below = [child for child in pairs[node] if child >= 0]
        unknown = [child for child in below if child not in height]
        if unknown and node not in height:
            waiting += unknown
            continue
        height[node] = 1 + max((height[child] for child in below), default=0)
        waiting.pop()


def _negated(tables: Tables, count: int) -> tuple[Array, Array, Array]:
    """x > t is -x <= the number below -t, and false where x is missing. Nothing is above infinity; where t is missing, all are."""
    features, thresholds, children, missing = tables.features, tables.thresholds, tables.children, tables.missing
    kind = thresholds.dtype.type
    below = np.nextafter(np.negative(thresholds), kind(-np.inf))
    below = np.where(thresholds == kind(np.inf), kind(np.nan), np.where(np.isnan(thresholds), kind(np.inf), below))
    features = np.where(missing, features + count, features)
    thresholds = np.where(missing, below, thresholds).astype(thresholds.dtype)
    return features, thresholds, np.where(missing[:, None], children[:, ::-1], children)


def _same_targets(starts: Array, ids: Array) -> tuple[int, ...]:
    lists = {tuple(ids[a:b].tolist()) for a, b in zip(starts[:-1].tolist(), starts[1:].tolist(), strict=True)}
    only = lists.pop() if len(lists) == 1 else ()
    return only if len(set(only)) == len(only) else ()


def _target_of_tree(children: Array, roots: Array, starts: Array, ids: Array) -> tuple[int, ...]:
    """The target of each tree whose leaves have one and the same; empty where a tree has another kind of leaf."""
    if (np.diff(starts) != 1).any():
        return ()
    found = []
    for root in roots.tolist():
        level, targets = np.array([root]), set()
        while level.size:
            targets |= set(ids[starts[-1 - level[level < 0]]].tolist())
            level = np.unique(children[level[level >= 0]])
        if len(targets) != 1:
            return ()
        found.append(targets.pop())
    return tuple(found)


def subtree_sizes(tables: Tables) -> dict[int, int]:
    """The nodes at and below each node."""
    sizes: dict[int, int] = {}
    pairs = tables.children.tolist()
    for node in sorted(range(len(pairs)), key=lambda n: tables.heights[n]):
        sizes[node] = 1 + sum(sizes[child] for child in pairs[node] if child >= 0)
    return sizes


def written_out(tables: Tables) -> int:
    """How many nodes there are where each tree has its own copy of subtrees that are shared."""
    sizes = subtree_sizes(tables)
    return sum(sizes[root] for root in tables.roots.tolist() if root >= 0)


def ordered(thresholds: Array) -> Array:
    """As whole numbers. Nothing is <= NaN, and -0 is 0."""
    whole = order(np.add(thresholds, thresholds.dtype.type(0)))
    return np.where(np.isnan(thresholds), np.iinfo(np.int32).min, whole).astype(np.int32)


def limits_of(tables: Tables) -> Array:
    """Thresholds as whole numbers of 32 bits, as cores without an operating system compare them."""
    if tables.least is not None:
        return short_order(tables.thresholds + np.float32(0), tables.least)
    return ordered(tables.thresholds) if tables.thresholds.dtype.kind == "f" else tables.thresholds.astype(np.int32)


def without_sign(tables: Tables, place: int) -> bool:
    """Does this node compare numbers without signs?"""
    return tables.least is not None and not bool(tables.missing[place])


def compared_as(tables: Tables) -> str:
    return "features and thresholds as whole numbers of the same order" if tables.thresholds.dtype.kind == "f" else "whole numbers"


@fact
def places_of(job: Job) -> int | None:
    """Binary places after the point, where a core without a unit for floats adds whole numbers of 32 bits: as many as the largest
    sum that there can be leaves room for. None: floats are added.

    Of n trees whose sums are at most b, the result is within (n + 1) b / 2^30 of the real one; floats guarantee n b / 2^24."""
    tables, op, target = tables_of(job), job.node.op, job.target
    assert isinstance(op, TreeEnsemble)
    if isinstance(tables, str) or not target.bare or target.fpu != "none" or target.exact:
        return None
    if job.type(0).dtype is DType.F64 or job.node.output.dtype is not DType.F32 or op.aggregate not in ("sum", "average"):
        return None
    largest = _largest_sum(tables)
    if not math.isfinite(largest) or largest == 0.0:
        return None
    places = 30 - math.ceil(math.log2(largest))
    return places if abs(places) <= MOST_PLACES else None


def _largest_sum(tables: Tables) -> float:
    """No sum of a target is larger: of each tree the leaf with the largest weight, or where a leaf may have a target twice, the
    largest sum of weights."""
    whole = np.concatenate([[0.0], np.cumsum(np.abs(tables.weights, dtype=np.float64))])
    of_leaf = np.diff(whole[tables.starts])
    if tables.targets_of and len(of_leaf):
        of_leaf = np.abs(tables.weights).reshape(len(of_leaf), -1).max(axis=1).astype(np.float64)
    total = 0.0
    for root in tables.roots.tolist():
        level, most = np.array([root]), 0.0
        while level.size:
            most = max(most, float(of_leaf[-1 - level[level < 0]].max(initial=0.0)))
            level = np.unique(tables.children[level[level >= 0]])
        total += most
    return total
