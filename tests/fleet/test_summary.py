"""What is said of a run: budgets with how much they are missed by, causes instead of jobs, changes where there is something to
compare."""

from __future__ import annotations

from intaglio.fleet.changes import changes_of, summary_of
from intaglio.fleet.page import fleet_page
from intaglio.fleet.store import Row
from intaglio.fleet.summary import budgets_of, shortened, unanswered


def row(model: str, state: str = "ok", reason: str = "", **figures: float) -> Row:
    return Row("compile", model, "", "host", state, reason, dict(figures))


def test_budgets_say_what_is_met_and_by_how_much_the_rest_misses() -> None:
    rows = [row("a", ram=1000, accuracy=0.9), row("b", ram=3000), row("c", ram=2000), row("d", "crashed", "ended")]
    ram, accuracy, time = budgets_of(rows, [("ram", 1500.0), ("accuracy", 0.95), ("time", 5.0)])
    assert ram.text == "ram at most 1,500 bytes: 1 of 3 results within it" and not ram.ok
    assert [one.row.model for one in ram.broken] == ["b", "c"]  # the worst first
    assert ram.broken[0].text == "b on host, compile: ram is 3,000 bytes, 1,500 bytes (100.0 %) above its budget of 1,500 bytes"
    assert accuracy.broken[0].texts == ("90.00 %", "95.00 %", "5.00 % (5.3 %) below")
    assert not time.ok and time.text == "time at most 5 ms: no result has this figure"  # what checks nothing does not pass
    assert all(budget.ok for budget in budgets_of(rows, [("ram", 3000.0)]))


def test_the_page_has_the_budgets() -> None:
    rows = [row("a", ram=1000), row("b", ram=3000)]
    page = fleet_page("f", rows, [], "", budgets_of(rows, [("ram", 1500.0), ("flash", 10.0)]))
    assert "<h2>Budgets</h2>" in page and "1 of 2 results within it" in page and "not checked" in page
    assert '<td class="bad">1,500 bytes (100.0 %) above</td>' in page
    assert "Budgets" not in fleet_page("f", rows, [], "")


def test_jobs_without_an_answer_are_told_by_cause() -> None:
    rows = [row(f"m{n}", "failed", f"unsupported: `Op{n}` in node {n}") for n in range(5)]
    rows += [row("x", "crashed", "its process ended"), row("y"), row("z", "")]
    causes = unanswered(rows)
    assert [len(cause.rows) for cause in causes] == [5, 1, 1]
    assert causes[0].text == "5 jobs, e.g. m0 on host, compile: failed: unsupported: `Op0` in node 0"
    assert causes[1].text == "x on host, compile: crashed: its process ended" and causes[2].text.endswith("not run")
    page = fleet_page("f", rows, [], "")
    assert "<summary>5 jobs: failed: unsupported: `Op0` in node 0</summary>" in page and "m4 on host" in page and "`Op4`" in page


def test_what_is_left_out_is_counted() -> None:
    said: list[str] = []
    shortened(["a", "b", "c"], 2, said.append, "cause", "look")
    assert said == ["a", "b", "... and 1 more cause; look"]
    said.clear()
    shortened(["a", "b"], 2, said.append, "cause", "look")
    assert said == ["a", "b"]


def test_jobs_without_an_answer_before_are_not_changes() -> None:
    before = [row("a", "crashed", "ended"), row("b", "failed", "x"), row("c", ram=10), row("d", ram=10)]
    after = [row("a", ram=10), row("b", "timeout", "late"), row("c", ram=20), row("d", "failed", "x"), row("e", ram=1)]
    found = changes_of(before, after)
    assert summary_of(found) == "2 changes, 2 for the worse; 1 job with a first answer; 1 new job"
    assert {(c.model, c.what, c.first) for c in found} == {
        ("a", "state", True), ("c", "RAM", False), ("d", "state", False), ("e", "job", True),
    }  # fmt: skip
    assert summary_of(changes_of(after[:2], before[:2])) == "1 change, 1 for the worse"  # of `a`; `b` had none before
    page = fleet_page("f", after, found, "run 1")
    assert "1 job with a first answer" in page and "first answer</td>" not in page
