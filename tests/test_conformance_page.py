"""The page of ONNX's backend tests says what sizes, loops and sequences add, by its own rows."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]


def conformance() -> Any:
    spec = importlib.util.spec_from_file_location("conformance_tool", ROOT / "tools" / "conformance.py")
    assert spec is not None and spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = made
    spec.loader.exec_module(made)
    return made


def test_at_least_forty_tests_of_sizes_and_loops_pass_that_were_refused() -> None:
    text = (ROOT / "docs" / "reference" / "onnx-conformance.md").read_text()
    passed = {m[1]: int(m[2]) + int(m[3]) for m in re.finditer(r"\| (\S+) \| (\d+) \| (\d+) \| \d+ \| \d+ \|", text)}
    section = "\n".join(conformance().moving(passed))
    assert section in text
    found = re.search(r"were static, (\d+) pass", section)
    assert found is not None and int(found[1]) >= 40
