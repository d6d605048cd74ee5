"""The plug-in of the guide: one file, and it conforms."""

from __future__ import annotations

from pathlib import Path

import pytest

from intaglio.conformance import check_accelerator
from intaglio.targets.plugins import find_accelerator

SOURCE = Path(__file__).parents[2] / "plugins" / "vector_unit" / "vector_unit.py"


@pytest.mark.slow
@pytest.mark.usefixtures("outside")
def test_it_conforms_with_several_operators_in_a_region() -> None:
    results = list(check_accelerator(find_accelerator("vector_unit")))
    assert not [r for r in results if r.problem is not None]
    assert sum(r.check == "C on host" and ", then " in r.case for r in results) > 40


def test_it_is_one_short_file() -> None:
    assert len(SOURCE.read_text().splitlines()) < 100
