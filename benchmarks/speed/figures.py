"""What follows from measured times: medians, the best peer of a row, means, and which layers a lost row loses its time in.

Nothing here measures or reads files.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

SMALL_MACS = 20_000_000  # below: a small model


@dataclass(frozen=True, slots=True)
class LayerTime:
    """A layer as a runtime measured it. `nodes` are the nodes of the model that it computes, as far as the runtime tells."""

    name: str
    kind: str  # operator or kernel
    ms: float
    nodes: tuple[str, ...]
    macs: int = 0


@dataclass(frozen=True, slots=True)
class Group:
    """Layers of both sides that compute the same nodes of the model."""

    name: str
    kinds: tuple[str, str]  # ours, the peer's
    ours_ms: float
    peer_ms: float
    macs: int = 0

    @property
    def lost_ms(self) -> float:
        return self.ours_ms - self.peer_ms


@dataclass
class Row:
    """One model. Times are in ms, errors are shares of the largest output."""

    name: str
    kind: str  # float or int8
    macs: int = 0
    ms: float = math.nan  # ours
    error: float = math.nan
    failure: str = ""  # why there is no figure of ours
    peers: dict[str, float] = field(default_factory=dict)
    errors: dict[str, float] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)
    wrong: frozenset[str] = frozenset()  # peers whose outputs are too far off to count
    peak: float = math.nan  # measured multiply-adds per ms, in the same rounds
    layers: list[LayerTime] = field(default_factory=list)
    profiles: dict[str, list[LayerTime]] = field(default_factory=dict)  # of peers that win or nearly do

    @property
    def best(self) -> str:
        """The fastest peer whose outputs are right, or nothing."""
        right = {peer: ms for peer, ms in self.peers.items() if peer not in self.wrong}
        return min(right, key=lambda peer: right[peer]) if right else ""

    @property
    def ratio(self) -> float:
        """The best peer's time divided by ours: above 1 we are faster."""
        return self.peers[self.best] / self.ms if self.best and not self.failure else math.nan

    @property
    def share_of_peak(self) -> float:
        return self.macs / self.ms / self.peak if self.kind == "float" and self.macs else math.nan


def error_of(got: Sequence[np.ndarray], expected: Sequence[np.ndarray]) -> float:
    """The largest difference as a share of the largest expected value of that output.

    Some runtimes give outputs in an order, or a shape, of their own: each is compared with the nearest of its size.
    """
    if not expected or len(got) != len(expected):
        return math.nan
    flat = [a.astype(np.float64).ravel() for a in got]
    errors = [min((_share(a, b.astype(np.float64).ravel()) for a in flat if a.size == b.size), default=math.nan) for b in expected]
    return math.nan if any(math.isnan(e) for e in errors) else max(errors)


def _share(got: np.ndarray, expected: np.ndarray) -> float:
    largest = float(np.max(np.abs(expected), initial=0.0)) + 1e-9
    difference = float(np.max(np.abs(got - expected), initial=0.0))
    return math.inf if math.isnan(difference) else difference / largest


def paired(groups: Sequence[Group]) -> bool:
    """Whether names of both sides agree for most of our time: some runtimes give their layers new names."""
    both = sum(g.ours_ms for g in groups if g.ours_ms and g.peer_ms)
    return both > 0.5 * sum(g.ours_ms for g in groups)


def median_of_rounds(rounds: Mapping[str, Sequence[float]]) -> dict[str, float]:
    return {name: statistics.median(times) for name, times in rounds.items() if times}


def geometric_mean(values: Iterable[float]) -> float:
    known = [v for v in values if not math.isnan(v)]
    return math.exp(sum(map(math.log, known)) / len(known)) if known else math.nan


def means(rows: Sequence[Row]) -> dict[str, tuple[float, int]]:
    """The geometric mean of the ratios and how many there are, for the sets that have targets."""
    measured = [r for r in rows if not math.isnan(r.ratio)]
    sets = {
        "float": [r for r in measured if r.kind == "float"],
        "float, below 20 MMAC": [r for r in measured if r.kind == "float" and r.macs < SMALL_MACS],
        "int8": [r for r in measured if r.kind == "int8"],
    }
    return {name: (geometric_mean(r.ratio for r in chosen), len(chosen)) for name, chosen in sets.items() if chosen}


def grouped(ours: Sequence[LayerTime], peers: Sequence[LayerTime]) -> list[Group]:
    """Layers of both sides, joined where they name the same nodes of the model; the largest loss first.

    A layer of ours names one node of those that it computes. A peer's layer may name many, and one layer may be several on the
    other side: everything that is connected through a node is one group. What one side alone names becomes a group of its own, so
    that the sums of both sides are kept.
    """
    parent: dict[str, str] = {}

    def root(node: str) -> str:
        parent.setdefault(node, node)
        while parent[node] != node:
            node = parent[node]
        return node

    for layer in [*ours, *peers]:
        for node in layer.nodes[1:]:
            parent[root(node)] = root(layer.nodes[0])
    members: dict[str, tuple[list[LayerTime], list[LayerTime]]] = {}
    for side, layers in enumerate((ours, peers)):
        for layer in layers:
            key = root(layer.nodes[0]) if layer.nodes else layer.name
            members.setdefault(key, ([], []))[side].append(layer)
    groups = [_group(mine, theirs) for mine, theirs in members.values()]
    return sorted(groups, key=lambda g: -g.lost_ms)


def _group(mine: list[LayerTime], theirs: list[LayerTime]) -> Group:
    def slowest(layers: list[LayerTime]) -> LayerTime | None:
        return max(layers, key=lambda layer: layer.ms, default=None)

    first, second = slowest(mine), slowest(theirs)
    name = first.name if first else second.name if second else ""
    kinds = (first.kind if first else "-", second.kind if second else "-")
    return Group(name, kinds, sum(m.ms for m in mine), sum(t.ms for t in theirs), sum(m.macs for m in mine))
