"""What a compile is asked for: every option once, with its name, type, default, help, and the stage that reads it.

The command line, `intaglio.compile`, the manifest and docs/reference/options.md come from the fields of `Request`.
"""

# ruff: noqa: RUF009  (`option` returns a field of the dataclass, made anew for each)
from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar, cast

from intaglio.errors import UserError, quoted
from intaglio.ir.spans import Dims, Shapes
from intaglio.options import kinds
from intaglio.options.kinds import Kind

if TYPE_CHECKING:  # numpy is behind these: `intaglio --help` does without
    from intaglio.ir.graph import Array
    from intaglio.quantize.settings import Settings
    from intaglio.targets.deployment import Deployment
    from intaglio.targets.target import Target

WEIGHT_SCHEMES = ("weights", "fp16")  # weights are stored small, arithmetic stays in floats
STAGES = ("import", "optimise", "kernels", "memory", "package", "build")
T = TypeVar("T")
ARRAYS = "arrays"  # what the manifest says of data that was no file


@dataclass(frozen=True, slots=True)
class Option:
    """`word` is the option on the command line (empty: Python alone), `keyword` that of `intaglio.compile` (empty: command line
    alone). `record` is what the manifest says of it, under the name `recorded`."""

    name: str
    kind: Kind
    default: object
    help: str
    stage: str
    metavar: str = ""
    word: str = ""
    keyword: str = ""
    recorded: str = ""
    record: Callable[[Request], str] | None = None


@dataclass(frozen=True, slots=True)
class Quantization:
    """How a float model becomes integers: `settings` for int8 and int16x8, nothing but the name for small weights."""

    scheme: str
    settings: Settings | None = None
    calibrate: Path | None = None
    data: Mapping[str, Array] | None = None  # instead of a file


def stage_index(stage: str) -> int:
    if stage not in STAGES:
        known = ", ".join(f"`{s}`" for s in STAGES)
        raise UserError("unknown-stage", f"unknown stage {quoted(stage)}", hint=f"stages: {known}")
    return STAGES.index(stage)


def option(
    default: T,
    kind: Kind,
    stage: str,
    help: str,
    metavar: str = "",
    *,
    word: str | None = None,
    keyword: str | None = None,
    recorded: str | None = None,
    record: Callable[[Request], str] | None = None,
) -> T:
    """A field of `Request`. Names that are left out are that of the field; without `record` the manifest has nothing of it."""
    about = {"kind": kind, "stage": stage, "help": help, "metavar": metavar, "word": word, "keyword": keyword}
    about |= {"recorded": recorded, "record": record}
    if isinstance(default, dict):
        return cast(T, field(default_factory=dict, metadata=about))
    return field(default=default, metadata=about)


def _pairs(table: Mapping[str, object]) -> str:
    return ",".join(f"{key}={value}" for key, value in sorted(table.items()))


def _shapes(table: Shapes) -> str:
    return ";".join(f"{key}={','.join(map(str, shape))}" for key, shape in sorted(table.items()))


def _file_name(path: str | None) -> str:
    return (path or "").replace("\\", "/").rsplit("/", 1)[-1]


@dataclass(frozen=True, slots=True)
class Request:
    """A model, where its package goes, and the options. `constants`: inputs that are fixed to a value."""

    model: Path
    output: Path
    target: str | None = option(
        None, kinds.TEXT, "import", "Target; see `intaglio targets`. Default: this machine.", "T"
    )
    board: str | None = option(
        None, kinds.TEXT, "import", "Board: sets core, RAM, flash; see `intaglio boards`.", "B",
        record=lambda r: _file_name(r.board),
    )  # fmt: skip
    ram: int | None = option(
        None, kinds.SIZE, "memory", "RAM limit, e.g. 64K.", "N", record=lambda r: str(r.ram or "")
    )  # fmt: skip
    flash: int | None = option(
        None, kinds.SIZE, "memory", "Flash limit, e.g. 1M.", "N", record=lambda r: str(r.flash or "")
    )  # fmt: skip
    memory: str | None = option(
        None, kinds.TEXT, "memory", "File of memories: size, speed, and what each may hold.", "M.toml",
        record=lambda r: _file_name(r.memory),
    )  # fmt: skip
    arena: str = option(
        "static", kinds.TEXT, "package", "static, or caller: you pass the arena; no static data.", "A", record=lambda r: r.arena
    )
    code: str = option(
        "flash", kinds.TEXT, "package", "Kernels on a board: flash, or ram: start-up code copies them to RAM.", "C",
        record=lambda r: r.code,
    )  # fmt: skip
    optimize: str = option(
        "balanced", kinds.TEXT, "kernels", "Optimise for speed, balanced or size.", "O",
        record=lambda r: r.optimize,
    )  # fmt: skip
    exact: bool = option(
        False, kinds.FLAG, "kernels", "Refuse algorithms that change rounding, such as Winograd's convolution.",
        record=lambda _: "yes",
    )  # fmt: skip
    io: str = option(
        "arena", kinds.TEXT, "memory", "Buffers of inputs and outputs on a board: arena, or caller.", "IO", record=lambda r: r.io
    )
    weights_section: str | None = option(
        None, kinds.TEXT, "package", "Linker section of the weights, e.g. .qspi.", "S", record=lambda r: r.weights_section or ""
    )
    weights_address: int | None = option(
        None, kinds.ADDRESS, "package", "Write the weights as a separate binary for this flash address.", "ADDR",
        record=lambda r: hex(r.weights_address or 0),
    )  # fmt: skip
    devices: tuple[str, ...] = option(
        (), kinds.DEVICES, "build", "Build the programs for this OpenCL device into the package. May be repeated.", "D",
        word="--device", keyword="device", record=lambda r: ",".join(r.devices),
    )  # fmt: skip
    precision: str | None = option(
        None, kinds.TEXT, "optimise", "Floats on an OpenCL device: fp32, mixed (stored in 16 bits) or fp16.", "P",
        record=lambda r: "" if r.precision == "fp32" else r.precision or "",
    )  # fmt: skip
    limit_kernel_time: float | None = option(
        None, kinds.NUMBER, "package", "Split OpenCL kernels that take longer than this, in ms.", "MS",
        record=lambda r: f"{r.limit_kernel_time:g}",
    )  # fmt: skip
    threads: int = option(
        1, kinds.WHOLE, "kernels", "Threads that compute a layer together. Default: 1.", "N", record=lambda r: str(r.threads)
    )
    cores: int = option(
        1, kinds.WHOLE, "kernels", "Cores of the board that compute a layer together. Default: 1.", "N",
        record=lambda r: str(r.cores),
    )  # fmt: skip
    variants: tuple[str, ...] = option(
        (), kinds.NAMES, "optimise", "Also compile for these processors, e.g. v3,v4; the library uses the best at run time.", "V",
        record=lambda r: ",".join(r.variants),
    )  # fmt: skip
    tuning: Path | None = option(
        None, kinds.FILE, "kernels", "Kernel times that `intaglio tune` has measured, or off. Default: those of this machine.", "F"
    )
    dims: Dims = option(
        {},
        kinds.DIMS,
        "import",
        "Set a symbolic dimension; a range, e.g. T=1..512 or H=32..512:32, leaves the size to the caller; S=T: the same size.",
        "NAME=N",
        word="--dim",
        record=lambda r: _pairs(r.dims),
    )
    shapes: Shapes = option(
        {}, kinds.SHAPES, "import", "Set the shape of an input.", "INPUT=1,3,224,224", word="--shape",
        record=lambda r: _shapes(r.shapes),
    )  # fmt: skip
    most: Mapping[str, int] = option(
        {}, kinds.COUNTS, "import", "Largest size of a tensor that depends on data; or least and largest: crop=16..96.", "TENSOR=N",
        word="--max", keyword="max", record=lambda r: _pairs(r.most),
    )  # fmt: skip
    lengths: Mapping[str, int] = option(
        {}, kinds.LENGTHS, "import", "Members of an input that is a sequence, entries of a map; 0: an optional is absent.",
        "INPUT=N", word="--length", record=lambda r: _pairs(r.lengths),
    )  # fmt: skip
    random: str = option(
        "0", kinds.TEXT, "import", "Seed of random operators; input: their numbers are inputs.", "SEED", record=lambda r: r.random
    )
    states: Mapping[str, str] = option(
        {}, kinds.STATES, "import", "Feed an input from an output of the previous step.", "IN=OUT", word="--state",
        record=lambda r: _pairs(r.states),
    )  # fmt: skip
    signature: str | None = option(
        None, kinds.TEXT, "import",
        "Signature of a TFLite file or SavedModel, or model of a `.task` bundle. Default: all, as entry points.", "S",
        record=lambda r: r.signature or "",
    )  # fmt: skip
    name: str | None = option(None, kinds.TEXT, "import", "Prefix of every C name. Default: the name of the file.")
    stop_after: str = option(
        "build", kinds.TEXT, "import", f"Last stage: {', '.join(STAGES[:-1])} or {STAGES[-1]}.", "STAGE", keyword=""
    )
    feed_rows: bool = option(
        False, kinds.FLAG, "memory", "Take the input picture row by row; it is never in RAM as a whole.", record=lambda _: "yes"
    )
    stream: int | None = option(
        None,
        kinds.WHOLE,
        "optimise",
        "Take one frame at a time along this axis of the input.",
        "AXIS",
        record=lambda r: str(r.stream),
    )
    accelerators: tuple[str, ...] = option(
        (), kinds.TEXTS, "optimise", "Accelerator that may compute parts; see `intaglio accelerators`.", "A",
        word="--accelerator", record=lambda r: ",".join(r.accelerators),
    )  # fmt: skip
    accelerator_only: frozenset[str] = option(
        frozenset[str](), kinds.OPERATORS, "optimise", "Assign exactly these operators to accelerators, whatever the cost.", "OPS",
        record=lambda r: ",".join(sorted(r.accelerator_only)),
    )  # fmt: skip
    export_plan: Path | None = option(
        None, kinds.FILE, "memory", "Write the memory plan (buffers, lifetimes, offsets) to a file.", "P.csv"
    )
    import_plan: Path | None = option(
        None, kinds.FILE, "memory", "Keep the offsets of this plan; plan other buffers around them.", "P.csv",
        recorded="plan", record=lambda _: "imported",
    )  # fmt: skip
    disabled: frozenset[str] = option(
        frozenset[str](), kinds.SET, "optimise", "Skip a pass. May be repeated.", "NAME", word="--disable-pass",
        record=lambda r: ",".join(sorted(r.disabled)),
    )  # fmt: skip
    dump_ir: Path | None = option(
        None, kinds.FILE, "optimise", "Write an IR file to this folder for each pass that changed something.", "DIR"
    )  # fmt: skip
    verify: bool = option(
        False, kinds.FLAG, "optimise", "Check that no pass and no kernel changes a result, by interpreting them. Slow.",
    )  # fmt: skip
    explain: bool = option(
        False, kinds.FLAG, "optimise", "Print work, traffic, estimated time and the choice of the kernel for each layer.",
        keyword="",
    )  # fmt: skip
    archive: bool = option(False, kinds.FLAG, "package", "Also write DIR.tar.gz.")
    archive_format: str = option("tar.gz", kinds.TEXT, "package", "Format of the archive: tar.gz or zip.", "F")
    force: bool = option(False, kinds.FLAG, "package", "Replace an existing package.")
    template: Path | None = option(
        None, kinds.FILE, "package", "Folder of an edited network template.", "DIR", record=lambda _: "edited"
    )
    cc: str | None = option(None, kinds.TEXT, "build", "C compiler: a command, or `zig`.", "CC")
    cflags: tuple[str, ...] = option(
        (), kinds.FLAGS, "build", "Additional flags for the C compiler.", "FLAGS", record=lambda r: " ".join(r.cflags)
    )
    no_source: bool = option(
        False, kinds.FLAG, "package", "Leave the trained model out of the package.", record=lambda _: "yes"
    )
    no_ir: bool = option(
        False, kinds.FLAG, "package", "Leave the IR out; `validate` needs the model or the IR.", record=lambda _: "yes"
    )
    sign: Path | None = option(
        None, kinds.FILE, "finish", "Sign the package with this private key; `intaglio verify` checks it.", "KEY.pem"
    )
    safety: tuple[str, ...] = option(
        (), kinds.NAMES, "package", "For use in the field: crc, canary, step, golden, slots, encrypted, steady.", "S",
        record=lambda r: ",".join(r.safety),
    )  # fmt: skip
    style: str = option(
        "plain", kinds.TEXT, "package", "plain, or misra: add MISRA.md, deviations from MISRA C:2012 with place and reason.", "S",
        record=lambda r: r.style,
    )  # fmt: skip
    library_only: bool = option(
        False, kinds.FLAG, "package", "Neither application nor test vectors: for calls from this process.", word=""
    )
    quantize: str | None = option(
        None, kinds.TEXT, "quantise", "Quantise a float model: int8, int16x8, int4 or palette (4-bit weights), "
        "or weights (weights only).", "Q",
    )  # fmt: skip
    calibrate: Path | Mapping[str, Array] | None = option(
        None, kinds.DATA, "quantise", "Real inputs to calibrate with: .npz, .npy, or a folder of these.", "DATA",
        record=lambda r: _file_name(str(r.calibrate)) if isinstance(r.calibrate, Path) else ARRAYS,
    )  # fmt: skip
    labels: Path | tuple[int, ...] | None = option(
        None, kinds.LABELS, "build", "Classes of the calibration data: measures the accuracy and keeps it in the package.", "L.npy",
        record=lambda r: _file_name(str(r.labels)) if isinstance(r.labels, Path) else ARRAYS,
    )  # fmt: skip
    ranges: str = option(
        "auto", kinds.TEXT, "quantise", "Ranges: auto (least error), minmax, percentile, entropy, mse.", "M"
    )
    max_error: float | None = option(
        None, kinds.NUMBER, "quantise", "Largest relative error of the outputs; keeps layers wide to reach it.", "E",
        record=lambda r: f"{r.max_error:g}",
    )  # fmt: skip
    keep_float: tuple[str, ...] = option(
        (), kinds.TEXTS, "quantise", "Layer to keep in floats: number, name or pattern.", "LAYER",
        record=lambda r: ",".join(r.keep_float),
    )  # fmt: skip
    keep_int16: tuple[str, ...] = option(
        (), kinds.TEXTS, "quantise", "Layer to keep in 16-bit activations.", "LAYER", record=lambda r: ",".join(r.keep_int16)
    )
    keep_int8: tuple[str, ...] = option(
        (), kinds.TEXTS, "quantise", "Layer to keep in 8-bit weights.", "LAYER", record=lambda r: ",".join(r.keep_int8)
    )
    equalize: bool = option(True, kinds.FLAG, "quantise", "Equalise the ranges of channels across layers.", word="")
    correct_bias: bool = option(True, kinds.FLAG, "quantise", "Correct biases by the mean error of each layer.", word="")
    integer_io: bool = option(
        False, kinds.FLAG, "quantise", "Inputs and outputs of the C API are integers.", record=lambda _: "yes"
    )
    sensitivity: bool = option(True, kinds.FLAG, "quantise", "Measure the error of each layer alone.", word="")
    weights: str = option(
        "mapped", kinds.TEXT, "kernels", "fp16: store in half precision. read: read layer by layer through a callback. "
        "ram: copy to RAM at start-up, what gains most first. staged: copy to RAM that is free before a layer runs. "
        "packed: store in 4 bits where they have few values, unpack before a layer runs.", "W",
        record=lambda r: "" if r.weights_place == "mapped" else r.weights_place,
    )  # fmt: skip
    constants: Mapping[str, Array] = field(default_factory=dict)

    @property
    def weights_read(self) -> bool:
        return "read" in self.weights.split(",")

    @property
    def weights_ram(self) -> bool:
        return "ram" in self.weights.split(",")

    @property
    def weights_staged(self) -> bool:
        return "staged" in self.weights.split(",")

    @property
    def weights_packed(self) -> bool:
        return "packed" in self.weights.split(",")

    @property
    def weights_place(self) -> str:
        """The first of these words; weights are mapped without them."""
        return next((word for word in ("read", "ram", "staged", "packed") if word in self.weights.split(",")), "mapped")

    @property
    def limited(self) -> bool:
        """RAM or flash has a limit."""
        return self.ram is not None or self.flash is not None or self.memory is not None or self.weights_read

    @property
    def weights_stored(self) -> str:
        """`fp16` of `fp16,read`; empty where they stay as they are."""
        return ",".join(word for word in self.weights.split(",") if word not in ("read", "mapped", "ram", "staged", "packed"))

    @property
    def scheme(self) -> str | None:
        return self.weights_stored or self.quantize

    @property
    def in_integers(self) -> bool:
        """Layers are to compute in integers, not only to store weights as such."""
        return self.scheme is not None and self.scheme not in WEIGHT_SCHEMES

    @property
    def calibrated(self) -> bool:
        """Calibration data or a setting of quantisation is given."""
        from intaglio.quantize.settings import Settings

        default = Settings()
        names = [f.name for f in fields(Settings) if f.name != "scheme"]
        settings = any(getattr(self, name) != getattr(default, name) for name in names)
        return self.calibrate is not None or self.labels is not None or settings

    def quantization(self) -> Quantization | None:
        from intaglio.quantize.settings import SCHEMES, Settings

        if self.weights_stored not in ("", "fp16"):
            hint = "values: `mapped` (the default), `fp16`, `read`, `ram`, `staged`, `packed`, `fp16,read`, `fp16,ram`"
            raise UserError("bad-option", f"unknown value {quoted(self.weights_stored)} of `--weights`", hint=hint)
        if self.scheme is None:
            return None
        if self.scheme in WEIGHT_SCHEMES:
            return Quantization(self.scheme)
        if self.scheme not in SCHEMES:
            hint = "use int8, int16x8, int4, palette or weights"
            raise UserError("bad-option", f"unknown quantisation {quoted(self.scheme)}", hint=hint)
        if self.max_error is not None and not self.max_error > 0:
            raise UserError("bad-option", f"`--max-error {self.max_error}` is not a relative error", hint="for example 0.05")
        settings = Settings(
            self.scheme, self.ranges, self.keep_float, self.keep_int16, self.keep_int8, self.max_error, self.equalize,
            self.correct_bias, self.integer_io, self.sensitivity,
        )  # fmt: skip
        if self.calibrate is None or isinstance(self.calibrate, Path):
            return Quantization(self.scheme, settings, self.calibrate)
        return Quantization(self.scheme, settings, data=self.calibrate)

    def deployment(self, target: Target) -> Deployment:
        from intaglio.quantize.settings import NARROW_SCHEMES
        from intaglio.targets.deployment import deployment_of

        narrow = self.scheme in NARROW_SCHEMES and self.weights_place == "mapped" and target.bare
        return deployment_of(
            target, board=self.board, arena=self.arena, io=self.io, weights_section=self.weights_section,
            weights_address=self.weights_address, ram=self.ram, flash=self.flash, optimize=self.optimize, memory=self.memory,
            weights="packed" if narrow else self.weights_place, precision=self.precision,
            limit_ms=self.limit_kernel_time, safety=self.safety, code=self.code,
        )  # fmt: skip

    def record(self) -> dict[str, str]:
        """What the manifest says about how the package was made: options that were given."""
        told = {o.recorded: o.record(self) for o in OPTIONS if o.record is not None and getattr(self, o.name) != o.default}
        if self.scheme is not None:
            told["quantize"] = self.scheme if self.ranges == "auto" else f"{self.scheme},{self.ranges}"
        return {key: value for key, value in told.items() if value}


def _options() -> tuple[Option, ...]:
    found = []
    for f in fields(Request):
        about = dict(f.metadata)
        if not about:
            continue
        name = f.name
        default = f.default if f.default_factory is not dict else {}
        word = f"--{name.replace('_', '-')}" if about["word"] is None else about["word"]
        keyword, recorded = about["keyword"], about["recorded"]
        found.append(
            Option(
                name, about["kind"], default, about["help"], about["stage"], about["metavar"], word,
                name if keyword is None else keyword, recorded or name, about["record"],
            )
        )  # fmt: skip
    return tuple(found)


OPTIONS: tuple[Option, ...] = _options()
