"""`intaglio fit`: one screen, one object, one picture."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

import pytest

from intaglio.errors import ToolError
from intaglio.ir.sizes import Undecided
from intaglio.package.manifest import read_manifest
from intaglio.targets.board import all_boards
from support.commands import DIGITS, Intaglio, Said

BOARD = ("--board", "nucleo-l4r5zi")


def show_few(patch: pytest.MonkeyPatch) -> None:
    """Two cores are enough here: each is a compilation."""
    shown = {name: all_boards()[name] for name in ("nucleo-l4r5zi", "stm32f4-discovery", "rp2040")}
    patch.setattr("intaglio.survey.boards.all_boards", lambda: shown)


@pytest.fixture(autouse=True)
def few_boards(monkeypatch: pytest.MonkeyPatch) -> None:
    show_few(monkeypatch)


@dataclass(frozen=True, slots=True)
class Answered:
    said: Said
    picture: Path


_ANSWERED: list[Answered] = []


@pytest.fixture
def answered(intaglio: Intaglio, tmp_path_factory: pytest.TempPathFactory) -> Answered:
    """`fit` for the board, as JSON and with a picture: one run for all tests that ask no more."""
    if not _ANSWERED:
        picture = tmp_path_factory.mktemp("fit") / "p.svg"
        with pytest.MonkeyPatch.context() as patch:
            show_few(patch)
            _ANSWERED.append(Answered(intaglio("fit", DIGITS, *BOARD, "--json", "--plot", picture), picture))
    return _ANSWERED[0]


def test_json_is_as_the_contract_says(answered: Answered) -> None:
    said = answered.said
    told = said.json
    assert said.code == 0
    assert told["fits"] is told["optimal"] is True
    parts = told["parts"]
    assert told["lower_bound_bytes"] == told["ram_bytes"] == parts["arena_bytes"] + parts["stack_bytes"] + parts["variable_bytes"]
    assert told["flash_bytes"] == parts["weight_bytes"] + parts["code_bytes"]
    assert told["from"] == {"sizes": "built", "time": "emulated"}
    assert isinstance(told["peak_layer"], str)
    assert [set(rung) for rung in told["ladder"]] == [{"rung", "ram_bytes", "flash_bytes", "cost_ratio"}] * len(told["ladder"])
    rungs = {rung["rung"]: rung for rung in told["ladder"]}
    assert rungs["in-place"]["ram_bytes"] == told["ram_bytes"], "without a limit nothing is used that costs time"
    assert rungs["stripes"]["ram_bytes"] < told["ram_bytes"] and rungs["stripes"]["cost_ratio"] > 1
    assert told["smallest"]["ram_bytes"] == min(rung["ram_bytes"] for name, rung in rungs.items() if "int8" not in name)
    assert [b["name"] for b in told["boards"]] == ["nucleo-l4r5zi", "stm32f4-discovery", "rp2040"]
    assert all({"name", "fits", "time_ms"} < set(b) and b["fits"] and b["time_ms"] > 0 for b in told["boards"])
    assert told["boards"][0]["time_ms"] == told["time_ms"] and told["boards"][0]["flash_bytes"] == told["flash_bytes"]


def test_the_peak_is_the_layer_with_most_alive(answered: Answered) -> None:
    told = answered.said.json
    assert told["peak_layer"].startswith("pool1")
    assert [t["bytes"] for t in told["peak_tensors"]] == [2048, 512]
    assert sum(t["bytes"] for t in told["peak_tensors"]) == told["parts"]["arena_bytes"]


@pytest.mark.slow
@pytest.mark.usefixtures("one_board")
def test_the_ladder_has_what_the_means_and_a_build_have(answered: Answered, intaglio: Intaglio, tmp_path: Path) -> None:
    rungs = {rung["rung"]: rung for rung in answered.said.json["ladder"]}
    means = {one["name"]: one for one in intaglio("fit", DIGITS, "--json").json["means"]}
    assert rungs["stripes"]["ram_bytes"] == means["stripes"]["ram_bytes"]
    words = (*BOARD, "--quantize", "int8", "-o", tmp_path / "p")
    made = intaglio("compile", DIGITS, *words, "--json").json["firmware"]
    offered = rungs["int8 (--quantize)"]
    assert [offered[key] for key in ("ram_bytes", "flash_bytes")] == [made["ram_bytes"], made["flash_bytes"]]
    assert offered["cost_ratio"] < 1


def test_rungs_never_cost_memory(intaglio: Intaglio) -> None:
    sizes = [rung["ram_bytes"] for rung in intaglio("fit", DIGITS, "--quick", "--target", "host", "--json").json["ladder"]]
    assert sizes == sorted(sizes, reverse=True)


@pytest.mark.slow
@pytest.mark.usefixtures("one_board")
def test_what_does_not_fit_says_the_bound_the_layer_and_what_would_help(intaglio: Intaglio) -> None:
    assert intaglio("fit", DIGITS, *BOARD, "--ram", "2K", "--quick").code == 0, "in stripes"
    said = intaglio("fit", DIGITS, *BOARD, "--ram", "1K")
    assert said.code == 1
    assert "error[does-not-fit]" in said.err
    assert "hint: the largest part of RAM is `arena`. Most of the arena is live in layer `" in said.err
    assert "`--quantize int8`" in said.err
    assert re.search(r"the lower bound of the arena is [\d,]+ bytes, set by layer `", said.err)
    assert intaglio("fit", DIGITS, *BOARD, "--flash", "4K", "--quick", "--json").json["fits"] is False


def test_the_screen_has_needs_peak_ladder_and_boards(intaglio: Intaglio) -> None:
    said = intaglio("fit", DIGITS, *BOARD)
    assert "arena 2,560 bytes, proven optimal; inputs and\n" in said.out
    for word in ("sizes as built, cycles estimated", "peak", "weights", "in-place", "best offsets", "stm32f4-discovery", "yes"):
        assert word in said.out
    assert len(said.out.splitlines()) < 40
    assert max(map(len, said.out.splitlines())) <= 80


@pytest.mark.slow
def test_fit_says_what_compile_and_profile_say(intaglio: Intaglio, answered: Answered, tmp_path: Path) -> None:
    told = intaglio("fit", DIGITS, "--board", "rp2040", "--json").json
    made = intaglio("compile", DIGITS, "--board", "rp2040", "-o", tmp_path / "p", "--json").json["firmware"]
    total = intaglio("profile", tmp_path / "p", "--json").json["total"]
    assert (told["ram_bytes"], told["flash_bytes"]) == (made["ram_bytes"], made["flash_bytes"])
    assert [told[key] for key in ("cycles", "instructions", "time_ms")] == [total[k] for k in ("cycles", "instructions", "time_ms")]
    other = {b["name"]: b for b in answered.said.json["boards"]}["rp2040"]
    assert (other["ram_bytes"], other["flash_bytes"]) == (made["ram_bytes"], made["flash_bytes"])
    assert other["time_ms"] == pytest.approx(total["time_ms"], rel=0.001), "built for the core alone"


@pytest.mark.slow
def test_boards_of_one_core_have_the_waits_of_their_own_memories(
    intaglio: Intaglio, answered: Answered, tmp_path: Path
) -> None:
    two = (BOARD[1], "stm32f4-discovery")
    tables = [said.json["boards"] for said in (answered.said, intaglio("fit", DIGITS, "--board", two[1], "--json"))]
    for name in two:
        assert intaglio("compile", DIGITS, "--board", name, "-o", tmp_path / name).code == 0
        total = intaglio("profile", tmp_path / name, "--json").json["total"]
        for table in tables:
            assert next(b for b in table if b["name"] == name)["time_ms"] == pytest.approx(total["time_ms"], rel=0.001)


@pytest.mark.slow
@pytest.mark.usefixtures("one_board")
def test_under_a_limit_fit_and_compile_take_the_same_rungs(intaglio: Intaglio, tmp_path: Path) -> None:
    told = intaglio("fit", DIGITS, *BOARD, "--ram", "2K", "--json").json
    made = intaglio("compile", DIGITS, *BOARD, "--ram", "2K", "-o", tmp_path / "p", "--json").json["firmware"]
    assert told["stripes"] and (told["ram_bytes"], told["flash_bytes"]) == (made["ram_bytes"], made["flash_bytes"])


def test_quick_builds_nothing_and_marks_its_estimates(intaglio: Intaglio, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("intaglio.survey.figures.build_request", lambda *_, **__: pytest.fail("it was built"))
    said = intaglio("fit", DIGITS, *BOARD, "--quick")
    assert said.code == 0 and "~ marks an estimate\n(flash may be off by a half" in said.out and "stack ~512" in said.out
    told = intaglio("fit", DIGITS, *BOARD, "--quick", "--json").json
    assert told["from"] == {"sizes": "estimated", "time": "estimated"}


def test_integers_that_cannot_be_made_are_left_out(intaglio: Intaglio, monkeypatch: pytest.MonkeyPatch) -> None:
    def undecided(*_: object, **__: object) -> None:
        raise Undecided("a number is needed, and `found_count` depends on found_count=0..20")

    monkeypatch.setattr("intaglio.stages.quantising.quantize", undecided)
    for device in ((), BOARD):
        said = intaglio("fit", DIGITS, *device, "--quick")
        assert said.code == 0 and "--quantize int8" not in said.out


@pytest.mark.slow
@pytest.mark.usefixtures("one_board")
def test_without_an_emulator_time_is_an_estimate(intaglio: Intaglio, monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(*_: object) -> None:
        raise ToolError("no-emulator", "Unicorn is needed to emulate a core")

    monkeypatch.setattr("intaglio.run.emulator.measure.run_once", absent)
    told = intaglio("fit", DIGITS, *BOARD, "--json").json
    assert told["from"] == {"sizes": "built", "time": "estimated"} and told["instructions"] is None


@pytest.mark.slow
def test_without_board_and_target_it_is_about_microcontrollers(intaglio: Intaglio) -> None:
    said = intaglio("fit", DIGITS, "--ram", "64K", "--flash", "512K")
    assert said.code == 0 and max(map(len, said.out.splitlines())) <= 80
    assert "within 65,536 bytes of RAM and 524,288 bytes of flash" in said.out
    for word in ("cortex-m0+", "cortex-m4f", "as it is", "stripes", "--weights read", "--quantize int8", "rp2040"):
        assert word in said.out
    assert "x86" not in said.out and "aarch64" not in said.out


@pytest.mark.slow
def test_means_are_told_apart_for_every_core_and_board(intaglio: Intaglio) -> None:
    said = intaglio("fit", DIGITS, "--ram", "2K", "--flash", "24K", "--json")
    told = said.json
    assert said.code == 0 and told["fits"] is True and told["limits"] == {"ram_bytes": 2048, "flash_bytes": 24576}
    cores = {core["name"]: core for core in told["cores"]}
    assert set(cores) == {"cortex-m0+", "cortex-m4f"}
    for core in cores.values():
        assert "stripes" in core["means"] and "--quantize int8" in core["means"]
        assert "as it is" not in core["means"] and "--weights read" not in core["means"]
        assert core["from"] == {"sizes": "built", "time": "emulated"}
    means = {one["name"]: one for one in told["means"]}
    assert means["stripes"]["ram_bytes"] < means["as it is"]["ram_bytes"] < means["--weights read"]["ram_bytes"]
    assert means["--weights read"]["flash_bytes"] < means["as it is"]["flash_bytes"]
    assert all(board["means"] == cores[board["core"]]["means"] for board in told["boards"])


@pytest.mark.slow
@pytest.mark.usefixtures("one_board")
def test_means_need_what_is_built_with_them(intaglio: Intaglio, tmp_path: Path) -> None:
    told = intaglio("fit", DIGITS, "--ram", "2K", "--json").json
    means, core = {one["name"]: one for one in told["means"]}, ("--target", told["target"])
    for name, words in (("stripes", "--ram 2K"), ("--weights read", "--weights read"), ("--quantize int8", "--quantize int8")):
        made = intaglio("compile", DIGITS, *core, *words.split(), "-o", tmp_path / name, "--json").json["firmware"]
        read = made["weight_bytes"] if name == "--weights read" else 0
        assert (means[name]["ram_bytes"], means[name]["flash_bytes"] + read) == (made["ram_bytes"], made["flash_bytes"])
        assert means[name]["from"] == "built"


@pytest.mark.slow
def test_what_fits_no_core_ends_with_1_and_says_what_would_help(intaglio: Intaglio) -> None:
    said = intaglio("fit", DIGITS, "--flash", "11K")
    assert said.code == 1
    assert "`digits` fits no core within 11,264 bytes of flash; it would with" in said.err and "`--quantize int8`" in said.err


def test_options_for_one_device_need_one(intaglio: Intaglio) -> None:
    said = intaglio("fit", DIGITS, "--feed-rows")
    assert said.code == 2 and "error[bad-option]" in said.err and "hint: add `--board` or `--target`" in said.err


def test_on_a_host_inputs_and_outputs_are_the_callers(intaglio: Intaglio) -> None:
    told = intaglio("fit", DIGITS, "--quick", "--target", "host", "--json").json
    assert told["parts"]["io_bytes"] == 256 + 40


def test_the_picture_is_well_formed_and_has_every_buffer(answered: Answered) -> None:
    assert answered.said.code == 0
    root = ElementTree.parse(answered.picture).getroot()
    text = "".join(root.itertext())
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    assert "peak: 2,560 bytes alive in layer 1" in text
    assert text.count(" bytes at ") == 8
    assert "http" not in answered.picture.read_text().replace("http://www.w3.org/2000/svg", "")


def test_a_wrong_model_or_place_for_the_picture_is_told(intaglio: Intaglio, tmp_path: Path) -> None:
    assert intaglio("fit", tmp_path / "none.onnx").code == 2
    (tmp_path / "file").write_text("")
    said = intaglio("fit", DIGITS, "--quick", "--target", "host", "--plot", tmp_path / "file" / "p.svg")
    assert said.code == 2
    assert "error[cannot-write]" in said.err


def test_a_package_says_whether_its_arena_is_proven_optimal(intaglio: Intaglio, tmp_path: Path) -> None:
    words = ("compile", DIGITS, "-o", tmp_path / "p", "--target", "x86-64-v3", "--stop-after", "package", "--force")
    assert intaglio(*words, "--json").json["optimal"] is True
    assert read_manifest(tmp_path / "p").memory.optimal is True
    (tmp_path / "pin.csv").write_text("buffer,offset\nrelu1_1,2048\n")
    said = intaglio(*words, "--import-plan", tmp_path / "pin.csv")
    assert re.search(r"arena [\d,]+ bytes, at most [\d.]+ % above the lower bound", said.out)
    assert read_manifest(tmp_path / "p").memory.optimal is False
