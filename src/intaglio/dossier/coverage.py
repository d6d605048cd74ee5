"""The generated C under test on this machine: which statements and branches ran, by gcov.

The sources of the network (not the application around them) are built with gcc `--coverage` and without optimisation, with a driver
that gives NULL pointers, an arena that is not aligned, and inputs of many kinds: small, large, saturating, constant. Firmware is
covered as plain C: instructions that only the core has are compiled there from the C beside them. Decisions (MC/DC) are measured
where gcc has `-fcondition-coverage` (14 and later), or else where there is a clang that counts them (`decisions`).
"""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
from dataclasses import dataclass, field, replace
from pathlib import Path

from intaglio.dossier.decisions import decisions_of, find_llvm
from intaglio.package.c_text import C_TYPES
from intaglio.package.manifest import Manifest, target_of
from intaglio.targets.target import Target

SEEDS = 60
SECONDS = 300
APART = ("_serial", "_profile", "_selftest", "_threads", "_read")  # not the network itself
BESIDE = ("_golden", "_slots", "_check")  # neither, but the network calls them


@dataclass(frozen=True, slots=True)
class FileCoverage:
    file: str
    lines: int
    ran: int
    branches: int
    taken: int
    missing: tuple[int, ...]  # lines that did not run


@dataclass(frozen=True, slots=True)
class Coverage:
    files: tuple[FileCoverage, ...] = ()
    conditions: int | None = None  # or their outcomes, two each, where gcc counts; None: not measured
    covered: int | None = None
    compiler: str = ""
    runs: int = 0
    reason: str = ""  # why there is none
    notes: tuple[str, ...] = field(default=())
    conditions_by: str = ""  # a compiler other than that of the rest
    undecided: tuple[tuple[str, int], ...] = ()  # files and lines of conditions that never decided alone, where they are known

    @property
    def failed(self) -> bool:
        """It was tried."""
        return bool(self.compiler and self.reason)

    @property
    def statement_share(self) -> float | None:
        return _share(sum(f.ran for f in self.files), sum(f.lines for f in self.files))

    @property
    def branch_share(self) -> float | None:
        return _share(sum(f.taken for f in self.files), sum(f.branches for f in self.files))


def _share(part: int, whole: int) -> float | None:
    """None: there is nothing to cover, or nothing was measured."""
    return part / whole if whole else None


def percent(share: float | None) -> str:
    return "none" if share is None else f"{100 * share:.1f} %"


def coverage_of(folder: Path, manifest: Manifest) -> Coverage:
    gcc, gcov = shutil.which("gcc"), shutil.which("gcov")
    if gcc is None or gcov is None:
        return Coverage(reason="gcc and gcov are not installed here")
    target = target_of(manifest)
    if target.device or target.wasm or manifest.variants or manifest.accelerators or manifest.shared:
        return Coverage(reason="coverage is for one network in C")
    if manifest.options.get("weights") == "read" or len(manifest.memory.arena_sizes()) > 1 or manifest.memory.fed_rows:
        return Coverage(reason="networks whose weights are read, with several arenas or fed rows have none yet")
    if not target.bare and not _runs_here(target):
        return Coverage(reason=f"`{target.name}` is not this machine")
    with tempfile.TemporaryDirectory(prefix="intaglio-coverage-") as place:
        return _measured(folder.resolve(), manifest, target, Path(place), gcc, gcov)  # commands run in that place


def _runs_here(target: Target) -> bool:
    import platform

    return target.name == "generic" or target.arch in ("", platform.machine())


def _measured(folder: Path, manifest: Manifest, target: Target, place: Path, gcc: str, gcov: str) -> Coverage:
    version = subprocess.run([gcc, "--version"], check=False, capture_output=True, text=True).stdout.splitlines()[0]
    conditions = _has_conditions(gcc, place)
    plain = ["-O0", "-std=gnu99", "-ffp-contract=off", "-w", f"-I{folder / 'include'}", f"-I{folder / 'src'}"]
    plain += list(target.flags) if not target.bare else []
    flags = [*plain, "--coverage", *(["-fcondition-coverage"] if conditions else [])]
    (place / "driver.c").write_text(_driver(manifest), encoding="ascii")
    sources = [p for p in sorted((folder / "src").iterdir()) if p.suffix in (".c", ".S") and not _apart(p, manifest.name, APART)]
    objects = []
    for source in [*sources, place / "driver.c"]:
        made = place / f"{source.name}.o"
        done = subprocess.run([gcc, *flags, "-c", source, "-o", made], check=False, capture_output=True, text=True, cwd=place)
        if done.returncode:
            return Coverage(compiler=version, reason=f"`{source.name}` cannot be built for this machine: {done.stderr[:200]}")
        objects.append(made)
    linked = subprocess.run(
        [gcc, "--coverage", *objects, "-o", place / "driver", "-lm"], check=False, capture_output=True, text=True
    )
    if linked.returncode:
        return Coverage(compiler=version, reason=f"the sources cannot be linked for this machine: {linked.stderr[:200]}")
    try:
        ran = subprocess.run([place / "driver"], check=False, capture_output=True, cwd=place, timeout=SECONDS)
    except subprocess.TimeoutExpired:
        return Coverage(compiler=version, reason=f"the runs take longer than {SECONDS} s")
    if ran.returncode:
        return Coverage(compiler=version, reason=f"the driver stopped with {ran.returncode}")
    own = [made for source, made in zip(sources, objects, strict=False) if not _apart(source, manifest.name, BESIDE)]
    tables = [_gcov(gcov, made, place) for made in own]
    found = _summed(tables, folder, conditions, version)
    llvm = None if conditions else find_llvm(place)
    counted = llvm and decisions_of(llvm, [*sources, place / "driver.c"], plain, {Path(f.file).name for f in found.files}, place)
    if not counted:
        return found
    return replace(
        found, conditions=counted.conditions, covered=counted.covered, conditions_by=counted.compiler, undecided=counted.missing
    )


def _apart(path: Path, name: str, endings: tuple[str, ...]) -> bool:
    return path.stem in [name + ending for ending in endings]


def _has_conditions(gcc: str, place: Path) -> bool:
    probe = place / "probe.c"
    probe.write_text("int probe(void); int probe(void) { return 0; }\n", encoding="ascii")
    words = [gcc, "-fcondition-coverage", "--coverage", "-c", str(probe), "-o", str(place / "probe.o")]
    return subprocess.run(words, check=False, capture_output=True).returncode == 0


def _gcov(gcov: str, made: Path, place: Path) -> dict[str, list[dict[str, object]]]:
    words = [gcov, "--json-format", "--stdout", "-b", str(made)]
    done = subprocess.run(words, check=False, capture_output=True, text=True, cwd=place)
    found: dict[str, list[dict[str, object]]] = {}
    for line in done.stdout.splitlines():
        if line.startswith("{"):
            for file in json.loads(line)["files"]:
                found.setdefault(str(file["file"]), []).extend(file["lines"])
    return found


def _summed(tables: list[dict[str, list[dict[str, object]]]], folder: Path, conditions: bool, version: str) -> Coverage:
    lines: dict[str, dict[int, int]] = {}
    branches: dict[str, dict[tuple[int, int], int]] = {}
    outcomes = covered = 0
    for table in tables:
        for file, rows in table.items():
            name = Path(file).name
            for row in rows:
                number, count = int(str(row["line_number"])), int(str(row["count"]))
                own = lines.setdefault(name, {})
                own[number] = max(own.get(number, 0), count)
                given = row["branches"]
                for n, branch in enumerate(given if isinstance(given, list) else []):
                    ways = branches.setdefault(name, {})
                    ways[number, n] = max(ways.get((number, n), 0), int(branch["count"]))
                for condition in _conditions(row):
                    outcomes += int(str(condition["count"]))
                    covered += int(str(condition["covered"]))
    files = tuple(
        FileCoverage(
            f"src/{name}", len(own), sum(count > 0 for count in own.values()), len(branches.get(name, {})),
            sum(count > 0 for count in branches.get(name, {}).values()), tuple(sorted(n for n, count in own.items() if not count)),
        )
        for name, own in sorted(lines.items()) if (folder / "src" / name).is_file()
    )  # fmt: skip
    return Coverage(files, outcomes if conditions else None, covered if conditions else None, version, SEEDS)


def _conditions(row: dict[str, object]) -> list[dict[str, object]]:
    found = row.get("conditions")
    return [c for c in found if isinstance(c, dict)] if isinstance(found, list) else []


_HEAD = """#include "NAME.h"

#include <stdint.h>
#include <string.h>

static uint32_t state = 1;
static uint32_t next(void)
{
    state = state * 1664525u + 1013904223u;
    return state >> 8;
}
static __attribute__((aligned(64))) unsigned char memory[NAME_ARENA_BYTES + 64];
"""


def _driver(manifest: Manifest) -> str:
    name, upper = manifest.name, manifest.name.upper()
    text = _HEAD.replace("NAME.h", f"{name}.h").replace("NAME_", f"{upper}_")
    tensors = [("in", n, info) for n, info in enumerate(manifest.inputs)] + [
        ("out", n, info) for n, info in enumerate(manifest.outputs)
    ]
    for kind, n, info in tensors:
        text += f"static {C_TYPES[info.type.dtype]} {kind}{n}[{max(1, info.type.elements)}];\n"
    text += "int main(void)\n{\n"
    text += (
        f"    {name}_inputs in; {name}_outputs out; int failed = 0;\n    memset(&in, 0, sizeof in); memset(&out, 0, sizeof out);\n"
    )
    text += f"    for (int code = -1; code < 64; code++) failed |= {name}_error(code) == 0;\n"
    text += f"    failed |= {name}_run_in(0, &in, &out) == 0;\n    failed |= {name}_run_in(memory, 0, &out) == 0;\n"
    text += f"    failed |= {name}_run_in(memory, &in, 0) == 0;\n"
    for kind, n, info in tensors:
        text += f"    failed |= {name}_run_in(memory, &in, &out) == 0;\n    {kind}.{info.field} = {kind}{n};\n"
    for size in manifest.sizes:
        text += f"    in.size_{size.name} = {size.high};\n" if not size.found else ""
    text += f"    failed |= {name}_run_in(memory + 1, &in, &out) != {upper}_ARENA_MISALIGNED;\n"
    if manifest.states:
        text += f"    {name}_reset_in(memory);\n"
    text += f"    for (int seed = 0; seed < {SEEDS}; seed++) {{\n        state = (uint32_t)seed * 7919u + 1u;\n"
    for n, info in enumerate(manifest.inputs):
        text += (
            f"        for (size_t i = 0; i < sizeof in{n} / sizeof in{n}[0]; i++)\n            in{n}[i] = {_fill(info.dtype)};\n"
        )
    text += f"        (void){name}_run_in(memory, &in, &out);\n    }}\n    return failed;\n}}\n"
    return text


def _fill(dtype: str) -> str:
    if dtype in ("f32", "f64"):
        scale = "seed % 5 == 0 ? 1.2e-7f : seed % 5 == 1 ? 1e-6f : seed % 5 == 2 ? 1e-9f : seed % 5 == 3 ? 1e2f : 0.0f"
        return f"((float)(int)next() - 8388608.0f) * ({scale})"
    if dtype in ("i8", "u8", "i16", "u16"):
        return "seed % 3 ? next() : (next() & 1u) ? 0x7fff : 0x8080"
    return "next() & 1u"
