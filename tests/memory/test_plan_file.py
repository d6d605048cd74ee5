"""The plan as CSV: written, read again, pinned, and refused with the line that is at fault."""

from __future__ import annotations

from pathlib import Path

import pytest

from intaglio.errors import UserError
from intaglio.memory.lifetimes import Buffer
from intaglio.memory.plan_file import PlanFile, Row, pin
from support.commands import DIGITS, Intaglio

BOARD = ("--board", "nucleo-l4r5zi")


def plan(intaglio: Intaglio, folder: Path, *more: str | Path) -> tuple[int, str]:
    said = intaglio("compile", DIGITS, "-o", folder / "d.ig", "--stop-after", "memory", *BOARD, *more)
    return said.code, said.err


def offsets(path: Path) -> dict[str, int]:
    return {row.split(",")[0]: int(row.split(",")[4]) for row in path.read_text().splitlines()[1:]}


def test_a_plan_that_is_read_again_stays_as_it_is(intaglio: Intaglio, tmp_path: Path) -> None:
    a, b = tmp_path / "a.csv", tmp_path / "b.csv"
    assert plan(intaglio, tmp_path, "--export-plan", a)[0] == 0
    assert plan(intaglio, tmp_path, "--import-plan", a, "--export-plan", b)[0] == 0
    assert a.read_text() == b.read_text()
    assert a.read_text().startswith("buffer,bytes,first,last,offset,pinned\n")


def test_a_pinned_buffer_is_kept_and_the_rest_goes_around(intaglio: Intaglio, tmp_path: Path) -> None:
    (tmp_path / "pin.csv").write_text("buffer,offset\nrelu1_1,512\n")
    assert plan(intaglio, tmp_path, "--import-plan", tmp_path / "pin.csv", "--export-plan", tmp_path / "a.csv")[0] == 0
    found = offsets(tmp_path / "a.csv")
    assert found["relu1_1"] == 512
    assert found["image_input"] == 0
    assert ",512,1\n" in (tmp_path / "a.csv").read_text()


FAULTS = {
    "not aligned": ("buffer,offset\nrelu1_1,4\n", "`relu1_1` cannot be at 4: offsets are multiples of 8", 2),
    "on another": ("buffer,offset\nrelu1_1,0\nimage_input,2040\n", "`relu1_1` of line 2 is there in layer 0", 3),
    "twice": ("buffer,offset\nrelu1_1,0\nrelu1_1,8\n", "already has an offset in line 2", 3),
    "unknown": ("buffer,offset\nnobody,0\n", "unknown buffer `nobody` in this model on this target", 2),
    "of another model": ("buffer,bytes,offset\nrelu1_1,64,0\n", "`bytes` of `relu1_1` is 2048", 2),
    "no number": ("buffer,offset\nrelu1_1,-8\n", "the offset `-8` of `relu1_1` is not an integer", 2),
    "far away": ("buffer,offset\nrelu1_1,99999999992\n", "an arena has less than", 2),
    "too many cells": ("buffer,offset\nrelu1_1,0,0\n", "more cells than columns", 2),
}


@pytest.mark.parametrize("name", FAULTS)
def test_an_offset_that_cannot_work_is_an_error_with_its_line(intaglio: Intaglio, tmp_path: Path, name: str) -> None:
    text, message, line = FAULTS[name]
    (tmp_path / "p.csv").write_text(text)
    code, told = plan(intaglio, tmp_path, "--import-plan", tmp_path / "p.csv")
    assert code == 2
    assert "error[bad-plan]" in told
    assert message in told
    assert f"p.csv, line {line}" in told


@pytest.mark.parametrize("text", ["", "name,at\nx,0\n", "\x00\n"])
def test_a_file_that_is_no_plan_is_told(intaglio: Intaglio, tmp_path: Path, text: str) -> None:
    (tmp_path / "p.csv").write_text(text)
    code, told = plan(intaglio, tmp_path, "--import-plan", tmp_path / "p.csv")
    assert code == 2
    assert "names its columns" in told


def test_a_plan_that_is_not_there_is_told(intaglio: Intaglio, tmp_path: Path) -> None:
    code, told = plan(intaglio, tmp_path, "--import-plan", tmp_path / "p.csv")
    assert code == 2
    assert "cannot read the plan" in told


def test_there_is_no_plan_before_the_memory_stage(intaglio: Intaglio, tmp_path: Path) -> None:
    said = intaglio("compile", DIGITS, "-o", tmp_path / "d.ig", "--stop-after", "kernels", "--export-plan", tmp_path / "p.csv")
    assert said.code == 2
    assert "the stage `kernels` has no memory plan yet" in said.err


def test_nothing_is_pinned_into_the_state() -> None:
    plan = PlanFile(Path("p.csv"), (Row(2, "a", None, None, None, 32),))
    with pytest.raises(UserError, match="`a` cannot be at 32: the state takes the first 64 bytes"):
        pin([Buffer("a", 8, 0, 1)], plan, base=64, alignment=8)


def test_a_plan_of_stripes_is_read_again(intaglio: Intaglio, tmp_path: Path) -> None:
    """Windows have their names in it, and a result that lies over its operand is no mistake."""
    words = ("compile", DIGITS, "--target", "cortex-m4f", "--ram", "2K", "--stop-after", "package")
    first = intaglio(*words, "-o", tmp_path / "a", "--export-plan", tmp_path / "p.csv")
    again = intaglio(*words, "-o", tmp_path / "b", "--import-plan", tmp_path / "p.csv")
    assert first.code == again.code == 0 and "stripes make the arena" in again.err
    assert (tmp_path / "a" / "src" / "digits.c").read_text() == (tmp_path / "b" / "src" / "digits.c").read_text()


def test_a_plan_may_be_beside_an_output_whose_folder_is_new(intaglio: Intaglio, tmp_path: Path) -> None:
    words: list[str | Path] = ["compile", DIGITS, "--stop-after", "package", "-o", tmp_path / "new" / "p"]
    assert intaglio(*words, "--export-plan", tmp_path / "new" / "plan.csv").code == 0
    assert sorted(p.name for p in (tmp_path / "new").iterdir()) == ["p", "plan.csv"]
