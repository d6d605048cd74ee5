"""`compile --verify`: no pass and no kernel changes a result, on this very model.

Passes: the graph is evaluated in numpy on some inputs before the first pass and after each that changed something. Integers have to
stay equal; floats have to stay within the rounding errors that the graph allows (`run/error_bounds.py`), or within the tolerance of
`validate` where an operator has no rule for them. Passes that are there to change numbers or inputs start anew.

Kernels: the loop IR of each layer is interpreted at the addresses of the plan, on the inputs that the layers before it give, and
compared with the meaning of its operator; integer layers once more with the least and largest numbers of their types. A layer of
more than MOST_PRODUCTS products is not interpreted; a note lists those layers.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from intaglio.errors import OurFault, counted, quoted
from intaglio.ir.graph import Array, Graph, Node, Value
from intaglio.ir.operator import BadOperator
from intaglio.ir.sizes import pinned
from intaglio.ir.types import DType, TensorType
from intaglio.kernels.interpret import interpret
from intaglio.kernels.program import ConstantArg, Layer, Program, ScratchArg, ValueArg
from intaglio.ops.evaluate import LongLoop, evaluate_graph, lacks_a_size
from intaglio.package.vectors import KINDS, OTHER_SIZES, random_inputs
from intaglio.run.compare import compare
from intaglio.run.error_bounds import Known, error_bounds, outside
from intaglio.run.expect import compared_with
from intaglio.run.machine import Machine

MOST_PRODUCTS = 2_000_000
NEW_NUMBERS = frozenset(["narrow_weights", "store_halves", "stream", "rows_of_pixels", "offload"])  # these change them, as asked
EXTREMES = (DType.I8, DType.U8, DType.I16)
SHOWN = 5
LONGEST_SECONDS = 20.0  # of a loop that may not end for random numbers


@dataclass(frozen=True, slots=True)
class Feed:
    """Inputs by name, and the sizes of the caller that they have."""

    inputs: dict[str, Array]
    sizes: dict[str, int]


@dataclass(slots=True)
class Verifier:
    """One for each compile; `begin` starts anew."""

    feeds: list[Feed] = field(default_factory=list)
    expected: list[list[Array]] = field(default_factory=list)
    bounds: list[dict[str, Known] | None] = field(default_factory=list)
    outputs: list[Value] = field(default_factory=list)
    passes: int = 0
    runs: int = 0
    seconds: float = 0.0
    seen: _Parts | None = None
    layers: int = 0
    at_extremes: int = 0
    kernel_seconds: float = 0.0
    left_out: list[str] = field(default_factory=list)
    checked: set[str] = field(default_factory=set)

    def begin(self, graph: Graph) -> None:
        start = time.perf_counter()
        self.feeds, self.expected, self.outputs = [], [], list(graph.outputs)
        for feed in inputs_of(graph):
            if (results := _results(graph, feed)) is not None:
                self.feeds.append(feed)
                self.expected.append(results)
        self.bounds = [_bounds_at(graph, feed) for feed in self.feeds]
        self.seen = _Parts(graph)
        self.seconds += time.perf_counter() - start

    def __call__(self, name: str, graph: Graph) -> None:
        """After a pass."""
        if not self.outputs or name in NEW_NUMBERS:
            self.begin(graph)
            return
        now = _Parts(graph)
        if self.seen is not None and now.same(self.seen):
            return
        self.seen = now
        start = time.perf_counter()
        for feed, expected, bounds in zip(self.feeds, self.expected, self.bounds, strict=True):
            results = _results(graph, feed)
            if results is None or len(results) != len(expected):
                raise _fault(f"the pass `{name}` left a graph that cannot be computed", name)
            for value, want, got in zip(self.outputs, expected, results, strict=True):
                if told := _difference(value, want, got, None if bounds is None else bounds.get(value.name)):
                    raise _fault(f"the pass `{name}` changed the output {quoted(value.name)}: {told}", name)
            self.runs += 1
        self.passes += 1
        self.seconds += time.perf_counter() - start

    def kernels(self, program: Program) -> None:
        start = time.perf_counter()
        self.at_extremes = 0
        self.left_out, self.checked = [], set()
        for number, feed in enumerate(inputs_of(program.graph)):
            if _results(program.graph, feed) is not None:
                _run_layers(program, feed, self, count=number == 0)
        self.layers = len(self.checked)
        for layer in program.layers:
            self.at_extremes += _at_extremes(program, layer)
        self.kernel_seconds = time.perf_counter() - start

    def told(self) -> str:
        left = ""
        if self.left_out:
            more = f" and {len(self.left_out) - SHOWN} more" if len(self.left_out) > SHOWN else ""
            left = f"; NOT interpreted, over {MOST_PRODUCTS:,} products or not of ours: {', '.join(self.left_out[:SHOWN])}{more}"
        inputs = counted(len(self.feeds), "input")
        if not self.feeds:
            return "NOT verified: the model takes none of the inputs that were drawn at random"
        return (
            f"verified: {counted(self.passes, 'change')} by passes on {inputs} ({self.seconds:.1f} s); "
            f"{counted(self.layers, 'kernel')} by interpretation, {self.at_extremes} of integers at their extremes too "
            f"({self.kernel_seconds:.1f} s){left}"
        )


def inputs_of(graph: Graph) -> Iterator[Feed]:
    """Those of the package's test vectors; and the least and largest numbers, mixed. Where sizes have a range: at the largest, the
    least, and one between."""
    ranges = graph.given_ranges()
    shares: list[tuple[float, str]] = [(1.0, kind) for kind in KINDS[:2]]
    for share, kind in shares + [(share, KINDS[0]) for share in OTHER_SIZES[:2] if ranges]:
        sizes = {name: span.at(share) for name, span in ranges.items()}
        arrays = random_inputs([pinned(v.type, sizes) for v in graph.inputs], 0, kind)
        known = compared_with(graph)
        pairs = zip(graph.inputs, arrays, strict=True)
        yield Feed({v.name: np.full_like(a, known[n][0]) if (n := v.origin or v.name) in known else a for v, a in pairs}, sizes)
    rng = np.random.default_rng(1)
    sizes = {name: span.high for name, span in ranges.items()}
    yield Feed({v.name: _extreme(pinned(v.type, sizes), rng) for v in graph.inputs}, sizes)


def _bounds_at(graph: Graph, feed: Feed) -> dict[str, Known] | None:
    if graph.counts:
        return None
    return error_bounds(graph.pinned(feed.sizes) if feed.sizes else graph, feed.inputs)


def _extreme(type: TensorType, rng: np.random.Generator) -> Array:
    dtype = type.dtype
    if dtype in EXTREMES:
        info = np.iinfo(dtype.numpy)
        return rng.choice(np.array([info.min, info.max]), type.shape).astype(dtype.numpy)
    if dtype is DType.F32:  # quantised layers behind it saturate
        return np.asarray(rng.choice(np.array([-100.0, 100.0]), type.shape), np.float32)
    return random_inputs([type], 1, "small")[0]


def _results(graph: Graph, feed: Feed) -> list[Array] | None:
    """None where the graph does not take such an input: an index out of range, a branch without a result; a loop does not end."""
    try:
        with np.errstate(all="ignore"):
            found = evaluate_graph(graph, feed.inputs, sizes=feed.sizes, seconds=LONGEST_SECONDS)
    except (LongLoop, BadOperator, KeyError, IndexError, ValueError, ArithmeticError):
        return None
    return [found[v.name] if v.data is None else v.data for v in graph.outputs]


class _Parts:
    """What a pass can change. The objects are kept alive: no later one has the same identity."""

    def __init__(self, graph: Graph) -> None:
        nodes = [part for n in graph.nodes for part in (n.op, *n.inputs, None, *n.outputs, n.when)]
        self.held: list[object] = [*nodes, *graph.outputs, *(v.data for v in graph.values())]

    def same(self, other: _Parts) -> bool:
        return len(self.held) == len(other.held) and all(a is b for a, b in zip(self.held, other.held, strict=True))


def _difference(value: Value, want: Array, got: Array, bound: Known | None) -> str:
    if bound is not None and np.size(got) == bound.value.size:
        if count := outside(got, bound):
            return f"{counted(count, 'element')} of {bound.value.size} beyond the largest rounding error"
        return ""
    row = compare(value.name, np.asarray(got), np.asarray(want), value.dtype)
    if row.ok:
        return ""
    return f"{counted(row.mismatches, 'element')} differ" if not value.dtype.is_float else f"by up to {row.max_abs:.3g}"


def _fault(what: str, name: str = "") -> OurFault:
    hint = "please report it with the model; nothing was written"
    return OurFault("miscompiled", what, hint=f"{hint}. `--disable-pass {name}` compiles without that pass" if name else hint)


# Kernels --------------------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Each:
    """Compares each layer with its operator, on the operands that are in memory."""

    verifier: Verifier
    count: bool
    operands: list[Array | None] = field(default_factory=list)

    def instead(self, machine: Machine, layer: Layer) -> bool:
        node = layer.node
        self.operands = [None if v is None else machine.value(v) for v in node.inputs]
        if layer.macs <= MOST_PRODUCTS and layer.kernel.body and not layer.kernel.includes:
            return False
        nothing = not layer.kernel.body and all(v.type.elements == 0 for v in node.outputs)
        if self.count and not nothing and f"`{layer.name}`" not in self.verifier.left_out:
            self.verifier.left_out.append(f"`{layer.name}`")
        for value, array in zip(node.outputs, _meant(node, self.operands, machine.known), strict=True):
            machine.put(value, array)
        return True

    def after(self, machine: Machine, layer: Layer) -> None:
        if layer.node.op.LOOP:  # copies what a loop carries: the layers of the next turn read it
            return
        if lacks_a_size(layer.node, machine.program.graph.counts, machine.known):
            return
        self.verifier.checked.add(layer.name)
        for value, want in zip(layer.node.outputs, _meant(layer.node, self.operands, machine.known), strict=True):
            if told := _difference(value, want, machine.value(value), None):
                what = f"the kernel `{layer.kernel.name}` of layer {quoted(layer.name)} ({layer.node.op.NAME}) is wrong: {told}"
                raise _fault(what)


def _meant(node: Node, operands: list[Array | None], sizes: Mapping[str, int]) -> list[Array]:
    types = [None if v is None else pinned(v.type, sizes) for v in node.inputs]
    with np.errstate(all="ignore"):
        return [np.asarray(a) for a in pinned(node.op, sizes).evaluate(operands, types)]


def _run_layers(program: Program, feed: Feed, verifier: Verifier, *, count: bool) -> None:
    try:
        results = Machine(program, _Each(verifier, count), feed.sizes).run(feed.inputs)
    except (ArithmeticError, IndexError) as error:
        raise _fault(str(error)) from None
    expected = _results(program.graph, feed)
    if program.graph.states or expected is None:
        return
    for value, want in zip(program.graph.outputs, expected, strict=True):
        if not value.dtype.is_float and (told := _difference(value, want, results[value.name], None)):
            raise _fault(f"the plan of memory changes the output {quoted(value.name)}: {told}")


def _at_extremes(program: Program, layer: Layer) -> bool:
    """An integer layer by itself, on the least and largest numbers. False: it is not one, or too large."""
    node, kernel = layer.node, layer.kernel
    moving = [v for v in node.inputs if v is not None and v.data is None]
    pitched = program.storage_pitches()
    if not moving or any(v.dtype not in EXTREMES or v in pitched for v in (*moving, *node.outputs)):
        return False
    if layer.macs > MOST_PRODUCTS or not kernel.body or kernel.includes or node.when is not None or kernel.split is not None:
        return False
    constants = {c.name: np.ascontiguousarray(c.data).reshape(-1) for c in program.constants}
    rng = np.random.default_rng(2)
    sizes = {} if program.graph.bounds is None else {name: s.high for name, s in program.graph.bounds.ranges.items()}
    for kind in ("least", "largest", "mixed"):
        given = {v: _filled(pinned(v.type, sizes), kind, rng) for v in moving}
        memory: list[Array] = []
        made: dict[Value, Array] = {}
        for argument, param in zip(layer.arguments, kernel.params, strict=True):
            match argument:
                case ConstantArg():
                    memory.append(constants[argument.name])
                case ScratchArg():
                    memory.append(np.zeros(argument.bytes // param.dtype.bytes, param.dtype.numpy))
                case ValueArg() if argument.value in given:
                    memory.append(given[argument.value].reshape(-1).copy())
                case ValueArg():
                    empty = np.zeros(pinned(argument.value.type, sizes).elements, argument.value.dtype.numpy)
                    memory.append(made.setdefault(argument.value, empty))
        if not set(node.outputs) <= set(made):  # views, and results in other places
            return False
        operands = [None if v is None else v.data if v.data is not None else given[v] for v in node.inputs]
        if interpret(kernel, memory, sizes) != 0:
            continue
        for value, want in zip(node.outputs, _meant(node, operands, sizes), strict=True):
            if told := _difference(value, want, made[value].reshape(pinned(value.shape, sizes)), None):
                raise _fault(f"the kernel `{kernel.name}` of layer {quoted(layer.name)} is wrong on the {kind} numbers: {told}")
    return True


def _filled(type: TensorType, kind: str, rng: np.random.Generator) -> Array:
    info = np.iinfo(type.dtype.numpy)
    drawn = {"least": np.full(type.shape, info.min), "largest": np.full(type.shape, info.max)}
    mixed = rng.choice(np.array([info.min, info.max]), type.shape)
    return np.asarray(drawn.get(kind, mixed)).astype(type.dtype.numpy)
