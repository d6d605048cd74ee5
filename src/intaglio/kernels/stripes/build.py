"""The kernels of a stripe. A layer has one for the rows in the middle, and one for each edge where the padding differs:

    conv 3x3, rows=2       rows 0..1      2..93      94..95        of 96
    reads                  0..2 + 1 pad   4 rows     3 rows + 1 pad

Each is the layer's own operator on a few rows, lowered like any other node, so it computes the same numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Set
from dataclasses import dataclass

from intaglio.errors import ModelError, quoted
from intaglio.ir.graph import Graph, Node, Value
from intaglio.ir.program import Argument, scratch_of
from intaglio.ir.sizes import Undecided, most
from intaglio.ir.stripes import Action, Rows, Stripe, StripeEnd, StripeSpec, Window
from intaglio.kernels.loop import Kernel
from intaglio.kernels.program import Layer
from intaglio.kernels.stripes.schedule import TAKE, Fired, Geometry, Schedule, schedule
from intaglio.ops.rows import Need, NoRows, access_of, cut, row_bytes, with_rows

AXIS = 1
MOST_ACTIONS = 255

Lower = Callable[[Node, dict[Value, Value], object], tuple[Kernel, tuple[Argument, ...], str]]


@dataclass(frozen=True, slots=True)
class Cut:
    """What makes a kernel of a layer differ from another: rows of the result, rows and padding of each operand."""

    node: int
    count: int
    needs: tuple[tuple[int, int, int] | None, ...]


def nodes_between(graph: Graph, spec: StripeSpec) -> list[Node]:
    made = {out.name: n for n, node in enumerate(graph.nodes) for out in node.outputs}
    if spec.first not in made or spec.last not in made or made[spec.first] > made[spec.last]:
        raise ModelError(
            "bad-stripe", f"`{spec}` names no layers in order", where=graph.file, hint="name two layers by their results"
        )
    return graph.nodes[made[spec.first] : made[spec.last] + 1]


def starts_of(graph: Graph, stripes: Iterable[StripeSpec]) -> dict[Node, StripeSpec]:
    """The first node of each stripe. Every layer is in at most one of them."""
    starts: dict[Node, StripeSpec] = {}
    taken: dict[Node, StripeSpec] = {}
    for spec in stripes:
        nodes = nodes_between(graph, spec)
        starts[nodes[0]] = spec
        for node in nodes:
            if node in taken:
                text = f"{quoted(node.output.name)} is in two stripes: `{taken[node]}` and `{spec}`"
                raise ModelError("bad-stripe", text, where=graph.file, hint="delete one of the lines, or let them end earlier")
            taken[node] = spec
    return starts


def kept_values(graph: Graph, nodes: list[Node]) -> set[Value]:
    """What is made here and read elsewhere."""
    inside = set(nodes)
    outside = {v for node in graph.nodes if node not in inside for v in node.operands()}
    outside |= {*graph.outputs, *(s.output for s in graph.states)}
    return {out for node in nodes for out in node.outputs if out in outside}


def schedule_of(
    graph: Graph, spec: StripeSpec, views: Set[Node], geometry: Geometry | None = None, *, ends: bool = True
) -> Schedule:
    """Raises NoRows."""
    nodes = nodes_between(graph, spec)
    highest = max((most(node.output.shape[AXIS]) for node in nodes if node.output.type.rank > AXIS), default=0)
    if spec.rows > highest:
        raise NoRows(f"{spec.rows} rows at a time, where layers have at most {highest}")
    if any(node in views for node in nodes):
        raise NoRows("there is a view among its layers")
    if any(out in graph.counts.values() for node in nodes for out in node.outputs):
        raise NoRows("a size follows from what one of its layers makes")
    fed = fed_input(graph, nodes) if spec.fed else None
    kept = kept_values(graph, nodes)
    try:
        return schedule(nodes, kept, spec.rows, axis=AXIS, up=spec.up, fed=fed, geometry=geometry, ends=ends)
    except Undecided as reason:
        raise NoRows(str(reason)) from None


def fed_input(graph: Graph, nodes: list[Node]) -> Value:
    states = {s.input for s in graph.states}
    inputs = [v for v in graph.inputs if v not in states]
    if len(inputs) != 1:
        raise NoRows(f"rows are fed to networks with one input, this one has {len(inputs)}")
    inside = set(nodes)
    if any(inputs[0] in node.operands() for node in graph.nodes if node not in inside) or inputs[0] in graph.outputs:
        raise NoRows(f"`{inputs[0].name}` is read as a whole later")
    return inputs[0]


class StripeBuilder:
    """Collects layers and actions of one stripe. `lower` builds a kernel for a node of a few rows."""

    def __init__(self, graph: Graph, spec: StripeSpec, views: Set[Node], first_layer: int, lower: Lower) -> None:
        self.graph, self.spec, self.base, self.lower = graph, spec, first_layer, lower
        try:
            self.found = schedule_of(graph, spec, views)
        except NoRows as error:
            hint = "`rows` and the layers of a stripe can be edited; without the line, its layers run as a whole"
            raise ModelError("bad-stripe", f"`{spec}`: {error}", where=graph.file, hint=hint) from None
        self.kernels: dict[Cut, tuple[Kernel, tuple[Argument, ...], str]] = {}
        self.uses: dict[Cut, int] = {}
        self.chosen: dict[str, str] = {}  # for each layer, the name of its kernel
        self.times: dict[int, int] = {}  # how often each layer was at work so far
        self.produced: dict[Value, int] = {}
        self.actions: dict[tuple[object, ...], Action[Kernel, Argument]] = {}
        self.numbers: dict[tuple[object, ...], int] = {}
        self.order: list[int] = []
        self.moved = 0

    def build(self) -> tuple[list[Layer], Stripe[Kernel, Argument]]:
        found, axis = self.found, self.found.axis
        self.order = self._steps(found.fired)
        moved = self.moved
        ends = {}
        for number, end in found.ends.items():
            self.times = {n: -(-done // self.spec.rows) for n, done in enumerate(end.done)}
            self.produced = {node.output: done for node, done in zip(found.nodes, end.done, strict=True)}
            ends[number] = StripeEnd(end.upto, tuple(self._steps(end.fired)))
        layers = [self._layer(n, node) for n, node in enumerate(found.nodes)]
        windows = {
            value: Window(rows, most(row_bytes(value, axis)), self.base + found.alive[value][0], self.base + found.alive[value][1])
            for value, rows in found.windows.items()
        }
        stripe: Stripe[Kernel, Argument] = Stripe(
            self.spec, self.base, self.base + len(layers) - 1, axis, windows, tuple(self.actions.values()), tuple(self.order),
            found.apart, moved, found.size, ends,
        )  # fmt: skip
        return layers, stripe

    def _steps(self, every: Iterable[Fired]) -> list[int]:
        """Numbers of actions."""
        steps = []
        for fired in every:
            key, action = self._action(fired)
            if key not in self.actions:
                self.actions[key] = action
                self.numbers[key] = len(self.numbers)
                if len(self.actions) > MOST_ACTIONS:
                    text = f"`{self.spec}` has more than {MOST_ACTIONS} different steps"
                    raise ModelError("bad-stripe", text, where=self.graph.file, hint="fewer layers, or other `rows`")
            steps.append(self.numbers[key])
            self.times[fired.node] = self.times.get(fired.node, 0) + 1
        return steps

    def _layer(self, n: int, node: Node) -> Layer:
        """Its kernel is the one that is used most."""
        mine = [each for each in self.kernels if each.node == n]
        kernel, arguments, self.chosen[node.output.name] = self.kernels[max(mine, key=lambda each: self.uses[each])]
        types = [None if v is None else v.type for v in node.inputs]
        layer = Layer(node.output.name, node, kernel, arguments, most(node.op.macs(types, node.output.type)))
        layer.striped_scratch = max(scratch_of(self.kernels[each][1]) for each in mine)
        return layer

    def _action(self, fired: Fired) -> tuple[tuple[object, ...], Action[Kernel, Argument]]:
        if fired.node == TAKE:
            assert self.found.up is False or self.spec.fed
            taken = next(v for v in self.found.windows if v not in {node.output for node in self.found.nodes})
            return self._written(fired, taken, None, (), {})
        node = self.found.nodes[fired.node]
        kernel, arguments, _ = self._kernel(fired)
        rows: dict[Value, Rows] = {}
        for value, wanted, access in zip(node.inputs, fired.needs, access_of(node, self.found.axis), strict=True):
            if value is None or wanted is None or access is None:
                continue
            rows[value] = self._read(fired, value, wanted, access.stride)
        return self._written(fired, node.output, kernel, arguments, rows)

    def _read(self, fired: Fired, value: Value, wanted: Need, stride: int) -> Rows:
        low, high = wanted.low, wanted.high
        size = row_bytes(value, self.found.axis)
        if value in self.found.windows:
            made = self.produced[value]
            total = self.found.rows_of(value)
            at = made - (total - low) if self.found.up else self.found.windows[value] - (made - low)
            assert at >= 0 and at + high - low <= self.found.windows[value]
            return Rows(value, at * size, 0, high - low, wanted.top, wanted.bottom)
        return self._whole(fired, value, low, high - low, stride, wanted.top, wanted.bottom)

    def _whole(self, fired: Fired, value: Value, low: int, count: int, stride: int, top: int = 0, bottom: int = 0) -> Rows:
        size = row_bytes(value, self.found.axis)
        step = self.spec.rows * stride * (-1 if self.found.up else 1)
        first = low - step * self.times.get(fired.node, 0)
        return Rows(value, first * size, step * size, count, top, bottom)

    def _written(
        self, fired: Fired, value: Value, kernel: Kernel | None, arguments: tuple[Argument, ...], rows: dict[Value, Rows]
    ) -> tuple[tuple[object, ...], Action[Kernel, Argument]]:
        size, roll = row_bytes(value, self.found.axis), 0
        if value in self.found.windows:
            kept = self.found.windows[value]
            at = 0 if self.found.up else (kept - fired.count) * size
            rows[value] = Rows(value, at, 0, fired.count)
            roll = fired.count * size if kept > fired.count else 0
            self.moved += most((kept - fired.count) * size) if roll else 0
            self.produced[value] = self.produced.get(value, 0) + fired.count
        else:
            rows[value] = self._whole(fired, value, fired.first, fired.count, 1)
        layer = self.base + fired.node if fired.node != TAKE else TAKE
        key = (_cut(fired), roll, *((v, r.at, r.step) for v, r in rows.items()))
        about = f"{fired.count} of {value.shape[self.found.axis]} rows of {value.name}"
        return key, Action(layer, kernel, arguments, rows, roll, about)

    def _kernel(self, fired: Fired) -> tuple[Kernel, tuple[Argument, ...], str]:
        key = _cut(fired)
        if key not in self.kernels:
            node, axis = self.found.nodes[fired.node], self.found.axis
            originals: dict[Value, Value] = {}
            inputs: list[Value | None] = []
            pads = (0, 0)
            for n, (value, wanted) in enumerate(zip(node.inputs, fired.needs, strict=True)):
                if value is not None and wanted is not None:
                    few = next(
                        (f for f, v in originals.items() if v is value and f.shape[axis] == wanted.high - wanted.low), None
                    )
                    few = few or Value(value.name, with_rows(value.type, axis, wanted.high - wanted.low), value.origin)
                    originals[few] = value
                    inputs.append(few)
                    pads = (wanted.top, wanted.bottom) if n == 0 else pads
                else:
                    inputs.append(value)
            out = Value(node.output.name, with_rows(node.output.type, axis, fired.count), node.output.origin)
            originals[out] = node.output
            op = cut(node.op, axis, fired.count, *pads)
            self.kernels[key] = self.lower(Node(op, inputs, [out], node.source), originals, (node, key.count, key.needs))
        self.uses[key] = self.uses.get(key, 0) + 1
        return self.kernels[key]


def _cut(fired: Fired) -> Cut:
    return Cut(fired.node, fired.count, tuple(None if n is None else (n.high - n.low, n.top, n.bottom) for n in fired.needs))

