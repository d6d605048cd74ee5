"""`compile --explain`: what each layer costs, and why it has the kernel that it has."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from intaglio.cli.terminal import PAGE, bytes_text, count_text, print_table
from intaglio.kernels.choice import NOT_NEEDED, Considered, Explained
from intaglio.stages import CostRow


def print_costs(rows: list[CostRow], *, stderr: bool) -> None:
    table = []
    total = 0.0
    for row in rows:
        estimate = float(row.estimate_us)
        total += estimate
        macs, moved = int(row.macs), int(row.bytes_moved)
        table.append([row.name[:24], row.op[:20], count_text(macs), bytes_text(moved), f"{estimate:.1f}", row.bound])
    table.append(["total", "", "", "", f"{total:.1f}", ""])
    print_table(["node", "op", ">MACs", ">moved", ">estimate us", "bound by"], table, stderr=stderr)


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
            note = f" ({used.note})" if used.note else ""
            text = f"used: {used.name}, the first that applies{note}" + (f"; not needed: {behind}" if behind else "")
            lines += textwrap.wrap(text, PAGE, initial_indent="    ", subsequent_indent="      ")
    return lines


def choices_json(layers: Sequence[Explained]) -> list[dict[str, object]]:
    return [
        {
            "layer": layer.layer,
            "op": layer.op,
            "using": layer.using,
            **({"parts": layer.parts} if layer.parts else {}),
            "considered": [
                {"kernel": kernel.name, "reason": kernel.reason or "used", **({"note": kernel.note} if kernel.note else {})}
                for kernel in layer.considered
            ],
        }
        for layer in layers
    ]
