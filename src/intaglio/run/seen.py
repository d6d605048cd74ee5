"""How often the blocks of machine code ran, and how often their branches were taken."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from intaglio.run.emulator.counting import Counts
from intaglio.run.flow import Flow


@dataclass(frozen=True, slots=True)
class Seen:
    """How often instructions ran, and branches were taken, by address."""

    ran: Mapping[int, int]
    taken: Mapping[int, int]

    def edge(self, flow: Flow, at: int, to: int) -> int:
        """How often a run went this way."""
        block = flow.blocks[at]
        ran, taken = self.ran.get(at, 0), self.taken.get(at + block.size, 0)
        if (block.taken is None or block.taken == block.next) and not block.may_leave:
            return ran
        if block.next is None:
            return ran
        if block.may_leave:
            return ran - min(ran, taken)
        return min(ran, taken) if to == block.taken else ran - min(ran, taken)


def seen_of(counts: Iterable[Counts], flows: Mapping[int, Flow]) -> Seen:
    """Blocks of an emulator may start and end elsewhere than ours. Of several runs, the most."""
    ran: dict[int, int] = {}
    taken: dict[int, int] = {}
    ours = sorted((block.address, block.last) for flow in flows.values() for block in flow.blocks.values())
    starts = np.array([start for start, _ in ours], np.int64)
    for one in counts:
        now: dict[int, int] = {}
        ends: dict[int, int] = {}
        for block, times in one.blocks.items():
            first, last = np.searchsorted(starts, [block.address, block.address + block.size_bytes])
            for start in starts[first:last]:
                now[int(start)] = now.get(int(start), 0) + times.ran
            ends[block.address + block.size_bytes] = ends.get(block.address + block.size_bytes, 0) + times.taken
        ran = {at: max(ran.get(at, 0), now.get(at, 0)) for at in ran.keys() | now.keys()}
        taken = {at: max(taken.get(at, 0), ends.get(at, 0)) for at in taken.keys() | ends.keys()}
    return Seen(ran, taken)
