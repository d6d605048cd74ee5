"""Every command, as a user would use it."""

from __future__ import annotations

import subprocess
import sys
import tarfile
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from intaglio.cli.terminal import fitted, shortened
from intaglio.options.groups import GROUPS
from intaglio.options.request import OPTIONS
from intaglio.package.manifest import digests, read_manifest
from intaglio.stages import STAGES
from support.commands import DIGITS, DIGITS_DATA, Intaglio


def test_compile_says_where_the_package_is(intaglio: Intaglio, tmp_path: Path) -> None:
    said = intaglio("compile", DIGITS, "-o", tmp_path / "p", "--stop-after", "package")
    assert said.code == 0
    assert "compiled `digits` for " in said.out and f"package: {tmp_path / 'p'}" in said.out
    assert "batch dimension" in said.err


def test_relative_paths_are_fine(intaglio: Intaglio, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert intaglio("compile", DIGITS, "-o", "p").code == 0
    assert intaglio("validate", "p", "--layers").code == 0
    assert intaglio("profile", "p", "--runs", "1").code == 0


def test_compile_json_is_one_object(intaglio: Intaglio, tmp_path: Path) -> None:
    told = intaglio("compile", DIGITS, "-o", tmp_path / "p", "--stop-after", "package", "--json").json
    assert told["name"] == "digits"
    assert told["arena_bytes"] > 0


def test_run_writes_outputs_under_their_names(intaglio: Intaglio, digits: Path, tmp_path: Path) -> None:
    with np.load(DIGITS_DATA) as data:
        images, labels = data["image"], data["labels"]
    np.savez(tmp_path / "x.npz", in0=images)
    said = intaglio("run", digits, "--steps", "--input", tmp_path / "x.npz", "--output", tmp_path / "y.npz")
    assert said.code == 0
    with np.load(tmp_path / "y.npz") as result:
        right = result["probabilities"].reshape(100, 10).argmax(1) == labels
    assert right.mean() > 0.95


def test_run_of_one_npy_prints(intaglio: Intaglio, digits: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.zeros((1, 1, 8, 8), np.float32))
    said = intaglio("run", digits, "--input", tmp_path / "x.npy")
    assert said.out.startswith("probabilities: float32[1, 10]")
    (output,) = intaglio("run", digits, "--input", tmp_path / "x.npy", "--json").json["outputs"]
    assert output["shape"] == [1, 10] and len(output["values"][0]) == 10 and abs(sum(output["values"][0]) - 1) < 1e-5


def test_help_shows_the_options_of_a_compile_by_group(intaglio: Intaglio) -> None:
    told = intaglio("compile", "--help").out
    titles = [title for title, _ in GROUPS]
    assert [line[:-1] for line in told.splitlines() if line.endswith(":") and line[:-1] in titles] == titles
    assert told.index("Device and limits:") < told.index("--ram N") < told.index("Inputs and sizes:") < told.index("--dim NAME=N")
    assert all(f"{o.word} " in told for o in OPTIONS if o.word)


def test_validate_agrees_and_tells_the_accuracy_of_both(intaglio: Intaglio, digits: Path, tmp_path: Path) -> None:
    with np.load(DIGITS_DATA) as data:
        np.savez(tmp_path / "x.npz", image=data["image"])
        np.save(tmp_path / "l.npy", data["labels"])
    words: list[str | Path] = [
        "validate",
        digits,
        "--inputs",
        tmp_path / "x.npz",
        "--steps",
        "--labels",
        tmp_path / "l.npy",
        "--json",
    ]
    told = intaglio(*words).json
    assert told["ok"] is True
    assert told["accuracy"]["package"] == told["accuracy"]["reference"] > 0.95
    assert {"name", "max_abs", "max_rel", "cosine", "mismatches"} <= set(told["outputs"][0])


def test_validate_layer_by_layer(intaglio: Intaglio, digits: Path) -> None:
    told = intaglio("validate", digits, "--layers", "--json").json
    assert told["first_bad_layer"] is None
    assert told["layers"]


def test_validate_answers_no_with_1_and_names_the_layer(intaglio: Intaglio, digits: Path) -> None:
    said = intaglio("validate", digits, "--layers", "--tolerance", "-1", "--json")
    assert said.code == 1
    assert said.json["ok"] is False
    assert said.json["first_bad_layer"] == said.json["layers"][0]["layer"]


def test_profile_has_the_stable_shape(intaglio: Intaglio, digits: Path) -> None:
    told = intaglio("profile", digits, "--runs", "2", "--json").json
    assert {"target", "total", "layers"} <= set(told)
    assert {"macs", "instructions", "cycles", "time_ms", "ram_bytes", "arena_bytes", "stack_bytes", "flash_bytes",
            "code_bytes", "weight_bytes"} <= set(told["total"])  # fmt: skip
    assert {"name", "op", "macs", "instructions", "cycles", "time_ms"} <= set(told["layers"][0])


@pytest.mark.parametrize("stage", STAGES[:4])
def test_a_stage_is_stopped_after_and_resumed_from(intaglio: Intaglio, digits: Path, tmp_path: Path, stage: str) -> None:
    said = intaglio("compile", DIGITS, "-o", tmp_path / "digits.ig", "--stop-after", stage)
    assert said.code == 0 and f"wrote {tmp_path / 'digits.ig'}" in said.out
    text = (tmp_path / "digits.ig").read_text()
    assert text.startswith("intaglio-ir 1")
    assert f"stage={stage}" in text
    assert intaglio("compile", tmp_path / "digits.ig", "-o", tmp_path / "p").code == 0
    resumed, whole = (read_manifest(folder) for folder in (tmp_path / "p", digits))
    assert [layer.kernel for layer in resumed.layers] == [layer.kernel for layer in whole.layers]
    assert resumed.memory == whole.memory
    assert intaglio("validate", tmp_path / "p").code == 0


def test_stop_after_into_a_folder(intaglio: Intaglio, tmp_path: Path) -> None:
    told = intaglio("compile", DIGITS, "-o", tmp_path / "ir", "--stop-after", "import", "--json").json
    assert told["ir"] == str(tmp_path / "ir" / "digits.ig")


def test_dump_ir_writes_one_file_per_pass(intaglio: Intaglio, tmp_path: Path) -> None:
    words: list[str | Path] = [
        "compile",
        DIGITS,
        "-o",
        tmp_path / "x.ig",
        "--stop-after",
        "optimise",
        "--dump-ir",
        tmp_path / "dump",
    ]
    assert intaglio(*words).code == 0
    names = [p.name for p in sorted((tmp_path / "dump").glob("*.ig"))]
    passes = [p["name"] for p in intaglio("passes", "--json").json["passes"]]
    assert names
    assert names[0] == "01-import.ig"
    assert {name.split("-", 1)[1].removesuffix(".ig") for name in names[1:]} <= set(passes)
    texts = [p.read_text() for p in sorted((tmp_path / "dump").glob("*.ig"))]
    assert all(a != b for a, b in pairwise(texts))  # a pass that changes nothing leaves no file


def test_explain_estimates_every_node(intaglio: Intaglio, tmp_path: Path) -> None:
    said = intaglio("compile", DIGITS, "-o", tmp_path / "x.ig", "--stop-after", "optimise", "--explain")
    assert "conv" in said.out
    assert all(len(line) <= 100 for line in said.out.splitlines())


def test_a_pass_can_be_switched_off(intaglio: Intaglio, tmp_path: Path) -> None:
    words: list[str | Path] = ["compile", DIGITS, "-o", tmp_path / "p"]
    for row in intaglio("passes", "--json").json["passes"]:
        words += ["--disable-pass", row["name"]]
    assert intaglio(*words).code == 0
    assert intaglio("validate", tmp_path / "p").code == 0


def test_archive_holds_the_package(intaglio: Intaglio, tmp_path: Path) -> None:
    assert intaglio("compile", DIGITS, "-o", tmp_path / "p", "--stop-after", "package", "--archive").code == 0
    with tarfile.open(tmp_path / "p.tar.gz") as archive:
        names = {member.name for member in archive.getmembers()}
    assert {"p/manifest.json", "p/include/digits.h", "p/ir/source.onnx"} <= names


def test_the_same_model_gives_the_same_bytes(
    intaglio: Intaglio, digits: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("INTAGLIO_OBJECT_CACHE", "off")
    assert intaglio("compile", DIGITS, "-o", tmp_path / "elsewhere" / "p").code == 0
    assert digests(tmp_path / "elsewhere" / "p") == digests(digits)


def test_the_application_passes_its_selftest(digits: Path) -> None:
    assert subprocess.run([digits / "bin" / "digits", "--selftest"], capture_output=True).returncode == 0


def test_a_model_with_a_wrong_extension_is_read_by_content(intaglio: Intaglio, tmp_path: Path) -> None:
    (tmp_path / "model.bin").write_bytes(DIGITS.read_bytes())
    assert intaglio("check", tmp_path / "model.bin").code == 0


def test_check_has_the_stable_shape(intaglio: Intaglio) -> None:
    assert intaglio("check", DIGITS, "--json").json == {"supported": True, "problems": []}


def test_view_writes_onnx(intaglio: Intaglio, digits: Path, tmp_path: Path) -> None:
    assert intaglio("view", digits / "ir" / "digits.ig", "-o", tmp_path / "v.onnx").code == 0
    import onnx

    assert onnx.load(str(tmp_path / "v.onnx")).graph.node


@pytest.mark.parametrize("words", [["targets"], ["ops"], ["passes"], ["template", "list"], ["version"]])
def test_questions_are_answered_as_text_and_as_json(intaglio: Intaglio, words: list[str]) -> None:
    said = intaglio(*words)
    assert said.code == 0
    assert said.out
    assert all(len(line) <= 100 for line in said.out.splitlines())
    assert isinstance(intaglio(*words, "--json").json, dict)


def test_the_demo_runs(intaglio: Intaglio, tmp_path: Path) -> None:
    said = intaglio("demo", "-o", tmp_path / "digits")
    assert said.code == 0
    assert "self-test passed" in said.out
    assert "matches onnxruntime" in said.out
    assert str(tmp_path / "digits") in said.out


def test_help_answers_at_once() -> None:
    words = [sys.executable, "-X", "importtime", "-m", "intaglio", "--help"]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert "numpy" not in done.stderr
    assert "compile" in done.stdout


def test_a_closed_pipe_is_quiet() -> None:
    command = f"{sys.executable} -m intaglio ops | head -1"
    done = subprocess.run(command, shell=True, capture_output=True, text=True)
    assert done.stderr == ""


def test_view_reads_an_ir_file(intaglio: Intaglio, tmp_path: Path) -> None:
    assert intaglio("compile", DIGITS, "-o", tmp_path / "x.ig", "--stop-after", "import").code == 0
    assert intaglio("view", tmp_path / "x.ig", "-o", tmp_path / "x.onnx").code == 0
    assert (tmp_path / "x.onnx").stat().st_size > 1000


def test_names_are_shortened_until_a_table_fits_eighty_columns() -> None:
    columns = ["layer", "op", ">ms"]
    (row,) = fitted(columns, [["/model/" + "block/" * 20 + "conv", "conv", "0.1234"]])
    assert len(row[0]) + len(row[1]) + len(row[2]) + 6 == 80 and row[0].startswith("…") and row[0].endswith("/conv")
    assert fitted(columns, [["conv", "conv", "0.1234"]]) == [["conv", "conv", "0.1234"]]


def test_long_names_lose_what_they_have_in_common() -> None:
    names = ["net/stage_1/block_1/conv/Relu:0", "net/stage_1/block_2/conv/Relu:0", "net/stage_1/pool/Mean:0", "output"]
    assert shortened(names, 40) == names
    assert shortened(names, 22) == ["…block_1/conv/Relu:0", "…block_2/conv/Relu:0", "…pool/Mean:0", "output"]
    assert shortened(names, 12) == ["…conv/Relu:0", "…conv/Relu:0", "…pool/Mean:0", "output"]
    assert shortened(["stem_conv1_relu6_requantised", "head_conv9_relu6_requantised"], 16) == ["stem_conv1…", "head_conv9…"]


def test_threads_that_divide_nothing_are_told(intaglio: Intaglio, tmp_path: Path) -> None:
    said = intaglio("compile", DIGITS, "--threads", "2", "-o", tmp_path / "p", "--stop-after", "kernels")
    assert said.code == 0 and "no layer is large enough to be divided: `--threads 2`" in said.err
    said = intaglio("compile", DIGITS, "--threads", "many", "-o", tmp_path / "q")
    assert said.code == 2 and "'--threads': this is not a whole number" in said.err
