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
from intaglio.ir.views import ViewRules
from intaglio.memory.lifetimes import align, find_storage
from intaglio.targets import Target


def share_parts(program: Program[K], target: Target, *, slots: bool = False) -> tuple[Program[K], list[str]]:
    """The program in which layers that only move data are views, and the names of these."""
    if program.has_addresses:
        return program, []
    made: list[str] = []
    rules = ViewRules(program.graph, program.choices.views(program.graph))
    before: dict[Node, int] | None = None
    for node in [layer.node for layer in program.layers]:
        if not rules.allow(node):
            continue
        before = _loads(program, target, slots=slots) if before is None else before
        viewed = _as_view(program, node)
        after = _loads(viewed, target, slots=slots)
        changed = [n for n, load in after.items() if before[n] != load]
        if changed and max(after[n] for n in changed) > max(before[n] for n in [node, *changed]):
            continue
        made += [layer.name for layer in program.layers if layer.node is node]
        program, before = viewed, after
        rules.add(node)
    return program, made


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


def _as_view(program: Program[K], node: Node) -> Program[K]:
    """Without the layer of this node; what its kernel says of those that use it says so no more."""
    layer = next(layer for layer in program.layers if layer.node is node)
    layers, kernels = [other for other in program.layers if other is not layer], program.kernels
    source = node.source or node.output.name
    if all(other.kernel is not layer.kernel for other in layers):
        kernels = [kernel for kernel in kernels if kernel is not layer.kernel]
    elif source in layer.kernel.used_by:
        less = copy(layer.kernel)
        less.used_by = list(layer.kernel.used_by)
        less.used_by.remove(source)
        layers = [replace(other, kernel=less) if other.kernel is layer.kernel else other for other in layers]
        kernels = [less if kernel is layer.kernel else kernel for kernel in kernels]
    choices = program.choices.with_kernels({node.output.name: VIEW})
    given = program.given_layers or program.layers
    return replace(program, choices=choices, layers=layers, kernels=kernels, given_layers=given)
