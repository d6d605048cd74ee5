"""Offsets in the arena: gap-filling placement in several orders, then a seeded search, until the lower bound is met.

Placing a buffer looks at those already placed whose lifetimes meet its own and takes the lowest gap that is wide enough. The
order decides the result, so a few good ones are tried (largest first, longest-lived first, by the busiest layer), then the
buffers that touch the top are moved forward in the order at random. The lower bound is the largest sum of sizes alive at once.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from intaglio.memory.lifetimes import Buffer, align

_TRIES = 400


def lower_bound(buffers: list[Buffer], alignment: int) -> int:
    load: dict[int, int] = {}
    for buffer in buffers:
        for layer in range(buffer.first, buffer.last + 1):
            load[layer] = load.get(layer, 0) + align(buffer.bytes, alignment)
    return max(load.values(), default=0)


def place_buffers(buffers: list[Buffer], alignment: int) -> int:
    """Set every offset; returns the bytes of the arena."""
    if not buffers:
        return 0
    goal = lower_bound(buffers, alignment)
    meets = _neighbours(buffers)
    best_top, best = _place(_orders(buffers, alignment)[0], meets, alignment)
    for order in _orders(buffers, alignment)[1:]:
        top, offsets = _place(order, meets, alignment)
        if top < best_top:
            best_top, best = top, offsets
    if best_top > goal:
        best_top, best = _search(buffers, meets, alignment, goal, best_top, best)
    for buffer in buffers:
        buffer.offset = best[buffer]
    return best_top


def _neighbours(buffers: list[Buffer]) -> dict[Buffer, list[Buffer]]:
    """Who is alive at the same time, by one sweep over the layers."""
    meets: dict[Buffer, list[Buffer]] = {b: [] for b in buffers}
    alive: list[Buffer] = []
    for buffer in sorted(buffers, key=lambda b: b.first):
        alive = [b for b in alive if b.last >= buffer.first]
        for other in alive:
            meets[buffer].append(other)
            meets[other].append(buffer)
        alive.append(buffer)
    return meets


def _orders(buffers: list[Buffer], alignment: int) -> list[list[Buffer]]:
    load: dict[int, int] = {}
    for b in buffers:
        for layer in range(b.first, b.last + 1):
            load[layer] = load.get(layer, 0) + align(b.bytes, alignment)
    pressure = {b: max(load[n] for n in range(b.first, b.last + 1)) for b in buffers}
    keys: list[Callable[[Buffer], tuple[int, ...]]] = [
        lambda b: (-b.bytes, b.first, b.scratch_of),
        lambda b: (-b.bytes * (b.last - b.first + 1), b.first, b.scratch_of),
        lambda b: (-pressure[b], -b.bytes, b.first, b.scratch_of),
        lambda b: (-(b.last - b.first), -b.bytes, b.first, b.scratch_of),
        lambda b: (b.first, -b.bytes, b.scratch_of),
        lambda b: (-pressure[b], b.first, -b.bytes, b.scratch_of),
    ]
    return [sorted(buffers, key=key) for key in keys]


def _place(order: list[Buffer], meets: dict[Buffer, list[Buffer]], alignment: int) -> tuple[int, dict[Buffer, int]]:
    offsets: dict[Buffer, int] = {}
    top = 0
    for buffer in order:
        taken = sorted((offsets[b], offsets[b] + b.bytes) for b in meets[buffer] if b in offsets)
        at = 0
        for low, high in taken:
            if low - at >= buffer.bytes:
                break
            at = max(at, align(high, alignment))
        offsets[buffer] = at
        top = max(top, align(at + buffer.bytes, alignment))
    return top, offsets


def _search(
    buffers: list[Buffer],
    meets: dict[Buffer, list[Buffer]],
    alignment: int,
    goal: int,
    top: int,
    offsets: dict[Buffer, int],
) -> tuple[int, dict[Buffer, int]]:
    """Move a buffer that touches the top, or one of its neighbours, earlier in the order; keep what is not worse."""
    rng = random.Random(0)
    order = sorted(buffers, key=lambda b: (offsets[b], b.first, b.name))
    best_top, best = top, offsets
    now_top, now = _place(order, meets, alignment)
    if now_top < best_top:
        best_top, best = now_top, now
    tries = max(20, min(_TRIES, 400_000 // (len(buffers) + 1)))
    for _ in range(tries):
        if best_top <= goal:
            break
        high = [b for b in buffers if align(now[b] + b.bytes, alignment) == now_top]
        pick = rng.choice(high)
        if meets[pick] and rng.random() < 0.5:
            pick = rng.choice(meets[pick])
        trial = list(order)
        trial.remove(pick)
        trial.insert(rng.randrange(len(trial) + 1), pick)
        trial_top, trial_offsets = _place(trial, meets, alignment)
        if trial_top <= now_top or rng.random() < 0.02:
            order, now_top, now = trial, trial_top, trial_offsets
            if now_top < best_top:
                best_top, best = now_top, now
    return best_top, best
