"""The models beside the project: on machines of its developers, not on those of users.

No other file says where they are."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

SHARED = Path(__file__).resolve().parents[3] / "shared" / "models"
needs_shared = pytest.mark.skipif(not SHARED.is_dir(), reason="the shared models are not beside the project")
MODELS: list[dict[str, Any]] = json.loads((SHARED / "manifest.json").read_text()) if SHARED.is_dir() else []
ONNX = [m for m in MODELS if m["format"] == "onnx"]
TFLITE = [m for m in MODELS if m["format"] == "tflite"]


def shapes_of(entry: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    """The shapes of a model's inputs, for axes that its file leaves open."""
    return {f"in{i}": tuple(shape) for i, (_, _, shape) in enumerate(entry["inputs"])}
