"""The arena over time: which buffers are where, from which layer to which; and how much of it is alive in each."""

from __future__ import annotations

from intaglio.ir.text import Network
from intaglio.package.alive import alive_bytes
from intaglio.package.manifest import Manifest, PlaceInfo
from intaglio.report.facts import Block, Region


def blocks_of(manifest: Manifest, network: Network | None) -> tuple[Block, ...]:
    """Of layers, as the manifest has them; of inputs in the arena, up to the last layer that reads them."""
    found = []
    for layer in manifest.layers:
        for place in layer.memory:
            if place.region.partition(":")[0] in ("arena", "state"):
                if place.region == "state":
                    continue
                kind = place.value if place.value in ("scratch", "weights") else "value"
                name = place.value if kind == "value" else f"{kind} of {layer.name}"
                found.append(
                    Block(name, place.region, place.offset, place.bytes, place.first_layer, place.last_layer, layer.index, kind)
                )
    if manifest.memory.state_bytes:  # at the start of the first arena, alive from run to run
        found.append(Block("state", "arena", 0, manifest.memory.state_bytes, 0, max(0, len(manifest.layers) - 1), -1, "state"))
    last = _last_readers(manifest, network)
    for info in manifest.inputs:
        if info.arena_offset is not None:
            found.append(
                Block(info.field, info.arena_region, info.arena_offset, info.bytes, 0, last.get(info.field, 0), -1, "input")
            )
    return tuple(found)


def _last_readers(manifest: Manifest, network: Network | None) -> dict[str, int]:
    if network is None:
        return {}
    index = {layer.name: layer.index for layer in manifest.layers}
    names = {value.name: info.field for value, info in zip(network.graph.inputs, manifest.inputs, strict=False)}
    root = dict(names)
    last: dict[str, int] = {}
    for node in network.graph.nodes:
        read = {root[v.name] for v in node.inputs if v is not None and v.name in root}
        if network.choices.is_view(node):
            for field in read:
                root[node.output.name] = field
        for field in read:
            last[field] = max(last.get(field, 0), index.get(node.output.name, 0))
    return last


def regions_of(manifest: Manifest, blocks: tuple[Block, ...]) -> tuple[Region, ...]:
    steps = len(manifest.layers)
    found = []
    for name, size in manifest.memory.arena_sizes().items():
        places = [PlaceInfo(b.value, name, b.offset, b.bytes, b.first, b.last) for b in blocks if b.region == name]
        live = [alive_bytes(places, step) for step in range(steps)]
        bound = manifest.memory.lower_bound_bytes if not manifest.memory.arenas else max(live, default=0)
        found.append(Region(name, size, min(bound, size), tuple(live), max(range(steps), key=live.__getitem__, default=0)))
    return tuple(found)


__all__ = ["blocks_of", "regions_of"]
