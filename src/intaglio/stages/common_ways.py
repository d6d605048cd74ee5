"""Entry points that read the same weights read them in the same order, so that these are packed once.

The order follows from the kernel and the vectors of its tile: `matmul(tile=1x4)` and `matmul(tile=3x4)` read the same panels. Of
the orders that all layers of a weight can have, the one with the least estimated time for all of them together is taken.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from intaglio.ir.choices import Choices
from intaglio.ir.graph import Node
from intaglio.kernels.choice import Way, every_way, has_choice
from intaglio.stages.lowering import choose_kernels
from intaglio.stages.work import Work, need

_ROWS = re.compile(r"tile=\d+x")
Reader = tuple[str, Node]  # an entry point, and a layer of it


def in_one_order(works: Mapping[str, Work]) -> dict[str, Work]:
    """Each variant by itself: others have other vectors."""
    found = _in_one_order(works)
    count = min(len(work.others) for work in works.values())
    beside = [_in_one_order({entry: work.others[n] for entry, work in works.items()}) for n in range(count)]
    return {entry: replace(work, others=tuple(each[entry] for each in beside)) for entry, work in found.items()}


def _in_one_order(works: Mapping[str, Work]) -> dict[str, Work]:
    chosen: dict[str, dict[str, str]] = {entry: {} for entry in works}
    for readers in _readers(works):
        for (entry, node), using in zip(readers, _together(works, readers), strict=False):
            chosen[entry][node.output.name] = using
    return {entry: _chosen_anew(work, chosen[entry]) if chosen[entry] else work for entry, work in works.items()}


def _readers(works: Mapping[str, Work]) -> list[list[Reader]]:
    """Layers of several entry points that read the same weights, and whose kernel nobody has chosen."""
    found: dict[str, list[Reader]] = {}
    for entry, work in works.items():
        asked = need(work.model).source.choices
        for node in need(work.program).graph.nodes:
            if has_choice(node) and not asked.of(node):
                for value in node.inputs[1:]:
                    if value is not None and value.data is not None and value.type.rank > 1:
                        data = np.ascontiguousarray(value.data)
                        key = hashlib.sha256(data.reshape(-1).view(np.uint8).data).hexdigest()
                        found.setdefault(f"{node.op.NAME} {value.dtype.value}{data.shape} {key}", []).append((entry, node))
    return [readers for readers in found.values() if len({entry for entry, _ in readers}) > 1]


def _together(works: Mapping[str, Work], readers: Sequence[Reader]) -> list[str]:
    """The kernel of each; none where all have the same order, or no order is possible for all."""
    if len({_order(need(works[entry].program).choices.of(node)) for entry, node in readers}) == 1:
        return []
    ways = [_fastest_by_order(every_way(node, need(works[entry].model).target)) for entry, node in readers]
    possible = set.intersection(*(set(found) for found in ways))
    if not possible:
        return []
    best = min(possible, key=lambda order: (sum(found[order].estimate_us for found in ways), order))
    return [found[best].using for found in ways]


def _fastest_by_order(ways: list[Way]) -> dict[str, Way]:
    found: dict[str, Way] = {}
    for way in sorted(ways, key=lambda way: way.estimate_us):
        found.setdefault(_order(way.using), way)
    return found


def _order(using: str) -> str:
    return _ROWS.sub("tile=x", using)


def _chosen_anew(work: Work, kernels: Mapping[str, str]) -> Work:
    model = need(work.model)
    asked = model.source.choices
    known = asked.kernels if asked.target == model.target.name else {}
    choices = Choices(model.target.name, {**known, **kernels}, asked.stripes)
    return choose_kernels(replace(work, model=replace(model, source=replace(model.source, choices=choices)), memo=None))
