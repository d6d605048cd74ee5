"""What a network template gets to see of a program: names, numbers and finished C text, nothing that computes."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Set
from dataclasses import dataclass, fields, replace

from intaglio.fitting.weights import Weights
from intaglio.ir.graph import Graph, Value
from intaglio.ir.placement import ARENA, STATE, Address, Region
from intaglio.ir.sizes import Size, largest, most, names_of
from intaglio.ir.spans import Span
from intaglio.ir.types import Layout, TensorType
from intaglio.kernels.loop import SIZE
from intaglio.kernels.program import Layer, Program
from intaglio.package.accelerators import Around, accelerator_of, accelerators_of, around
from intaglio.package.arenas import ArenaView, arena_views, parameter
from intaglio.package.c_text import C_TYPES, NPY_DESCR, comment, identifier, kconfig, macro, unique_macros
from intaglio.package.calls import Call, Copy, Fill, Stretch, blocks_of, output_copies, state_copies, state_fills
from intaglio.package.golden import golden_of, golden_variables
from intaglio.package.pointers import c_size, output_fields
from intaglio.package.reads import Reads
from intaglio.package.safety import NONE, Safety, safety_of
from intaglio.package.striped_calls import FeedView, stripe_views
from intaglio.package.tolerance import DEVICE_TOLERANCE, narrowest, share
from intaglio.package.vectors import OTHER_SIZES
from intaglio.targets.board import Board
from intaglio.targets.deployment import Deployment
from intaglio.targets.target import LEVELS, Target


@dataclass(frozen=True, slots=True)
class TensorView:
    """An input or output of the C API."""

    field: str
    macro: str
    c_type: str
    dtype: str
    npy_type: str  # enumerator in the application
    descr: str
    shape: tuple[int, ...]
    shape_text: str
    elements: int
    storage: int  # elements of a C array that holds it; C has no empty arrays
    bytes: int
    about: str  # comment-safe: type, name in the model
    tolerance: float
    slot: int | None = None  # where the arena has room for it
    arena: str = ""  # in which one, where there are several: the field of the struct
    dims: tuple[str, ...] = ()  # C expressions, where they depend on sizes of the caller; `shape` is the largest
    names: tuple[str, ...] = ()  # of the sizes that dimensions simply are, "" for the others
    found: bool = False  # they depend on sizes that follow from data
    shape_field: str = ""  # of an output: where a run writes its shape


@dataclass(frozen=True, slots=True)
class SizeView:
    """A size that the caller gives: a field of the inputs."""

    name: str
    field: str
    macro: str
    span: Span

    @property
    def low(self) -> int:
        return self.span.low

    @property
    def high(self) -> int:
        return self.span.high

    @property
    def told(self) -> str:
        """`1 to 512`, for comments."""
        return self.span.told().removeprefix("from ")

    def outside(self, size: str) -> str:
        """In C: is a size that the caller gives none of these?"""
        off = f"{size} % {self.span.step} != {self.low % self.span.step}"
        return f"{size} < {self.low} || {size} > {self.high}" + (f" || {off}" if self.span.step != 1 else "")


@dataclass(frozen=True, slots=True)
class Place:
    macro: str
    offset: int
    about: str


@dataclass(frozen=True, slots=True)
class LayerView:
    index: int
    name: str
    op: str
    kernel: str
    macs: int
    source: str


@dataclass(frozen=True, slots=True)
class ModelView:
    """One network of a firmware, as its application sees it."""

    name: str
    NAME: str
    inputs: tuple[TensorView, ...]
    outputs: tuple[TensorView, ...]
    sizes: tuple[SizeView, ...]
    static_arena: bool
    arena_bytes: int
    alignment: int
    state_bytes: int
    weights_section: str
    weights_address: int | None
    arenas: tuple[ArenaView, ...]
    weights_apart: tuple[tuple[str, int], ...]
    weights_window: int | None  # where the firmware finds weights that are read
    feed: FeedView | None
    checked: bool = False  # NAME_check is there
    golden: bool = False  # NAME_golden is there
    slotted: bool = False  # the weights that are linked are those to start with
    steady: bool = False  # floats without an FPU take the same time for zeros

    @property
    def several(self) -> bool:
        """Arenas, so that there is a struct of them."""
        return len(self.arenas) > 1


@dataclass(frozen=True, slots=True)
class VariantView:
    """The network's code for one kind of processor. `needs`: bits, by word of what a processor can do; none: it runs on all."""

    name: str
    short: str
    prefix: str
    about: str
    flags: tuple[str, ...]
    needs: tuple[int, ...]
    layers: tuple[LayerView, ...]


@dataclass(frozen=True, slots=True)
class Project:
    name: str
    NAME: str
    version: str
    digest: str
    build: str  # of firmware: what its code and weights are
    target: str
    target_about: str
    flags: tuple[str, ...]
    level: str  # of optimisation, for firmware
    arch: str
    triple: str  # of clang, for cores without an operating system
    fpu: str
    board: Board | None
    flash_room: int | None  # bytes that the linker may use, from the start of the board's memories
    ram_room: int | None
    inputs: tuple[TensorView, ...]
    outputs: tuple[TensorView, ...]
    sizes: tuple[SizeView, ...]
    found: tuple[str, ...]  # sizes that follow from data: variables of a run
    static_arena: bool
    arena_bytes: int
    arenas: tuple[ArenaView, ...]
    alignment: int
    state_bytes: int  # at the start of the arena
    feed: FeedView | None  # where rows of the input come one by one
    weight_bytes: int
    weights_as_text: bool
    weights_section: str  # "": where read-only data goes
    weights_address: int | None  # of a binary of their own
    weights_apart: tuple[tuple[str, int], ...]  # bytes in other memories than that of the code
    weights_read: bool  # they are not mapped
    weights_window: int | None
    places: tuple[Place, ...]
    blocks: tuple[Stretch, ...]
    around: Around
    accelerators: tuple[str, ...]
    copies: tuple[Copy, ...]
    state_copies: tuple[Copy, ...]
    state_fills: tuple[Fill, ...]
    layers: tuple[LayerView, ...]
    macs: int
    threads: int
    code_ram: bool = False  # start-up code copies kernels to RAM
    cores: int = 1  # of a board, that compute layers together
    safety: Safety = NONE
    network: str = ""  # of a variant: what the package is called
    variants: tuple[VariantView, ...] = ()  # of the package, best first
    shared_arena: str = ""  # of one of several entry points: the package whose static arena it uses
    shared_weights: str = ""  # and whose weights
    bounds: tuple[str, ...] = ()  # of sizes, in words
    words: tuple[str, ...] = ()  # what tells them apart: words that say what the processor can do

    @property
    def divided(self) -> tuple[Call, ...]:
        """The layers that several threads compute."""
        return tuple(call for block in self.blocks for call in block.calls if call.task)

    @property
    def fallible(self) -> bool:
        if self.accelerators and any("    error = " in line for block in self.blocks for line in block.before):
            return True
        return any(call.fallible for block in self.blocks for call in block.calls) or any(
            b.stripe and b.stripe.fallible for b in self.blocks
        )

    @property
    def checked(self) -> bool:
        return self.safety.crc

    @property
    def golden(self) -> bool:
        return self.safety.golden

    @property
    def slotted(self) -> bool:
        return self.safety.slots

    @property
    def steady(self) -> bool:
        return self.safety.steady

    @property
    def models(self) -> tuple[ModelView, ...]:
        """Firmware may have several; that of a package has one."""
        return (ModelView(**{f.name: getattr(self, f.name) for f in fields(ModelView)}),)

    def variables(self) -> dict[str, object]:
        """What a template can name."""
        own = {f.name: getattr(self, f.name) for f in fields(self)}
        several = len(self.arenas) > 1
        arena = {
            "several": several,
            "arena_parameter": parameter(self.arenas, self.name),
            "arena_word": "arenas" if several else "arena",
        }
        esp_idf = self.arch.startswith("riscv32") or self.target == "generic"  # plain C runs on the Xtensa ones too
        beside = {"fallible": self.fallible, "divided": self.divided, "models": self.models, "kconfig": kconfig(self.name)}
        beside["more_vectors"] = len(OTHER_SIZES) if self.sizes else 0
        return {**own, **arena, **beside, "esp_idf": esp_idf}


def size_views(graph: Graph) -> tuple[SizeView, ...]:
    ranges = graph.given_ranges()
    macros = unique_macros(list(ranges))
    return tuple(
        SizeView(name, identifier(SIZE + name), macro, span)
        for (name, span), macro in zip(ranges.items(), macros, strict=True)
    )


def _bounds(graph: Graph) -> tuple[str, ...]:
    """Of all sizes, for people: those that the caller gives, and those that data has."""
    ranges = {} if graph.bounds is None else graph.bounds.ranges
    data = dict.fromkeys(graph.counts, " (by data)")
    return tuple(f"{identifier(name)} {span}{data.get(name, '')}" for name, span in ranges.items())


def api_inputs(graph: Graph) -> list[Value]:
    """The inputs that a caller gives; states are fed by the step before."""
    fed = {state.input for state in graph.states}
    return [value for value in graph.inputs if value not in fed]


def state_bytes(program: Program) -> int:
    states = [s.input for s in program.graph.states]
    ends = [at.offset + value.type.bytes for value in states if (at := program.placement.of(value)) is not None]
    return max(ends, default=0)


def project_of(
    program: Program, target: Target, deployment: Deployment, weights: Weights, *, version: str, digest: str, build: str = ""
) -> Project:
    graph = program.graph
    name = identifier(graph.name)
    main = deployment.main("ram")
    arenas = arena_views(program.arenas, program.arena_bytes, main.name if main is not None else "", name)
    fields = {a.region: a.field for a in arenas} if len(arenas) > 1 else {}
    beside = around(program, target)
    blocks = tuple(blocks_of(program, beside))
    if "canary" in deployment.safety:  # each step of a stripe may find that it overran
        blocks = tuple(b if b.stripe is None else replace(b, stripe=replace(b.stripe, fallible=True)) for b in blocks)
    copies = (tuple(output_copies(program)), tuple(state_copies(program)))
    feed = next((view.fed for view in stripe_views(program).values() if view.fed is not None), None)
    return Project(
        name=name,
        NAME=name.upper(),
        version=version,
        digest=digest,
        build=build,
        target=target.name,
        target_about=comment(target.description),
        flags=target.flags,
        level=LEVELS[target.optimize],
        arch=target.arch,
        triple=target.triple,
        fpu=target.fpu,
        board=deployment.board,
        flash_room=deployment.code_room(weights.size_bytes),
        ram_room=deployment.ram_bytes,
        inputs=_inputs(program, fields),
        outputs=_tolerant(_outputs(program, fields), target),
        sizes=size_views(graph),
        found=tuple(identifier(SIZE + name) for name in graph.counts),
        bounds=_bounds(graph),
        static_arena=deployment.static_arena,
        arena_bytes=program.arena_bytes,
        arenas=arenas,
        alignment=target.alignment,
        state_bytes=state_bytes(program),
        feed=feed,
        weight_bytes=weights.total_bytes,
        weights_as_text=weights.as_text,
        weights_section=weights.section,
        weights_address=weights.address if weights.binary else None,
        weights_read=weights.read and weights.size_bytes > 0,
        weights_window=deployment.window if weights.size_bytes else None,
        weights_apart=weights.in_flashes,
        places=named_places(_places(program), (blocks, copies, feed)),
        blocks=blocks,
        around=beside,
        accelerators=tuple(accelerators_of(graph)),
        copies=copies[0],
        state_copies=copies[1],
        state_fills=tuple(state_fills(program)),
        layers=tuple(_layer_view(index, layer) for index, layer in enumerate(program.layers)),
        macs=sum(layer.macs for layer in program.layers),
        threads=1 if target.bare else target.threads,
        code_ram=deployment.code_ram,
        cores=target.threads if target.bare and any(layer.kernel.split for layer in program.layers) else 1,
        safety=_safety(program, deployment, weights, blocks),
    )


def _safety(program: Program, deployment: Deployment, weights: Weights, blocks: tuple[Stretch, ...]) -> Safety:
    safety = safety_of(deployment.safety, program, weights, blocks)
    if not safety.golden:
        return safety
    return replace(safety, golden_test=golden_variables(program, golden_of(program, safety.steps, guarded=safety.canary)))


def _inputs(program: Program, arenas: Mapping[Region, str]) -> tuple[TensorView, ...]:
    given = api_inputs(program.graph)
    names, types, origins = [v.name for v in given], [v.type for v in given], [v.origin for v in given]
    return tensor_views(names, types, origins, input_slots(program), arenas)


def _outputs(program: Program, arenas: Mapping[Region, str]) -> tuple[TensorView, ...]:
    graph = program.graph
    origins, types = graph.output_names or [v.origin for v in graph.outputs], [v.type for v in graph.outputs]
    views = tensor_views(output_fields(graph), types, origins, output_slots(program), arenas, graph.counts.keys())
    rounded = narrowest(graph)
    pairs = zip(views, graph.outputs, strict=True)
    return tuple(replace(view, tolerance=share(v.dtype, rounded.get(v, ""))) for view, v in pairs)


def _layer_view(index: int, layer: Layer) -> LayerView:
    op, source = accelerator_of(layer.node.op) or layer.node.op.NAME, comment(layer.node.source)
    return LayerView(index, identifier(layer.name), op, layer.kernel.name, layer.macs, source)


def input_slots(program: Program) -> list[Address | None]:
    """Where the arena has room for the inputs that a caller gives."""
    given = set(api_inputs(program.graph))
    return [program.placement.slots.get(("input", n)) for n, value in enumerate(program.graph.inputs) if value in given]


def output_slots(program: Program) -> list[Address | None]:
    return [program.placement.slots.get(("output", n)) for n in range(len(program.graph.outputs))]


def tensor_views(
    fields: list[str], types: list[TensorType], origins: list[str], slots: list[Address | None], arenas: Mapping[Region, str],
    found: Set[str] = frozenset(),
) -> tuple[TensorView, ...]:  # fmt: skip
    """`arenas`: by region, the field of the struct of arenas, where there are several. `found`: sizes that follow from data."""
    macros = unique_macros(fields)
    plain = [_view(f, m, t, o) for f, m, t, o in zip(fields, macros, types, origins, strict=True)]
    views = [
        replace(view, found=bool(names_of(t.shape) & found), shape_field=free_name(f"shape_of_{view.field}", fields))
        for view, t in zip(plain, types, strict=True)
    ]
    return tuple(
        view if at is None else replace(view, slot=at.offset, arena=arenas.get(at.region, ""))
        for view, at in zip(views, slots, strict=True)
    )


def free_name(name: str, taken: Collection[str]) -> str:
    """A field of a struct that has others."""
    while name in taken:
        name += "_"
    return name


def _view(field: str, macro: str, type: TensorType, origin: str) -> TensorView:
    shape = "x".join(map(str, type.shape)) or "scalar"
    about = f"{type.dtype.value}[{','.join(map(repr, type.shape))}]"
    if type.layout is not Layout.NONE:
        about += f" {type.layout.value}"
    if type.quant is not None and type.quant.axis is None:
        about += f", real = {type.quant.scale[0]!r} * (stored - {type.quant.zero_point[0]})"
    if origin and origin != field:
        about += f", in the model: {comment(origin)}"
    return TensorView(
        field=identifier(field),
        macro=macro,
        c_type=C_TYPES[type.dtype],
        dtype=type.dtype.value,
        npy_type=f"NPY_{type.dtype.name}",
        descr=NPY_DESCR[type.dtype],
        shape=largest(type.shape),
        shape_text=shape,
        elements=most(type.elements),
        storage=max(1, most(type.elements)),
        bytes=type.bytes,
        about=about,
        tolerance=share(type.dtype),
        dims=tuple(c_size(n) for n in type.shape) if type.moves else (),
        names=tuple(n.formula.name if isinstance(n, Size) else "" for n in type.shape) if type.moves else (),
    )


def _tolerant(views: tuple[TensorView, ...], target: Target) -> tuple[TensorView, ...]:
    """Devices round in ways of their own."""
    if not target.device:
        return views
    least = DEVICE_TOLERANCE[target.precision]
    return tuple(replace(v, tolerance=max(v.tolerance, least)) if v.tolerance else v for v in views)


def lifetimes(program: Program) -> dict[str, tuple[int, int]]:
    """The layer that writes each value (-1 for what is there before) and the last one that reads it."""
    roots = program.storage_roots()

    def owner(value: Value) -> str:
        """Reading a view reads the value that it is a view of."""
        return roots.get(value, value).name

    made = dict.fromkeys(program.graph.inputs, -1)
    last: dict[str, int] = {}
    for index, layer in enumerate(program.layers):
        start, end = program.span(index)  # what a stripe reads or makes as a whole is there for all of it
        made |= dict.fromkeys(layer.node.outputs, start)
        for value in layer.node.operands():
            last[owner(value)] = max(last.get(owner(value), -1), end)
    last |= {owner(value): len(program.layers) for value in [*program.graph.outputs, *(s.output for s in program.graph.states)]}
    found = {value.name: (first, max(first, last.get(owner(value), first))) for value, first in made.items()}
    return found | {value.name: (w.first, w.last) for stripe in program.stripes for value, w in stripe.windows.items()}


def named_places(places: list[Place], text: object) -> tuple[Place, ...]:
    """Those that a statement names; a view may have a place that nobody asks for."""
    words = set(re.findall(r"\w+", repr(text)))
    return tuple(place for place in places if place.macro in words)


def _places(program: Program) -> list[Place]:
    """Every value in the arena by name and offset, with the layers between which it lives, and the memory it is in."""
    alive = lifetimes(program)
    where = {a.region: f", in {a.memory}" for a in program.arenas} or {ARENA: ""}
    network = program.graph.name
    places = []
    for value in program.graph.values():
        address = program.placement.of(value)
        if address is None or address.region not in (*where, STATE):
            continue
        about = f"{value.type}, {'state' if address.region == STATE else 'a view'}"
        if value.name in alive and address.region in where:
            first, last = alive[value.name]
            window = program.window_of(value)
            rows = "" if window is None else f", a window of {window.rows} row{'s' if window.rows > 1 else ''}"
            about = f"{value.type}{rows}, layers {first} to {last}"
        about += f", rows {address.stride} bytes apart" if address.stride else ""
        about += where[ARENA if address.region == STATE else address.region]
        places.append(Place(macro(network, "AT", value.name), address.offset, comment(about)))
    for index, layer in enumerate(program.layers):
        if (address := program.placement.scratch.get(layer.name)) is not None:
            about = f"{layer.scratch_bytes} bytes of working memory, layer {index}{where[address.region]}"
            places.append(Place(macro(network, "SCRATCH", layer.name), address.offset, about))
    reads = Reads(program)
    for read in reads.plan():
        about = f"{read.bytes} bytes of weights of layer {read.layer}, layers {read.first} to {read.last}"
        address = program.placement.slots[read.slot]
        about += where[address.region]
        places.append(Place(reads.macro(read), address.offset, about))
    return places
