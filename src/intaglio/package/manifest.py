"""manifest.json: what a package is, for people and for tools. Stable order, no times, no paths of this machine."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from intaglio.errors import UserError, quoted
from intaglio.ir.names import is_clean
from intaglio.ir.placement import Address, Region
from intaglio.ir.sizes import largest, value_of
from intaglio.ir.types import DType, Layout, Quant, TensorType
from intaglio.package.ownership import MANIFEST, SIGNATURE, file_digest, file_digests
from intaglio.package.size_info import SizeInfo, depends, size_of_row
from intaglio.package.stream_info import StreamInfo, stream_of_row
from intaglio.targets.board import Board, board_of_tables, find_board, generic_board
from intaglio.targets.target import HOSTS, Target, find_target, optimized, precise, threaded

FORMAT = 1
COMBINED_FORMAT = "combined 1"  # of what `intaglio link` writes
ENTRIES_FORMAT = "entries 1"  # of a package with several entry points


@dataclass(frozen=True, slots=True)
class QuantInfo:
    scale: tuple[float, ...]
    zero_point: tuple[int, ...]
    axis: int | None


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """`name` as in the model, `field` as in C."""

    name: str
    field: str
    dtype: str
    shape: tuple[int, ...]
    layout: str
    quant: QuantInfo | None
    bytes: int
    arena_offset: int | None = None  # where the arena has room for it
    arena_region: str = "arena"
    turned: bool = False  # rows of pixels, where the model has planes: [n, h, w, c] instead of [n, c, h, w]
    rounded: str = ""  # the narrower type of floats that a layer before an output computes in
    dims: tuple[str, ...] = ()  # formulas of the caller's sizes, where there are any; `shape` is the largest then

    def at(self, sizes: Mapping[str, int], found: Mapping[str, int]) -> TensorInfo:
        """The tensor for these sizes of the caller. Where it depends on sizes that are found in data, it is the largest, and keeps
        its formulas."""
        if not self.dims:
            return self
        shape = tuple(value_of(text, {**found, **sizes}) for text in self.dims)
        left = self.dims if depends(self.dims, found) else ()
        return replace(self, shape=shape, bytes=TensorType(DType(self.dtype), shape).bytes, dims=left)

    @property
    def shape_text(self) -> str:
        """For people: `1,T<=512,64`."""
        if not self.dims:
            return ",".join(map(str, self.shape))
        return ",".join(t if t.isdigit() else f"{t}<={n}" for t, n in zip(self.dims, self.shape, strict=True))

    @property
    def text(self) -> bool:
        """Strings, with their bytes along the last axis."""
        return self.layout == Layout.TEXT.value

    @property
    def shape_in_model(self) -> tuple[int, ...]:
        n, *rest = self.shape
        return (n, rest[-1], *rest[:-1]) if self.turned else self.shape

    @property
    def arena_address(self) -> Address | None:
        return None if self.arena_offset is None else Address(Region.of(self.arena_region), self.arena_offset)

    @property
    def type(self) -> TensorType:
        return TensorType(DType(self.dtype), self.shape, Layout(self.layout))


@dataclass(frozen=True, slots=True)
class StateInfo:
    """Input `input` is fed from output `output` of the step before; names as in the model."""

    input: str
    output: str
    dtype: str
    shape: tuple[int, ...]
    fill: float = 0  # every element before the first step


@dataclass(frozen=True, slots=True)
class PlaceInfo:
    """A buffer in memory, alive from the layer that writes it to the last that reads it."""

    value: str
    region: str
    offset: int
    bytes: int
    first_layer: int
    last_layer: int
    row_bytes: int = 0  # where it is not in one piece: rows of so many bytes
    stride_bytes: int = 0  # from row to row


@dataclass(frozen=True, slots=True)
class LayerInfo:
    index: int
    name: str
    op: str
    kernel: str
    macs: int
    source: str
    outputs: tuple[TensorInfo, ...]
    weight_bytes: int = 0  # of the constants that it reads
    guarded: bool = False  # runs only where a condition in the data holds
    memory: tuple[PlaceInfo, ...] = ()
    accelerator: str = ""  # that computes it, if not the core
    parts: int = 1  # that threads compute at the same time
    function: str = ""  # in C


@dataclass(frozen=True, slots=True)
class PassInfo:
    """What a pass has changed: operators that it took away and put in, by name and number."""

    name: str
    nodes: int  # after it
    removed: dict[str, int]
    added: dict[str, int]
    layers: tuple[str, ...]  # some that are new or have another operator


@dataclass(frozen=True, slots=True)
class ArenaInfo:
    """Working memory in one of the device's memories: `arena`, or `arena:MEMORY`."""

    region: str
    bytes: int
    memory: str = ""  # "": where variables are


@dataclass(frozen=True, slots=True)
class MemoryInfo:
    arena_bytes: int
    lower_bound_bytes: int
    alignment: int
    state_bytes: int
    weight_bytes: int
    optimal: bool = False  # proven: no plan of the same buffers has a smaller arena
    arenas: tuple[ArenaInfo, ...] = ()  # by memory, where they are not simply with the variables
    weights_apart: tuple[tuple[str, int], ...] = ()  # of the weights, bytes in other memories than that of the code
    weights_ram: int = 0  # of the weights, bytes that start-up code copies to RAM
    fed_rows: int = 0  # rows of the input that come one by one; 0: it is there as a whole

    def arena_sizes(self) -> dict[str, int]:
        """Bytes by region."""
        return {a.region: a.bytes for a in self.arenas} or {"arena": self.arena_bytes}


@dataclass(frozen=True, slots=True)
class FirmwareInfo:
    """What a device needs, in bytes. RAM = arena + io + static + stack + weights that are copied to it (`MemoryInfo`) + code that
    is; flash = code + weights + data.

    `code` is machine code and what it reads but the weights, `data` the first values of variables, `static` variables other
    than the arena and the buffers of inputs and outputs (`io`). The self-test is counted by itself. `stack` is the deepest
    chain of calls of one inference; None where that has no bound."""

    board: str  # "": none in particular
    elf: str
    code_bytes: int
    weight_bytes: int
    data_bytes: int
    flash_bytes: int
    static_bytes: int
    io_bytes: int
    stack_bytes: int | None
    ram_bytes: int
    selftest_bytes: int
    weights_file: str | None = None  # a binary of its own, to be written to the address
    weights_address: int | None = None
    own_board: Board | None = None  # of the user's file
    code_ram_bytes: int = 0  # of the code, copied to RAM at start-up


@dataclass(frozen=True, slots=True)
class ModelInfo:
    file: str
    sha256: str
    source: str | None  # the model inside the package


@dataclass(frozen=True, slots=True)
class ProgramInfo:
    """What a driver gets to build: one entry of the program cache."""

    number: int
    kind: str  # of the device, gpu or cpu: what it starts with; `tuned`: what it has after tuning
    source: str  # SHA-256
    options: str  # before those that depend on the device


@dataclass(frozen=True, slots=True)
class OpenclInfo:
    """Which layers are on the device, and what that takes."""

    precision: str
    pool_bytes: int
    mirror_bytes: int  # on the host, for layers that are there
    device_layers: int
    host_layers: tuple[int, ...]
    device_macs: int
    macs: int
    transfers: int  # a run, between host and device, beside inputs and outputs
    transferred_bytes: int
    limit_ms: float
    programs: tuple[ProgramInfo, ...]


@dataclass(frozen=True, slots=True)
class VariantInfo:
    """The network's code for one kind of processor: its target, the prefix of its C names, its folder below `src/`."""

    target: str
    prefix: str
    folder: str
    arena_bytes: int
    weight_bytes: int  # that it reads
    layers: tuple[LayerInfo, ...]


@dataclass(frozen=True, slots=True)
class Manifest:
    name: str
    target: str
    intaglio: str
    model: ModelInfo
    inputs: tuple[TensorInfo, ...]
    outputs: tuple[TensorInfo, ...]
    states: tuple[StateInfo, ...]
    memory: MemoryInfo
    layers: tuple[LayerInfo, ...]
    options: dict[str, str] = field(default_factory=dict)
    tools: dict[str, str] = field(default_factory=dict)
    files: dict[str, str] = field(default_factory=dict)
    firmware: FirmwareInfo | None = None
    stream: StreamInfo | None = None
    opencl: OpenclInfo | None = None
    build: str = ""  # of firmware: SHA-256 of its kernels, tensors and weights, which it says of itself on a serial line
    request: str = ""  # SHA-256 of what was asked for and of Intaglio, to tell whether a compile has something to do
    variants: tuple[VariantInfo, ...] = ()  # best first; the last is that of `target`, whose layers stand above
    passes: tuple[PassInfo, ...] = ()  # that changed something, in order
    sizes: tuple[SizeInfo, ...] = ()
    shared: str = ""  # of an entry point: where the C is that it has in common with others
    format: int = FORMAT

    @property
    def given(self) -> tuple[SizeInfo, ...]:
        """Sizes that the caller gives."""
        return tuple(size for size in self.sizes if not size.found)

    @property
    def found(self) -> dict[str, int]:
        """Sizes that follow from data, and the largest that they get."""
        return {size.name: size.high for size in self.sizes if size.found}

    @property
    def accelerators(self) -> tuple[str, ...]:
        """In order of first use."""
        return tuple(dict.fromkeys(layer.accelerator for layer in self.layers if layer.accelerator))


def tensor_info(name: str, field: str, type: TensorType, rounded: str = "") -> TensorInfo:
    quant = type.quant
    told = None if quant is None else QuantInfo(quant.scale, quant.zero_point, quant.axis)
    dims = tuple(str(n) for n in type.shape) if type.moves else ()
    shape, layout = largest(type.shape), type.layout.value
    return TensorInfo(name, field, type.dtype.value, shape, layout, told, type.bytes, rounded=rounded, dims=dims)


def target_of(manifest: Manifest) -> Target:
    """What the package was compiled for, with the wish it was compiled with."""
    target = optimized(find_target(manifest.target), manifest.options.get("optimize", "balanced"))
    threads, cores = (manifest.options.get(word, "1") for word in ("threads", "cores"))
    precise_target = precise(target, manifest.options.get("precision"))
    return threaded(precise_target, *(int(number) if number.isdigit() else 0 for number in (threads, cores)))


def write_manifest(manifest: Manifest, folder: Path, files: dict[str, str] | None = None) -> None:
    """With the digest of every file that is there now: `files`, where that is known."""
    complete = replace(manifest, files=digests(folder) if files is None else dict(sorted(files.items())))
    (folder / MANIFEST).write_text(json.dumps(asdict(complete), indent=1) + "\n", encoding="utf-8")


def write_digest(manifest: Manifest, folder: Path, name: str) -> None:
    """After that file alone was changed on purpose: what is said of the others stays."""
    files = {**manifest.files, name: file_digest(folder / name)}
    complete = replace(manifest, files=dict(sorted(files.items())))
    (folder / MANIFEST).write_text(json.dumps(asdict(complete), indent=1) + "\n", encoding="utf-8")


def digests(folder: Path) -> dict[str, str]:
    own = (folder / MANIFEST, folder / SIGNATURE)
    files = sorted(p for p in folder.rglob("*") if p.is_file() and p not in own)
    return {p.relative_to(folder).as_posix(): digest for p, digest in zip(files, file_digests(files), strict=True)}


def read_manifest(folder: Path) -> Manifest:
    shown = quoted(str(folder), 200)
    hint = "`intaglio compile MODEL -o DIR` writes a package"
    path = folder / MANIFEST
    if not path.is_file():
        raise UserError("not-a-package", f"{shown} is not a package: it has no `{MANIFEST}`", hint=hint)
    try:
        table = json.loads(path.read_text(encoding="utf-8"))
        if table["format"] == COMBINED_FORMAT:
            made_of = ", ".join(quoted(str(name)) for name in table["models"])
            what = f"{shown} is firmware that `intaglio link` made of {made_of}"
            raise UserError("not-a-package", what, hint="run, validate or profile these packages")
        if table["format"] == ENTRIES_FORMAT:
            names = ", ".join(quoted(str(entry["name"])) for entry in table["entries"])
            what = f"{shown} has several entry points: {names}"
            one = quoted(str(folder / "entries" / str(table["entries"][0]["name"])), 200)
            hint = f"use the package of one of them, such as {one}; `run`, `validate` and `profile` have `--entry` too"
            raise UserError("which-entry", what, hint=hint)
        if table["format"] != FORMAT:
            reason = f"{shown} has manifest format {table['format']!r}; this version of Intaglio reads {FORMAT}"
            raise UserError("not-a-package", reason, hint="compile the model again")
        return _checked(_manifest(table))
    except (ValueError, KeyError, TypeError, AssertionError, RecursionError, OSError) as error:
        raise UserError("not-a-package", f"`{MANIFEST}` in {shown} is damaged", where=str(path), hint=hint) from error


def _checked(manifest: Manifest) -> Manifest:
    """A number that was edited alone would make the library write outside of our arrays."""
    m = manifest.memory
    sizes = (m.arena_bytes, m.lower_bound_bytes, m.state_bytes, m.weight_bytes, m.alignment)
    assert all(type(n) is int and n >= 0 for n in sizes)
    assert m.alignment in (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
    rooms = m.arena_sizes()
    assert m.state_bytes <= rooms["arena"]
    assert all(type(n) is int and n >= 0 for n in rooms.values())
    assert len(rooms) == max(1, len(m.arenas)) and all(is_clean(a.memory) for a in m.arenas)
    assert is_clean(manifest.name)
    for info in (*manifest.inputs, *manifest.outputs):
        assert all(n >= 0 for n in info.shape)
        assert info.bytes == info.type.bytes
        assert not info.dims or info.at({size.name: size.high for size in manifest.sizes}, {}).bytes <= info.bytes
        assert info.arena_offset is None or 0 <= info.arena_offset <= rooms[info.arena_region] - info.bytes
    for path in (manifest.model.source, manifest.firmware and manifest.firmware.weights_file):
        assert path is None or (isinstance(path, str) and not path.startswith("/") and ".." not in path.split("/"))
    return manifest


def _manifest(table: dict[str, object]) -> Manifest:
    """Rebuild the dataclasses; whatever does not fit raises and is reported by the caller."""
    t = table
    model, memory = t["model"], t["memory"]
    inputs, outputs, states, layers = t["inputs"], t["outputs"], t["states"], t["layers"]
    options, tools, files = t["options"], t["tools"], t["files"]
    assert isinstance(model, dict)
    assert isinstance(memory, dict)
    assert isinstance(layers, list)
    assert isinstance(inputs, list)
    assert isinstance(outputs, list)
    assert isinstance(states, list)
    assert isinstance(options, dict)
    assert isinstance(tools, dict)
    assert isinstance(files, dict)
    return Manifest(
        name=str(t["name"]),
        target=str(t["target"]),
        intaglio=str(t["intaglio"]),
        model=ModelInfo(**model),
        inputs=tuple(_tensor(row) for row in inputs),
        outputs=tuple(_tensor(row) for row in outputs),
        states=tuple(StateInfo(**{**row, "shape": tuple(row["shape"])}) for row in states),
        memory=_memory(memory),
        layers=tuple(_layer(row) for row in layers),
        options=options,
        tools=tools,
        files=files,
        firmware=None if (firmware := t.get("firmware")) is None else _firmware(_object(firmware)),
        stream=None if (stream := t.get("stream")) is None else stream_of_row(_object(stream)),
        opencl=None if (opencl := t.get("opencl")) is None else _opencl(_object(opencl)),
        build=str(t.get("build", "")),
        request=str(t.get("request", "")),
        shared="../../src" if t.get("shared") else "",
        variants=tuple(_variant(_object(row)) for row in _list(t.get("variants", []))),
        passes=tuple(_pass(_object(row)) for row in _list(t.get("passes", []))),
        sizes=tuple(size_of_row(_object(row)) for row in _list(t.get("sizes", []))),
    )


def _pass(row: dict[str, Any]) -> PassInfo:
    return PassInfo(**{**row, "layers": tuple(row["layers"])})


def _variant(row: dict[str, Any]) -> VariantInfo:
    info = VariantInfo(**{**row, "layers": tuple(_layer(layer) for layer in row["layers"])})
    assert info.target in HOSTS and is_clean(info.prefix) and "/" not in info.folder and ".." not in info.folder
    return info


def _opencl(row: dict[str, Any]) -> OpenclInfo:
    programs = tuple(ProgramInfo(**p) for p in row["programs"])
    return OpenclInfo(**{**row, "host_layers": tuple(row["host_layers"]), "programs": programs})


def _memory(row: dict[str, Any]) -> MemoryInfo:
    apart = tuple((str(memory), int(size)) for memory, size in row.get("weights_apart", ()))
    return MemoryInfo(**{**row, "arenas": tuple(ArenaInfo(**a) for a in row.get("arenas", ())), "weights_apart": apart})


def _firmware(row: dict[str, Any]) -> FirmwareInfo:
    board = row.get("own_board")
    return FirmwareInfo(**{**row, "own_board": None if board is None else _own_board(board)})


def _own_board(row: dict[str, Any]) -> Board:
    """As it is written: the fields of a board, with the names that they have in Python."""
    tables = {"memories": "memory", "caches": "cache"}
    return board_of_tables(
        row["name"], {tables.get(key, key): value for key, value in row.items() if key != "name"}, addresses=False
    )


def board_of(manifest: Manifest, target: Target) -> Board:
    """The board that a package was made for; one of no name, where it was made for a core alone."""
    info = manifest.firmware
    if info is not None and info.own_board is not None:
        return info.own_board
    if info is not None and info.board:
        return find_board(info.board)
    return generic_board(target.name, riscv=target.arch.startswith("riscv"))


def _list(value: object) -> list[object]:
    assert isinstance(value, list)
    return value


def _object(value: object) -> dict[str, Any]:
    assert isinstance(value, dict)
    return value


def _tensor(row: dict[str, object]) -> TensorInfo:
    shape, quant = row["shape"], row["quant"]
    assert isinstance(shape, list)
    told = None
    if isinstance(quant, dict):
        told = QuantInfo(tuple(quant["scale"]), tuple(quant["zero_point"]), quant["axis"])
        Quant(told.scale, told.zero_point, told.axis)
    size, slot = row["bytes"], row.get("arena_offset")
    assert isinstance(size, int)
    assert slot is None or isinstance(slot, int)
    name, field_name, dtype, layout = (str(row[key]) for key in ("name", "field", "dtype", "layout"))
    region = str(row.get("arena_region", "arena"))
    turned, dims = bool(row.get("turned", False)), _list(row.get("dims", []))
    assert len(dims) in (0, len(shape)) and all(isinstance(text, str) and len(text) <= 200 for text in dims)
    rounded = str(row.get("rounded", ""))
    assert not rounded or DType(rounded).is_float
    numbers, formulas = tuple(int(n) for n in shape), tuple(map(str, dims))
    return TensorInfo(name, field_name, DType(dtype).value, numbers, layout, told, size, slot, region, turned, rounded, formulas)


def _layer(row: dict[str, object]) -> LayerInfo:
    outputs, memory, index, macs, weights = row["outputs"], row["memory"], row["index"], row["macs"], row.get("weight_bytes", 0)
    parts = row.get("parts", 1)
    assert isinstance(parts, int)
    assert isinstance(outputs, list)
    assert isinstance(memory, list)
    assert isinstance(index, int)
    assert isinstance(macs, int)
    assert isinstance(weights, int)
    return LayerInfo(
        index=index,
        accelerator=str(row.get("accelerator", "")),
        parts=parts,
        function=str(row.get("function", "")),
        name=str(row["name"]),
        op=str(row["op"]),
        kernel=str(row["kernel"]),
        macs=macs,
        source=str(row["source"]),
        outputs=tuple(_tensor(o) for o in outputs),
        weight_bytes=weights,
        guarded=bool(row["guarded"]),
        memory=tuple(PlaceInfo(**m) for m in memory),
    )
