"""Mistakes in entry points and lists of sizes: each error says what is wrong and what to do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import intaglio as api
from intaglio.errors import UserError
from support.commands import Intaglio
from support.onnx_models import model, node, saved, value


def words(size: str = "T") -> Any:
    w = np.eye(4, dtype=np.float32)
    return model([node("MatMul", "x w", "y")], [value("x", [1, size, 4])], [value("y", None)], {"w": w})


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return saved(words(), tmp_path, "words.onnx")


@pytest.mark.parametrize(
    ("sizes", "told"),
    [("4,4", "the list of sizes of `T` has `4` twice"), ("1..4,1..4", "has `1..4` twice")],
)
def test_a_size_stands_once_in_a_list(path: Path, sizes: str, told: str, intaglio: Intaglio) -> None:
    said = intaglio("compile", path, "--dim", f"T={sizes}", "-o", path.parent / "p")
    assert said.code == 2 and told in said.err and "list it once" in said.err and not (path.parent / "p").exists()


@pytest.mark.parametrize(
    ("models", "options", "told"),
    [
        ({}, {}, "there are no models"),
        (3, {}, "`3` is no model file"),
        ({"a": "M"}, {"dims": {"T": []}}, "the list of sizes of `T` is empty"),
        ({"a": "M"}, {"dims": {"T": [4, 4]}}, "has `4` twice"),
        ({"a": {"model": "M", "example_input": 3}}, {}, "has no option `example_input`"),
        ({"a": {"model": object(), "example_input": 3}}, {}, "has no option `example_input`"),
    ],
)
def test_mistakes_of_keywords(path: Path, models: Any, options: Any, told: str) -> None:
    def filled(given: Any) -> Any:
        return {k: filled(v) for k, v in given.items()} if isinstance(given, dict) else path if given == "M" else given

    with pytest.raises(UserError) as error:
        api.compile_entries(filled(models), **options)
    assert told in error.value.message and error.value.hint


def test_a_dimension_of_another_model(path: Path, intaglio: Intaglio) -> None:
    other = saved(words("P"), path.parent, "other.onnx")
    said = intaglio("compile", path, other, "--dim", "T=4", "-o", path.parent / "p")
    assert said.code == 2 and "no input has a dimension called `T`" in said.err
    assert "the symbolic dimensions are: `P`; for one entry point only: `--dim words:NAME=SIZE`" in said.err


def test_names_that_are_one_name_in_c(path: Path, intaglio: Intaglio) -> None:
    other = saved(words(), path.parent, "words_.onnx")
    said = intaglio("compile", path, other, "--dim", "T=4", "-o", path.parent / "p")
    assert said.code == 2 and "two entry points are called `words_`" in said.err and "`--entry" in said.err


def test_the_entry_point_that_does_not_fit_is_named(path: Path, intaglio: Intaglio) -> None:
    pytest.importorskip("unicorn")
    said = intaglio("compile", path, "--dim", "T=4,90000", "--board", "nucleo-l4r5zi", "-o", path.parent / "p")
    assert said.code == 1 and "`words_T90000` needs at least" in said.err and "--> arena" in said.err


def test_an_option_that_names_nothing(path: Path, intaglio: Intaglio) -> None:
    said = intaglio("compile", path, "--dim", "T=4", "--safety", "", "-o", path.parent / "p")
    assert said.code == 2 and "`--safety` names nothing" in said.err and "`--safety crc,golden`" in said.err
