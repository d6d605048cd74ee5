"""MNN on one thread. Its own converter turns the model into its format."""

from __future__ import annotations

import sys
import time

import MNN
import numpy as np

from figures import LayerTime
from peers.base import Missing, Work, convert

FORMATS = ("onnx", "tflite")
PROFILED_RUNS = 12
# The extension behind `MNN.tools.mnnconvert`. Its Python wrapper installs a logging client into whatever `pip` is on the path, and
# sends a record of each conversion to its makers.
CONVERTER = "import sys, MNN, _tools; _tools.mnnconvert(sys.argv)"
FRAMEWORKS = {"onnx": "ONNX", "tflite": "TFLITE"}


class Mnn:
    def __init__(self, work: Work) -> None:
        format = next(f for f in FORMATS if work.file(f))
        path = (work.folder / "mnn" / f"{work.name}.mnn").resolve()
        source = str(work.files[format].resolve())
        command = [sys.executable, "-c", CONVERTER, "-f", FRAMEWORKS[format], "--modelFile", source]
        convert([*command, "--MNNModel", str(path), "--bizCode", "bench", "--useOriginRNNImpl"], path.parent, path)
        self.interpreter = MNN.Interpreter(str(path))
        self.session = self.interpreter.createSession({"backend": "CPU", "numThread": 1, "precision": "high"})
        self.tensors = dict(self.interpreter.getSessionInputAll(self.session))
        if len(self.tensors) != len(work.inputs):
            raise Missing(f"has {len(self.tensors)} of {len(work.inputs)} inputs after its conversion")
        self.kept = []
        changed = False
        for tensor, array in zip(self.tensors.values(), work.inputs, strict=True):
            if tuple(tensor.getShape()) != array.shape:
                self.interpreter.resizeTensor(tensor, tuple(array.shape))
                changed = True
        if changed:
            self.interpreter.resizeSession(self.session)
        for tensor, array in zip(self.tensors.values(), work.inputs, strict=True):
            self._set(tensor, array)

    def _set(self, tensor: MNN.Tensor, array: np.ndarray) -> None:
        whole = {np.dtype(np.int64): np.int32, np.dtype(np.int8): np.int8, np.dtype(np.uint8): np.uint8}
        given = np.ascontiguousarray(array.astype(whole.get(array.dtype, array.dtype)))
        made = MNN.Tensor(tuple(given.shape), tensor.getDataType(), given, tensor.getDimensionType())
        self.kept.append((given, made))
        tensor.copyFrom(made)

    def run(self) -> None:
        self.interpreter.runSession(self.session)

    def outputs(self) -> list[np.ndarray]:
        self.run()
        results = []
        for tensor in self.interpreter.getSessionOutputAll(self.session).values():
            shape = tuple(tensor.getShape())
            host = MNN.Tensor(shape, tensor.getDataType(), np.zeros(shape, np.float32), tensor.getDimensionType())
            tensor.copyToHostTensor(host)
            results.append(np.array(host.getNumpyData()))
        return results

    def layers(self) -> list[LayerTime]:
        """Between the callbacks before and after each operator; the least of several runs. Names are those of results in ONNX."""
        begun: list[tuple[str, str, float]] = []
        ended: list[float] = []

        def begin(_: object, operator: MNN.OpInfo) -> bool:
            begun.append((operator.getName(), operator.getType(), time.perf_counter()))
            return True

        def end(_: object, __: MNN.OpInfo) -> bool:
            ended.append(time.perf_counter())
            return True

        least: dict[str, LayerTime] = {}
        for _ in range(PROFILED_RUNS):
            begun.clear()
            ended.clear()
            self.interpreter.runSessionWithCallBackInfo(self.session, begin, end)
            for (name, kind, start), stop in zip(begun, ended, strict=True):
                ms = (stop - start) * 1e3
                if name not in least or ms < least[name].ms:
                    least[name] = LayerTime(name, kind, ms, (name,))
        return list(least.values())


def open_session(work: Work) -> Mnn:
    return Mnn(work)
