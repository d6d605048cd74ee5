"""Several entry points in one package: weights that are the same stand once, one arena serves all."""

from __future__ import annotations

import json
import os
import platform
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import intaglio
from intaglio.errors import UserError
from intaglio.package.variants import share_constants
from intaglio.stages.work import Work, need
from support.building import needs_gcc
from support.commands import Intaglio
from support.onnx_models import model, node, saved, value

RANDOM = np.random.default_rng(3)
WEIGHTS = {"w": RANDOM.standard_normal((32, 32)).astype(np.float32), "v": RANDOM.standard_normal((32, 32)).astype(np.float32)}


def encoder() -> Any:
    nodes = [node("MatMul", "x w", "a"), node("Tanh", "a", "b"), node("MatMul", "b v", "y")]
    return model(nodes, [value("x", [1, "T", 32])], [value("y", None)], WEIGHTS)


def decoder() -> Any:
    nodes = [node("MatMul", "x w", "a"), node("Relu", "a", "y")]
    return model(nodes, [value("x", [1, 32])], [value("y", None)], {"w": WEIGHTS["w"]})


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("models")
    saved(encoder(), place, "encoder.onnx")
    saved(decoder(), place, "decoder.onnx")
    return place


@pytest.fixture(scope="module")
def package(folder: Path) -> intaglio.EntryPoints:
    encode = {"model": folder / "encoder.onnx", "dims": {"T": (1, 9)}}
    models: dict[str, str | Path | Mapping[str, object]] = {"encode": encode, "step": folder / "decoder.onnx"}
    return intaglio.compile_entries(models, output=folder / "speech")


def test_ranges_in_a_list(folder: Path, tmp_path: Path) -> None:
    made = intaglio.compile_entries(folder / "encoder.onnx", output=tmp_path / "p", dims={"T": [(1, 4), "1..9"]})
    assert list(made) == ["T1to4", "T1to9"] and made["T1to9"].validate().ok


def test_methods_of_a_module() -> None:
    torch = pytest.importorskip("torch")

    class Speech(torch.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.first, self.last = torch.nn.Linear(8, 8), torch.nn.Linear(8, 4)

        def encode(self, sound: Any) -> Any:
            return self(sound)

        def step(self, x: Any, h: Any) -> Any:
            return self.last(self(x)) + h

        def forward(self, x: Any) -> Any:
            return self.first(x).relu()

    module = Speech()
    x, h = torch.ones(1, 8), torch.ones(1, 4)
    encode, step = {"model": module.encode, "example_inputs": (x,)}, {"model": module.step, "example_inputs": (x, h)}
    made = intaglio.compile_entries({"encode": encode, "step": step})
    assert module.training and [i.name for i in made["encode"].manifest.inputs] == ["sound"]
    assert [i.name for i in made["step"].manifest.inputs] == ["x", "h"]
    (got,) = made.run({"x": x.numpy(), "h": h.numpy()}, entry="step").values()
    np.testing.assert_allclose(got, module.step(x, h).detach().numpy(), rtol=1e-5, atol=1e-6)
    told = json.loads((made.folder / "manifest.json").read_text())
    assert told["weight_bytes"] < told["separate_weight_bytes"]


def test_each_entry_point_computes_what_its_model_computes(package: intaglio.EntryPoints) -> None:
    w, v = WEIGHTS["w"], WEIGHTS["v"]
    for t in (1, 4, 9):
        x = RANDOM.standard_normal((1, t, 32)).astype(np.float32)
        assert np.allclose(package.run({"x": x}, entry="encode")["y"], np.tanh(x @ w) @ v, atol=1e-4)
    x = RANDOM.standard_normal((1, 32)).astype(np.float32)
    assert np.allclose(package["step"].run(x)["y"], np.maximum(x @ w, 0), atol=1e-4)
    assert list(package.entries) == ["encode", "step"] and len(package) == 2


def test_weights_that_are_packed_alike_stand_once(folder: Path) -> None:
    models = {name: {"model": folder / "encoder.onnx", "dims": {"T": (low, 9)}} for name, low in (("any", 1), ("many", 2))}
    about = intaglio.compile_entries(models).about
    assert about.weight_bytes == 2 * 4096 and about.separate_weight_bytes == 4 * 4096


def test_the_arena_is_the_largest_and_weights_are_of_the_whole(package: intaglio.EntryPoints) -> None:
    about = package.about
    assert about.weight_bytes == 2 * 4096 and about.separate_weight_bytes == 3 * 4096
    assert about.arena_bytes == max(entry.arena_bytes for entry in about.entries)
    binaries = [p.name for p in package.folder.rglob("*weights*") if p.suffix in (".bin", ".c", ".S")]
    assert binaries and all(name.startswith("speech_weights") for name in binaries)


@pytest.mark.parametrize("target", ["x86-64", "x86-64-v3", "x86-64-v4", "aarch64"])
def test_weights_have_one_order_for_many_rows_and_for_one(target: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel for many rows would like narrower panels than one for a single row."""
    encode = {"model": folder / "encoder.onnx", "dims": {"T": (1, 9)}}
    models: dict[str, str | Path | Mapping[str, object]] = {"encode": encode, "step": folder / "decoder.onnx"}
    shared: list[int] = []

    def begun(network: str, works: Mapping[str, Work], place: Path) -> None:
        found = share_constants([(entry, entry, need(work.program)) for entry, work in works.items()])
        shared.append(len(found.constants))
        raise KeyboardInterrupt

    monkeypatch.setattr("intaglio.pipeline.begin", begun)
    with pytest.raises(KeyboardInterrupt):
        intaglio.compile_entries(models, target=target, output=folder / target)
    assert shared == [2]


def test_all_entry_points_validate_and_test_themselves(package: intaglio.EntryPoints, intaglio: Intaglio) -> None:
    said = intaglio("validate", package.folder, "--json")
    assert said.code == 0
    assert [row["ok"] for row in json.loads(said.out)["entries"].values()] == [True, True]
    for entry in package:
        test = [str(package.folder / "entries" / entry / "bin" / f"speech_{entry}"), "--selftest"]
        assert subprocess.run(test, capture_output=True, check=False).returncode == 0
    layers = json.loads(intaglio("profile", package.folder, "--entry", "step", "--json").out)["layers"]
    assert len(layers) == 1


MAIN = """
#include <stdio.h>
#include "speech.h"
int main(void)
{
    static float x[32], y[32], many[9 * 32], rows[9 * 32];
    static unsigned char arena[SPEECH_ARENA_BYTES + SPEECH_ARENA_ALIGNMENT];
    void *aligned = arena + (SPEECH_ARENA_ALIGNMENT - (uintptr_t)arena % SPEECH_ARENA_ALIGNMENT) % SPEECH_ARENA_ALIGNMENT;
    speech_encode_inputs in = {many, 3};
    speech_encode_outputs out = {rows, {0}};
    speech_step_inputs one = {x};
    speech_step_outputs result = {y};
    if (speech_encode_run(&in, &out) || speech_step_run(&one, &result) || speech_step_run_in(aligned, &one, &result))
        return 1;
    printf("%d\\n", (int)out.shape_of_y[1]);
    return 0;
}
"""


def test_one_header_and_one_library_have_all(package: intaglio.EntryPoints, tmp_path: Path) -> None:
    (tmp_path / "main.c").write_text(MAIN)
    library = package.folder / "lib" / "libspeech.a"
    warnings = ("-std=c99", "-Wall", "-Wextra", "-Werror")
    command = ["cc", *warnings, "-I", package.folder / "include", tmp_path / "main.c", library, "-lm", "-o", tmp_path / "main"]
    subprocess.run([str(word) for word in command], check=True)
    assert subprocess.run([tmp_path / "main"], capture_output=True, check=True).stdout == b"3\n"


def test_several_sizes_become_entry_points(folder: Path, tmp_path: Path, intaglio: Intaglio) -> None:
    said = intaglio("compile", folder / "encoder.onnx", "--dim", "T=2,5", "-o", tmp_path / "p")
    assert said.code == 0 and "2 entry points (`T2`, `T5`)" in said.out
    again = intaglio("compile", folder / "encoder.onnx", "--dim", "T=2,5", "-o", tmp_path / "p")
    assert "is up to date" in again.out
    np.savez(tmp_path / "x.npz", x=np.zeros((1, 5, 32), np.float32))
    assert intaglio("run", tmp_path / "p", "--entry", "T5", "--input", tmp_path / "x.npz").code == 0


def test_entry_points_of_a_project_file(folder: Path, tmp_path: Path, intaglio: Intaglio) -> None:
    (tmp_path / "intaglio.toml").write_text(
        f"""
[models.encoder]
source = "{folder / "encoder.onnx"}"
dims = {{ T = 4 }}
[models.decoder]
source = "{folder / "decoder.onnx"}"
[packages.speech]
entries = {{ encode = "encoder", step = "decoder" }}
"""
    )
    said = intaglio("build", "--file", tmp_path / "intaglio.toml", "--json")
    assert said.code == 0, said.err
    found = json.loads((tmp_path / "build" / "speech" / "manifest.json").read_text())
    assert [row["prefix"] for row in found["entries"]] == ["speech_encode", "speech_step"]


@pytest.mark.parametrize(
    ("words", "slug", "text"),
    [
        (["--entry", "decoder"], "bad-option", "not of the form MODEL=NAME"),
        (["--entry", "other=step"], "bad-option", "which is no model here"),
        (["--entry", "decoder=a b"], "bad-option", "cannot be the name of an entry point"),
        (["--entry", "decoder=encoder"], "bad-option", "two entry points are called"),
        (["--stop-after", "memory"], "bad-option", "`--stop-after` cannot be combined with several entry points"),
        (["--target", "wasm32"], "bad-option", "need a host or a microcontroller"),
        (["--board", "rp2040", "--cores", "2"], "bad-option", "`--cores` cannot be combined with several entry points"),
        (["--budget", "none.toml"], "no-such-file", "cannot read `none.toml`"),
    ],
)
def test_what_cannot_be_is_told(words: list[str], slug: str, text: str, folder: Path, tmp_path: Path, intaglio: Intaglio) -> None:
    models = [folder / "encoder.onnx", folder / "decoder.onnx"]
    said = intaglio("compile", *models, "--dim", "encoder:T=4", "-o", tmp_path / "p", *words)
    assert said.code == 2 and f"error[{slug}]" in said.err and text in " ".join(said.err.split())
    assert not (tmp_path / "p").exists()


def test_an_entry_point_has_to_be_named(package: intaglio.EntryPoints, intaglio: Intaglio) -> None:
    assert "error[which-entry]" in intaglio("run", package.folder).err
    said = intaglio("run", package.folder, "--entry", "stop")
    assert said.code == 2 and "its entry points: `encode`, `step`" in said.err
    assert "error[unknown-entry]" in intaglio("run", package.folder / "entries" / "step", "--entry", "step").err


def test_python_says_which_entry_points_there_are(package: intaglio.EntryPoints) -> None:
    with pytest.raises(UserError, match="has no entry point `stop`"):
        package.run({}, entry="stop")
    with pytest.raises(UserError, match="has several entry points"):
        intaglio.Package.load(package.folder)
    with pytest.raises(UserError, match="has one entry point"):
        intaglio.EntryPoints.load(package.folder / "entries" / "step")


@pytest.mark.slow
@needs_gcc
@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="variants of x86-64 need such a processor")
def test_entry_points_for_several_processors(folder: Path, tmp_path: Path, intaglio: Intaglio) -> None:
    """Each entry point looks at the processor; weights and arena are those of all entry points and variants."""
    given = ("--entry", "encoder=encode", "--entry", "decoder=step", "--dim", "encode:T=1..9", "--name", "speech")
    both = ("--target", "x86-64", "--variants", "v2,v3")
    said = intaglio("compile", folder / "encoder.onnx", folder / "decoder.onnx", *given, *both, "-o", tmp_path / "p")
    assert said.code == 0, said.err
    said = intaglio("validate", tmp_path / "p", "--json")
    assert said.code == 0 and all(row["ok"] for row in json.loads(said.out)["entries"].values())
    about = json.loads((tmp_path / "p" / "manifest.json").read_text())
    assert about["weight_bytes"] < about["separate_weight_bytes"]
    (tmp_path / "main.c").write_text(
        '#include <stdio.h>\n#include "speech.h"\nint main(void)\n{\n    float x[32] = {1}, y[32];\n'
        "    speech_step_inputs in = {x};\n    speech_step_outputs out = {y};\n"
        "    int codes = speech_step_use_variant(\"x86-64\") + speech_step_run(&in, &out);\n"
        '    printf("%s %s %d\\n", speech_step_variant(), speech_encode_variant(), codes);\n    return 0;\n}\n'
    )  # fmt: skip
    alone = {name: value for name, value in os.environ.items() if name not in ("MAKEFLAGS", "MFLAGS", "MAKELEVEL")}
    command = ["make", "-s", "-C", str(tmp_path / "p"), "CC=gcc"]
    made = subprocess.run(command, capture_output=True, text=True, check=False, env=alone)
    assert made.returncode == 0 and not made.stderr, made.stderr
    build = ["gcc", "main.c", "-Ip/include", "p/build/libspeech.a", "-lm", "-o", "main"]
    subprocess.run(build, cwd=tmp_path, check=True)
    done = subprocess.run(["./main"], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("x86-64 x86-64") and done.stdout.endswith(" 0\n")


def test_one_page_has_all_entry_points(package: intaglio.EntryPoints, tmp_path: Path, intaglio: Intaglio) -> None:
    said = intaglio("report", package.folder, "--no-run", "-o", tmp_path / "r.html", "--json")
    assert said.code == 0 and list(json.loads(said.out)["entries"]) == ["encode", "step"]
    text = (tmp_path / "r.html").read_text()
    assert text.count("<iframe ") == 2 and "speech_encode_run" in text and "http://" not in text.split("<iframe")[0]
    said = intaglio("dossier", package.folder, "-o", tmp_path / "d")
    assert said.code == 2 and "entries/encode`" in said.err


def test_entry_points_of_one_file_are_called_after_it(folder: Path, tmp_path: Path, intaglio: Intaglio) -> None:
    said = intaglio("compile", folder / "encoder.onnx", "--dim", "T=2,4", "-o", tmp_path / "v1")
    assert said.code == 0 and (tmp_path / "v1" / "include" / "encoder.h").is_file()
    assert "encoder_T2_run" in (tmp_path / "v1" / "include" / "encoder_T2.h").read_text()
