"""The line of stages: read in order, stopped after any, tried again with a smaller arena where RAM is short."""

from __future__ import annotations

from pathlib import Path

import pytest

from intaglio import pipeline
from intaglio.fitting.budget import RESERVE_BYTES
from intaglio.fitting.limits import ShortOfRam
from intaglio.options.request import STAGES, Request
from intaglio.pipeline import LINE, MOST_ATTEMPTS, compile_request
from intaglio.stages.watch import Watch
from intaglio.stages.work import Work
from support.commands import DIGITS, Intaglio

REQUEST = Request(Path("m.onnx"), Path("out"))


def test_the_line_has_the_stages_in_order() -> None:
    parts = [stage.part for stage in LINE[:-1]]
    assert parts == sorted(parts, key=STAGES.index)
    assert tuple(dict.fromkeys(parts)) == STAGES
    assert LINE[-1].name == "finish"


@pytest.mark.parametrize("stage", ["import", "optimise", "kernels", "memory"])
def test_a_file_that_is_past_the_last_stage_stays_as_it_is(stage: str, intaglio: Intaglio, tmp_path: Path) -> None:
    words = ["--target", "generic", "--stop-after", stage]
    assert intaglio("compile", DIGITS, "-o", tmp_path / "a.ig", *words).code == 0
    assert intaglio("compile", tmp_path / "a.ig", "-o", tmp_path / "b.ig", *words).code == 0
    assert (tmp_path / "a.ig").read_text() == (tmp_path / "b.ig").read_text()


def short(missing: int, *, can_shrink: bool) -> ShortOfRam:
    error = ShortOfRam("does-not-fit", "RAM is short")
    error.missing_bytes, error.can_shrink = missing, can_shrink
    return error


def attempts(monkeypatch: pytest.MonkeyPatch, *answers: ShortOfRam | Path) -> list[int]:
    """The reserve of each attempt. The stages before are done once, here not at all."""
    tried: list[int] = []

    def attempt(work: Work) -> Work:
        tried.append(work.reserve)
        answer = answers[len(tried) - 1]
        if isinstance(answer, ShortOfRam):
            raise answer
        monkeypatch.setattr(pipeline, "write_stage", lambda _: answer)
        return work

    monkeypatch.setattr(pipeline, "go", lambda work, _: work)
    monkeypatch.setattr(pipeline, "_complete", attempt)
    return tried


def test_a_retry_reserves_what_was_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    tried = attempts(monkeypatch, short(100, can_shrink=True), short(24, can_shrink=True), Path("made"))
    assert compile_request(REQUEST, Watch()) == Path("made")
    assert tried == [RESERVE_BYTES, RESERVE_BYTES + 100, RESERVE_BYTES + 124]


def test_an_arena_that_cannot_shrink_is_not_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    tried = attempts(monkeypatch, short(100, can_shrink=False))
    with pytest.raises(ShortOfRam):
        compile_request(REQUEST, Watch())
    assert tried == [RESERVE_BYTES]


def test_the_search_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    tried = attempts(monkeypatch, *[short(8, can_shrink=True)] * MOST_ATTEMPTS)
    with pytest.raises(ShortOfRam):
        compile_request(REQUEST, Watch())
    assert len(tried) == MOST_ATTEMPTS
