"""What a target can do at best, to hold layers against: multiply-adds and bytes in a microsecond, or in a cycle without a clock.

A microcontroller: its table of costs (`run/costs.py`) has the cycles of a multiply-add and of a load, the board's file the clock
and the wait states of flash. This machine: the figures of the target's file, which are those of a memory, not of its caches; where
a layer was measured above them, they are raised to it. Layers of some nanoseconds do not count: that is the clock's noise."""

from __future__ import annotations

from intaglio.report.facts import ESTIMATED, MEASURED, LayerFacts, Roof
from intaglio.run.costs import CORES
from intaglio.run.timing import LEAST_RATED_MS
from intaglio.targets.board import Board
from intaglio.targets.target import Target

PAIRS, VECTOR_BYTES, WORD_BYTES = 2, 16, 4  # SMLAD multiplies two pairs; a vector of Helium; a load


def roof_of(target: Target, board: Board | None, layers: tuple[LayerFacts, ...]) -> Roof | None:
    if target.device:
        return None
    return _of_core(target, board, layers) if target.bare else _of_host(target, layers)


def _of_core(target: Target, board: Board | None, layers: tuple[LayerFacts, ...]) -> Roof | None:
    best = _multiplied(target, layers)
    if best is None:
        return None
    (macs, how), dual = best, CORES[target.core].factor
    macs, loaded = macs / dual, _loaded(target) / dual
    clock = board.clock_mhz if board is not None and board.clock_mhz else None
    unit, scale = ("cycle", 1.0) if clock is None else ("us", clock)
    words = f"{macs:.3g} multiply-adds ({how}) and {loaded:.3g} bytes loaded in a cycle"
    words += "" if clock is None else f" at {clock:g} MHz"
    flash = None
    if board is not None and board.wait_states:
        wide = max([c.fill_bytes or c.line_bytes for c in board.caches if c.kind != "code"], default=WORD_BYTES)
        flash = wide / (1 + board.wait_states)
        words += f"; dashed: {flash:.2g} bytes in a cycle from flash, {board.wait_states} wait states, where no cache has them"
    return Roof(macs * scale, loaded * scale, unit, words, ESTIMATED, None if flash is None else flash * scale)


def _multiplied(target: Target, layers: tuple[LayerFacts, ...]) -> tuple[float, str] | None:
    """Multiply-adds in a cycle, before two instructions go at once; None where the table of costs does not tell."""
    if target.core not in CORES:
        return None
    costs, vectors = CORES[target.core], target.isa == "mve"
    floats = sum(layer.macs for layer in layers if layer.result.startswith("f"))
    if 2 * floats > sum(layer.macs for layer in layers):
        if target.fpu == "none":
            return None  # in software
        if vectors:
            return VECTOR_BYTES / 4 / costs.vector, "vectors of floats"
        return 1 / min(2, costs.float_multiply_add), "a product and a sum of floats"
    if vectors:
        return VECTOR_BYTES / costs.vector, "vectors of bytes"
    if target.isa.startswith("dsp"):
        return PAIRS / costs.multiply_add, "two products in one instruction"
    return 1 / max(2, costs.multiply_add), "a product and a sum"


def _loaded(target: Target) -> float:
    costs = CORES[target.core]
    return VECTOR_BYTES / costs.vector if target.isa == "mve" else WORD_BYTES / costs.next_load


def _of_host(target: Target, layers: tuple[LayerFacts, ...]) -> Roof:
    macs, moved = target.gflops * 1e3 / 2, target.gbytes_per_s * 1e3
    least = 1000 * LEAST_RATED_MS
    timed = [layer for layer in layers if layer.macs and layer.time and layer.time >= least]
    best = max((layer.macs / (layer.time or 1) for layer in timed), default=0.0)
    most = max(((layer.weight_bytes + layer.result_bytes) / (layer.time or 1) for layer in timed), default=0.0)
    words, source = f"{target.gflops:g} GFLOP/s and {target.gbytes_per_s:g} GB/s, the figures of the target", ESTIMATED
    if best > macs or most > moved:
        raised = [what for what, is_above in (("multiply-adds", best > macs), ("bytes", most > moved)) if is_above]
        words, source = f"{words}; {' and '.join(raised)} raised to the fastest layer, by caches or narrow types", MEASURED
    return Roof(max(macs, best), max(moved, most), "us", words, source, least=least)


__all__ = ["roof_of"]
