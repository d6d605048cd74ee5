"""Concat, split and slice without copies: the memory of a part is a part of the memory of the whole.

    a: f32[1,8,8,4] = conv(x, w)                a: f32[1,8,8,4] @arena+0 = conv(x, w)
    b: f32[1,8,8,4] = conv(x, u)         ->     b: f32[1,8,8,4] @arena+1024 = conv(x, u)
    c: f32[2,8,8,4] = concat(a, b)              c: f32[2,8,8,4] @arena+0 = concat(a, b) using view

Where the parts lie one after the other in memory: along the outermost axis that has more than one element. The whole is alive as
long as one of its parts, which can cost more than the copy did: a view is made only where no more is alive because of it.
"""

from __future__ import annotations

from copy import copy
from dataclasses import replace

from intaglio.ir.choices import VIEW
from intaglio.ir.graph import Node
from intaglio.ir.program import K, Program
from intaglio.ir.views import ViewRules, starts_bytes
from intaglio.memory.lifetimes import align, find_storage
from intaglio.targets import Target

MOST_TRIALS = 16  # of layers that become views, however many layers there are
MOST_LOOKS = 40_000  # trials times layers: each trial looks at all of them
MORE = 8  # with an operating system, an eighth more memory is less than thousands of copies and their code cost


def share_parts(program: Program[K], target: Target, *, slots: bool = False) -> tuple[Program[K], list[str]]:
    """The program in which layers that only move data are views, and the names of these.

    Layers are tried one by one, in order. Where there are too many of them (loops that were unrolled), all are tried together, then
    halves of those that would take more memory than there is now, as long as there are trials left."""
    if program.has_addresses:
        return program, []
    names = {layer.node: layer.name for layer in program.layers}
    movers = [layer.node for layer in program.layers if layer.node.when is None and starts_bytes(layer.node) is not None]
    trials = max(MOST_TRIALS, MOST_LOOKS // max(1, len(program.layers)))
    many = len(movers) > trials
    waiting = [movers] if many else [[node] for node in movers]
    rules = ViewRules(program.graph, program.choices.views(program.graph))
    before: dict[Node, int] | None = None
    while waiting and trials:
        together, *waiting = waiting
        allowed = []
        for node in together:
            if rules.allow(node):
                rules.add(node)
                allowed.append(node)
        if not allowed:
            continue
        before = _loads(program, target, slots=slots) if before is None else before
        viewed = _as_views(program, allowed)
        after = _loads(viewed, target, slots=slots)
        trials -= 1
        changed = [n for n, load in after.items() if before[n] != load]
        most = max(before[n] for n in (before if many else [*allowed, *changed]))
        most += most // MORE if many and not target.bare else 0
        if max((after[n] for n in changed), default=0) <= most:
            program, before = viewed, after
            continue
        rules = ViewRules(program.graph, program.choices.views(program.graph))
        if len(allowed) > 1:
            half = len(allowed) // 2
            waiting = [allowed[:half], allowed[half:], *waiting]
    return program, [name for node, name in names.items() if program.choices.is_view(node)]


def _loads(program: Program[K], target: Target, *, slots: bool) -> dict[Node, int]:
    """The bytes alive in each layer."""
    count = len(program.layers)
    steps = [0] * (count + 1)
    for buffer in find_storage(program, target.alignment, slots=slots).buffers:
        if buffer.first < count:
            size = align(buffer.bytes, target.alignment)
            steps[buffer.first] += size
            steps[min(buffer.last, count - 1) + 1] -= size
    loads: dict[Node, int] = {}
    total = 0
    for layer, step in zip(program.layers, steps, strict=False):
        total += step
        loads[layer.node] = total
    return loads


def _as_views(program: Program[K], nodes: list[Node]) -> Program[K]:
    """Without the layers of these nodes; what their kernels say of those that use them says so no more."""
    some = set(nodes)
    gone = [layer for layer in program.layers if layer.node in some]
    layers = [layer for layer in program.layers if layer.node not in some]
    used = {id(layer.kernel) for layer in layers}
    less: dict[int, K] = {}
    for layer in gone:
        source = layer.node.source or layer.node.output.name
        if id(layer.kernel) in used and source in less.get(id(layer.kernel), layer.kernel).used_by:
            if id(layer.kernel) not in less:
                less[id(layer.kernel)] = copy(layer.kernel)
                less[id(layer.kernel)].used_by = list(layer.kernel.used_by)
            less[id(layer.kernel)].used_by.remove(source)
    layers = [replace(layer, kernel=less[id(layer.kernel)]) if id(layer.kernel) in less else layer for layer in layers]
    unused = {id(layer.kernel) for layer in gone} - used
    kernels = [less.get(id(kernel), kernel) for kernel in program.kernels if id(kernel) not in unused]
    choices = program.choices.with_kernels({node.output.name: VIEW for node in nodes})
    given = program.given_layers or program.layers
    return replace(program, choices=choices, layers=layers, kernels=kernels, given_layers=given) if nodes else program
