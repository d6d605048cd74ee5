"""`intaglio run`, `validate` and `profile`: packages at work."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from contextlib import redirect_stdout
from dataclasses import dataclass, field
from io import StringIO
from json import loads
from pathlib import Path

import numpy as np

from intaglio.cli.cycles import cycles_lines, largest_causes, waits_of
from intaglio.cli.opencl import print_on_device
from intaglio.cli.terminal import (
    beginning,
    bytes_text,
    count_text,
    ending,
    fitted,
    ms_text,
    note,
    note_loops,
    print_json,
    print_table,
    progress_bar,
    say,
    within_page,
)
from intaglio.errors import AnswerIsNo, UserError, counted, quoted
from intaglio.ir.graph import Array
from intaglio.options.kinds import lengths
from intaglio.options.request import WEIGHT_SCHEMES
from intaglio.package.entries import entry_folder, read_entries
from intaglio.package.manifest import board_of
from intaglio.run.accuracy import read_labels
from intaglio.run.board_cycles import is_described
from intaglio.run.checks import SizeCheck, VariantCheck
from intaglio.run.compare import Comparison
from intaglio.run.data import read_arrays, write_arrays
from intaglio.run.opencl.library import DeviceOptions
from intaglio.run.package import Package
from intaglio.run.profile import chosen, profile
from intaglio.run.serial.device import SelfTest
from intaglio.run.serial.line import SerialOptions
from intaglio.run.serial.runs import run_of, save_run
from intaglio.run.timing import LEAST_RATED_MS, Emulation, OnBoard, Profile
from intaglio.run.validate import LayerCheck, ValidateOptions, Validation, validate
from intaglio.targets.target import find_target


@dataclass(frozen=True, slots=True)
class Place:
    """Where a package runs, as typed."""

    emulator: str | None = None
    device: str | None = None
    cache_check: str = "first"
    no_cache: bool = False
    variant: str | None = None
    serial: SerialOptions | None = None

    def load(self, folder: Path) -> Package:
        on = DeviceOptions(self.device, self.cache_check, not self.no_cache)
        return Package.load(folder, emulator=self.emulator, device=on, variant=self.variant, serial=self.serial)


@dataclass(frozen=True, slots=True)
class Keep:
    """Where figures of a board are kept, and under which name."""

    path: Path | None = None
    label: str | None = None


def serial_line(port: str | None, baud: int, timeout_s: float, clock_mhz: float | None = None) -> SerialOptions | None:
    if port is None and clock_mhz is not None:
        raise UserError("bad-option", "`--clock` is that of a board", hint="give `--serial PORT` too, or omit it")
    return None if port is None else SerialOptions(port, baud, timeout_s, clock_mhz)


def read_sizes(words: list[str] | None) -> dict[str, int]:
    """`T=17`, for a package that was compiled for a range."""
    return lengths(words or [], "--size")


@dataclass(frozen=True, slots=True)
class Given:
    """What a package is compared or measured on, as typed."""

    inputs: Path | None = None
    steps: bool = False
    labels: Path | None = None
    sizes: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Limits:
    """How far an output may be from its reference."""

    tolerance: float | None = None
    threshold: float | None = None

    def __post_init__(self) -> None:
        t, x = self.tolerance, self.threshold
        if t is not None and not math.isfinite(t):  # with NaN nothing compares, with infinity everything does
            raise UserError("bad-option", f"`--tolerance {t}` is not a tolerance", hint="use a number, for example 1e-4")
        if x is not None and not 0 < x <= 1:
            raise UserError("bad-option", f"`--threshold {x}` is not a cosine", hint="use a number up to 1, for example 0.995")


def run_package(folder: Path, input: Path | None, output: Path | None, steps: bool, place: Place, json: bool) -> None:
    package = place.load(folder)
    if input is not None:
        given = _without_labels(read_arrays(input), package)
    elif not package.manifest.inputs:
        given = {}
    else:
        names = ", ".join(quoted(i.name) for i in package.manifest.inputs)
        raise UserError("wrong-input", f"`{package.name}` takes inputs: {names}", hint="give them with `--input x.npz`")
    with progress_bar("running") as progress:
        results = package.run_steps(given, progress) if steps else package.run(given)
    if output is not None:
        write_arrays(output, package.manifest, results)
    if json:
        rows = [{"name": n, "dtype": str(a.dtype), "shape": list(a.shape), "values": a.tolist()} for n, a in results.items()]
        print_json({"package": str(folder), "output": None if output is None else str(output), "outputs": rows})
    elif output is None:
        for name, array in results.items():
            print(f"{name}: {array.dtype}{list(array.shape)}")
            print(np.array2string(array, threshold=20, max_line_width=100))
    else:
        note(f"wrote {counted(len(results), 'output')} to {output}")


def each_entry(folder: Path, entry: str | None, json: bool, act: Callable[[Path], int]) -> int:
    """Of the entry point that is named, or of all: the largest exit code. With `json`, one object with an entry for each."""
    whole = read_entries(folder)
    if whole is None or entry is not None:
        return act(entry_folder(folder, entry))
    codes, told = [], {}
    for row in whole.entries:
        if not json:
            print(f"{row.name}:")
            codes.append(act(entry_folder(folder, row.name)))
            continue
        with redirect_stdout(StringIO()) as said:
            codes.append(act(entry_folder(folder, row.name)))
        told[row.name] = loads(said.getvalue())
    if json:
        print_json({"entries": told})
    return max(codes)


def validate_package(
    folder: Path, given: Given, layers: bool, limits: Limits, seed: int, cc: str | None, place: Place, json: bool
) -> int:
    package = place.load(folder)
    package = package.at(given.sizes) if given.sizes else package
    told = None if given.inputs is None else _without_labels(read_arrays(given.inputs), package)
    if package.serial is not None:
        _check_board(package)
    classes = None if given.labels is None else read_labels(given.labels)
    with progress_bar("running") as progress:
        options = ValidateOptions(told, given.steps, classes, layers, limits.tolerance, limits.threshold, seed, cc, progress, note)
        result = validate(package, options)
    if json:
        print_json(result)
    else:
        print_validation(result, package.manifest.options.get("quantize", ""))
    return 0 if result.ok else 1


def _without_labels(arrays: dict[str, Array], package: Package) -> dict[str, Array]:
    """Files of calibration data may have the classes beside the inputs."""
    known = {name for info in package.manifest.inputs for name in (info.name, info.field)}
    return {name: array for name, array in arrays.items() if name != "labels" or name in known}


def _check_board(package: Package) -> None:
    """Before anything is compared: the self-test, which needs nothing from here."""
    found = package.serial_device.selftest()
    note(f"self-test on the board: {found.value}")
    if found in (SelfTest.FAILED, SelfTest.OTHER_WEIGHTS):
        hint = "flash the firmware again, and its weights, if they have an address of their own"
        raise AnswerIsNo("selftest-failed", f"the self-test of `{package.name}` on the board {found.value}", hint=hint)


def _difference(check: LayerCheck) -> str:
    """In steps of the integers, or relative to the largest float."""
    c = check.comparison
    return f"{c.max_abs:.0f} LSB" if check.whole else f"{c.max_rel:.1e}"


def _verdict(c: Comparison) -> str:
    ways = {"by cosine": c.by_cosine, "by noise": c.by_noise, "by integers": c.by_integers}
    return next((way for way, holds in ways.items() if holds), "pass" if c.ok else "FAIL")


def print_validation(result: Validation, quantized: str = "") -> None:
    """`quantized`: how the weights became small."""
    if result.layers:
        rows = []
        for one in result.layers:
            verdict = _verdict(one.comparison)
            rows.append([one.layer, beginning(one.op, 14), ending(one.tensor, 20), _difference(one), verdict])
        columns = ["layer", "op", "tensor in the model", ">difference", ""]
        print_table(columns, fitted(columns, rows))
        compared = len({c.layer for c in result.layers})
        note(f"{compared} of {result.layer_count} layers have a tensor of the model to compare with (others are fused)")
    elif result.no_layers:
        note(f"no layer can be compared: {result.no_layers}")
    rows = []
    for c in result.outputs:
        sqnr = "exact" if c.sqnr_db is None else f"{c.sqnr_db:.0f} dB"
        top = "" if c.top1 is None else f"{100 * c.top1:.0f} %"
        wrong = str(c.mismatches) if c.mismatches else ""
        verdict = _verdict(c)
        rows.append([c.name, f"{c.max_abs:.2e}", f"{c.max_rel:.2e}", f"{c.cosine:.6f}", sqnr, top, wrong, verdict])
    columns = ["output", ">max abs", ">max rel", ">cosine", ">SQNR", ">top-1", ">differ", ""]
    told = [n for n, name in enumerate(columns) if name not in (">top-1", ">differ") or any(row[n] for row in rows)]
    columns, rows = [columns[n] for n in told], [[row[n] for n in told] for row in rows]
    print_table(columns, fitted(columns, rows))
    print(f"pass: {result.rule}")
    for c in result.outputs:
        if c.moved_abs is not None:
            say(f"{quoted(c.name)} of the reference itself moves by {c.moved_abs:.2e} if the inputs change by one ulp")
        if c.moved_elements is not None:
            many = counted(c.moved_elements, "element")
            say(f"{quoted(c.name)} of the reference itself changes in {many} if the inputs change by one ulp")
        if c.off_elements is not None:
            many = counted(c.off_elements, "element")
            say(f"{quoted(c.name)} of the reference itself differs in {many} from what it computes in doubles")
        if c.by_integers:
            ways = "its floats and its integers (optimisations on)"
            say(f"{quoted(c.name)} of the reference itself differs by {c.off_abs:.2e} between {ways}")
        elif c.off_abs is not None:
            say(f"{quoted(c.name)} of the reference itself differs by {c.off_abs:.2e} from what it computes in doubles")
    if result.accuracy is not None:
        a = result.accuracy
        print(f"accuracy: {100 * a.package:.2f} % (reference {100 * a.reference:.2f} %) on {counted(result.samples, 'sample')}")
    if result.first_bad_layer is not None:
        bad = next(c for c in result.layers if c.layer == result.first_bad_layer and not c.comparison.ok)
        print(f"first layer that differs: {result.first_bad_layer}, by {_difference(bad)}")
    for c in result.against_float:
        sqnr = "exact" if c.sqnr_db is None else f"{c.sqnr_db:.0f} dB"
        print(f"to the float model: {quoted(c.name)} cosine {c.cosine:.6f}, SQNR {sqnr}, largest difference {c.max_abs:.3g}")
    if result.against_float and result.random_inputs and quantized not in WEIGHT_SCHEMES:
        print("(on random inputs, which may be outside the calibrated ranges; use real ones: `--inputs x.npz --steps`)")
    for variant in result.variants:
        print(_variant_line(variant))
    if result.sizes:
        say("; ".join(_size_words(check) for check in result.sizes))
    verdict = "matches" if result.ok else "DOES NOT match"
    print(f"{verdict} {result.reference}, {counted(result.samples, 'sample')}")


def _size_words(check: SizeCheck) -> str:
    """`T=17: pass, 2.1e-07`"""
    names = ", ".join(f"{name}={n}" for name, n in check.sizes.items())
    if check.ok is None:
        return f"{names}: NOT compared, {check.failed}"
    return f"{names}: {'pass' if check.ok else 'FAIL'}, {check.max_rel:.1e}"


def _variant_line(check: VariantCheck) -> str:
    if check.ok is None:
        return f"variant {check.variant}: NOT validated, this machine lacks {', '.join(check.lacking)}"
    return f"variant {check.variant}: {'pass' if check.ok else 'FAIL'}, max rel {check.max_rel or 0.0:.2e}"


def profile_package(
    folder: Path, runs: int | None, cc: str | None, place: Place, wait_states: str | None, keep: Keep, given: Given, json: bool
) -> int:
    whole = place.load(folder)
    told = None if given.inputs is None else _without_labels(read_arrays(given.inputs), whole)
    package, inputs = chosen(whole, given.sizes, told)
    if package.serial is None and keep != Keep():
        raise UserError("bad-option", "`--save` and `--label` keep the figures of a board", hint="give `--serial PORT` too")
    result = profile(package, runs, cc, _wait_states(package, wait_states), inputs)
    if keep.path is not None:
        count = save_run(keep.path, run_of(package.manifest, result, keep.label))
        note(f"kept in {keep.path}, which has {counted(count, 'run')}")
    if json:
        print_json(result)
    elif result.serial is not None:
        print_on_board(result, result.serial)
    elif result.emulation is not None:
        print_emulated(result, result.emulation)
    elif result.opencl is not None:
        print_on_device(result, result.opencl)
    else:
        print_timed(result)
    note_loops(layer.op for layer in package.manifest.layers)
    return 0


def _wait_states(package: Package, word: str | None) -> int | None:
    """None: the board as its file describes it. `board`: the same, and where that says nothing, what its flash has at its clock."""
    if word is None:
        return None
    if not package.bare:
        raise UserError("bad-option", f"`--wait-states` needs firmware; `{package.name}` runs on this machine")
    if package.serial is not None:
        raise UserError("bad-option", "a board has its own wait states", hint="omit `--wait-states`")
    if word == "board":
        board = board_of(package.manifest, find_target(package.manifest.target))
        return None if is_described(board) else board.wait_states
    if not (word.isascii() and word.isdigit() and len(word) < 4):
        raise UserError("bad-option", f"`--wait-states {quoted(word)[1:-1]}` is not a number", hint="use a number, or `board`")
    return int(word)


def print_timed(result: Profile) -> None:
    total = sum(layer.time_ms or 0 for layer in result.layers) or 1.0
    unit, scale = ("us", 1000.0) if total < 1 else ("ms", 1.0)
    rows = []
    for layer in result.layers:
        ms = layer.time_ms or 0.0
        rate = 2 * layer.macs / ms / 1e6 if ms else 0.0
        speed = f"{rate:.1f}" if layer.macs and ms >= LEAST_RATED_MS else ""
        op = beginning(layer.op, 18)
        rows.append([layer.name, op, count_text(layer.macs), f"{ms * scale:.3f}", f"{100 * ms / total:.1f}", speed])
    columns = ["layer", "op", ">MACs", f">{unit}", ">%", ">GFLOP/s"]
    print_table(columns, fitted(columns, rows))
    t = result.total
    say(
        f"{result.target}: {(t.time_ms or 0) * scale:.3f} {unit}, arena {bytes_text(t.arena_bytes)}, "
        f"weights {bytes_text(t.weight_bytes)}"
        + (f", code {bytes_text(t.code_bytes)}" if t.code_bytes is not None else "")
    )
    if divided := [layer for layer in result.layers if layer.parts > 1]:
        say(f"{divided[0].parts} threads compute {len(divided)} of {len(result.layers)} layers together")


def print_emulated(result: Profile, emulation: Emulation) -> None:
    """A row per layer, then what the whole firmware needs."""
    t, clock = result.total, emulation.clock_mhz
    rows = []
    causes = largest_causes(t)
    several = any(layer.accelerator for layer in result.layers)  # then it matters where more than how many instructions a MAC takes
    for layer in result.layers:
        share = 100 * (layer.cycles or 0) / (t.cycles or 1)
        where = (layer.accelerator or "core")[:12] if several else _ratio(layer.instructions_per_mac)
        rows.append(
            [
                layer.name, layer.op[:10], count_text(layer.macs).replace(" ", ""),
                _whole(layer.instructions),
                where, "?" if layer.cycles is None else count_text(layer.cycles), *waits_of(layer, causes),
                _ms(layer.time_ms) if clock else f"{share:.1f}", str(layer.weight_bytes or ""), str(layer.ram_bytes or ""),
            ]
        )  # fmt: skip
    last = "~ms" if clock else "%"
    waits = [f">{cause}" for cause in causes]
    columns = ["layer", "op", ">MACs", ">instr.", "on" if several else ">/MAC", ">~cycles", *waits, f">{last}", ">weights", ">RAM"]
    first_to_go = [">/MAC", ">weights", "op", *([">RAM"] if waits else []), ">MACs", *waits[1:]]
    within_page(columns, rows, first_to_go)
    print(f"instructions: {_whole(t.instructions)}, {_ratio(t.instructions_per_mac)} per MAC (exact, {emulation.emulator})")
    for line in cycles_lines(t, emulation):
        say(line)
    stack = f"stack {'without a bound' if t.stack_bytes is None else t.stack_bytes} ({t.stack_used_bytes} used)"
    copied = f", weights {_whole(t.weights_ram_bytes)}" if t.weights_ram_bytes else ""
    copied += f", code {_whole(t.code_ram_bytes)}" if t.code_ram_bytes else ""
    say(
        f"RAM: {_whole(t.ram_bytes)} bytes: arena {_whole(t.arena_bytes)}, inputs and outputs {_whole(t.io_bytes)}, "
        f"variables {_whole(t.static_bytes)}, {stack}{copied}"
    )
    print(f"flash: {_whole(t.flash_bytes)} bytes: code {_whole(t.code_bytes)}, weights {_whole(t.weight_bytes)}")


def print_on_board(result: Profile, board: OnBoard) -> None:
    """A row per layer, then the whole inference."""
    t, clock = result.total, board.clock_mhz
    rows = []
    for layer in result.layers if any(layer.cycles is not None for layer in result.layers) else ():
        share = 100 * (layer.cycles or 0) / (t.cycles or 1)
        per_mac = "" if not layer.macs or layer.cycles is None else f"{layer.cycles / layer.macs:.2f}"
        last = [_ms(layer.time_ms)] if clock else []
        rows.append([layer.name, layer.op[:10], count_text(layer.macs), _whole(layer.cycles), per_mac, f"{share:.1f}", *last])
    columns = ["layer", "op", ">MACs", ">cycles", ">/MAC", ">%", *([">ms"] if clock else [])]
    if rows:
        within_page(columns, rows, [">/MAC", "op", ">MACs"])
    elif t.cycles is not None:
        note("the firmware was compiled without the hook: only the whole inference was measured")
    if t.cycles is None:
        print("cycles: the core has no counter")
        return
    how = "estimated by an emulated core" if board.cycles_are_estimated else f"measured, the least of {counted(board.runs, 'run')}"
    at = f" = {_ms(t.time_ms)} ms at {clock:g} MHz" if clock else ""
    print(f"cycles: {_whole(t.cycles)}{at} ({how})")
    if not clock:
        note("the clock of the core is not known: `--clock MHZ` gives times")


def _whole(number: int | None) -> str:
    return "?" if number is None else f"{number:,}"


def _ratio(number: float | None) -> str:
    return "" if number is None else f"{number:.2f}"


def _ms(number: float | None) -> str:
    return "?" if number is None else ms_text(number)
