"""The table: a row per ONNX operator, in files by family."""

from __future__ import annotations

from importlib import import_module

FAMILIES = (
    "elementwise", "constants", "shaping", "indexing", "reduction", "normalise", "convolution", "pooling", "products",
    "recurrent", "quantised", "images", "control", "scans", "sequences", "signal", "losses", "microsoft",
    "microsoft_quantised",
)  # fmt: skip


def fill_table() -> None:
    for family in FAMILIES:
        import_module(f"intaglio.frontends.onnx.rows.{family}")
