"""IR text in, IR text out: how passes are tested.

Tests leave out the header. `const w: f32[8,4,3,3] ...` is filled with random numbers, by its name."""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable
from textwrap import dedent

import numpy as np

from intaglio.ir.graph import Array, Graph
from intaglio.ir.text import parse_graph, print_graph
from intaglio.ir.types import DType
from intaglio.ir.verify import verify
from intaglio.ir.weights import digest
from intaglio.ops.evaluate import evaluate_graph
from intaglio.passes.clean import dead_code
from intaglio.passes.context import Context
from intaglio.targets.target import all_targets

Pass = Callable[[Graph, Context], Graph]
TARGET = all_targets()["x86-64-v3"]
CONTEXT = Context(TARGET)
_RANDOM = re.compile(r"^const (\w+): (\w+)\[([\d,]*)\] \.\.\.$", re.M)


def random_array(seed: str, dtype: DType, shape: tuple[int, ...]) -> Array:
    rng = np.random.default_rng(zlib.crc32(seed.encode()))
    if dtype.is_float:
        return np.asarray(rng.standard_normal(shape)).astype(dtype.numpy)
    return np.asarray(rng.integers(0, 2 if dtype is DType.BOOL else 3, shape)).astype(dtype.numpy)


def graph_of(text: str) -> Graph:
    """Parsed and verified."""
    arrays: dict[str, Array] = {}

    def fill(match: re.Match[str]) -> str:
        name, kind, dims = match.groups()
        arrays[name] = random_array(name, DType(kind), tuple(int(d) for d in dims.split(",") if d))
        return f"const {name}: {kind}[{dims}] sha256:{digest(arrays[name])}"

    body = _RANDOM.sub(fill, dedent(text).strip())
    graph = parse_graph(f"intaglio-ir 1\nmodel t stage=import\n{body}\n", arrays)
    verify(graph)
    return graph


def shown(graph: Graph) -> str:
    """The text without header and constants, whose contents a pass may change."""
    return "\n".join(line for line in print_graph(graph).splitlines()[2:] if not line.startswith("const "))


def wanted(text: str) -> str:
    return "\n".join(line for line in dedent(text).strip().splitlines() if not line.startswith("const "))


def results(graph: Graph, seed: str = "", ulps: int = 0) -> list[Array]:
    """`ulps`: how far floats of the inputs are moved."""
    inputs = {v.name: random_array(v.name + seed, v.dtype, v.shape) for v in graph.inputs}
    moved = {name: a + ulps * np.spacing(a) if ulps and a.dtype.kind == "f" else a for name, a in inputs.items()}
    out = evaluate_graph(graph, moved)
    return [out[v.name] for v in graph.outputs]


def noise(graph: Graph) -> list[Array]:
    """How far results move by themselves: the sine of a large number is any number."""
    return [
        np.abs(a - b) if a.dtype.kind == "f" else a for a, b in zip(results(graph, ulps=4), results(graph, ulps=-4), strict=True)
    ]


def assert_same_results(graph: Graph, before: list[Array], bound: float = 1e-5, moves: list[Array] | None = None) -> None:
    """`moves`: what `noise` says of the graph before."""
    for got, want, loose in zip(results(graph), before, moves or [np.zeros(1)] * len(before), strict=True):
        assert (got.dtype, got.shape) == (want.dtype, want.shape)
        if want.dtype.kind == "f":
            near = np.nan_to_num(np.minimum(np.abs(got - want), 4 * loose))
            closer = got + np.copysign(near, want - got)  # no further than the results move by themselves
            np.testing.assert_allclose(closer, want, rtol=bound, atol=bound * float(np.abs(want).max(initial=1.0)))
        else:
            np.testing.assert_array_equal(got, want)


def rewritten(run: Pass, text: str, context: Context = CONTEXT) -> Graph:
    """The graph after the pass (and without what nobody reads any more): legal, and with the results it had."""
    graph = graph_of(text)
    before = results(graph)
    graph = dead_code(run(graph, context), context)
    verify(graph, run.__name__)
    assert_same_results(graph, before)
    return graph


def assert_rewrites(run: Pass, before: str, after: str, context: Context = CONTEXT) -> Graph:
    graph = rewritten(run, before, context)
    assert shown(graph) == wanted(after)
    return graph


def assert_unchanged(run: Pass, text: str, context: Context = CONTEXT) -> None:
    assert shown(rewritten(run, text, context)) == wanted(text)
