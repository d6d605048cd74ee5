"""What does not fit: exit code 1, the lower bound, the layer that sets it, and something to do. And the ladder of `fit`."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from intaglio.options.request import Request
from intaglio.pipeline import compile_request
from intaglio.stages.watch import Watch
from intaglio.targets.board import all_boards
from support.commands import DIGITS, Intaglio
from support.row_models import dense, pixels

TARGET = ("--target", "cortex-m4f")


@pytest.fixture(autouse=True)
def few_boards(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = {name: all_boards()[name] for name in ("nucleo-l4r5zi", "rp2040")}
    monkeypatch.setattr("intaglio.survey.boards.all_boards", lambda: shown)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A float model and the same on integers, as an IR file."""
    folder = tmp_path_factory.mktemp("models")
    plain, integers = pixels(folder), folder / "pixels8.ig"
    request = Request(plain, output=integers, target=TARGET[1], quantize="int8", integer_io=True, stop_after="optimise")
    compile_request(request, Watch())
    return {"float": plain, "int8": integers}


def board(folder: Path, ram: int) -> Path:
    path = folder / "small.toml"
    path.write_text(
        'description = "a small one"\ncore = "cortex-m4f"\nclock_mhz = 48\nwait_states = 0\n'
        '[[memory]]\nname = "flash"\nkind = "flash"\naddress = 0x08000000\nbytes = 262144\n'
        f'[[memory]]\nname = "ram"\nkind = "ram"\naddress = 0x20000000\nbytes = {ram}\n'
    )
    return path


@pytest.mark.parametrize("kind", ["float", "int8"])
def test_compile_and_fit_say_the_bound_the_layer_and_a_remedy(
    kind: str, models: dict[str, Path], intaglio: Intaglio, tmp_path: Path
) -> None:
    remedy = {"float": "`--quantize int8` reduces it to about a quarter", "int8": "`--feed-rows` takes the input row by row"}[kind]
    for words in (("compile", models[kind], "-o", tmp_path / "out"), ("fit", models[kind], "--quick")):
        said = intaglio(*words, *TARGET, "--ram", "700")
        assert said.code == 1
        needs = r"error\[does-not-fit\]: `pixels` needs (at least )?[\d,]+ bytes of RAM( beside stack and variables)?, "
        assert re.search(needs + "`--ram` allows 700: ", said.err)
        assert ("at least" in said.err) == ("beside stack and variables" in said.err), "the message names what is not counted"
        bound = re.search(r"[Nn]o plan needs less than ([\d,]+) bytes for the arena alone, even with stripes", said.err)
        assert bound and int(bound[1].replace(",", "")) > 700
        assert re.search(r"[Mm]ost of the arena is live in layer `\w+`", said.err)
        assert remedy in said.err
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_what_was_asked_for_already_is_no_remedy(models: dict[str, Path], intaglio: Intaglio, tmp_path: Path) -> None:
    for words in (("compile", models["float"], "-o", tmp_path / "out"), ("fit", models["float"], "--quick")):
        said = intaglio(*words, *TARGET, "--quantize", "int8", "--ram", "300")
        assert said.code == 1 and "about a quarter" not in said.err
        assert "`--integer-io` makes inputs and outputs integers" in said.err
    made = ("compile", models["float"], "-o", tmp_path / "out", "--integer-io")
    said = intaglio(*made, *TARGET, "--quantize", "int8", "--ram", "300")
    assert said.code == 1 and "about a quarter" not in said.err and "--integer-io" not in said.err


def test_nothing_is_left_to_try_when_rows_are_fed_already(models: dict[str, Path], intaglio: Intaglio, tmp_path: Path) -> None:
    said = intaglio("compile", models["int8"], *TARGET, "--feed-rows", "--ram", "700", "-o", tmp_path / "out")
    assert said.code == 1
    assert "A network with a smaller input or fewer channels needs less" in said.err and "--feed-rows" not in said.err


@pytest.mark.slow
def test_a_board_that_is_too_small_is_named(models: dict[str, Path], intaglio: Intaglio, tmp_path: Path) -> None:
    small = board(tmp_path, 2048)
    for words in (("compile", models["float"], "-o", tmp_path / "out"), ("fit", models["float"], "--quick")):
        said = intaglio(*words, "--board", small)
        assert said.code == 1
        assert "the board `small` has 2,048: " in said.err and "Most of the arena is live in layer" in said.err
        assert "No plan needs less than" in said.err and "Boards with enough memory: " in said.err


@pytest.mark.slow
def test_flash_that_is_too_small_has_a_remedy(models: dict[str, Path], intaglio: Intaglio, tmp_path: Path) -> None:
    for words in (("compile", models["float"], "-o", tmp_path / "out"), ("fit", models["float"], "--quick")):
        said = intaglio(*words, *TARGET, "--flash", "1K")
        assert said.code == 1
        assert re.search(r"needs (at least )?[\d,]+ bytes of flash, `--flash` allows 1,024: ", said.err)
        assert re.search(r"[\d,]+ bytes, most of them in layer `\w+`", said.err)
        assert "`--quantize int8` or `--quantize weights` reduces them to about a quarter" in said.err


def test_layers_that_have_no_rows_are_not_striped(intaglio: Intaglio, tmp_path: Path) -> None:
    said = intaglio("fit", dense(tmp_path), *TARGET, "--ram", "128", "--quick", "--json")
    told = said.json
    assert said.code == 1 and told["fits"] is False and told["stripes"] == []
    assert not [rung for rung in told["ladder"] if "stripes" in rung["rung"]]
    assert told["smallest"]["ram_bytes"] == told["ram_bytes"] and told["smallest"]["cost_ratio"] == 1
    assert "No plan needs less than" in said.err and "--feed-rows" not in said.err
    assert intaglio("compile", dense(tmp_path), *TARGET, "--ram", "128", "-o", tmp_path / "out").code == 1


@pytest.mark.slow
def test_json_has_the_ladder_and_the_smallest_ram(models: dict[str, Path], intaglio: Intaglio) -> None:
    plain = intaglio("fit", models["int8"], *TARGET, "--json").json
    assert plain["fits"] is True and plain["stripes"] == []
    ladder = {rung["rung"]: rung for rung in plain["ladder"]}
    striped = ladder["stripes"]
    assert striped["ram_bytes"] < plain["ram_bytes"] and striped["cost_ratio"] > 1
    assert ladder["in-place"]["cost_ratio"] == 1
    least = plain["smallest"]
    assert least["ram_bytes"] == min(r["ram_bytes"] for r in plain["ladder"]) and least["cost_ratio"] >= 1
    assert least["ram_bytes"] <= least["ram_limit_bytes"] < least["ram_bytes"] + 16
    limited = intaglio("fit", models["int8"], *TARGET, "--ram", str(-(-striped["ram_bytes"] // 16) * 16), "--json")
    assert limited.code == 0 and limited.json["stripes"] and limited.json["ram_bytes"] <= striped["ram_bytes"]


def test_int8_is_offered_to_floats_alone(models: dict[str, Path], intaglio: Intaglio) -> None:
    for kind, offered in (("float", True), ("int8", False)):
        told = intaglio("fit", models[kind], *TARGET, "--quick", "--json").json
        assert any("int8" in rung["rung"] for rung in told["ladder"]) is offered
        assert "int8" not in told["smallest"]["rung"], "what is only offered is not what this model can do"


@pytest.mark.slow
def test_the_smallest_ram_is_enough_for_compile(models: dict[str, Path], intaglio: Intaglio, tmp_path: Path) -> None:
    """Its stack is that of a build, so another build within it succeeds."""
    told = intaglio("fit", models["int8"], *TARGET, "--json").json
    least = next(r for r in told["ladder"] if r["rung"] == "stripes")["ram_bytes"]
    limit = -(-least // 16) * 16  # the stack starts at a multiple of that
    said = intaglio("compile", models["int8"], *TARGET, "--ram", str(limit), "-o", tmp_path / "out")
    assert said.code == 0, said.err
    assert "stripes make the arena" in said.err


def test_a_limit_that_is_met_costs_nothing(intaglio: Intaglio, tmp_path: Path) -> None:
    said = intaglio("compile", DIGITS, *TARGET, "--ram", "64K", "-o", tmp_path / "out", "--stop-after", "package")
    assert said.code == 0 and "stripes" not in said.err
