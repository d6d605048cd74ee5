"""The trees of ONNX as the tables of `tree_ensemble`: every comparison becomes nodes that ask `x <= threshold`.

    x <  t     x <= the number below t
    x >  t     x <= t, with the children swapped; a missing value goes the other way too
    x == t     x <= t, then x <= the number below t with the children swapped
    x in {..}  one `==` after the other; they share the subtree behind "yes"
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from intaglio.frontends.onnx.faults import Fault
from intaglio.ir.graph import Array
from intaglio.ir.types import DType

MODES = ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ", "BRANCH_MEMBER")
Pairs = tuple[tuple[int, float], ...]  # what a leaf adds: target and weight


@dataclass(frozen=True, slots=True)
class Split:
    """A node as ONNX has it. `yes` and `no` are keys of other nodes or leaves."""

    mode: str
    feature: int
    value: float
    yes: int
    no: int
    tracks: bool  # a missing value goes to `yes`
    members: tuple[float, ...] = ()


@dataclass(slots=True)
class Forest:
    """Tables under construction. A place is the number of a node, or -1 - L for the leaf L."""

    dtype: DType
    features: list[int] = field(default_factory=list)
    thresholds: list[float] = field(default_factory=list)
    children: list[tuple[int, int]] = field(default_factory=list)
    missing: list[bool] = field(default_factory=list)
    roots: list[int] = field(default_factory=list)
    leaves: dict[Pairs, int] = field(default_factory=dict)

    def leaf(self, pairs: Pairs) -> int:
        """Equal leaves are one."""
        return -1 - self.leaves.setdefault(pairs, len(self.leaves))

    def _node(self, feature: int, threshold: float, left: int, right: int, missing: bool) -> int:
        self.features.append(feature)
        self.thresholds.append(threshold)
        self.children.append((left, right))
        self.missing.append(missing)
        return len(self.features) - 1

    def _below(self, value: float) -> float:
        """x < value exactly where x <= this. Nothing is below minus infinity, and nothing is <= NaN."""
        if value == -math.inf:
            return math.nan
        kind = self.dtype.numpy.type
        return float(np.nextafter(kind(value), kind(-math.inf)))

    def split(self, s: Split, yes: int, no: int) -> int:
        """The node of a comparison whose children have their places."""
        match s.mode:
            case "BRANCH_LEQ":
                return self._node(s.feature, s.value, yes, no, s.tracks)
            case "BRANCH_LT":
                return self._node(s.feature, self._below(s.value), yes, no, s.tracks)
            case "BRANCH_GT" | "BRANCH_GTE":
                limit = s.value if s.mode == "BRANCH_GT" else self._below(s.value)
                never = math.isnan(s.value)  # then all numbers go to `no`
                return self._node(s.feature, math.inf if never else limit, no, yes, not s.tracks)
            case "BRANCH_EQ":
                return self._equal(s, s.value, yes, no, s.tracks)
            case "BRANCH_NEQ":
                return self._equal(s, s.value, no, yes, False)
            case _:
                place = no
                for member in reversed(s.members):
                    place = self._equal(s, member, yes, place, False)
                return self._node(s.feature, math.nan, yes, place, True) if s.tracks else place

    def _equal(self, s: Split, value: float, yes: int, no: int, tracks: bool) -> int:
        inner = self._node(s.feature, self._below(value), no, yes, False)
        return self._node(s.feature, value, inner, no, tracks)

    def tree(self, root: int, node: Callable[[int], Split | Pairs]) -> None:
        """Adds the tree that hangs on a key; `node` says what is behind a key. Children have their places before their parent."""
        places: dict[int, int] = {}
        opened: set[int] = set()
        pending = [root]
        while pending:
            key = pending[-1]
            here = node(key)
            if not isinstance(here, Split):
                places[key] = self.leaf(here)
            elif key not in places:
                waiting = [k for k in (here.no, here.yes) if k not in places]
                if waiting and key in opened:
                    raise Fault("bad-attribute", "a tree has a cycle", "the model is damaged or was edited; export it again")
                opened.add(key)
                if waiting:
                    pending += waiting
                    continue
                places[key] = self.split(here, places[here.yes], places[here.no])
            pending.pop()
        self.roots.append(places[root])

    def certain(self) -> set[int]:
        """The targets to which every row adds something."""
        leaves = [{target for target, _ in leaf} for leaf in self.leaves]
        below: list[set[int]] = []

        def at(place: int) -> set[int]:
            return below[place] if place >= 0 else leaves[-1 - place]

        for left, right in self.children:
            below.append(at(left) & at(right))
        return set().union(*(at(root) for root in self.roots))

    def tables(self, base: Sequence[float]) -> list[Array]:
        """The operands of `tree_ensemble` behind x."""
        kind = self.dtype.numpy
        pairs = [pair for leaf in self.leaves for pair in leaf]
        ends = np.cumsum([0, *(len(leaf) for leaf in self.leaves)])
        return [
            np.array(self.features, np.int32),
            np.array(self.thresholds, kind),
            np.array(self.children, np.int32).reshape(-1, 2),
            np.array(self.missing, bool),
            np.array(self.roots, np.int32),
            ends.astype(np.int32),
            np.array([target for target, _ in pairs], np.int32),
            np.array([weight for _, weight in pairs], kind),
            np.array(base, kind),
        ]
