"""LiteRT with its default delegate, XNNPACK, on one thread."""

from __future__ import annotations

import numpy as np
from ai_edge_litert.interpreter import Interpreter

from figures import LayerTime
from peers.base import Work

FORMATS = ("tflite",)


class LiteRt:
    def __init__(self, work: Work) -> None:
        self.interpreter = Interpreter(model_path=str(work.file("tflite")), num_threads=1)
        details = self.interpreter.get_input_details()
        arrays = [fitted(array, tuple(detail["shape"])) for detail, array in zip(details, work.inputs, strict=True)]
        self.interpreter.allocate_tensors()
        for detail, array in zip(details, arrays, strict=True):
            self.interpreter.set_tensor(detail["index"], array)

    def run(self) -> None:
        self.interpreter.invoke()

    def outputs(self) -> list[np.ndarray]:
        self.run()
        return [np.array(self.interpreter.get_tensor(d["index"])) for d in self.interpreter.get_output_details()]

    def layers(self) -> list[LayerTime]:
        return []


def fitted(array: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Images whose channels come first, as in ONNX, for a file whose channels come last."""
    if array.ndim == 4 and array.shape != shape and tuple(array.shape[i] for i in (0, 2, 3, 1)) == shape:
        return np.ascontiguousarray(array.transpose(0, 2, 3, 1))
    return array.reshape(shape)


def open_session(work: Work) -> LiteRt:
    return LiteRt(work)
