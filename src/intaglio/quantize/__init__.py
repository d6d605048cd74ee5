"""Post-training quantisation: turns a float model into integers, and reports the accuracy lost.

    prepared graph -> statistics -> ranges -> Quantize and Dequantize around every layer -> absorb -> integers

The graph with Quantize and Dequantize is evaluated by the same references as everything else, so that every choice (the method for
ranges, equalisation, bias correction, layers that stay wide) is made by the error it causes at the outputs.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np

from intaglio.errors import UserError, quoted
from intaglio.ir.graph import Array, Graph
from intaglio.ir.types import DType
from intaglio.passes.absorb import absorbed
from intaglio.quantize.difference import output_error
from intaglio.quantize.improve import corrected_biases, equalize
from intaglio.quantize.insert import (
    FLOAT,
    INT4,
    INT8,
    INT16,
    NARROW,
    PALETTE,
    Plan,
    choose_grids,
    clone,
    stored_tensors,
    with_quantisation,
)
from intaglio.quantize.layers import Scheme, layer_name, loops_in_floats, many_weights, matches, scheme_of
from intaglio.quantize.sensitivity import sensitivity
from intaglio.quantize.settings import METHODS, SCHEMES, Account, LayerRow, OutputError, Progress, Settings, silent
from intaglio.quantize.statistics import Statistics, run_where_there_is_room
from intaglio.quantize.statistics import observe as look_at

KINDS = {"int8": INT8, "int16x8": INT16, "int4": INT4, "palette": PALETTE}
JUDGES, JUDGES_OF_LOOPS = 16, 4  # samples that decide between methods; the references of loops are slow


class Quantizer:
    """One quantisation: the float graph, its statistics, and the best plan so far."""

    def __init__(self, graph: Graph, samples: list[dict[str, Array]], settings: Settings, progress: Progress) -> None:
        self.settings, self.samples, self.progress = settings, samples, progress
        self.float = graph
        self._judged: list[tuple[Graph, Plan, list[OutputError]]] = []
        self.observe(graph)

    def observe(self, graph: Graph) -> None:
        self.graph = graph
        self.scheme: Scheme = scheme_of(graph)
        if not self.scheme.layers:
            where = " outside of its loops" if any(node.op.LOOP for node in graph.nodes) else ""
            raise UserError("nothing-to-quantize", f"no operator of this model{where} has an integer form")
        self.statistics: Statistics = look_at(graph, stored_tensors(self.scheme), self.samples, self.progress)

    def build(self, plan: Plan, *, integer_io: bool = False) -> Graph:
        grids = choose_grids(self.scheme, plan, self.statistics)
        return with_quantisation(self.scheme, plan, grids, integer_io=integer_io)

    def errors(self, graph: Graph) -> list[OutputError]:
        """The difference at the outputs, over the samples that judge."""
        judges = self.samples[: JUDGES_OF_LOOPS if any(node.op.LOOP for node in graph.nodes) else JUDGES]
        made = [
            [np.zeros(0) if r is None else r[v.name] if v.data is None else v.data for v in graph.outputs]
            for r in run_where_there_is_room(graph, judges)
        ]
        names = self.float.output_names or [v.origin or v.name for v in self.float.outputs]
        wanted = [[results[v.name] for v in self.graph.outputs] for results in self.statistics.results[: len(judges)]]
        pairs = list(zip(wanted, made, strict=True))
        return [output_error(names[n], [(want[n], got[n]) for want, got in pairs]) for n in range(len(self.graph.outputs))]

    def integers(self, plan: Plan, *, integer_io: bool = False) -> tuple[Graph, list[str]]:
        floats = frozenset(n.output.name for n in self.scheme.layers if plan.of(n) == FLOAT)
        return absorbed(self.build(plan, integer_io=integer_io), fixed=True, floats=floats)

    def judged(self, plan: Plan) -> list[OutputError]:
        """Of the integers themselves: they round a little differently from Quantize and Dequantize around floats. Found once."""
        for graph, known, errors in self._judged:
            if graph is self.graph and known.biases is plan.biases and replace(known, biases={}) == replace(plan, biases={}):
                return errors
        errors = self.errors(self.integers(plan)[0])
        self._judged.append((self.graph, plan, errors))
        return errors

    def error(self, plan: Plan) -> float:
        return max((e.relative for e in self.judged(plan)), default=0.0)


def quantize(
    graph: Graph, samples: list[dict[str, Array]], settings: Settings, *, random_data: bool = False, progress: Progress = silent
) -> tuple[Graph, Account]:
    """The graph on integers, and what it cost. `graph` is prepared: its batch norms folded, its images NHWC."""
    check(graph, settings)
    work = Quantizer(graph, samples, settings, progress)
    plan = _first_plan(work)
    account = Account(settings.scheme, len(samples), random_data, "")
    plan = _choose_ranges(work, plan, account)
    plan = _improve(work, plan, account)
    rows = sensitivity(work.scheme, plan, work.statistics, work.samples, progress) if settings.sensitivity else []
    if settings.max_error is not None and account.reached > settings.max_error:
        plan = _widen(work, plan, settings.max_error, rows)
    final, notes = work.integers(plan, integer_io=settings.integer_io)
    account.outputs = work.judged(plan)
    notes += [*loops_in_floats(work.graph), *_still_floats(final)]
    by_name = {n.output.name: layer_name(n) for n in work.scheme.layers}
    numbers = {n.output.name: number for number, n in enumerate(work.scheme.layers, 1)}
    account.kept = {
        by_name[name]: kind for name, kind in plan.stored.items() if name in by_name and kind != _usual(work, plan)[name]
    }
    account.layers = [
        replace(row, number=numbers[row.name], name=by_name[row.name], stored=plan.stored.get(row.name, plan.default))
        for row in rows
    ]
    account.advice = _advice(work, plan, account, numbers)
    account.notes = notes
    return final, account


def _still_floats(graph: Graph) -> list[str]:
    """Operators with weights in floating point, and how much that is."""
    names: Counter[str] = Counter()
    size = 0
    for node in graph.nodes:
        large = [v for v in node.inputs if v is not None and v.data is not None and v.dtype is DType.F32 and v.type.elements >= 256]
        if large:
            names[node.op.NAME] += 1
            size += sum(v.type.bytes for v in large)
    if not names:
        return []
    told = ", ".join(f"{count} `{name}`" if count > 1 else f"`{name}`" for name, count in sorted(names.items()))
    return [f"weights of {size:,} bytes stay in floating point: {told}"]


def check(graph: Graph, settings: Settings) -> None:
    """Before any data is read: are the words right, and is it a float model?"""
    if settings.scheme not in SCHEMES:
        hint = "use int8, int16x8, int4, palette or weights"
        raise UserError("bad-option", f"unknown quantisation {quoted(settings.scheme)}", hint=hint)
    if settings.ranges not in ("auto", *METHODS):
        hint = "auto, " + ", ".join(METHODS)
        raise UserError("bad-option", f"unknown method {quoted(settings.ranges)} for ranges", hint=hint)
    if any(node.op.NAME in ("qconv", "qmatmul", "quantize", "hybrid_conv", "hybrid_matmul", "qlstm") for node in graph.nodes):
        raise UserError("already-quantized", "the model is already quantised", hint="use the float model")


def _usual(work: Quantizer, plan: Plan) -> dict[str, str]:
    """How layers are stored where nobody asks for more: 8 bits where few weights would have 4."""
    narrow = plan.default in NARROW
    return {n.output.name: INT8 if narrow and not many_weights(n) else plan.default for n in work.scheme.layers}


def _first_plan(work: Quantizer) -> Plan:
    settings = work.settings
    plan = Plan(KINDS[settings.scheme])
    plan.stored.update({name: kind for name, kind in _usual(work, plan).items() if kind != plan.default})
    for kind, patterns in ((INT8, settings.keep_int8), (INT16, settings.keep_int16), (FLOAT, settings.keep_float)):
        for pattern in patterns:
            found = [n for number, n in enumerate(work.scheme.layers, 1) if pattern == str(number) or matches(n, pattern)]
            if not found:
                names = ", ".join(quoted(layer_name(n)) for n in work.scheme.layers[:4])
                hint = f"use a number or a name of the table that `--quantize` prints: 1 to {len(work.scheme.layers)}; {names}, ..."
                raise UserError("no-such-layer", f"no layer is named {quoted(pattern)}", hint=hint)
            plan.stored.update({n.output.name: kind for n in found})
    return plan


def _choose_ranges(work: Quantizer, plan: Plan, account: Account) -> Plan:
    """The method with the least error; a method that is asked for is measured too."""
    methods = METHODS if work.settings.ranges == "auto" else (work.settings.ranges,)
    for n, method in enumerate(methods):
        work.progress("choosing ranges", n, len(methods))
        account.tried[method] = work.error(replace(plan, method=method))
    account.ranges = min(account.tried, key=lambda m: account.tried[m])
    work.progress("choosing ranges", len(methods), len(methods))
    return replace(plan, method=account.ranges)


def _improve(work: Quantizer, plan: Plan, account: Account) -> Plan:
    """Equalisation and bias correction, each kept only if the error at the outputs becomes smaller."""
    account.reached = best = account.tried[account.ranges]
    if work.settings.equalize:
        balanced, _ = clone(work.graph)
        pairs = equalize(balanced, work.statistics)
        if pairs:
            old = work.graph, work.scheme, work.statistics
            work.observe(balanced)
            error = work.error(plan)
            account.tried["equalized"] = error
            if error < best:
                best, account.equalized = error, pairs
            else:
                work.graph, work.scheme, work.statistics = old
    if work.settings.correct_bias:
        biases = corrected_biases(work.scheme, plan, work.statistics)
        corrected = replace(plan, biases=biases)
        error = work.error(corrected)
        account.tried["bias corrected"] = error
        if biases and error < best:
            best, account.corrected, plan = error, len(biases), corrected
    account.reached = best
    return plan


def _widen(work: Quantizer, plan: Plan, wanted: float, rows: list[LayerRow]) -> Plan:
    """The layers that hurt most get more bits, then floats, until the error is small enough: as few as it takes."""
    if not rows:
        rows = sensitivity(work.scheme, plan, work.statistics, work.samples, work.progress)
    order = [row.name for row in sorted(rows, key=lambda r: -r.alone) if plan.stored.get(row.name, INT8) == INT8]
    best = np.inf
    for kind in (INT8, INT16, FLOAT):
        if kind == plan.default or (kind == INT8 and plan.default not in NARROW):
            continue
        count = 1
        while count <= len(order):
            error = work.error(_wider(work, plan, order[:count], kind))
            best = min(best, error)
            if error <= wanted:
                return _fewest(work, plan, order, kind, count // 2, count, wanted)
            if count == len(order):
                break
            count = min(count * 2, len(order))
    hint = f"the least error reached is {best:.3g}; use more calibration data, or a larger `--max-error`"
    raise UserError("too-much-error", f"no choice of layers reduces the error to {wanted:.3g}", hint=hint)


def _fewest(work: Quantizer, plan: Plan, order: list[str], kind: str, low: int, high: int, wanted: float) -> Plan:
    """Halving between a count that is too few and one that is enough."""
    while high - low > 1:
        middle = (low + high) // 2
        trial = _wider(work, plan, order[:middle], kind)
        low, high = (low, middle) if work.error(trial) <= wanted else (middle, high)
    return _wider(work, plan, order[:high], kind)


def _wider(work: Quantizer, plan: Plan, names: list[str], kind: str) -> Plan:
    """With these layers stored as `kind`. Biases that were corrected for weights of 4 bits are corrected anew."""
    made = replace(plan, stored={**plan.stored, **dict.fromkeys(names, kind)})
    if plan.biases and plan.default in NARROW:
        made.biases = corrected_biases(work.scheme, made, work.statistics)
    return made


def _advice(work: Quantizer, plan: Plan, account: Account, numbers: dict[str, int]) -> str:
    """What would help most, tried: the layer that adds the most error, wider."""
    narrow = [row for row in account.layers if row.stored in (INT8, *NARROW)]
    if not narrow or account.error < 0.01:
        return ""
    worst = max(narrow, key=lambda row: row.alone)
    name = next(n for n, number in numbers.items() if number == worst.number)
    kinds = (INT8, INT16, FLOAT) if worst.stored in NARROW else (INT16, FLOAT)
    tried = {kind: work.error(_wider(work, plan, [name], kind)) for kind in kinds}
    kind = min(tried, key=lambda k: tried[k])
    if tried[kind] >= 0.98 * account.error:
        return f"layer {worst.number} adds the most error ({worst.alone:.2g} alone), but keeping only this layer wide does not help"
    word = {INT8: "--keep-int8", INT16: "--keep-int16", FLOAT: "--keep-float"}[kind]
    return (
        f"layer {worst.number} adds the most error: `{word} {worst.number}` makes it {account.error:.2g} to {tried[kind]:.2g}"
    )


__all__ = ["METHODS", "SCHEMES", "Account", "Settings", "check", "quantize"]
