"""The body of NAME_run_in: which layer is called with which pointers, as C text in blocks.

A block is a run of layers under one guard (a branch of an `If`), or under none:

    /* Conv: /features/0/Conv */
    net_conv_1(in->x, (const float *)(const void *)(net_weights + NET_W_conv1_weight), (float *)(void *)(arena + NET_AT_a));
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import assert_never

from intaglio.errors import UserError
from intaglio.ir.graph import State, Value
from intaglio.ir.placement import OUTPUT, Address
from intaglio.ir.types import DType
from intaglio.kernels.loop import SIZE
from intaglio.kernels.program import ConstantArg, Layer, Program, ScratchArg, ValueArg
from intaglio.package.accelerators import NOTHING, Around, accelerator_of
from intaglio.package.c_text import C_TYPES, comment, identifier
from intaglio.package.pointers import Pointers, Result, output_fields, raw_constant_name, size_of, wrapped
from intaglio.package.striped_calls import StripeView, stripe_views


@dataclass(frozen=True, slots=True)
class Call:
    """One layer: its comment, the call, and whether the call can fail."""

    index: int
    comment: str
    text: str
    fallible: bool
    results: tuple[Result, ...]
    failure: str = "error"  # what the run returns where the call failed
    task: str = ""  # the function that makes one part of it, where several threads or cores do
    steps: int = 1
    names: tuple[str, ...] = ()  # what that function declares before the call
    sizes: tuple[str, ...] = ()  # that it takes, of the caller or of the data
    after: tuple[str, ...] = ()  # statements that follow


@dataclass(frozen=True, slots=True)
class Stretch:
    guard: str  # a C condition, or ""
    calls: tuple[Call, ...]
    stripe: StripeView | None = None  # instead of calls
    before: tuple[str, ...] = ()  # statements that come first, whatever the guard says


@dataclass(frozen=True, slots=True)
class Copy:
    comment: str
    to: str
    source: str
    size_bytes: int | str
    reads: bool = False  # `source` is where it is in the file of weights


def blocks_of(program: Program, around: Around = NOTHING) -> list[Stretch]:
    pointers = Pointers(program)
    beside = _Beside(program, pointers, around)
    blocks: list[Stretch] = []
    pending: list[Call] = []
    guard: Value | None = None
    stripes = stripe_views(program)
    for index, layer in enumerate(program.layers):
        before = (*beside.before(index), *pointers.before(index))
        if pending and (layer.node.when is not guard or index in stripes or before):
            blocks.append(_block(pointers, guard, pending))
            pending = []
        if before and index not in stripes:
            blocks.append(Stretch("", (), before=before))
        if program.stripe_at(index) is not None:
            if index in stripes:
                blocks.append(Stretch("", (), stripes[index], before))
            continue
        guard = layer.node.when
        pending.append(replace(_call(pointers, index, layer, program.graph.name), after=_sizes_found(pointers, program, layer)))
        if layer.node.op.LOOP:
            blocks.append(_block(pointers, guard, pending))
            blocks.append(Stretch("", (), before=_around_loop(pointers, program, layer)))
            pending = []
    if pending:
        blocks.append(_block(pointers, guard, pending))
    if last := beside.before(len(program.layers)):
        blocks.append(Stretch("", (), before=last))
    return blocks


class _Beside:
    """What accelerators need between the calls: to be set up before their first region, and to be waited for."""

    def __init__(self, program: Program, pointers: Pointers, around: Around) -> None:
        self._program, self._pointers = program, pointers
        self._leave = leave(program.graph.name, around)
        self._hook = f"{identifier(program.graph.name).upper()}_SHOW"
        self._waits: dict[int, list[int]] = {}
        for index, until in program.waits().items():
            self._waits.setdefault(until, []).append(index)
        self._setup: dict[int, tuple[str, ...]] = {}
        met: set[str] = set()
        for index, layer in enumerate(program.layers):
            name = accelerator_of(layer.node.op)
            if name and name not in met:
                met.add(name)
                self._setup[index] = around.setup.get(name, ())

    def before(self, index: int) -> tuple[str, ...]:
        lines: list[str] = []
        for started in self._waits.get(index, []):
            lines += self._wait(started)
        return (*lines, *self._setup.get(index, ()))

    def _wait(self, index: int) -> list[str]:
        layer = self._program.layers[index]
        assert layer.kernel.wait is not None
        call = wrapped(f"{identifier(layer.kernel.wait.name)}(", _arguments(self._pointers, layer))
        lines = [f"    /* layer {index}, on {accelerator_of(layer.node.op)}, is waited for */"]
        if layer.kernel.fallible:
            failed = self._leave(f"{identifier(self._program.graph.name).upper()}_ACCELERATOR_FAILED")
            lines += [f"    error = {call};", "    if (error != 0)", f"        return {failed};"]
        else:
            lines.append(f"    {call};")
        return lines + [f"    {self._hook}({index}, {r.pointer}, {r.size_bytes});" for r in _results(self._pointers, layer)]


def leave(name: str, around: Around) -> Callable[[str], str]:
    """How a run ends with an error: what was set up is torn down."""
    return (lambda code: f"{identifier(name)}_stop({code})") if around.teardown else (lambda code: code)


def _block(pointers: Pointers, guard: Value | None, calls: list[Call]) -> Stretch:
    condition = "" if guard is None else f"*{pointers.of(guard, DType.BOOL, const=True)}"
    return Stretch(condition, tuple(calls))


def _around_loop(pointers: Pointers, program: Program, layer: Layer) -> tuple[str, ...]:
    """In front of the body of a loop, with the sizes that it leaves where it makes no turn; and behind it."""
    if layer.node.op.LOOP == "end":
        return ("    }",)
    holds = f"*{pointers.of(layer.node.output, DType.BOOL, const=True)}"
    if layer.node.when is not None:
        holds = f"*{pointers.of(layer.node.when, DType.BOOL, const=True)} && {holds}"
    end = next(other for other in program.layers if other.node.op.LOOP == "end" and other.node.inputs[0] is layer.node.output)
    return (*(f"    {line}" for line in _sizes_found(pointers, program, end)), f"    while ({holds}) {{")


def _arguments(pointers: Pointers, layer: Layer) -> list[str]:
    arguments = []
    for param, argument in zip(layer.kernel.params, layer.arguments, strict=True):
        match argument:
            case ValueArg(value):
                arguments.append(pointers.of(value, param.dtype, const=param.const))
            case ConstantArg(name):
                arguments.append(pointers.constant(name, param.dtype))
            case ScratchArg():
                arguments.append(pointers.scratch(layer, param.dtype, argument.at, argument.each))
            case _:
                assert_never(argument)
    return arguments


def _results(pointers: Pointers, layer: Layer) -> tuple[Result, ...]:
    shown = [v for v in layer.node.outputs if pointers.has(v)]
    return tuple(Result(pointers.of(v, v.dtype, const=True), pointers.extent(v)) for v in shown)


def _call(pointers: Pointers, index: int, layer: Layer, name: str) -> Call:
    unit = accelerator_of(layer.node.op)
    op = unit or layer.node.op.NAME
    source = f"{op}: {layer.node.source}" if layer.node.source else op
    results = _results(pointers, layer) if layer.kernel.wait is None else (Result("NULL", 0),)
    split = layer.kernel.split
    told = [*layer.kernel.sizes, *([] if split is None else ["part", "frame->step"][: 1 + (split.steps > 1)])]
    text = wrapped(f"{identifier(layer.kernel.name)}(", [*_arguments(pointers, layer), *told])
    failure = f"{identifier(name).upper()}_ACCELERATOR_FAILED" if unit else "error"
    call = Call(index, comment(source), text, layer.kernel.fallible, results, failure)
    if split is None:
        return call
    sizes = layer.kernel.sizes
    names = (*_declared(identifier(name), text), *(f"const ptrdiff_t {size} = frame->{size};" for size in sizes))
    return replace(call, task=f"{identifier(name)}_layer_{index}", steps=split.steps, names=names, sizes=sizes)


def _sizes_found(pointers: Pointers, program: Program, layer: Layer) -> tuple[str, ...]:
    """Sizes that follow from the data of this layer."""
    counts = {value: name for name, value in program.graph.counts.items()}
    return tuple(
        f"{SIZE}{counts[v]} = (ptrdiff_t)*{pointers.of(v, v.dtype, const=True)};" for v in layer.node.outputs if v in counts
    )


def _declared(name: str, text: str) -> tuple[str, ...]:
    """Of the names that calls use, those in this one."""
    words = set(re.findall(r"\w+", text))
    known = {
        "arena": "unsigned char *const arena = frame->arena;",
        "arenas": f"const {name}_arenas *const arenas = frame->arenas;",
        "in": f"const {name}_inputs *const in = frame->in;",
        "out": f"{name}_outputs *const out = frame->out;",
    }
    return tuple(line for word, line in known.items() if word in words)


def output_copies(program: Program) -> list[Copy]:
    """Outputs that no layer wrote in place: an input or a constant handed through, one tensor as two outputs."""
    pointers = Pointers(program)
    copies = []
    for index, (value, field) in enumerate(zip(program.graph.outputs, output_fields(program.graph), strict=True)):
        if program.placement.of(value) == Address(OUTPUT, index):
            continue
        copies.append(_copy(pointers, f"output {field} is {value.name}", f"out->{field}", value))
    return copies


def _copy(pointers: Pointers, comment: str, to: str, value: Value) -> Copy:
    if pointers.reading and value.is_const:
        return Copy(comment, to, pointers.offset(raw_constant_name(value)), value.type.bytes, reads=True)
    return Copy(comment, to, pointers.of(value, value.dtype, const=True), size_of(value))


def state_copies(program: Program) -> list[Copy]:
    """What this step leaves for the next one."""
    pointers = Pointers(program)
    return [
        _copy(pointers, f"state {s.input.name} of the next step", pointers.of(s.input, s.input.dtype, const=False), s.output)
        for s in state_order(program)
    ]


def state_order(program: Program) -> list[State]:
    """States in the order in which they are copied: one that another state reads, before it is overwritten."""
    at = program.placement.of
    waiting = [s for s in program.graph.states if at(s.output) is None or at(s.output) != at(s.input)]
    ordered: list[State] = []
    while waiting:
        ready = [s for s in waiting if not any(other.output is s.input for other in waiting if other is not s)]
        if not ready:
            names = ", ".join(f"`{s.input.name}`" for s in waiting)
            raise UserError("state-cycle", f"the states {names} exchange their values within one step")
        ordered += ready
        waiting = [s for s in waiting if s not in ready]
    return ordered


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
        value, address = state.input, program.placement.of(state.input)
        if not state.fill or address is None:
            continue
        if value.dtype in (DType.F16, DType.BF16):
            raise UserError("unsupported-type", f"the state `{value.name}` of type {value.dtype.value} does not start as zeros")
        text = f"{float(state.fill)!r}{'f' if value.dtype is DType.F32 else ''}" if value.dtype.is_float else str(int(state.fill))
        fills.append(Fill(f"state {value.name}", C_TYPES[value.dtype], address.offset, value.type.elements, text))
    return fills
