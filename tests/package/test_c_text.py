"""Names from a model never become C."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from intaglio.errors import OurFault
from intaglio.package.c_text import COMMENT_CHARACTERS, comment, identifier, unique_macros
from intaglio.package.project import Place, named_places


@given(st.text(alphabet=st.sampled_from("*/?\\\n\"ab ='%\u202e\0"), max_size=200))
def test_a_comment_cannot_be_left_continued_or_opened_again(text: str) -> None:
    shown = comment(text)
    for forbidden in ("*/", "/*", "??", "\\", "\n", "\0"):
        assert forbidden not in shown
    assert shown.isascii()
    assert len(f"/* {shown} */") <= 2 * COMMENT_CHARACTERS
    assert f"/* {shown} */".count("*/") == 1


def test_a_long_name_is_cut() -> None:
    assert len(comment("x" * 1_000_000)) == COMMENT_CHARACTERS


@pytest.mark.parametrize("name", ["", "1a", "a-b", "int", "class", "a b", "ä", "a;", "*/", "../x", "x" * 1000])
def test_a_name_that_is_not_clean_is_our_fault(name: str) -> None:
    with pytest.raises(OurFault, match="was about to become"):
        identifier(name)


def test_names_that_differ_by_case_get_different_macros() -> None:
    assert unique_macros(["x", "X", "y", "x_2"]) == ["X", "X_2", "Y", "X_2_2"]


def test_only_places_that_a_statement_names_are_defined() -> None:
    x, view = Place("NET_AT_x", 0, ""), Place("NET_AT_x_1", 0, "a view that nobody reads")
    assert named_places([x, view], ["net_relu(arena + NET_AT_x)"]) == (x,)
