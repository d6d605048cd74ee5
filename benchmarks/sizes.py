"""A package over a range of sizes against the packages for exactly one size: instructions, or time.

    .venv/bin/python benchmarks/sizes.py                             all models, x86-64-v3, instructions by Callgrind
    .venv/bin/python benchmarks/sizes.py --only 'words|gru'          only the models whose names match
    .venv/bin/python benchmarks/sizes.py --time --target native      time on this machine: the least of many rounds in turn

Models are generated. Prints a line for each model and size, with the ratio; exit code 1 if one is above --limit (1.05).
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import intaglio
from intaglio.run.package import Package

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "benchmarks" / "speed"))
from sized_models import MODELS  # noqa: E402

BUILD = ROOT / "build" / "bench-sizes"
SIZES = (1, 2, 3, 5, 17)  # and the largest
ROUNDS = 41
ROUND_US = 3000.0  # about how long a round of a package takes

DRIVER = """
#define _POSIX_C_SOURCE 199309L
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include "@.h"
INPUTS
int main(int argc, char **argv)
{
    long size = atol(argv[1]), runs = atol(argv[2]);
    unsigned state = 1;
    for (size_t n = 0; n < sizeof input / sizeof input[0]; n++) {
        state = state * 1664525u + 1013904223u;
        input[n] = (float)(state >> 8) / (1 << 23) - 1.0f;
    }
    @_inputs in = {IN};
    @_outputs out = {OUT};
    (void)argc, (void)size;
    @_run(&in, &out);
    struct timespec from, to;
    clock_gettime(CLOCK_MONOTONIC, &from);
    int error = 0;
    for (long n = 0; n < runs; n++) {
        error |= @_run(&in, &out);
    }
    clock_gettime(CLOCK_MONOTONIC, &to);
    printf("%.4f\\n", ((to.tv_sec - from.tv_sec) * 1e6 + (to.tv_nsec - from.tv_nsec) * 1e-3) / runs);
    return error;
}
"""


@dataclass(frozen=True)
class Program:
    """A package with a program that runs it at one size."""

    path: Path
    name: str
    size: int
    arena_bytes: int

    def instructions(self) -> int:
        """Of one run, after a first one that pages and caches see."""
        out = f"--callgrind-out-file={self.path}.callgrind"
        command = ["valgrind", "--tool=callgrind", f"--toggle-collect={self.name}_run", out, str(self.path), str(self.size), "1"]
        found = re.search(r"Collected : (\d+)", subprocess.run(command, check=True, capture_output=True, text=True).stderr)
        assert found, "Callgrind did not count"
        return int(found[1]) // 2

    def micros(self, runs: int) -> float:
        command = [str(self.path), str(self.size), str(runs)]
        return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def program(package: Package, size: int, bounded: bool) -> Program:
    name, folder = package.name, package.folder
    header = (folder / "include" / f"{name}.h").read_text()
    count = re.findall(r"(?:IN|OUT)PUT_\w+_ELEMENTS (\d+)", header)
    fields = [f"static float input[{count[0]}];", *(f"static float output{n}[{size}];" for n, size in enumerate(count[1:]))]
    values = {
        "INPUTS": "\n".join(fields),
        "IN": "input, (size_t)size" if bounded else "input",
        "OUT": ", ".join(f"output{n}" + (", {0}" if bounded and "shape_of_" in header else "") for n in range(len(count) - 1)),
    }
    text = re.sub("INPUTS|IN\\b|OUT\\b", lambda m: values[m[0]], DRIVER).replace("@", name)
    path = folder.parent / f"{folder.name}_driver"
    path.with_suffix(".c").write_text(text)
    library = folder / "lib" / f"lib{name}.a"
    command = ["gcc", "-O1", f"-I{folder / 'include'}", f"{path}.c", str(library), "-lm", "-o", str(path)]
    subprocess.run(command, check=True, capture_output=True)
    arena = re.search(r"ARENA_BYTES (\d+)", header)
    assert arena
    return Program(path, name, size, int(arena[1]))


def compiled(name: str, made: bytes, given: dict[str, Any], label: str, exact: bool, args: argparse.Namespace) -> Package:
    folder = BUILD / args.target / re.sub(r"\W+", "_", name)
    folder.mkdir(parents=True, exist_ok=True)
    model = folder / "net.onnx"
    model.write_bytes(made)
    target = None if args.target == "native" else args.target
    options: dict[str, Any] = {"force": True, "tuning": "off", "no_source": True, "exact": exact}
    return intaglio.compile(model, output=folder / label, target=target, dims=given, **options)


def ratio(bounded: Program, static: Program, timed: bool) -> tuple[float, float]:
    """What the package over a range takes, and the one for this size."""
    if not timed:
        return bounded.instructions(), static.instructions()
    runs = max(1, round(ROUND_US / max(0.05, static.micros(10))))
    rounds = [(bounded.micros(runs), static.micros(runs)) for _ in range(ROUNDS)]
    return min(each[0] for each in rounds), min(each[1] for each in rounds)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="regular expression of the names of models")
    parser.add_argument("--target", default="x86-64-v3", help="target; native: this machine")
    parser.add_argument("--time", action="store_true", help="measure time, not instructions")
    parser.add_argument("--most", type=int, default=0, help="largest size; default: that of the model")
    parser.add_argument("--sizes", default="", help="sizes, by commas; default: 1,2,3,5,17 and the largest")
    parser.add_argument("--limit", type=float, default=1.05)
    args = parser.parse_args(arguments)
    above = 0
    for name, sized in MODELS.items():
        if not re.search(args.only, name):
            continue
        most = args.most or sized.most
        sizes = [int(n) for n in args.sizes.split(",")] if args.sizes else [*SIZES, most]
        made = sized.make()
        span = compiled(name, made, {"T": (sized.least, most)}, "range", sized.exact, args)
        for size in sorted({n for n in sizes if sized.least <= n <= most}):
            static = program(compiled(name, made, {"T": size}, f"at_{size}", sized.exact, args), size, False)
            bounded = program(span, size, True)
            ours, theirs = ratio(bounded, static, args.time)
            text = f"{ours:12.2f} {theirs:12.2f} us" if args.time else f"{ours:12.0f} {theirs:12.0f}"
            mark = "  above" if ours > args.limit * theirs else ""
            above += bool(mark)
            if size == most and bounded.arena_bytes != static.arena_bytes:
                mark += f"  arena {bounded.arena_bytes} {static.arena_bytes}"
            print(f"{name:34} {size:5} {text} {ours / theirs:7.3f}{mark}", flush=True)
    return 1 if above else 0


if __name__ == "__main__":
    sys.exit(main())
