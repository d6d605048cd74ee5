"""A row per layer and function of Keras, in files by family."""

from __future__ import annotations

from importlib import import_module

FAMILIES = (
    "activation", "attention", "convolution", "core", "functions", "legacy", "merging", "normalise", "pooling", "recurrent",
    "shaping",
)  # fmt: skip


def fill_tables() -> None:
    for family in FAMILIES:
        import_module(f"intaglio.frontends.keras.rows.{family}")
