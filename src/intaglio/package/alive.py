"""How much of the arenas is in use while a layer runs. A result that takes over the memory of its operand counts once."""

from __future__ import annotations

from collections.abc import Iterable

from intaglio.package.manifest import PlaceInfo


def alive_bytes(places: Iterable[PlaceInfo], layer: int) -> int:
    """Bytes of all regions that belong to some buffer which is alive in this layer."""
    spans = sorted((p.region, p.offset, p.offset + p.bytes) for p in places if p.first_layer <= layer <= p.last_layer)
    total, region, end = 0, "", 0
    for name, first, last in spans:
        if name != region:
            region, end = name, 0
        total += max(0, last - max(first, end))
        end = max(end, last)
    return total


__all__ = ["alive_bytes"]
