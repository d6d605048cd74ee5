"""Instructions, RAM, flash and accuracy of MLPerf Tiny and of the demo's network, against the figures in benchmarks/gate.json.

A change that makes one worse on purpose writes the file anew (`make gate-figures`), and the patch shows it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from support.commands import Intaglio
from support.shared import SHARED

pytest.importorskip("unicorn", reason="counts instructions")

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
KEPT = json.loads((BENCHMARKS / "gate.json").read_text(encoding="utf-8"))
RULES = ("instructions>+1%", "cycles>+2%", "ram>+1%", "flash>+1%", "accuracy<-0.5%", "error>1e-4")


def kept(models: list[str], place: Path, change: Callable[[dict[str, Any]], object] = lambda _: None) -> Path:
    rows = [json.loads(json.dumps(row)) for row in KEPT["results"] if row["model"] in models]
    for row in rows:
        change(row)
    path = place / "kept.json"
    path.write_text(json.dumps({**KEPT, "results": rows}))
    return path


def run(intaglio: Intaglio, models: list[str], place: Path) -> Path:
    words = [f"fleet.models={json.dumps(models)}", f'fleet.store="{place / "store"}"']
    said = intaglio("fleet", BENCHMARKS / "gate.toml", "-j", "1", *(w for word in words for w in ("--set", word)))
    assert said.code == 0, said.err
    return place / "store"


def words(rules: tuple[str, ...]) -> list[str]:
    return [word for rule in rules for word in ("--fail-if", rule)]


def test_the_demo_network_is_not_worse_and_would_be_caught(
    intaglio: Intaglio, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("INTAGLIO_MODELS", "none")
    store = run(intaglio, ["digits"], tmp_path)
    said = intaglio("compare", kept(["digits"], tmp_path), store, *words(RULES))
    assert said.code == 0, said.err
    for key, factor in (("instructions", 0.95), ("ram", 0.95), ("flash", 0.95), ("accuracy", 1.02)):

        def better(row: dict[str, Any], key: str = key, factor: float = factor) -> None:
            if key in row["figures"]:
                row["figures"][key] *= factor

        said = intaglio("compare", kept(["digits"], tmp_path, better), store, *words(RULES))
        assert said.code == 1 and f"broken rule: `{key}" in said.err and said.err.count("broken rule") == 1, said.err


@pytest.mark.slow
@pytest.mark.skipif(not SHARED.is_dir(), reason="the shared models are not beside the project")
def test_mlperf_tiny_is_not_worse(intaglio: Intaglio, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INTAGLIO_MODELS", str(SHARED / "models"))
    models = ["kws", "vww", "ic", "ad"]
    said = intaglio("compare", kept(models, tmp_path), run(intaglio, models, tmp_path), *words(RULES[:4] + RULES[5:]))
    assert said.code == 0, said.err
