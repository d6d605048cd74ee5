"""What accelerators compute, with the cycles that the rest of the page has.

`compile` writes where layers went and why, with the cycles of the model of costs that decided. The profile counts the same layers:
where it did, `profiled_cycles` of a region, of a layer that stayed on the core and of the whole are its figures."""

from __future__ import annotations

from collections.abc import Iterable

from intaglio.report.facts import LayerFacts


def with_profile(table: dict[str, object] | None, layers: tuple[LayerFacts, ...], total: int | None) -> dict[str, object] | None:
    if table is None:
        return None
    regions = [{**row, "profiled_cycles": _cycles(_region(row, layers))} for row in _rows(table, "regions")]
    kept = [{**row, "profiled_cycles": _cycles(_kept(row, layers))} for row in _rows(table, "core")]
    return {**table, "profiled_cycles": total, "regions": regions, "core": kept}


def _rows(table: dict[str, object], key: str) -> list[dict[str, object]]:
    rows = table.get(key)
    return [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []


def _region(row: dict[str, object], layers: tuple[LayerFacts, ...]) -> list[LayerFacts]:
    accelerator, _, number = str(row.get("place", "")).rpartition(".")
    return [layer for layer in layers if layer.accelerator == accelerator and layer.kernel.endswith(f"(region={number})")]


def _kept(row: dict[str, object], layers: tuple[LayerFacts, ...]) -> list[LayerFacts]:
    return [
        layer for layer in layers
        if not layer.accelerator and layer.op == row.get("op") and (layer.source or layer.name) == row.get("layer")
    ]  # fmt: skip


def _cycles(layers: Iterable[LayerFacts]) -> int | None:
    counts = [layer.cycles for layer in layers]
    known = [count for count in counts if count is not None]
    return sum(known) if known and len(known) == len(counts) else None


__all__ = ["with_profile"]
