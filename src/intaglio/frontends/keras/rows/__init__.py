"""A row per layer and function of Keras, in files by family."""

from __future__ import annotations

from intaglio.frontends.discovery import import_rows


def fill_tables() -> None:
    import_rows(__name__)
