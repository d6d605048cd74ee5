"""Operators are found in the modules of `intaglio.ops`; no list names them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import intaglio.ops
from intaglio.ops.base import REGISTRY
from intaglio.ops.binary import Add

FOLDER = Path(intaglio.ops.__file__).parent
PRINT_NAMES = "from intaglio.ops.{module} import {name}; from intaglio.ir.operator import REGISTRY; print(*REGISTRY)"


@pytest.mark.parametrize(("module", "name"), [("base", "Op"), ("binary", "Add"), ("quantised", "QConv")])
def test_importing_one_module_registers_all_operators(module: str, name: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PRINT_NAMES.format(module=module, name=name)], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == [op for op in REGISTRY if REGISTRY[op].__module__.startswith("intaglio.ops")]


def test_every_module_that_defines_an_operator_is_imported() -> None:
    defining = {path.stem for path in FOLDER.glob("*.py") if "NAME: ClassVar[str] = " in path.read_text(encoding="utf-8")}
    assert defining <= {op.__module__.removeprefix("intaglio.ops.") for op in REGISTRY.values()}
    assert {"activation", "binary", "unary", "conv"} <= defining


def test_a_plug_in_may_import_an_operator_from_the_package() -> None:
    assert getattr(intaglio.ops, "Add") is Add  # noqa: B009  the type checker knows only the modules
    with pytest.raises(ImportError, match="NoSuchOperator"):
        exec("from intaglio.ops import NoSuchOperator")
