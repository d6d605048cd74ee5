"""Kernels that start-up code copies to RAM (`--code ram`): the same results, without waits for code."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from intaglio.run.emulator.image import read_image
from support.commands import DIGITS, Intaglio
from support.firmware_running import integer_model

BOARDS = [*(pytest.param(name, marks=pytest.mark.slow) for name in ("nucleo-g0b1re", "esp32-c6")), "nucleo-l4r5zi"]


@pytest.mark.parametrize("board", BOARDS)
def test_kernels_run_from_ram(board: str, intaglio: Intaglio, tmp_path: Path) -> None:
    pytest.importorskip("unicorn")
    found = {}
    for code in ("flash", "ram"):
        said = intaglio("compile", DIGITS, "--board", board, "--code", code, "-o", tmp_path / code)
        assert said.code == 0, said.err
        assert intaglio("validate", tmp_path / code).code == 0
        found[code] = json.loads(intaglio("profile", tmp_path / code, "--json").out)["total"]
    flash, ram = found["flash"], found["ram"]
    assert flash["code_ram_bytes"] is None and ram["code_ram_bytes"] > 500
    parts = ("arena_bytes", "io_bytes", "static_bytes", "stack_bytes", "code_ram_bytes")
    assert ram["ram_bytes"] == sum(ram[part] for part in parts)  # the stack has a bound across the way to RAM, too
    assert 0 <= ram["flash_bytes"] - flash["flash_bytes"] < 300  # the way there
    image = read_image(tmp_path / "ram" / "bin" / "digits.elf", ())
    named = re.findall(r"(\w+)\(", (tmp_path / "ram" / "src" / "digits_kernels.h").read_text())
    kernels = [f for f in image.functions if f.name in named]
    sram = {"nucleo-g0b1re": 0x20000000, "nucleo-l4r5zi": 0x20000000, "esp32-c6": 0x40800000}[board]
    assert kernels and all(sram <= f.address < sram + (1 << 20) for f in kernels)


def test_waits_for_code_are_gone_and_told(intaglio: Intaglio, tmp_path: Path) -> None:
    pytest.importorskip("unicorn")
    model, totals, texts = integer_model(tmp_path), {}, {}
    for code in ("flash", "ram"):
        assert intaglio("compile", model, "--board", "nucleo-g0b1re", "--code", code, "-o", tmp_path / code).code == 0
        totals[code] = json.loads(intaglio("profile", tmp_path / code, "--json").out)["total"]
        texts[code] = " ".join(intaglio("profile", tmp_path / code).out.split())
    waits = {code: next(s["cycles"] for s in total["stalls"] if s["cause"] == "branches") for code, total in totals.items()}
    assert waits["ram"] < waits["flash"] / 2
    assert totals["ram"]["cycles"] < totals["flash"]["cycles"]
    assert "waits for code: kernels in RAM (`--code ram`)" in texts["flash"] and "--code ram" not in texts["ram"]


@pytest.mark.parametrize(
    ("words", "message", "hint"),
    [
        (("--board", "esp32-c3", "--code", "ram"), "the RAM `sram` of `esp32-c3` does not execute code", "omit `--code ram`"),
        (("--target", "generic", "--code", "ram"), "`--code ram` is for boards, and `generic` is none", "omit `--code`"),
        (("--board", "nucleo-g0b1re", "--code", "rom"), "unknown value `rom` of `--code`", "`--code flash` or `--code ram`"),
    ],
)
def test_where_it_is_refused(words: tuple[str, ...], message: str, hint: str, intaglio: Intaglio, tmp_path: Path) -> None:
    said = intaglio("compile", DIGITS, *words, "-o", tmp_path / "out")
    assert said.code == 2 and message in said.err and hint in said.err
    assert not (tmp_path / "out").exists()
