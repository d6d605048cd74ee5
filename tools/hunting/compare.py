"""What a model gives, by every way to compute it, against the real numbers with their bounds.

reference   ONNX Runtime, optimisations off
meaning     the numpy references of the imported graph
pass:NAME   of the graph that is optimised without that pass; `passes`: with all
loops:T     kernels for a target, interpreted at the addresses of the plan
c:...       compiled C: many models in one library, run in a process of its own
"""

from __future__ import annotations

import os
import pickle
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from hunting.recipe import Recipe
from intaglio.errors import AnswerIsNo, UserError
from intaglio.frontends.reading import read_source
from intaglio.ir.graph import Array, Graph
from intaglio.ir.verify import verify
from intaglio.ops.evaluate import evaluate_graph
from intaglio.options.request import Request
from intaglio.package.manifest import Manifest
from intaglio.package.write import Origin, write_project
from intaglio.passes import PASSES, Context, absorb, optimise
from intaglio.pipeline import plan_request
from intaglio.run.error_bounds import Known, error_bounds, outside
from intaglio.run.machine import Machine
from intaglio.stages.watch import Watch
from intaglio.targets.target import find_target, host_target

OPTIONAL = tuple(p.name for p in PASSES if not p.required)
SANITIZED = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all")
MOST_STEPS = 30_000  # products of a model that is interpreted


@dataclass(frozen=True, slots=True)
class Config:
    """`share`: of the arena, as the limit of RAM."""

    name: str
    target: str
    flags: tuple[str, ...]
    share: float | None = None
    compiler: tuple[str, ...] = ("gcc",)


def configs() -> tuple[Config, ...]:
    best = host_target().name
    zig = (Config("c:zig -O2", "x86-64-v3", ("-O2",), compiler=(sys.executable, "-m", "ziglang", "cc")),)
    return (
        Config("c:best -O3", best, ("-O3", *find_target(best).flags)),
        Config("c:generic -O0 sanitized", "generic", ("-O0", *SANITIZED)),
        Config("c:v3 -O1 with less RAM, sanitized", "x86-64-v3", ("-O1", *find_target("x86-64-v3").flags, *SANITIZED), share=0.6),
        Config("c:v2 -O2", "x86-64-v2", ("-O2", *find_target("x86-64-v2").flags)),
        *zig[:0],
    )


@dataclass(frozen=True, slots=True)
class Case:
    seed: int
    recipe: Recipe | None
    feeds: tuple[dict[str, Array], ...]
    graph: Graph
    bounds: tuple[dict[str, Known] | None, ...]  # None: a step whose results nobody knows
    model: Path
    options: Mapping[str, Any] = field(default_factory=dict)  # of the request


@dataclass(frozen=True, slots=True)
class Failure:
    seed: int
    config: str
    what: str


def names_of(graph: Graph) -> dict[str, str]:
    """Of inputs in the IR, by their names in the model."""
    return {v.origin or v.name: v.name for v in graph.inputs}


def case_of(seed: int, recipe: Recipe, folder: Path, steps: int = 2) -> Case | None:
    """None where an operator has no rule for its error."""
    folder.mkdir(parents=True, exist_ok=True)
    model = folder / f"m{seed}.onnx"
    model.write_bytes(recipe.model())
    graph = read_source(model, {}, {}, None, {}, lambda note: None).graph
    feeds = tuple(recipe.feeds(3 * seed + n) for n in range(steps))
    named = names_of(graph)
    known = [error_bounds(graph, {named[k]: a for k, a in feed.items()}, winograd=True) for feed in feeds]
    if any(k is None for k in known):
        return None
    return Case(seed, recipe, feeds, graph, tuple(k for k in known if k is not None), model)


def wrong(case: Case, step: int, results: Sequence[Array]) -> str:
    """Outputs in the order of the graph; "" where all is well."""
    known = case.bounds[step]
    if known is None:
        return ""
    for value, got in zip(case.graph.outputs, results, strict=True):
        bound = known.get(value.name)
        if bound is None:
            assert value.data is not None
            bound = Known.exactly(value.data)
        if np.size(got) != bound.value.size:
            return f"{value.name} has {np.size(got)} elements instead of {bound.value.size}"
        if count := outside(got, bound):
            off = np.abs(np.asarray(got, np.float64).reshape(bound.value.shape) - bound.value)
            at = int(np.nanargmax(np.where(off > bound.error, off, -1)))
            told = f"{np.asarray(got).flat[at]!r} instead of {bound.value.flat[at]!r} within {bound.error.flat[at]:.3g}"
            return f"{count} of {bound.value.size} elements of {value.name} are outside of their bounds: {told}"
    return ""


# In Python ------------------------------------------------------------------------------------------------------------------


def in_python(case: Case, rng: random.Random) -> Iterator[Failure]:
    named = names_of(case.graph)
    for step, feed in enumerate(case.feeds):
        given = {named[k]: a for k, a in feed.items()}
        if told := wrong(case, step, by_reference(case.model.read_bytes(), feed)):
            yield Failure(case.seed, "reference", told)
            return
        ways = {"meaning": case.graph}
        for name in ("passes", *rng.sample(OPTIONAL, 3)):
            ways[name if name == "passes" else f"pass:{name}"] = optimised(case.model, frozenset({name}) & frozenset(OPTIONAL))
        for name, graph in ways.items():
            results = evaluate_graph(graph, given)
            if told := wrong(case, step, [results[v.name] if v.name in results else np.asarray(v.data) for v in graph.outputs]):
                yield Failure(case.seed, name, told)
    yield from in_loops(case, rng.choice(("cortex-m4f", "cortex-m0+", "x86-64-v3", "cortex-m55")))


def stepwise(graph: Graph, feeds: Sequence[Mapping[str, Array]]) -> Iterator[list[Array]]:
    """Outputs by the meaning of the operators, from a fresh state on."""
    kept = {s.input.name: np.full(s.input.shape, s.fill, s.input.dtype.numpy) for s in graph.states}
    named = names_of(graph)
    for feed in feeds:
        found = evaluate_graph(graph, {**{named[k]: a for k, a in feed.items()}, **kept}, keep=True)
        yield [np.asarray(found.get(v.name, v.data)) for v in graph.outputs]
        kept = {s.input.name: found[s.output.name] for s in graph.states}


def optimised(model: Path, disabled: frozenset[str]) -> Graph:
    source = read_source(model, {}, {}, None, {}, lambda note: None)
    context = Context(find_target("x86-64-v3"), disabled=disabled, source=source.format)
    graph = optimise(absorb(source.graph, context), context)
    verify(graph)
    return graph


def by_reference(model: bytes, feed: Mapping[str, Array]) -> list[Array]:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level, options.intra_op_num_threads = 4, 1
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    return [np.asarray(a) for a in session.run(None, dict(feed))]


def in_loops(case: Case, target: str) -> Iterator[Failure]:
    program = plan_request(Request(case.model, case.model.with_name("out"), target=target, **case.options), Watch()).program
    work = sum(node.op.macs([None if v is None else v.type for v in node.inputs], node.output.type) for node in program.graph.nodes)
    if work > MOST_STEPS:
        return
    machine, named = Machine(program), names_of(program.graph)  # what is left of a step must not harm the next one
    for step, feed in enumerate(case.feeds):
        results = machine.run({named[k]: a for k, a in feed.items()})
        if told := wrong(case, step, [results[v.name] for v in program.graph.outputs]):
            yield Failure(case.seed, f"loops:{target}", told)


# Compiled -------------------------------------------------------------------------------------------------------------------


def compiled(cases: Sequence[Case], config: Config) -> Iterator[Failure]:
    with tempfile.TemporaryDirectory(prefix="intaglio-hunt-") as place:
        folder = Path(place)
        written = [(case, made) for case in cases if (made := _write(case, config, folder)) is not None]
        if not written:
            return
        if said := _build(folder, config):
            yield Failure(written[0][0].seed, config.name, f"the compiler refuses a batch of {len(written)}: {said[:1500]}")
            return
        batch = [(made.name, made, list(case.feeds)) for case, made in written]
        (folder / "batch.pickle").write_bytes(pickle.dumps(batch))
        said, results = _execute(folder, config)
        if results is None:
            at = (folder / "at.txt").read_text()
            guilty = next(case for case, made in written if made.name == at)
            yield Failure(guilty.seed, config.name, f"the process ended: {said[:1500]}")
            rest = [case for case, made in written if made.name != at]
            yield from compiled(rest, config)
            return
        for case, made in written:
            for step, outputs in enumerate(results[made.name]):
                if told := wrong(case, step, outputs):
                    yield Failure(case.seed, config.name, told)


def _write(case: Case, config: Config, folder: Path) -> Manifest | None:
    """None where it does not fit the limit."""
    request = Request(case.model, folder / "out", target=config.target, **case.options)
    made = plan_request(request, Watch())
    if config.share is not None:
        limit = int(made.program.arena_bytes * config.share)
        try:
            made = plan_request(replace(request, ram=max(1, limit)), Watch())
        except (AnswerIsNo, UserError):
            return None
    origin = Origin(case.model.name, "0" * 64, None, "0", {})
    (folder / made.program.graph.name).mkdir()
    return write_project(made.program, made.target, origin, folder / made.program.graph.name, None, made.deployment)


def _build(folder: Path, config: Config) -> str:
    sources = sorted(map(str, folder.glob("*/src/*.[cS]")))
    includes = [f"-I{path}" for path in sorted(folder.glob("*/include"))] + [f"-I{path}" for path in sorted(folder.glob("*/src"))]
    command = [*config.compiler, "-std=gnu11", "-w", "-shared", "-fPIC", "-ffp-contract=off", *config.flags, *includes]
    done = subprocess.run([*command, "-o", str(folder / "batch.so"), *sources, "-lm"], capture_output=True, text=True, check=False)
    return done.stderr if done.returncode else ""


def _execute(folder: Path, config: Config) -> tuple[str, dict[str, list[list[Array]]] | None]:
    environment = dict(os.environ)
    if any(flag in config.flags for flag in SANITIZED):
        libraries = [
            subprocess.run(["gcc", f"-print-file-name={n}"], capture_output=True, text=True, check=True).stdout.strip()
            for n in ("libasan.so", "libubsan.so")
        ]
        environment |= {"LD_PRELOAD": " ".join(libraries), "ASAN_OPTIONS": "detect_leaks=0", "UBSAN_OPTIONS": "print_stacktrace=1"}
    (folder / "results.pickle").unlink(missing_ok=True)
    command = [sys.executable, str(Path(__file__).with_name("execute.py")), str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    if done.returncode or not (folder / "results.pickle").exists():
        return f"{done.returncode}\n{done.stderr[-1500:]}", None
    return "", pickle.loads((folder / "results.pickle").read_bytes())


def available() -> bool:
    return shutil.which("gcc") is not None
