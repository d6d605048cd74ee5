"""`intaglio build`: what a project file may say, what is refused, and that only what changed is made."""

from __future__ import annotations

import hashlib
import json
import shutil
import zipfile
from pathlib import Path

import pytest

from intaglio.errors import UserError
from intaglio.project.file import KEYWORDS, read_project
from intaglio.project.schema import schema
from support.commands import DIGITS, DIGITS_DATA, Intaglio

TEXT = """
[defaults]
optimize = "size"

[models.digits]
source = "digits.onnx"
sha256 = "DIGEST"

[packages.host]
cflags = "-O0"
model = "digits"
optimize = "speed"
report = "build/host.html"
budget = { ram = "4K" }

[packages.core]
model = "digits"
target = "cortex-m4f"
arena = "caller"
name = "core"

[packages.other]
model = "digits"
target = "cortex-m4f"
arena = "caller"
name = "other"

[firmware.both]
packages = ["core", "other"]
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    shutil.copyfile(DIGITS, tmp_path / "digits.onnx")
    (tmp_path / "intaglio.toml").write_text(TEXT.replace("DIGEST", hashlib.sha256(DIGITS.read_bytes()).hexdigest()))
    return tmp_path / "intaglio.toml"


def edited(project: Path, old: str, new: str) -> Path:
    text = project.read_text()
    assert old in text
    project.write_text(text.replace(old, new, 1))
    return project


def test_nearer_options_win_and_paths_start_at_the_file(project: Path) -> None:
    read = read_project(project)
    host, core, _ = read.jobs
    assert host.request.optimize == "speed" and core.request.optimize == "size"
    assert host.request.model == project.parent / "digits.onnx" and host.request.output == project.parent / "build" / "host"
    assert host.report == project.parent / "build" / "host.html" and dict(host.budget) == {"ram": 4096}
    assert read.firmware[0].packages == ("core", "other")


def test_values_are_replaced_and_taken_from_the_environment(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CORE", "cortex-m0+")
    words = ["packages.core.target=${CORE}", "packages.host.threads=2", "defaults.exact=true"]
    host, core, other = read_project(project, words).jobs
    assert core.request.target == "cortex-m0+" and host.request.threads == 2 and other.request.exact


WRONG = {
    "no TOML": ('[models.digits]', "[models.digits", "is not TOML"),
    "an unknown section": ("[defaults]", "[default]", "did you mean `defaults`"),
    "an unknown option": ('optimize = "size"', 'optimise = "size"', "did you mean `optimize`"),
    "a value of the wrong kind": ('optimize = "speed"', "threads = true", "`threads`"),
    "a model that is not there": ('model = "digits"', 'model = "digit"', "did you mean `digits`"),
    "no model": ('model = "digits"\noptimize', "optimize", "has no `model`"),
    "no source": ('source = "digits.onnx"', "", "has no `source`"),
    "a budget that is not known": ('ram = "4K"', 'rom = "4K"', "unknown budget `rom`"),
    "a variable that is not set": ('"build/host.html"', '"${NOT_SET_HERE}/host.html"', "is not set"),
    "firmware of one": ('["core", "other"]', '["core"]', "two or more"),
    "firmware of strangers": ('["core", "other"]', '["core", "otter"]', "did you mean `other`"),
    "a kind of package that is not known": ('optimize = "speed"', 'make = ["arduinos"]', "makes `arduinos`"),
    "no list of kinds": ('optimize = "speed"', 'make = "zip"', "is not a list"),
    "a version of nothing": ('optimize = "speed"', 'version = "1.0.0"', "without `make`"),
    "one output for two": ('name = "core"', 'output = "build/other"', "two packages have the output"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_file_that_is_wrong(name: str, project: Path) -> None:
    old, new, reason = WRONG[name]
    with pytest.raises(UserError) as caught:
        read_project(edited(project, old, new))
    assert reason in str(caught.value) and caught.value.hint


@pytest.mark.parametrize("text", ["optimize=size", "defaults", "a.b.c", "models.digits.source.x=1"])
def test_a_replacement_that_is_none(text: str, project: Path) -> None:
    with pytest.raises(UserError):
        read_project(project, [text])


def test_a_file_that_is_not_there(intaglio: Intaglio, tmp_path: Path) -> None:
    said = intaglio("build", "-f", tmp_path / "none.toml")
    assert said.code == 2 and "error[no-project]" in said.err


def test_what_is_made_and_what_stays(project: Path, intaglio: Intaglio) -> None:
    pytest.importorskip("unicorn")
    said = intaglio("build", "-f", project)
    assert said.code == 0, said.err
    assert all(len(line) <= 80 for line in said.out.splitlines())
    build = project.parent / "build"
    assert (build / "host" / "bin" / "digits").is_file() and (build / "host.html").is_file()
    assert (build / "both" / "bin" / "both.elf").is_file()
    told = intaglio("build", "host", "core", "-f", project, "--jobs", "1", "--json").json["outcomes"]
    assert {o["name"]: o["state"] for o in told} == {"host": "up to date", "core": "up to date"}
    told = intaglio("build", "host", "-f", project, "--set", "packages.host.budget.ram=100", "--json")
    assert told.code == 1 and told.json["outcomes"][0]["state"] == "over budget"


@pytest.mark.slow
def test_files_to_hand_out(project: Path, intaglio: Intaglio) -> None:
    edited(project, 'optimize = "speed"', 'make = ["wheel", "zip", "rust"]\nversion = "1.2.0"')
    kinds = '["arduino", "platformio", "zephyr", "micropython", "cmsis-pack"]'
    edited(project, 'name = "core"', f'name = "core"\nmake = {kinds}\ndist = "out"')
    for kind, hint in (("wheel", "for a host"), ("esp-idf", "rv32imc")):
        refused = intaglio("build", "core", "-f", project, "--set", f'packages.core.make=["{kind}"]')
        assert refused.code == 2 and f"cannot be a {kind} one" in refused.err and hint in refused.err
    assert not list(project.parent.rglob("manifest.json")), "nothing was compiled"
    said = intaglio("build", "host", "core", "-f", project)
    assert said.code == 0 and "made: " in said.out, said.err
    dist, out = project.parent / "dist", project.parent / "out"
    assert {p.name.split("-1.2.0")[0] + p.suffix for p in dist.iterdir()} == {"digits.whl", "host.zip", "host-rust.zip"}
    assert len(list(out.iterdir())) == 5 and (out / "Intaglio.core.0.1.0.pack").is_file()
    with zipfile.ZipFile(out / "core-arduino-0.1.0.zip") as archive:
        assert "core/library.properties" in archive.namelist()
    with zipfile.ZipFile(dist / "host-rust-1.2.0.zip") as archive:
        assert 'version = "1.2.0"' in archive.read("digits/Cargo.toml").decode()
        archive.extractall(project.parent / "taken")
    assert intaglio("verify", project.parent / "taken" / "digits").code == 0


@pytest.mark.slow
def test_accuracy_by_labels_has_a_budget_and_stays_up_to_date(project: Path, intaglio: Intaglio) -> None:
    shutil.copyfile(DIGITS_DATA, project.parent / "data.npz")
    more = 'calibrate = "data.npz"\nlabels = "data.npz"\nquantize = "int8"\n'
    edited(project, 'optimize = "speed"\nreport = "build/host.html"\nbudget = { ram = "4K" }', more + "budget = { accuracy = 0.9 }")
    assert intaglio("build", "host", "-f", project, "--json").json["outcomes"][0]["state"] == "built"
    assert intaglio("build", "host", "-f", project, "--json").json["outcomes"][0]["state"] == "up to date"
    said = intaglio("build", "host", "-f", project, "--set", "packages.host.budget.accuracy=0.999")
    assert said.code == 1 and "below its budget of 99.90 %" in said.out + said.err


@pytest.mark.slow
def test_one_that_fails_stops_no_other(project: Path, intaglio: Intaglio) -> None:
    words = ["--set", "packages.core.ram=16", "--json"]
    said = intaglio("build", "core", "host", "-f", project, *words)
    told = {o["name"]: o for o in said.json["outcomes"]}
    assert said.code == 2 and told["core"]["state"] == "failed" and "does-not-fit" in told["core"]["lines"][0]
    assert told["host"]["state"] == "built"


def test_another_model_is_refused(project: Path, intaglio: Intaglio) -> None:
    (project.parent / "digits.onnx").write_bytes(b"another")
    said = intaglio("build", "host", "-f", project, "--json")
    assert said.code == 2 and "wrong-model" in said.json["outcomes"][0]["lines"][0]
    assert not (project.parent / "build").exists()


def test_the_schema_has_every_option(intaglio: Intaglio) -> None:
    made = intaglio("build", "--schema").json
    assert made == json.loads(json.dumps(schema()))
    package = made["properties"]["packages"]["additionalProperties"]["properties"]
    assert set(KEYWORDS) <= set(package) and all(package[key]["description"] for key in KEYWORDS)


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [('"build/host.html"', "false", "has no `report`"), ("[firmware.both]", "[firmware.core]", "are both called `core`")],
)
def test_names_and_pages_that_cannot_be(old: str, new: str, reason: str, project: Path) -> None:
    with pytest.raises(UserError) as caught:
        read_project(edited(project, old, new))
    assert reason in str(caught.value)


@pytest.mark.slow
def test_firmware_is_linked_again_only_when_a_package_changed(project: Path, intaglio: Intaglio) -> None:
    pytest.importorskip("unicorn")
    words = ("build", "both", "-f", project, "--json")
    states = [{o["name"]: o["state"] for o in intaglio(*words, *more).json["outcomes"]} for more in ((), (), ("--force",))]
    assert [s["both"] for s in states] == ["built", "up to date", "built"]
