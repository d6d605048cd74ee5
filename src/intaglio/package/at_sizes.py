"""A package for some of the sizes that its caller may give, and which ones those are by the shapes of inputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from intaglio.errors import counted, quoted
from intaglio.package.manifest import Manifest


def at_sizes(manifest: Manifest, sizes: Mapping[str, int]) -> Manifest:
    """The same network for these sizes of the caller: all tensors have the shapes that follow."""
    if not sizes:
        return manifest
    found = manifest.found
    layers = tuple(replace(layer, outputs=tuple(o.at(sizes, found) for o in layer.outputs)) for layer in manifest.layers)
    return replace(ends_at_sizes(manifest, sizes), layers=layers)


def ends_at_sizes(manifest: Manifest, sizes: Mapping[str, int]) -> Manifest:
    """The same for inputs and outputs alone: what a call of the network needs, without a look at its layers."""
    if not sizes:
        return manifest
    found = manifest.found
    inputs, outputs = (tuple(info.at(sizes, found) for info in infos) for infos in (manifest.inputs, manifest.outputs))
    return replace(manifest, inputs=inputs, outputs=outputs)


def sizes_of(manifest: Manifest, shapes: Sequence[tuple[int, ...]]) -> dict[str, int]:
    """What the sizes of the caller are, by the shapes of the inputs. Raises ValueError with the reason where that is not clear."""
    found: dict[str, int] = {}
    for info, shape in zip(manifest.inputs, shapes, strict=True):
        if not info.dims:
            continue
        if len(shape) != len(info.dims):
            raise ValueError(f"input {quoted(info.name)} has {counted(len(shape), 'axis')}, the model takes `[{info.shape_text}]`")
        for text, n in zip(info.dims, shape, strict=True):
            if any(text == size.name for size in manifest.given) and found.setdefault(text, n) != n:
                raise ValueError(f"`{text}` is {found[text]} in one input and {n} in another")
    for size in manifest.given:
        if size.name not in found:
            raise ValueError(f"no input says what `{size.name}` is")
        if found[size.name] not in size.span.numbers:
            raise ValueError(f"`{size.name}` is {found[size.name]}, which is not within {size.span}")
    return found
