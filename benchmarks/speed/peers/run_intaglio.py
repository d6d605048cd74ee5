"""Ours: the package that `intaglio compile` makes with default options, called through its C function."""

from __future__ import annotations

import ctypes

import numpy as np

import intaglio
from figures import LayerTime
from intaglio.errors import IntaglioError
from intaglio.run.host import Library, pointers
from peers.base import Missing, Work

FORMATS = ("onnx", "tflite", "pt2")


class Ours:
    def __init__(self, work: Work) -> None:
        self.folder = work.folder / "package"
        shapes = {f"in{i}": tuple(a.shape) for i, a in enumerate(work.inputs)} if "onnx" in work.files else {}
        package = intaglio.compile(work.path, output=self.folder, shapes=shapes, force=True)
        self.library = Library(self.folder / "lib" / f"lib{package.name}.so", package.manifest)
        self.inputs = [np.ascontiguousarray(a) for a in work.inputs]
        self.results = [np.empty(o.shape, o.type.dtype.numpy) for o in package.manifest.outputs]
        self.given, self.taken = pointers(self.inputs), pointers(self.results)
        self.call = self.library._run
        self.arguments = (self.library._arena, ctypes.addressof(self.given), ctypes.addressof(self.taken))

    def run(self) -> None:
        self.call(*self.arguments)

    def outputs(self) -> list[np.ndarray]:
        self.library.reset()
        self.run()
        return self.results

    def layers(self) -> list[LayerTime]:
        profile = intaglio.Package.load(self.folder).profile()
        return [LayerTime(row.name, row.kernel, row.time_ms or 0.0, (row.source,), row.macs) for row in profile.layers]


def open_session(work: Work) -> Ours:
    try:
        return Ours(work)
    except IntaglioError as error:
        raise Missing(str(error)) from None
