"""`intaglio compile`: from words to a request, and what is said on the way."""

from __future__ import annotations

import shlex
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from intaglio.cli import options
from intaglio.cli.explaining import choices_json, choices_lines, print_costs
from intaglio.cli.offloading import offloaded_json, print_offloaded
from intaglio.cli.opencl import placed_json, placed_lines
from intaglio.cli.quantizing import print_account
from intaglio.cli.terminal import bytes_text, count_text, note, print_json, progress_bar, proven_text
from intaglio.errors import AnswerIsNo, UserError, counted, quoted
from intaglio.ir.graph import Array
from intaglio.kernels.choice import Explained
from intaglio.package.archive import FORMATS
from intaglio.passes import check_disabled
from intaglio.passes.offload import Offloaded
from intaglio.pipeline import compile_model, quantization_of
from intaglio.quantize.settings import Account
from intaglio.run.package import Package
from intaglio.stages import CostRow, Device, Quantization, Request, Watch, stage_index


@dataclass(frozen=True, slots=True)
class Quantizing:
    """The words about quantisation."""

    quantize: str | None = None
    weights: str | None = None
    calibrate: Path | None = None
    labels: Path | None = None
    ranges: str = "auto"
    max_error: float | None = None
    keep_float: list[str] | None = None
    keep_int16: list[str] | None = None
    integer_io: bool = False

    def request(self) -> Quantization | None:
        if self.weights is not None:
            if self.weights != "fp16":
                raise UserError("bad-option", f"unknown value {quoted(self.weights)} of `--weights`", hint="`--weights fp16`")
            if self.quantize is not None:
                raise UserError("bad-option", "`--weights fp16` and `--quantize` cannot be combined")
        given = [self.calibrate, self.labels, self.max_error, self.keep_float, self.keep_int16]
        settings = any(word is not None for word in given) or self.integer_io or self.ranges != "auto"
        if self.weights is not None or self.quantize == "weights":
            if settings:
                text = "calibration data and its options have no effect when only weights are quantised"
                raise UserError("bad-option", text, hint="omit these options, or use `--quantize int8`")
            return quantization_of("fp16" if self.weights is not None else "weights", None)
        if self.quantize is None:
            if settings:
                hint = "add `--quantize int8`"
                raise UserError("bad-option", "calibration data and its options need `--quantize`", hint=hint)
            return None
        if self.max_error is not None and not self.max_error > 0:
            raise UserError("bad-option", f"`--max-error {self.max_error}` is not a relative error", hint="for example 0.05")
        return quantization_of(
            self.quantize,
            self.calibrate,
            ranges=self.ranges,
            max_error=self.max_error,
            keep_float=tuple(self.keep_float or ()),
            keep_int16=tuple(self.keep_int16 or ()),
            integer_io=self.integer_io,
        )


@dataclass(frozen=True, slots=True)
class Words:
    """The command line as typed."""

    model: Path
    output: Path
    target: str | None
    device: Device
    devices: list[str] | None
    dim: list[str] | None
    shape: list[str] | None
    state: list[str] | None
    name: str | None
    stop_after: str
    feed_rows: bool
    stream: int | None
    accelerators: list[str] | None
    accelerator_only: str | None
    export_plan: Path | None
    import_plan: Path | None
    disable_pass: list[str] | None
    dump_ir: Path | None
    explain: bool
    archive: str | None
    force: bool
    template: Path | None
    cc: str | None
    cflags: str | None
    json: bool
    quantizing: Quantizing


def compile_words(words: Words) -> None:
    request = _request(words)
    labels = _labels(words.quantizing)
    rows: list[CostRow] = []
    accounts: list[Account] = []
    sent: list[Offloaded] = []
    chosen: list[Explained] = []
    start = time.perf_counter()
    with progress_bar() as progress:
        watch = Watch(
            note=lambda text: note(text if text.startswith("warning:") else f"note: {text}"),
            progress=progress,
            explain=rows.extend if words.explain else None,
            chosen=chosen.extend if words.explain else None,
            account=lambda account: accounts.append(_fitting(account, labels)),
            offloaded=sent.append,
        )
        try:
            result = compile_model(request, watch)
        except AnswerIsNo as error:
            if words.json and error.slug == "does-not-fit":
                print_json({"fits": False, "message": error.message, "parts": error.where, "hint": error.hint})
            raise
    if rows:
        print_costs(rows, stderr=words.json)
    if chosen and not words.json:
        print("\n".join(choices_lines(chosen)))
    if sent and not words.json:
        print_offloaded(sent[-1], explain=words.explain, stderr=False)
    if accounts and not words.json:
        print_account(accounts[0])
    if isinstance(result, Path):
        print_json({"ir": str(result), "stage": words.stop_after}) if words.json else note(f"wrote {result}")
        return
    accuracy = _accuracy(result, words, labels) if labels is not None else None
    if words.json:
        told: dict[str, object] = {"quantization": accounts[0].as_json()} if accounts else {}
        told |= {"accelerators": offloaded_json(sent[-1])} if sent else {}
        told |= {"kernels": choices_json(chosen)} if chosen else {}
        print_json({**_summary(result, words), **told, **({"accuracy": accuracy} if accuracy else {})})
    else:
        _print_summary(result, time.perf_counter() - start, words)


def _labels(words: Quantizing) -> Array | None:
    """Read before anything is compiled, so that a mistake is told at once."""
    from intaglio.cli.running import read_labels

    if words.labels is None:
        return None
    if words.calibrate is None:
        raise UserError("bad-option", "`--labels` needs the data they belong to", hint="give the data with `--calibrate`")
    return read_labels(words.labels)


def _fitting(account: Account, labels: Array | None) -> Account:
    """A wrong number of labels is told before the package is built."""
    if labels is not None and labels.size != account.samples:
        what = f"there are {labels.size} labels for {account.samples} samples"
        raise UserError("wrong-input", what, hint="give one integer per sample of `--calibrate`")
    return account


def _accuracy(package: Package, words: Words, labels: Array) -> dict[str, float]:
    """Of the package and of the float model, on the calibration data."""
    from intaglio.run.accuracy import accuracy_of
    from intaglio.run.calibration import read_samples

    calibrate = words.quantizing.calibrate
    assert calibrate is not None
    result = accuracy_of(package, lambda graph: read_samples(calibrate, graph), labels)
    if not words.json:
        note(
            f"accuracy: {100 * result.package:.2f} % quantised, {100 * result.reference:.2f} % in floating point, "
            f"on {counted(result.samples, 'sample')}"
        )
    return {"quantized": result.package, "float": result.reference}


def _request(words: Words) -> Request:
    if words.export_plan is not None and stage_index(words.stop_after) < stage_index("memory"):
        raise UserError(
            "bad-option",
            f"the stage `{words.stop_after}` has no memory plan yet",
            hint="use `--stop-after memory` or later",
        )
    stage_index(words.stop_after)
    if words.archive is not None and words.archive not in FORMATS:
        raise UserError("bad-option", f"unknown archive format {quoted(words.archive)}", hint="`tar.gz` or `zip`")
    check_disabled(frozenset(words.disable_pass or []))
    try:
        cflags = tuple(shlex.split(words.cflags or ""))
    except ValueError:
        raise UserError("bad-option", f"`--cflags {words.cflags}` has an open quote") from None
    return Request(
        model=words.model,
        output=words.output,
        target=words.target,
        device=words.device,
        devices=tuple(dict.fromkeys(words.devices or ())),
        dims=options.dims(words.dim),
        shapes=options.shapes(words.shape),
        states=options.pairs(words.state, "--state"),
        name=words.name,
        stop_after=words.stop_after,
        feed_rows=words.feed_rows,
        stream=words.stream,
        accelerators=tuple(words.accelerators or ()),
        accelerator_only=_only(words),
        export_plan=words.export_plan,
        import_plan=words.import_plan,
        disabled=frozenset(words.disable_pass or []),
        dump_ir=words.dump_ir,
        archive=words.archive,
        force=words.force,
        template=words.template,
        cc=words.cc,
        cflags=cflags,
        quantize=words.quantizing.request(),
    )


def _only(words: Words) -> frozenset[str]:
    named = frozenset(filter(None, (words.accelerator_only or "").replace(" ", "").split(",")))
    if words.accelerator_only is not None and (not named or not words.accelerators):
        hint = "`--accelerator NAME --accelerator-only qconv,qmatmul`"
        raise UserError("bad-option", "`--accelerator-only` needs `--accelerator`", hint=hint)
    return named


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
        "optimal": m.memory.optimal,
        "arenas": [asdict(arena) for arena in m.memory.arenas],
        "weight_bytes": m.memory.weight_bytes,
    }
    if m.firmware is not None:
        told["firmware"] = asdict(m.firmware)
    if m.opencl is not None:
        told["opencl"] = placed_json(m)
    if words.archive:
        told["archive"] = f"{package.folder}.{words.archive}"
    return told


def _print_summary(package: Package, seconds: float, words: Words) -> None:
    m = package.manifest
    macs = count_text(sum(layer.macs for layer in m.layers))
    note(
        f"compiled `{m.name}` for {m.target} in {seconds:.1f} s: {len(m.layers)} layers, {macs} multiply-adds, "
        f"weights {bytes_text(m.memory.weight_bytes)}, arena {proven_text(m.memory.arena_bytes, m.memory.lower_bound_bytes)}"
    )
    if (f := m.firmware) is not None:
        stack = "an unbounded stack" if f.stack_bytes is None else f"stack {f.stack_bytes:,}"
        note(
            f"flash {f.flash_bytes:,} bytes: code {f.code_bytes:,}, weights {f.weight_bytes:,}; "
            f"RAM {f.ram_bytes:,} bytes: arena {m.memory.arena_bytes:,}, inputs and outputs {f.io_bytes:,}, "
            f"variables {f.static_bytes:,}, {stack}"
        )
    if m.opencl is not None:
        for line in placed_lines(m, list(dict.fromkeys(words.devices or []))):
            note(line)
    if m.memory.weights_apart:
        note("of the weights: " + ", ".join(f"{size:,} bytes in {memory}" for memory, size in m.memory.weights_apart))
    if m.memory.arenas:
        note("the arena: " + ", ".join(f"{a.bytes:,} bytes in {a.memory}" for a in m.memory.arenas))
    note(f"package: {package.folder}")
    if words.archive:
        note(f"archive: {package.folder}.{words.archive}")
