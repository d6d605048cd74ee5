"""The order of layers: another one, if less is alive at once in it.

    a: f32[64,64] = matmul(x, w)                a: f32[64,64] = matmul(x, w)
    b: f32[64,64] = matmul(x, u)                c: f32[64,1] = reduce(a, ...)
    c: f32[64,1] = reduce(a, ...)        ->     b: f32[64,64] = matmul(x, u)
    d: f32[64,1] = reduce(b, ...)               d: f32[64,1] = reduce(b, ...)

Views come right after what they are views of. Guarded layers, and those that can stop a run, stay in the order they had. Costs no
time, so it is always done; an order that is not better is left alone, and so is that of an IR file which gives addresses.
"""

from __future__ import annotations

from dataclasses import replace

from intaglio.ir.graph import Node, Value, needed_counts
from intaglio.ir.loops import has_loops
from intaglio.ir.program import K, Layer, Program, ValueArg
from intaglio.memory.lifetimes import align, find_storage
from intaglio.memory.schedule import Flow, Room, Task, best_order, peak_of
from intaglio.targets import Target


def reorder(program: Program[K], target: Target, *, slots: bool = False) -> Program[K]:
    """The program in a better order, its layers and the nodes of its graph; itself where there is none."""
    if program.has_addresses or any(after > index + 1 for index, after in program.waits().items()):
        return program  # a person decided, or the core and an accelerator work at the same time in this order
    if has_loops(program.graph.nodes):
        return program
    flow = flow_of(program, target, slots=slots)
    given = list(range(len(flow.tasks)))
    order = best_order(flow)
    if order == given or peak_of(flow, order) >= peak_of(flow, given):
        return program
    return in_order(program, [program.layers[n] for n in order])


def flow_of(program: Program[K], target: Target, *, slots: bool = False) -> Flow:
    """Layers as tasks, buffers as rooms."""
    graph, layers = program.graph, program.layers
    roots = program.storage_roots()
    storage = find_storage(program, target.alignment, in_place=False, slots=slots)
    room_of: dict[Value, int] = {}
    sizes: list[int] = []
    callers: set[int] = set()  # nothing is written over what a caller gave or gets
    for buffer in storage.buffers:
        if buffer.scratch_of >= 0 or (buffer.slot is not None and buffer.slot[0] not in ("input", "output")):
            continue
        values = list(buffer.values)
        if buffer.slot is not None:
            kind, n = buffer.slot
            value = graph.inputs[n] if kind == "input" else roots.get(graph.outputs[n], graph.outputs[n])
            address = storage.outside.get(value)
            if address is None or address.slot != buffer.slot:
                continue  # a copy that is made at the end, in any order
            values = [value]
            callers.add(len(sizes))
        for value in values:
            room_of[roots.get(value, value)] = len(sizes)
        sizes.append(align(buffer.bytes, target.alignment))
    touched, written = [0] * len(sizes), [0] * len(sizes)
    rooms_of_layer: list[tuple[int, ...]] = []
    for index, layer in enumerate(layers):
        made = {room_of[r] for v in layer.node.outputs if (r := roots.get(v, v)) in room_of}
        read = {room_of[r] for v in layer.node.operands() if (r := roots.get(v, v)) in room_of}
        for n in made:
            written[n] |= 1 << index
        for n in made | read:
            touched[n] |= 1 << index
        rooms_of_layer.append(tuple(sorted(made | read)))
    first = {room_of[v] for v in graph.inputs if v in room_of}
    ends = {roots.get(v, v) for v in [*graph.outputs, *(s.output for s in graph.states)]}
    kept = {room_of[v] for v in ends if v in room_of}
    needs = _needs(program)
    own = {value: n for value, n in room_of.items() if n not in callers}
    return Flow(
        tuple(
            Task(needs[n], rooms_of_layer[n], align(layer.scratch_bytes, target.alignment), _over(layer, roots, own))
            for n, layer in enumerate(layers)
        ),
        tuple(
            Room(size if touched[n] or n in kept else 0, touched[n], written[n], n in first, n in kept)
            for n, size in enumerate(sizes)
        ),
    )


def _needs(program: Program[K]) -> list[int]:
    """Which layers come before each one: those that make what it reads, through views, and those that find its sizes."""
    by_value: dict[Value, int] = {}  # the layers that a value comes from
    position = {layer.node: n for n, layer in enumerate(program.layers)}
    needs = [0] * len(program.layers)
    fixed = -1  # the last layer whose place among its like matters
    for node in program.graph.nodes:
        found = 0
        for value in {*node.operands(), *needed_counts(node, program.graph.counts)}:
            found |= by_value.get(value, 0)
        index = position.get(node)
        if index is not None:
            if node.when is not None or node.op.EFFECT or program.layers[index].kernel.fallible:
                found |= 1 << fixed if fixed >= 0 else 0
                fixed = index
            needs[index] = found
            found = 1 << index
        for out in node.outputs:
            by_value[out] = found
    return needs


def _over(layer: Layer[K], roots: dict[Value, Value], room_of: dict[Value, int]) -> tuple[tuple[int, int], ...]:
    """What the result may be written over, by the rules of `find_storage`."""
    node, out = layer.node, layer.node.output
    made = room_of.get(out)
    if not layer.kernel.in_place or node.when is not None or len(node.outputs) != 1 or made is None or out in roots:
        return ()
    over = layer.kernel.over
    operands = [a.value for a in layer.arguments if isinstance(a, ValueArg) and a.value is not out]
    wanted = [a.value for n, a in enumerate(layer.arguments) if n == over and isinstance(a, ValueArg)] if over >= 0 else operands
    found = []
    for value in wanted:
        root = roots.get(value, value)
        room = room_of.get(root)
        if room is None or room == made or value.shape != out.shape or value.dtype.bytes != out.dtype.bytes:
            continue
        others = [v for v in operands if v is not value and roots.get(v, v) is root]
        alone = not others and operands.count(value) == 1
        if root.type.bytes == out.type.bytes and all(v.shape == out.shape for v in others) and (alone or over < 0):
            found.append((room, made))
    return tuple(found)


def in_order(program: Program[K], layers: list[Layer[K]]) -> Program[K]:
    """Layers and nodes in a new order; views as soon as they can be."""
    graph = program.graph
    known = set(graph.inputs)
    own = {layer.node for layer in layers}
    views = [node for node in graph.nodes if node not in own]
    sizes = {node: needed_counts(node, graph.counts) for node in views}
    nodes: list[Node] = []

    def settle() -> None:
        nonlocal views
        while True:
            ready = [v for v in views if all(value.is_const or value in known for value in (*v.operands(), *sizes[v]))]
            if not ready:
                return
            for node in ready:
                nodes.append(node)
                known.update(node.outputs)
            views = [v for v in views if v not in ready]

    settle()
    for layer in layers:
        nodes.append(layer.node)
        known.update(layer.node.outputs)
        settle()
    assert not views
    given = program.given_layers or program.layers
    return replace(program, graph=replace(graph, nodes=nodes), layers=layers, given_layers=given)
