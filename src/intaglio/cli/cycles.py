"""Estimated cycles in words: of a core, or of a board with its interval and what the core waits for."""

from __future__ import annotations

from collections.abc import Sequence

from intaglio.cli.terminal import count_text, ms_text
from intaglio.run.timing import Emulation, LayerTime, Total

BEATS = 4  # of a vector instruction, 32 bits each
WORTH_RAM = 0.01  # of the cycles
SLOWER_FROM_RAM = ("cortex-m3", "cortex-m4")  # they fetch it over another bus, at a cost that is not estimated
SHOWN_CAUSES = 2  # columns of the table of layers; all are in the JSON


def cycles_lines(total: Total, emulation: Emulation) -> list[str]:
    """Each is one sentence of the answer."""
    if total.cycles is None:
        return ["cycles: ?"]
    clock = emulation.clock_mhz
    at = "" if not clock or total.time_ms is None else f" = {ms_text(total.time_ms)} ms at {clock:g} MHz"
    if not emulation.described:
        waits = f"{emulation.wait_states} wait states of flash" if emulation.wait_states else "zero wait states"
        lines = [f"cycles: about {total.cycles:,}{at} (an estimate for {emulation.core}, {waits})"]
    else:
        waited = sum(stall.cycles for stall in total.stalls)
        parts = [f"core {total.cycles - waited:,}", *(f"{s.cause} {s.cycles:,} ({s.count:,})" for s in total.stalls)]
        lines = [
            f"cycles: about {total.cycles:,}{at} (an estimate for {emulation.board})",
            f"of these: {', '.join(parts)}",
        ]
    if (waited := _waits_for_code(total)) and not total.code_ram_bytes and emulation.core not in SLOWER_FROM_RAM:
        share = f"{waited / total.cycles:.1%}"
        lines.append(f"{share} of them are waits for code: kernels in RAM (`--code ram`) would save most of these")
    if total.vector_instructions and total.instructions:
        beats = BEATS * total.vector_instructions
        of = f"{total.vector_instructions / total.instructions:.0%} of all"
        lines.append(f"vector instructions: {total.vector_instructions:,}, {of}: {beats:,} beats, two a cycle (estimated)")
    if total.cycles_low is not None and total.cycles_high is not None:
        lines.append(f"interval: {_rounded(total.cycles_low)} to {_rounded(total.cycles_high)} ({emulation.basis})")
    if emulation.one_core_cycles is not None and total.cycles:
        gain = emulation.one_core_cycles / total.cycles
        lines.append(
            f"{emulation.cores} cores: {gain:.2f} times as fast as one, which takes {_rounded(emulation.one_core_cycles)} cycles "
            "(of each layer the longer part is counted)"
        )
    return lines


def _waits_for_code(total: Total) -> int:
    """Cycles, where they are worth some RAM."""
    waited = sum(stall.cycles for stall in total.stalls if stall.cause == "branches" or stall.cause.endswith(" code"))
    return waited if total.cycles and waited >= WORTH_RAM * total.cycles else 0


def _rounded(cycles: int) -> str:
    """At least three digits: `5.03 M`."""
    for size, unit in ((1_000_000, " M"), (1_000, " k")):
        if cycles >= size:
            return f"{cycles / size:,.{max(0, 3 - len(str(cycles // size)))}f}{unit}"
    return str(cycles)


def largest_causes(total: Total) -> list[str]:
    """What the core waits for longest."""
    waited = sorted((s for s in total.stalls if s.cycles), key=lambda s: -s.cycles)
    return [stall.cause for stall in waited[:SHOWN_CAUSES]]


def waits_of(layer: LayerTime, causes: Sequence[str]) -> list[str]:
    """Cells of a layer: cycles that it waits, by cause."""
    waited = {stall.cause: stall.cycles for stall in layer.stalls}
    return [count_text(waited.get(cause, 0)).replace(" ", "") for cause in causes]
