"""The error that each layer adds: alone, and together with all before it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from intaglio.ir.graph import Array, Graph, Node, Value
from intaglio.ir.sizes import most, pinned
from intaglio.ir.types import DType
from intaglio.ops.conv import Conv
from intaglio.ops.matmul import MatMul
from intaglio.quantize.difference import relative
from intaglio.quantize.insert import FLOAT, Grids, Plan, choose_grids, quantised_weights, with_quantisation
from intaglio.quantize.layers import Scheme
from intaglio.quantize.ranges import rounded
from intaglio.quantize.settings import LayerRow, Progress
from intaglio.quantize.statistics import Statistics, run_all, run_where_there_is_room, sizes_for

_SAMPLES = 4
_WORK = 4_000_000_000  # multiply-adds spent on this, about: fewer samples for larger models


def sensitivity(
    scheme: Scheme, plan: Plan, statistics: Statistics, samples: list[dict[str, Array]], progress: Progress
) -> list[LayerRow]:
    """A row per layer that is quantised, named by its result; `stored` is filled in by the caller."""
    graph = scheme.graph
    grids = choose_grids(scheme, plan, statistics)
    whole = with_quantisation(scheme, plan, grids)
    layers = [n for n in scheme.layers if plan.of(n) != FLOAT]
    macs = sum(most(n.op.macs([None if v is None else v.type for v in n.inputs], n.output.type)) for n in graph.nodes)
    chosen = samples[: max(1, min(_SAMPLES, int(_WORK / max(macs * len(layers) / 2, 1))))]
    by_whole_runs = bool(graph.counts) or any(node.when is not None or node.op.LOOP for node in graph.nodes)
    alone = np.zeros(len(layers))
    together = np.zeros(len(layers))
    runs = zip(run_all(graph, chosen, keep=True), run_where_there_is_room(whole, chosen, keep=True), strict=True)
    for number, (exact, stored) in enumerate(runs):
        sizes = sizes_for(graph, chosen[number])
        for n, layer in enumerate(layers):
            progress("sensitivity", number * len(layers) + n, len(chosen) * len(layers))
            shown = _shown(layer, scheme)
            if by_whole_runs:
                error = _alone_in_a_run(scheme, layer, shown, exact, grids, plan, chosen[number])
            else:
                error = _alone(graph, layer, shown, exact, grids.of, plan, sizes)
            alone[n] += error / len(chosen)
            if stored is None:
                together[n] += 1 / len(chosen)
            elif shown.name in exact and shown.name in stored:  # in a branch that was not taken, there is none
                together[n] += relative(exact[shown.name], stored.get(f"{shown.name}_r", stored[shown.name])) / len(chosen)
    progress("sensitivity", 1, 1)
    return [LayerRow(layer.output.name, layer.op.NAME, "", a, t) for layer, a, t in zip(layers, alone, together, strict=True)]


def _shown(layer: Node, scheme: Scheme) -> Value:
    """The tensor where a layer's result is stored: behind the activation that is fused into it."""
    value = layer.output
    readers = scheme.graph.readers()
    while value in scheme.fused:
        value = readers[value][0].output
    return value


def _alone(
    graph: Graph, layer: Node, shown: Value, exact: dict[str, Array], grids: dict[str, tuple[np.float32, int, DType]], plan: Plan,
    sizes: dict[str, int],
) -> float:  # fmt: skip
    """Round the weights and the result of one layer, compute what depends on it, compare the outputs."""
    changed: dict[Value, Array] = {}
    started = False
    for node in graph.nodes:
        if node is layer:
            started = True
        if not started or (node is not layer and not any(v in changed for v in node.operands())):
            continue
        arrays = [None if v is None else _array(v, changed, exact) for v in node.inputs]
        weights = node.inputs[1] if node is layer and isinstance(node.op, Conv | MatMul) else None
        if weights is not None and weights.data is not None:
            integers, scale = quantised_weights(node, weights.data, plan.of(node))
            arrays[1] = (integers.astype(np.float32) * scale).astype(np.float32)
            if node.output.name in plan.biases:
                arrays = [arrays[0], arrays[1], plan.biases[node.output.name]]
        types = [None if v is None else pinned(v.type, sizes) for v in node.inputs]
        types += [None] * (len(arrays) - len(types))
        for value, result in zip(node.outputs, pinned(node.op, sizes).evaluate(arrays, types), strict=True):
            if value is shown and shown.name in grids:
                step, zero, dtype = grids[shown.name]
                result = rounded(result, step, zero, dtype)
            changed[value] = result
    errors = [relative(_array(v, {}, exact), changed[v]) for v in graph.outputs if v in changed]
    return max(errors, default=0.0)


def _alone_in_a_run(
    scheme: Scheme, layer: Node, shown: Value, exact: dict[str, Array], grids: Grids, plan: Plan, sample: dict[str, Array]
) -> float:
    """The same where data decides what is computed, and how much of it: a run from the start, with all other layers in floats."""
    others = {n.output.name: FLOAT for n in scheme.layers if n is not layer}
    alone = replace(plan, stored={**plan.stored, **others}, biases={k: v for k, v in plan.biases.items() if k == layer.output.name})
    own = Grids({name: grid for name, grid in grids.of.items() if name == shown.name})
    changed = with_quantisation(scheme, alone, own)
    results = next(run_where_there_is_room(changed, [sample]))
    if results is None:
        return 1.0
    pairs = zip(scheme.graph.outputs, changed.outputs, strict=True)
    return max((relative(_array(a, {}, exact), _array(b, {}, results)) for a, b in pairs), default=0.0)


def _array(value: Value, changed: dict[Value, Array], exact: dict[str, Array]) -> Array:
    if value.data is not None:
        return value.data
    return changed[value] if value in changed else exact[value.name]
