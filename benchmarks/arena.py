"""The arena of every shared model: how near to the lower bound, and how long planning takes.

    .venv/bin/python benchmarks/arena.py [--target cortex-m4f] [MODEL...]

Exit code 1 when one is more than 2 % above its bound, or takes 10 s to plan. Planning is measured alone, without the stages
before it. On a core without an operating system inputs and outputs are in the arena too.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import replace
from pathlib import Path

from intaglio.cli.terminal import print_table
from intaglio.ir.placement import NOWHERE
from intaglio.memory.place import place
from intaglio.pipeline import Planned, plan_request
from intaglio.stages import Request, Watch

SHARED = Path(__file__).resolve().parents[2] / "shared" / "models"
MOST_ABOVE, MOST_SECONDS = 0.02, 10.0


def planned(entry: dict[str, object], target: str) -> tuple[Planned, float]:
    """The model with its addresses, and the seconds of the memory stage."""
    inputs = entry["inputs"]
    assert isinstance(inputs, list)
    shapes = {f"in{n}": tuple(shape) for n, (_, _, shape) in enumerate(inputs)}
    made = plan_request(Request(SHARED / str(entry["file"]), Path(), target, shapes=shapes), Watch())
    unplaced = replace(made.program, placement=NOWHERE)
    start = time.perf_counter()
    place(unplaced, made.target, slots=made.program.has_slots)
    return made, time.perf_counter() - start


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*")
    parser.add_argument("--target", default="cortex-m4f")
    words = parser.parse_args()
    entries = [e for e in json.loads((SHARED / "manifest.json").read_text()) if e["format"] in ("onnx", "tflite")]
    rows, bad, optimal = [], 0, 0
    for entry in entries:
        if words.models and entry["id"] not in words.models:
            continue
        made, seconds = planned(entry, words.target)
        arena, bound = made.program.arena_bytes, made.program.lower_bound_bytes
        above = arena / bound - 1 if bound else 0.0
        bad += above > MOST_ABOVE or seconds > MOST_SECONDS
        optimal += made.program.optimal
        rows.append([entry["id"], f"{arena:,}", f"{bound:,}", "optimal" if arena == bound else f"{above:.1%}", f"{seconds:.2f}"])
    print_table(["model", ">arena", ">lower bound", ">above", ">planning, s"], rows)
    print(f"{len(rows)} models for {words.target}: {optimal} proven optimal, {bad} outside of the limits")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
