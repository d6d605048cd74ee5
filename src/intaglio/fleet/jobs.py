"""From the cells of a plan to jobs: what has to be done, under which key its result is known, and in which pieces.

The key of a result is a digest of everything that it depends on: the request with the content of its files, Intaglio itself, the
model, the board. A result that the store has under its key is not made again.

A piece is what one process does at a time. `fit` of one model on several boards with the same core is one piece, because the model
is planned, or built, once for the core; `compile`, `validate` and `profile` of one package are one piece, because they need it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from functools import cache
from pathlib import Path

from intaglio.fleet.pieces import Job, Piece
from intaglio.options.request import Request
from intaglio.package.ownership import file_digest
from intaglio.project.fleet import Cell, FleetPlan
from intaglio.stages.current import request_digest
from intaglio.targets.board import find_board


def pieces_of(plan: FleetPlan) -> list[Piece]:
    """All of them, whatever the store has."""
    found: list[Piece] = []
    if "fit" in plan.jobs:
        found += _fits([cell for cell in plan.cells if cell.board], plan.quick)
    kinds = tuple(kind for kind in plan.jobs if kind != "fit")
    return found + [piece_of(cell, kinds, plan.store) for cell in plan.cells if kinds]


def piece_of(cell: Cell, kinds: Sequence[str], store: Path) -> Piece:
    """A package and what is asked of it."""
    jobs = tuple(_job(kind, cell, _digest(cell.request)) for kind in kinds)
    packages = str((store / "packages").absolute())
    return Piece("intaglio.fleet.work:build", jobs, cell.request, cell.sha256, packages=packages)


def _fits(cells: Sequence[Cell], quick: bool) -> Iterator[Piece]:
    """One for each core."""
    groups: dict[tuple[str, str, str], list[Cell]] = {}
    for cell in cells:
        board = cell.request.board or ""
        groups.setdefault((cell.model, cell.variant, find_board(board).core), []).append(cell)
    for (_, _, core), group in groups.items():
        request = replace(group[0].request, board=None, target=core)
        about = f"{_digest(request)} {'quick' if quick else 'built'}"
        boards = tuple(cell.request.board or "" for cell in group)
        jobs = tuple(_job("fit", cell, f"{about} {_board_digest(board)}") for cell, board in zip(group, boards, strict=True))
        yield Piece("intaglio.fleet.work:fit", jobs, request, group[0].sha256, boards, quick)


def _job(kind: str, cell: Cell, about: str) -> Job:
    key = hashlib.sha256(f"1 {kind} {about} {cell.sha256}".encode()).hexdigest()
    return Job(key, kind, cell.model, cell.variant, cell.place)


@cache
def _board_digest(name: str) -> str:
    return hashlib.sha256(json.dumps(asdict(find_board(name)), sort_keys=True, default=str).encode()).hexdigest()


def _digest(request: Request) -> str:
    return f"{request_digest(request)} {model_digest(request.model)}"


@cache
def model_digest(path: Path) -> str:
    """A model that is not there has a key too: its job says so. One of several files depends on those beside it."""
    if path.is_dir():
        inside = sorted(p for p in path.rglob("*") if p.is_file())
        return hashlib.sha256(json.dumps([[str(p.relative_to(path)), file_digest(p)] for p in inside]).encode()).hexdigest()
    beside = [p for p in (path.with_suffix(".safetensors"), path.with_name(f"{path.name}.data")) if p.is_file()]
    return " ".join(file_digest(p) for p in (path, *beside)) if path.is_file() else "missing"


def missing(pieces: Sequence[Piece], done: set[str]) -> list[Piece]:
    """What is left: pieces without the jobs whose results are there. `validate` and `profile` find their package in the store, or
    make it again."""
    left = []
    for piece in pieces:
        jobs = tuple(job for job in piece.jobs if job.key not in done)
        if jobs:
            chosen = [n for n, job in enumerate(piece.jobs) if job in jobs]
            left.append(replace(piece, jobs=jobs, boards=tuple(piece.boards[n] for n in chosen) if piece.boards else ()))
    return left


__all__ = ["missing", "model_digest", "piece_of", "pieces_of"]
