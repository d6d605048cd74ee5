"""Budgets and rules: exit code 1 and a line for each that is broken. A wrong file is reported before anything is done."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from intaglio.errors import UserError
from intaglio.report.budgets import read_rule
from intaglio.report.differences import FigureChange
from support.commands import DIGITS, DIGITS_DATA, Intaglio


def budget(folder: Path, text: str) -> Path:
    path = folder / "budget.toml"
    path.write_text(text)
    return path


def test_a_compile_within_its_budgets_and_one_beyond(intaglio: Intaglio, tmp_path: Path) -> None:
    fine = budget(tmp_path, 'ram = "64K"\nweights = 10_000\nerror = 1e-3\n')
    said = intaglio("compile", DIGITS, "-o", tmp_path / "p", "--budget", fine, "--report", tmp_path / "r.html")
    assert said.code == 0 and "within all 3 budgets" in said.err and (tmp_path / "r.html").is_file()
    tight = budget(tmp_path, "ram = 100\nweights = 10_000\ninstructions = 5\n")
    said = intaglio("compile", DIGITS, "-o", tmp_path / "p", "--budget", tight)
    assert said.code == 1
    assert "over budget: ram is 2,560 bytes, above its budget of 100 bytes" in said.err
    assert "over budget: instructions is not known here" in said.err and "weights" not in said.err.split("over budget", 1)[1]


@pytest.mark.parametrize(
    ("text", "reason"),
    [("ram = ", "is not TOML"), ("rom = 5", "unknown budget `rom`"), ('ram = "much"', "is not a size"),
     ("time = true", "is not a number"), ("time = -1", "is not a number"), ("time = nan", "is not a number")],
)  # fmt: skip
def test_a_budget_file_that_is_wrong(text: str, reason: str, intaglio: Intaglio, tmp_path: Path) -> None:
    said = intaglio("compile", DIGITS, "-o", tmp_path / "p", "--budget", budget(tmp_path, text))
    assert said.code == 2 and reason in said.err and "hint: " in said.err
    assert not (tmp_path / "p").exists()


def test_a_budget_file_that_is_not_there(intaglio: Intaglio, tmp_path: Path) -> None:
    said = intaglio("compile", DIGITS, "-o", tmp_path / "p", "--budget", tmp_path / "none.toml")
    assert said.code == 2 and "error[no-such-file]" in said.err


def test_a_page_needs_a_package(intaglio: Intaglio, tmp_path: Path) -> None:
    said = intaglio("compile", DIGITS, "-o", tmp_path / "d.ig", "--stop-after", "memory", "--report", tmp_path / "r.html")
    assert said.code == 2 and "needs a package that was built" in said.err and not (tmp_path / "d.ig").exists()


def change(before: float | None, after: float | None) -> FigureChange:
    return FigureChange("ram", "RAM", before, after, "", "", "", None, False, False)


@pytest.mark.parametrize(
    ("rule", "before", "after", "broken"),
    [
        ("ram>+2%", 100, 102, False), ("ram>+2%", 100, 103, True), ("ram > 2 %", 100, 103, True), ("ram<-5%", 100, 90, True),
        ("ram<-5%", 100, 96, False), ("ram>64K", 1, 65537, True), ("ram>64K", 1, 65536, False), ("ram>+2%", 0, 1, True),
        ("ram>+2%", None, 5, False), ("ram>1", 5, None, False),
    ],
)  # fmt: skip
def test_rules(rule: str, before: float | None, after: float | None, broken: bool) -> None:
    assert read_rule(rule).broken(change(before, after)) is broken


@pytest.mark.parametrize("text", ["", "ram", "ram>", "ram>+5", "rom>5%", "ram=5", "ram>5%%", "ram>>5"])
def test_what_is_not_a_rule(text: str) -> None:
    with pytest.raises(UserError) as caught:
        read_rule(text)
    assert caught.value.slug == "bad-rule"


def test_a_rule_that_checks_nothing_does_not_pass(intaglio: Intaglio, digits: Path) -> None:
    said = intaglio("compare", digits, digits, "--no-run", "--fail-if", "time>10")
    assert said.code == 1 and "the time of both packages is not known here" in said.err


@pytest.mark.slow
def test_comparing_packages(intaglio: Intaglio, digits: Path, tmp_path: Path) -> None:
    assert intaglio("compile", DIGITS, "-o", tmp_path / "q", "--quantize", "int8").code == 0
    said = intaglio("compare", digits, tmp_path / "q", "--no-run", "--fail-if", "ram>+2%")
    assert said.code == 0 and re.search(r"-\d\d\.\d %", said.out) and all(len(line) <= 80 for line in said.out.splitlines()[2:])
    said = intaglio("compare", tmp_path / "q", digits, "--no-run", "--fail-if", "ram>+2%", "--markdown")
    assert said.code == 1 and "broken rule: `ram>+2%`" in said.err
    assert re.search(r"\| RAM \| [\d,]+ bytes \| [\d,]+ bytes \| \+\d+\.\d % ⚠ \|", said.out)
    told = intaglio("compare", digits, tmp_path / "q", "--no-run", "--json").json
    assert told["broken"] == [] and told["figures"][0]["key"] == "ram"
    wrong = intaglio("compare", digits, tmp_path / "q", "--fail-if", "rom>2%")
    assert wrong.code == 2 and "error[bad-rule]" in wrong.err


@pytest.mark.slow
def test_accuracy_is_kept_in_the_package(intaglio: Intaglio, tmp_path: Path) -> None:
    data = ("--quantize", "int8", "--calibrate", DIGITS_DATA, "--labels", DIGITS_DATA)
    assert "accuracy: " in intaglio("compile", DIGITS, "-o", tmp_path / "p", *data).out
    (tmp_path / "b.toml").write_text("accuracy = 0.9\n")
    words = ("compare", tmp_path / "p", tmp_path / "p", "--budget", tmp_path / "b.toml", "--no-run", "--json")
    told = intaglio(*words)
    assert told.code == 0 and {f["key"]: f["after"] for f in told.json["figures"]}["accuracy"] > 0.9
    assert intaglio("verify", tmp_path / "p").code == 0
