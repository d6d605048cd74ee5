"""Concat, split and slice without copies: the memory of a part is a part of the memory of the whole.

    a: f32[1,8,8,4] = conv(x, w)                a: f32[1,8,8,4] @arena+0 = conv(x, w)
    b: f32[1,8,8,4] = conv(x, u)         ->     b: f32[1,8,8,4] @arena+1024 = conv(x, u)
    c: f32[2,8,8,4] = concat(a, b)              c: f32[2,8,8,4] @arena+0 = concat(a, b) using view

Where the parts lie one after the other in memory: along the outermost axis that has more than one element. The whole is alive as
long as one of its parts, which can cost more than the copy did: a view is made only where no more is alive because of it.
"""

from __future__ import annotations

from dataclasses import replace

from intaglio.ir.choices import VIEW
from intaglio.ir.graph import Node
from intaglio.ir.program import K, Layer, Program
from intaglio.ir.views import ViewRules
from intaglio.memory.lifetimes import align, find_storage
from intaglio.targets import Target


def share_parts(program: Program[K], target: Target, *, slots: bool = False) -> list[str]:
    """Turn layers that only move data into views; their names."""
    if program.has_addresses:
        return []
    made: list[str] = []
    rules = ViewRules(program.graph, program.choices.views(program.graph))
    before: dict[Node, int] | None = None
    for layer in list(program.layers):
        node = layer.node
        if not rules.allow(node):
            continue
        before = _loads(program, target, slots=slots) if before is None else before
        choices = program.choices.with_kernels({node.output.name: VIEW})
        layers = [other for other in program.layers if other is not layer]
        after = _loads(replace(program, choices=choices, layers=layers), target, slots=slots)
        changed = [n for n, load in after.items() if before[n] != load]
        if changed and max(after[n] for n in changed) > max(before[n] for n in [node, *changed]):
            continue
        program.given_layers = program.given_layers or program.layers
        program.choices, program.layers = choices, layers
        _forget_kernel(program, layer)
        rules.add(node)
        made.append(layer.name)
        before = after
    return made


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


def _forget_kernel(program: Program[K], layer: Layer[K]) -> None:
    """Of a layer that is none any more."""
    source = layer.node.source or layer.node.output.name
    if source in layer.kernel.used_by:
        layer.kernel.used_by.remove(source)
    if not any(other.kernel is layer.kernel for other in program.layers):
        program.kernels = [kernel for kernel in program.kernels if kernel is not layer.kernel]
