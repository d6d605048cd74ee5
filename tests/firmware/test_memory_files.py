"""Files of memories: what they say, and what is said of those that cannot be."""

from __future__ import annotations

from pathlib import Path

import pytest

from intaglio.targets.board import all_boards
from intaglio.targets.deployment import deployment_of
from intaglio.targets.memories import fastest_first, fault_of, main_memory, read_memories
from intaglio.targets.target import find_target
from support.commands import DIGITS, Intaglio

TWO = """
[[memory]]
name = "flash"
kind = "flash"
address = 0x08000000
bytes = 1048576

[[memory]]
name = "fast"
kind = "ram"
address = 0x20000000
bytes = 4096
bytes_per_cycle = 8
holds = ["arena"]

[[memory]]
name = "slow"
kind = "ram"
address = 0x24000000
bytes = 65536
bytes_per_cycle = 2
latency = 3
"""


def test_what_a_file_says(tmp_path: Path) -> None:
    (tmp_path / "two.toml").write_text(TWO)
    memories = read_memories(tmp_path / "two.toml", addresses=True)
    assert [m.name for m in fastest_first(memories, "arena")] == ["fast", "slow"]
    main = main_memory(memories, "ram")
    assert main is not None and main.name == "slow" and main.cycles_per_word == 5


def test_where_an_operating_system_is_memories_need_no_address(tmp_path: Path) -> None:
    text = "\n".join(line for line in TWO.splitlines() if not line.startswith("address"))
    (tmp_path / "two.toml").write_text(text)
    host = deployment_of(find_target("x86-64"), memory=str(tmp_path / "two.toml"))
    assert (host.ram_bytes, host.flash_bytes) == (65536, 1048576)


def test_ram_limits_the_memory_of_the_variables(tmp_path: Path) -> None:
    (tmp_path / "two.toml").write_text(TWO)
    target = find_target("cortex-m7")
    made = deployment_of(target, memory=str(tmp_path / "two.toml"), ram=1000)
    assert [(m.name, m.bytes) for m in made.arena_memories] == [("fast", 4096), ("slow", 1000)]
    alone = deployment_of(target, board="nucleo-h743zi", ram=1000)
    assert [(m.name, m.bytes) for m in alone.arena_memories] == [("axi_sram", 1000)]


@pytest.mark.parametrize("board", all_boards().values(), ids=lambda b: b.name)
def test_our_boards_have_memories_that_can_be(board: object) -> None:
    from intaglio.targets.board import Board

    assert isinstance(board, Board) and not fault_of(board.memories)


WRONG = {
    "nothing": ("", "it has no `[[memory]]`"),
    "no tables": ("memory = 3", "it has no `[[memory]]`"),
    "cut short": (TWO[:-10], "does not describe memories"),
    "no bytes": (TWO.replace("bytes = 65536\n", ""), "a memory: `bytes` is missing"),
    "no address": (TWO.replace("address = 0x24000000\n", ""), "a memory: `address` is missing"),
    "bytes as text": (TWO.replace("bytes = 65536", 'bytes = "64K"'), "a memory: `bytes` is not an integer"),
    "speed as text": (TWO.replace("bytes_per_cycle = 2", 'bytes_per_cycle = "two"'), "`bytes_per_cycle` is not a number"),
    "mapped as a number": (TWO + "mapped = 1", "`mapped` is not true or false"),
    "holds as text": (TWO + 'holds = "arena"', "`holds` is not a list of words"),
    "unknown holds": (TWO + 'holds = ["heap"]', "`slow` cannot hold `heap`: ram holds `arena`, `stack`, `variables`"),
    "weights in ram": (TWO + 'holds = ["weights"]', "`slow` cannot hold `weights`"),
    "zero bytes": (
        TWO.replace("bytes = 65536", "bytes = 0"),
        "`slow` is not within 32 bits of address, or has less than 256 bytes",
    ),
    "beyond 32 bits": (TWO.replace("0x24000000", "0xffffffff"), "`slow` is not within 32 bits"),
    "an address of nowhere": (TWO.replace("0x24000000", "0x100000000"), "not within 32 bits"),
    "no speed": (TWO.replace("bytes_per_cycle = 2", "bytes_per_cycle = 0"), "`bytes_per_cycle` above 0"),
    "a speed that is none": (TWO.replace("bytes_per_cycle = 2", "bytes_per_cycle = nan"), "`bytes_per_cycle` above 0"),
    "negative latency": (TWO.replace("latency = 3", "latency = -3"), "a `latency` from 0 cycles"),
    "overlap": (TWO.replace("0x24000000", "0x20000800"), "`fast` and `slow` overlap"),
    "the same name": (TWO.replace('"fast"', '"SLOW"'), "two memories have the name `slow`"),
    "a name that is no name": (TWO.replace('"fast"', '"2 fast"'), "a memory needs a `name` of letters"),
    "an unknown kind": (TWO.replace('kind = "flash"', 'kind = "eeprom"'), "flash or ram as `kind`"),
    "an unknown field": (TWO + "volts = 3", "unknown field `volts`"),
    "a field outside": ("core = 1\n" + TWO, "unknown field `core` outside `[[memory]]`"),
    "ram that is not mapped": (TWO + "mapped = false", "`slow` is not mapped, so it must be flash"),
    "no code": (TWO.replace("bytes = 1048576", 'bytes = 1048576\nholds = ["weights"]'), "no flash holds code"),
    "no stack": (TWO + 'holds = ["arena", "variables"]', "no ram holds both the stack and variables"),
    "no arena": (TWO.replace('["arena"]', '["stack"]') + 'holds = ["stack", "variables"]', "no ram holds the arena"),
}


@pytest.mark.parametrize("name", WRONG)
@pytest.mark.parametrize("command", ["compile", "fit"])
def test_a_file_that_describes_no_memories(command: str, name: str, intaglio: Intaglio, tmp_path: Path) -> None:
    text, says = WRONG[name]
    (tmp_path / "wrong.toml").write_text(text)
    words = ("-o", tmp_path / "out") if command == "compile" else ()
    said = intaglio(command, DIGITS, "--target", "cortex-m7", "--memory", tmp_path / "wrong.toml", *words)
    assert said.code == 2 and "error[bad-memory]: " in said.err and says in said.err and "\n\nhint: " in said.err
    assert not (tmp_path / "out").exists()


def test_a_file_that_is_not_there_a_folder_and_one_that_is_not_text(intaglio: Intaglio, tmp_path: Path) -> None:
    (tmp_path / "bytes.toml").write_bytes(b"\xff\xfe\0\x80")
    for path, says in (
        (tmp_path / "none.toml", "No such file"),
        (tmp_path, "Is a directory"),
        (tmp_path / "bytes.toml", "does not"),
    ):
        said = intaglio("compile", DIGITS, "--target", "cortex-m7", "--memory", path, "-o", tmp_path / "out")
        assert said.code == 2 and "error[bad-memory]: " in said.err and says in said.err and "hint: " in said.err


@pytest.mark.slow
@pytest.mark.usefixtures("one_board")
def test_the_file_of_the_guide(intaglio: Intaglio, tmp_path: Path) -> None:
    guide = Path(__file__).parents[2] / "docs" / "guides" / "memory.md"
    text = guide.read_text(encoding="utf-8").split("```toml\n")[1].split("```")[0]
    (tmp_path / "mine.toml").write_text(text)
    said = intaglio("fit", DIGITS, "--target", "cortex-m7", "--memory", tmp_path / "mine.toml")
    assert said.code == 0 and "of the arena in dtcm" in said.out
