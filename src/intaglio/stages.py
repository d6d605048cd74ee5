"""What the pipeline is asked for, and what it tells on the way."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, assert_never

from intaglio.errors import UserError, quoted
from intaglio.ir.files import write_ir
from intaglio.ir.graph import Graph
from intaglio.ir.text import print_graph
from intaglio.kernels.choice import choices_of
from intaglio.kernels.opencl.lowering import lower_on_device
from intaglio.package.manifest import StreamInfo
from intaglio.passes.context import Context, Finding
from intaglio.passes.offload import Offloaded
from intaglio.passes.rows_input import Turned
from intaglio.passes.stream import Stream
from intaglio.targets.deployment import Deployment
from intaglio.targets.target import Target, host_target, opencl_target

if TYPE_CHECKING:
    from intaglio.ir.graph import Array
    from intaglio.kernels.choice import Explained
    from intaglio.quantize.settings import Account, Settings

WEIGHT_SCHEMES = ("weights", "fp16")  # weights are stored small, arithmetic stays in floats
STAGES = ("import", "optimise", "kernels", "memory", "package", "build")


@dataclass(frozen=True, slots=True)
class Quantization:
    """How a float model becomes integers: `settings` for int8 and int16x8, nothing but the name for `weights`."""

    scheme: str
    settings: Settings | None = None
    calibrate: Path | None = None
    data: Mapping[str, Array] | None = None  # instead of a file

    def told(self) -> str:
        return self.scheme if self.settings is None or self.settings.ranges == "auto" else f"{self.scheme},{self.settings.ranges}"


@dataclass(frozen=True, slots=True)
class Device:
    """Words about the device: a board, its limits, who owns the arena and where in- and outputs are, where weights are."""

    board: str | None = None
    ram: int | None = None
    flash: int | None = None
    arena: str = "static"
    weights_section: str | None = None
    weights_address: int | None = None
    io: str = "arena"
    optimize: str = "balanced"
    memory: str | None = None  # a file of memories
    weights: str = "mapped"  # or read
    precision: str | None = None  # of floats on an OpenCL device: fp32, mixed or fp16
    limit_ms: float | None = None  # kernels of an OpenCL device that take longer are split

    def told(self) -> dict[str, str]:
        return {
            "board": (self.board or "").replace("\\", "/").rsplit("/", 1)[-1],
            "ram": str(self.ram or ""),
            "flash": str(self.flash or ""),
            "arena": "" if self.arena == "static" else self.arena,
            "optimize": "" if self.optimize == "balanced" else self.optimize,
            "weights": "" if self.weights == "mapped" else self.weights,
            "memory": (self.memory or "").replace("\\", "/").rsplit("/", 1)[-1],
            "io": "" if self.io == "arena" else self.io,
            "weights_section": self.weights_section or "",
            "weights_address": "" if self.weights_address is None else hex(self.weights_address),
            "precision": "" if self.precision in (None, "fp32") else self.precision or "",
            "limit_kernel_time": "" if self.limit_ms is None else f"{self.limit_ms:g}",
        }


@dataclass(frozen=True, slots=True)
class Request:
    model: Path
    output: Path
    target: str | None = None  # None: what the board has, what the IR file says, or `host`
    device: Device = field(default_factory=Device)
    dims: dict[str, int] = field(default_factory=dict)
    shapes: dict[str, tuple[int, ...]] = field(default_factory=dict)
    states: dict[str, str] = field(default_factory=dict)
    name: str | None = None
    stop_after: str = "build"
    disabled: frozenset[str] = frozenset()
    dump_ir: Path | None = None
    archive: str | None = None
    force: bool = False
    template: Path | None = None
    cc: str | None = None
    cflags: tuple[str, ...] = ()
    constants: dict[str, Array] = field(default_factory=dict)  # inputs fixed to a value, so that shapes may follow from it
    quantize: Quantization | None = None
    export_plan: Path | None = None  # a CSV file of buffers and their offsets to write
    import_plan: Path | None = None  # one to keep: buffers that have an offset there are pinned
    feed_rows: bool = False  # rows of the input come one by one
    stream: int | None = None  # the axis of the input along which frames are pushed one by one
    accelerators: tuple[str, ...] = ()  # plug-ins that may compute parts of it
    accelerator_only: frozenset[str] = frozenset()  # operators that must go there, and no others
    library_only: bool = False  # neither application nor test vectors: for a call from this process
    devices: tuple[str, ...] = ()  # OpenCL devices of this machine whose programs go into the package

    def options(self) -> dict[str, str]:
        """What the manifest says about how the package was made."""
        told = {
            "dims": ",".join(f"{k}={v}" for k, v in sorted(self.dims.items())),
            "shapes": ";".join(f"{k}={','.join(map(str, v))}" for k, v in sorted(self.shapes.items())),
            "states": ",".join(f"{k}={v}" for k, v in sorted(self.states.items())),
            "disabled": ",".join(sorted(self.disabled)),
            "quantize": self.quantize.told() if self.quantize is not None else "",
            "plan": "imported" if self.import_plan else "",
            "feed_rows": "yes" if self.feed_rows else "",
            "stream": "" if self.stream is None else str(self.stream),
            "accelerators": ",".join(self.accelerators),
            "devices": ",".join(self.devices),
            "accelerator_only": ",".join(sorted(self.accelerator_only)),
            "template": "edited" if self.template else "",
            "cflags": " ".join(self.cflags),
            **self.device.told(),
        }
        return {key: value for key, value in told.items() if value}


class CostRow(Protocol):
    """One line of `--explain`: a node, its work, and what bounds its time."""

    @property
    def name(self) -> str: ...
    @property
    def op(self) -> str: ...
    @property
    def macs(self) -> int: ...
    @property
    def bytes_moved(self) -> int: ...
    @property
    def estimate_us(self) -> float: ...
    @property
    def bound(self) -> str: ...


@dataclass(frozen=True, slots=True)
class Watch:
    """Who wants to hear: stages as they start, notes of the front end, files being compiled, rows of `--explain`,
    the account of a quantisation."""

    stage: Callable[[str], None] = lambda _: None
    note: Callable[[str], None] = lambda _: None
    progress: Callable[[str, int, int], None] | None = None
    explain: Callable[[list[CostRow]], None] | None = None
    chosen: Callable[[list[Explained]], None] | None = None  # the kernel of each layer, and why
    account: Callable[[Account], None] = lambda _: None
    offloaded: Callable[[Offloaded], None] = lambda _: None


def check_device(request: Request, target: Target) -> None:
    """What does not go together with a device that is not the processor, told before a model is read."""
    if not target.device:
        if request.devices:
            hint = "`--target opencl`; `--board` names a microcontroller's board"
            raise UserError("bad-option", f"`--device` is for OpenCL devices, and `{target.name}` has none", hint=hint)
        return
    words = {
        "--stream": request.stream is not None,
        "--feed-rows": request.feed_rows,
        "--accelerator": bool(request.accelerators),
    }
    for word in (word for word, given in words.items() if given):
        hint = f"leave `{word}` out, or compile for the processor alone"
        raise UserError("bad-option", f"`{word}` does not go together with an OpenCL device (`{target.name}`)", hint=hint)
    if request.devices and request.stop_after != "build":
        raise UserError("bad-option", "`--device` takes a package that is built", hint="leave `--device` or `--stop-after` out")
    if request.devices and target.arch != opencl_target(host_target()).arch:
        what = f"`--device` means a device of this machine, where a package for `{target.name}` does not run"
        hint = "compile without it; on the device, `bin/NAME --warm --cache NAME.clbin` fills the cache"
        raise UserError("bad-option", what, hint=hint)


def stage_index(stage: str) -> int:
    if stage not in STAGES:
        known = ", ".join(f"`{s}`" for s in STAGES)
        raise UserError("unknown-stage", f"unknown stage {quoted(stage)}", hint=f"stages are {known}")
    return STAGES.index(stage)


class Findings:
    """What passes report: notes and regions go to the user at once, the rest is kept for the manifest."""

    def __init__(self, watch: Watch) -> None:
        self._watch = watch
        self.stream: StreamInfo | None = None
        self.turned = False

    def __call__(self, finding: Finding) -> None:
        match finding:
            case str():
                self._watch.note(finding)
            case Offloaded():
                self._watch.offloaded(finding)
            case Stream():
                self.stream = StreamInfo(finding.axis, finding.hop, finding.window, finding.outputs, bool(finding.goes_on))
            case Turned():
                self.turned = True
            case _:
                assert_never(finding)


def context_of(
    request: Request, target: Target, deployment: Deployment, format: str, graph: Graph, findings: Findings
) -> Context:  # fmt: skip
    """What the passes have to know of the request."""
    from intaglio.targets.plugins import find_accelerator

    narrow = request.quantize.scheme if request.quantize is not None and request.quantize.settings is None else ""
    clock = deployment.board.clock_mhz if deployment.board is not None else None
    return Context(
        target,
        disabled=request.disabled,
        source=format,
        narrow=narrow,
        output_names=tuple(v.name for v in graph.outputs) if request.quantize is not None else (),
        accelerators=tuple(find_accelerator(name) for name in dict.fromkeys(request.accelerators)),
        accelerator_only=request.accelerator_only,
        clock_mhz=clock or None,
        stream=request.stream,
        feed_rows=request.feed_rows,
        weights_read=deployment.weights_read or graph.weights == "read",
        takes_halves=lambda node, target: lower_on_device(node, target, choices_of(node.op)) is not None,
        report=findings,
        observe=_Dumper(request),
    )


class _Dumper:
    """Writes one IR file per pass, numbered in order."""

    def __init__(self, request: Request) -> None:
        self._folder = request.dump_ir
        self._count = 0
        self._before = ""

    def __call__(self, name: str, graph: Graph) -> None:
        """Passes run again and again until nothing changes: one that changed nothing leaves no file."""
        self._count += 1
        if self._folder is not None and (text := print_graph(graph)) != self._before:
            self._before = text
            write_ir(graph, self._folder / f"{self._count:02d}-{name}.ig")
