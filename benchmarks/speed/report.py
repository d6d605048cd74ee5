"""The text of benchmarks/RESULTS.md."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from figures import Group, LayerTime, Row, grouped, means, paired
from peers import LABELS, OURS, PEERS

SHOWN_LAYERS = 6
SETS = {"float": "Float models", "int8": "Int8 models", "mixed": "Integer weights, float activations"}


@dataclass(frozen=True, slots=True)
class Machine:
    processor: str
    rounds: int
    clock: str


def report(rows: Sequence[Row], machine: Machine, costs: Sequence[str] = ()) -> str:
    peaks = sorted(2 * r.peak / 1e6 for r in rows if not math.isnan(r.peak))
    peak = f"{peaks[len(peaks) // 2]:.0f} GFLOP/s" if peaks else "not measured"
    lines = [
        "# Speed",
        "",
        f"Processor: {machine.processor}. Measured peak of its multiply-adds: {peak} on one core.",
        "",
        f"`make bench`: one thread, pinned, batch 1, all runtimes in turn in {machine.rounds} rounds, {machine.clock};",
        "medians, in ms. A ratio is the best peer's median divided by ours: above 1, Intaglio is faster. `error` is our largest",
        "difference from the reference as a share of the largest output. `peak` is our share of the measured peak, by the",
        "multiply-adds of the model.",
        "",
        *[f"- {name}: geometric mean **{mean:.2f}** ({_rows(count)})" for name, (mean, count) in means(rows).items()],
    ]
    for kind, title in SETS.items():
        chosen = [r for r in rows if r.kind == kind]
        if chosen:
            lines += ["", f"## {title}", "", *table(chosen)]
    lines += ["", "## Where a peer wins", "", *losses(rows)]
    lines += ["", *costs] if costs else []
    lines += ["", "## Missing figures", "", *missing(rows)]
    return "\n".join(lines) + "\n"


def table(rows: Sequence[Row]) -> list[str]:
    peers = [peer for peer in PEERS if any(peer in r.peers for r in rows)]
    labels = [LABELS[peer] for peer in (OURS, *peers)]
    lines = [
        "| model | MMAC | " + " | ".join(labels) + " | best peer | ratio | peak | error |",
        "| --- |" + " ---: |" * (len(labels) + 1) + " --- | ---: | ---: | ---: |",
    ]
    for r in sorted(rows, key=lambda r: math.inf if math.isnan(r.ratio) else r.ratio):
        times = [_ms(r.ms), *(_ms(r.peers.get(peer, math.nan)) + ("*" if peer in r.wrong else "") for peer in peers)]
        share = "" if math.isnan(r.share_of_peak) else f"{100 * r.share_of_peak:.0f} %"
        ratio = "-" if math.isnan(r.ratio) else f"{r.ratio:.2f}"
        error = "-" if math.isnan(r.error) else f"{r.error:.0e}"
        cells = [r.name, f"{r.macs / 1e6:.1f}", *times, LABELS.get(r.best, "-"), ratio, share, error]
        lines.append("| " + " | ".join(cells) + " |")
    if any(r.wrong for r in rows):
        lines += ["", "\\* outputs differ from the reference: not counted as the best peer."]
    return lines


def _rows(count: int) -> str:
    return "1 row" if count == 1 else f"{count} rows"


def _ms(value: float) -> str:
    return "-" if math.isnan(value) else f"{value:.4f}" if value < 0.1 else f"{value:.3f}" if value < 10 else f"{value:.1f}"


def losses(rows: Sequence[Row]) -> Iterator[str]:
    """Every row where a peer is faster, with the layers that cost it."""
    lost = sorted((r for r in rows if r.ratio < 1), key=lambda r: r.ratio)
    if not lost:
        yield "Nowhere."
    for r in lost:
        yield f"### {r.name}: {r.ratio:.2f} against {LABELS[r.best]}"
        yield ""
        peer = r.best if r.profiles.get(r.best) else next((p for p, layers in r.profiles.items() if layers), "")
        groups = grouped(r.layers, r.profiles.get(peer, []))
        if peer and paired(groups):
            yield from _joined(peer, groups)
        elif peer:
            yield from _beside(peer, r.layers, r.profiles[peer])
        else:
            yield f"{LABELS[r.best]} has no profile by layer. Our slowest layers:"
            yield ""
            yield "| layer | kernel | MMAC | ms |"
            yield "| --- | --- | ---: | ---: |"
            for layer in _slowest(r.layers):
                yield f"| {_cell(layer.name)} | {_cell(layer.kind)} | {layer.macs / 1e6:.2f} | {layer.ms:.4f} |"
        yield ""


def _slowest(layers: Sequence[LayerTime]) -> list[LayerTime]:
    return sorted(layers, key=lambda layer: -layer.ms)[:SHOWN_LAYERS]


def _joined(peer: str, groups: Sequence[Group]) -> Iterator[str]:
    ours, theirs = sum(g.ours_ms for g in groups), sum(g.peer_ms for g in groups)
    label = LABELS[peer]
    yield f"Sums of the profiles: ours {_ms(ours)} ms, {label} {_ms(theirs)} ms. The layers that lose the most to {label}:"
    yield ""
    yield f"| layer | our kernel | {label}'s | MMAC | ours | theirs | lost |"
    yield "| --- | --- | --- | ---: | ---: | ---: | ---: |"
    for g in groups[:SHOWN_LAYERS]:
        if g.lost_ms > 0:
            kinds = " | ".join(_cell(kind) for kind in g.kinds)
            theirs_ms = f"{g.peer_ms:.4f}" if g.peer_ms else "-"
            yield f"| {_cell(g.name)} | {kinds} | {g.macs / 1e6:.2f} | {g.ours_ms:.4f} | {theirs_ms} | {g.lost_ms:.4f} |"


def _beside(peer: str, ours: Sequence[LayerTime], theirs: Sequence[LayerTime]) -> Iterator[str]:
    """For runtimes that give their layers new names: the slowest of each, not the same ones."""
    sums = [_ms(sum(layer.ms for layer in layers)) for layers in (ours, theirs)]
    label = LABELS[peer]
    yield f"Sums of the profiles: ours {sums[0]} ms, {label} {sums[1]} ms. Its names are its own; the slowest layers of each:"
    yield ""
    yield f"| ours | MMAC | ms | {label}'s | ms |"
    yield "| --- | ---: | ---: | --- | ---: |"
    for mine, other in zip(_slowest(ours), _slowest(theirs), strict=False):
        left = f"{_cell(mine.name + ' ' + mine.kind)} | {mine.macs / 1e6:.2f} | {mine.ms:.4f}"
        yield f"| {left} | {_cell(other.name + ' ' + other.kind)} | {other.ms:.4f} |"


def missing(rows: Sequence[Row]) -> Iterator[str]:
    """Reasons, those that several models share on one line."""
    reasons: dict[tuple[str, str], list[str]] = {}
    for r in rows:
        differing = [(peer, f"its outputs differ by {r.errors.get(peer, math.nan):.0e} of the largest") for peer in sorted(r.wrong)]
        for name, why in [*([(OURS, r.failure)] if r.failure else []), *r.missing.items(), *differing]:
            reasons.setdefault((LABELS.get(name, name), _cell(why, 110)), []).append(r.name)
    if not reasons:
        yield "None."
    for (label, why), names in sorted(reasons.items()):
        shown = ", ".join(names) if len(names) <= 6 else f"{len(names)} models"
        yield f"- {label}, {shown}: {why}"


def _cell(text: str, width: int = 48) -> str:
    clean = " ".join(re.sub(r"[|`]", " ", text).split())
    return clean if len(clean) <= width else clean[: width - 3] + "..."
