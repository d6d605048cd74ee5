"""`compile --explain`: what each layer costs, and why it has the kernel that it has."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from intaglio.cli.terminal import PAGE, bytes_text, count_text, fitted, ms_text, print_table, us_text
from intaglio.kernels.considered import NOT_NEEDED, Considered, Explained, why_used
from intaglio.run.package import Package
from intaglio.stages import CostRow

ACCELERATOR = "accelerator"  # what bounds the time of a row that is not the core's


def print_costs(rows: list[CostRow], *, stderr: bool, bare: bool = False) -> None:
    """The column of measured times is there where `intaglio tune` has measured a layer. On a core without an operating system
    (`bare`), the model of costs gives shares alone: how long all of it takes is emulated."""
    if bare:
        _print_shares(rows, stderr=stderr)
        return
    table, tuned = [], any(row.measured_us is not None for row in rows)
    for row in rows:
        cells = [row.name, row.op[: 14 if tuned else 20], count_text(int(row.macs)), bytes_text(int(row.bytes_moved))]
        measured = "" if row.measured_us is None else us_text(row.measured_us)
        table.append([*cells, us_text(row.estimate_us), *([measured] if tuned else []), row.bound])
    total = sum(row.estimate_us for row in rows)
    measured = us_text(sum(row.measured_us or 0.0 for row in rows))
    table.append(["total", "", "", "", us_text(total), *([measured] if tuned else []), ""])
    columns = ["layer", "op", ">MACs", ">moved", ">estimate us", *([">measured"] if tuned else []), "bound by"]
    print_table(columns, fitted(columns, table), stderr=stderr)


def _print_shares(rows: list[CostRow], *, stderr: bool) -> None:
    """Of the core: what accelerators take is in a table of its own."""
    total = sum(row.estimate_us for row in rows if row.bound != ACCELERATOR) or 1.0
    columns = ["layer", "op", ">MACs", ">moved", ">~ % of the core", "bound by"]
    table = []
    for row in rows:
        share = "" if row.bound == ACCELERATOR else f"{100 * row.estimate_us / total:.1f}"
        table.append([row.name, row.op[:20], count_text(int(row.macs)), bytes_text(int(row.bytes_moved)), share, row.bound])
    print_table(columns, fitted(columns, table), stderr=stderr)


def print_total(package: Package) -> None:
    """Of firmware: the total that `profile` and `fit` show."""
    from intaglio.run.emulator.measure import run_if_possible

    run = run_if_possible(package)
    if run is not None and run.sum is not None:
        at = "" if run.time_ms is None else f" = {ms_text(run.time_ms)} ms at {run.board.clock_mhz:g} MHz"
        count = f"{run.sum.instructions:,} instructions, exact"
        print(f"total: about {run.sum.cycles:,} cycles{at} (estimated, {run.timing.words}); {count}")


def choices_lines(layers: Sequence[Explained]) -> list[str]:
    """Layers with the same kernel for the same reasons stand together."""
    groups: dict[tuple[str, tuple[Considered, ...]], list[Explained]] = {}
    for layer in layers:
        groups.setdefault((layer.op, layer.considered), []).append(layer)
    lines: list[str] = []
    for (op, considered), same in groups.items():
        lines += ["", f"kernel of {op}:"]
        for layer in same:
            lines.append(f"  {layer.layer[:36]:36}  {layer.using}")
            if layer.parts:
                lines += textwrap.wrap(layer.parts, PAGE, initial_indent="    ", subsequent_indent="      ")
        refused = [kernel for kernel in considered if kernel.reason and kernel.reason != NOT_NEEDED]
        for kernel in refused:
            text = f"not {kernel.name}: {kernel.reason}"
            lines += textwrap.wrap(text, PAGE, initial_indent="    ", subsequent_indent="      ")
        used = next((kernel for kernel in considered if not kernel.reason), None)
        behind = ", ".join(dict.fromkeys(kernel.name for kernel in considered if kernel.reason == NOT_NEEDED))
        if used is not None:
            text = f"used: {used.name}, {why_used(considered)}" + (f"; not needed: {behind}" if behind else "")
            lines += textwrap.wrap(text, PAGE, initial_indent="    ", subsequent_indent="      ")
    return lines


def choices_json(layers: Sequence[Explained]) -> list[dict[str, object]]:
    return [
        {
            "layer": layer.layer,
            "op": layer.op,
            "using": layer.using,
            "estimate_us": round(layer.estimate_us, 3),
            **({} if layer.measured_us is None else {"measured_us": layer.measured_us}),
            **({"parts": layer.parts} if layer.parts else {}),
            "considered": [
                {"kernel": kernel.name, "reason": kernel.reason or "used", **({"note": kernel.note} if kernel.note else {})}
                for kernel in layer.considered
            ],
        }
        for layer in layers
    ]
