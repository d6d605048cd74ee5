"""Two threads against one: what applications print, and the table. Nothing is timed here."""

from __future__ import annotations

import pytest

from threads import Scaling, median_ms, section


def test_the_median_is_read_from_what_an_application_prints() -> None:
    assert median_ms("15 runs: median 7300.5 us, least 7200.0 us\n") == 7.3005
    with pytest.raises(ValueError, match="no median in `error`"):
        median_ms("error\n")


def test_a_model_that_is_not_compiled_is_a_row_too() -> None:
    lines = section([Scaling("net", (9.0, 5.0)), Scaling("other", (0.0, 0.0), "no such option")], 2)
    assert lines[-2:] == ["| net | 9.0 | 5.0 | 1.80 |", "| other | no such option | - | - |"]
