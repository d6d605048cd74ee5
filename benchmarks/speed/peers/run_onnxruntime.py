"""ONNX Runtime on the CPU; inputs and outputs are bound, so that a call copies nothing."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnxruntime as ort

from figures import LayerTime
from peers.base import Work

FORMATS = ("onnx",)
PROFILED_RUNS = 12


class OnnxRuntime:
    def __init__(self, work: Work) -> None:
        self.work = work
        self.session = self._open(ort.SessionOptions())
        self.binding = self.session.io_binding()
        for name, array in self._feed().items():
            self.binding.bind_cpu_input(name, array)
        for output in self.session.get_outputs():
            self.binding.bind_output(output.name)

    def _open(self, options: ort.SessionOptions) -> ort.InferenceSession:
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.log_severity_level = 3
        return ort.InferenceSession(str(self.work.file("onnx")), options, providers=["CPUExecutionProvider"])

    def _feed(self) -> dict[str, np.ndarray]:
        return {i.name: a for i, a in zip(self.session.get_inputs(), self.work.inputs, strict=True)}

    def run(self) -> None:
        self.session.run_with_iobinding(self.binding)

    def outputs(self) -> list[np.ndarray]:
        results: list[np.ndarray] = self.session.run(None, self._feed())
        return results

    def layers(self) -> list[LayerTime]:
        """The least of several runs. A name ends in `_kernel_time` there; fused nodes keep the name of one of them."""
        options = ort.SessionOptions()
        options.enable_profiling = True
        self.work.folder.mkdir(parents=True, exist_ok=True)
        options.profile_file_prefix = str(self.work.folder / "onnxruntime")
        session = self._open(options)
        for _ in range(PROFILED_RUNS):
            session.run(None, self._feed())
        path = Path(session.end_profiling())
        events = json.loads(path.read_text(encoding="utf-8"))
        path.unlink()
        return least_of_events(events)


def least_of_events(events: list[dict[str, object]]) -> list[LayerTime]:
    found: dict[str, LayerTime] = {}
    for event in events:
        name, arguments = str(event.get("name", "")), event.get("args")
        if event.get("cat") == "Node" and name.endswith("_kernel_time") and isinstance(arguments, dict):
            node = name.removesuffix("_kernel_time")
            ms = float(str(event["dur"])) / 1e3
            before = found.get(node)
            if before is None or ms < before.ms:
                found[node] = LayerTime(node, str(arguments.get("op_name", "")), ms, (node.removesuffix("_nchwc"),))
    return list(found.values())


def open_session(work: Work) -> OnnxRuntime:
    return OnnxRuntime(work)
