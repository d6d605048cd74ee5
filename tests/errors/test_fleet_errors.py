"""One test per message of `intaglio fleet`, and of `compare` with runs of a fleet."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from intaglio.errors import ToolError, UserError
from intaglio.fleet.changes import export_run, read_run
from intaglio.fleet.crews import connect, start_cluster
from intaglio.fleet.pieces import Job, Result
from intaglio.fleet.store import Row, Store
from intaglio.ir.graph import Array
from support.commands import DIGITS, Intaglio

TEXT = f'[models.digits]\nsource = "{DIGITS}"\n[fleet]\nboards = ["nucleo-l4r5zi"]\nquick = true\n'


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "f.toml").write_text(TEXT)
    return tmp_path / "f.toml"


def test_a_project_without_a_fleet(intaglio: Intaglio, file: Path) -> None:
    file.write_text(TEXT.split("[fleet]")[0] + '[packages.p]\nmodel = "digits"\n')
    said = intaglio("fleet", file)
    assert said.code == 2 and "error[bad-project]" in said.err and "has no `[fleet]`" in said.err
    file.write_text(TEXT.split("[fleet]")[0])
    said = intaglio("fleet", file)
    assert said.code == 2 and "has no `[fleet]`" in said.err and "add `[fleet]`" in said.err
    said = intaglio("fleet", file.parent / "none.toml")
    assert said.code == 2 and "`intaglio fleet FILE`" in said.err and "--file" not in said.err


def test_two_schedulers(intaglio: Intaglio, file: Path) -> None:
    both = ("--scheduler", "tcp://127.0.0.1:1", "--cluster", "local")
    for words in (("fleet", file), ("search", DIGITS, "--store", file.parent / "s")):
        said = intaglio(*words, *both)
        assert said.code == 2 and "exclude each other" in said.err and not (file.parent / "s").exists()
    said = intaglio("search", DIGITS, "--store", file.parent / "s", "--cluster", "moon")
    assert said.code == 2 and "unknown cluster `moon`" in said.err and not (file.parent / "s").exists()


def test_an_unknown_cluster_is_refused_before_anything_is_done(intaglio: Intaglio, file: Path) -> None:
    said = intaglio("fleet", file, "--cluster", "foo")
    assert said.code == 2 and "unknown cluster `foo`" in said.err and not (file.parent / "fleet").exists()


def test_places_of_outputs_are_checked_before_anything_is_done(intaglio: Intaglio, file: Path) -> None:
    thesis = file.parent / "thesis.json"
    thesis.write_text('{"title": "..."}')
    for words, reason in (
        (("--export", thesis), "is not a file of figures"), (("--export", file.parent), "is a folder"),
        (("--report", thesis / "r.html"), "is a file, not a folder"), (("--report", thesis), "is not a page"),
    ):  # fmt: skip
        said = intaglio("fleet", file, *words)
        assert said.code == 2 and reason in said.err and "hint:" in said.err
    assert {p.name for p in file.parent.iterdir()} == {"f.toml", "thesis.json"}


def test_budgets_are_not_for_runs(intaglio: Intaglio, tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(json.dumps({"format": 1, "results": []}))
    said = intaglio("compare", tmp_path / "a.json", tmp_path / "a.json", "--budget", tmp_path / "b.toml")
    assert said.code == 2 and "`--budget` is for packages" in said.err


@pytest.mark.parametrize("time", ["-1", "nan", "inf"])
def test_a_latency_that_is_no_time(time: str, intaglio: Intaglio) -> None:
    said = intaglio("search", DIGITS, "--board", "nucleo-l4r5zi", "--latency", time)
    assert said.code == 2 and "is not a time" in said.err


def test_no_scheduler_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    distributed = pytest.importorskip("distributed", reason="the extra `fleet` is not installed")

    def refuses(*_: object, **__: object) -> None:
        raise OSError("Timed out trying to connect")

    monkeypatch.setattr(distributed, "Client", refuses)
    with pytest.raises(ToolError) as caught:
        connect("tcp://127.0.0.1:1")
    assert caught.value.slug == "no-scheduler" and "dask scheduler" in caught.value.hint


def test_clusters(tmp_path: Path) -> None:
    pytest.importorskip("distributed", reason="the extra `fleet` is not installed")
    with pytest.raises(UserError, match="unknown cluster"):
        start_cluster("moon", {}, 1, tmp_path)
    with pytest.raises(UserError, match="`workers`"):
        start_cluster("local", {"workers": "many"}, 1, tmp_path)
    with pytest.raises(ToolError) as caught:
        start_cluster("ssh", {"planets": 3}, 1, tmp_path)
    assert caught.value.slug == "no-cluster"


def test_without_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(ToolError) as caught:
        connect("tcp://127.0.0.1:1")
    assert caught.value.slug == "missing-extra" and "[fleet]" in caught.value.hint


def test_a_store_of_another_format_and_one_that_is_none(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    store._open.execute("PRAGMA user_version=99")
    store.close()
    with pytest.raises(UserError, match="has the format 99"):
        Store(tmp_path / "store")
    (tmp_path / "noise").mkdir()
    (tmp_path / "noise" / "results.sqlite").write_bytes(b"no database" * 1000)
    with pytest.raises(ToolError) as caught:
        Store(tmp_path / "noise")
    assert caught.value.slug == "bad-store" and "cannot be written" in caught.value.message
    with pytest.raises(ToolError, match="cannot be read") as caught:
        read_run(tmp_path / "noise")
    assert "use another `store`" not in caught.value.hint


def test_a_run_that_is_not_there(intaglio: Intaglio, tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    job = Job("k", "fit", "m", "", "b")
    run = store.begin("f", [job])
    store.record([job], [Result("k", "ok")], 1)
    said = intaglio("compare", tmp_path / "store", tmp_path / "store")
    assert said.code == 2 and "error[no-run]" in said.err
    store.end(run)
    store.close()
    assert intaglio("compare", tmp_path / "store", tmp_path / "store").code == 0
    said = intaglio("compare", tmp_path / "store", tmp_path / "store@7")
    assert said.code == 2 and "no run 7" in said.err and "runs: 1" in said.err
    said = intaglio("compare", tmp_path / "store", tmp_path / "none")
    assert said.code == 2 and "error[no-store]" in said.err


def test_what_never_had_an_answer_is_not_missed(intaglio: Intaglio, tmp_path: Path) -> None:
    rows = [Row("profile", "m", "", f"board{n}", "failed" if n < 30 else "ok", "", {}) for n in range(60)]
    export_run(tmp_path / "a.json", rows)
    export_run(tmp_path / "b.json", rows[59:])
    said = intaglio("compare", tmp_path / "a.json", tmp_path / "b.json")
    assert said.code == 1 and "m: 59 jobs gone" in said.out and len(said.out.splitlines()) < 5
    assert "board31" in said.err and "board7" not in said.err and "and 9 more jobs" in said.err
    export_run(tmp_path / "a.json", [*rows[:30], rows[59]])
    assert intaglio("compare", tmp_path / "a.json", tmp_path / "b.json").code == 0


def test_a_rule_that_says_nothing_is_broken(intaglio: Intaglio, tmp_path: Path) -> None:
    path = tmp_path / "r.json"
    path.write_text(json.dumps({"format": "intaglio-fleet 1", "results": []}))
    said = intaglio("compare", path, path, "--fail-if", "ram>+2%")
    assert said.code == 1 and "no job in both runs has the figure `ram`" in said.err


@pytest.mark.parametrize(
    "content", ["{", "{}", "[]", '{"format": "intaglio-fleet 2"}', '{"format": "intaglio-fleet 1", "results": [{}]}']
)
def test_a_file_without_results(intaglio: Intaglio, tmp_path: Path, content: str) -> None:
    path = tmp_path / "r.json"
    path.write_text(content)
    said = intaglio("compare", path, path)
    assert said.code == 2 and "error[bad-run]" in said.err and "--export" in said.err and "__init__" not in said.err


WRONG_DATA: dict[str, tuple[Callable[[Array, Array], dict[str, Array]], str]] = {
    "a label too few": (lambda x, y: {"image": x, "labels": y[1:]}, "there are 9 labels for 10 samples"),
    "labels that are floats": (lambda x, y: {"image": x, "labels": y / 2}, "are float64, not integers"),
    "labels from 1": (lambda x, y: {"image": x, "labels": y + 1}, "a label 10, and output `probabilities` has 10 elements"),
    "a label below 0": (lambda x, y: {"image": x, "labels": y - 1}, "there is a label -1"),
    "another shape": (lambda x, y: {"image": x[..., :7], "labels": y}, "has the shape [10, 1, 1, 8, 7]"),
    "another type": (lambda x, y: {"image": x.astype(np.int8), "labels": y}, "is int8, the input is f32"),
    "another name": (lambda x, y: {"picture": x, "labels": y}, "has no array for the input `image`"),
}


@pytest.mark.parametrize("name", WRONG_DATA)
def test_data_of_a_search_are_checked_before_anything_is_built(name: str, intaglio: Intaglio, tmp_path: Path) -> None:
    change, reason = WRONG_DATA[name]
    np.savez(tmp_path / "x.npz", **change(np.zeros((10, 1, 1, 8, 8), np.float32), np.arange(10)))  # type: ignore[arg-type]
    words = ("--board", "nucleo-l4r5zi", "--accuracy", tmp_path / "x.npz", "--store", tmp_path / "s", "--trials", "1")
    said = intaglio("search", DIGITS, *words)
    assert said.code == 2 and reason in said.err and "hint:" in said.err and not (tmp_path / "s").exists()


def test_a_search_that_cannot_be_asked(intaglio: Intaglio, tmp_path: Path) -> None:
    said = intaglio("search", DIGITS, "--board", "nucleo-l4r5zi", "--target", "host")
    assert said.code == 2 and "error[" in said.err
    said = intaglio("search", DIGITS, "--board", "nucleo-l4r5zi", "--least-accuracy", "0.9")
    assert said.code == 2 and "needs `--accuracy DATA`" in said.err
    data = tmp_path / "x.npz"
    np.savez(data, image=np.zeros((2, 1, 8, 8), np.float32))
    said = intaglio("search", DIGITS, "--board", "nucleo-l4r5zi", "--accuracy", data, "--least-accuracy", "0.9")
    assert said.code == 2 and "error[wrong-input]" in said.err and "`labels`" in said.err
