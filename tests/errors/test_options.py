"""Options that are wrong, or that cannot be combined."""

from __future__ import annotations

from pathlib import Path

import pytest

import intaglio
from intaglio.errors import UserError
from support.commands import DIGITS


@pytest.mark.parametrize(
    ("word", "near"),
    [("quantise", "quantize"), ("taget", "target"), ("calibration", "calibrate"), ("keep_floats", "keep_float"), ("rams", "ram")],
)
def test_an_unknown_keyword_names_the_nearest_one(tmp_path: Path, word: str, near: str) -> None:
    with pytest.raises(UserError) as caught:
        intaglio.compile(DIGITS, output=tmp_path / "p", **{word: "int8"})  # type: ignore[arg-type]
    assert caught.value.slug == "bad-option"
    assert f"no option `{word}`" in caught.value.message
    assert f"did you mean `{near}`?" in caught.value.hint
    assert not any(tmp_path.iterdir())


def test_a_keyword_like_no_other_lists_them_all(tmp_path: Path) -> None:
    with pytest.raises(UserError) as caught:
        intaglio.compile(DIGITS, output=tmp_path / "p", zzz=1)  # type: ignore[call-arg]
    assert "`target`" in caught.value.hint and "`integer_io`" in caught.value.hint


@pytest.mark.parametrize("words", [{"integer_io": True}, {"calibrate": {}}, {"ranges": "mse"}])
def test_settings_of_quantisation_need_a_quantisation(tmp_path: Path, words: dict[str, object]) -> None:
    with pytest.raises(UserError) as caught:
        intaglio.compile(DIGITS, output=tmp_path / "p", **words)  # type: ignore[arg-type]
    assert "calibration data and its options need `--quantize`" in caught.value.message
