"""C expressions for where things live, for calls of kernels."""

from __future__ import annotations

from dataclasses import dataclass

from intaglio.errors import OurFault
from intaglio.ir.formulas import Formula
from intaglio.ir.graph import Graph, Value
from intaglio.ir.placement import ARENA, STATE, Kind, Slot
from intaglio.ir.sizes import Size
from intaglio.ir.types import DType
from intaglio.kernels.loop import SIZE
from intaglio.kernels.program import Layer, Program
from intaglio.memory.weights_read import WeightsRead
from intaglio.package.arenas import arena_views
from intaglio.package.c_text import C_TYPES, identifier, macro
from intaglio.package.reads import Reads
from intaglio.package.weights import block_name, offset_macro


@dataclass(frozen=True, slots=True)
class Result:
    """What a layer wrote: the hook gets to see it."""

    pointer: str
    size_bytes: int | str  # C text, where it depends on sizes of the caller


def c_size(size: int) -> str:
    """C text of a dimension, or of a number of elements or bytes, in terms of the parameters `size_NAME`."""
    return _c_formula(size.formula) if isinstance(size, Size) else str(size)


_SIGNS = {"add": "+", "sub": "-", "mul": "*", "div": "/", "mod": "%"}


def _c_formula(formula: Formula) -> str:
    if formula.op == "size":
        return SIZE + identifier(formula.name)
    if formula.op == "num":
        return str(formula.number)
    a, b = (_c_formula(arg) if not arg.args else f"({_c_formula(arg)})" for arg in formula.args)
    if formula.op in _SIGNS:
        return f"{a} {_SIGNS[formula.op]} {b}"
    return f"{a} {'<' if formula.op == 'min' else '>'} {b} ? {a} : {b}"


def size_of(value: Value) -> int | str:
    """Bytes of a value: a number, or C text where it depends on sizes of the caller."""
    return value.type.bytes if not value.type.moves else f"(size_t)({c_size(value.type.elements * value.dtype.bytes)})"


class Pointers:
    """C expressions for where things live."""

    def __init__(self, program: Program) -> None:
        graph = program.graph
        self._name = identifier(graph.name)
        self._values = {value.name: value for value in graph.values()}
        self._constants = {constant.name: block_name(graph.name, constant.memory) for constant in program.constants}
        self._inputs = graph.inputs
        self._outputs = output_fields(graph)
        self._bases = {view.region: view.base for view in arena_views(program.arenas, program.arena_bytes, "", graph.name)}
        self._bases[STATE] = self._bases[ARENA]
        self._program, self._placement = program, program.placement
        self._pitches = program.storage_pitches()
        self._reads = Reads(program)
        self._read: WeightsRead | None = None

    def before(self, layer: int) -> tuple[str, ...]:
        """C statements before a layer, or the stripe that starts with it: where weights are read, its own are waited for."""
        self._read = self._reads.of(layer)
        return self._reads.before(layer, self._bases)

    @property
    def reading(self) -> bool:
        """Weights are not mapped."""
        return bool(self._reads)

    def of(self, value: Value, dtype: DType, *, const: bool, plus: str = "") -> str:
        """`plus`: C text of what is added, in bytes, such as ` + n3 * 768`."""
        return self._typed(value, 0, dtype, const, plus)

    def extent(self, value: Value) -> int | str:
        """Bytes from the start of a value to its end, with what is between its rows."""
        pitch = self._pitches.get(value)
        return size_of(value) if pitch is None else pitch.extent(value)

    def has(self, value: Value) -> bool:
        """Has it a place in memory?"""
        return self._placement.of(value) is not None

    def bytes_of(self, value: Value, plus: str = "") -> str:
        """A value of the arena as bytes."""
        address = self._placement.of(value)
        base = self._bases.get(address.region, "") if address is not None else ""
        return f"{base} + {macro(self._name, 'AT', value.name)}{plus}"

    def _typed(self, value: Value, offset: int, dtype: DType, const: bool, plus: str) -> str:
        address = self._placement.of(value)
        if value.is_const:
            return self.constant(raw_constant_name(value), dtype, offset)
        if address is None:
            raise OurFault("no-address", f"value `{value.name}` has no place in memory")
        if address.region.kind is Kind.PART:
            return self._typed(self._values[address.region.name], offset + address.offset, dtype, const, plus)
        if address.region in self._bases:
            place = self.bytes_of(value, plus)
            return pointer(dtype, place if offset == 0 else f"{place} + {offset}", const=const)
        match address.region.kind:
            case Kind.INPUT:
                if not const:
                    raise OurFault("writes-input", f"a layer writes into the input `{value.name}`")
                base = f"in->{identifier(self._inputs[address.offset].name)}"
            case Kind.OUTPUT:
                base = f"out->{self._outputs[address.offset]}"
            case _:
                raise OurFault("no-address", f"value `{value.name}` lives in an unknown region `{address.region}`")
        if offset or plus:
            step = "const unsigned char *" if const else "unsigned char *"
            return pointer(dtype, f"({step}){base}{plus}" + (f" + {offset}" if offset else ""), const=const)
        return base if C_TYPES[dtype] == C_TYPES[value.dtype] else pointer(dtype, base, const=const)

    def constant(self, name: str, dtype: DType, offset: int = 0) -> str:
        if name not in self._constants:
            raise OurFault("no-constant", f"constant `{name}` is not part of the program")
        place = f"{self._constants[name]} + {self.offset(name)}"
        if self._reads:
            if self._read is None or name not in self._read.places:
                raise OurFault("no-constant", f"constant `{name}` is not read before it is used")
            base, at = self._bases[self._placement.slots[self._read.slot].region], self._read.places[name]
            place = f"{base} + {self._reads.macro(self._read)}" + (f" + {at}" if at else "")
        return pointer(dtype, f"{place} + {offset}" if offset else place, const=True)

    def offset(self, constant: str) -> str:
        """Where a constant is in the weights."""
        return offset_macro(self._name, constant)

    def slot(self, slot: Slot) -> str:
        """Room in an arena that is not a value's."""
        address = self._placement.slots[slot]
        return f"{self._bases[address.region]} + {address.offset}"

    def scratch(self, layer: Layer, dtype: DType, at: int, each: int = 0) -> str:
        """`each`: bytes of the piece that each part of the layer has."""
        address = self._placement.scratch.get(layer.name)
        if address is None:
            raise OurFault("no-address", f"layer `{layer.name}` has no place for its working memory")
        place = f"{self._bases[address.region]} + {macro(self._name, 'SCRATCH', layer.name)}" + (f" + {at}" if at else "")
        return pointer(dtype, place + (f" + part * {each}" if each else ""), const=False)


def pointer(dtype: DType, place: str, *, const: bool) -> str:
    """Bytes as elements. What is wider goes through `void *`: the planner has aligned it, and no compiler can see that."""
    word = "const " if const else ""
    through = f"({word}void *)" if dtype.bytes > 1 else ""
    return f"({word}{C_TYPES[dtype]} *){through}({place})"


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


def wrapped(start: str, arguments: list[str], width: int = 110, indent: int = 8) -> str:
    line = f"{start}{', '.join(arguments)})"
    pad = " " * indent
    return line if len(line) <= width else f"{start}\n{pad}" + f",\n{pad}".join(arguments) + ")"
