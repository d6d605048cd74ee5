"""Do our own checks notice when they are broken? Change one place of a module, run its tests, and see whether one fails.

    tools/mutants.py [--sample 40] [--seed 1] [--only checker] [--json]

Modules that decide whether a result is trusted: the verifier of the IR, the planner of memory and its checker, the quantiser's
ranges, checks of the field. A mutant changes a comparison, an operator, a number or a condition of the Python source in a copy of
`src`. Survivors are listed with file, line and change.
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
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SECONDS = 120
CHECKED: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {  # by name: modules, and the tests that have to notice
    "verifier": (("ir/verify.py",), ("ir/test_verify.py", "errors/test_edited_ir.py", "errors/test_ir_errors.py")),
    "checker": (
        ("memory/checker.py", "memory/check_views.py", "memory/check_stripes.py", "memory/check_reads.py"),
        (
            "memory/test_checker.py", "memory/test_checker_bytes.py", "memory/test_stripes.py", "memory/test_slots.py",
            "memory/test_planner.py", "memory/test_regions.py", "memory/test_side_by_side.py", "memory/test_residual.py",
            "memory/test_programs.py",
            "firmware/test_weights_read.py",
        ),
    ),
    "planner": (
        ("memory/planner.py", "memory/place.py", "memory/lifetimes.py"),
        (
            "memory/test_planner.py", "memory/test_planner_figures.py", "memory/test_checker.py", "memory/test_share.py",
            "memory/test_programs.py",
        ),
    ),
    "quantiser": (
        ("quantize/ranges.py", "quantize/statistics.py"),
        ("quantize/test_ranges.py", "quantize/test_quantizing.py"),
    ),
    "safety": (("package/safety.py", "package/slots.py"), ("package/test_slots.py", "package/test_safety.py")),
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
    was: str
    now: str
    number: int


def places(tree: ast.AST) -> Iterator[tuple[ast.AST, str]]:
    """Nodes that can be changed; not in annotations, and not what messages say."""
    skipped: set[int] = set()
    for node in ast.walk(tree):
        for name in ("annotation", "returns"):
            if (inner := getattr(node, name, None)) is not None:
                skipped |= {id(one) for one in ast.walk(inner)}
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


def mutants(path: Path, file: str) -> list[Mutant]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    found = []
    for number, (node, kind) in enumerate(places(tree)):
        was, line = ast.unparse(node), getattr(node, "lineno", 0)
        again = ast.parse(path.read_text(encoding="utf-8"))
        other, _ = list(places(again))[number]
        change(other, kind)
        found.append(Mutant(file, line, was, ast.unparse(other), number))
    return found


def written(path: Path, number: int) -> str:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    node, kind = list(places(tree))[number]
    change(node, kind)
    return ast.unparse(ast.fix_missing_locations(tree))


def killed(copy: Path, tests: tuple[str, ...]) -> bool:
    environment = {**os.environ, "PYTHONPATH": f"{copy}{os.pathsep}{ROOT / 'tests'}", "PYTHONDONTWRITEBYTECODE": "1"}
    words = [sys.executable, "-m", "pytest", "-q", "-x", "-n0", "-p", "no:cacheprovider", "-m", "not slow"]
    words += [f"tests/{test}" for test in tests]
    try:
        done = subprocess.run(words, cwd=ROOT, check=False, capture_output=True, env=environment, timeout=SECONDS)
    except subprocess.TimeoutExpired:
        return True
    return done.returncode != 0


def measure(name: str, sample: int, seed: int, copy: Path) -> tuple[int, int, list[Mutant]]:
    """Tried, killed, survivors."""
    modules, tests = CHECKED[name]
    if killed(copy, tests):
        raise SystemExit(f"error: the tests of `{name}` fail without a mutant")
    everything = [m for module in modules for m in mutants(copy / "intaglio" / module, module)]
    chosen = random.Random(seed).sample(everything, min(sample, len(everything)))
    survivors = []
    for mutant in chosen:
        path = copy / "intaglio" / mutant.file
        whole = path.read_text(encoding="utf-8")
        path.write_text(written(path, mutant.number), encoding="utf-8")
        if not killed(copy, tests):
            survivors.append(mutant)
        path.write_text(whole, encoding="utf-8")
    return len(chosen), len(chosen) - len(survivors), survivors


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sample", type=int, default=40)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="")
    parser.add_argument("--json", action="store_true")
    words = parser.parse_args()
    names = [name for name in CHECKED if not words.only or name in words.only.split(",")]
    told = []
    with tempfile.TemporaryDirectory(prefix="intaglio-mutants-") as place:
        copy = Path(place) / "src"
        shutil.copytree(ROOT / "src", copy, ignore=shutil.ignore_patterns("__pycache__"))
        for name in names:
            tried, found, survivors = measure(name, words.sample, words.seed, copy)
            told.append({"name": name, "tried": tried, "killed": found, "survivors": [asdict(m) for m in survivors]})
            if not words.json:
                for m in survivors:
                    print(f"{m.file}:{m.line}: `{m.was}` -> `{m.now}`")
                print(f"{name}: {found} of {tried} killed", flush=True)
    if words.json:
        print(json.dumps(told, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
