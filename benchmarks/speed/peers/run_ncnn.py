"""ncnn on one thread. Its converter, pnnx, reads ONNX files; weights stay f32."""

from __future__ import annotations

import shutil

import ncnn
import numpy as np

from figures import LayerTime
from peers.base import Missing, Work, convert, tool

FORMATS = ("onnx",)


class Ncnn:
    def __init__(self, work: Work) -> None:
        folder = (work.folder / "ncnn").resolve()
        shapes = ",".join("[" + ",".join(str(n) for n in a.shape) + "]" + _kind(a) for a in work.inputs)
        model = folder / "net.onnx"
        if not model.exists():  # it writes beside the file that it reads
            folder.mkdir(parents=True, exist_ok=True)
            shutil.copy(work.files["onnx"], model)
        command = [tool("pnnx"), str(model), f"inputshape={shapes}", "fp16=0"]
        names = [f"{key}={folder / file}" for key, file in _FILES.items()]
        convert([*command, *names], folder, folder / _FILES["ncnnparam"])
        self.net = ncnn.Net()
        self.net.opt.num_threads = 1
        self.net.opt.use_fp16_packed = self.net.opt.use_fp16_storage = self.net.opt.use_fp16_arithmetic = False
        if self.net.load_param(str(folder / _FILES["ncnnparam"])) or self.net.load_model(str(folder / _FILES["ncnnbin"])):
            raise Missing("its converted model has operators that it does not know")
        given, taken = self.net.input_names(), self.net.output_names()
        if len(given) != len(work.inputs):
            raise Missing(f"has {len(given)} of {len(work.inputs)} inputs after its conversion")
        self.inputs = [(name, ncnn.Mat(_without_batch(a)).clone()) for name, a in zip(given, work.inputs, strict=True)]
        self.names = taken

    def run(self) -> None:
        self._run()

    def _run(self) -> list[ncnn.Mat]:
        extractor = self.net.create_extractor()
        for name, mat in self.inputs:
            extractor.input(name, mat)
        results = []
        for name in self.names:
            code, mat = extractor.extract(name)
            if code != 0:
                raise Missing(f"stopped with code {code}")
            results.append(mat)
        return results

    def outputs(self) -> list[np.ndarray]:
        return [np.array(mat) for mat in self._run()]

    def layers(self) -> list[LayerTime]:
        return []


_FILES = {
    "ncnnparam": "net.ncnn.param", "ncnnbin": "net.ncnn.bin", "ncnnpy": "net_ncnn.py", "pnnxparam": "net.pnnx.param",
    "pnnxbin": "net.pnnx.bin", "pnnxpy": "net_pnnx.py", "pnnxonnx": "net.pnnx.onnx",
}  # fmt: skip


def _kind(array: np.ndarray) -> str:
    return {np.dtype(np.int64): "i64", np.dtype(np.int32): "i32"}.get(array.dtype, "f32")


def _without_batch(array: np.ndarray) -> np.ndarray:
    """ncnn has no batch: a leading 1 is not part of its shapes."""
    inner = array[0] if array.ndim > 1 and array.shape[0] == 1 else array
    return np.ascontiguousarray(inner.astype(np.int32) if array.dtype == np.int64 else inner)


def open_session(work: Work) -> Ncnn:
    return Ncnn(work)
