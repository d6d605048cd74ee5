"""Boards of ours and of the user's."""

from __future__ import annotations

from importlib import resources
from itertools import pairwise
from pathlib import Path

import pytest
from elftools.elf.elffile import ELFFile

from intaglio.package.manifest import read_manifest
from intaglio.targets.board import all_boards, read_board
from intaglio.targets.bus import Timing
from intaglio.targets.target import all_targets
from intaglio.targets.uart import Uart
from support.commands import Intaglio
from support.firmware_running import firmware, integer_model

MINE = """
description = "A board of mine"
core = "cortex-m4f"
clock_mhz = 80
wait_states = 4

[[memory]]
name = "flash"
kind = "flash"
address = 0x08000000
bytes = 131072

[[memory]]
name = "sram"
kind = "ram"
address = 0x20000000
bytes = 32768

[[memory]]
name = "qspi"
kind = "flash"
address = 0x90000000
bytes = 8388608
"""


def test_boards_are_listed(intaglio: Intaglio) -> None:
    assert "nucleo-l4r5zi" in intaglio("boards").out
    rows = intaglio("boards", "--json").json["boards"]
    wanted = (
        "nucleo-l4r5zi nucleo-f746zg nucleo-h743zi nucleo-u575zi nrf52840-dk nrf5340-dk rp2040 rp2350 stm32f4-discovery "
        "arduino-nano-33-ble esp32-c3 mps2-an386 mps3-an547"
    )
    assert {row["name"] for row in rows} >= set(wanted.split())
    assert all(row["ram_bytes"] > 0 and row["flash_bytes"] > 0 and row["source"] for row in rows)


def test_there_are_boards_of_every_family() -> None:
    families = ["f0", "f1", "f2", "f3", "f4", "f7", "g0", "g4", "h5", "h7", "l0", "l1", "l4", "l5", "u5", "n6", "wb", "wl"]
    for family in families:
        assert any(name.startswith((f"nucleo-{family}", f"stm32{family}")) for name in all_boards()), family
    assert len(all_boards()) >= 60
    assert {board.core for board in all_boards().values()} == {t.name for t in all_targets().values() if t.bare}


def test_a_board_whose_core_is_not_supported_is_refused_with_what_works(intaglio: Intaglio, tmp_path: Path) -> None:
    model = integer_model(tmp_path)
    said = intaglio("compile", model, "--board", "esp32-s3", "-o", tmp_path / "p")
    assert said.code == 2 and "error[unknown-board]: `esp32-s3` has a core that is not supported: Xtensa LX7" in said.err
    assert "`--target generic --stop-after package`" in said.err
    assert intaglio("compile", model, "--target", "generic", "--stop-after", "package", "-o", tmp_path / "p").code == 0


@pytest.mark.parametrize("name", all_boards())
def test_a_board_s_file_is_whole_and_says_where_it_is_from(name: str) -> None:
    board = read_board(Path(str(resources.files("intaglio.targets").joinpath("boards", f"{name}.toml"))))
    assert board == all_boards()[name]
    assert len(board.source.split()) >= 2, "the name of a document"
    assert 16 <= board.clock_mhz <= 1000 and 0 <= board.wait_states <= 15 and isinstance(board.wait_states, int)
    spans = sorted((m.address, m.end) for m in board.memories)
    assert all(a[1] <= b[0] for a, b in pairwise(spans))
    for memory in board.memories:
        assert memory.bytes % 256 == 0 and memory.address % 256 == 0
        assert (4 << 10) <= memory.bytes <= (128 << 20)
        inside = (0x20000000, 0x40000000) if memory.kind == "ram" and memory.name in ("sram", "dtcm") else (0, 1 << 32)
        assert inside[0] <= memory.address < inside[1] or board.core.startswith("rv32") or memory.address == 0x10000000
    assert all(32 <= ord(c) < 127 for c in board.description + board.source + board.timing.source)
    assert all(cache.source for cache in board.caches) and (board.timing.source or board.timing == Timing())


def test_a_board_of_the_user_s_with_weights_in_its_second_flash(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text(MINE + CACHE + TIMING + '[uart]\nkind = "stm32f4"\naddress = 0x40004400\n')
    model = integer_model(tmp_path)
    made = firmware(model, tmp_path / "out", board=str(tmp_path / "mine.toml"), name="net", weights_address=0x90000000)
    info = made.manifest.firmware
    assert info is not None and (info.board, info.weights_address) == ("mine", 0x90000000)
    assert made.manifest.options["board"] == "mine.toml" and str(tmp_path) not in (made.folder / "manifest.json").read_text()
    assert read_manifest(made.folder) == made.manifest and info.own_board is not None
    assert info.own_board.uart == Uart("stm32f4", 0x40004400)
    (tmp_path / "mine.toml").unlink()
    assert made.validate().ok
    total = made.profile().total
    assert total.time_ms is not None and [stall.cause for stall in total.stalls] == ["art data", "branches"]
    assert total.cycles and total.cycles_high == round(total.cycles * 1.04)


CACHE = '\n[[cache]]\nname = "art"\nkind = "data"\nlines = 8\nline_bytes = 32\n'
TIMING = '\n[timing]\nfactor = 1.1\nerror_percent = 4\nsource = "measured"\n'
WRONG = [
    (MINE + CACHE.replace("data", "milk"), "`kind` of the cache `art` must be one of data, code, both"),
    (MINE + CACHE.replace("lines = 8\n", ""), "a cache: `lines` is missing"),
    (MINE + CACHE + "sets = 3\n", "a cache: unknown field `sets`"),
    (MINE + CACHE.replace("32", "33"), "`line_bytes` that are a power of two"),
    (MINE + CACHE + "fill_bytes = 64\n", "`fill_bytes` of the cache `art` must be a power of two from 4 to its `line_bytes`"),
    (MINE + CACHE + "ways = 3\n", "`ways` of the cache `art` must divide its `lines`"),
    (MINE + CACHE + "miss_cycles = 5000\n", "`miss_cycles` of the cache `art` must be at most 1000"),
    (MINE + CACHE + 'memories = ["rom"]\n', "the cache `art` names `rom`, which is not a memory of the board"),
    (MINE + CACHE + 'memories = "flash"\n', "a cache: `memories` is not a list of names"),
    (MINE + CACHE + CACHE, "two caches have the name `art`"),
    (MINE + CACHE + CACHE.replace('"art"', '"other"'), "two caches hold data of `flash`"),
    (MINE + CACHE.replace('"art"', '"*/"'), "a cache needs a `name` of letters"),
    (MINE + TIMING.replace("1.1", "0"), "`[timing]` needs a `factor` from 0.1 to 10"),
    (MINE + TIMING.replace("1.1", '"fast"'), "`[timing]`: `factor` is not a number"),
    ("cache = 3\n" + MINE, "`cache` is not `[[cache]]`"),
    ("timing = 3\n" + MINE, "`timing` is not `[timing]`"),
    ("", "it has no `[[memory]]`"),
    (MINE.replace("clock_mhz = 80\n", ""), "`clock_mhz` is missing"),
    (MINE.replace("wait_states = 4", "wait_sates = 4"), "`wait_states` is missing"),
    (MINE.replace("wait_states = 4", "wait_states = 4\nvolts = 3"), "unknown field `volts`"),
    ("core = ", "Invalid value"),
    (MINE.replace("cortex-m4f", "cortex-m99"), "`core` must be one of cortex-m0+"),
    (MINE.replace("cortex-m4f", "x86-64"), "`core` must be one of cortex-m0+"),
    (MINE.replace("0x20000000", "0x08010000"), "`flash` and `sram` overlap"),
    (MINE.replace('kind = "ram"', 'kind = "flash"'), "it needs a flash for code, and a ram"),
    (MINE.replace("bytes = 32768", "bytes = -1"), "`sram` is not within 32 bits"),
    (MINE.replace("bytes = 32768", 'bytes = "many"'), "a memory: `bytes` is not an integer"),
    (MINE.replace("address = 0x20000000\n", ""), "a memory: `address` is missing"),
    (MINE.replace('name = "sram"', 'name = "*/ int x;"'), "a memory needs a `name` of letters"),
    (MINE.replace("wait_states = 4", "wait_states = 4\ncores = 3"), "`cores` must be 1 or 2"),
    (MINE.replace("wait_states = 4", "wait_states = 4\nuart = 3"), "`uart` is not a table"),
    (MINE + '[uart]\nkind = "stm32"\n', "the UART: `address` is missing"),
    (MINE + '[uart]\nkind = "telex"\naddress = 0x40004400\n', "the UART: `kind` must be one of cmsdk, stm32"),
    (MINE + '[uart]\nkind = "stm32"\naddress = 0x40004401\n', "no multiple of 4"),
    (MINE + '[uart]\nkind = "stm32"\naddress = 0x40004400\nbaud = 9600\n', "the UART: unknown field `baud`"),
]


@pytest.mark.parametrize(("text", "says"), WRONG, ids=[w[1] for w in WRONG])
def test_a_file_that_is_no_board(text: str, says: str, intaglio: Intaglio, tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text(text)
    said = intaglio("compile", integer_model(tmp_path), "--board", tmp_path / "mine.toml", "-o", tmp_path / "out")
    assert said.code == 2 and "error[bad-board]: " in said.err and says in said.err and "hint: " in said.err
    assert not (tmp_path / "out").exists()


def test_a_board_s_file_that_is_not_there(intaglio: Intaglio, tmp_path: Path) -> None:
    said = intaglio("compile", integer_model(tmp_path), "--board", tmp_path / "none.toml", "-o", tmp_path / "out")
    assert said.code == 2 and "cannot read the board" in said.err


def test_the_boot_rom_of_an_rp2350_finds_its_block(tmp_path: Path) -> None:
    made = firmware(integer_model(tmp_path), tmp_path / "out", board="rp2350", name="net")
    with open(made.folder / "bin" / "net.elf", "rb") as file:
        start = ELFFile(file).get_section_by_name(".vectors")
        assert start is not None and bytes.fromhex("d3deffff42012110") in start.data()[:4096]
    assert made.validate().ok
