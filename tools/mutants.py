"""Do our own checks notice when they are broken? Change one place of a module, run its tests, and see whether one fails.

    tools/mutants.py [--sample 40] [--seed 1] [--only checker] [--wider] [--json]

Modules that decide whether a result is trusted: the verifier of the IR, the planner of memory and its checker, the quantiser's
ranges, the cache of OpenCL programs, checks of the field. A mutant changes a comparison, an operator, a number or a condition of
the Python source in a copy of `src`. It has to be killed by the quick tests of its module; with `--wider`, or else by all tests
around it, slow ones too.

Survivors are listed with file, line, function and change. `mutants.toml` has those that were looked at and change nothing that a
user could see, each with the reason; they are not counted.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
JUDGED = Path(__file__).with_suffix(".toml")


@dataclass(frozen=True, slots=True)
class Checked:
    """Modules, the quick tests that have to notice, and others that are tried where those do not."""

    modules: tuple[str, ...]
    tests: tuple[str, ...]
    wider: tuple[str, ...] = ()


CHECKED = {
    "verifier": Checked(("ir/verify.py",), ("ir/test_verify.py", "errors/test_edited_ir.py", "errors/test_ir_errors.py")),
    "checker": Checked(
        ("memory/checker.py", "memory/check_views.py", "memory/check_stripes.py", "memory/check_reads.py"),
        (
            "memory/test_checker.py", "memory/test_checker_bytes.py", "memory/test_checker_stripes.py",
            "memory/test_checker_reads.py", "memory/test_stripes.py", "memory/test_slots.py", "memory/test_planner.py",
            "memory/test_regions.py", "memory/test_side_by_side.py", "memory/test_residual.py", "memory/test_programs.py",
            "firmware/test_weights_read.py",
        ),
        ("memory", "package/test_striped_ranges.py"),
    ),
    "planner": Checked(
        ("memory/planner.py", "memory/place.py", "memory/lifetimes.py"),
        (
            "memory/test_lifetimes.py", "memory/test_planner.py", "memory/test_planner_figures.py", "memory/test_checker.py",
            "memory/test_share.py", "memory/test_programs.py", "memory/test_stripes.py", "memory/test_slots.py",
            "memory/test_regions.py",
        ),
        ("memory",),
    ),
    "quantiser": Checked(
        ("quantize/ranges.py", "quantize/statistics.py"),
        ("quantize/test_ranges.py", "quantize/test_statistics.py", "quantize/test_quantizing.py"),
        ("quantize",),
    ),
    "cache": Checked(
        ("run/opencl/cache_file.py", "run/opencl/cache_store.py", "run/opencl/cache_contents.py"), ("run/test_program_cache.py",)
    ),
    "safety": Checked(
        ("package/safety.py", "package/slots.py"),
        ("package/test_images.py", "package/test_safety_plan.py", "package/test_slots.py", "package/test_safety.py"),
    ),
}  # fmt: skip
COMPARE: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.In: ast.NotIn,
    ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is,
}  # fmt: skip
BINARY: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add, ast.FloorDiv: ast.Mult, ast.Mod: ast.Mult, ast.BitOr: ast.BitAnd,
    ast.BitAnd: ast.BitOr,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Mutant:
    file: str
    line: int
    function: str
    was: str
    now: str
    number: int


def places(tree: ast.AST) -> Iterator[tuple[ast.AST, str]]:
    """Nodes that can be changed; not in annotations and decorators, and not what messages say."""
    skipped: set[int] = set()
    for node in ast.walk(tree):
        for name in ("annotation", "returns"):
            if (inner := getattr(node, name, None)) is not None:
                skipped |= {id(one) for one in ast.walk(inner)}
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):  # `frozen=True` and the like: no result depends on them
            skipped |= {id(one) for decorator in node.decorator_list for one in ast.walk(decorator)}
        if isinstance(node, (ast.JoinedStr, ast.Raise)):
            skipped |= {id(one) for one in ast.walk(node)}
    for node in ast.walk(tree):
        if id(node) in skipped:
            continue
        if isinstance(node, ast.Compare) and type(node.ops[0]) in COMPARE:
            yield node, "compare"
        elif isinstance(node, ast.BinOp) and type(node.op) in BINARY and not isinstance(node.left, ast.Constant):
            yield node, "binary"
        elif isinstance(node, ast.BoolOp):
            yield node, "both"
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            yield node, "not"
        elif isinstance(node, ast.Constant) and type(node.value) is int:
            yield node, "number"
        elif isinstance(node, ast.Constant) and type(node.value) is bool:
            yield node, "truth"


def change(node: ast.AST, kind: str) -> None:
    match kind, node:
        case "compare", ast.Compare():
            node.ops[0] = COMPARE[type(node.ops[0])]()
        case "binary", ast.BinOp():
            node.op = BINARY[type(node.op)]()
        case "both", ast.BoolOp():
            node.op = ast.Or() if isinstance(node.op, ast.And) else ast.And()
        case "not", ast.UnaryOp():
            node.op = ast.UAdd()
            node.operand = ast.Call(ast.Name("bool", ast.Load()), [node.operand], [])
        case "number", ast.Constant():
            node.value = int(str(node.value)) + 1
        case "truth", ast.Constant():
            node.value = not node.value


def functions(tree: ast.AST) -> dict[int, str]:
    """Of every node, the innermost function or class that it is in."""
    found: dict[int, str] = {}

    def walk(node: ast.AST, name: str) -> None:
        found[id(node)] = name
        inner = node.name if isinstance(node, (ast.FunctionDef, ast.ClassDef)) else name
        for child in ast.iter_child_nodes(node):
            walk(child, inner)

    walk(tree, "")
    return found


def mutants(path: Path, file: str) -> list[Mutant]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    found, named = [], functions(tree)
    for number, (node, kind) in enumerate(places(tree)):
        was, line = ast.unparse(node), getattr(node, "lineno", 0)
        again = ast.parse(path.read_text(encoding="utf-8"))
        other, _ = list(places(again))[number]
        change(other, kind)
        found.append(Mutant(file, line, named[id(node)], was, ast.unparse(other), number))
    return found


def judged(mutant: Mutant, judgements: list[dict[str, str]]) -> bool:
    """Is it in the list of those that were looked at? Lines move, so it is known by its function."""
    said = {"file": mutant.file, "function": mutant.function, "was": mutant.was, "now": mutant.now}
    return any({key: one[key] for key in said} == said for one in judgements)


def written(path: Path, number: int) -> str:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    node, kind = list(places(tree))[number]
    change(node, kind)
    return ast.unparse(ast.fix_missing_locations(tree))


def failing(copy: Path, tests: tuple[str, ...], limit: float | None, slow: bool) -> bool:
    """Does a test fail, or take much longer than it does without a mutant?"""
    environment = {**os.environ, "PYTHONPATH": f"{copy}{os.pathsep}{ROOT / 'tests'}", "PYTHONDONTWRITEBYTECODE": "1"}
    words = [sys.executable, "-m", "pytest", "-q", "-x", "-n0", "-p", "no:cacheprovider", *([] if slow else ["-m", "not slow"])]
    words += [f"tests/{test}" for test in tests]
    try:
        done = subprocess.run(words, cwd=ROOT, check=False, capture_output=True, env=environment, timeout=limit)
    except subprocess.TimeoutExpired:
        return True
    return done.returncode != 0


def time_limit(name: str, copy: Path, tests: tuple[str, ...], slow: bool) -> float:
    begun = time.monotonic()
    if failing(copy, tests, None, slow):
        raise SystemExit(f"error: the tests of `{name}` fail without a mutant")
    return 60 + 4 * (time.monotonic() - begun)


def measure(
    name: str, sample: int, seed: int, copy: Path, wider: bool, judgements: list[dict[str, str]]
) -> tuple[int, int, list[Mutant]]:
    """Tried, killed, survivors; without those that are judged."""
    checked = CHECKED[name]
    rounds = [(checked.tests, False), *([(checked.wider, True)] if wider and checked.wider else [])]
    limited = [(tests, time_limit(name, copy, tests, slow), slow) for tests, slow in rounds]
    everything = [m for module in checked.modules for m in mutants(copy / "intaglio" / module, module)]
    everything = [m for m in everything if not judged(m, judgements)]
    chosen = random.Random(seed).sample(everything, min(sample, len(everything)))
    survivors = []
    for mutant in chosen:
        path = copy / "intaglio" / mutant.file
        whole = path.read_text(encoding="utf-8")
        path.write_text(written(path, mutant.number), encoding="utf-8")
        if not any(failing(copy, *one) for one in limited):
            survivors.append(mutant)
            print(f"{mutant.file}:{mutant.line} {mutant.function}: `{mutant.was}` -> `{mutant.now}`", file=sys.stderr, flush=True)
        path.write_text(whole, encoding="utf-8")
    return len(chosen), len(chosen) - len(survivors), survivors


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sample", type=int, default=40)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="")
    parser.add_argument("--wider", action="store_true")
    parser.add_argument("--json", action="store_true")
    words = parser.parse_args()
    names = [name for name in CHECKED if not words.only or name in words.only.split(",")]
    judgements: list[dict[str, str]] = tomllib.loads(JUDGED.read_text(encoding="utf-8"))["judged"]
    told = []
    with tempfile.TemporaryDirectory(prefix="intaglio-mutants-") as place:
        copy = Path(place) / "src"
        shutil.copytree(ROOT / "src", copy, ignore=shutil.ignore_patterns("__pycache__"))
        for name in names:
            tried, found, survivors = measure(name, words.sample, words.seed, copy, words.wider, judgements)
            told.append({"name": name, "tried": tried, "killed": found, "survivors": [asdict(m) for m in survivors]})
            if not words.json:
                print(f"{name}: {found} of {tried} killed", flush=True)
    if words.json:
        print(json.dumps(told, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
