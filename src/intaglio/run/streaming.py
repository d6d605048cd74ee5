"""What a stream should say: the model on the window that ends with the newest frames.

A layer that goes on from step to step (causal, recurrent) has no window: then the model sees everything since the reset, as long as
that is what it was made for.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from intaglio.ir.graph import Array
from intaglio.package.manifest import Manifest, TensorInfo
from intaglio.package.stream_info import StreamInfo
from intaglio.run.reference import Reference


class Windowed:
    """A reference for whole windows, fed like a stream."""

    of_model = True

    def __init__(self, whole: Reference, manifest: Manifest, info: StreamInfo) -> None:
        self._whole, self._manifest, self._info = whole, manifest, info
        self._past: Array | None = None
        self._late = 0  # steps whose rows come before the first of the model
        self.about = f"{whole.about}, on each window"

    def fresh(self) -> None:
        self._past = None

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Until there is a whole window, the frames before the first are zeros."""
        info = self._info
        given = self._manifest.inputs[0]
        new = np.asarray(inputs[given.name]).reshape(given.shape)
        self._past = new if self._past is None else np.concatenate([self._past, new], axis=info.axis)
        if info.goes_on:
            return self._since_reset(given.name)
        self._past = _last(self._past, info.window + info.hop, info.axis)
        return self._newest(given.name, self._past)

    def _since_reset(self, name: str) -> dict[str, Array]:
        """What comes after the frames that are here does not matter for their results."""
        assert self._past is not None
        info = self._info
        first = np.take(self._past, range(min(self._past.shape[info.axis], info.window)), axis=info.axis)
        missing = info.window - first.shape[info.axis]
        padding = [(0, missing if n == info.axis else 0) for n in range(first.ndim)]
        self._whole.fresh()
        made = dict(self._whole.run({name: np.pad(first, padding)}))
        for out, axis in self._with_frames(made):
            whole, rows = np.asarray(made[out.name]), out.shape[axis]
            late = info.window * rows // info.hop - whole.shape[axis]
            self._late = max(self._late, -(-late // rows))
            end = whole.shape[axis] - missing * rows // info.hop
            made[out.name] = _last(np.take(whole, range(max(0, end)), axis=axis), rows, axis)
        return made

    def _newest(self, name: str, frames: Array) -> dict[str, Array]:
        """Of results that have frames themselves, those of the newest step. A step may have more of them than the window."""
        info = self._info
        made = dict(self._whole.run({name: _last(frames, info.window, info.axis)}))
        for out, axis in self._with_frames(made):
            whole, rows = np.asarray(made[out.name]), out.shape[axis]
            count = whole.shape[axis]
            while whole.shape[axis] < rows:
                end = frames.shape[info.axis] - whole.shape[axis] * info.hop // rows
                earlier = np.take(frames, range(end), axis=info.axis)
                older = np.asarray(self._whole.run({name: _last(earlier, info.window, info.axis)})[out.name])
                whole = np.concatenate([_last(older, count, axis), whole], axis=axis)
            made[out.name] = _last(whole, rows, axis)
        return made

    def _with_frames(self, made: Mapping[str, Array]) -> list[tuple[TensorInfo, int]]:
        pairs = zip(self._manifest.outputs, self._info.outputs, strict=True)
        return [(out, axis) for out, axis in pairs if axis is not None and out.name in made]

    def comparable(self, steps: int) -> list[int]:
        """The steps whose results the model can tell."""
        info = self._info
        whole = -(-info.window // info.hop)
        if not info.goes_on:
            return list(range(whole - 1, steps))
        if all(axis is not None for axis in info.outputs):
            return list(range(self._late, min(steps, whole)))
        return [whole - 1] if steps >= whole else []


def _last(array: Array, count: int, axis: int) -> Array:
    have = array.shape[axis]
    if have >= count:
        return np.take(array, range(have - count, have), axis=axis)
    return np.pad(array, [(count - have if n == axis else 0, 0) for n in range(array.ndim)])
