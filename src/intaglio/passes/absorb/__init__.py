"""Quantisation moves into the types: operators between Dequantize and Quantize become operators on integers.

    a = dequantize(x, 0.04, -128)
    b = conv(a, dequantize(w, ...), bias)           ->      y = qconv(x, w, bias, multiplier, ...)
    y = quantize(relu(b), 0.1, -128)

What has no integer form stays as it is, between Quantize and Dequantize, and is named in the report.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np

from intaglio.ir.graph import Graph, Node, Value
from intaglio.ir.operator import BadOperator
from intaglio.ir.sizes import Undecided
from intaglio.ops.control import Copy
from intaglio.ops.conv import Conv
from intaglio.ops.convert import Dequantize, Quantize
from intaglio.ops.matmul import MatMul
from intaglio.passes.absorb import moving, pooling, products, tables
from intaglio.passes.absorb.real import Absorber, Grid, grid_of, real_of_node
from intaglio.passes.context import Context

RULES = (products.product, pooling.mean, moving.requantised_concat, tables.lookup, products.elementwise)


def absorb_quantisation(graph: Graph, context: Context) -> Graph:
    """Operators between Dequantize and Quantize become operators on integers.

        a = dequantize(x, ...)
        b = relu(a)                   ->      y = lookup(x, table)
        y = quantize(b, ...)

    Skipped where an operator has no integer form: a note says which ones are computed in floating point.
    """
    graph, notes = absorbed(graph)
    for text in notes:
        context.report(text)
    return graph


def absorbed(graph: Graph, *, fixed: bool = False, floats: frozenset[str] = frozenset()) -> tuple[Graph, list[str]]:
    """The graph with integer operators, and sentences about what stayed in floating point.

    `floats` names results of operators that are to stay so."""
    if not any(isinstance(node.op, Quantize | Dequantize) for node in graph.nodes):
        return graph, []
    work = Absorber.of(graph, fixed, floats)
    outputs = set(graph.outputs) | {s.output for s in graph.states}
    for node in graph.nodes:
        work.edit.take(node)
        grid = grid_of(node)
        if grid is not None:
            result = _absorbed(work, node, grid)
            if result is not None:
                _give(work, node, result, outputs)
                continue
        elif (moved := moving.moved(work, node)) is not None:
            _give(work, node, moved, outputs)
            continue
        work.edit.keep(node)
        real = real_of_node(node)
        if real is not None:
            work.reals[node.output] = real
    graph = work.edit.finish()
    _remove_dead(graph)
    return graph, report(graph)


def _absorbed(work: Absorber, node: Node, grid: Grid) -> Value | None:
    """The integers that a Quantize asks for, by the first rule that has them."""
    source = node.inputs[0]
    real = work.real(source)
    if real is not None and real.like(grid) and real.stored.dtype is grid.to and _inside(real.stored, grid):
        return real.stored
    for rule in RULES:
        mark = len(work.edit.nodes)
        try:
            result = rule(work, node, grid)
        except (BadOperator, Undecided):  # an integer form that does not exist for these types, or not for all sizes, after all
            result = None
        if result is not None:
            if result.type.quant is None and result.data is None:
                result.type = replace(result.type, quant=grid.quant)
            return result
        for left in work.edit.nodes[mark:]:
            for out in left.outputs:
                work.edit.made.pop(out, None)
        del work.edit.nodes[mark:]
    return None


def _inside(stored: Value, grid: Grid) -> bool:
    """Quantising again clips to the range of the grid: only a full range is sure to change nothing."""
    info = np.iinfo(stored.dtype.numpy)
    return grid.low <= info.min and grid.high >= info.max


def _give(work: Absorber, node: Node, result: Value, outputs: set[Value]) -> None:
    if node.output in outputs:  # an output of the model is a value of its own
        node.op, node.inputs = Copy(), [result]
        work.edit.keep(node)
        work.edit.changed = True
    else:
        work.edit.replace(node, result)
        if result in work.reals:
            work.reals[node.output] = work.reals[result]


def _remove_dead(graph: Graph) -> None:
    needed = set(graph.outputs) | {s.output for s in graph.states}
    kept: list[Node] = []
    for node in reversed(graph.nodes):
        if node.op.EFFECT or any(v in needed for v in node.outputs):
            kept.append(node)
            needed.update(node.operands())
    graph.nodes = kept[::-1]


def report(graph: Graph) -> list[str]:
    """What stays in floating point between integers."""
    made = graph.producers()
    left: Counter[str] = Counter()
    seen: set[Node] = set()
    for node in graph.nodes:
        producer = made.get(node.inputs[0]) if isinstance(node.op, Quantize) and node.inputs[0] is not None else None
        if producer is not None and any(v in made and isinstance(made[v].op, Dequantize) for v in producer.operands()):
            left[producer.op.NAME] += 1
            seen.add(producer)
    for node in graph.nodes:  # products of integers whose result is not quantised: sums that are added in floats, for one
        first = node.inputs[0] if node.inputs else None
        widened = made.get(first) if first is not None else None
        if isinstance(node.op, Conv | MatMul) and node not in seen and widened is not None and isinstance(widened.op, Dequantize):
            left[node.op.NAME] += 1
    if not left:
        return []
    named = ", ".join(f"{count} `{name}`" if count > 1 else f"`{name}`" for name, count in sorted(left.items()))
    return [f"between quantised tensors, these are computed in floating point: {named}"]
