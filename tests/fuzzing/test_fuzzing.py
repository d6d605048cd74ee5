"""The fuzzer finds what is planted, and some mutants of every format end as they should."""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from fuzzing import formats, mutate, run
from fuzzing.formats import FORMATS, REGRESSIONS, files_of
from fuzzing.run import Find, tried, turn, warm

QUICK = 12  # mutants of each format


@pytest.fixture(autouse=True)
def alarm() -> Iterator[None]:
    before = signal.signal(signal.SIGALRM, run._too_long)
    yield
    signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize("name", FORMATS)
def test_seeds_are_read_and_mutants_end_in_one_error_or_none(name: str, tmp_path: Path) -> None:
    warm(name)
    form = FORMATS[name]
    for seed in range(QUICK):
        assert tried(form, form.mutant(10**9 + seed), seed, tmp_path) is None
        assert run._clear(tmp_path) == []


@pytest.mark.parametrize("folder", sorted(REGRESSIONS.glob("*")), ids=lambda folder: folder.name)
def test_what_was_found_once_ends_in_one_error_or_none(folder: Path, tmp_path: Path) -> None:
    """Folders are called FORMAT-WHAT."""
    form = FORMATS[folder.name.partition("-")[0]]
    assert tried(form, files_of(folder, form.main), 0, tmp_path) is None


def test_mutants_are_the_same_each_time_and_others_for_each_number() -> None:
    for form in FORMATS.values():
        assert form.mutant(5) == form.mutant(5)
        assert any(form.mutant(5) != form.mutant(number) for number in (6, 7, 8))


def test_a_message_that_is_taken_apart_is_put_together_again() -> None:
    for seed in FORMATS["onnx"].seeds():
        assert mutate.message(mutate.fields_of(seed.read_bytes())) == seed.read_bytes()


def planted(monkeypatch: pytest.MonkeyPatch, what: object) -> Find | None:
    def reader(path: Path, rng: random.Random) -> None:
        if callable(what):
            what(path)

    form = formats.Format("npz", "in.npz", {}, reader)
    monkeypatch.setitem(FORMATS, "npz", form)
    found = turn("npz", 3, 1)[1]
    return found[0] if found else None


def _raise(path: Path) -> None:
    raise KeyError("a bug")


def _die(path: Path) -> None:
    signal.signal(signal.SIGSEGV, signal.SIG_DFL)  # libraries of other tests may have a handler
    signal.raise_signal(signal.SIGSEGV)


def _grow(path: Path) -> None:
    bytearray(3 << 30)


def _escape(path: Path) -> None:
    (path.parents[1] / "escaped").write_text("")


@pytest.mark.parametrize(
    ("what", "told"),
    [(_raise, "KeyError in"), (_die, "the process ended with -11"), (_grow, "MemoryError in"), (_escape, "wrote escaped")],
)
def test_planted_faults_are_found(monkeypatch: pytest.MonkeyPatch, what: object, told: str) -> None:
    found = planted(monkeypatch, what)
    assert found is not None and found.what.startswith(told)


def test_a_mutant_that_takes_long_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "SECONDS", 1)
    found = planted(monkeypatch, lambda path: time.sleep(5))
    assert found is not None and found.what.startswith("over 1 s in")
    assert planted(monkeypatch, lambda path: None) is None
