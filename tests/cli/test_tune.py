"""`intaglio tune MODEL`: measures on this machine, is used by the next compile, and shown by `--explain`."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from intaglio import compile
from intaglio.options.request import Request
from intaglio.package.manifest import read_manifest
from intaglio.run.tuning import search
from intaglio.run.tuning.database import HEADER, VARIABLE, Database, here, read_database, write_database
from intaglio.stages.current import request_digest
from intaglio.targets.target import find_target, host_target, runs_here
from support.commands import DIGITS, Intaglio
from support.onnx_models import model, node, saved, value

RNG = np.random.default_rng(0)
X = RNG.standard_normal((1, 4, 9, 9)).astype(np.float32)


@dataclass(frozen=True)
class Tuned:
    model: Path
    database: Path
    json: dict[str, object]


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """A convolution, twice, and a product."""
    w, m = RNG.standard_normal((4, 4, 3, 3)).astype(np.float32), RNG.standard_normal((4, 3)).astype(np.float32)
    nodes = [
        node("Conv", "x w", "a", pads=[1, 1, 1, 1]), node("Relu", "a", "b"), node("Conv", "b w", "c", pads=[1, 1, 1, 1]),
        node("Relu", "c", "d"), node("ReduceMean", "d axes", "e", keepdims=0), node("MatMul", "e m", "y"),
    ]  # fmt: skip
    constants = {"w": w, "m": m, "axes": np.array([2, 3], np.int64)}
    return saved(model(nodes, [value("x", [1, 4, 9, 9])], [value("y", [1, 3])], constants), tmp_path, "small.onnx")


@pytest.fixture
def tuned(small: Path, intaglio: Intaglio, monkeypatch: pytest.MonkeyPatch) -> Tuned:
    monkeypatch.setattr(search, "LAYER_SECONDS", 0.01)
    database = small.with_name("t.txt")
    said = intaglio("tune", small, "--tuning", database, "--json")
    assert said.code == 0, said.err
    return Tuned(small, database, said.json)


def test_a_real_tune_and_the_compile_that_uses_it(tuned: Tuned, intaglio: Intaglio, tmp_path: Path) -> None:
    database, place = read_database(tuned.database), here(host_target())
    layers = database.places[place]
    assert tuned.json["measured"] == tuned.json["shapes"] == len(layers)
    assert sum(layer.startswith("conv(") for layer in layers) == 1  # of the same shape
    assert all(len(times) > 1 and min(times.values()) > 0 for times in layers.values())
    said = intaglio("tune", tuned.model, "--tuning", tuned.database)
    assert said.code == 0 and f"0 measured now, {len(layers)} known before" in said.err
    assert "untuned, us" in said.out and all(len(line) <= 80 for line in said.out.splitlines())
    words = ("--stop-after", "package", "--explain")
    said = intaglio("compile", tuned.model, "--tuning", tuned.database, "-o", tmp_path / "p", *words)
    assert said.code == 0 and "layers are those measured by `intaglio tune`" in said.err
    assert read_manifest(tmp_path / "p").options["tuning"].startswith("t.txt: 3 layers")
    lines = [line for line in said.out.splitlines() if not line.startswith("package: ")]
    assert "estimate us   measured   bound by" in lines[0] and all(len(line) <= 80 for line in lines)
    rows = [line.split() for line in lines if " conv " in line]
    assert all(float(row[-2]) > 0 and float(row[-3]) > 0 for row in rows) and len(rows) == 2
    assert any("used: " in line and "the fastest of those" in line for line in lines)
    results = [compile(tuned.model, tuning=name, library_only=True).run({"x": X})["y"] for name in (tuned.database, "off")]
    np.testing.assert_allclose(results[0], results[1], rtol=1e-4, atol=1e-5)


LAYER = "conv(f32[1,9,9,4], const f32[4,4,3,3], _, pads=(1,1,1,1), layout=NHWC, epilogue=[relu(0)])"
AVX2 = find_target("x86-64-v3")


def asked_for(times: dict[str, float], small: Path, intaglio: Intaglio, *words: str) -> str:
    """The IR of a compile with a database that has nothing but these times, of the convolutions."""
    made, ir = small.with_name("made.txt"), small.with_name("k.ig")
    write_database(made, Database({here(AVX2): {LAYER: times}}))
    said = intaglio("compile", small, "--target", AVX2.name, "--tuning", made, "--stop-after", "kernels", "-o", ir, *words)
    assert said.code == 0, said.err
    return ir.read_text()


def test_a_kernel_of_the_database_is_used(small: Path, intaglio: Intaglio) -> None:
    assert asked_for({"winograd(m=2,tile=5x1)": 1.0}, small, intaglio).count("using winograd(m=2,tile=5x1)") == 2
    assert asked_for({"conv_nhwc(tile=3x1)": 1.0}, small, intaglio).count("using conv_nhwc(tile=3x1)") == 2


def test_a_difference_that_may_be_noise_does_not_count(small: Path, intaglio: Intaglio) -> None:
    usual, other = "conv_nhwc(tile=9x1)", "conv_nhwc(tile=3x1)"
    assert f"using {usual}" in asked_for({}, small, intaglio)
    assert f"using {usual}" in asked_for({usual: 50.5, other: 50.0}, small, intaglio)
    assert f"using {other}" in asked_for({usual: 52.0, other: 50.0}, small, intaglio)


@pytest.mark.parametrize("using", ["gone(tile=1x1)", "conv_nhwc(tile=32x8)", "depthwise_nhwc(pixels=4)", "winograd(m=7,tile=6x2)"])
def test_a_stale_record_changes_nothing(using: str, small: Path, intaglio: Intaglio) -> None:
    plain = small.with_name("plain.ig")
    assert intaglio("compile", small, "--target", "x86-64-v3", "--stop-after", "kernels", "-o", plain).code == 0
    assert asked_for({using: 1.0}, small, intaglio) == plain.read_text()


def test_exact_and_limits_refuse_what_the_database_says(small: Path, intaglio: Intaglio) -> None:
    for words in (("--exact",), ("--ram", "1M")):
        assert "winograd" not in asked_for({"winograd(m=2,tile=5x1)": 1.0}, small, intaglio, *words)


def test_the_kernel_of_an_edited_file_counts_more(small: Path, intaglio: Intaglio) -> None:
    text = asked_for({"conv_nhwc(tile=3x1)": 1.0}, small, intaglio)
    small.with_name("k.ig").write_text(text)
    made = small.with_name("made.txt")
    made.write_text(made.read_text().replace("tile=3x1", "tile=4x1"))
    again = small.with_name("again.ig")
    assert intaglio("compile", small.with_name("k.ig"), "--tuning", made, "--stop-after", "memory", "-o", again).code == 0
    assert again.read_text().count("using conv_nhwc(tile=3x1)") == 2


def test_the_times_of_this_machine_are_used_for_the_host_alone(
    tuned: Tuned, intaglio: Intaglio, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = Request(tuned.model, tmp_path / "p")
    before = request_digest(request)
    monkeypatch.setenv(VARIABLE, str(tuned.database))
    assert request_digest(request) != before  # so that a package made before is not up to date
    words = ("compile", tuned.model, "--stop-after", "kernels", "-o", tmp_path / "k.ig")
    assert "measured by `intaglio tune`" in intaglio(*words).err
    assert "measured by" not in intaglio(*words, "--tuning", "off").err
    assert "measured by" not in intaglio(*words, "--target", host_target().name).err
    tuned.database.write_text("something else\n")
    said = intaglio(*words)
    assert said.code == 0 and "warning: the kernel times of this machine are not used" in said.err


def test_an_interrupted_search_says_where_it_goes_on(
    small: Path, intaglio: Intaglio, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stopped(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(search, "built", stopped)
    said = intaglio("tune", small, "--tuning", tmp_path / "t.txt")
    assert said.code == 130 and "nothing was measured yet; run it again to go on" in said.err
    write_database(tmp_path / "t.txt", Database({here(host_target()): {"one(_)": {"x": 1.0}}}))
    said = intaglio("tune", small, "--tuning", tmp_path / "t.txt")
    assert said.code == 130 and "t.txt; run it again to go on" in said.err


def test_merging_on_the_command_line(tmp_path: Path, intaglio: Intaglio) -> None:
    for name, layer in (("a", "one(_)"), ("b", "two(_)")):
        write_database(tmp_path / name, Database({here(host_target()): {layer: {"x": 1.0}}}))
    said = intaglio("tune", "--merge", tmp_path / "a", tmp_path / "b", "-o", tmp_path / "c", "--json")
    assert said.code == 0 and said.json["layers"] == 2 and read_database(tmp_path / "c").layers == 2
    assert "error[bad-option]: `--merge` needs `-o FILE`" in intaglio("tune", "--merge", tmp_path / "a").err


OTHER = next(name for name in ("aarch64", "x86-64-v3") if not runs_here(find_target(name)))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--time-limit", "0"), "`--time-limit 0` is not a time"),
        (("--tuning", "off"), "`--tuning off` has no place for results"),
        (("--tuning", DIGITS), "is not a tuning database of this version"),
        (("--target", OTHER), f"this machine cannot run code for `{OTHER}`"),
        (("--target", "cortex-m4"), "`cortex-m4`"),
        (("--target", "opencl"), "is tuned for a package"),
        (("--device", "gpu"), "`--device` is for packages for OpenCL"),
        (("-o", "x"), "`-o` needs `--merge`"),
        ((DIGITS,), "takes one model, or one package"),
    ],
)
def test_what_cannot_be_tuned_is_told(words: tuple[str | Path, ...], said: str, intaglio: Intaglio) -> None:
    answer = intaglio("tune", DIGITS, *words)
    assert answer.code == 2 and said in answer.err and "\nhint: " in answer.err


def test_a_database_that_is_named_must_be_one(intaglio: Intaglio, tmp_path: Path) -> None:
    (tmp_path / "t.txt").write_text(f"{HEADER}\nprocessor x | target y | threads 1\nrubbish\nend\n")
    said = intaglio("compile", DIGITS, "--tuning", tmp_path / "t.txt", "-o", tmp_path / "p")
    assert said.code == 2 and "error[bad-tuning]" in said.err and "t.txt, line 3" in said.err and not (tmp_path / "p").exists()
    assert "error[no-file]" in intaglio("compile", DIGITS, "--tuning", tmp_path / "none", "-o", tmp_path / "p").err


def test_a_package_of_a_processor_has_no_programs_to_tune(digits: Path, intaglio: Intaglio, tmp_path: Path) -> None:
    package = shutil.copytree(digits, tmp_path / "d")
    said = intaglio("tune", package)
    assert said.code == 2 and "which has no programs to tune" in said.err and "intaglio tune MODEL" in said.err
