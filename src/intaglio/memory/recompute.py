"""Cheap tensors are made twice, rather than kept while much else is alive.

    a: f32[1,64,64,8] = resize(s)               a: f32[1,64,64,8] = resize(s)
    b: ... = conv(a, w)                         b: ... = conv(a, w)
    ...                     the peak     ->     ...                              only `s` is alive here
    y: ... = add(b, a)                          a_again: f32[1,64,64,8] = resize(s)
                                                y: ... = add(b, a_again)

Costs time, so it is done under a limit alone, and only as far as it needs: the tensor that gains most for its work first. Not for
tensors that are parts of others, are guarded, or outlive the run.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Generic

from intaglio.ir.choices import VIEW
from intaglio.ir.graph import Node, Value
from intaglio.ir.loops import has_loops
from intaglio.ir.offload import Offload
from intaglio.ir.program import Argument, ConstantArg, K, Layer, Program, ValueArg
from intaglio.memory.lifetimes import align, find_storage
from intaglio.targets import Target

MOST_EXTRA = 0.3  # of the work of the whole program
_MOST_STEPS = 64


@dataclass(frozen=True, slots=True)
class Again:
    """A tensor that is made once more: what the arena needs less for it, and the work that it costs."""

    value: str
    layer: str  # the one that makes it again
    reader: str  # right before this layer
    bytes_gained: int  # 0 where several layers need equally much, and this step is for one of them
    macs: int
    bytes_moved: int


def recompute(
    program: Program[K], target: Target, budget_bytes: int, *, slots: bool = False, most_extra: float = MOST_EXTRA
) -> tuple[Program[K], list[Again]]:
    """Until no layer needs more than the budget for the arena, state included, or nothing helps. The program itself when the peak
    does not become lower; the caller orders and places anew."""
    if program.has_addresses or has_loops(program.graph.nodes):
        return program, []
    made: list[Again] = []
    trial = replace(program, graph=replace(program.graph, nodes=list(program.graph.nodes)), layers=list(program.layers))
    now = first = _moment(trial, target, slots=slots)
    allowed = int(most_extra * sum(sum(_work(layer, program)) for layer in program.layers))
    while now.peak > budget_bytes and len(made) < _MOST_STEPS:
        best: tuple[float, Again, Program[K], _Moment] | None = None
        for late in _candidates(trial, now):
            macs, moved = _work(late.layer, program)
            if macs + moved > allowed:
                continue
            changed, name = _made_again(trial, late)
            then = _moment(changed, target, slots=slots)
            if (then.peak, then.busiest) < (now.peak, now.busiest):
                gain = (now.peak - then.loads[now.name]) / max(macs + moved, 1)
                if best is None or gain > best[0]:
                    best = gain, Again(late.value.name, name, late.reader, now.peak - then.peak, macs, moved), changed, then
        if best is None:
            break
        _, step, trial, now = best
        made.append(step)
        allowed -= step.macs + step.bytes_moved
    if now.peak >= first.peak:
        return program, []
    names = trial.graph.names | {value.name for value in trial.graph.values()}
    return replace(trial, graph=replace(trial.graph, names=names), given_layers=program.given_layers or program.layers), made


@dataclass(frozen=True, slots=True)
class _Moment:
    """The bytes that are alive in each layer, and the first layer that needs most."""

    loads: dict[str, int]
    peak: int
    busiest: int  # how many layers need as much
    layer: int
    name: str


def _moment(program: Program[K], target: Target, *, slots: bool) -> _Moment:
    storage = find_storage(program, target.alignment, slots=slots)
    loads = [storage.state_bytes] * len(program.layers)
    for buffer in storage.buffers:
        for n in range(buffer.first, min(buffer.last, len(loads) - 1) + 1):
            loads[n] += align(buffer.bytes, target.alignment)
    peak = max(loads, default=0)
    at = loads.index(peak) if loads else 0
    names = [layer.name for layer in program.layers]
    return _Moment(dict(zip(names, loads, strict=True)), peak, loads.count(peak), at, names[at] if names else "")


@dataclass(frozen=True, slots=True)
class _Late(Generic[K]):
    """A value that is alive over the peak without being read there: who makes it, and the first layer after the peak to read it."""

    value: Value
    layer: Layer[K]
    at: int
    reader: str


def _candidates(program: Program[K], now: _Moment) -> list[_Late[K]]:
    graph, peak = program.graph, now.layer
    roots = program.storage_roots()
    ends = [*graph.outputs, *(s.output for s in graph.states)]
    tied = {*roots, *ends, *(roots[v] for v in ends if v in roots)}
    readers: dict[Value, list[int]] = {}
    for n, layer in enumerate(program.layers):
        for value in layer.node.operands():
            readers.setdefault(roots.get(value, value), []).append(n)
    found = []
    for layer in program.layers[:peak]:
        node, value = layer.node, layer.node.output
        if len(node.outputs) != 1 or node.when is not None or node.op.EFFECT or layer.kernel.fallible or value in tied:
            continue
        if isinstance(node.op, Offload):  # its values are those of the nodes inside
            continue
        late = [n for n in readers.get(value, []) if n > peak]
        if not late or peak in readers[value] or any(program.layers[n].node.when is not None for n in late):
            continue
        found.append(_Late(value, layer, late[0], program.layers[late[0]].name))
    return found


def _made_again(program: Program[K], late: _Late[K]) -> tuple[Program[K], str]:
    """The program with one more layer, and views of it, right before the late reader; and the name of that layer. Nothing that is
    shared with the old program is changed: readers are new nodes."""
    graph, choices, value = program.graph, program.choices, late.value
    taken = {v.name for v in graph.values()} | graph.names

    def again(old: Value) -> Value:
        name, n = f"{old.name}_again", 2
        while name in taken:
            name, n = f"{old.name}_again{n}", n + 1
        taken.add(name)
        return Value(name, old.type, old.origin)

    new = again(value)
    swap = {value: new}
    added = [replace(late.layer.node, inputs=list(late.layer.node.inputs), outputs=[new])]
    for node in graph.nodes:
        if choices.is_view(node) and node.inputs[0] in swap:
            swap[node.output] = again(node.output)
            added.append(replace(node, inputs=[swap[node.inputs[0]]], outputs=[swap[node.output]]))
    kernels = {new.name: choices.of(late.layer.node), **{node.output.name: VIEW for node in added[1:]}}
    layers = list(program.layers[: late.at])
    layers.append(replace(late.layer, name=new.name, node=added[0], arguments=_swapped(late.layer.arguments, swap)))
    fresh: dict[Node, Node] = {}
    for layer in program.layers[late.at :]:
        if any(v in swap for v in layer.node.inputs):
            inputs = [v if v is None else swap.get(v, v) for v in layer.node.inputs]
            node = fresh[layer.node] = replace(layer.node, inputs=inputs)
            layer = replace(layer, node=node, arguments=_swapped(layer.arguments, swap))
        layers.append(layer)
    nodes: list[Node] = []
    for node in graph.nodes:
        nodes += added if node is program.layers[late.at].node else []
        nodes.append(fresh.get(node, node))
    swapped = {*swap, *swap.values()} - {value, new}
    read: set[Value] = set()
    for node in reversed(nodes):  # views that nobody reads any more, or never did
        if node.output in swapped and node.output not in read:
            nodes = [other for other in nodes if other is not node]
        else:
            read.update(node.operands())
    changed = replace(program, graph=replace(graph, nodes=nodes), layers=layers, choices=choices.with_kernels(kernels))
    return changed, new.name


def _swapped(arguments: tuple[Argument, ...], swap: dict[Value, Value]) -> tuple[Argument, ...]:
    return tuple(ValueArg(swap.get(a.value, a.value)) if isinstance(a, ValueArg) else a for a in arguments)


def _work(layer: Layer[K], program: Program[K]) -> tuple[int, int]:
    """Multiply-adds, and bytes read and written."""
    constants = {a.name for a in layer.arguments if isinstance(a, ConstantArg)}
    moved = sum(c.data.nbytes for c in program.constants if c.name in constants) if constants else 0
    return layer.macs, moved + sum(a.value.type.bytes for a in layer.arguments if isinstance(a, ValueArg))
