"""NAME_golden.c: the golden test of `--safety golden`, layer by layer.

Outputs of a network hide much of what goes wrong before them: a maximum, a saturated softmax. This test runs the network in steps
on inputs that a small generator makes, so it needs no vectors in flash. After every step it compares

- a checksum of what the layer wrote with that of the numpy references: of bytes for integers; for floats, a sum of weighted
  fixed-point values within a tolerance,
- a checksum of the arena beside what the layer may write with that from before: a layer that writes elsewhere is found.

Left out are values that never exist as a whole (stripes), that depend on data (branches, loops), or whose rows lie apart.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from intaglio.errors import IntaglioError, UserError
from intaglio.ir.graph import Array, Value
from intaglio.ir.operator import BadOperator
from intaglio.ir.placement import OUTPUT, Address, Kind
from intaglio.ir.types import DType
from intaglio.kernels.program import Program
from intaglio.ops.evaluate import evaluate_graph
from intaglio.package.c_text import identifier
from intaglio.package.calls import Stretch
from intaglio.package.pointers import output_fields
from intaglio.package.safety import GUARD_BYTES

SCALES = (1.0, 16.0, 0.0625, 1.0, 4.0, 0.25)  # of inputs, by round: some saturate, some do not
ROUNDS = len(SCALES)
STEP = np.uint32(1664525), np.uint32(1013904223)  # a linear congruential generator; its high bits are used
FIXED_BITS = 20
MOST_OUTPUT_BYTES = 4096  # the test has buffers of its own for outputs up to this, with guards behind them
TOLERANCE = 1e-4  # of the largest value of a layer, times the square root of their number


@dataclass(frozen=True, slots=True)
class Row:
    """What a step has to give: in the arena from `at`, or output number `output`."""

    step: int
    layer: int
    output: int
    at: int
    count: int  # of bytes, or of floats
    scale: float  # 0: bytes
    expected: tuple[int, ...]  # by round
    tolerance: int


@dataclass(frozen=True, slots=True)
class Golden:
    rows: tuple[Row, ...]
    spans: tuple[tuple[int, int, int], ...]  # step, from, to: what it may write of the arena
    layers: tuple[int, ...]  # the first of each step
    rounds: int
    left_out: int  # layers without a row


def drawn(values: Iterable[Value], round_number: int) -> dict[str, Array]:
    """Inputs as the C code makes them."""
    state = np.uint32(0x1234567 + round_number)
    made = {}
    for value in values:
        count = value.type.elements
        words = np.empty(count, np.uint32)
        with np.errstate(over="ignore"):
            for i in range(count):
                state = np.uint32(state * STEP[0] + STEP[1])
                words[i] = state
        made[value.name] = _typed(words >> np.uint32(8), value, round_number).reshape(value.shape)
    return made


def _typed(words: Array, value: Value, round_number: int) -> Array:
    if value.dtype is DType.F32:
        unit = (words.astype(np.int64) - (1 << 23)).astype(np.float32) * np.float32(2.0**-23)
        return np.asarray(unit * np.float32(SCALES[round_number]), np.float32)
    if value.dtype in (DType.I8, DType.U8):
        return np.asarray(((words >> 16) >> (4 if round_number % 3 == 2 else 0)).astype(np.uint8).view(value.dtype.numpy))
    return np.asarray((words >> 23).astype(value.dtype.numpy))


def golden_of(program: Program, steps: tuple[tuple[Stretch, ...], ...], *, guarded: bool) -> Golden:
    graph = program.graph
    _check(program)
    fed = {state.input: state for state in graph.states}
    inputs = [value for value in graph.inputs if value not in fed]
    kept = {v.name: np.full(v.shape, s.fill, v.dtype.numpy) for v, s in fed.items()}
    try:
        rounds = [evaluate_graph(graph, {**drawn(inputs, n), **kept}, keep=True) for n in range(ROUNDS)]
    except (IntaglioError, BadOperator) as error:
        raise UserError("no-golden", f"the network does not accept random inputs: {error}", hint="omit `golden`") from None
    rows: list[Row] = []
    spans: list[tuple[int, int, int]] = []
    seen: set[int] = set()
    firsts: list[int] = []
    for number, step in enumerate(steps):
        calls = [call for block in step for call in block.calls]
        striped = [n for block in step if block.stripe is not None for n, _ in block.stripe.results]
        firsts.append(min([call.index for call in calls] + striped, default=firsts[-1] if firsts else 0))
        plain = len(calls) == 1 and not any(block.guard or block.stripe or block.before for block in step)
        spans += _written(program, number, calls[0].index, guarded) if plain else [(number, 0, program.arena_bytes)]
        layers = [call.index for block in step if not block.guard for call in block.calls] if plain else []
        layers += [block.stripe.results[-1][0] for block in step if block.stripe is not None and block.stripe.results]
        for layer in layers:
            found = [row for v in program.layers[layer].node.outputs if (row := _row(program, number, layer, v, rounds))]
            rows += found
            seen |= {layer} if found else set()
    if steps and (graph.states or _copies(program)):  # what the last step copies is not its layer's
        spans.append((len(steps) - 1, 0, program.arena_bytes))
    return Golden(tuple(rows), tuple(spans), tuple(firsts), ROUNDS, len(program.layers) - len(seen))


def _check(program: Program) -> None:
    """What the test has no room for."""
    reason = ""
    if len(program.arenas) > 1:
        reason = "arenas in several memories"
    if program.graph.bounds is not None:
        reason = "sizes with a bound"
    if program.asynchronous or program.graph.weights == "read":
        reason = "work that goes on beside the layers"
    if any(
        v.dtype not in (DType.F32, DType.I8, DType.U8, DType.I16, DType.I32, DType.I64, DType.BOOL) for v in program.graph.inputs
    ):
        reason = "inputs of these types"
    if reason:
        raise UserError("no-golden", f"`--safety golden` does not work with {reason}", hint="omit `golden`")


def _copies(program: Program) -> bool:
    return any(program.placement.of(value) != Address(OUTPUT, n) for n, value in enumerate(program.graph.outputs))


def _written(program: Program, step: int, index: int, guarded: bool) -> list[tuple[int, int, int]]:
    """Of the arena, by a layer."""
    layer, place = program.layers[index], program.placement
    pitches = program.storage_pitches()
    found: list[tuple[int, int, int]] = []
    if guarded and step == 0:  # which writes the guards
        end = program.arena_bytes
        found += [(step, 0, GUARD_BYTES), (step, end - GUARD_BYTES, end)]
    for value in layer.node.outputs:
        at = place.of(value)
        if at is not None and at.region == OUTPUT:
            at = place.slots.get(("output", at.offset))
        if at is not None and at.region.kind in (Kind.ARENA, Kind.STATE):
            extent = pitches[value].extent(value) if value in pitches else value.type.bytes
            found.append((step, at.offset, at.offset + int(extent)))
        elif at is not None and at.region.kind is Kind.PART:
            return [(step, 0, program.arena_bytes)]
    if (at := place.scratch.get(layer.name)) is not None:
        found.append((step, at.offset, at.offset + layer.scratch_bytes))
    return found


def _row(program: Program, step: int, layer: int, value: Value, rounds: list[dict[str, Array]]) -> Row | None:
    at = program.placement.of(value)
    if at is None or at.stride or program.window_of(value) is not None or any(value.name not in values for values in rounds):
        return None
    if at.region != OUTPUT and at.region.kind not in (Kind.ARENA, Kind.STATE):
        return None
    output, offset = (at.offset, 0) if at.region == OUTPUT else (-1, at.offset)
    arrays = [np.ascontiguousarray(values[value.name]) for values in rounds]
    if value.dtype is DType.F32:
        return _float_row(step, layer, output, offset, arrays)
    if value.dtype.is_float:
        return None
    return Row(step, layer, output, offset, value.type.bytes, 0.0, tuple(zlib.crc32(a.tobytes()) for a in arrays), 0)


def _float_row(step: int, layer: int, output: int, offset: int, arrays: list[Array]) -> Row | None:
    largest = max(float(np.abs(a).max(initial=0.0)) for a in arrays)
    if not math.isfinite(largest) or largest == 0.0:
        return None
    scale = 2.0 ** (FIXED_BITS - math.frexp(largest)[1])
    count = arrays[0].size
    sums = []
    for array in arrays:
        fixed = np.trunc(array.astype(np.float64).ravel() * scale).astype(np.int64)
        sums.append(int((fixed * (1 + np.arange(count) % 7)).sum()))
    return Row(step, layer, output, offset, count, scale, tuple(sums), int(TOLERANCE * 2**FIXED_BITS * math.sqrt(count)) + 1)


def golden_rows(golden: Golden) -> list[str]:
    """C initialisers."""
    told = []
    for r in golden.rows:
        place = f"{r.step}, {r.layer}, {r.output}, {r.at}u, {r.count}u, {r.scale!r}f, {r.tolerance}"
        told.append(f"{{{place}, {{{', '.join(map(str, r.expected))}}}}},")
    return told


def golden_variables(program: Program, golden: Golden) -> dict[str, object]:
    """For the template."""
    fed = {state.input for state in program.graph.states}
    inputs = [(identifier(v.name), v.dtype.value, v.type.elements) for v in program.graph.inputs if v not in fed]
    return {
        "rows": golden_rows(golden),
        "spans": golden.spans,
        "rounds": golden.rounds,
        "layers": golden.layers or (0,),
        "given": inputs,
        "scales": [f"{scale * 2.0**-23!r}f" for scale in SCALES],
        "own_outputs": sum(value.type.bytes for value in program.graph.outputs) <= MOST_OUTPUT_BYTES,
        "fields": output_fields(program.graph),
        "floats": any(row.scale for row in golden.rows),
        "integers": any(not row.scale for row in golden.rows),
    }
