"""What a worker does with a piece: one result for each job."""

from __future__ import annotations

import contextlib
import filecmp
import hashlib
import os
import shutil
import tempfile
import time
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from intaglio.errors import UserError, quoted
from intaglio.fleet.pieces import NO, OK, Job, Piece, Result, Value, told
from intaglio.options.request import Request
from intaglio.package.ownership import MANIFEST, file_digest
from intaglio.pipeline import compile_request
from intaglio.project.build import package_sizes
from intaglio.run.package import Package
from intaglio.stages.watch import Watch
from intaglio.survey.boards import as_compiled, on_board
from intaglio.survey.figures import Figures, on_core, quantised_once
from intaglio.survey.means import Finder
from intaglio.targets.board import find_board
from intaglio.targets.target import all_targets


def nothing(piece: Piece) -> list[Result]:
    """To measure what the engine itself costs."""
    return [Result(job.key, OK, figures={"number": n}) for n, job in enumerate(piece.jobs)]


def check_model(piece: Piece) -> None:
    path = piece.request.model
    if piece.sha256 and path.is_file() and (digest := file_digest(path)) != piece.sha256.lower():
        what = f"{quoted(path.name)} is not the model of the project: its SHA-256 is {digest}"
        raise UserError("wrong-model", what, hint="put the right file there, or change `sha256`")


def fit(piece: Piece) -> list[Result]:
    """One model on the boards of one core."""
    check_model(piece)
    core = piece.request.target or ""
    if core not in all_targets():
        raise UserError("unknown-target", f"there is no core {quoted(core)}")
    results = []
    with ExitStack() as stack:
        once = stack.enter_context(quantised_once(piece.request))
        figures = on_core(once, core, quick=piece.quick)
        if figures is None:
            compile_request(replace(once, stop_after="memory", output=_scratch(stack) / "x.ig"), Watch())  # tells why
        finder = Finder(once, {core: figures}, core, stack)
        for job, name in zip(piece.jobs, piece.boards, strict=True):
            try:
                results.append(_fitted(job, name, once, figures, finder, piece))
            except Exception as error:  # of one board
                results.append(Result(job.key, *told(error)))
    return results


def _fitted(job: Job, name: str, once: Request, figures: Figures | None, finder: Finder, piece: Piece) -> Result:
    board = find_board(name)
    on = on_board(once, board, figures, finder)
    if on.needs is None or figures is None:
        return Result(job.key, NO, "not supported on this core")
    row: dict[str, Value] = {"ram": sum(on.needs.ram.values()), "flash": sum(on.needs.flash.values()), "time": on.time_ms}
    row |= {"instructions": figures.instructions, "means": ", ".join(on.means), "sizes": on.sizes, "times": on.time}
    if piece.quick:
        return Result(job.key, OK if on.fits else NO, "" if on.fits else on.told(), row)
    made = as_compiled(replace(piece.request, target=None, board=name), board, figures)
    row |= {"ram": made.ram, "flash": made.flash, "time": made.time_ms, "sizes": made.figures.sizes}
    if not made.refusal:
        row |= {"instructions": made.figures.instructions, "times": made.figures.time}
    elif on.fits:
        row["means"] = ""  # of the core alone: not on this board
    return Result(job.key, NO if made.refusal else OK, made.refusal, row)


def _scratch(stack: ExitStack) -> Path:
    return Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="intaglio-fleet-")))


def build(piece: Piece) -> list[Result]:
    """Compile, then whatever else is asked of the package. It goes to the store when it is complete."""
    check_model(piece)
    start = time.perf_counter()
    with ExitStack() as stack:
        folder = _scratch(stack) / "package"
        compile_request(replace(piece.request, output=folder, force=True), Watch())
        spent = time.perf_counter() - start
        package = Package(folder)
        kept = keep(folder, Path(piece.packages)) if _is_kept(piece, folder) else ""
        results = []
        for job in piece.jobs:
            begun = time.perf_counter()
            made = _made(job, package, kept)
            spent_here = spent if job.kind == "compile" else time.perf_counter() - begun
            results.append(replace(made, seconds=spent_here))
        return results


def _is_kept(piece: Piece, folder: Path) -> bool:
    """It is asked for, or was before and is measured now."""
    digest = hashlib.sha256((folder / MANIFEST).read_bytes()).hexdigest()
    return any(job.kind == "compile" for job in piece.jobs) or (Path(piece.packages) / digest[:2] / digest).is_dir()


def _made(job: Job, package: Package, kept: str) -> Result:
    try:
        if job.kind == "compile":
            return Result(job.key, OK, figures=_sizes(package), package=kept)
        if job.kind == "validate":
            return _validated(job, package)
        return _profiled(job, package)
    except Exception as error:
        return Result(job.key, *told(error))


def _sizes(package: Package) -> dict[str, Value]:
    ram, flash = package_sizes(package.manifest, package)
    row: dict[str, Value] = {"ram": ram, "flash": flash, "arena": package.manifest.memory.arena_bytes}
    row |= {"weights": package.manifest.memory.weight_bytes, "macs": sum(layer.macs for layer in package.manifest.layers)}
    accuracy = package.accuracy
    return row if accuracy is None else {**row, "accuracy": accuracy.package}


def _validated(job: Job, package: Package) -> Result:
    found = package.validate()
    worst = max((o.max_rel for o in found.outputs), default=0.0)
    mismatches = sum(o.mismatches or 0 for o in found.outputs)
    row: dict[str, Value] = {"error": float(worst), "mismatches": mismatches}
    first = found.first_bad_layer
    reason = "" if found.ok else f"differs from the reference{f', first in {first}' if first else ''}"
    return Result(job.key, OK if found.ok else NO, reason, row)


def _profiled(job: Job, package: Package) -> Result:
    total = package.profile().total
    row: dict[str, Value] = {"time": total.time_ms, "instructions": total.instructions, "cycles": total.cycles}
    return Result(job.key, OK, figures=row)


def keep(folder: Path, packages: Path) -> str:
    """Into the store, under the digest of its manifest, which has the digests of all other files. Who comes second has the same; a
    package there that somebody has changed is replaced."""
    digest = hashlib.sha256((folder / MANIFEST).read_bytes()).hexdigest()
    place = packages / digest[:2] / digest
    changed = place.is_dir()
    if not changed or not is_same(folder, place):
        place.parent.mkdir(parents=True, exist_ok=True)
        beside = Path(tempfile.mkdtemp(prefix=".put-", dir=place.parent))
        try:
            shutil.copytree(folder, beside / "package", symlinks=True)
            if changed:
                with contextlib.suppress(FileNotFoundError):  # another process was first
                    os.rename(place, beside / "changed")
            try:
                os.rename(beside / "package", place)
            except OSError:
                if not place.is_dir():
                    raise
        finally:
            shutil.rmtree(beside, ignore_errors=True)
    return digest


def is_same(folder: Path, other: Path) -> bool:
    """The same files with the same content."""
    names = [sorted(str(p.relative_to(top)) for p in top.rglob("*") if p.is_file()) for top in (folder, other)]
    return names[0] == names[1] and not any(filecmp.cmpfiles(folder, other, names[0], shallow=False)[1:])


__all__ = ["build", "fit", "keep", "nothing"]
