"""How good is the self-test of a package? Change its kernels in one place each, and see whether the self-test notices.

    tools/selftest_mutants.py PACKAGE [--mutants 300] [--seed 1] [--json]

A mutant changes one token in a function of NAME_kernels_*.c: an operator, a comparison, a number, a function such as fmaxf. Mutants
that the C compiler refuses, and those whose machine code is the same (gcc -O2), are left out. A mutant is found if the self-test
says so, stops with an error, crashes, or does not end within ten seconds. Survivors are listed with file, line and change.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

SECONDS = 10
SWAPS = {
    "+": "-", "-": "+", "*": "+", "/": "*", "<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "==", "+=": "-=",
    "-=": "+=", "*=": "+=", ">>": "<<", "<<": ">>", "&": "|", "|": "&", "&&": "||", "||": "&&", "fmaxf": "fminf", "fminf": "fmaxf",
    "expf": "fabsf", "sqrtf": "fabsf",
}  # fmt: skip
_TOKEN = re.compile(
    r"/\*.*?\*/|//[^\n]*|\"[^\"\n]*\"|#[^\n]*|0[xX][0-9a-fA-F]+[uUlL]*|\d+\.?\d*(?:[eE][-+]?\d+)?[uUlLfF]*"
    r"|[A-Za-z_]\w*|->|\+\+|--|<<=|>>=|[-+*/%&|^<>=!]=|&&|\|\||<<|>>|[-+*/%&|^<>=!?:;,.(){}\[\]~]",
    re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class Mutant:
    file: str
    line: int
    start: int
    end: int
    was: str
    now: str
    context: str


def mutants(path: Path) -> Iterator[Mutant]:
    """Of the bodies of functions. `*` and `&` as signs of pointers, and casts, are left alone."""
    text = path.read_text(encoding="ascii")
    depth, before = 0, ""
    for found in _TOKEN.finditer(text):
        word = found.group()
        if word.startswith(("/*", "//", "#", '"')):
            continue
        depth += (word == "{") - (word == "}")
        if depth and (now := _changed(word, before)):
            line = text.count("\n", 0, found.start()) + 1
            context = text.splitlines()[line - 1].strip()
            yield Mutant(path.name, line, found.start(), found.end(), word, now, context)
        before = word


def _changed(word: str, before: str) -> str:
    binary = bool(re.fullmatch(r"[\w.]+|\)|\]", before)) and before not in ("return", "const", "float", "int", "char", "case")
    typed = before.endswith("_t") or before in ("void", "float", "double", "char", "int", "restrict")
    if word in SWAPS and (binary or word.isalpha() or word.endswith("f")) and not (typed and word in "*&"):
        return SWAPS[word]
    if re.fullmatch(r"\d+[uUlL]*", word):
        digits = re.match(r"\d+", word)
        assert digits is not None
        return f"{int(digits.group()) + 1}{word[digits.end() :]}"
    if re.fullmatch(r"\d+\.\d*(?:[eE][-+]?\d+)?[fF]?", word):
        return f"({word} + 1.0f)" if word[-1] in "fF" else f"({word} + 1.0)"
    return ""


@dataclass(slots=True)
class Account:
    tried: int = 0
    found: int = 0
    refused: int = 0
    same_code: int = 0

    @property
    def share(self) -> float:
        return self.found / self.tried if self.tried else 0.0


class Bench:
    """The package's sources, built once; a mutant costs one file and a link."""

    def __init__(self, package: Path, cc: str) -> None:
        self.package, self.cc = package, cc
        table = json.loads((package / "manifest.json").read_text(encoding="utf-8"))
        self.name: str = table["name"]
        self._folder = tempfile.TemporaryDirectory(prefix="intaglio-mutants-")
        self.folder = Path(self._folder.name)
        made = re.search(r"TARGET_FLAGS \?= (.*)", (package / "Makefile").read_text(encoding="utf-8"))
        flags = made[1].split() if made else []
        self.flags = ["-O2", "-std=c99", "-fPIC", "-ffp-contract=off", "-fno-math-errno", "-fno-trapping-math", "-w", *flags]
        self.flags += [f"-I{package / 'include'}", f"-I{package / 'src'}"]
        sources = [p for p in sorted((package / "src").rglob("*")) if p.suffix in (".c", ".S")]
        self.objects = {p.name: self._object(p, p.name) for p in sources}
        self.kernels = [p for p in sources if p.name.startswith(f"{self.name}_kernels_")]

    def _object(self, source: Path, name: str) -> Path:
        made = self.folder / f"{name}.o"
        done = subprocess.run([self.cc, *self.flags, "-c", source, "-o", made], check=False, capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(done.stderr)
        return made

    def passes(self, replaced: dict[str, Path]) -> bool:
        """The self-test of a program with these objects instead."""
        program = self.folder / "program"
        objects = [str(replaced.get(name, path)) for name, path in self.objects.items()]
        subprocess.run([self.cc, *objects, "-o", program, "-lm", "-lpthread"], check=True, capture_output=True)
        try:
            ran = subprocess.run([program, "--selftest", self.package / "test"], check=False, capture_output=True, timeout=SECONDS)
        except subprocess.TimeoutExpired:
            return False
        return ran.returncode == 0

    def judge(self, mutant: Mutant, account: Account) -> bool:
        """True: the self-test did not notice."""
        source = next(p for p in self.kernels if p.name == mutant.file)
        text = source.read_text(encoding="ascii")
        changed = self.folder / mutant.file
        changed.write_text(text[: mutant.start] + mutant.now + text[mutant.end :], encoding="ascii")
        try:
            made = self._object(changed, f"mutant-{mutant.file}")
        except RuntimeError:
            account.refused += 1
            return False
        if made.read_bytes() == self.objects[mutant.file].read_bytes():
            account.same_code += 1
            return False
        account.tried += 1
        if self.passes({mutant.file: made}):
            return True
        account.found += 1
        return False


def measure(package: Path, count: int, seed: int, cc: str) -> tuple[Account, list[Mutant]]:
    bench = Bench(package, cc)
    if not bench.passes({}):
        raise SystemExit("error: the self-test of the package itself does not pass")
    everything = [m for path in bench.kernels for m in mutants(path)]
    chosen = random.Random(seed).sample(everything, min(count, len(everything)))
    account, survivors = Account(), []
    for mutant in chosen:
        if bench.judge(mutant, account):
            survivors.append(mutant)
    return account, survivors


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("package", type=Path)
    parser.add_argument("--mutants", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--cc", default="gcc")
    parser.add_argument("--json", action="store_true")
    words = parser.parse_args()
    account, survivors = measure(words.package, words.mutants, words.seed, words.cc)
    if words.json:
        print(json.dumps({**asdict(account), "share": account.share, "survivors": [asdict(m) for m in survivors]}, indent=1))
        return 0
    for m in survivors:
        print(f"{m.file}:{m.line}: `{m.was}` -> `{m.now}`: {m.context}")
    left = f"{account.refused} did not compile, {account.same_code} had the same machine code"
    print(f"found {account.found} of {account.tried} mutants, {100 * account.share:.1f} %; {left}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
