"""`intaglio fit`: one screen, one object, one picture."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from intaglio.package.manifest import read_manifest
from intaglio.targets.board import all_boards
from support.commands import DIGITS, Intaglio

BOARD = ("--board", "nucleo-l4r5zi")


@pytest.fixture(autouse=True)
def few_boards(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two cores are enough here: each is a compilation."""
    shown = {name: all_boards()[name] for name in ("nucleo-l4r5zi", "stm32f4-discovery", "rp2040")}
    monkeypatch.setattr("intaglio.cli.fitting.all_boards", lambda: shown)


def test_json_is_as_the_contract_says(intaglio: Intaglio) -> None:
    said = intaglio("fit", DIGITS, *BOARD, "--json")
    told = said.json
    assert said.code == 0
    assert told["fits"] is told["optimal"] is True
    assert told["lower_bound_bytes"] == told["ram_bytes"] == told["parts"]["arena_bytes"] + told["parts"]["stack_bytes_estimate"]
    assert told["flash_bytes"] == told["parts"]["weight_bytes"] + told["parts"]["code_bytes_estimate"]
    assert isinstance(told["peak_layer"], str)
    assert [set(rung) for rung in told["ladder"]] == [{"rung", "ram_bytes", "flash_bytes", "cost_ratio"}] * len(told["ladder"])
    rungs = {rung["rung"]: rung for rung in told["ladder"]}
    assert rungs["in-place"]["ram_bytes"] == told["ram_bytes"], "without a limit nothing is used that costs time"
    assert rungs["stripes"]["ram_bytes"] < told["ram_bytes"] and rungs["stripes"]["cost_ratio"] > 1
    assert told["smallest"]["ram_bytes"] == min(rung["ram_bytes"] for name, rung in rungs.items() if "int8" not in name)
    assert [b["name"] for b in told["boards"]] == ["nucleo-l4r5zi", "stm32f4-discovery", "rp2040"]
    assert all(set(b) == {"name", "fits", "time_ms"} and b["fits"] and b["time_ms"] > 0 for b in told["boards"])


def test_the_peak_is_the_layer_with_most_alive(intaglio: Intaglio) -> None:
    told = intaglio("fit", DIGITS, *BOARD, "--json").json
    assert told["peak_layer"].startswith("pool1")
    assert [t["bytes"] for t in told["peak_tensors"]] == [2048, 512]
    assert sum(t["bytes"] for t in told["peak_tensors"]) == told["parts"]["arena_bytes"]


def test_rungs_never_cost_memory(intaglio: Intaglio) -> None:
    sizes = [rung["ram_bytes"] for rung in intaglio("fit", DIGITS, "--json").json["ladder"]]
    assert sizes == sorted(sizes, reverse=True)


def test_what_does_not_fit_says_the_bound_the_layer_and_what_would_help(intaglio: Intaglio) -> None:
    assert intaglio("fit", DIGITS, *BOARD, "--ram", "2K").code == 0, "in stripes"
    said = intaglio("fit", DIGITS, *BOARD, "--ram", "1K")
    assert said.code == 1
    assert "error[does-not-fit]" in said.err
    assert "hint: the largest part of RAM is `arena`. Most of the arena is live in layer `" in said.err
    assert "`--quantize int8`" in said.err
    assert re.search(r"the lower bound of the arena is [\d,]+ bytes, set by layer `", said.err)
    assert intaglio("fit", DIGITS, *BOARD, "--flash", "4K", "--json").json["fits"] is False


def test_the_screen_has_needs_peak_ladder_and_boards(intaglio: Intaglio) -> None:
    said = intaglio("fit", DIGITS, *BOARD)
    assert "arena 2,560 bytes, proven optimal; inputs and outputs inside; stack ~512" in said.out
    for word in ("peak", "weights", "in-place", "best offsets", "stm32f4-discovery", "yes"):
        assert word in said.out
    assert len(said.out.splitlines()) < 40


def test_without_a_board_inputs_and_outputs_are_the_callers(intaglio: Intaglio) -> None:
    told = intaglio("fit", DIGITS, "--json").json
    assert told["parts"]["io_bytes"] == 256 + 40


def test_the_picture_is_well_formed_and_has_every_buffer(intaglio: Intaglio, tmp_path: Path) -> None:
    assert intaglio("fit", DIGITS, *BOARD, "--plot", tmp_path / "p.svg").code == 0
    root = ElementTree.parse(tmp_path / "p.svg").getroot()
    text = "".join(root.itertext())
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    assert "peak: 2,560 bytes alive in layer 1" in text
    assert text.count(" bytes at ") == 7
    assert "http" not in (tmp_path / "p.svg").read_text().replace("http://www.w3.org/2000/svg", "")


def test_a_wrong_model_or_place_for_the_picture_is_told(intaglio: Intaglio, tmp_path: Path) -> None:
    assert intaglio("fit", tmp_path / "none.onnx").code == 2
    (tmp_path / "file").write_text("")
    said = intaglio("fit", DIGITS, "--plot", tmp_path / "file" / "p.svg")
    assert said.code == 2
    assert "error[cannot-write]" in said.err


def test_a_package_says_whether_its_arena_is_proven_optimal(intaglio: Intaglio, tmp_path: Path) -> None:
    words = ("compile", DIGITS, "-o", tmp_path / "p", "--stop-after", "package", "--force")
    assert intaglio(*words, "--json").json["optimal"] is True
    assert read_manifest(tmp_path / "p").memory.optimal is True
    (tmp_path / "pin.csv").write_text("buffer,offset\nrelu1_1,2048\n")
    said = intaglio(*words, "--import-plan", tmp_path / "pin.csv")
    assert re.search(r"arena [\d,]+ bytes, at most [\d.]+ % above the lower bound", said.out)
    assert read_manifest(tmp_path / "p").memory.optimal is False
