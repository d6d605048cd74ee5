"""From the folder of a package to its facts: read, run, compared, timed."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TypeVar

from intaglio.errors import IntaglioError
from intaglio.ir.files import read_network
from intaglio.ir.text import Network
from intaglio.kernels.considered import considered, why_used
from intaglio.package.alive import alive_bytes
from intaglio.package.manifest import LayerInfo, Manifest, board_of, target_of
from intaglio.report.advice import advice_of
from intaglio.report.drawing import drawn
from intaglio.report.facts import (
    COMPUTED,
    EMULATED,
    ESTIMATED,
    MEASURED,
    Between,
    Facts,
    Figure,
    LayerFacts,
    Numerics,
    Part,
    Refused,
)
from intaglio.report.gains import gains_of
from intaglio.report.memory import blocks_of, regions_of
from intaglio.report.names import shortened
from intaglio.report.placement import with_profile
from intaglio.report.recorded import command_of
from intaglio.report.roof import roof_of
from intaglio.report.snippets import snippets_of
from intaglio.run.accuracy import kept_accuracy
from intaglio.run.package import Package
from intaglio.run.serial.measure import profile_of_run
from intaglio.run.serial.runs import BoardRun, runs_of
from intaglio.run.timing import LayerTime, Profile, code_bytes
from intaglio.run.validate import LayerCheck, ValidateOptions, Validation, validate
from intaglio.targets.target import Target

LEAST_BETWEEN = 1e-6  # rounding of sums
Say = Callable[[str], None]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Wanted:
    """What to find out beside what the package says of itself."""

    run: bool = True  # profile it and compare it with its reference
    runs: int | None = None
    measured: Path | None = None  # cycles of a board, in a file


def gather(folder: Path, wanted: Wanted, say: Say) -> Facts:
    package = Package(folder)
    manifest = package.manifest
    target, notes = target_of(manifest), list[str]()
    on_boards = () if wanted.measured is None else runs_of(wanted.measured, manifest)
    network = _network(package, notes)
    profile = _tried("timed", notes, lambda: package.profile(wanted.runs), say, "measuring") if wanted.run else None
    if on_boards:
        profile = _on_board(package, profile, on_boards, notes)
    options = ValidateOptions(layers=manifest.opencl is None)
    validation = _tried("compared", notes, lambda: validate(package, options), say, "comparing") if wanted.run else None
    layers = _layers(manifest, target, network, profile, validation)
    nodes, edges = ((), ()) if network is None else drawn(network, manifest, [layer.label for layer in layers])
    regions = regions_of(manifest, blocks := blocks_of(manifest, network))
    ram, flash = _parts(package)
    board = board_of(manifest, target) if manifest.firmware is not None else None
    named = manifest.firmware.board if manifest.firmware is not None else ""
    limits = (board.ram_bytes, board.flash_bytes) if board is not None and named else (None, None)
    return Facts(
        name=manifest.name,
        target=manifest.target,
        about=target.description,
        board=named,
        intaglio=manifest.intaglio,
        model=manifest.model.file,
        sha256=manifest.model.sha256,
        options=dict(manifest.options),
        tools=dict(manifest.tools),
        command=command_of(manifest),
        figures=(*_figures(manifest, profile, validation, ram, flash, on_boards), *_accuracy(folder)),
        ram=ram,
        flash=flash,
        ram_limit=limits[0],
        flash_limit=limits[1],
        regions=regions,
        blocks=blocks,
        layers=layers,
        nodes=nodes,
        edges=edges,
        passes=tuple(asdict(info) for info in manifest.passes),
        numerics=None if validation is None else _numerics(validation),
        quantization=_side_file(folder, "quantization.json"),
        accelerators=with_profile(
            _side_file(folder, "accelerators.json"), layers, None if profile is None else profile.total.cycles
        ),
        roof=roof_of(target, board if named else None, tuple(layer for layer in layers if not layer.accelerator)),
        advice=advice_of(manifest, target, layers, regions, gains_of(folder, manifest, target) if wanted.run else None),
        snippets=snippets_of(manifest),
        time_source=on_boards[0].source if on_boards and on_boards[0].layers else ESTIMATED if target.bare else MEASURED,
        between=() if profile is None else between_layers(profile),
        notes=tuple(notes),
    )


def _on_board(package: Package, profile: Profile | None, runs: tuple[BoardRun, ...], notes: list[str]) -> Profile:
    """Cycles and times of the first; instructions and stack stay those of the emulated core."""
    first = runs[0]
    told = profile_of_run(package, first)
    notes += [f"{run.source} on {run.board}: {run.cycles:,} cycles{_at(run)}" for run in runs]
    if profile is None:
        return told
    rows = zip(profile.layers, told.layers, strict=True)
    layers = tuple(replace(old, cycles=new.cycles, time_ms=new.time_ms) for old, new in rows) if first.layers else profile.layers
    total = replace(profile.total, cycles=told.total.cycles, time_ms=told.total.time_ms)
    return replace(profile, total=total, layers=layers)


def _at(run: BoardRun) -> str:
    return "" if run.clock_mhz is None else f" at {run.clock_mhz:g} MHz = {run.cycles / run.clock_mhz / 1000:.3f} ms"


def between_layers(profile: Profile) -> tuple[Between, ...]:
    """The whole less its layers: of an OpenCL device, transfers, then launches; of a core, calls and what the firmware does."""
    total, timed = profile.total, all(layer.time_ms is not None for layer in profile.layers)
    if timed and total.time_ms is not None:
        left = 1000 * (total.time_ms - sum(layer.time_ms or 0.0 for layer in profile.layers))
    elif total.cycles is not None:
        left = float(total.cycles - sum(layer.cycles or 0 for layer in profile.layers))
    else:
        return ()
    if profile.opencl is None:
        return (Between("calls between layers", left),) if left > LEAST_BETWEEN else ()
    moved = 1000 * profile.opencl.transfers_ms
    return (Between("transfers", moved), Between("launching and waiting", max(0.0, left - moved)))


def _tried(what: str, notes: list[str], action: Callable[[], T], say: Say, doing: str) -> T | None:
    """A part that cannot be had here leaves a note, not a page less."""
    say(doing)
    try:
        return action()
    except IntaglioError as error:
        notes.append(f"not {what}: {error.message}" + (f"; {error.hint}" if error.hint else ""))
        return None


def _network(package: Package, notes: list[str]) -> Network | None:
    manifest = package.manifest
    prefix = manifest.variants[-1].prefix if manifest.variants else manifest.name
    path = package.folder / "ir" / f"{prefix}.ig"
    try:
        return read_network(path)
    except IntaglioError as error:
        notes.append(f"no graph and no reasons: {error.message}")
        return None


def _side_file(folder: Path, name: str) -> dict[str, object] | None:
    try:
        table = json.loads((folder / "ir" / name).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return table if isinstance(table, dict) else None


def _accuracy(folder: Path) -> tuple[Figure, ...]:
    """What `compile --labels` found."""
    kept = kept_accuracy(folder)
    return () if kept is None else (Figure("accuracy", "accuracy", kept.package, "", MEASURED),)


def _layers(
    manifest: Manifest, target: Target, network: Network | None, profile: Profile | None, validation: Validation | None
) -> tuple[LayerFacts, ...]:
    labels = shortened([layer.name for layer in manifest.layers])
    timed = dict(zip((layer.name for layer in manifest.layers), profile.layers, strict=True)) if profile is not None else {}
    checked: dict[str, LayerCheck] = {check.layer: check for check in validation.layers} if validation is not None else {}
    why = _reasons(network, target)
    places = [place for layer in manifest.layers for place in layer.memory]
    rows = []
    for layer, label in zip(manifest.layers, labels, strict=True):
        used, refused = why.get(layer.name, ("", ()))
        live = alive_bytes(places, layer.index)
        rows.append(_layer(layer, label, timed.get(layer.name), checked.get(layer.name), used, refused, live))
    return tuple(rows)


def _layer(
    layer: LayerInfo,
    label: str,
    time: LayerTime | None,
    check: LayerCheck | None,
    why: str,
    refused: tuple[Refused, ...],
    live: int,
) -> LayerFacts:
    first = layer.outputs[0] if layer.outputs else None
    error = None if check is None else check.comparison.max_abs if check.whole else check.comparison.max_rel
    return LayerFacts(
        index=layer.index,
        name=layer.name,
        label=label,
        op=layer.op,
        source=layer.source,
        kernel=layer.kernel,
        function=layer.function,
        why=why,
        refused=refused,
        result="" if first is None else f"{first.dtype}[{','.join(map(str, first.shape))}] {first.layout}".strip(),
        macs=layer.macs,
        time=None if time is None or time.time_ms is None else time.time_ms * 1000,
        cycles=None if time is None else time.cycles,
        instructions=None if time is None else time.instructions,
        weight_bytes=layer.weight_bytes,
        result_bytes=sum(o.bytes for o in layer.outputs),
        live_bytes=live,
        error=error,
        cosine=None if check is None else check.comparison.cosine,
        whole=check is not None and check.whole,
        accelerator=layer.accelerator,
        parts=layer.parts,
    )


def _reasons(network: Network | None, target: Target) -> dict[str, tuple[str, tuple[Refused, ...]]]:
    found: dict[str, tuple[str, tuple[Refused, ...]]] = {}
    if network is None:
        return found
    for node in network.graph.nodes:
        using = network.choices.of(node)
        if not using or network.choices.is_view(node):
            continue
        rows = considered(node, target, using)
        others = tuple(Refused(row.name, row.reason) for row in rows if row.reason)
        found[node.output.name] = (why_used(rows), others)
    return found


def binary_bytes(package: Package) -> int | None:
    """Of a package for a host: its machine code; of a module for WebAssembly, what is not weights."""
    module = package.folder / "lib" / f"{package.name}.wasm"
    if module.is_file():
        return max(0, module.stat().st_size - package.manifest.memory.weight_bytes)
    return code_bytes(package)


def _parts(package: Package) -> tuple[tuple[Part, ...], tuple[Part, ...]]:
    manifest = package.manifest
    memory, firmware = manifest.memory, manifest.firmware
    if firmware is not None:
        ram = [("arena", memory.arena_bytes, COMPUTED), ("inputs and outputs", firmware.io_bytes, MEASURED)]
        ram += [("variables", firmware.static_bytes, MEASURED), ("stack", firmware.stack_bytes or 0, MEASURED)]
        ram += [("weights", memory.weights_ram, COMPUTED), ("code", firmware.code_ram_bytes, MEASURED)]
        flash = [("code", firmware.code_bytes), ("weights", firmware.weight_bytes), ("first values", firmware.data_bytes)]
        told = tuple(Part(name, size, MEASURED) for name, size in flash if size)
        return tuple(Part(*row) for row in ram if row[1]), told
    flash_parts = [Part("weights", memory.weight_bytes, COMPUTED)]
    if code := binary_bytes(package):
        flash_parts.append(Part("code", code, MEASURED))
    return (Part("arena", memory.arena_bytes, COMPUTED),), tuple(flash_parts)


def _figures(
    manifest: Manifest,
    profile: Profile | None,
    validation: Validation | None,
    ram: tuple[Part, ...],
    flash: tuple[Part, ...],
    on_boards: tuple[BoardRun, ...],
) -> list[Figure]:
    built = manifest.firmware is not None
    whole = MEASURED if len(flash) > 1 else COMPUTED  # without a binary, the weights alone
    found = [
        Figure("ram", "RAM", sum(p.bytes for p in ram), "bytes", MEASURED if built else COMPUTED),
        Figure("flash", "flash" if built else "size", sum(p.bytes for p in flash), "bytes", whole),
        Figure("arena", "arena", manifest.memory.arena_bytes, "bytes", COMPUTED),
        Figure("weights", "weights", manifest.memory.weight_bytes, "bytes", COMPUTED),
        Figure("macs", "multiply-adds", sum(layer.macs for layer in manifest.layers), "", COMPUTED),
    ]
    if profile is not None:
        total = profile.total
        counted_by = on_boards[0].source if on_boards else ESTIMATED if manifest.firmware is not None else MEASURED
        if total.instructions is not None:
            found.append(Figure("instructions", "instructions", total.instructions, "", EMULATED))
        if total.cycles is not None:
            found.append(Figure("cycles", "cycles", total.cycles, "", counted_by))
        if total.time_ms is not None:
            found.append(Figure("time", "time", total.time_ms, "ms", counted_by))
    if validation is not None and validation.outputs:
        worst = max(o.max_rel for o in validation.outputs)
        found.append(Figure("error", "error", worst, "", MEASURED if profile is None or profile.emulation is None else EMULATED))
    return found


def _numerics(validation: Validation) -> Numerics:
    return Numerics(
        ok=validation.ok,
        reference=validation.reference,
        rule=validation.rule,
        samples=validation.samples,
        random=validation.random_inputs,
        outputs=tuple(asdict(o) for o in validation.outputs),
        first_bad=validation.first_bad_layer,
        no_layers=validation.no_layers,
        against_float=tuple(asdict(o) for o in validation.against_float),
    )


__all__ = ["Wanted", "binary_bytes", "gather"]
