"""Sparse constants as dense ones: levels of coordinates, each dense or compressed (CSR), the last ones inside of blocks.

A level names an axis of the tensor, or a block of one; a compressed level lists, for every place of the level before, where its
entries start (`segments`) and their coordinates (`indices`).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from intaglio.ir.graph import Array

_VECTORS = {1: "Int32Vector", 2: "Uint16Vector", 3: "Uint8Vector"}
_DENSE, _COMPRESSED = 0, 1


class BadSparsity(ValueError):
    """What is wrong with the description of a sparse tensor."""


def _vector(schema: Any, table: Any, kind: int, limit: int) -> Array:
    if table is None or kind not in _VECTORS:
        raise BadSparsity("a compressed level lacks its segments or indices")
    vector = getattr(schema, _VECTORS[kind])()
    vector.Init(table.Bytes, table.Pos)
    length = vector.ValuesLength()
    if not 0 <= length <= limit:
        raise BadSparsity(f"a level claims {length} numbers")
    return np.asarray([vector.Values(i) for i in range(length)], np.int64)


def densify(schema: Any, sparsity: Any, values: Array, shape: tuple[int, ...], file_size: int) -> Array:
    """The dense tensor; `file_size` bounds every length that the file claims."""
    rank, levels = len(shape), sparsity.DimMetadataLength()
    order = [int(sparsity.TraversalOrder(i)) for i in range(min(sparsity.TraversalOrderLength(), 64))]
    blocked = [int(sparsity.BlockMap(i)) for i in range(min(sparsity.BlockMapLength(), 64))]
    if len(order) != levels or levels != rank + len(blocked) or sorted(order) != list(range(levels)):
        raise BadSparsity(f"the order {order} of {levels} levels does not fit {rank} axes and {len(blocked)} blocks")
    if len(set(blocked)) != len(blocked) or any(not 0 <= b < rank for b in blocked):
        raise BadSparsity(f"blocks along axes {blocked} of {rank}")
    metadata = [sparsity.DimMetadata(i) for i in range(levels)]
    block_sizes = [int(metadata[order.index(rank + n)].DenseSize()) for n in range(len(blocked))]
    if any(b < 1 for b in block_sizes) or any(shape[a] % b for a, b in zip(blocked, block_sizes, strict=True)):
        raise BadSparsity(f"blocks of {block_sizes} in {list(shape)}")
    sizes = [d // math.prod(b for a, b in zip(blocked, block_sizes, strict=True) if a == n) for n, d in enumerate(shape)]
    places: Array = np.zeros((1, levels), np.int64)  # coordinates by axis, then by block
    for level, at in zip(metadata, order, strict=True):
        size = sizes[at] if at < rank else block_sizes[at - rank]
        places = _descend(schema, level, places, at, size, math.prod(shape), file_size)
    if len(places) != len(values):
        raise BadSparsity(f"{len(values)} numbers for {len(places)} places")
    coordinates = places[:, :rank].copy()
    for n, (axis, block) in enumerate(zip(blocked, block_sizes, strict=True)):
        coordinates[:, axis] = coordinates[:, axis] * block + places[:, rank + n]
    dense = np.zeros(shape, values.dtype)
    dense[tuple(coordinates.T)] = values
    return dense


def _descend(schema: Any, level: Any, places: Array, at: int, size: int, most: int, file_size: int) -> Array:
    """The places one level down."""
    if level.Format() == _DENSE:
        if level.DenseSize() != size or len(places) * size > most:
            raise BadSparsity(f"a dense level of {level.DenseSize()} where the axis has {size}")
        counts, inner = np.full(len(places), size), np.tile(np.arange(size), len(places))
    elif level.Format() == _COMPRESSED:
        segments = _vector(schema, level.ArraySegments(), level.ArraySegmentsType(), file_size)
        inner = _vector(schema, level.ArrayIndices(), level.ArrayIndicesType(), file_size)
        counts = np.diff(segments)
        if len(counts) != len(places) or segments[0] != 0 or np.any(counts < 0) or segments[-1] != len(inner):
            raise BadSparsity(f"segments of {len(inner)} entries that do not follow each other")
        if len(inner) and not 0 <= int(inner.min()) <= int(inner.max()) < size:
            raise BadSparsity(f"an index outside an axis of {size}")
    else:
        raise BadSparsity(f"a level of the unknown format {level.Format()}")
    below = np.repeat(places, counts, axis=0)
    below[:, at] = inner
    return below
