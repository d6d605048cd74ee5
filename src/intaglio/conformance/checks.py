"""Does an accelerator keep its promises? What it claims is computed three times: by our references, by its emulation, and by the C
that is generated for it; all must agree. What it does not claim needs a reason.

    emulation   against the references, twice, and its inputs must be as they were
    cost        finite, for every region
    C           every region of every case in one package, built without a warning: in this process's library, and on an emulated
                core where the accelerator is for one
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from intaglio.conformance.cases import Case, cases, unmade
from intaglio.errors import IntaglioError
from intaglio.ir.files import write_ir
from intaglio.ir.graph import Array, Graph, Node, Value
from intaglio.ir.offload import gather
from intaglio.passes.offload.match import Claim, Flow, claims
from intaglio.pipeline import compile_request
from intaglio.run.package import Package
from intaglio.stages import Request, Watch
from intaglio.targets import black_box
from intaglio.targets.accelerator import Is, Pattern
from intaglio.targets.plugins import Plugin
from intaglio.targets.target import Target, find_target

STRICT = ("-Wall", "-Wextra", "-Wshadow", "-Wundef", "-Wdouble-promotion", "-Wcast-align", "-Werror")
TARGETS = ("host", "cortex-m4f")
PAIR_VARIANTS = 3  # of two matches in one region: there are many pairs


@dataclass(frozen=True, slots=True)
class Result:
    """One check. `problem` is None where it holds; `refused` has the reason where the case was not taken."""

    check: str
    case: str
    problem: str | None = None
    refused: str | None = None


@dataclass(frozen=True, slots=True)
class Taken:
    case: Case
    claim: Claim
    inputs: list[Array]
    wanted: list[Array]


def check_accelerator(plugin: Plugin, *, cc: str | None = None) -> Iterator[Result]:
    """Every check, as it is done."""
    taken: list[Taken] = []
    if not plugin.has_emulation:
        yield Result("emulation", "all", refused="it has no `emulate`: the reference is used instead")
    for pattern in (*plugin.patterns, *_pairs(plugin)):
        made = list(cases(pattern) if pattern in plugin.patterns else cases(pattern, PAIR_VARIANTS))
        if missing := unmade(pattern):
            names = ", ".join(f"`{name}`" for name in missing)
            yield Result("cases", pattern.name, refused=f"no cases are generated for {names}: test this pattern yourself")
        found = 0
        for case in made:
            one = _taken(plugin, case)
            if isinstance(one, Taken):
                found += 1
                taken.append(one)
                yield from _check_emulation(plugin, one) if plugin.has_emulation else _check_cost(plugin, one)
            else:
                yield one
        if made and not found and pattern in plugin.patterns:
            yield Result("claims", pattern.name, f"none of {len(made)} cases is taken: verify the check of the pattern")
    if taken:
        yield from _check_code(plugin, taken, cc)


def _pairs(plugin: Plugin) -> list[Pattern]:
    """One match after another, where a region may have several."""
    if plugin.facts.merges < 2:
        return []
    return [
        Pattern(f"{first.name}, then {second.name}", Is(second.root.op, (first.root, *second.root.operands[1:])))
        for first in plugin.patterns
        for second in plugin.patterns
        if not any(second.root.operands[:1])
    ]


def _taken(plugin: Plugin, case: Case) -> Taken | Result:
    """The region that has the whole pattern; or the reason why there is none."""
    flow = Flow.of(case.graph)
    try:
        found, refusals = claims(flow, plugin)
    except IntaglioError as error:
        return Result("claims", case.name, error.message)
    whole = [c for c in found if len(c.region.nodes) == len(case.graph.nodes)]
    if not whole:
        last = case.graph.nodes[-1]
        reason = next((r.reason for r in refusals if r.node is last), "another pattern matches it")
        return Result("claims", case.name, refused=reason)
    region = whole[0].region
    inputs = [_numbers(value, seed) for seed, value in enumerate(region.inputs)]
    return Taken(case, whole[0], inputs, region.reference(inputs))


def _numbers(value: Value, seed: int) -> Array:
    """Random, with the extremes of the type among them."""
    rng = np.random.default_rng(seed)
    if value.dtype.is_float:
        array: Array = rng.normal(0, 2, value.shape).astype(value.dtype.numpy)
        return array
    info = np.iinfo(value.dtype.numpy)
    made: Array = rng.integers(info.min, info.max + 1, value.shape).astype(value.dtype.numpy)
    flat = made.reshape(-1)
    flat[: min(2, flat.size)] = [info.min, info.max][: min(2, flat.size)]
    return made


def _check_cost(plugin: Plugin, taken: Taken) -> Iterator[Result]:
    try:
        plugin.cost(taken.claim.region, find_target("cortex-m4f"))
    except IntaglioError as error:
        yield Result("cost", taken.case.name, error.message)
        return
    yield Result("cost", taken.case.name)


def _check_emulation(plugin: Plugin, taken: Taken) -> Iterator[Result]:
    region, name = taken.claim.region, taken.case.name
    try:
        plugin.cost(region, find_target("cortex-m4f"))
        given = [array.copy() for array in taken.inputs]
        first = plugin.emulate(region, given)
        again = plugin.emulate(region, given)
    except IntaglioError as error:
        yield Result("emulation", name, error.message)
        return
    if any((a != b).any() for a, b in zip(given, taken.inputs, strict=True)):
        yield Result("emulation", name, "it writes into its inputs")
    elif any(not np.array_equal(a, b, equal_nan=a.dtype.kind == "f") for a, b in zip(first, again, strict=True)):
        yield Result("emulation", name, "the second run has another result")
    else:
        yield Result("emulation", name, _difference(plugin, first, taken.wanted))


def _difference(plugin: Plugin, got: list[Array], wanted: list[Array]) -> str | None:
    for made, reference in zip(got, wanted, strict=True):
        if reference.dtype.kind != "f":
            if count := int((made != reference).sum()):
                worst = int(np.abs(made.astype(np.int64) - reference.astype(np.int64)).max())
                return f"{count} of {reference.size} integers differ from the reference, by up to {worst}"
            continue
        bound = plugin.facts.tolerance * max(1.0, float(np.abs(reference).max(initial=0.0)))
        off = float(np.abs(made.astype(np.float64) - reference).max(initial=0.0))
        if not off <= bound:
            return f"results are {off:.3g} away from the reference; {bound:.3g} is allowed (`facts.tolerance`)"
    return None


# The C that is generated ------------------------------------------------------------------------------------------------


def _check_code(plugin: Plugin, taken: list[Taken], cc: str | None) -> Iterator[Result]:
    done = 0
    for name in TARGETS:
        target = find_target(name)
        if (reason := plugin.supports(target)) is not None:
            yield Result(f"C on {name}", "all", refused=reason)
            continue
        done += 1
        try:
            with tempfile.TemporaryDirectory(prefix="intaglio-conformance-") as folder:
                package = _built(plugin, taken, target, Path(folder), cc)
                given = {key: array for n, one in enumerate(taken) for key, array in _named(one, n, one.inputs, "x")}
                with black_box.during(f"{plugin.name} ({plugin.origin})", f"its C on {name}"):
                    results = package.run(given)
        except IntaglioError as error:
            yield Result(f"C on {name}", "all", error.message + (f" ({error.where})" if error.where else ""))
            continue
        for n, one in enumerate(taken):
            got = [results[key] for key, _ in _named(one, n, one.wanted, "y")]
            yield Result(f"C on {name}", one.case.name, _difference(plugin, got, one.wanted))
    if not done:
        yield Result("C", "all", "no target can be tested on this machine: `supports` refuses all of " + ", ".join(TARGETS))


def _named(taken: Taken, number: int, arrays: list[Array], stem: str) -> list[tuple[str, Array]]:
    return [(f"{stem}{number}_{i}", array) for i, array in enumerate(arrays)]


def _built(plugin: Plugin, taken: list[Taken], target: Target, folder: Path, cc: str | None) -> Package:
    """All cases side by side in one graph, each in a region of its own."""
    graph = Graph("conformance")
    places: dict[Node, tuple[str, int]] = {}
    for number, one in enumerate(taken):
        _copy_into(graph, one, number, plugin.name, places)
    gather(graph, places)
    write_ir(graph, folder / "cases.ig", stage="optimise")
    request = Request(
        folder / "cases.ig",
        folder / "package",
        target=target.name,
        io="caller",  # room for so many inputs and outputs in one arena takes long to plan
        cc=cc,
        cflags=STRICT,
    )
    compile_request(request, Watch())
    return Package(folder / "package")


def _copy_into(graph: Graph, taken: Taken, number: int, name: str, places: dict[Node, tuple[str, int]]) -> None:
    region = taken.claim.region
    known: dict[Value, Value] = {}

    def copied(value: Value, stem: str) -> Value:
        if value not in known:
            known[value] = Value(graph.new_name(stem), value.type, data=value.data)
        return known[value]

    for i, value in enumerate(region.inputs):
        graph.inputs.append(copied(value, f"x{number}_{i}"))
    for i, value in enumerate(region.outputs):
        copied(value, f"y{number}_{i}")
    for node in region.nodes:
        inputs = [None if v is None else copied(v, f"c{number}") for v in node.inputs]
        made = Node(node.op, inputs, [copied(v, f"t{number}") for v in node.outputs], node.source)
        graph.nodes.append(made)
        places[made] = (name, number)
    for value in region.outputs:
        graph.outputs.append(known[value])
        graph.output_names.append(known[value].name)


def failures(plugin: Plugin) -> list[Result]:
    """For a plug-in's own tests: `assert not failures(find_accelerator("npu"))`."""
    return [result for result in check_accelerator(plugin) if result.problem is not None]


__all__ = ["Result", "check_accelerator", "failures"]
