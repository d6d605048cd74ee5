"""Rows of a front end's table, found in the modules of its `rows` package; no list names the modules."""

from __future__ import annotations

from collections.abc import Iterable
from importlib import import_module
from pkgutil import iter_modules
from typing import TypeVar

Key = TypeVar("Key")
Row = TypeVar("Row")


def import_rows(package: str) -> None:
    """Import every module of `package` in the order of names. Each adds its rows to the table of its front end."""
    for name in sorted(module.name for module in iter_modules(import_module(package).__path__)):
        import_module(f"{package}.{name}")


def add_rows(table: dict[Key, Row], keys: Iterable[Key], row: Row) -> Row:
    """One row for each key; two for the same one would leave the choice to the order of imports."""
    for key in keys:
        assert key not in table, f"two rows for {key}"
        table[key] = row
    return row
