"""Every format that Intaglio reads: how its files are mutated, and what reads them, in this process and as far as a user's command
would go without a C compiler."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from fuzzing import mutate
from intaglio.options.request import Request
from intaglio.package.manifest import read_manifest
from intaglio.package.template import render_template
from intaglio.pipeline import plan_request
from intaglio.stages.watch import Watch

CORPUS = Path(__file__).parent / "corpus"
REGRESSIONS = Path(__file__).parent / "regressions"
TARGETS = ("generic", "x86-64-v3", "cortex-m4f", "cortex-m0+")
Files = Mapping[str, bytes]  # by path


@dataclass(frozen=True, slots=True)
class Format:
    """`main` is the file that `read` is given; `mutators` by the end of a file's name."""

    name: str
    main: str
    mutators: Mapping[str, mutate.Mutator]
    read: Callable[[Path, random.Random], object]

    def seeds(self) -> list[Path]:
        """Folders of files, or single files."""
        return sorted((CORPUS / self.name).iterdir())

    def mutant(self, seed: int) -> dict[str, bytes]:
        rng = random.Random(f"{self.name} {seed}")
        files = files_of(rng.choice(self.seeds()), self.main)
        for _ in range(rng.choice((1, 1, 1, 2))):
            name = rng.choice(sorted(files))
            known = [how for ending, how in self.mutators.items() if name.endswith(ending)]
            files[name] = (known[0] if known else mutate.plain)(rng, files[name])
        return files


def files_of(seed: Path, main: str) -> dict[str, bytes]:
    if seed.is_dir():
        return {str(p.relative_to(seed)): p.read_bytes() for p in sorted(seed.rglob("*")) if p.is_file()}
    return {main: seed.read_bytes()}


def _plan(path: Path, rng: random.Random) -> None:
    """All stages up to addresses."""
    target = None if path.suffix == ".ig" and rng.random() < 0.5 else rng.choice(TARGETS)
    plan_request(Request(path, path.with_name("out"), target=target), Watch())


def _arrays(path: Path, rng: random.Random) -> None:
    from intaglio.run.data import read_arrays

    read_arrays(path)


def _board(path: Path, rng: random.Random) -> None:
    from intaglio.targets.board import read_board

    read_board(path)


def _memories(path: Path, rng: random.Random) -> None:
    from intaglio.targets.memories import read_memories

    read_memories(path, addresses=rng.random() < 0.5)


def _project(path: Path, rng: random.Random) -> None:
    from intaglio.project.file import read_project

    read_project(path)


def _budgets(path: Path, rng: random.Random) -> None:
    from intaglio.report.budgets import read_budgets

    read_budgets(path)


def _cache(path: Path, rng: random.Random) -> None:
    from intaglio.run.opencl.cache_contents import entries
    from intaglio.run.opencl.cache_store import read_cache

    entries(read_cache(path).records)


def _runs(path: Path, rng: random.Random) -> None:
    from intaglio.run.serial.runs import read_runs

    read_runs(path)


def _tuning(path: Path, rng: random.Random) -> None:
    from intaglio.run.tuning.database import read_database

    read_database(path)


def _pinned(path: Path, rng: random.Random) -> None:
    """A plan for the demo's network."""
    plan_request(Request(path.with_name("model.onnx"), path.with_name("out"), target="cortex-m4f", import_plan=path), Watch())


def _template(path: Path, rng: random.Random) -> None:
    """Files of a template, rendered for a network."""
    from fuzzing.sample import sample_project

    render_template((path.parent,), sample_project(), path.parent.with_name("rendered"))


def _manifest(path: Path, rng: random.Random) -> None:
    from intaglio.package.ownership import contents_of

    read_manifest(path.parent)
    contents_of(path.read_bytes())


FORMATS: dict[str, Format] = {
    form.name: form
    for form in (
        Format("onnx", "model.onnx", {".onnx": mutate.protobuf}, _plan),
        Format("tflite", "model.tflite", {".tflite": mutate.tflite}, _plan),
        Format("pt2", "model.pt2", {".pt2": mutate.zipped(mutate.plain)}, _plan),
        Format("keras", "model.keras", {".keras": mutate.zipped(mutate.plain)}, _plan),
        Format("h5", "model.h5", {".h5": mutate.plain}, _plan),
        Format("ig", "model.ig", {".ig": mutate.text, ".safetensors": mutate.safetensors}, _plan),
        Format("manifest", "manifest.json", {".json": mutate.json_text}, _manifest),
        Format("npz", "in.npz", {".npz": mutate.zipped(mutate.npy), ".npy": mutate.npy}, _arrays),
        Format("board", "board.toml", {".toml": mutate.text}, _board),
        Format("memories", "memory.toml", {".toml": mutate.text}, _memories),
        Format("project", "intaglio.toml", {".toml": mutate.text}, _project),
        Format("budgets", "budgets.toml", {".toml": mutate.text}, _budgets),
        Format("plan", "plan.csv", {".csv": mutate.text, ".onnx": lambda rng, data: data}, _pinned),
        Format("tuning", "tuning.txt", {".txt": mutate.text}, _tuning),
        Format("clbin", "programs.clbin", {}, _cache),
        Format("runs", "runs.json", {".json": mutate.json_text}, _runs),
        Format("template", "README.md.j2", {"": mutate.text}, _template),
    )
}
