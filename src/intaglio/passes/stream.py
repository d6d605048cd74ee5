"""A model over a sliding window becomes one that takes the next frames alone and keeps what it needs of those before.

    y = conv(x, w)                     x: 30 frames, kernel 3, no padding         (28 rows, 27 of them as in the step before)

    state kept = both                  kept: 3 frames
    both = roll(kept, x)               x: 1 frame, which comes in where the oldest falls out
    y = conv(both, w)                  1 row, the newest one

Every value along the axis holds the newest rows of a step, `hop` frames further; the last row is that of the window's end. A layer
that needs the whole window (a dense layer, a mean over it) gets it from rows that are kept. What pads at the start of the window
and nowhere else (causal), and what walks along time (RNNs), goes on from step to step instead: then the results are those of the
model on everything since the reset. Where layers in front of it need some frames for their first row, it starts after these: steps
are counted until then.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

import numpy as np

from intaglio.errors import UserError, quoted
from intaglio.ir.graph import Graph, Node, State, Value
from intaglio.ir.operator import BadOperator, Op
from intaglio.ir.types import DType, TensorType
from intaglio.ops.base import Elementwise
from intaglio.ops.binary import Add, GreaterEqual, Min, Where
from intaglio.ops.control import Copy
from intaglio.ops.move import Concat, Pad, Reshape, Roll, Slice, Transpose
from intaglio.ops.quantised import Lookup
from intaglio.ops.quantised_recurrent import QLstm
from intaglio.ops.recurrent import Recurrent
from intaglio.passes.context import Context
from intaglio.passes.stream_rules import Along, NotAlong, along

HINT = "streams take convolutions and pooling without padding along the axis, causal ones, RNNs, and layers that work on each frame"
LIGHT = (Elementwise, Copy, Lookup, Concat, Pad, Reshape, Slice, Transpose)


@dataclass(frozen=True, slots=True)
class Stream:
    """The step graph. A result is that of a window once `warmup` steps have been taken; `goes_on` names the layers that remember
    more than the window; `whole` the layer from which on everything is computed anew for each step, and why."""

    graph: Graph
    axis: int
    hop: int  # frames in a step
    window: int  # frames
    goes_on: tuple[str, ...] = ()
    whole: str = ""
    outputs: tuple[int | None, ...] = ()  # the axis of frames in each output, where it has one

    @property
    def warmup(self) -> int:
        return -(-self.window // self.hop)


def stream(graph: Graph, context: Context) -> Graph:
    """A model over a window becomes one that takes the next frames alone.

        y = conv(x, w)        ->      both = roll(kept, x)
                                      y = conv(both, w)

    Refused where a layer needs the whole window of what remembers more than that."""
    assert context.stream is not None
    made = stream_along(graph, context.stream)
    for text in _notes(made):
        context.report(text)
    context.report(made)
    return made.graph


def stream_along(graph: Graph, axis: int) -> Stream:
    """The graph for a step along this axis of its input."""
    states = {s.input for s in graph.states}
    given = [v for v in graph.inputs if v not in states]
    if len(given) != 1:
        raise UserError("bad-stream", f"`{graph.name}` has {len(given)} inputs; a stream has one", hint="omit `--stream`")
    source = given[0]
    if not -source.type.rank <= axis < source.type.rank:
        what = f"the input {quoted(source.name)} has {source.type.rank} axes, so it has no axis {axis}"
        raise UserError("bad-stream", what, hint=f"its shape is {list(source.shape)}; axes count from 0")
    if source.shape[axis] < 2:
        what = f"axis {axis} of the input {quoted(source.name)} has only one frame, so there is no sliding window"
        raise UserError("bad-stream", what, hint=f"its shape is {list(source.shape)}; axes count from 0")
    return _Steps(graph, source, axis % source.type.rank).made()


@dataclass(slots=True)
class _Steps:
    graph: Graph
    source: Value
    axis: int
    found: dict[Node, Along] = field(default_factory=dict)
    axes: dict[Value, int] = field(default_factory=dict)
    strides: dict[Value, int] = field(default_factory=dict)  # frames per row
    new: dict[Value, Value] = field(default_factory=dict)  # in the step graph: the newest rows, or the value itself
    windows: dict[Value, Value] = field(default_factory=dict)  # all rows of a window
    unbounded: set[Value] = field(default_factory=set)  # after a causal layer or a RNN
    goes_on: list[str] = field(default_factory=list)
    whole: str = ""
    hop: int = 1
    taken: Value | None = None  # the number of steps before this one, as far as it is needed
    waits: int = 0  # how far that is
    out: Graph = field(default_factory=lambda: Graph("stream"))

    def made(self) -> Stream:
        self._find()
        graph = self.graph
        self.hop = math.lcm(*self.strides.values())
        if self.goes_on and self.source.shape[self.axis] % self.hop:
            what = f"a step takes {self.hop} frames, and {self.source.shape[self.axis]} frames are not a whole number of steps"
            hint = f"`{self.goes_on[0]}` keeps its state from step to step, so the model must begin with a step"
            raise UserError("bad-stream", what, hint=hint)
        self.out = replace(
            graph,
            inputs=[],
            outputs=[],
            nodes=[],
            states=[],
            names=set(graph.names),
            output_names=list(graph.output_names),
        )
        for value in graph.inputs:
            copy = Value(value.name, self._few(value) if value is self.source else value.type, value.origin)
            self.new[value] = copy
            self.out.inputs.append(copy)
        for node in graph.nodes:
            self._step(node)
        self._count()
        for state in graph.states:
            self.out.states.append(State(self.new[state.input], self._all(state.output, None), state.fill))
        self.out.outputs = [self.new[v] if v in self.axes else self._known(v) for v in graph.outputs]
        axes = tuple(self.axes.get(v) for v in graph.outputs)
        return Stream(self.out, self.axis, self.hop, self.source.shape[self.axis], tuple(self.goes_on), self.whole, axes)

    # Which layers can ---------------------------------------------------------------------------------------------------------

    def _find(self) -> None:
        self.axes[self.source], self.strides[self.source] = self.axis, 1
        first_reason = ""
        carried = _carried(self.graph)
        for node in self.graph.nodes:
            if not any(v in self.axes for v in node.operands()):
                continue
            try:
                rule = along(node, self.axes, carried)
                self._same_pace(node)
            except NotAlong as error:
                first_reason = first_reason or f"{_name(node)}: {error}"
                continue
            self.found[node] = rule
            pace = max(self.strides[v] for v in node.operands() if v in self.axes) * rule.stride
            for out, axis in zip(node.outputs, rule.axes, strict=True):
                if axis is not None:
                    self.axes[out], self.strides[out] = axis, pace
            if rule.goes_on or any(v in self.unbounded for v in node.operands()):
                self.unbounded |= set(node.outputs)
            if rule.goes_on:
                self.goes_on.append(_short(node))
        self.whole = first_reason
        if not self.found or (first_reason and all(isinstance(n.op, LIGHT) for n in self.found)):  # nothing is saved
            what = f"`{self.graph.name}` cannot be streamed along axis {self.axis}: {first_reason or 'no layer reads the input'}"
            raise UserError("bad-stream", what, hint=HINT)

    def _same_pace(self, node: Node) -> None:
        if len({self.strides[v] for v in node.operands() if v in self.axes}) != 1:
            raise NotAlong("its operands have different numbers of frames per row")

    # The step graph -----------------------------------------------------------------------------------------------------------

    def _few(self, value: Value) -> TensorType:
        axis = self.axes[value]
        return _with_rows(value.type, axis, self.hop // self.strides[value])

    def _known(self, value: Value) -> Value:
        return value if value.is_const else self.new[value]

    def _step(self, node: Node) -> None:
        rule = self.found.get(node)
        if rule is None:
            inputs = [None if v is None else self._all(v, node) for v in node.inputs]
            when = None if node.when is None else self._all(node.when, node)
            outs = [Value(v.name, v.type, v.origin) for v in node.outputs]
            self.out.nodes.append(Node(node.op, inputs, outs, node.source, when=when))
            self.new.update(zip(node.outputs, outs, strict=True))
            return
        inputs = []
        for n, value in enumerate(node.inputs):
            if value is None or value not in self.axes:
                inputs.append(None if value is None else self._known(value))
            else:
                inputs.append(self._rows(value, rule if n == 0 else Along(rule.axes)))
        if isinstance(node.op, (Recurrent, QLstm)):
            self._remember(node, inputs)
            return
        op = rule.op_for(node, self.hop // self.strides[node.output]) if node.output in self.axes else node.op
        self._add(node, op, inputs)

    def _add(self, node: Node, op: Op, inputs: list[Value | None]) -> None:
        try:
            types = op.infer(*[None if v is None else v.type for v in inputs])
        except BadOperator as error:
            raise UserError("bad-stream", f"{node!r} cannot be made for a step: {error.reason}", hint=HINT) from None
        outs = []
        for value, type_ in zip(node.outputs, types, strict=True):
            outs.append(Value(value.name, replace(value.type, shape=type_.shape), value.origin))
        self.out.nodes.append(Node(op, inputs, outs, node.source))
        self.new.update(zip(node.outputs, outs, strict=True))

    def _remember(self, node: Node, inputs: list[Value | None]) -> None:
        """A RNN starts a step from the state that the one before left."""
        x = node.inputs[0]
        assert x is not None
        if self._late(x) % (self.hop // self.strides[x]):
            what = f"the first row for {_name(node)} comes in the middle of a step of {self.hop} frames"
            raise UserError("bad-stream", what, hint=HINT)
        inputs += [None] * (10 - len(inputs))
        made: list[tuple[Value, float]] = []
        for n, final in enumerate(node.outputs[1:], 5):
            start = inputs[n]
            if start is not None and start.data is None:  # the model has a state for it
                continue
            fill = 0.0 if start is None or start.data is None else float(start.data.reshape(-1)[0])
            inputs[n] = kept = self.out.value(f"{node.output.name}_state", final.type)
            self.out.inputs.append(kept)
            made.append((kept, fill))
        starts = inputs[5 : 4 + len(node.outputs)]
        while inputs and inputs[-1] is None:
            inputs.pop()
        self._add(node, node.op, inputs)
        for start, final in zip(starts, node.outputs[1:], strict=True):
            assert start is not None
            if self._late(x):
                ready = self._ready(x, (1,) * final.type.rank)
                self.new[final] = self.out.add(Where(), [ready, self.new[final], start], f"{final.name}_held", final.origin)
        for kept, fill in made:
            self.out.states.append(State(kept, self.new[node.outputs[1 + starts.index(kept)]], fill))

    # Layers that start later than the stream ------------------------------------------------------------------------------------

    def _late(self, value: Value) -> int:
        """Rows that come before the first of the model: what they are made of is not there yet."""
        return self.source.shape[self.axis] // self.strides[value] - value.shape[self.axes[value]]

    def _ready(self, value: Value, shape: tuple[int, ...]) -> Value:
        """Is this row one of the model's? For each row of a step, or for all of them."""
        rows, late = self.hop // self.strides[value], self._late(value)
        if self.taken is None:
            self.taken = self.out.value("steps_taken", TensorType(DType.I32, (1,)))
            self.out.inputs.append(self.taken)
        steps = np.array([-(-(late - row) // rows) for row in range(rows)], np.int32)
        self.waits = max(self.waits, int(steps.max()))
        after = self.out.constant("after", (steps[:1] if math.prod(shape) == 1 else steps).reshape(shape))
        return self.out.add(GreaterEqual(), [self.taken, after], "ready", value.origin)

    def _unless_late(self, value: Value, ready: Value, fill: float) -> Value:
        nothing = self.out.constant("nothing", np.full((1,) * value.type.rank, fill, value.dtype.numpy), value.dtype)
        return self.out.add(Where(), [ready, value, nothing], f"{value.name}_held", value.origin)

    def _count(self) -> None:
        if self.taken is None:
            return
        one, most = (self.out.constant("count", np.array([n], np.int32)) for n in (1, self.waits))
        after = self.out.add(Add(), [self.taken, one], "steps")
        self.out.states.append(State(self.taken, self.out.add(Min(), [after, most], "steps"), 0.0))

    # Rows of the steps before ---------------------------------------------------------------------------------------------------

    def _rows(self, value: Value, rule: Along) -> Value:
        """The newest rows with those before them that a layer needs for its own newest rows."""
        axis, rows = self.axes[value], self.hop // self.strides[value]
        span = rule.extent - rule.stride + rows
        kept = max(0, rule.extent - rule.stride + rule.behind)
        if kept == 0 and span == rows:
            return self.new[value]
        new = self.new[value]
        if rule.goes_on and self._late(value):
            each = tuple(rows if n == axis else 1 for n in range(new.type.rank))
            new = self._unless_late(new, self._ready(value, each), rule.fill)
        both = self._with(value, new, kept, rule.fill) if kept else new
        first = kept - (rule.extent - rule.stride + rule.behind)
        return both if first == 0 and span == both.shape[axis] else self._cut(both, axis, first, span)

    def _all(self, value: Value, node: Node | None) -> Value:
        """What a layer that needs the whole window reads."""
        if value not in self.axes:
            return self._known(value)
        if value in self.unbounded and self.hop // self.strides[value] != value.shape[self.axes[value]]:
            reader = "the end" if node is None else _name(node)
            more = ", ".join(self.goes_on)
            what = f"{reader} needs the whole window of {quoted(value.name)}, which keeps more than that ({more})"
            hint = "this model does not use a sliding window; feed it frame by frame without `--stream`"
            raise UserError("bad-stream", what, hint=hint)
        if value not in self.windows:
            rows = self.hop // self.strides[value]
            kept = value.shape[self.axes[value]] - rows
            self.windows[value] = self._with(value, self.new[value], kept, 0.0) if kept > 0 else self._newest(value, kept)
        return self.windows[value]

    def _newest(self, value: Value, kept: int) -> Value:
        """A step that is longer than the window: its end."""
        new = self.new[value]
        return new if kept == 0 else self._cut(new, self.axes[value], -kept, value.shape[self.axes[value]])

    def _with(self, value: Value, new: Value, kept: int, fill: float) -> Value:
        """Rows of the steps before, and the newest. They stay where they are and move up in each step."""
        axis = self.axes[value]
        all_rows = _with_rows(new.type, axis, kept + new.shape[axis])
        before = self.out.value(f"{value.name}_kept", all_rows)
        self.out.inputs.append(before)
        both = self.out.value(f"{value.name}_both", all_rows)
        self.out.nodes.append(Node(Roll(axis), [before, new], [both], value.origin))
        self.out.states.append(State(before, both, fill))
        return both

    def _cut(self, value: Value, axis: int, first: int, count: int) -> Value:
        rank = value.type.rank
        type_ = _with_rows(value.type, axis, count)
        starts = tuple(first if n == axis else 0 for n in range(rank))
        cut = self.out.value(f"{value.name}_rows", type_)
        self.out.nodes.append(Node(Slice(starts, (1,) * rank, type_.shape), [value], [cut], value.origin))
        return cut


def _carried(graph: Graph) -> set[Value]:
    """Where RNNs start from a state of the model and leave it for the next run, whatever reshapes are between."""
    makers = graph.producers()

    def origin(value: Value) -> Value:
        while value in makers and isinstance(makers[value].op, (Reshape, Transpose, Copy)):
            value = next(makers[value].operands())
        return value

    ends = {state.input: origin(state.output) for state in graph.states}
    found = set()
    for node in graph.nodes:
        for start, final in zip(node.inputs[5:], node.outputs[1:], strict=False):
            if start is not None and ends.get(origin(start)) is final:
                found.add(start)
    return found


def _short(node: Node) -> str:
    """TFLite joins the names of all that became one layer."""
    return (node.source or node.output.name).split(";")[0]


def _name(node: Node) -> str:
    return f"`{node.op.NAME}` {_short(node)}"


def _with_rows(type_: TensorType, axis: int, rows: int) -> TensorType:
    return replace(type_, shape=(*type_.shape[:axis], rows, *type_.shape[axis + 1 :]))


def _notes(made: Stream) -> list[str]:
    frames = "a frame" if made.hop == 1 else f"{made.hop} frames"
    told = [f"a step takes {frames}; results are those of a window of {made.window} frames from step {made.warmup} on"]
    if made.goes_on:
        names = ", ".join(made.goes_on[:3]) + (" ..." if len(made.goes_on) > 3 else "")
        told = [f"a step takes {frames}; {names} keeps its state: results are those of all frames since the reset"]
    if made.whole:
        told.append(f"from this layer on, each step computes the whole window: {made.whole}")
    return told
