"""`intaglio compile`: from words to a request, and what is said on the way."""

from __future__ import annotations

import shlex
import time
from dataclasses import dataclass
from pathlib import Path

from intaglio.cli import options
from intaglio.cli.terminal import bytes_text, count_text, note, print_json, print_table, progress_bar
from intaglio.errors import UserError, quoted
from intaglio.package.archive import FORMATS
from intaglio.passes import PASSES
from intaglio.pipeline import compile_model
from intaglio.run.package import Package
from intaglio.stages import CostRow, Request, Watch, stage_index


@dataclass(frozen=True, slots=True)
class Words:
    """The command line as typed."""

    model: Path
    output: Path
    target: str | None
    dim: list[str] | None
    shape: list[str] | None
    state: list[str] | None
    name: str | None
    stop_after: str
    disable_pass: list[str] | None
    dump_ir: Path | None
    explain: bool
    archive: str | None
    force: bool
    template: Path | None
    cc: str | None
    cflags: str | None
    json: bool


def compile_words(words: Words) -> None:
    request = _request(words)
    rows: list[CostRow] = []
    start = time.perf_counter()
    with progress_bar() as progress:
        watch = Watch(
            note=lambda text: note(f"note: {text}"), progress=progress, explain=rows.extend if words.explain else None
        )
        result = compile_model(request, watch)
    if rows:
        _print_explanation(rows, words.json)
    if isinstance(result, Path):
        print_json({"ir": str(result), "stage": words.stop_after}) if words.json else note(f"wrote {result}")
        return
    if words.json:
        print_json(_summary(result, words))
    else:
        _print_summary(result, time.perf_counter() - start, words)


def _request(words: Words) -> Request:
    stage_index(words.stop_after)
    if words.archive is not None and words.archive not in FORMATS:
        raise UserError("bad-option", f"there is no archive format {quoted(words.archive)}", hint="`tar.gz` or `zip`")
    known = {p.name for p in PASSES}
    for name in words.disable_pass or []:
        if name not in known:
            hint = "passes are " + ", ".join(f"`{p.name}`" for p in PASSES)
            raise UserError("unknown-pass", f"there is no pass {quoted(name)}", hint=hint)
    try:
        cflags = tuple(shlex.split(words.cflags or ""))
    except ValueError:
        raise UserError("bad-option", f"`--cflags {words.cflags}` has an open quote") from None
    return Request(
        model=words.model,
        output=words.output,
        target=words.target,
        dims=options.dims(words.dim),
        shapes=options.shapes(words.shape),
        states=options.pairs(words.state, "--state"),
        name=words.name,
        stop_after=words.stop_after,
        disabled=frozenset(words.disable_pass or []),
        dump_ir=words.dump_ir,
        archive=words.archive,
        force=words.force,
        template=words.template,
        cc=words.cc,
        cflags=cflags,
    )


def _summary(package: Package, words: Words) -> dict[str, object]:
    m = package.manifest
    told: dict[str, object] = {
        "package": str(package.folder),
        "name": m.name,
        "target": m.target,
        "layers": len(m.layers),
        "macs": sum(layer.macs for layer in m.layers),
        "arena_bytes": m.memory.arena_bytes,
        "lower_bound_bytes": m.memory.lower_bound_bytes,
        "weight_bytes": m.memory.weight_bytes,
    }
    if words.archive:
        told["archive"] = f"{package.folder}.{words.archive}"
    return told


def _print_summary(package: Package, seconds: float, words: Words) -> None:
    m = package.manifest
    macs = count_text(sum(layer.macs for layer in m.layers))
    note(
        f"compiled `{m.name}` for {m.target} in {seconds:.1f} s: {len(m.layers)} layers, {macs} multiply-adds, "
        f"weights {bytes_text(m.memory.weight_bytes)}, arena {bytes_text(m.memory.arena_bytes)}"
    )
    note(f"package: {package.folder}")
    if words.archive:
        note(f"archive: {package.folder}.{words.archive}")


def _print_explanation(rows: list[CostRow], json: bool) -> None:
    table = []
    total = 0.0
    for row in rows:
        estimate = float(row.estimate_us)
        total += estimate
        macs, moved = int(row.macs), int(row.bytes_moved)
        name, op, bound = str(row.name), str(row.op), str(row.bound)
        table.append([name[:36], op[:24], count_text(macs), bytes_text(moved), f"{estimate:.1f}", bound])
    table.append(["total", "", "", "", f"{total:.1f}", ""])
    print_table(["node", "op", ">MACs", ">moved", ">estimate us", "bound by"], table, stderr=json)
