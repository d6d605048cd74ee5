"""Weights of 4 bits: of -7 to 7 (`int4`), or of 16 numbers of a layer's own between -127 and 127 (`palette`).

They are bytes like others for everything that computes with them. What they save is memory: `fitting/packed.py` stores bytes of few
values in fewer bits.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from intaglio.ir.graph import Array

LARGEST = 7  # symmetric: two of these beside each other, as the DSP extension has them, are of 16 values again
VALUES = 16
_SHARES = np.linspace(1.0, 0.5, 26)


def four_bits(weights: Array, most: Array, axes: tuple[int, ...]) -> Array:
    """The scale of each channel with the least square error: a few large weights may be cut off."""
    best, error = most / LARGEST, np.full(most.shape, np.inf)
    for share in _SHARES:
        scale = most * (share / LARGEST)
        rounded = np.clip(np.rint(weights / scale), -LARGEST, LARGEST) * scale
        made = np.square(rounded - weights, dtype=np.float64).sum(axis=axes, keepdims=True)
        best, error = np.where(made < error, scale, best), np.minimum(made, error)
    return np.asarray(best, np.float32)


def of_a_palette(stored: Array) -> Array:
    """Each byte as the nearest of 16 values, of which one is 0, chosen for the least square error of all."""
    values, places, counts = np.unique(stored, return_inverse=True, return_counts=True)
    if len(values) <= VALUES:
        return stored
    chosen = np.unique(np.append(_centres(values.astype(np.float64), counts.astype(np.float64)), 0))
    nearest = np.abs(values[:, None].astype(np.int64) - chosen[None]).argmin(axis=1)
    return np.asarray(chosen[nearest][places].reshape(stored.shape), np.int8)


def _centres(values: Array, counts: Array) -> Array:
    """Means of 15 runs of neighbouring values: the division with the least square error, found run by run."""
    weight, first, second = (np.concatenate([[0.0], np.cumsum(counts * values**power)]) for power in (0, 1, 2))
    size = len(values) + 1
    low, high = np.meshgrid(np.arange(size), np.arange(size), indexing="ij")
    count = np.maximum(weight[high] - weight[low], 1.0)
    spread = (second[high] - second[low]) - (first[high] - first[low]) ** 2 / count
    cost = np.where(low < high, spread, np.inf)
    best, cuts = cost[0], []
    for _ in range(VALUES - 2):
        longer = best[:, None] + cost
        cuts.append(longer.argmin(axis=0))
        best = longer.min(axis=0)
    ends = [size - 1]
    for cut in reversed(cuts):
        ends.append(int(cut[ends[-1]]))
    ends = [0, *reversed(ends)]
    return np.asarray([np.rint((first[b] - first[a]) / (weight[b] - weight[a])) for a, b in pairwise(ends)], np.int64)
