"""PyTorch models as graphs."""

from __future__ import annotations

from pathlib import Path

from intaglio.errors import ModelError, quoted
from intaglio.frontends.onnx.faults import Problem
from intaglio.ir.graph import Graph


def load(
    path: Path, *, dims: dict[str, int], shapes: dict[str, tuple[int, ...]], name: str | None = None
) -> tuple[Graph, list[str]]:
    hint = "export the model to ONNX; ONNX and TFLite models and IR files are read now"
    raise ModelError("unsupported-format", f"{quoted(str(path), 200)} is a PyTorch model, which is not supported yet", hint=hint)


def check(path: Path, *, dims: dict[str, int], shapes: dict[str, tuple[int, ...]]) -> list[Problem]:
    load(path, dims=dims, shapes=shapes)
    return []


def save_object(model: object, example_inputs: tuple[object, ...] | None, path: Path) -> None:
    """The object as a file that `load` reads."""
    raise ModelError("unsupported-format", "PyTorch models are not supported yet")
