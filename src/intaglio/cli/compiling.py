"""`intaglio compile`: from words to a request, and what is said on the way."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

from intaglio.cli.explaining import choices_json, choices_lines, print_costs, print_total
from intaglio.cli.offloading import print_offloaded
from intaglio.cli.opencl import placed_json, placed_lines
from intaglio.cli.quantizing import print_account
from intaglio.cli.reporting import check_place, look_at
from intaglio.cli.terminal import bytes_text, count_text, note, print_json, progress_bar, proven_text, say
from intaglio.errors import AnswerIsNo, UserError, counted
from intaglio.kernels.considered import Explained
from intaglio.options.reading import request_of_words
from intaglio.options.request import Request
from intaglio.passes.offload import Offloaded
from intaglio.pipeline import compile_request
from intaglio.quantize.settings import Account
from intaglio.report.budgets import read_budgets
from intaglio.run.package import Package
from intaglio.run.variants import lacking_here
from intaglio.stages.watch import CostRow, Watch
from intaglio.targets.deployment import target_of
from intaglio.targets.target import find_target, lacking


def compile_words(
    model: Path, output: Path, json: bool, words: Mapping[str, object], report: Path | None = None, budget: Path | None = None
) -> int:
    """Exit code 1: a budget is broken."""
    request = request_of_words(model, output, words)
    if report is not None:
        check_place(report)
    limits = {} if budget is None else read_budgets(budget)
    if (report is not None or limits) and request.stop_after != "build":
        word = "--report" if report is not None else "--budget"
        what = f"`{word}` needs a package that was built, and `--stop-after` stops before"
        raise UserError("bad-option", what, hint=f"leave `{word}` or `--stop-after` out")
    made = _compile(request, json)
    if made is None or (report is None and not limits):
        return 0
    return look_at(made.folder, report, limits)


def _compile(request: Request, json: bool) -> Package | None:
    """The package; None: an earlier stage was the last."""
    rows: list[CostRow] = []
    accounts: list[Account] = []
    sent: list[Offloaded] = []
    chosen: list[Explained] = []
    current: list[bool] = []
    start = time.perf_counter()
    with progress_bar() as progress:
        watch = Watch(
            note=lambda text: note(text if text.startswith("warning:") else f"note: {text}"),
            progress=progress,
            explain=rows.extend if request.explain else None,
            chosen=chosen.extend if request.explain else None,
            account=accounts.append,
            offloaded=sent.append,
            current=lambda: current.append(True),
        )
        try:
            result = compile_request(request, watch)
        except AnswerIsNo as error:
            if json and error.slug == "does-not-fit":
                print_json({"fits": False, "message": error.message, "parts": error.where, "hint": error.hint})
            raise
    if rows:
        print_costs(rows, stderr=json, bare=target_of(request.board, request.target, "host").bare)
    if chosen and not json:
        print("\n".join(choices_lines(chosen)))
    if sent and not json:
        print_offloaded(sent[-1], explain=request.explain)
    if accounts and not json:
        print_account(accounts[0])
    if isinstance(result, Path):
        print_json({"ir": str(result), "stage": request.stop_after}) if json else print(f"wrote {result}")
        return None
    accuracy = result.accuracy if request.labels is not None else None
    if json:
        told: dict[str, object] = {"quantization": accounts[0].as_json()} if accounts else {}
        told |= {"accelerators": sent[-1].as_json()} if sent else {}
        told |= {"kernels": choices_json(chosen)} if chosen else {}
        told |= {"accuracy": accuracy.as_json()} if accuracy else {}
        print_json({**_summary(result, request), "up_to_date": bool(current), **told})
        return result
    if accuracy is not None:
        say(
            f"accuracy: {100 * accuracy.package:.2f} % quantised, {100 * accuracy.reference:.2f} % in floating point, "
            f"on {counted(accuracy.samples, 'sample')}"
        )
    if current:
        name, target = result.manifest.name, result.manifest.target
        print(f"`{name}` for {target} is up to date, nothing was compiled; `--force` compiles it again")
        print(f"package: {result.folder}")
    else:
        _print_summary(result, time.perf_counter() - start, request)
        if request.explain and result.bare:
            print_total(result)
    return result


def _summary(package: Package, request: Request) -> dict[str, object]:
    m = package.manifest
    told: dict[str, object] = {
        "package": str(package.folder),
        "name": m.name,
        "target": m.target,
        "layers": len(m.layers),
        "macs": sum(layer.macs for layer in m.layers),
        "arena_bytes": m.memory.arena_bytes,
        "lower_bound_bytes": m.memory.lower_bound_bytes,
        "optimal": m.memory.optimal,
        "arenas": [asdict(arena) for arena in m.memory.arenas],
        "weight_bytes": m.memory.weight_bytes,
    }
    if m.variants:
        told["variants"] = [{"target": v.target, "arena_bytes": v.arena_bytes, "weight_bytes": v.weight_bytes} for v in m.variants]
    if m.firmware is not None:
        told["firmware"] = asdict(m.firmware)
    if m.opencl is not None:
        told["opencl"] = placed_json(m)
    if request.archive:
        told["archive"] = f"{package.folder}.{request.archive_format}"
    return told


def _print_summary(package: Package, seconds: float, request: Request) -> None:
    m = package.manifest
    macs = count_text(sum(layer.macs for layer in m.layers))
    say(
        f"compiled `{m.name}` for {m.target} in {seconds:.1f} s: {counted(len(m.layers), 'layer')}, {macs} multiply-adds, "
        f"weights {bytes_text(m.memory.weight_bytes)}, arena {proven_text(m.memory.arena_bytes, m.memory.lower_bound_bytes)}"
    )
    if m.variants:
        say("weights that each variant reads: " + ", ".join(f"{v.target} {bytes_text(v.weight_bytes)}" for v in m.variants))
        if absent := [v.target for v in m.variants if lacking_here(v)]:
            say(f"this machine cannot run, so `intaglio validate` will not check: {', '.join(absent)}")
    elif missing := lacking(find_target(m.target)):
        say(f"this machine cannot run it: it lacks {', '.join(missing)}")
    if (f := m.firmware) is not None:
        stack = "an unbounded stack" if f.stack_bytes is None else f"stack {f.stack_bytes:,}"
        say(f"flash {f.flash_bytes:,} bytes: code {f.code_bytes:,}, weights {f.weight_bytes:,}")
        copied = f", weights {m.memory.weights_ram:,}" if m.memory.weights_ram else ""
        copied += f", code {f.code_ram_bytes:,}" if f.code_ram_bytes else ""
        say(
            f"RAM {f.ram_bytes:,} bytes: arena {m.memory.arena_bytes:,}, inputs and outputs {f.io_bytes:,}, "
            f"variables {f.static_bytes:,}, {stack}{copied}"
        )
    if m.opencl is not None:
        for line in placed_lines(m, list(request.devices)):
            say(line)
    if m.memory.weights_apart:
        say("of the weights: " + ", ".join(f"{size:,} bytes in {memory}" for memory, size in m.memory.weights_apart))
    if m.memory.arenas:
        say("the arena: " + ", ".join(f"{a.bytes:,} bytes in {a.memory}" for a in m.memory.arenas))
    inside = [word for word, there in (("the trained model", m.model.source), ("its IR", not request.no_ir)) if there]
    if inside:
        say(f"inside, for `validate`: {' and '.join(inside)}; `--no-source` and `--no-ir` leave them out")
    print(f"package: {package.folder}")
    if request.archive:
        print(f"archive: {package.folder}.{request.archive_format}")
