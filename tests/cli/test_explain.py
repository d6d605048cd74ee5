"""`compile --explain` says which kernels were considered for a layer, which one is used, and why the others are not."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from support.commands import DIGITS, Intaglio


@pytest.fixture
def optimised(intaglio: Intaglio, tmp_path: Path) -> Path:
    assert intaglio("compile", DIGITS, "--target", "x86-64-v3", "--stop-after", "kernels", "-o", tmp_path / "digits.ig").code == 0
    return tmp_path / "digits.ig"


def test_each_layer_has_its_kernel_and_reasons(intaglio: Intaglio, tmp_path: Path) -> None:
    said = intaglio("compile", DIGITS, "--target", "generic", "--stop-after", "kernels", "-o", tmp_path / "d.ig", "--explain")
    assert said.code == 0
    lines = said.out.splitlines()
    start = lines.index("kernel of conv:")
    assert "conv_nhwc(tile=" in lines[start + 1]
    assert "    not depthwise_nhwc: it is not depthwise" in lines[start:]
    told = " ".join(line.strip() for line in lines[start:])
    assert "used: conv_nhwc, more special kernels do not apply: " in told and "not needed: conv_general" in told
    assert "first that applies" not in told
    assert all(len(line) <= 80 for line in lines if not line.startswith("wrote "))  # a path is as long as it is


def test_the_reasons_as_json(intaglio: Intaglio, tmp_path: Path) -> None:
    folder = tmp_path / "p"
    said = intaglio("compile", DIGITS, "--target", "generic", "--stop-after", "package", "-o", folder, "--explain", "--json")
    layers = said.json["kernels"]
    pool = next(layer for layer in layers if layer["op"] == "max_pool")
    assert pool["using"].startswith("max_pool_nhwc(")
    reasons = {row["kernel"]: row["reason"] for row in pool["considered"]}
    assert reasons["max_pool_bytes"] == "the target has no integer vectors"
    assert reasons["max_pool_nhwc"] == "used"
    assert reasons["pool_general"] == "not needed"


def test_a_tile_has_no_rows_and_columns_that_the_layer_lacks(optimised: Path) -> None:
    text = optimised.read_text()  # the image is 8 pixels wide and has 8 channels; then 4 and 16; then a row of 10
    assert re.findall(r"tile=(\d+x\d+)", text) == ["8x1", "4x2", "1x2"]


def test_an_edited_file_may_ask_for_another_kernel(intaglio: Intaglio, optimised: Path, tmp_path: Path) -> None:
    text = optimised.read_text()
    assert text.count("using max_pool_nhwc(pixels=4)") >= 1
    optimised.write_text(text.replace("using max_pool_nhwc(pixels=4)", "using pool_general", 1))
    said = intaglio("compile", optimised, "--stop-after", "memory", "-o", tmp_path / "again.ig", "--explain")
    assert said.code == 0
    assert "not max_pool_nhwc: the IR file asks for `pool_general`" in said.out
    assert "using pool_general" in (tmp_path / "again.ig").read_text()


def test_a_kernel_that_does_not_apply_is_refused_with_its_reason(intaglio: Intaglio, optimised: Path, tmp_path: Path) -> None:
    text = optimised.read_text()
    optimised.write_text(text.replace("using conv_nhwc(tile=8x1)", "using depthwise_nhwc", 1))
    said = intaglio("compile", optimised, "--stop-after", "memory", "-o", tmp_path / "again.ig")
    assert said.code == 2
    assert "has no kernel `depthwise_nhwc`" in said.err
    assert "it is not depthwise" in said.err


def test_a_name_without_parameters_takes_those_of_the_compiler(intaglio: Intaglio, optimised: Path, tmp_path: Path) -> None:
    text = optimised.read_text()
    optimised.write_text(text.replace("using conv_nhwc(tile=8x1)", "using conv_nhwc", 1))
    assert intaglio("compile", optimised, "--stop-after", "memory", "-o", tmp_path / "again.ig").code == 0
    assert (tmp_path / "again.ig").read_text().count("using conv_nhwc(tile=") == text.count("using conv_nhwc(tile=")
