"""`intaglio search`: the front, budgets, and points that are packages."""

from __future__ import annotations

from pathlib import Path

import pytest

from intaglio.fleet.front_page import plain, search_page, ticks
from intaglio.fleet.search import Point, front, nearest, within
from support.commands import DIGITS, DIGITS_DATA, Intaglio

pytest.importorskip("optuna", reason="the extra `search` is not installed")


def point(name: str, **figures: float) -> Point:
    return Point((("quantize", name),), figures)


A = point("int8", ram=10, flash=30, time=2.0, accuracy=0.9)
B = point("as it is", ram=40, flash=60, time=1.0, accuracy=0.95)
C = point("int16x8", ram=41, flash=61, time=1.5, accuracy=0.95)  # B is better in everything
D = point("weights", ram=5, flash=90, time=3.0)  # accuracy not known
LOST = Point((("quantize", "fp16"),), {}, reason="does-not-fit")


def test_the_front_has_what_nothing_else_beats() -> None:
    assert front([A, B, C, D, LOST]) == [B, A, D]
    assert front([A, Point((("quantize", "int8, error 5 %"),), A.figures)]) == [A]  # one of two that are the same


def test_budgets_and_the_nearest_point() -> None:
    assert within(A, {"ram": 10, "accuracy": 0.9}) and not within(A, {"ram": 9}) and not within(LOST, {"ram": 9})
    assert not within(D, {"accuracy": 0.1})  # what was not measured is within no budget
    assert nearest([A, B, LOST], {"ram": 8}) is A and nearest([A, B], {"time": 0.9}) is B
    assert nearest([A, B], {"ram": 12, "accuracy": 0.94}) is A and nearest([LOST], {"ram": 1}) is None


def test_the_page_shows_every_point_and_every_reason() -> None:
    best = front([A, B, C, D])
    page = search_page("<model>", [A, B, C, D, LOST], best, {"ram": 20}, Path("s/packages"))
    assert "<model>" not in page and page.count("<svg") == 6 + 3 and "does-not-fit" in page
    assert page.count("<circle") == 3 * 4 + 3 * 3 + 2 and "stroke-dasharray" in page
    assert "90.00 %" in page and "another point beats it" in page and "<th>package</th>" in page and f"<td>{len(best)}</td>" in page


def test_numbers_of_pages_have_no_exponents() -> None:
    values = {1067312: "1,067,312", 1441.5: "1,442", 0.0061: "0.0061", 12.0: "12", 0.39999: "0.4", 3240: "3,240", 123.456: "123.5"}
    assert {value: plain(value) for value in values} == values
    assert ticks(6000.0, 31000.0) == [10000.0, 15000.0, 20000.0, 25000.0, 30000.0] and len(ticks(0.9485, 0.9815)) in range(3, 7)


@pytest.mark.slow
def test_the_accuracy_of_a_model_that_is_quantised_already(intaglio: Intaglio, tmp_path: Path) -> None:
    quantised = tmp_path / "q.ig"
    made = ("--quantize", "int8", "--calibrate", DIGITS_DATA, "--stop-after", "optimise", "-o", quantised)
    assert intaglio("compile", DIGITS, *made).code == 0
    words = ("search", quantised, "--accuracy", DIGITS_DATA, "--store", tmp_path / "s", "-j", "1", "--trials", "1", "--json")
    said = intaglio(*words, "--least-accuracy", "0.9")
    assert said.code == 0, said.err
    assert [p["figures"]["accuracy"] > 0.9 for p in said.json["points"]] == [True]
    said = intaglio(*words, "--least-accuracy", "0.9999", "--latency", "1e-6")
    assert said.code == 1 and "time at most 0.001 us, accuracy at least 99.99 %" in said.err


def test_an_axis_that_cannot_be_streamed_is_told(intaglio: Intaglio, tmp_path: Path) -> None:
    said = intaglio("search", DIGITS, "--stream", "9", "--store", tmp_path / "s", "--trials", "1")
    assert said.code == 2 and "error[" in said.err


@pytest.mark.slow
def test_a_search_from_the_command_line(intaglio: Intaglio, tmp_path: Path) -> None:
    pytest.importorskip("unicorn", reason="runs the points")
    words = ("search", DIGITS, "--board", "nucleo-l4r5zi", "--accuracy", DIGITS_DATA, "--store", tmp_path / "s", "-j", "1")
    said = intaglio(*words, "--trials", "2", "--report", tmp_path / "r.html", "--json")
    assert said.code == 0, said.err
    points = {p["options"]: p for p in said.json["points"]}
    assert set(points) == {"as it is", "quantize int8"} and all(p["package"] for p in points.values())
    assert points["quantize int8"]["figures"]["accuracy"] > 0.95 < points["as it is"]["figures"]["accuracy"]
    assert points["quantize int8"]["figures"]["ram"] < points["as it is"]["figures"]["ram"]
    again = intaglio(*words, "--trials", "2", "--ram", "1K")
    assert again.code == 1 and "error[over-budget]" in again.err and "the nearest is `quantize int8`" in again.err
    assert all(len(line) <= 80 for line in again.out.splitlines() if "/" not in line)
    assert intaglio(*words, "--trials", "2", "--ram", "2K", "--latency", "100", "--least-accuracy", "0.9").code == 0
