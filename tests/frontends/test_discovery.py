"""Rows of front ends are found in their modules, and no two of them claim one name."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from intaglio.frontends.discovery import add_rows, import_rows


def test_every_module_of_the_package_is_imported_in_the_order_of_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "rows_of_a_test"
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    for name in ("reduction", "elementwise"):
        (folder / f"{name}.py").write_text(f"print('{name}')")
    monkeypatch.syspath_prepend(str(tmp_path))
    import_rows("rows_of_a_test")
    assert capsys.readouterr().out.split() == ["elementwise", "reduction"]
    for name in [name for name in sys.modules if name.startswith("rows_of_a_test")]:
        monkeypatch.delitem(sys.modules, name)


def test_two_rows_for_one_name_are_an_error() -> None:
    table: dict[str, int] = {}
    assert add_rows(table, ["Relu", "Relu6"], 1) == 1
    with pytest.raises(AssertionError, match="two rows for Relu6"):
        add_rows(table, ["Relu6"], 2)
    assert table == {"Relu": 1, "Relu6": 1}
