"""Several entry points: budgets, pages and comparisons of all of them, and lists of sizes in project files and `fit`."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import intaglio as api
from intaglio.errors import UserError
from support.commands import Intaglio
from support.onnx_models import model, node, saved, value


@pytest.fixture(scope="module")
def words(tmp_path_factory: pytest.TempPathFactory) -> Path:
    w = np.ones((4, 4), np.float32)
    nodes = [node("MatMul", "x w", "h"), node("Relu", "h", "y")]
    return saved(model(nodes, [value("x", [1, "T", 4])], [value("y", None)], {"w": w}), tmp_path_factory.mktemp("m"), "words.onnx")


@pytest.fixture(scope="module")
def package(words: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("p") / "words"
    api.compile_entries(words, dims={"T": [4, 8]}, output=folder)
    return folder


@pytest.mark.slow
def test_compile_writes_one_page_and_holds_budgets_for_each(words: Path, tmp_path: Path, intaglio: Intaglio) -> None:
    (tmp_path / "b.toml").write_text("macs = 100\n")
    asked = ("--budget", tmp_path / "b.toml", "--report", tmp_path / "r.html")
    said = intaglio("compile", words, "--dim", "T=4,8", "-o", tmp_path / "p", *asked)
    assert said.code == 1
    assert "over budget: `T8`: macs is 128, above its budget of 100" in said.err and "`T4`: macs" not in said.err
    assert (tmp_path / "r.html").read_text().count("<iframe ") == 2


def test_compare_goes_through_entry_points(package: Path, words: Path, tmp_path: Path, intaglio: Intaglio) -> None:
    api.compile_entries(words, dims={"T": [4, 16]}, output=tmp_path / "words")
    said = intaglio("compare", package, tmp_path / "words", "--no-run", "--json")
    found = json.loads(said.out)
    assert said.code == 0 and list(found["entries"]) == ["T4"] and (found["gone"], found["new"]) == (["T8"], ["T16"])
    assert found["entries"]["T4"]["broken"] == [] and found["weight_bytes"][0] == found["weight_bytes"][1]
    said = intaglio("compare", package, tmp_path / "words", "--no-run", "--fail-if", "macs>1")
    assert said.code == 1 and "broken rule: `macs>1`" in said.err and "gone: `T8`\nnew: `T16`" in said.out
    said = intaglio("compare", package, package / "entries" / "T4")
    assert said.code == 2 and "error[which-entry]" in said.err


PROJECT = """
[models.words]
source = "{0}"
[packages.words]
{1}
dims = {{ T = {2} }}
report = "build/words.html"
budget = {{ macs = 100 }}
"""


@pytest.mark.parametrize(
    ("of", "sizes", "names"),
    [('model = "words"', '[4, "1..8"]', ["T4", "T1to8"]), ('entries = { a = "words" }', '"4,8"', ["a_T4", "a_T8"])],
)
def test_a_project_file_has_lists_of_sizes_and_budgets(
    of: str, sizes: str, names: list[str], words: Path, tmp_path: Path, intaglio: Intaglio
) -> None:
    file = tmp_path / "intaglio.toml"
    file.write_text(PROJECT.format(words, of, sizes))
    said = intaglio("build", "--file", file, "--json")
    (outcome,) = json.loads(said.out)["outcomes"]
    assert said.code == 1 and outcome["state"] == "over budget"
    assert outcome["lines"] == [f"`{names[1]}`: macs is 128, above its budget of 100"]
    found = json.loads((tmp_path / "build" / "words" / "manifest.json").read_text())
    assert [row["name"] for row in found["entries"]] == names
    assert (tmp_path / "build" / "words.html").read_text().count("<iframe ") == 2
    said = intaglio("build", "--file", file, "--set", "packages.words.budget.macs=128")
    assert said.code == 0 and "up to date" in said.out


def test_what_a_project_file_may_not_say_of_entry_points(words: Path, tmp_path: Path, intaglio: Intaglio) -> None:
    file = tmp_path / "intaglio.toml"
    file.write_text(PROJECT.format(words, 'model = "words"', "[4, 4]"))
    said = intaglio("build", "--file", file)
    assert said.code == 2 and "has `4` twice, in `packages.words` of `intaglio.toml`" in said.err
    file.write_text(PROJECT.format(words, 'model = "words"\nmake = ["zip"]', "[4, 8]"))
    said = intaglio("build", "--file", file)
    assert said.code == 2 and "has `make` and several entry points" in said.err


def test_fit_answers_for_each_size_of_a_list(words: Path, tmp_path: Path, intaglio: Intaglio) -> None:
    asked = ("fit", words, "--dim", "T=4,64", "--target", "cortex-m4f", "--ram", "1K", "--quick")
    said = intaglio(*asked, "--json")
    found = json.loads(said.out)
    assert said.code == 1 and found["fits"] is False
    assert [entry["fits"] for entry in found["entries"].values()] == [True, False] and list(found["entries"]) == ["T4", "T64"]
    said = intaglio(*asked)
    assert said.code == 1 and "T4:\n" in said.out and "T64:\n" in said.out
    said = intaglio(*asked, "--plot", tmp_path / "p.svg")
    assert said.code == 2 and "`--plot` draws one size" in said.err


def test_python_names_the_function_that_takes_lists(words: Path) -> None:
    with pytest.raises(UserError, match="has a list of sizes") as caught:
        api.compile(words, dims={"T": [4, 8]})  # type: ignore[dict-item]
    assert "`intaglio.compile_entries`" in caught.value.hint
