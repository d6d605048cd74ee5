"""The kernels that models have: a change that makes another choice for one of them shows here.

`choices.txt` has a row per target and model: how many layers have which kernel, and a digest over kernels and tiles. To
accept what a change chooses on purpose: `python tests/kernels/test_choices.py TARGET...` writes the rows of these targets anew.
"""

from __future__ import annotations

import hashlib
import re
import sys
from collections import Counter
from pathlib import Path

import pytest

from support.commands import DIGITS, Intaglio
from support.shared import SHARED, needs_shared

FILE = Path(__file__).with_name("choices.txt")
QUICK = ("x86-64-v3", "cortex-m4f"), ("mlperf_kws_int8", "mlperf_ic_int8", "mkws_qdq_onnx", "dpl_cct1_32_8")


def row_of(ir: str) -> str:
    """What `using` says in an IR file, in short."""
    using = re.findall(r" using (\w+(?:\([^)]*\))?)", ir)
    counts = Counter(text.partition("(")[0] for text in using)
    digest = hashlib.sha256("\n".join(sorted(using)).encode()).hexdigest()[:8]
    return " ".join([digest, *(f"{name}*{counts[name]}" for name in sorted(counts))])


def rows() -> dict[tuple[str, str], str]:
    parts = [line.split(" ", 2) for line in FILE.read_text(encoding="utf-8").splitlines()]
    return {(target, model): row for target, model, row in parts}


def model_of(name: str) -> Path:
    return DIGITS if name == "digits" else next((SHARED / "models").glob(f"{name}.*"))


def compiled(intaglio: Intaglio, model: Path, target: str, path: Path) -> str:
    said = intaglio("compile", model, "--target", target, "--stop-after", "memory", "-o", path)
    assert said.code == 0, said.err
    return path.read_text(encoding="utf-8")


@pytest.mark.parametrize("target", ["x86-64-v3", "cortex-m4f", "generic"])
def test_the_kernels_of_the_demo_are_as_before(intaglio: Intaglio, target: str, tmp_path: Path) -> None:
    assert row_of(compiled(intaglio, DIGITS, target, tmp_path / "d.ig")) == rows()[target, "digits"]


@needs_shared
@pytest.mark.parametrize(
    ("target", "model"),
    [pytest.param(t, m, marks=[] if t in QUICK[0] and m in QUICK[1] else pytest.mark.slow) for t, m in rows() if m != "digits"],
)
def test_the_kernels_of_real_models_are_as_before(intaglio: Intaglio, target: str, model: str, tmp_path: Path) -> None:
    assert row_of(compiled(intaglio, model_of(model), target, tmp_path / "m.ig")) == rows()[target, model]


def write(targets: list[str]) -> None:
    """Rows of `targets`, from the models as they are compiled now."""
    import subprocess
    import tempfile

    kept = rows()
    with tempfile.TemporaryDirectory() as place:
        for target, model in [key for key in kept if key[0] in targets]:
            path = Path(place) / "m.ig"
            words = ["compile", str(model_of(model)), "--target", target, "--stop-after", "memory", "-o", str(path)]
            subprocess.run([sys.executable, "-m", "intaglio", *words], check=True)
            kept[target, model] = row_of(path.read_text(encoding="utf-8"))
    FILE.write_text("".join(f"{t} {m} {row}\n" for (t, m), row in kept.items()), encoding="utf-8")


if __name__ == "__main__":
    write(sys.argv[1:])
