"""The body of NAME_run_in: which layer is called with which pointers, as C text in blocks.

A block is a run of layers under one guard (a branch of an `If`), or under none:

    /* Conv: /features/0/Conv */
    net_conv_1(in->x, (const float *)(net_weights + W_w1), (float *)(arena + AT_a));
"""

from __future__ import annotations

from dataclasses import dataclass

from intaglio.errors import OurFault, UserError
from intaglio.ir.graph import Graph, State, Value
from intaglio.ir.types import DType
from intaglio.kernels.program import ConstantArg, Layer, Program, ScratchArg, ValueArg
from intaglio.package.c_text import C_TYPES, comment, identifier


@dataclass(frozen=True, slots=True)
class Result:
    """What a layer wrote: the hook gets to see it."""

    pointer: str
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Call:
    """One layer: its comment, the call, and whether the call can fail."""

    index: int
    comment: str
    text: str
    fallible: bool
    results: tuple[Result, ...]


@dataclass(frozen=True, slots=True)
class Block:
    guard: str  # a C condition, or ""
    calls: tuple[Call, ...]


@dataclass(frozen=True, slots=True)
class Copy:
    comment: str
    to: str
    source: str
    size_bytes: int


class Pointers:
    """C expressions for where things live."""

    def __init__(self, program: Program) -> None:
        graph = program.graph
        self._name = identifier(graph.name)
        self._values = {value.name: value for value in graph.values()}
        self._constants = {constant.name for constant in program.constants}
        self._inputs = graph.inputs
        self._outputs = output_fields(graph)

    def of(self, value: Value, dtype: DType, *, const: bool) -> str:
        return self._typed(value, 0, dtype, const)

    def _typed(self, value: Value, offset: int, dtype: DType, const: bool) -> str:
        to = f"const {C_TYPES[dtype]} *" if const else f"{C_TYPES[dtype]} *"
        address = value.address
        if value.is_const:
            return self.constant(raw_constant_name(value), dtype, offset)
        if address is None:
            raise OurFault("no-address", f"value `{value.name}` has no place in memory")
        if address.region.startswith("="):
            return self._typed(self._values[address.region[1:]], offset + address.offset, dtype, const)
        if address.region in ("arena", "state"):
            place = f"arena + AT_{identifier(value.name)}"
            return f"({to})({place})" if offset == 0 else f"({to})({place} + {offset})"
        match address.region:
            case "input":
                if not const:
                    raise OurFault("writes-input", f"a layer writes into the input `{value.name}`")
                base = f"in->{identifier(self._inputs[address.offset].name)}"
            case "output":
                base = f"out->{self._outputs[address.offset]}"
            case region:
                raise OurFault("no-address", f"value `{value.name}` lives in an unknown region `{region}`")
        if offset:
            step = "const unsigned char *" if const else "unsigned char *"
            return f"({to})(({step}){base} + {offset})"
        return base if C_TYPES[dtype] == C_TYPES[value.dtype] else f"({to}){base}"

    def constant(self, name: str, dtype: DType, offset: int = 0) -> str:
        if name not in self._constants:
            raise OurFault("no-constant", f"constant `{name}` is not part of the program")
        place = f"{self._name}_weights + W_{identifier(name)}"
        return f"(const {C_TYPES[dtype]} *)({place})" if not offset else f"(const {C_TYPES[dtype]} *)({place} + {offset})"

    def scratch(self, layer: Layer, dtype: DType, at: int) -> str:
        if layer.scratch_offset < 0:
            raise OurFault("no-address", f"layer `{layer.name}` has no place for its working memory")
        place = f"arena + SCRATCH_{identifier(layer.name)}" + (f" + {at}" if at else "")
        return f"({C_TYPES[dtype]} *)({place})"


def raw_constant_name(value: Value) -> str:
    """A constant in the order of its tensor; a kernel may have packed the same one under its plain name."""
    return f"{value.name}_as_is"


def output_fields(graph: Graph) -> list[str]:
    """A field per output; the same tensor may be an output twice, and then needs two names."""
    fields: list[str] = []
    for value in graph.outputs:
        stem = field = identifier(value.name)
        n = 2
        while field in fields:
            field, n = f"{stem}_{n}", n + 1
        fields.append(field)
    return fields


def blocks_of(program: Program) -> list[Block]:
    pointers = Pointers(program)
    blocks: list[Block] = []
    pending: list[Call] = []
    guard: Value | None = None
    for index, layer in enumerate(program.layers):
        if pending and layer.node.when is not guard:
            blocks.append(_block(pointers, guard, pending))
            pending = []
        guard = layer.node.when
        pending.append(_call(pointers, index, layer))
    if pending:
        blocks.append(_block(pointers, guard, pending))
    return blocks


def _block(pointers: Pointers, guard: Value | None, calls: list[Call]) -> Block:
    condition = "" if guard is None else f"*{pointers.of(guard, DType.BOOL, const=True)}"
    return Block(condition, tuple(calls))


def _call(pointers: Pointers, index: int, layer: Layer) -> Call:
    arguments = []
    for param, argument in zip(layer.kernel.params, layer.arguments, strict=True):
        match argument:
            case ValueArg(value):
                arguments.append(pointers.of(value, param.dtype, const=param.const))
            case ConstantArg(name):
                arguments.append(pointers.constant(name, param.dtype))
            case ScratchArg():
                arguments.append(pointers.scratch(layer, param.dtype, argument.at))
    op = layer.node.op.NAME
    source = f"{op}: {layer.node.source}" if layer.node.source else op
    results = tuple(Result(pointers.of(v, v.dtype, const=True), v.type.bytes) for v in layer.node.outputs if v.address)
    text = _wrapped(f"{identifier(layer.kernel.name)}(", arguments)
    return Call(index, comment(source), text, layer.kernel.fallible, results)


def _wrapped(start: str, arguments: list[str], width: int = 110) -> str:
    line = f"{start}{', '.join(arguments)})"
    return line if len(line) <= width else start + "\n        " + ",\n        ".join(arguments) + ")"


def output_copies(program: Program) -> list[Copy]:
    """Outputs that no layer wrote in place: an input or a constant handed through, one tensor as two outputs."""
    pointers = Pointers(program)
    copies = []
    for index, (value, field) in enumerate(zip(program.graph.outputs, output_fields(program.graph), strict=True)):
        address = value.address
        if address is not None and address.region == "output" and address.offset == index:
            continue
        source = pointers.of(value, value.dtype, const=True)
        copies.append(Copy(f"output {field} is {value.name}", f"out->{field}", source, value.type.bytes))
    return copies


def state_copies(program: Program) -> list[Copy]:
    """What this step leaves for the next one. A state that another state reads is copied before it is overwritten."""
    pointers = Pointers(program)
    waiting = [s for s in program.graph.states if s.output.address is None or s.output.address != s.input.address]
    ordered: list[State] = []
    while waiting:
        ready = [s for s in waiting if not any(other.output is s.input for other in waiting if other is not s)]
        if not ready:
            names = ", ".join(f"`{s.input.name}`" for s in waiting)
            raise UserError("state-cycle", f"the states {names} exchange their values within one step")
        ordered += ready
        waiting = [s for s in waiting if s not in ready]
    return [
        Copy(
            f"state {s.input.name} of the next step",
            pointers.of(s.input, s.input.dtype, const=False),
            pointers.of(s.output, s.output.dtype, const=True),
            s.input.type.bytes,
        )
        for s in ordered
    ]


@dataclass(frozen=True, slots=True)
class Fill:
    """A state whose elements do not start as zero."""

    comment: str
    type: str
    offset: int
    elements: int
    value: str


def state_fills(program: Program) -> list[Fill]:
    fills = []
    for state in program.graph.states:
        value, address = state.input, state.input.address
        if not state.fill or address is None:
            continue
        if value.dtype in (DType.F16, DType.BF16):
            raise UserError("unsupported-type", f"the state `{value.name}` of type {value.dtype.value} does not start as zeros")
        text = f"{float(state.fill)!r}{'f' if value.dtype is DType.F32 else ''}" if value.dtype.is_float else str(int(state.fill))
        fills.append(Fill(f"state {value.name}", C_TYPES[value.dtype], address.offset, value.type.elements, text))
    return fills
