"""Int8 forms of a float ONNX model by ONNX Runtime's static quantiser, on random calibration data."""

from __future__ import annotations

import logging
from pathlib import Path

import numpy as np
import onnx

from tflite_form import write_tflite

SAMPLES = 4


class RandomData:
    """Normal data: what the weights' batch norms were settled on."""

    def __init__(self, name: str, shape: list[int]) -> None:
        random = np.random.default_rng(11)
        self.rows = iter([{name: random.standard_normal(shape).astype(np.float32)} for _ in range(SAMPLES)])

    def get_next(self) -> dict[str, np.ndarray] | None:
        return next(self.rows, None)


def write_qdq(path: Path, folder: Path) -> dict[str, Path]:
    """The model with quantisers around its operators, and the same integers as a TFLite file; what exists is kept.

    Activations are int8, weights int8 by channel: the types that both formats have.
    """
    from onnxruntime.quantization import QuantFormat, QuantType, quantize_static
    from onnxruntime.quantization.shape_inference import quant_pre_process

    made = folder / f"{path.stem}_qdq.onnx"
    if not made.exists():
        logging.disable(logging.WARNING)
        prepared, unfinished = made.with_suffix(".prepared"), made.with_suffix(".part")
        quant_pre_process(str(path), str(prepared), skip_symbolic_shape=True)
        graph = onnx.load(str(prepared)).graph
        shape = [d.dim_value for d in graph.input[0].type.tensor_type.shape.dim]
        quantize_static(
            str(prepared), str(unfinished), RandomData(graph.input[0].name, shape), quant_format=QuantFormat.QDQ, per_channel=True,
            activation_type=QuantType.QInt8, weight_type=QuantType.QInt8,
        )  # fmt: skip
        prepared.unlink()
        unfinished.rename(made)
        logging.disable(logging.NOTSET)
    small = made.with_suffix(".tflite")
    if not small.exists():
        write_tflite(made, small)
    return {"onnx": made, "tflite": small}
