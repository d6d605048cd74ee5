"""OpenVINO's CPU plug-in on one thread, in f32 also where the processor has bf16."""

from __future__ import annotations

import numpy as np
import openvino as ov

from figures import LayerTime
from peers.base import Missing, Work

FORMATS = ("onnx", "tflite")
PROFILED_RUNS = 12
SETTINGS = {
    "INFERENCE_NUM_THREADS": 1,
    "NUM_STREAMS": 1,
    "PERFORMANCE_HINT": "LATENCY",
    "INFERENCE_PRECISION_HINT": "f32",
    "ENABLE_CPU_PINNING": False,  # the process is pinned
}


class OpenVino:
    def __init__(self, work: Work) -> None:
        self.work = work
        self.core = ov.Core()
        self.compiled, self.request = self._open({})

    def _open(self, more: dict[str, object]) -> tuple[ov.CompiledModel, ov.InferRequest]:
        model = self.core.read_model(str(self.work.file("onnx") or self.work.file("tflite")))
        model.reshape({i: list(array.shape) for i, array in enumerate(self.work.inputs)})
        compiled = self.core.compile_model(model, "CPU", {**SETTINGS, **more})
        request = compiled.create_infer_request()
        for i, array in enumerate(self.work.inputs):
            request.set_input_tensor(i, ov.Tensor(array))
        return compiled, request

    def run(self) -> None:
        self.request.infer()

    def outputs(self) -> list[np.ndarray]:
        self.request.infer()
        return [np.array(self.request.get_output_tensor(i).data) for i in range(len(self.compiled.outputs))]

    def layers(self) -> list[LayerTime]:
        """The runtime's graph names, for each of its nodes, the nodes of the model that were fused into it."""
        compiled, request = self._open({"PERF_COUNT": True})
        least: dict[str, float] = {}
        for _ in range(PROFILED_RUNS):
            request.infer()
            for row in request.profiling_info:
                ms = row.real_time.total_seconds() * 1e3
                least[row.node_name] = min(ms, least.get(row.node_name, ms))
        layers = []
        for node in compiled.get_runtime_model().get_ordered_ops():
            info = node.get_rt_info()
            told = {key: info[key].astype(str) for key in ("originalLayersNames", "primitiveType", "layerType") if key in info}
            name = node.get_friendly_name()
            names = tuple(n for n in told.get("originalLayersNames", name).split(",") if n)
            kind = " ".join(part for part in (told.get("layerType", ""), told.get("primitiveType", "")) if part)
            if least.get(name):  # constants take no time
                layers.append(LayerTime(name, kind, least[name], names))
        return layers


def open_session(work: Work) -> OpenVino:
    try:
        return OpenVino(work)
    except RuntimeError as error:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        raise Missing(lines[-1] if lines else "refused the model") from None
