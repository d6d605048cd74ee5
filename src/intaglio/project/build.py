"""Making what a project file asks for: in parallel, only what changed, each job apart from the others."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, replace
from multiprocessing import get_context
from pathlib import Path

from intaglio.errors import IntaglioError, UserError, quoted
from intaglio.options.request import Request
from intaglio.package.entries import Entries, read_entries
from intaglio.package.folder import write_text
from intaglio.package.manifest import Manifest, read_manifest
from intaglio.package.ownership import MANIFEST, file_digest
from intaglio.pipeline import compile_entry_requests, compile_request
from intaglio.project.file import Firmware, Job, ProjectFile
from intaglio.project.products import check_target, make_products
from intaglio.report.budgets import check_budgets
from intaglio.report.code import code_of
from intaglio.report.gather import Wanted, binary_bytes, gather
from intaglio.report.page import page
from intaglio.report.whole import look_at_whole
from intaglio.run.linking import link_packages
from intaglio.run.package import Package
from intaglio.stages.current import is_current
from intaglio.stages.entries import are_current
from intaglio.stages.watch import Watch
from intaglio.targets.deployment import target_of

BUILT, CURRENT, OVER, FAILED = "built", "up to date", "over budget", "failed"
RUNS = frozenset({"time", "instructions", "cycles", "error"})  # budgets that need a run


@dataclass(frozen=True, slots=True)
class Outcome:
    """`code`: as an exit code. `lines`: budgets that are broken, or the error. `files`: made of the package to hand out."""

    name: str
    state: str
    target: str = ""
    ram_bytes: int | None = None
    flash_bytes: int | None = None
    seconds: float = 0.0
    code: int = 0
    lines: tuple[str, ...] = ()
    files: tuple[Path, ...] = ()


def build_project(
    project: ProjectFile, names: Sequence[str], jobs: int, *, force: bool, heard: Callable[[Outcome], None]
) -> list[Outcome]:
    """All packages, or those that are named, then the firmware that is made of them. A job that fails stops no other."""
    chosen = _chosen(project, names)
    found = _built_here(chosen[0], force, heard) if len(chosen) == 1 else _built(chosen, jobs, force, heard)
    outcomes = [found[job.name] for job in chosen]
    for firmware in project.firmware:
        if not names or firmware.name in names:
            outcomes.append(_link(firmware, project, found, force=force))
            heard(outcomes[-1])
    return outcomes


def _built_here(job: Job, force: bool, heard: Callable[[Outcome], None]) -> dict[str, Outcome]:
    """One alone needs no other process; if it ends this one, that is seen here."""
    outcome = _build(job, force)
    heard(outcome)
    return {job.name: outcome}


def _built(chosen: Sequence[Job], jobs: int, force: bool, heard: Callable[[Outcome], None]) -> dict[str, Outcome]:
    found: dict[str, Outcome] = {}
    with ProcessPoolExecutor(max(1, min(jobs, len(chosen))), mp_context=get_context("spawn")) as pool:
        waiting: dict[Future[Outcome], Job] = {pool.submit(_build, job, force): job for job in chosen}
        for future in as_completed(waiting):
            job = waiting[future]
            try:
                found[job.name] = future.result()
            except BrokenProcessPool:
                found[job.name] = Outcome(job.name, FAILED, code=3, lines=("the process ended; build it alone to see why",))
            heard(found[job.name])
    return found


def _chosen(project: ProjectFile, names: Sequence[str]) -> list[Job]:
    linked = {part for f in project.firmware if f.name in names for part in f.packages}
    known = [*(job.name for job in project.jobs), *(f.name for f in project.firmware)]
    for name in names:
        if name not in known:
            hint = f"packages and firmware: {', '.join(f'`{one}`' for one in known)}"
            raise UserError("bad-option", f"the project has no {quoted(name)}", hint=hint)
    return [job for job in project.jobs if not names or job.name in names or job.name in linked]


def _build(job: Job, force: bool) -> Outcome:
    start = time.perf_counter()
    try:
        outcome = _made(job, force)
    except IntaglioError as error:
        target = job.request.board or job.request.target or "host"
        outcome = Outcome(job.name, FAILED, target, code=max(2, error.exit_code), lines=(str(error),))
    return replace(outcome, seconds=time.perf_counter() - start)


def _check_model(request: Request, sha256: str) -> None:
    if sha256 and request.model.is_file() and (digest := file_digest(request.model)) != sha256.lower():
        what = f"{quoted(request.model.name)} is not the model of the project: its SHA-256 is {digest}"
        raise UserError("wrong-model", what, hint="put the right file there, or change `sha256`")


def _entries_made(job: Job, force: bool) -> Outcome:
    """Several entry points in one package."""
    for _, request, sha256 in job.entries:
        _check_model(request, sha256)
    requests = {entry: replace(request, force=False) for entry, request, _ in job.entries}
    output, name = job.request.output, job.request.name or job.name.replace("-", "_").replace(".", "_")
    current = not force and are_current(requests, name, output)
    if not current:
        compile_entry_requests(requests, output, Watch(), name=name, force=True)
    whole = read_entries(output)
    assert whole is not None
    broken = _all_looked_at(job, whole, current)
    state = OVER if broken else CURRENT if current else BUILT
    sizes = whole.arena_bytes, whole.weight_bytes
    if whole.firmware is not None:
        sizes = whole.firmware.ram_bytes, whole.firmware.flash_bytes
    return Outcome(job.name, state, whole.target, *sizes, 0.0, 1 if broken else 0, broken)


def _all_looked_at(job: Job, whole: Entries, current: bool) -> tuple[str, ...]:
    """The page and the budgets of several entry points."""
    wants_page = job.report is not None and not (current and job.report.is_file())
    if not job.budget and not wants_page:
        return ()
    limits = dict(job.budget)
    wanted = Wanted(run=wants_page or bool(RUNS & limits.keys()))
    looked = look_at_whole(whole, job.request.output, limits, wanted, lambda *_: None, paged=wants_page)
    if wants_page and job.report is not None:
        write_text(job.report, looked.page)
    return looked.broken()


def _made(job: Job, force: bool) -> Outcome:
    if job.entries:
        return _entries_made(job, force)
    request = job.request
    _check_model(request, job.sha256)
    if request.template is None and (request.target or request.board or request.model.suffix != ".ig"):
        check_target(job.wish.kinds, target_of(request.board, request.target, "host"))  # others know their own files and targets
    current = not force and is_current(replace(request, force=False))
    if not current:
        compile_request(request, Watch())
    manifest = read_manifest(request.output)
    made = make_products(request.output, manifest, job.wish) if job.wish.kinds else ()
    broken = _looked_at(job, current)
    state = OVER if broken else CURRENT if current else BUILT
    ram, flash = package_sizes(manifest, Package(request.output))
    return Outcome(job.name, state, request.board or manifest.target, ram, flash, 0.0, 1 if broken else 0, broken, made)


def _looked_at(job: Job, current: bool) -> tuple[str, ...]:
    """The page and the budgets."""
    wants_page = job.report is not None and not (current and job.report.is_file())
    if not job.budget and not wants_page:
        return ()
    limits, folder = dict(job.budget), job.request.output
    facts = gather(folder, Wanted(run=wants_page or bool(RUNS & limits.keys())), lambda _: None)
    checked = check_budgets(limits, facts)
    if wants_page and job.report is not None:
        write_text(job.report, page(facts, *code_of(Package(folder)), checked))
    return tuple(one.text for one in checked if not one.ok)


def package_sizes(manifest: Manifest, package: Package) -> tuple[int, int]:
    if manifest.firmware is not None:
        return manifest.firmware.ram_bytes, manifest.firmware.flash_bytes
    return manifest.memory.arena_bytes, manifest.memory.weight_bytes + (binary_bytes(package) or 0)


def _is_newer(output: Path, parts: list[Path]) -> bool:
    """Was it linked after the last of its packages was made?"""
    try:
        linked = (output / MANIFEST).stat().st_mtime_ns
        return all((part / MANIFEST).stat().st_mtime_ns < linked for part in parts)
    except OSError:
        return False


def _link(firmware: Firmware, project: ProjectFile, found: dict[str, Outcome], *, force: bool) -> Outcome:
    start = time.perf_counter()
    failed = [part for part in firmware.packages if part in found and found[part].state == FAILED]
    if failed:
        told = f"not linked: {', '.join(f'`{part}`' for part in failed)} failed"
        return Outcome(firmware.name, FAILED, code=2, lines=(told,))
    folders = {job.name: job.request.output for job in project.jobs}
    parts = [folders[part] for part in firmware.packages]
    if not force and _is_newer(firmware.output, parts):
        return Outcome(firmware.name, CURRENT, seconds=time.perf_counter() - start)
    try:
        linked = link_packages(parts, firmware.output, force=True)
    except IntaglioError as error:
        seconds = time.perf_counter() - start
        return Outcome(firmware.name, FAILED, code=max(2, error.exit_code), lines=(str(error),), seconds=seconds)
    target = found[firmware.packages[0]].target if firmware.packages[0] in found else ""
    return Outcome(firmware.name, BUILT, target, linked.ram_bytes, linked.flash_bytes, time.perf_counter() - start)


__all__ = ["BUILT", "CURRENT", "FAILED", "OVER", "Outcome", "build_project", "package_sizes"]
