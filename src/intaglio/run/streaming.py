"""What a stream should say: the model on the window that ends with the newest frames.

A layer that goes on from step to step (causal, recurrent) has no window: then the model sees everything since the reset, as long as
that is what it was made for.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from intaglio.ir.graph import Array
from intaglio.package.manifest import Manifest, StreamInfo
from intaglio.run.reference import Reference


class Windowed:
    """A reference for whole windows, fed like a stream."""

    def __init__(self, whole: Reference, manifest: Manifest, info: StreamInfo) -> None:
        self._whole, self._manifest, self._info = whole, manifest, info
        self._past: Array | None = None
        self.about = f"{whole.about}, on each window"

    def fresh(self) -> None:
        self._past = None

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Until there is a whole window, the frames before the first are zeros."""
        info = self._info
        given = self._manifest.inputs[0]
        new = np.asarray(inputs[given.name]).reshape(given.shape)
        self._past = new if self._past is None else np.concatenate([self._past, new], axis=info.axis)
        frames = self._past.shape[info.axis]
        if info.goes_on:
            return self._since_reset(given.name, frames)
        window = _last(self._past, info.window, info.axis)
        self._past = window
        return self._newest(self._whole.run({given.name: window}), 0)

    def _since_reset(self, name: str, frames: int) -> dict[str, Array]:
        """What comes after the frames that are here does not matter for their results."""
        assert self._past is not None
        info = self._info
        first = np.take(self._past, range(min(frames, info.window)), axis=info.axis)
        missing = info.window - first.shape[info.axis]
        padding = [(0, missing if n == info.axis else 0) for n in range(first.ndim)]
        return self._newest(self._whole.run({name: np.pad(first, padding)}), max(0, missing))

    def _newest(self, results: dict[str, Array], missing: int) -> dict[str, Array]:
        """Of results that have frames themselves, those of the newest step."""
        made = dict(results)
        for out, axis in zip(self._manifest.outputs, self._info.outputs, strict=True):
            if axis is None or out.name not in made:
                continue
            whole = np.asarray(made[out.name])
            rows = out.shape[axis]
            end = whole.shape[axis] - missing * whole.shape[axis] // self._info.window
            made[out.name] = np.take(whole, range(max(0, end - rows), end), axis=axis)
        return made


def _last(array: Array, count: int, axis: int) -> Array:
    have = array.shape[axis]
    if have >= count:
        return np.take(array, range(have - count, have), axis=axis)
    return np.pad(array, [(count - have if n == axis else 0, 0) for n in range(array.ndim)])


def comparable(info: StreamInfo, steps: int) -> list[int]:
    """The steps whose results the model can tell."""
    whole = -(-info.window // info.hop)
    if not info.goes_on:
        return list(range(whole - 1, steps))
    if all(axis is not None for axis in info.outputs):
        return list(range(min(steps, info.window // info.hop)))
    return [whole - 1] if steps >= whole else []
