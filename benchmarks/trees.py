"""Forests as firmware and on this host, against emlearn, m2cgen, micromlgen and treelite (tl2cgen) on the same rows.

    make bench-trees                                    writes benchmarks/TREES.md
    .venv/bin/python benchmarks/trees.py --only 300 --core host    some forests and cores; the other tables are kept

On cores: instructions are counted on the emulated core, for one row, without filling the row; means over the same rows for all.
Flash is the whole program: start-up code, the model, what it needs of a C library. All are built by the same compiler with
the same flags, and around them is the same start-up code. On the host: medians of interleaved rounds, one row a call.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from tree_peers import PEERS, Forest, Refused, Written, version

import intaglio
from intaglio.package.manifest import board_of, read_manifest
from intaglio.run.costs import Coster
from intaglio.run.emulator.image import read_image
from intaglio.run.emulator.unicorn_core import UnicornCore
from intaglio.run.firmware import ROOM_BYTES, sizes_of
from intaglio.run.firmware_tools import compile_flags, find_firmware_toolchain, link_command, runtime
from intaglio.targets.target import Target, find_target, processor_name

ROOT = Path(__file__).resolve().parents[1]
BUILD = ROOT / "build" / "bench-trees"
REPORT = ROOT / "benchmarks" / "TREES.md"
CORES = ("cortex-m4f", "cortex-m0+")
ROWS, CHECKED = 20, 10_000
ROUNDS, CALLS = 15, 10_000
LIMIT = 1 << 30
BUILD_SECONDS = 120
FLAGS = ("-O3", "-march=native", "-ffp-contract=off", "-fPIC", "-w", "-I.")
SCALE = 1000.0  # of features as whole numbers
OURS = "Intaglio"
MAIN = """#include <stdint.h>
{kind} row_x[{features}] = {{1}};
int32_t row_class;
float row_value;
void row(void);
int main(void);
int main(void)
{{
    row();
    for (;;) {{
    }}
}}
"""


# Forests ----------------------------------------------------------------------------------------------------------------------


def _rows(seed: int, features: int, classes: int, whole: bool) -> tuple[Any, Any]:
    from sklearn.datasets import make_classification

    x, y = make_classification(
        4000 + CHECKED, features, n_informative=12, n_redundant=4, n_classes=classes, n_clusters_per_class=2, random_state=seed
    )
    if whole:
        return np.clip(np.round(x * SCALE), -32768, 32767).astype(np.int16), y
    return x.astype(np.float32), y


def _random_forest(trees: int, depth: int, whole: bool) -> tuple[Forest, Any]:
    from sklearn.ensemble import RandomForestClassifier

    x, y = _rows(0, 30, 4, whole)
    model = RandomForestClassifier(trees, max_depth=depth, random_state=0).fit(x[:4000], y[:4000])
    kind = "16-bit features" if whole else "floats"
    return Forest(f"random forest, {trees} trees of depth {depth}, {kind}", model, 30, 4, whole), x[4000:]


def _boosted(trees: int, depth: int, whole: bool) -> tuple[Forest, Any]:
    from sklearn.ensemble import GradientBoostingClassifier

    x, y = _rows(1, 20, 2, whole)
    model = GradientBoostingClassifier(n_estimators=trees, max_depth=depth, random_state=0).fit(x[:4000], y[:4000])
    kind = "16-bit features" if whole else "floats"
    return Forest(f"gradient boosting, {trees} trees of depth {depth}, {kind}", model, 20, 2, whole), x[4000:]


CASES: tuple[Callable[[], tuple[Forest, Any]], ...] = tuple(
    case
    for whole in (False, True)
    for case in (
        lambda whole=whole: _random_forest(100, 10, whole),
        lambda whole=whole: _random_forest(10, 7, whole),
        lambda whole=whole: _boosted(300, 4, whole),
    )
)


# Programs ---------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Result:
    """Of one tool and one core."""

    tool: str
    instructions: float
    cycles: float
    flash: int
    ram: int


# What peers include, of which a core without an operating system has nothing else.
HEADERS = {
    "stdlib.h": "#include <stddef.h>\n",
    "stdio.h": "#include <stddef.h>\n",
    "string.h": "#include <stddef.h>\n#define memcpy __builtin_memcpy\n#define memset __builtin_memset\n",
}
OUR_ROW = """#include "forest.h"
void row(void)
{{
    static int64_t label;
    static float scores[{classes}];
    forest_inputs in = {{row_x}};
    forest_outputs out = {{&label, scores}};
    (void)forest_run(&in, &out);
    row_class = (int32_t)label;
}}
"""


def ours(forest: Forest, x: Any, target: str, folder: Path) -> Written:
    intaglio.compile(forest.model, example_inputs=(x[:1],), output=folder, target=target, name="forest", force=True)
    headers = {p.name: p.read_text() for p in (folder / "include").iterdir()}
    row = forest.head() + OUR_ROW.format(classes=max(forest.classes, 2))
    unused = ("serial", "profile", "selftest")
    if target == "host":
        return Written({**headers, "row.c": row})
    sources = {p.name: p.read_text() for p in (folder / "src").iterdir() if p.is_file() and not p.stem.endswith(unused)}
    return Written({**headers, **sources, "row.c": row})


def build(written: Written, forest: Forest, frame: Path, target: Target, elf: Path) -> None:
    """`frame`: a package for this core, whose start-up code, linker script and C library are used."""
    toolchain = find_firmware_toolchain(None, target)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        shutil.copytree(frame / "firmware" / "libc", folder / "firmware" / "libc")
        for file in ("startup.c", "semihosting.c", "semihosting.h"):
            shutil.copy(frame / "firmware" / file, folder / "firmware")
        (folder / "firmware" / "row_main.c").write_text(MAIN.format(kind=forest.kind, features=forest.features))
        for file, text in written.files.items():
            (folder / file).write_text(text)
        script = (frame / "firmware" / "forest.ld").read_text()
        (folder / "link.ld").write_text(re.sub(r"LENGTH = \d+", f"LENGTH = {ROOM_BYTES}", script))
        objects = []
        for n, source in enumerate(sorted([*folder.rglob("*.c"), *folder.rglob("*.cpp")])):
            flags = [*compile_flags(toolchain, target), "-I.", "-Ifirmware", f"-I{(frame / 'include').resolve()}", "-w"]
            if source.suffix == ".cpp":
                flags = ["-x", "c++", "-std=c++17", "-fno-exceptions", "-fno-rtti", *(f for f in flags if f != "-std=c99")]
            objects.append(f"{n}.o")
            _run((*toolchain.compiler, *flags, "-c", str(source.relative_to(folder)), "-o", objects[-1]), folder)
        start = (*link_command(toolchain, target, "link.ld"), "-o", str(elf.resolve()), *objects)
        _run((*start, runtime(toolchain, target)), folder)


def _run(command: tuple[str, ...], folder: Path) -> None:
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=BUILD_SECONDS)
    except subprocess.TimeoutExpired:
        raise RuntimeError(f"\nthe compiler did not end within {BUILD_SECONDS} s") from None
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)[-300:]}\n{done.stderr[:2000]}")


def emulate(elf: Path, frame: Path, target: Target, rows: Any) -> tuple[float, float]:
    """Instructions and cycles of a row."""
    core = UnicornCore(read_image(elf), board_of(read_manifest(frame), target), target.core)
    coster = Coster(target.core, core.read, riscv=False)
    found = []
    for x in rows:
        core.write(core.image.address("row_x"), x.tobytes())
        before = core.counts()
        core.call("row", LIMIT)
        found.append(coster.add(core.counts().since(before)))
    core.close()
    return float(np.mean([f.instructions for f in found])), float(np.mean([f.cycles for f in found]))


def _file_name(tool: str) -> str:
    return re.sub(r"\W+", "_", tool)


def on_core(forest: Forest, x: Any, name: str, tool: str, folder: Path) -> Result | str:
    """A string: why there is no figure."""
    target, frame = find_target(name), folder / "frame"
    if not frame.is_dir():
        ours(forest, x, name, frame)
    try:
        written = ours(forest, x, name, frame) if tool == OURS else Written(HEADERS | PEERS[tool][1](forest).files)
    except Refused as reason:
        return str(reason)
    elf = folder / f"{_file_name(tool)}.elf"
    try:
        build(written, forest, frame, target, elf)
    except RuntimeError as error:
        return f"does not build: {str(error).splitlines()[1][:150]}"
    sizes = sizes_of(elf)
    instructions, cycles = emulate(elf, frame, target, x[:ROWS])
    return Result(tool, instructions, cycles, sizes.code + sizes.weights + sizes.data, sizes.data + sizes.bss)


# The host --------------------------------------------------------------------------------------------------------------------


SHARED_MAIN = """{kind} row_x[{features}];
int32_t row_class;
float row_value;
void row(void);
void rows(const {kind} *x, int n, int32_t *classes);
void rows(const {kind} *x, int n, int32_t *classes)
{{
    for (int i = 0; i < n; i++) {{
        for (int j = 0; j < {features}; j++)
            row_x[j] = x[i * {features} + j];
        row();
        classes[i] = row_class;
    }}
}}
"""


def library(written: Written, forest: Forest, folder: Path, *more: str) -> Any:
    """All rows in one call of C; each row by itself. `more`: what is linked, such as the library of a package."""
    folder.mkdir(parents=True)
    head = "#include <stdint.h>\n" + SHARED_MAIN.format(kind=forest.kind, features=forest.features)
    for file, text in {**written.files, "rows.c": head}.items():
        (folder / file).write_text(text)
    objects = []
    for source in sorted([*folder.glob("*.c"), *folder.glob("*.cpp")]):
        compiler = ("g++", "-std=c++17") if source.suffix == ".cpp" else ("gcc", "-std=gnu11")
        objects.append(f"{source.stem}.o")
        _run((*compiler, *FLAGS, "-c", source.name, "-o", objects[-1]), folder)
    _run(("gcc", "-shared", "-o", "rows.so", *objects, *more, "-lm", "-ldl"), folder)
    return ctypes.CDLL(str(folder / "rows.so")).rows


def classes_of(call: Any, x: Any) -> Any:
    found = np.zeros(len(x), np.int32)
    call(x.ctypes.data_as(ctypes.c_void_p), len(x), found.ctypes.data_as(ctypes.c_void_p))
    return found


def on_host(forest: Forest, x: Any, folder: Path) -> Iterator[tuple[str, float, int]]:
    """Microseconds of a row, and rows of another class than the library's."""
    want = forest.model.predict(x)
    calls: dict[str, Callable[[], Any]] = {}
    few = np.ascontiguousarray(x[:CALLS])
    for tool in (OURS, *PEERS):
        try:
            written = ours(forest, x, "host", folder / "package") if tool == OURS else PEERS[tool][1](forest)
            built = [str(folder / "package" / "lib" / "libforest.a")] if tool == OURS else []
            call = library(written, forest, folder / _file_name(tool), *built)
        except (Refused, RuntimeError) as reason:
            print(f"  {tool}: {str(reason)[:200]}", file=sys.stderr)
            continue
        calls[tool] = lambda call=call: classes_of(call, few)
    calls["ONNX Runtime"] = _onnxruntime(folder / "package", few, forest)
    times: dict[str, list[float]] = {tool: [] for tool in calls}
    found = {tool: call() for tool, call in calls.items()}
    for _ in range(ROUNDS):
        for tool, call in calls.items():
            start = time.perf_counter()
            call()
            times[tool].append((time.perf_counter() - start) / len(few) * 1e6)
    for tool in calls:
        yield tool, float(np.median(times[tool])), int((found[tool] != want[: len(few)]).sum())


def _onnxruntime(package: Path, x: Any, forest: Forest) -> Callable[[], Any]:
    """A row a call, with bound inputs and outputs, one thread."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(str(package / "ir" / "source.onnx"), options, providers=["CPUExecutionProvider"])
    kind = {"tensor(float)": np.float32, "tensor(int16)": np.int16}[session.get_inputs()[0].type]
    row = np.zeros((1, forest.features), kind)
    binding = session.io_binding()
    value = onnxruntime.OrtValue.ortvalue_from_numpy(row)
    binding.bind_ortvalue_input(session.get_inputs()[0].name, value)
    labels = np.zeros(1, np.int64)
    out = onnxruntime.OrtValue.ortvalue_from_numpy(labels)
    binding.bind_ortvalue_output(session.get_outputs()[0].name, out)
    for other in session.get_outputs()[1:]:
        binding.bind_output(other.name)

    def call() -> Any:
        found = np.zeros(len(x), np.int32)
        for n in range(len(x)):
            value.update_inplace(x[n : n + 1].astype(kind))
            session.run_with_iobinding(binding)
            found[n] = out.numpy()[0]
        return found

    return call


# Tables ----------------------------------------------------------------------------------------------------------------------


def table(head: list[str], rows: list[list[str]]) -> list[str]:
    lines = ["| " + " | ".join(head) + " |", "| --- |" + " ---: |" * (len(head) - 1)]
    return [*lines, *("| " + " | ".join(row) + " |" for row in rows)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="forests whose label has this; the tables of others are kept")
    parser.add_argument("--core", action="append", choices=(*CORES, "host"), help="only these; may be repeated")
    asked = parser.parse_args()
    kept = BUILD / "tables.json"
    tables: dict[str, dict[str, list[str]]] = json.loads(kept.read_text()) if kept.is_file() else {}
    for n, make in enumerate(CASES):
        forest, x = make()
        if asked.only not in forest.label:
            continue
        nodes = sum(tree.tree_.node_count for tree in np.ravel(forest.model.estimators_))
        parts = tables.setdefault(forest.label, {}) | {"head": [f"{nodes:,} nodes, {forest.features} features."]}
        for core in asked.core or (*CORES, "host"):
            folder = BUILD / f"{n}-{core}"
            shutil.rmtree(folder, ignore_errors=True)
            parts[core] = _host_table(forest, x, folder) if core == "host" else _core_table(forest, x, core, folder)
            print("\n".join([f"{forest.label}, {core}", *parts[core]]), flush=True)
            tables[forest.label] = parts
            kept.write_text(json.dumps(tables))
    if len(tables) < len(CASES) or any(set(parts) != {"head", *CORES, "host"} for parts in tables.values()):
        print(f"not all forests were measured: {REPORT.name} is not written", file=sys.stderr)
        return
    lines = [INTRODUCTION.format(versions=_versions(), processor=processor_name())]
    for label, parts in tables.items():
        lines += [f"## {label[0].upper()}{label[1:]}", ""]
        lines += [line for part in ("head", *CORES, "host") for line in [*parts[part], ""]]
    REPORT.write_text("\n".join(lines))


def _core_table(forest: Forest, x: Any, core: str, folder: Path) -> list[str]:
    rows, notes = [], []
    own: Result | None = None
    for tool in (OURS, *PEERS):
        found = on_core(forest, x, core, tool, folder)
        if isinstance(found, str):
            notes.append(f"{tool}: {found}")
            continue
        own = own or found
        ratios = [f"{found.instructions / own.instructions:.2f}", f"{found.flash / own.flash:.2f}"]
        counts = [f"{found.instructions:,.0f}", ratios[0], f"{found.cycles:,.0f}", f"{found.flash:,}", ratios[1], f"{found.ram:,}"]
        rows.append([found.tool, *counts])
    head = [core, "instructions", "/ ours", "cycles (estimated)", "flash, bytes", "/ ours", "RAM, bytes"]
    return [*table(head, rows), *(["", "Not there: " + "; ".join(notes) + "."] if notes else [])]


def _host_table(forest: Forest, x: Any, folder: Path) -> list[str]:
    found = list(on_host(forest, x, folder))
    own = found[0][1]
    rows = [[tool, f"{us:.3f}", f"{us / own:.2f}", f"{wrong:,}"] for tool, us, wrong in found]
    return table([f"host, {min(CHECKED, CALLS):,} rows", "µs a row", "/ ours", "other classes than scikit-learn"], rows)


def _versions() -> str:
    packages = {package for package, _ in PEERS.values()} | {"onnxruntime", "scikit-learn"}
    return ", ".join(version(package) for package in sorted(packages))


INTRODUCTION = """# Forests

`make bench-trees`, with {versions}. One row a call.

On cores: instructions of a row, counted on the emulated core, means over 20 rows; cycles are an estimate at zero wait states; flash
and RAM are those of the whole program: start-up code, model, what it needs of a C library and of soft floats. All are built by the
same compiler (zig's clang) with the same flags. On the host ({processor}): gcc -O3 -march=native, medians of 15 interleaved
rounds.
emlearn and micromlgen count votes of whole trees, so they may give other classes than scikit-learn. *`predict` alone*: without
`predict_proba`, which emlearn writes into the same file. treelite's C comes by tl2cgen, with and without `quantize`.
"""

if __name__ == "__main__":
    main()
