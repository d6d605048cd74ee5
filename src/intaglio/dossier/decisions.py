"""MC/DC of the generated C by clang (18 and later) and llvm-cov, where gcc does not measure it: for each condition of a decision,
was there a pair of runs in which it alone changed the outcome? What geometry decides has one outcome in a network.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

VERSIONS = ("", *(f"-{n}" for n in range(25, 17, -1)))
FLAGS = ("-fprofile-instr-generate", "-fcoverage-mapping", "-fcoverage-mcdc")
PROBE = "int probe(int a, int b);\nint probe(int a, int b) { return a && b; }\nint main(void) { return probe(0, 1); }\n"
SECONDS = 300


@dataclass(frozen=True, slots=True)
class Llvm:
    clang: str
    merge: str  # llvm-profdata
    report: str  # llvm-cov


@dataclass(frozen=True, slots=True)
class Decisions:
    """`covered` of `conditions` were shown to decide alone; `missing` are the lines of the others, by file."""

    conditions: int
    covered: int
    compiler: str
    missing: tuple[tuple[str, int], ...] = ()


def find_llvm(place: Path) -> Llvm | None:
    """The newest that builds a program which counts conditions: clang may be there without its run-time library."""
    (place / "probe.c").write_text(PROBE, encoding="ascii")
    for suffix in VERSIONS:
        found = [shutil.which(f"{tool}{suffix}") for tool in ("clang", "llvm-profdata", "llvm-cov")]
        if all(found):
            llvm = Llvm(*map(str, found))
            if _run([llvm.clang, *FLAGS, "probe.c", "-o", "probe"], place) is not None:
                return llvm
    return None


def decisions_of(llvm: Llvm, sources: Sequence[Path], flags: Sequence[str], own: set[str], place: Path) -> Decisions | None:
    """`sources` with the driver that runs them; only the decisions of files named in `own` count. None: it cannot be built so."""
    if _run([llvm.clang, *FLAGS, *flags, *map(str, sources), "-o", "decisions", "-lm"], place) is None:
        return None
    raw, merged = place / "runs.profraw", place / "runs.profdata"
    if _run([str(place / "decisions")], place, LLVM_PROFILE_FILE=str(raw)) is None:
        return None
    if _run([llvm.merge, "merge", str(raw), "-o", str(merged)], place) is None:
        return None
    told = _run([llvm.report, "export", str(place / "decisions"), f"-instr-profile={merged}"], place)
    if told is None:
        return None
    files = {Path(file["filename"]).name: file.get("mcdc_records", []) for file in json.loads(told)["data"][0]["files"]}
    records = [(name, int(record[0]), record[-1]) for name, found in sorted(files.items()) if name in own for record in found]
    alone = [condition for _, _, conditions in records for condition in conditions]
    version = (_run([llvm.clang, "--version"], place) or "clang").splitlines()[0]
    return Decisions(len(alone), sum(alone), version, tuple((name, line) for name, line, found in records if not all(found)))


def _run(command: list[str], place: Path, **variables: str) -> str | None:
    try:
        done = subprocess.run(
            command, cwd=place, env={**os.environ, **variables}, capture_output=True, text=True, errors="replace", timeout=SECONDS
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None
