"""The runtimes that Intaglio is compared with: one module each, all behind `base.Session`.

A peer that is not installed, or that cannot take a model, is a line of the report and never the end of a run: `worker.py` runs each
one in a process of its own.
"""

from __future__ import annotations

import importlib

from peers.base import Missing, Session, Work

OURS = "intaglio"
PEERS = {  # the name of the module here, and the name that people know
    "onnxruntime": "ONNX Runtime",
    "openvino": "OpenVINO",
    "mnn": "MNN",
    "ncnn": "ncnn",
    "litert": "LiteRT",
    "emx": "emx-onnx-cgen",
}
LABELS = {OURS: "Intaglio", **PEERS}


def open_session(name: str, work: Work) -> Session:
    """The model, loaded by a runtime on one thread, with its inputs set."""
    if name not in LABELS:
        raise Missing(f"unknown runtime; available: {', '.join(LABELS)}")
    module = importlib.import_module(f"peers.run_{name}")
    if not any(work.file(format) for format in module.FORMATS):
        raise Missing(f"takes {' and '.join(module.FORMATS)} files only")
    session: Session = module.open_session(work)
    return session
