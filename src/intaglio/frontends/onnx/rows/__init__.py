"""The table: a row per ONNX operator, in files by family."""

from __future__ import annotations

from intaglio.frontends.discovery import import_rows


def fill_table() -> None:
    import_rows(__name__)
