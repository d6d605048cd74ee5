"""A dossier as a folder: the page, the facts as JSON, and tables for other tools."""

from __future__ import annotations

import csv
import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from intaglio.dossier.facts import Dossier
from intaglio.dossier.page import page
from intaglio.package.folder import fresh_folder

TRACE = ("layer", "node", "ir", "passes", "function", "file", "first_line", "last_line", "address", "bytes")


def write_dossier(d: Dossier, output: Path) -> None:
    with fresh_folder(output, force=False) as folder:
        (folder / "index.html").write_text(page(d), encoding="utf-8")
        (folder / "dossier.json").write_text(json.dumps(as_json(d), indent=1, default=str) + "\n", encoding="utf-8")
        _csv(folder / "trace.csv", TRACE, [
            (t.layer, t.nodes, t.ir, " ".join(t.passes), *_place(t.place)) for t in d.trace.layers
        ])  # fmt: skip
        _csv(folder / "memory.csv", ("buffer", "region", "offset", "bytes", "first_layer", "last_layer"), [
            (b.value, b.region, b.offset, b.bytes, b.first_layer, b.last_layer) for b in d.memory.buffers
        ])  # fmt: skip
        _csv(folder / "time.csv", ("layer", "name", "observed_cycles", "bound_cycles", "reason"), [
            (b.layer, b.name, b.observed, b.cycles, b.reason) for b in d.timing.layers
        ])  # fmt: skip


def as_json(d: Dossier) -> dict[str, object]:
    told = {key: value for key, value in asdict(d).items() if key not in ("manifest", "validation")}
    told["package"], told["target"], told["model_sha256"] = d.manifest.name, d.manifest.target, d.manifest.model.sha256
    told["valid"] = None if d.validation is None else d.validation.ok
    told["memory_proven"] = d.memory.ok
    told["loops_sound"] = all(k.facts.sound for k in d.kernels)
    told["statement_coverage"], told["branch_coverage"] = d.coverage.statement_share, d.coverage.branch_share
    return told


def _place(place: object) -> tuple[object, ...]:
    from intaglio.dossier.trace import Place

    if not isinstance(place, Place):
        return ("", "", "", "", "", "")
    return place.function, place.file, place.first_line, place.last_line, hex(place.address) if place.address else "", place.bytes


def _csv(path: Path, titles: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    with open(path, "w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(titles)
        writer.writerows(rows)
