"""emx-onnx-cgen, the other generator of C: its C built by gcc with the flags that are best for it."""

from __future__ import annotations

import ctypes
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx

from figures import LayerTime
from peers.base import Missing, Work, convert, tool

FORMATS = ("onnx",)
FLAGS = ("-O3", "-march=native", "-fPIC", "-shared", "-fno-math-errno")
BUILD_SECONDS = 300


class Emx:
    def __init__(self, work: Work) -> None:
        folder = (work.folder / "emx").resolve()
        folder.mkdir(parents=True, exist_ok=True)
        _pinned(work, folder / "pinned.onnx")
        convert([tool("emx-onnx-cgen"), "compile", "pinned.onnx", "net.c", "--restrict-arrays"], folder, folder / "net.c")
        if not (folder / "net.so").exists():
            try:
                command = ["gcc", *FLAGS, "net.c", "-o", "net.so", "-lm"]
                subprocess.run(command, cwd=folder, check=True, capture_output=True, timeout=BUILD_SECONDS)
            except (OSError, subprocess.SubprocessError) as error:
                raise Missing(f"gcc does not build its C: {type(error).__name__}") from None
        library = ctypes.CDLL(str(folder / "net.so"))
        if (folder / "model.bin").exists():
            library.model_load(str(folder / "model.bin").encode())
        self.call = library.model
        self.call.restype = None
        self.inputs = [np.ascontiguousarray(a) for a in work.inputs]
        self.results: list[np.ndarray] = []
        text = (folder / "net.c").read_text(encoding="utf-8", errors="replace")
        signature = re.findall(r"^void model\((.*?)\) \{", text, re.S | re.M)[-1]
        given = iter(self.inputs)
        self.arguments = [self._argument(part, given) for part in signature.split(", ")]

    def _argument(self, part: str, given: Iterator[np.ndarray]) -> ctypes.c_void_p:
        if part.startswith("const "):
            return ctypes.c_void_p(next(given).ctypes.data)
        if "[" not in part:
            raise Missing(f"scalar argument `{part}`")
        sizes = [int(n) for n in re.findall(r"\[(?:restrict )?(\d+)\]", part)]
        kind = {"float": np.float32, "double": np.float64, "int64_t": np.int64, "int32_t": np.int32}
        array = np.zeros(sizes, kind.get(part.split()[0], np.uint8))
        self.results.append(array)
        return ctypes.c_void_p(array.ctypes.data)

    def run(self) -> None:
        self.call(*self.arguments)

    def outputs(self) -> list[np.ndarray]:
        self.run()
        return self.results

    def layers(self) -> list[LayerTime]:
        return []


def _pinned(work: Work, path: Path) -> None:
    """The model with the shapes of the inputs: it has no other way to give them."""
    if path.exists():
        return
    model = onnx.load(str(work.files["onnx"]))
    weights = {w.name for w in model.graph.initializer}
    infos = [i for i in model.graph.input if i.name not in weights]
    for info, array in zip(infos, work.inputs, strict=True):
        dims = info.type.tensor_type.shape
        del dims.dim[:]
        for size in array.shape:
            dims.dim.add().dim_value = size
    onnx.save(model, str(path))


def open_session(work: Work) -> Emx:
    return Emx(work)
