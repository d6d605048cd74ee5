"""Weights in several flashes: what is read least per byte goes to the slower one."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from elftools.elf.elffile import ELFFile
from hypothesis import given, settings
from hypothesis import strategies as st

from intaglio import compile
from intaglio.fitting.weights import plan_weights
from intaglio.ir.types import DType
from intaglio.kernels.program import Constant, Program
from intaglio.memory.regions import Room
from intaglio.memory.weights import spread_weights
from intaglio.targets.deployment import deployment_of
from intaglio.targets.target import find_target
from support.commands import DIGITS, Intaglio
from support.firmware_running import firmware, package_selftest
from support.ir_text import graph_of

QSPI = 0x90000000


def memories(folder: Path, main: int, qspi: int = 1 << 20, *, more: str = "") -> Path:
    path = folder / "memories.toml"
    path.write_text(
        f'[[memory]]\nname = "flash"\nkind = "flash"\naddress = 0x08000000\nbytes = {main}\n{more}\n'
        f'[[memory]]\nname = "qspi"\nkind = "flash"\naddress = {QSPI:#x}\nbytes = {qspi}\nbytes_per_cycle = 0.5\n'
        '[[memory]]\nname = "ram"\nkind = "ram"\naddress = 0x20000000\nbytes = 65536\n'
    )
    return path


@pytest.mark.parametrize(("target", "main"), [("cortex-m4f", 22 << 10), ("rv32imc", 33 << 10)])  # floats in software take more code
def test_the_dense_layer_goes_to_the_slow_flash(target: str, main: int, tmp_path: Path) -> None:
    made = firmware(DIGITS, tmp_path / "out", target=target, memory=memories(tmp_path, main))
    text = (made.folder / "src" / "digits_weights.h").read_text()
    assert re.search(r"W_dense_weight_packed \(\(size_t\)0\) /\* f32\[640\], .*, in qspi \*/", text)
    assert re.search(r"W_conv2_weight_packed \(\(size_t\)320\) /\* f32\[1152\]", text)
    with open(made.folder / "bin" / "digits.elf", "rb") as file:
        placed = {s.name: (s["sh_addr"], s["sh_size"]) for s in ELFFile(file).iter_sections()}
    assert placed[".weights_qspi"] == (QSPI, 2560) and dict(made.manifest.memory.weights_apart) == {"qspi": 2560}
    info = made.manifest.firmware
    assert info is not None and info.weight_bytes == made.manifest.memory.weight_bytes == 7592
    assert made.validate().ok and package_selftest(made)[0] == 0


def test_where_all_fits_beside_the_code_nothing_moves(tmp_path: Path) -> None:
    made = firmware(DIGITS, tmp_path / "out", target="cortex-m4f", memory=memories(tmp_path, 256 << 10))
    assert made.manifest.memory.weights_apart == () and not list((made.folder / "src").glob("*qspi*"))


@pytest.mark.slow
def test_a_flash_for_code_alone(tmp_path: Path) -> None:
    path = memories(tmp_path, 256 << 10, more='holds = ["code"]')
    made = firmware(DIGITS, tmp_path / "out", target="cortex-m4f", memory=path)
    assert dict(made.manifest.memory.weights_apart) == {"qspi": 7592} and made.validate().ok
    hosted = compile(DIGITS, output=tmp_path / "host", memory=path)
    assert [name for name, _ in hosted.manifest.memory.weights_apart] == ["qspi"] and hosted.validate().ok


@pytest.mark.slow
@pytest.mark.usefixtures("one_board")
def test_what_is_too_much_for_both(intaglio: Intaglio, tmp_path: Path) -> None:
    path = memories(tmp_path, 4096, 1024)
    for words in (("compile", DIGITS, "-o", tmp_path / "out"), ("fit", DIGITS, "--quick")):
        said = intaglio(*words, "--target", "cortex-m4f", "--memory", path)
        assert said.code == 1 and "of flash, the memory `flash` has 4,096: " in said.err and "hint: " in said.err


@pytest.mark.usefixtures("one_board")
def test_fit_tells_it(intaglio: Intaglio, tmp_path: Path) -> None:
    said = intaglio("fit", DIGITS, "--target", "cortex-m4f", "--memory", memories(tmp_path, 20 << 10), "--quick")
    assert said.code == 0 and "bytes   of weights in qspi" in said.out


def test_such_packages_are_not_combined(intaglio: Intaglio, tmp_path: Path) -> None:
    words = {"target": "cortex-m4f", "memory": memories(tmp_path, 20 << 10), "arena": "caller"}
    for name in ("first", "second"):
        firmware(DIGITS, tmp_path / name, name=name, **words)
    said = intaglio("link", tmp_path / "first", tmp_path / "second", "-o", tmp_path / "both")
    assert said.code == 2 and "has its weights in several memories" in said.err and "hint: " in said.err


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(1, 900), max_size=12), st.integers(0, 3000), st.lists(st.integers(0, 2000), max_size=3))
def test_no_flash_gets_more_than_it_has(sizes: list[int], main: int, others: list[int]) -> None:
    constants = [Constant(f"c{n}", np.zeros(size, np.int8), DType.I8) for n, size in enumerate(sizes)]
    program = Program(graph_of("input x: f32[1]\ny: f32[1] = exp(x)\noutput y"), [], [], constants, "scalar")
    rooms = [Room(f"m{n}", size) for n, size in enumerate(others)]
    spread_weights(program, main, rooms)
    weights = plan_weights(constants, deployment_of(find_target("cortex-m4f")))
    limits = {room.memory: room.bytes for room in rooms}
    assert all(block.size_bytes <= limits[memory] for memory, block in weights.apart)
    left = [c for c in constants if not c.memory]
    if weights.size_bytes > main:  # then nothing that is left fits anywhere else
        free = {m: limits[m] - sum(-(-c.data.nbytes // 8) * 8 for c in constants if c.memory == m) for m in limits}
        assert all(-(-c.data.nbytes // 8) * 8 > max(free.values(), default=0) for c in left)
