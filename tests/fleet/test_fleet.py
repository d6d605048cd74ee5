"""`intaglio fleet` as a user calls it: jobs from a project file, a second run with nothing to do, the page, two runs compared."""

from __future__ import annotations

import dataclasses
import json
import shutil
from importlib.resources import files
from pathlib import Path

import pytest

from intaglio.cli.fleets import FleetWords, _code, _say, _told
from intaglio.errors import UserError
from intaglio.fleet.jobs import pieces_of
from intaglio.fleet.run import Finished, Progress
from intaglio.fleet.store import Row
from intaglio.fleet.summary import budgets_of
from intaglio.project.file import read_project
from intaglio.project.fleet import matching
from intaglio.run.package import Package
from support.commands import DIGITS, DIGITS_DATA, Intaglio

TEXT = """
[defaults]
cflags = "-O0"

[models.digits]
source = "digits.onnx"

[models.small]
source = "digits.onnx"

[fleet]
models = ["digits"]
boards = ["nucleo-l4r5zi", "nucleo-f401re", "nucleo-f030r8"]
targets = ["generic"]
jobs = ["fit", "compile", "validate"]
quick = true
store = "store"
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    shutil.copyfile(DIGITS, tmp_path / "digits.onnx")
    shutil.copyfile(DIGITS_DATA, tmp_path / "digits.npz")
    (tmp_path / "f.toml").write_text(TEXT)
    return tmp_path / "f.toml"


def edited(file: Path, *pairs: tuple[str, str]) -> Path:
    text = file.read_text()
    for old, new in pairs:
        assert old in text
        text = text.replace(old, new, 1)
    file.write_text(text)
    return file


def test_cells_become_pieces_by_core_and_package(file: Path) -> None:
    plan = read_project(file).fleet
    assert plan is not None
    pieces = pieces_of(plan)
    fits = [one for one in pieces if one.work.endswith(":fit")]
    assert sorted(len(one.jobs) for one in fits) == [1, 2]  # two boards have a Cortex-M4F
    assert len([one for one in pieces if one.work.endswith(":build")]) == 4
    keys = [job.key for one in pieces for job in one.jobs]
    assert len(keys) == len(set(keys)) == 3 + 2 * 4
    other = read_project(file, ["fleet.quick=false"]).fleet
    assert other is not None and {j.key for p in pieces_of(other) for j in p.jobs if j.kind == "fit"}.isdisjoint(keys)


def test_a_fleet_from_the_command_line(file: Path, intaglio: Intaglio) -> None:
    edited(file, ('boards = ["nucleo-l4r5zi", "nucleo-f401re", "nucleo-f030r8"]', 'boards = ["nucleo-l4r5zi", "nucleo-f030r8"]'),
           ('jobs = ["fit", "compile", "validate"]', 'jobs = ["fit"]'))  # fmt: skip
    words = ("fleet", file, "-j", "1")
    page, figures = file.parent / "r.html", file.parent / "r.json"
    said = intaglio(*words, "--report", page, "--export", figures)
    assert said.code == 0, said.err
    assert "2 jobs, 2 done now, 0 known before" in said.out
    assert all(len(line) <= 80 for line in said.out.splitlines() if "/" not in line)  # but for paths
    assert "Which boards take which model" in page.read_text() and "nucleo-f030r8" in page.read_text()
    again = intaglio(*words, "--json").json
    assert again["known"] == 2 and again["run"] == 2 and again["before"] == 1 and again["changes"] == []
    assert intaglio("compare", figures, file.parent / "store").code == 0
    changed = json.loads(figures.read_text())
    for row in changed["results"]:
        row["figures"]["ram"] = int(row["figures"]["ram"] * 0.9)
    (file.parent / "less.json").write_text(json.dumps(changed))
    said = intaglio("compare", file.parent / "less.json", file.parent / "store@1", "--fail-if", "ram>+2%")
    assert said.code == 1 and "broken rule: `ram>+2%`: digits on nucleo-f030r8" in said.err and "+11." in said.out
    assert intaglio("compare", file.parent / "store@1", file.parent / "less.json", "--fail-if", "ram>+2%").code == 0


def test_what_makes_the_exit_code(capsys: pytest.CaptureFixture[str]) -> None:
    """That a model does not fit is an answer; a package that is wrong is not what was wanted."""
    rows = [Row("compile", "m", "", "f030", "no", "does-not-fit: `m` needs ...", {})]
    rows.append(Row("profile", "m", "", "n657", "not emulated", "QEMU has no machine", {}))
    done = Finished(1, None, tuple(rows), (), Progress(2, 0), ())
    assert _code(done) == 0
    rows.append(Row("validate", "m", "", "here", "no", "differs from the reference", {"ram": 2000}))
    done = Finished(1, None, tuple(rows), (), Progress(3, 0), budgets_of(rows, [("ram", 1000.0)]))
    assert _code(done) == 1
    _say(done, [], 1.0, FleetWords([], None, None, None, False, None, None, False))
    said = capsys.readouterr()
    assert "exit code 1: 1 budget not met" in said.err
    assert "exit code 1: m on here, validate: differs from the reference" in said.err and "not emulated" in said.out
    done = dataclasses.replace(done, rows=(*rows, Row("fit", "m", "", "here", "failed", "a bug", {})))
    assert _code(done) == 2


def test_no_estimate_that_rests_on_nothing(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("intaglio.cli.fleets.EVERY_S", 0.0)
    with _told(2) as heard:
        for done in (1, 20, 98, 99):
            heard(Progress(100, 0, done))
    first, middle, two, last = capsys.readouterr().err.splitlines()
    assert first == "1 of 100 jobs, 0 without an answer" and ", about 0 s left" in middle
    assert two.endswith(", the last 2 run") and last.endswith(", the last one runs")


def test_boards_can_be_left_out() -> None:
    known = ["nucleo-a", "nucleo-n657", "other"]
    assert matching(["nucleo-*", "!nucleo-n657*"], known) == (["nucleo-a"], [])
    assert matching(["*", "!esp*"], known) == (known, ["!esp*"])


@pytest.mark.slow
def test_packages_go_to_the_store_and_validate(file: Path, intaglio: Intaglio) -> None:
    variants = '\n[fleet.variants.float]\n[fleet.variants.int8]\nquantize = "int8"\ncalibrate = "digits.npz"\n'
    variants += 'labels = "digits.npz"\n'
    file.write_text(file.read_text().replace('"fit", "compile", "validate"', '"compile", "validate", "profile"') + variants)
    said = intaglio("fleet", file, "-j", "2", "--json", "--set", 'fleet.boards=["nucleo-l4r5zi"]')
    assert said.code == 0, said.err
    rows = {(r["kind"], r["variant"], r["place"]): r for r in said.json["results"]}
    assert len(rows) == 3 * 2 * 2 and {r["state"] for r in rows.values()} == {"ok"}
    kept = rows["compile", "int8", "nucleo-l4r5zi"]
    assert kept["figures"]["accuracy"] > 0.9 and rows["profile", "int8", "nucleo-l4r5zi"]["figures"]["instructions"] > 0
    package = file.parent / "store" / "packages" / kept["package"][:2] / kept["package"]
    assert intaglio("verify", package).code == 0


WRONG = {
    "an unknown key": ('quick = true', "quiet = true", "did you mean `quick`"),
    "a board that is not there": ('"nucleo-f030r8"', '"nucleo-f030r9"', "did you mean `nucleo-f030r8`"),
    "a model that is not there": ('models = ["digits"]', 'models = ["digit"]', "did you mean `digits`"),
    "an unknown job": ('"validate"', '"verify"', "jobs: fit"),
    "no places": ('boards = ["nucleo-l4r5zi", "nucleo-f401re", "nucleo-f030r8"]\ntargets = ["generic"]', "", "neither"),
    "an unknown target": ('targets = ["generic"]', 'targets = ["generik"]', "did you mean `generic`"),
    "a board among the targets": ('targets = ["generic"]', 'targets = ["nucleo-l4r5zi"]', "put it into `boards`"),
    "a target twice": ('targets = ["generic"]', 'targets = ["generic", "generic"]', "two places of `fleet` are called `generic`"),
    "fit without boards": (
        'boards = ["nucleo-l4r5zi", "nucleo-f401re", "nucleo-f030r8"]\ntargets = ["generic"]\n'
        'jobs = ["fit", "compile", "validate"]', 'targets = ["generic"]\njobs = ["fit"]', "which is for boards",
    ),
    "no jobs": ('jobs = ["fit", "compile", "validate"]', "jobs = []", "is empty"),
    "a text for yes": ("quick = true", 'quick = "no"', "neither `true` nor `false`"),
    "an unknown quantisation": ("[fleet]", '[fleet.variants.x]\nquantize = "int9"\n[fleet]', "unknown quantisation `int9`, in"),
    "an unknown level": ("[fleet]", '[fleet.variants.x]\noptimize = "tiny"\n[fleet]', "`tiny` of `--optimize`, in"),
    "an unknown arena": ("[fleet]", '[fleet.variants.x]\narena = "moon"\n[fleet]', "unknown value `moon` of `arena`, in"),
    "an unknown cluster": ("quick = true", "quick = true\n[fleet.cluster.foo]\nworkers = 2", "the unknown kind `foo`"),
    "a board file that is not there": ('"nucleo-f030r8"]', '"b/none.toml"]', "the board file `b/none.toml`, which does not exist"),
    "a pattern of nothing": ('"nucleo-f030r8"]', '"esp99-*"]', "no board matches `esp99-*`"),
    "no list": ('targets = ["generic"]', 'targets = "generic"', "not a list"),
    "a number that is none": ("quick = true", 'timeout = "long"', "`timeout`"),
    "an option of a variant": ("[fleet]", '[fleet.variants.x]\noptimise = "size"\n[fleet]', "did you mean `optimize`"),
}


@pytest.mark.slow
def test_a_package_that_is_gone_from_the_store_is_made_again(file: Path, intaglio: Intaglio) -> None:
    edited(file, ('boards = ["nucleo-l4r5zi", "nucleo-f401re", "nucleo-f030r8"]', "boards = []"),
           ('jobs = ["fit", "compile", "validate"]', 'jobs = ["compile"]'))  # fmt: skip
    assert "1 done now, 0 known before" in intaglio("fleet", file, "-j", "1").out
    shutil.rmtree(file.parent / "store" / "packages")
    (file.parent / "store" / "packages").mkdir()
    assert "1 done now, 0 known before" in intaglio("fleet", file, "-j", "1").out
    assert [*(file.parent / "store" / "packages").glob("*/*/manifest.json")]
    assert "0 done now, 1 known before" in intaglio("fleet", file, "-j", "1").out


@pytest.mark.parametrize("name", WRONG)
def test_a_section_that_is_wrong(name: str, file: Path) -> None:
    old, new, reason = WRONG[name]
    with pytest.raises(UserError) as caught:
        read_project(edited(file, (old, new)))
    assert reason in str(caught.value) and caught.value.hint


@pytest.mark.slow
def test_fit_says_what_compile_says_on_boards_with_several_memories(file: Path, intaglio: Intaglio) -> None:
    known = files("intaglio.targets") / "boards" / "nucleo-f722ze.toml"
    limit = flash_of(file, intaglio) - 16  # the firmware without a board is smaller than that
    text = known.read_text().replace("bytes = 524288", f"bytes = {limit}")
    (file.parent / "tight.toml").write_text(text)
    places = 'boards = ["nucleo-f722ze", "nucleo-h7a3zi-q", "tight.toml"]'
    edited(file, ('boards = ["nucleo-l4r5zi", "nucleo-f401re", "nucleo-f030r8"]\ntargets = ["generic"]', places),
           ('jobs = ["fit", "compile", "validate"]\nquick = true', 'jobs = ["fit", "compile", "profile"]'))  # fmt: skip
    options = ('quantize = "int8"\noptimize = "size"', 'weights = "ram"', 'optimize = "speed"')
    variants = [f"\n[fleet.variants.v{n}]\n{line}\n" for n, line in enumerate(options)]
    file.write_text(file.read_text() + "".join(variants) + "\n[fleet.variants.plain]\n")
    said = intaglio("fleet", file, "-j", "2", "--json")
    rows = {(r["variant"], r["place"], r["kind"]): r for r in said.json["results"]}
    for variant, place in {key[:2] for key in rows}:
        fit, made, run = (rows[variant, place, kind] for kind in ("fit", "compile", "profile"))
        assert fit["state"] == made["state"], (variant, place)
        if made["state"] == "ok":
            keys = [(made, "ram"), (made, "flash"), (run, "time"), (run, "instructions")]
            assert [fit["figures"][key] for _, key in keys] == [row["figures"][key] for row, key in keys], (variant, place)
    refused = rows["plain", "tight", "fit"], rows["plain", "tight", "compile"]
    assert all(row["state"] == "no" and "16 too many" in row["reason"] for row in refused)


def flash_of(file: Path, intaglio: Intaglio) -> int:
    package = file.parent / "alone"
    words = ("--board", "nucleo-f722ze", "--cflags=-O0")
    assert intaglio("compile", file.parent / "digits.onnx", *words, "-o", package).code == 0
    firmware = Package(package).manifest.firmware
    assert firmware is not None
    return firmware.flash_bytes
