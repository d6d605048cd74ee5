"""`intaglio dossier`: what it says of a package is so, and what is wrong with one is said."""

from __future__ import annotations

import importlib
import json
import pkgutil
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

import intaglio as api
from intaglio import ops
from intaglio.dossier.coverage import coverage_of
from intaglio.dossier.decisions import decisions_of, find_llvm
from intaglio.dossier.facts import Wanted, gather
from intaglio.dossier.meaning import FORMULAS, meaning_of
from intaglio.dossier.memory import program_of, prove
from intaglio.dossier.page import page
from intaglio.ir.files import read_network
from intaglio.ops.base import REGISTRY
from intaglio.package.manifest import read_manifest, target_of
from support.building import needs_gcc
from support.commands import DIGITS, Intaglio
from support.onnx_models import model, node, saved, value
from support.small_networks import images

pytest.importorskip("scipy")
pytest.importorskip("unicorn")


def test_every_operator_has_a_meaning() -> None:
    for path in pkgutil.iter_modules(ops.__path__):
        importlib.import_module(f"{ops.__name__}.{path.name}")
    assert len(REGISTRY) > 150
    assert not [name for name, kind in REGISTRY.items() if not meaning_of(kind)]
    assert not set(FORMULAS) - set(REGISTRY)


@pytest.fixture(scope="module")
def firmware(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dossier")
    (folder / "images.tflite").write_bytes(images())
    return api.compile(folder / "images.tflite", output=folder / "p", target="cortex-m4f").folder


@pytest.fixture
def made(firmware: Path, intaglio: Intaglio, tmp_path: Path) -> Path:
    said = intaglio("dossier", firmware, "-o", tmp_path / "d", "--inputs", "10")
    assert said.code == 0, said.err
    return tmp_path / "d"


def test_a_dossier_of_firmware(made: Path) -> None:
    told = json.loads((made / "dossier.json").read_text())
    assert told["memory_proven"]
    assert told["whole"]
    assert told["valid"]
    assert told["timing"]["observed"] <= told["timing"]["total"] <= 1.15 * told["timing"]["observed"]
    assert all(layer["observed"] <= layer["cycles"] for layer in told["timing"]["layers"])
    assert {p.name for p in made.iterdir()} == {"index.html", "dossier.json", "trace.csv", "memory.csv", "time.csv"}
    text = (made / "index.html").read_text()
    for title in (
        "Requirements",
        "Trace, forwards",
        "Numeric error bounds",
        "Memory map",
        "Bound of the execution time",
        "Known limits",
    ):
        assert title in text
    assert "<script" not in text


def test_lines_and_addresses_are_those_of_the_function(firmware: Path, made: Path) -> None:
    from elftools.elf.elffile import ELFFile
    from elftools.elf.sections import SymbolTableSection

    told = json.loads((made / "dossier.json").read_text())["trace"]["layers"]
    with open(firmware / "bin" / "images.elf", "rb") as file:
        table = ELFFile(file).get_section_by_name(".symtab")
        assert isinstance(table, SymbolTableSection)
        symbols = {s.name: s["st_value"] & ~1 for s in table.iter_symbols()}
    assert len(told) == len(read_manifest(firmware).layers)
    for layer in told:
        place = layer["place"]
        lines = (firmware / place["file"]).read_text().splitlines()
        assert place["function"] in lines[place["first_line"] - 1]
        assert lines[place["last_line"] - 1] == "}"
        assert place["address"] == symbols[place["function"]]
        assert layer["ir"].startswith(layer["name"])


def test_floats_have_bounds_and_nodes_are_accounted_for(digits: Path) -> None:
    d = gather(digits, Wanted(run=False), lambda text: None)
    assert [bound.kind for bound in d.numerics] == ["bounded"] * len(d.manifest.layers)
    assert all(0 < bound.bound < bound.largest for bound in d.numerics)
    assert set(d.trace.left_out) == {"/conv1/Relu", "/conv2/Relu", "/Flatten"}
    assert d.trace.layers[0].passes
    assert all(requirement.meaning for requirement in d.requirements)


def test_buffers_that_overlap_are_found(digits: Path) -> None:
    manifest = read_manifest(digits)
    network = read_network(digits / "ir" / "digits.ig")
    program = program_of(network, manifest, target_of(manifest))
    assert prove(manifest, program).ok
    layer = manifest.layers[1]
    moved = replace(layer, memory=tuple(replace(place, offset=0, first_layer=0) for place in layer.memory))
    broken = replace(manifest, layers=(manifest.layers[0], moved, *manifest.layers[2:]))
    assert ("relu1_1", "pool1_2") in prove(broken, program).overlapping
    small = replace(manifest, memory=replace(manifest.memory, arena_bytes=100))
    assert "outside of the arena" in prove(manifest, program_of(network, small, target_of(manifest))).checked


def test_outputs_are_memories_of_their_own(tmp_path: Path) -> None:
    nodes = [node("Relu", "x", "a"), node("Neg", "x", "b")]
    path = saved(model(nodes, [value("x", [8])], [value("a", [8]), value("b", [8])]), tmp_path)
    package = api.compile(path, output=tmp_path / "p")
    network = read_network(next((package.folder / "ir").glob("*.ig")))
    proof = prove(package.manifest, program_of(network, package.manifest, target_of(package.manifest)))
    assert proof.ok and not proof.overlapping
    places = tuple(replace(place, offset=0) for layer in package.manifest.layers for place in layer.memory)
    both = replace(package.manifest.layers[0], memory=places)
    assert ("a", "b") in prove(replace(package.manifest, layers=(both,)), None).overlapping


@needs_gcc
def test_code_that_does_not_run_is_not_covered(digits: Path, tmp_path: Path) -> None:
    shutil.copytree(digits, tmp_path / "p")
    manifest = read_manifest(digits)
    before = coverage_of(tmp_path / "p", manifest)
    assert before.reason == ""
    assert before.statement_share is not None and before.statement_share > 0.9 and before.branch_share is not None
    source = tmp_path / "p" / "src" / "digits.c"
    extra = "int digits_dead(int x);\nint digits_dead(int x)\n{\n    if (x > 3)\n        return 7;\n    return x;\n}\n"
    source.write_text(source.read_text() + extra)
    after = coverage_of(tmp_path / "p", manifest)
    lines = {f.file: f.lines for f in after.files}
    assert lines["src/digits.c"] == {f.file: f.lines for f in before.files}["src/digits.c"] + 4
    assert after.statement_share is not None and after.statement_share < before.statement_share
    assert after.branch_share is not None and after.branch_share < before.branch_share


def test_names_of_a_model_stay_text(digits: Path) -> None:
    d = gather(digits, Wanted(run=False), lambda text: None)
    bad = "</td><script>alert(1)</script>"
    layers = tuple(replace(layer, nodes=bad, ir=bad) for layer in d.trace.layers)
    text = page(replace(d, trace=replace(d.trace, layers=layers, left_out=(bad,))))
    assert "<script" not in text
    assert "&lt;script&gt;" in text


def test_a_package_that_was_changed_is_told(digits: Path, intaglio: Intaglio, tmp_path: Path) -> None:
    shutil.copytree(digits, tmp_path / "p")
    source = tmp_path / "p" / "src" / "digits.c"
    source.write_text(source.read_text() + "\n")
    said = intaglio("dossier", tmp_path / "p", "-o", tmp_path / "d", "--no-run")
    assert said.code == 1
    assert "Files differ from the manifest" in (tmp_path / "d" / "index.html").read_text()


def test_mistakes_are_told(digits: Path, intaglio: Intaglio, tmp_path: Path) -> None:
    assert "is not a package" in intaglio("dossier", tmp_path, "-o", tmp_path / "d").err
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "file").write_text("mine")
    said = intaglio("dossier", digits, "-o", tmp_path / "there")
    assert said.code == 2
    assert (tmp_path / "there" / "file").read_text() == "mine"
    said = intaglio("dossier", digits, "-o", tmp_path / "d", "--no-run", "--json")
    assert said.code == 0
    assert said.json["timing"]["reason"] == "not asked for"


@needs_gcc
def test_a_network_that_checks_itself_is_covered(intaglio: Intaglio, tmp_path: Path) -> None:
    package = api.compile(DIGITS, output=tmp_path / "p", safety=("golden", "crc", "canary", "step"))
    found = coverage_of(package.folder, package.manifest)
    assert not found.reason and found.statement_share is not None and found.statement_share > 0.8
    assert not any(f.file.endswith("_golden.c") for f in found.files)
    (package.folder / "src" / "digits_static.c").write_text("int broken(void) { return missing(); }\n")
    broken = coverage_of(package.folder, package.manifest)
    assert broken.failed and "cannot be linked" in broken.reason
    said = intaglio("dossier", package.folder, "-o", tmp_path / "d", "--no-run")
    assert said.code == 1
    again = intaglio("dossier", package.folder, "-o", tmp_path / "d", "--no-run")
    assert again.code == 2 and "is not empty" in again.err and "--force" not in again.err


def test_a_host_has_no_bound_of_the_time(digits: Path) -> None:
    from intaglio.dossier.timing import time_bounds
    from intaglio.run.loaded import LoadedPackage

    assert "Cortex-M" in time_bounds(LoadedPackage(digits), {}, 1).reason
    assert DIGITS.is_file()


DECISIONS = """int f(int a, int b, int c);
int f(int a, int b, int c) { return (a && b) || c; }
int main(void) { return f(1, 1, 0) + f(0, 1, 0) + f(1, 0, 0) - 1; }
"""


def test_conditions_that_no_run_has_decided_alone_are_counted(tmp_path: Path) -> None:
    """`c` is never 1."""
    llvm = find_llvm(tmp_path)
    if llvm is None:
        pytest.skip("there is no clang 18 or later with llvm-cov and its run-time library")
    (tmp_path / "f.c").write_text(DECISIONS)
    found = decisions_of(llvm, [tmp_path / "f.c"], ["-O0"], {"f.c"}, tmp_path)
    assert found is not None and (found.conditions, found.covered, found.missing) == (3, 2, (("f.c", 2),))
    assert decisions_of(llvm, [tmp_path / "none.c"], [], {"f.c"}, tmp_path) is None


def test_the_decisions_of_a_network_are_in_its_coverage(firmware: Path, tmp_path: Path) -> None:
    if find_llvm(tmp_path) is None:
        pytest.skip("there is no clang 18 or later with llvm-cov and its run-time library")
    found = coverage_of(firmware, read_manifest(firmware))
    assert not found.reason and found.conditions and found.covered and found.conditions >= found.covered


def test_a_package_with_parts_missing_is_refused(firmware: Path, intaglio: Intaglio, tmp_path: Path) -> None:
    for part in ("src", "ir"):
        broken = tmp_path / f"without-{part}"
        shutil.copytree(firmware, broken)
        shutil.rmtree(broken / part)
        said = intaglio("dossier", broken, "-o", tmp_path / "d", "--no-run")
        assert said.code == 2 and "not-whole" in said.err and f"`{part}/" in said.err
        assert not (tmp_path / "d" / "index.html").exists()


def test_damaged_test_vectors_are_told(firmware: Path, intaglio: Intaglio, tmp_path: Path) -> None:
    broken = tmp_path / "p"
    shutil.copytree(firmware, broken)
    path = broken / "test" / "in0.npy"
    path.write_bytes(path.read_bytes()[:9])
    said = intaglio("validate", broken)
    assert said.code == 2 and "the test vector `in0.npy` is damaged" in said.err
    assert intaglio("dossier", broken, "-o", tmp_path / "d", "--no-run").code == 1


def test_coverage_that_was_not_measured_is_no_number(firmware: Path, intaglio: Intaglio, tmp_path: Path) -> None:
    said = intaglio("dossier", firmware, "-o", tmp_path / "d", "--no-run", "--json")
    found = json.loads(said.out)
    assert said.code == 0 and found["statement_coverage"] is None and found["branch_coverage"] is None


def test_what_is_wrong_is_said_with_the_exit_code(firmware: Path, intaglio: Intaglio, tmp_path: Path) -> None:
    broken = tmp_path / "p"
    shutil.copytree(firmware, broken)
    source = next((broken / "src").glob("*_kernels_0.c"))
    source.write_text(source.read_text() + "/* . */\n")
    said = intaglio("dossier", broken, "-o", tmp_path / "d", "--no-run")
    assert said.code == 1 and "exit code 1: files differ from the manifest" in said.err
