"""Options that are wrong, or that cannot be combined."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import intaglio
from intaglio.errors import UserError
from intaglio.options.reading import read_keyword
from intaglio.options.request import OPTIONS
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


@pytest.mark.parametrize("word", ["explain", "stop_after"])
def test_an_option_of_the_command_line_alone_is_not_taken_for_another(tmp_path: Path, word: str) -> None:
    with pytest.raises(UserError) as caught:
        intaglio.compile(DIGITS, output=tmp_path / "p", **{word: True})  # type: ignore[arg-type]
    assert caught.value.hint == f"`--{word.replace('_', '-')}` is an option of the command line alone"


def test_a_name_that_is_not_near_is_not_suggested(tmp_path: Path) -> None:
    with pytest.raises(UserError) as caught:
        intaglio.compile(DIGITS, output=tmp_path / "p", explained=True)  # type: ignore[call-arg]
    assert "did you mean" not in caught.value.hint


SHAPES = 'mapping of str to tuple of int from 0, or of ranges such as `((1, 9), 64)` or `("1..9", 64)`'
WRONG: list[tuple[str, object, str]] = [
    ("ram", -5, "int from 1, in bytes, or str such as `64K`"),
    ("ram", "64Q", "int from 1, in bytes, or str such as `64K`"),
    ("ram", True, "int from 1, in bytes, or str such as `64K`"),
    ("flash", 1.5, "int from 1, in bytes, or str such as `64K`"),
    ("weights_address", 1 << 32, "int of 32 bits, or str such as `0x08080000`"),
    ("target", 3, "str"),
    ("quantize", True, "str"),
    ("labels", [1.5], "path, or sequence of int"),
    ("labels", 7, "path, or sequence of int"),
    ("dims", {"batch": "5..x"}, "mapping of str to int from 0, or to a range such as `1..512`"),
    ("dims", [1], "mapping of str to int from 0, or to a range such as `1..512`"),
    ("shapes", {"image": 3}, SHAPES),
    ("shapes", {"image": (1, -1)}, SHAPES),
    ("states", {1: "h"}, "mapping of str to str"),
    ("feed_rows", "yes", "bool"),
    ("archive", 1, "bool"),
    ("stream", "1", "int"),
    ("max_error", "small", "float"),
    ("cflags", [1], "sequence of str"),
    ("disabled", 7, "set of str"),
    ("device", 0, "str, or sequence of str"),
    ("template", 4, "path"),
    ("calibrate", 5, "path, or mapping of str to array"),
    ("calibrate", {"x": "a.npy"}, "path, or mapping of str to array"),
    ("output", 3, "path"),
]


@pytest.mark.parametrize(("keyword", "value", "expected"), WRONG, ids=lambda part: str(part)[:20])
def test_a_value_of_the_wrong_type_is_refused(tmp_path: Path, keyword: str, value: object, expected: str) -> None:
    with pytest.raises(UserError) as caught:
        intaglio.compile(DIGITS, **{"output": tmp_path / "p", keyword: value})  # type: ignore[arg-type]
    assert caught.value.slug == "bad-option"
    assert caught.value.message == f"`{keyword}={value!r}` is not a value of the option `{keyword}`"
    assert caught.value.hint == f"expected: {expected}"
    assert not any(tmp_path.iterdir())


def test_an_empty_range_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=re.escape("`dims={'batch': (5, 2)}`: the range `5..2` is empty")) as caught:
        intaglio.compile(DIGITS, output=tmp_path / "p", dims={"batch": (5, 2)})
    assert caught.value.hint == "write `2..5`" and not any(tmp_path.iterdir())


def test_every_kind_refuses_what_it_is_not() -> None:
    for option in (o for o in OPTIONS if o.keyword):
        with pytest.raises(UserError, match=f"is not a value of the option `{option.keyword}`"):
            read_keyword(option, object())


@pytest.mark.parametrize("words", [{"integer_io": True}, {"calibrate": {}}, {"ranges": "mse"}])
def test_settings_of_quantisation_need_a_quantisation(tmp_path: Path, words: dict[str, object]) -> None:
    with pytest.raises(UserError) as caught:
        intaglio.compile(DIGITS, output=tmp_path / "p", **words)  # type: ignore[arg-type]
    assert "calibration data and its options need `quantize`" in caught.value.message


@pytest.mark.parametrize("cores", [0, -2, 3])
def test_a_number_of_cores_that_is_none(tmp_path: Path, cores: int) -> None:
    with pytest.raises(UserError) as caught:
        intaglio.compile(DIGITS, output=tmp_path / "p", board="rp2040", cores=cores)
    assert caught.value.message == f"`cores={cores}` is not a number of cores"
    assert caught.value.hint.startswith("use 1 or 2")
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize("threads", [0, -2, 65])
def test_a_number_of_threads_that_is_none(tmp_path: Path, threads: int) -> None:
    with pytest.raises(UserError) as caught:
        intaglio.compile(DIGITS, output=tmp_path / "p", threads=threads)
    assert caught.value.message == f"`threads={threads}` is not a number of threads"
    assert caught.value.hint.startswith("use 1 to 64")
    assert not any(tmp_path.iterdir())
