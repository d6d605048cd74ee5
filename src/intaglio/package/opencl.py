"""A program for an OpenCL device as tables of C: functions, launches, places in the pool, and the steps of a run.

`NAME_program.c` is read by the runtime of the template `opencl`; `opencl/NAME.cl` is the same OpenCL C for people.
Layers without device code work on the host in a mirror of the pool: a value has the same offset in both, and transfers are
planned here, one for each value that crosses.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import assert_never

from intaglio.errors import OurFault, printable
from intaglio.ir.graph import Value
from intaglio.ir.placement import Kind
from intaglio.ir.types import DType
from intaglio.kernels.loop import Kernel
from intaglio.kernels.opencl.launch import Launch, Size
from intaglio.kernels.opencl.launch_printer import print_launch
from intaglio.kernels.opencl.printer import CLPrinter, common, fails
from intaglio.kernels.program import ConstantArg, Layer, Program, ScratchArg, ValueArg
from intaglio.package.c_text import C_TYPES, comment, identifier
from intaglio.package.calls import state_order
from intaglio.package.manifest import OpenclInfo, ProgramInfo
from intaglio.package.opencl_answers import answers_of
from intaglio.package.pointers import pointer, raw_constant_name
from intaglio.package.weights import offset_macro
from intaglio.targets.target import Target

PER_PROGRAM = 16  # kernels that are built, cached and tested together
OPTIONS = "-cl-std=CL1.2"
LONGEST = 4095
KINDS = {
    DType.F32: "f", DType.F16: "h", DType.F64: "d", DType.I8: "c", DType.U8: "C", DType.BOOL: "C", DType.I16: "s", DType.U16: "S",
    DType.BF16: "S", DType.I32: "i", DType.U32: "I", DType.I64: "l", DType.U64: "L",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Step:
    kind: str
    layer: int = -1
    index: int = 0
    place: int = 0
    guard: int = -1
    about: str = ""


@dataclass(slots=True)
class Tables:
    """Rows of C initialisers, in the order of their numbers."""

    name: str
    functions: dict[str, str] = field(default_factory=dict)  # name -> OpenCL C
    args: list[str] = field(default_factory=list)
    places: dict[tuple[int, int, str], int] = field(default_factory=dict)
    about: list[str] = field(default_factory=list)  # of places
    constants: dict[str, int] = field(default_factory=dict)
    launches: list[str] = field(default_factory=list)
    variants: list[str] = field(default_factory=list)
    layers: list[str] = field(default_factory=list)
    answers: list[str] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    hosts: list[str] = field(default_factory=list)  # functions
    results: list[tuple[int, int]] = field(default_factory=list)
    resets: list[tuple[int, str]] = field(default_factory=list)
    fills: list[str] = field(default_factory=list)  # arrays of first values
    sources: dict[tuple[int, str], dict[str, None]] = field(default_factory=dict)  # program, gpu or cpu -> its functions
    mirror_bytes: int = 0
    transferred: int = 0  # bytes a run between host and device, beside inputs and outputs
    transfers: int = 0
    status: bool = False
    host_layers: list[int] = field(default_factory=list)
    head: str = ""


class _Writer:
    def __init__(self, program: Program) -> None:
        self.program, self.graph = program, program.graph
        self.t = Tables(identifier(program.graph.name))
        self.roots = program.storage_roots()
        self.values = {value.name: value for value in self.graph.values()}
        self.sizes = {constant.name: constant.data.nbytes for constant in program.constants}
        self.printer = CLPrinter()
        self.named: dict[int, str] = {}  # functions by launch
        self.programs: dict[str, int] = {}  # by kernel
        self.on_device: set[Value] = set()
        self.on_host: set[Value] = set()
        self.guards: dict[Value, int] = {}

    # Places -------------------------------------------------------------------------------------------------------------

    def offset(self, value: Value) -> int:
        address = self.program.placement.of(value)
        if address is None:
            raise OurFault("no-address", f"value `{value.name}` has no place in memory")
        if address.region.kind is Kind.PART:
            return self.offset(self.values[address.region.name]) + address.offset
        if address.slot is not None:
            room = self.program.placement.slots.get(address.slot)
            return 0 if room is None else room.offset  # nothing is kept of what is empty
        return address.offset

    def place(self, offset: int, size: int, kind: str, about: str) -> int:
        key = (offset, max(size, 1), kind)
        if key not in self.t.places:
            self.t.places[key] = len(self.t.places)
            self.t.about.append(about)
        return self.t.places[key]

    def of(self, value: Value) -> int:
        return self.place(self.offset(value), value.type.bytes, KINDS[value.dtype], value.name)

    def constant(self, name: str) -> int:
        return self.t.constants.setdefault(name, len(self.t.constants))

    # The steps of a run -------------------------------------------------------------------------------------------------

    def write(self) -> Tables:
        graph, t = self.graph, self.t
        fed = {s.input for s in graph.states}
        number = 0
        for n, value in enumerate(graph.inputs):
            if value in fed:
                self.on_device.add(value)
                continue
            if value.type.bytes:
                room = self.program.placement.slots["input", n].offset
                place = self.place(room, value.type.bytes, KINDS[value.dtype], value.name)
                t.steps.append(Step("INPUT", index=number, place=place, about=value.name))
            self.on_device.add(value)
            number += 1
        for index, layer in enumerate(self.program.layers):
            self._layer(index, layer)
        for state in state_order(self.program):
            self._need(state.output, device=True)
            t.steps.append(Step("COPY", index=self.of(state.output), place=self.of(state.input), about=f"state {state.input.name}"))
        for n, value in enumerate(graph.outputs):
            if not value.type.bytes:
                continue
            if value.data is not None:
                t.steps.append(Step("OUTPUT_CONSTANT", index=n, place=self.constant(raw_constant_name(value)), about=value.name))
                continue
            self._need(value, device=True)
            t.steps.append(Step("OUTPUT", index=n, place=self.of(value), about=value.name))
        for state in graph.states:
            self._reset(state.input, state.fill)
        t.head = common(self.printer)
        return t

    def _need(self, value: Value, *, device: bool) -> None:
        """The value has to be there; a transfer if it is not."""
        root = self.roots.get(value, value)
        here, there = (self.on_device, self.on_host) if device else (self.on_host, self.on_device)
        if root in here or root.data is not None:
            return
        if root not in there:
            raise OurFault("no-value", f"`{root.name}` is read before it is written")
        here.add(root)
        if root.type.bytes:
            self.t.steps.append(Step("UPLOAD" if device else "DOWNLOAD", place=self.of(root), about=root.name))
            self.t.transferred += root.type.bytes
            self.t.transfers += 1

    def _layer(self, index: int, layer: Layer) -> None:
        device = bool(layer.kernel.variants)
        guard = -1
        if layer.node.when is not None:
            self._need(layer.node.when, device=True)
            guard = self.of(layer.node.when)
        for param, argument in zip(layer.kernel.params, layer.arguments, strict=True):
            if isinstance(argument, ValueArg) and param.const and argument.value not in layer.node.outputs:
                self._need(argument.value, device=device)
        source = layer.node.source or layer.name
        if device:
            number = self._device_layer(index, layer)
            self.t.steps.append(Step("DEVICE", index, number, guard=guard, about=f"{layer.node.op.NAME}: {source}"))
        else:
            self._host_layer(layer)
            self.t.host_layers.append(index)
            self.t.steps.append(Step("HOST", index, len(self.t.hosts) - 1, guard=guard, about=f"{layer.node.op.NAME}: {source}"))
        for value in layer.node.outputs:
            if self.program.placement.of(value) is None:
                continue
            root = self.roots.get(value, value)
            here, there = (self.on_device, self.on_host) if device else (self.on_host, self.on_device)
            here.add(root)
            there.discard(root)
            self.t.results.append((index, self.of(value)))
            if not device:
                self.t.mirror_bytes = max(self.t.mirror_bytes, self.offset(value) + value.type.bytes)

    # On the device ------------------------------------------------------------------------------------------------------

    def _program_of(self, kernel: Kernel) -> int:
        return self.programs.setdefault(kernel.name, len(self.programs) // PER_PROGRAM)

    def _device_layer(self, index: int, layer: Layer) -> int:
        t, kernel = self.t, layer.kernel
        program = self._program_of(kernel)
        first = len(t.variants)
        cpu = next((n for n, v in enumerate(kernel.variants) if v.cpu), 0)
        for n, variant in enumerate(kernel.variants):
            start = len(t.launches)
            for launch in variant.launches:
                name = self._function(kernel, variant.label, launch)
                self._launch(layer, launch, name)
                for kind, chosen in (("gpu", 0), ("cpu", cpu)):
                    if n == chosen:
                        t.sources.setdefault((program, kind), {}).setdefault(name)
            t.variants.append(f'{{"{variant.label}", {start}, {len(variant.launches)}}}')
        t.layers.append(f'{{"{identifier(layer.name)}", {index}, {first}, {len(kernel.variants)}, 0, {cpu}, {program}}}')
        for answer in answers_of(layer, self.program.placement, self.of):
            numbers = ", ".join(f"{{{', '.join(f'{n:.9g}' for n in row)}}}" for row in (answer.sums, answer.sizes))
            t.answers.append(f"{{{len(t.layers) - 1}, {answer.place}, {answer.input}, {numbers}}}")
        return len(t.layers) - 1

    def _function(self, kernel: Kernel, label: str, launch: Launch) -> str:
        if id(launch) not in self.named:
            stem = name = identifier(
                f"{kernel.name}_{launch.stem.split('_', 1)[-1] if launch.stem.startswith('winograd') else label}"
            )
            n = 2
            while name in self.t.functions:
                name, n = f"{stem}_{n}", n + 1
            about = "\n".join([launch.about or kernel.about, *self._told(kernel, label)])
            self.t.functions[name] = print_launch(replace(launch, about=about), kernel, self.printer, name)
            self.named[id(launch)] = name
        return self.named[id(launch)]

    def _told(self, kernel: Kernel, label: str) -> list[str]:
        """Who uses a function, and which device starts with it."""
        shown = [printable(source, 60) for source in dict.fromkeys(kernel.used_by)]
        more = f" and {len(shown) - 4} more" if len(shown) > 4 else ""
        lines = [f"Used by: {', '.join(shown[:4])}{more}"] if shown else []
        if len(kernel.variants) > 1:
            cpu = next((v.label for v in kernel.variants if v.cpu), kernel.variants[0].label)
            first = [kind for kind, chosen in (("a GPU", kernel.variants[0].label), ("a CPU", cpu)) if chosen == label]
            choice = f"first choice on {' and '.join(first)}" if first else "where tuning finds it faster"
            lines.append(f"Variant {label}: {choice}")
        return lines

    def _launch(self, layer: Layer, launch: Launch, name: str) -> None:
        t, kernel = self.t, layer.kernel
        by_param = dict(zip(kernel.params, layer.arguments, strict=True))
        first, writes = len(t.args), 0
        for n, param in enumerate(launch.params):
            argument = by_param[param]
            match argument:
                case ValueArg(value):
                    if value.data is not None:
                        row = f"{{ARG_CONSTANT, {self.constant(raw_constant_name(value))}}}"
                    else:
                        row = f"{{ARG_PLACE, {self.of(value)}}}"
                case ConstantArg(constant):
                    row = f"{{ARG_CONSTANT, {self.constant(constant)}}}"
                case ScratchArg():
                    at = self.program.placement.scratch[layer.name].offset + argument.at
                    row = f"{{ARG_PLACE, {self.place(at, argument.bytes, KINDS[param.dtype], layer.name + '_scratch')}}}"
                case _:
                    assert_never(argument)
            t.args.append(row)
            writes |= (0 if param.const else 1) << n
        if fails(launch):
            t.args.append("{ARG_STATUS, 0}")
            t.status = True
        function = list(t.functions).index(name)
        sizes = ", ".join(_triple(size) for size in (launch.size, launch.gpu, launch.cpu))
        dims = len(launch.size)
        t.launches.append(
            f"{{{function}, {first}, {len(t.args) - first}, {dims}, {sizes}, {int(launch.fixed)}, {writes}}} /* {name} */"
        )

    # On the host --------------------------------------------------------------------------------------------------------

    def _host_layer(self, layer: Layer) -> None:
        arguments = []
        for param, argument in zip(layer.kernel.params, layer.arguments, strict=True):
            match argument:
                case ValueArg(value) if value.data is None:
                    arguments.append(pointer(param.dtype, f"mirror + {self.offset(value)}", const=param.const))
                    self.t.mirror_bytes = max(self.t.mirror_bytes, self.offset(value) + value.type.bytes)
                case ValueArg(value):
                    arguments.append(self._weight(param.dtype, raw_constant_name(value)))
                case ConstantArg(name):
                    arguments.append(self._weight(param.dtype, name))
                case ScratchArg():
                    at = self.program.placement.scratch[layer.name].offset + argument.at
                    arguments.append(pointer(param.dtype, f"mirror + {at}", const=param.const))
                    self.t.mirror_bytes = max(self.t.mirror_bytes, at + argument.bytes)
                case _:
                    assert_never(argument)
        call = f"{identifier(layer.kernel.name)}({', '.join(arguments)})"
        body = [f"    return {call};"] if layer.kernel.fallible else [f"    {call};", "    return 0;"]
        name = f"{self.t.name}_cl_host_{len(self.t.hosts)}"
        about = comment(f"{layer.node.op.NAME}: {layer.node.source}")
        self.t.hosts.append("\n".join([f"/* {about} */", f"static int {name}(unsigned char *mirror)", "{", *body, "}"]))

    def _weight(self, dtype: DType, constant: str) -> str:
        return pointer(dtype, f"{self.t.name}_weights + {offset_macro(self.t.name, constant)}", const=True)

    def _reset(self, value: Value, fill: float) -> None:
        place = self.of(value)
        if not fill:
            self.t.resets.append((place, "NULL"))
            return
        text = f"{float(fill)!r}f" if value.dtype is DType.F32 else str(int(fill))
        name = f"{self.t.name}_cl_first_{len(self.t.fills)}"
        rows = ", ".join([text] * value.type.elements)
        self.t.fills.append(f"static const {C_TYPES[value.dtype]} {name}[{value.type.elements}] = {{{rows}}};")
        self.t.resets.append((place, name))


def _triple(size: Size) -> str:
    return "{" + ", ".join(str(n) for n in (*size, *[1] * (3 - len(size)))) + "}"


def write_opencl(program: Program, target: Target, folder: Path, limit_ms: float) -> OpenclInfo:
    """The tables and the readable kernels of a package; what the manifest says of them."""
    tables = _Writer(program).write()
    name = tables.name
    (folder / "src" / f"{name}_program.c").write_text(_c_file(program, target, tables, limit_ms), encoding="ascii")
    (folder / "opencl").mkdir(exist_ok=True)
    head = (
        f"/* {name}: what an OpenCL device computes, written by Intaglio for {target.name}, {target.precision}.\n"
        f" * Built with {OPTIONS} and what the device adds. The runtime puts programs of up to {PER_PROGRAM} kernels\n"
        f" * together from these texts, which are in src/{name}_program.c: this copy is for reading. */"
    )
    everything = "\n".join([head, tables.head, *tables.functions.values()])
    (folder / "opencl" / f"{name}.cl").write_text(everything, encoding="ascii")
    macs = sum(layer.macs for layer in program.layers)
    at_host = set(tables.host_layers)
    return OpenclInfo(
        precision=target.precision,
        pool_bytes=program.arena_bytes,
        mirror_bytes=tables.mirror_bytes,
        device_layers=len(program.layers) - len(at_host),
        host_layers=tuple(sorted(at_host)),
        device_macs=sum(layer.macs for n, layer in enumerate(program.layers) if n not in at_host),
        macs=macs,
        transfers=tables.transfers,
        transferred_bytes=tables.transferred,
        limit_ms=limit_ms,
        programs=tuple(ProgramInfo(number, kind, *_source(tables, names)) for (number, kind), names in tables.sources.items()),
    )


def _source(tables: Tables, names: dict[str, None]) -> tuple[str, str]:
    """The digest of what the driver gets to see, and the options before those that depend on the device."""
    text = tables.head + "\n" + "".join(f"{tables.functions[n]}\n" for n in names)
    return hashlib.sha256(text.encode("ascii")).hexdigest(), OPTIONS


def _text(name: str, text: str) -> str:
    """A text as an array of parts, because C99 promises no more than `LONGEST` characters in a string literal."""
    parts: list[list[str]] = [[]]
    for line in text.splitlines(keepends=True):
        if sum(map(len, parts[-1])) + len(line) > LONGEST:
            parts.append([])
        parts[-1].append(line)
    rows = ["\n".join(f'    "{_escaped(line)}"' for line in part or [""]) for part in parts]
    return f"static const char *const {name}[] = {{\n" + "".join(f"{row},\n" for row in rows) + "    NULL,\n};"


def _escaped(line: str) -> str:
    return line.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("??", "?\\?")


def _table(tables: Tables, kind: str, plural: str, rows: list[str]) -> str:
    body = "\n".join(f"    {row}," for row in rows) if rows else "    {0},"
    return f"static const {tables.name}_cl_{kind} {tables.name}_cl_{plural}[] = {{\n{body}\n}};"


def _c_file(program: Program, target: Target, t: Tables, limit_ms: float) -> str:
    upper = t.name.upper()
    places = [
        f"{{{offset}, {size}, '{kind}', \"{printable(about, 60)}\"}}"
        for ((offset, size, kind), _), about in zip(t.places.items(), t.about, strict=True)
    ]
    sizes = {c.name: c.data.nbytes for c in program.constants}
    constants = [f'{{{t.name}_weights + {offset_macro(t.name, n)}, {sizes[n]}, "{n}"}}' for n in t.constants]
    functions = [f'{{"{n}", {t.name}_cl_text_{i}}}' for i, n in enumerate(t.functions)]
    steps = [f"{{{upper}_STEP_{s.kind}, {s.layer}, {s.index}, {s.place}, {s.guard}}}, /* {comment(s.about)} */" for s in t.steps]
    args = [f"{{{upper}_{row[1:]}" for row in t.args]
    count: dict[str, int] = {
        "functions": len(functions),
        "args": len(args),
        "places": len(places),
        "constants": len(constants),
        "launches": len(t.launches),
        "variants": len(t.variants),
        "layers": len(t.layers),
        "answers": len(t.answers),
        "steps": len(steps),
        "hosts": len(t.hosts),
        "results": len(t.results),
        "resets": len(t.resets),
    }
    programs = len({number for number, _ in t.sources})
    fields = "\n".join(f"    {t.name}_cl_{plural}, {n}," for plural, n in count.items())
    host_rows = [f"{t.name}_cl_host_{n}" for n in range(len(t.hosts))]
    parts = [
        f"/* {t.name} on an OpenCL device: the tables that its runtime works through. Generated by Intaglio. */",
        f'#include "{t.name}_programs.h"\n'
        + (f'#include "{t.name}_kernels.h"\n' if t.hosts else "")
        + (f'#include "{t.name}_weights.h"' if program.constants else ""),
        *t.hosts,
        *t.fills,
        _text(f"{t.name}_cl_common", t.head),
        *(_text(f"{t.name}_cl_text_{i}", text) for i, text in enumerate(t.functions.values())),
        _table(t, "function", "functions", functions),
        _table(t, "arg", "args", args),
        "/* Where values live in the pool. Values that are never alive together share memory. */\n"
        + _table(t, "place", "places", places),
        _table(t, "constant", "constants", constants),
        "/* function, arguments, dimensions, work-items, work-group on a GPU and on a CPU, fixed, written */\n"
        + _table(t, "launch", "launches", t.launches),
        _table(t, "variant", "variants", t.variants),
        _table(t, "layer", "layers", t.layers),
        "/* layer, place, input or -1, sums over parts, sums of absolute values */\n" + _table(t, "answer", "answers", t.answers),
        _steps(t, steps),
        f"static const {t.name}_cl_host {t.name}_cl_hosts[] = {{\n    {', '.join(host_rows) or 'NULL'},\n}};",
        _table(t, "result", "results", [f"{{{layer}, {place}}}" for layer, place in t.results]),
        _table(t, "reset", "resets", [f"{{{place}, {data}}}" for place, data in t.resets]),
        f"const {t.name}_cl_model {t.name}_cl = {{\n"
        f'    {t.name}_cl_common, "{OPTIONS}", "{target.precision}",\n'
        f"    {max(program.arena_bytes, 1)}, {target.alignment}, /* of the pool */\n"
        f"    {t.mirror_bytes}, {float(limit_ms)!r},\n"
        f"{fields}\n    {programs}, {int(t.status)}\n}};",
    ]
    return "\n\n".join(p for p in parts if p) + "\n"


def _steps(t: Tables, rows: list[str]) -> str:
    body = "\n".join(f"    {row}" for row in rows) if rows else "    {0, -1, 0, 0, -1},"
    return f"/* kind, layer, index, place, guard */\nstatic const {t.name}_cl_step {t.name}_cl_steps[] = {{\n{body}\n}};"
