"""Options that do not go together: one table, in the order in which they are checked.

A rule needs the options alone, or also the target, or also the model (an IR file may be past the stage that reads an option).
What an option may be by itself is checked where it is read.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from intaglio.errors import UserError, quoted
from intaglio.ir.spans import Span
from intaglio.options.request import WEIGHT_SCHEMES, Request, stage_index
from intaglio.targets.board import find_board
from intaglio.targets.target import Target, find_target, host_target, opencl_target
from intaglio.targets.variants import has_variants


@dataclass(frozen=True, slots=True)
class Situation:
    """What is known so far: `target` and the stage of the model may come later. `halves`: values of the model are in 16 bits."""

    request: Request
    target: Target | None = None
    done: str | None = None
    halves: bool = False
    moves: bool = False  # dimensions of the model have a range

    @property
    def on_opencl(self) -> bool:
        return self.target is not None and bool(self.target.device)

    @property
    def bounded(self) -> bool:
        """Has a dimension a range, by an option or in the IR file?"""
        extents = [*self.request.dims.values(), *(n for shape in self.request.shapes.values() for n in shape)]
        return self.moves or any(isinstance(extent, Span) for extent in extents)

    @property
    def in_wasm(self) -> bool:
        return self.target is not None and self.target.wasm

    @property
    def elsewhere(self) -> bool:
        """For a processor that this machine does not have."""
        return self.target is not None and self.target.arch != opencl_target(host_target()).arch

    def is_past(self, stage: str) -> bool:
        return self.done is not None and stage_index(self.done) >= stage_index(stage)

    def words(self) -> dict[str, str]:
        """What messages may name."""
        r = self.request
        return {
            "target": self.target.name if self.target is not None else "",
            "asked": quoted(r.target or ""),
            "board": r.board or "",
            "core": find_board(r.board).core if r.board else "",
            "model": r.model.name,
            "stop_after": r.stop_after,
            "precision": r.precision or "",
            "bits": "in 16 bits" if self.halves else "in 32 bits",
        }


@dataclass(frozen=True, slots=True)
class Rule:
    """`breaks` is true where the options do not go together; `needs` says what has to be known: options, target or model."""

    name: str
    needs: str
    breaks: Callable[[Situation], bool]
    message: str
    hint: str = ""


LEAVE_OUT = "omit one of them"
NOT_ON_OPENCL = "`{}` cannot be combined with an OpenCL device (`{{target}}`)"
ONE_MEMORY = "omit it: an OpenCL device has one memory, where the package allocates what it needs (`--ram` limits it)"
LATE = "`{model}` is already past the stage `optimise`"


def _excluded(word: str, given: Callable[[Request], bool]) -> Rule:
    """Beside an accelerator."""
    message = f"`--accelerator` and `{word}` cannot be combined"
    name = f"accelerator, {word.removeprefix('--')}"
    return Rule(name, "options", lambda s: bool(s.request.accelerators) and given(s.request), message, LEAVE_OUT)


def _not_with_variants(word: str, given: Callable[[Request], bool], why: str) -> Rule:
    message = f"`--variants` and `{word}` cannot be combined: {why}"
    hint = f"omit `{word}`, or compile a package for each processor"
    name = f"variants, {word.removeprefix('--')}"
    return Rule(name, "options", lambda s: bool(s.request.variants) and given(s.request), message, hint)


def _not_on_opencl(word: str, given: Callable[[Request], bool], hint: str = "") -> Rule:
    hint = hint or f"omit `{word}`, or compile for the processor alone"
    name = f"opencl, {word.removeprefix('--')}"
    return Rule(name, "target", lambda s: s.on_opencl and given(s.request), NOT_ON_OPENCL.format(word), hint)


def _not_in_wasm(word: str, given: Callable[[Request], bool]) -> Rule:
    message, hint = f"`{word}` is not available for WebAssembly", f"omit `{word}`: a module has one memory, with its weights in it"
    return Rule(f"wasm, {word.removeprefix('--')}", "target", lambda s: s.in_wasm and given(s.request), message, hint)


def _not_with_ranges(word: str, given: Callable[[Request], bool]) -> Rule:
    message = f"sizes with a bound (a range, or results whose number depends on data) and `{word}` cannot be combined"
    hint = f"omit `{word}`; give each dimension one size (`--dim T=128`); leave operators such as `NonMaxSuppression` to the caller"
    return Rule(f"ranges, {word.removeprefix('--')}", "options", lambda s: s.bounded and given(s.request), message, hint)


def _cores(request: Request) -> int:
    """Of the board; of a core without a board, one."""
    return find_board(request.board).cores if request.board else 1


def _not_with_slots(word: str, given: Callable[[Request], bool]) -> Rule:
    message = f"`--safety slots` and `{word}` cannot be combined: a slot is one block of weights in mapped flash"
    name = f"slots, {word.removeprefix('--')}"
    return Rule(name, "options", lambda s: "slots" in s.request.safety and given(s.request), message, f"omit `{word}`")


RULES: tuple[Rule, ...] = (
    _not_on_opencl("--safety", lambda r: bool(r.safety)),
    Rule(
        "code ram, not of a board", "target",
        lambda s: s.target is not None and not s.target.bare and s.request.code == "ram",
        "`--code ram` is for boards, and `{target}` is none", "omit `--code`: an operating system loads code to RAM anyway",
    ),
    Rule("style", "options", lambda s: s.request.style not in ("plain", "misra"), "unknown `--style`", "use plain or misra"),
    _not_on_opencl("--style misra", lambda r: r.style == "misra"),
    _not_with_variants("--style misra", lambda r: r.style == "misra", "deviations are listed for one target"),
    Rule(
        "safety, feed-rows", "options", lambda s: s.request.feed_rows and bool({"step", "golden"} & {*s.request.safety}),
        "`--safety step` and `golden` cannot be combined with `--feed-rows`", "omit them: every row is a step already",
    ),
    Rule(
        "safety steady, FPU", "target",
        lambda s: s.target is not None and "steady" in s.request.safety and not (s.target.bare and s.target.fpu == "none"),
        "`--safety steady` is about floats on cores without an FPU, and `{target}` is not one", "omit `steady`",
    ),
    Rule(
        "encrypted, slots", "options", lambda s: "encrypted" in s.request.safety and "slots" not in s.request.safety,
        "`--safety encrypted` needs slots of weights", "use `--safety slots,encrypted`",
    ),
    _not_with_slots("--weights read", lambda r: r.weights_read),
    _not_with_slots("--weights ram", lambda r: r.weights_ram),
    _not_with_slots("--weights-address", lambda r: r.weights_address is not None),
    _not_with_slots("--memory", lambda r: r.memory is not None),
    _not_with_variants("--safety", lambda r: bool(r.safety), "the checks are for one network"),
    _not_on_opencl("--verify", lambda r: r.verify),
    Rule(
        "verify, stop-after", "options",
        lambda s: s.request.verify and stage_index(s.request.stop_after) < stage_index("memory"),
        "the stage `{stop_after}` has no kernels for `--verify` yet", "use `--stop-after memory` or later, or omit `--verify`",
    ),
    Rule(
        "export-plan, stop-after", "options",
        lambda s: s.request.export_plan is not None and stage_index(s.request.stop_after) < stage_index("memory"),
        "the stage `{stop_after}` has no memory plan yet", "use `--stop-after memory` or later",
    ),
    Rule(
        "archive, stop-after", "options",
        lambda s: s.request.archive and stage_index(s.request.stop_after) < stage_index("package"),
        "the stage `{stop_after}` has no package for `--archive` yet", "use `--stop-after package` or later, or omit `--archive`",
    ),
    Rule(
        "sign, stop-after", "options",
        lambda s: s.request.sign is not None and stage_index(s.request.stop_after) < stage_index("package"),
        "the stage `{stop_after}` has no package for `--sign` yet", "use `--stop-after package` or later, or omit `--sign`",
    ),
    Rule(
        "archive-format, archive", "options",
        lambda s: s.request.archive_format != "tar.gz" and not s.request.archive,
        "`--archive-format` needs `--archive`", "add `--archive`",
    ),
    Rule(
        "accelerator-only, accelerator", "options",
        lambda s: bool(s.request.accelerator_only) and not s.request.accelerators,
        "`--accelerator-only` needs `--accelerator`", "for example `--accelerator NAME --accelerator-only qconv,qmatmul`",
    ),
    Rule(
        "weights fp16, quantize", "options",
        lambda s: bool(s.request.weights_stored) and s.request.quantize is not None,
        "`--weights fp16` and `--quantize` cannot be combined",
    ),
    Rule(
        "small weights, calibrate", "options",
        lambda s: s.request.scheme in WEIGHT_SCHEMES and s.request.calibrated,
        "calibration data and its options have no effect when only weights are quantised",
        "omit these options, or use `--quantize int8`",
    ),
    Rule(
        "calibrate, quantize", "options",
        lambda s: s.request.scheme is None and s.request.calibrated,
        "calibration data and its options need `--quantize`", "add `--quantize int8`",
    ),
    Rule(
        "labels, calibrate", "options",
        lambda s: s.request.labels is not None and s.request.calibrate is None,
        "`--labels` needs the data they belong to", "give the data with `--calibrate`",
    ),
    Rule(
        "labels, stop-after", "options",
        lambda s: s.request.labels is not None and s.request.stop_after != "build",
        "`--labels` needs a package that was built, and `--stop-after` stops before", "omit one of them",
    ),
    Rule(
        "labels, no-ir", "options",
        lambda s: s.request.labels is not None and s.request.no_ir,
        "`--labels` needs the IR in the package, which `--no-ir` leaves out", "omit one of them",
    ),
    Rule(
        "weights-section, weights-address", "options",
        lambda s: s.request.weights_section is not None and s.request.weights_address is not None,
        "`--weights-section` and `--weights-address` cannot be combined",
        "choose one: the linker places a section; an address holds a separate binary",
    ),
    Rule(
        "weights read, a place", "options",
        lambda s: s.request.weights_read and (s.request.weights_section or s.request.weights_address) is not None,
        "`--weights read` cannot be combined with an address or a section",
        "omit `--weights-address` and `--weights-section`",
    ),
    Rule(
        "weights ram, elsewhere", "options",
        lambda s: s.request.weights_ram and (s.request.weights_read or s.request.weights_address is not None),
        "`--weights ram` cannot be combined with weights that are read, or that have an address", LEAVE_OUT,
    ),
    Rule(
        "weights staged, elsewhere", "options",
        lambda s: s.request.weights_staged and (s.request.weights_read or s.request.weights_ram),
        "`--weights staged` cannot be combined with `read` or `ram`", LEAVE_OUT,
    ),
    Rule(
        "weights staged, an operating system", "target",
        lambda s: s.target is not None and not s.target.bare and s.request.weights_staged,
        "`--weights staged` needs a board, and `{target}` has an operating system", "`intaglio boards` lists boards",
    ),
    Rule(
        "weights packed, elsewhere", "options",
        lambda s: s.request.weights_packed and (s.request.weights_read or s.request.weights_ram or s.request.weights_staged),
        "`--weights packed` cannot be combined with `read`, `ram` or `staged`", LEAVE_OUT,
    ),
    Rule(
        "weights packed, an operating system", "target",
        lambda s: s.target is not None and not s.target.bare and s.request.weights_packed,
        "`--weights packed` needs a board, and `{target}` has an operating system", "`intaglio boards` lists boards",
    ),
    Rule(
        "weights ram, an operating system", "target",
        lambda s: s.target is not None and not s.target.bare and s.request.weights_ram,
        "`--weights ram` needs a board, and `{target}` has an operating system", "`intaglio boards` lists boards",
    ),
    Rule(
        "board, target", "options",
        lambda s: bool(s.request.board and s.request.target) and find_target(s.request.target or "").name != s.words()["core"],
        "the board `{board}` has a `{core}`, not a {asked}", "omit `--target`, or use `--target {core}`",
    ),
    Rule(
        "device, a processor", "target",
        lambda s: not s.on_opencl and bool(s.request.devices),
        "`--device` needs an OpenCL device; `{target}` has none",
        "use `--target opencl`; `--board` names the board of a microcontroller",
    ),
    Rule(
        "precision, a processor", "target",
        lambda s: not s.on_opencl and s.request.precision is not None,
        "`--precision` needs an OpenCL device; `{target}` has none",
        "use `--target opencl`; on other targets, `--weights fp16` halves the weights and `--quantize` uses integers",
    ),
    Rule(
        "limit-kernel-time, a processor", "target",
        lambda s: not s.on_opencl and s.request.limit_kernel_time is not None,
        "`--limit-kernel-time` needs an OpenCL device; `{target}` has none", "use `--target opencl`, or omit it",
    ),
    Rule(
        "threads, no operating system", "target",
        lambda s: s.target is not None and s.target.bare and s.request.threads > 1,
        "`--threads` needs an operating system, and `{target}` has none",
        "`--cores` divides layers over the cores of a board; without both, one core computes everything",
    ),
    Rule(
        "cores, not of a board", "target",
        lambda s: s.target is not None and not s.target.bare and s.request.cores > 1,
        "`--cores` is for boards with several equal cores, and `{target}` is none", "use `--threads`",
    ),
    Rule(
        "cores, of this board", "target",
        lambda s: s.target is not None and s.target.bare and s.request.cores > 1 and _cores(s.request) < s.request.cores,
        "`--cores` needs a board whose cores compute together, and of this one only one core does",
        "use `--board rp2040` or `--board rp2350`, or write `cores = 2` in the file of your board",
    ),
    Rule(
        "tuning, not a processor", "target",
        lambda s: s.target is not None and bool(s.target.bare or s.target.device or s.target.wasm) and s.request.tuning is not None,
        "`--tuning` has times of processors with an operating system, and `{target}` is none", "omit `--tuning`",
    ),
    Rule(
        "weights-address, an operating system", "target",
        lambda s: s.target is not None and not s.target.bare and s.request.weights_address is not None,
        "`--weights-address` needs a board, and `{target}` has an operating system",
        "`intaglio boards` lists boards; `--weights-section` works everywhere",
    ),
    _not_on_opencl("--arena caller", lambda r: r.arena == "caller", ONE_MEMORY),
    _not_on_opencl("--weights read", lambda r: r.weights_read, ONE_MEMORY),
    _not_on_opencl("--memory", lambda r: r.memory is not None, ONE_MEMORY),
    _not_on_opencl("--stream", lambda r: r.stream is not None),
    _not_on_opencl("--feed-rows", lambda r: r.feed_rows),
    _not_on_opencl("--threads", lambda r: r.threads > 1, "omit it: the device computes in parallel by itself"),
    _not_on_opencl("--accelerator", lambda r: bool(r.accelerators)),
    _not_in_wasm("--weights read", lambda r: r.weights_read),
    _not_in_wasm("--memory", lambda r: r.memory is not None),
    _not_in_wasm("--feed-rows", lambda r: r.feed_rows),
    _not_in_wasm("--weights-section", lambda r: r.weights_section is not None),
    Rule(
        "wasm, threads", "target",
        lambda s: s.in_wasm and s.request.threads > 1,
        "`--threads` is not available for WebAssembly", "omit `--threads`: a module has one thread",
    ),
    _not_in_wasm("--accelerator", lambda r: bool(r.accelerators)),
    Rule(
        "device, stop-after", "target",
        lambda s: s.on_opencl and bool(s.request.devices) and s.request.stop_after != "build",
        "`--device` needs a package that is built", "omit `--device` or `--stop-after`",
    ),
    Rule(
        "device, another machine", "target",
        lambda s: s.on_opencl and bool(s.request.devices) and s.elsewhere,
        "`--device` means a device of this machine, where a package for `{target}` does not run",
        "compile without it; on the device, `bin/NAME --warm --cache NAME.clbin` fills the cache",
    ),
    Rule(
        "feed-rows, stream", "options",
        lambda s: s.request.feed_rows and s.request.stream is not None,
        "`--feed-rows` and `--stream` cannot be combined",
        "use `--stream` for endless frames, or `--feed-rows` for the rows of separate pictures",
    ),
    Rule(
        "feed-rows, weights read", "options",
        lambda s: s.request.feed_rows and s.request.weights_read,
        "`--weights read` and `--feed-rows` cannot be combined", LEAVE_OUT,
    ),
    Rule(
        "feed-rows, cores", "options",
        lambda s: s.request.feed_rows and s.request.cores > 1,
        "`--feed-rows` and `--cores` cannot be combined", LEAVE_OUT,
    ),
    Rule(
        "feed-rows, threads", "options",
        lambda s: s.request.feed_rows and s.request.threads > 1,
        "`--feed-rows` and `--threads` cannot be combined", LEAVE_OUT,
    ),
    _excluded("--weights read", lambda r: r.weights_read),
    _excluded("--feed-rows", lambda r: r.feed_rows),
    _excluded("--stream", lambda r: r.stream is not None),
    _not_with_variants("--stop-after", lambda r: stage_index(r.stop_after) < stage_index("package"), "an IR file has one target"),
    _not_with_variants("--export-plan", lambda r: r.export_plan is not None, "each variant has a plan of its own"),
    _not_with_variants("--import-plan", lambda r: r.import_plan is not None, "each variant has a plan of its own"),
    _not_with_variants("--memory", lambda r: r.memory is not None, "variants share one arena"),
    _not_with_variants("--feed-rows", lambda r: r.feed_rows, "rows are for devices with little memory"),
    _not_with_variants("--weights read", lambda r: r.weights_read, "the weights of all variants are mapped"),
    _not_with_variants("--accelerator", lambda r: bool(r.accelerators), "its code is for one target"),
    _not_with_variants("--template", lambda r: r.template is not None, "the files of variants come from templates of their own"),
    Rule(
        "variants, a processor without them", "target",
        lambda s: s.target is not None and bool(s.request.variants) and not has_variants(s.target),
        "`--variants` needs a target for x86-64 or aarch64; `{target}` is none",
        "use `--target x86-64 --variants v3,v4`, or omit `--variants`",
    ),
    Rule(
        "variants, an IR file", "model",
        lambda s: bool(s.request.variants) and s.is_past("optimise"),
        LATE, "give `--variants` with the model, or an IR file of the stage `import`",
    ),
    Rule(
        "quantize, an IR file", "model",
        lambda s: s.request.scheme is not None and s.is_past("optimise"),
        "`{model}` is already past the stage `import`", "quantise the model itself, or an IR file of the stage `import`",
    ),
    Rule(
        "accelerator, an IR file", "model",
        lambda s: bool(s.request.accelerators) and s.is_past("optimise"),
        LATE, "give `--accelerator` with the model, or an IR file of the stage `import`; lines with `on` stay as they are",
    ),
    Rule(
        "stream, an IR file", "model",
        lambda s: s.request.stream is not None and s.is_past("optimise"),
        LATE, "give `--stream` with the model, or an IR file of the stage `import`",
    ),
    Rule(
        "precision, an IR file", "model",
        lambda s: s.on_opencl and s.is_past("optimise") and s.request.precision is not None
        and (s.request.precision != "fp32") != s.halves,
        LATE + ", with values {bits}: `--precision {precision}` is too late",
        "give `--precision` with the model, or an IR file of the stage `import`; values in a later one stay as they are",
    ),
    _not_with_ranges("--cores", lambda r: r.cores > 1),
    _not_with_ranges("--accelerator", lambda r: bool(r.accelerators)),
    _not_with_ranges("--stream", lambda r: r.stream is not None),
    _not_with_ranges("--feed-rows", lambda r: r.feed_rows),
    _not_with_ranges("--weights read", lambda r: r.weights_read),
    Rule(
        "ranges, target", "target", lambda s: s.bounded and s.target is not None and s.on_opencl,
        "sizes with a bound (a range, or results whose number depends on data) are not available for `{target}`",
        "give each dimension one size (`--dim T=128`); leave operators such as `NonMaxSuppression` to the caller",
    ),
)  # fmt: skip


def check_rules(situation: Situation) -> None:
    """Raise for the first rule that the options break, of those for which enough is known."""
    known = {"options", *(["target"] if situation.target else []), *(["model"] if situation.done else [])}
    for rule in RULES:
        if rule.needs in known and rule.breaks(situation):
            words = situation.words()
            raise UserError("bad-option", rule.message.format(**words), hint=rule.hint.format(**words))
