"""What does not fit, and words about the device that cannot be."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from intaglio.package.manifest import read_manifest
from support.commands import DIGITS, Intaglio
from support.firmware_running import integer_model
from support.small_networks import keywords


def compiled(intaglio: Intaglio, tmp_path: Path, *words: str, model: Path = DIGITS) -> tuple[int, str]:
    said = intaglio("compile", model, "-o", tmp_path / "out", "--name", "net", *words)
    assert (said.code == 0) == (tmp_path / "out").exists()
    assert sorted(p.name for p in tmp_path.iterdir() if p.name != model.name) == (["out"] if said.code == 0 else [])
    return said.code, said.err


def test_ram_that_is_too_small(intaglio: Intaglio, tmp_path: Path) -> None:
    code, said = compiled(intaglio, tmp_path, "--board", "stm32f4-discovery", "--ram", "1K")
    assert code == 1
    assert "error[does-not-fit]: `net` needs at least " in said and "`--ram` allows 1,024: " in said
    assert "too many\n  --> arena " in said and "--shape" not in said
    assert "hint: the largest part of RAM is `arena`. Most of the arena is live in layer `" in said
    assert ". No plan needs less than " in said and " bytes for the arena alone" in said
    assert ". `--quantize int8` reduces it to about a quarter" in said


def test_both_memories_that_are_too_small_are_told(intaglio: Intaglio, tmp_path: Path) -> None:
    said = intaglio("compile", DIGITS, "--board", "rp2040", "--ram", "1K", "--flash", "2K", "-o", tmp_path / "out", "--json")
    assert said.code == 1 and "of RAM beside stack and variables, `--ram` allows 1,024" in said.err
    assert "of flash, `--flash` allows 2,048" in said.err
    assert "--weights-address" not in said.err  # the board has one flash
    assert said.json["fits"] is False and "`--flash` allows" in said.json["message"]


def test_limits_and_weights_at_an_address_are_in_the_linker_script(intaglio: Intaglio, tmp_path: Path) -> None:
    model = integer_model(tmp_path)
    words = ("--board", "mps2-an386", "--weights-address", "0x100000")
    assert compiled(intaglio, tmp_path, *words, "--ram", "32K", model=model)[0] == 0
    script = (tmp_path / "out" / "firmware" / "net.ld").read_text()
    assert "LENGTH = 1048576" in script and "LENGTH = 32768" in script
    info = read_manifest(tmp_path / "out").firmware
    assert info is not None and f"PROVIDE(__stack_bytes = {info.stack_bytes})" in script
    shutil.rmtree(tmp_path / "out")
    code, said = compiled(intaglio, tmp_path, *words, "--flash", str(info.flash_bytes - 1), model=model)
    assert code == 1 and "bytes of flash, `--flash` allows" in said and ", weights " in said


def test_flash_that_is_too_small_only_with_the_code(intaglio: Intaglio, tmp_path: Path) -> None:
    model = integer_model(tmp_path)
    code, said = compiled(intaglio, tmp_path, "--board", "stm32f4-discovery", "--flash", "600", model=model)
    assert code == 1
    assert "of flash, `--flash` allows 600: " in said and ", weights " in said and "the largest part of flash is `code`" in said


def test_a_board_that_is_too_small(intaglio: Intaglio, tmp_path: Path) -> None:
    from support.onnx_models import model, node, saved, value

    path = saved(model([node("Relu", "x", "a"), node("Exp", "a", "y")], inputs=[value("x", [1, 100000])]), tmp_path)
    code, said = compiled(intaglio, tmp_path, "--board", "rp2040", model=path)
    assert code == 1
    assert "the board `rp2040` has 270,336: " in said and "Boards with enough memory: " in said


def test_limits_hold_without_a_board_too(intaglio: Intaglio, tmp_path: Path) -> None:
    assert compiled(intaglio, tmp_path, "--ram", "100")[0] == 1
    assert compiled(intaglio, tmp_path, "--flash", "1KiB")[0] == 1
    assert compiled(intaglio, tmp_path, "--ram", "1M", "--flash", "1M")[0] == 0


def test_test_vectors_give_way(intaglio: Intaglio, tmp_path: Path) -> None:
    model = integer_model(tmp_path)
    intaglio("compile", model, "--target", "cortex-m4f", "-o", tmp_path / "whole", "--json", "--name", "net")
    info = read_manifest(tmp_path / "whole").firmware
    assert info is not None
    limit = str(info.flash_bytes + info.selftest_bytes // 2)
    said = intaglio("compile", model, "--target", "cortex-m4f", "--flash", limit, "-o", tmp_path / "out", "--name", "net")
    assert said.code == 0 and "no room for the test vectors" in said.err


WRONG = [
    (["--board", "nukleo-l4r5zi"], "error[unknown-board]: unknown board `nukleo-l4r5zi`", "`nucleo-l4r5zi`"),
    (["--board", "cortex-m4f"], "unknown board `cortex-m4f`", "`cortex-m4f` is a target: use `--target cortex-m4f`"),
    (["--board", "l4r5"], "unknown board `l4r5`", "the nearest: `nucleo-l4r5zi`;"),
    (["--target", "nucleo-l4r5zi"], "unknown target `nucleo-l4r5zi`", "is a board: use `--board nucleo-l4r5zi`"),
    (["--target", "stm32f4"], "unknown target `stm32f4`", "boards with this name: `stm32f429i-disc1`, `stm32f4-discovery`"),
    (["--target", "m4"], "unknown target `m4`", "did you mean `cortex-m4`, `cortex-m4f`?"),
    (["--target", "cortexm4"], "unknown target `cortexm4`", "did you mean `cortex-m4`"),
    (["--board", "rp2040", "--target", "cortex-m7"], "the board `rp2040` has a `cortex-m0+`, not a `cortex-m7`", "omit `--target`"),
    (["--ram", "many"], "`--ram many` is not a size", "`--ram 64K`"),
    (["--ram", "0"], "`--ram 0` is not a size", "64K"),
    (["--arena", "heap"], "unknown arena `heap`", "`--arena caller`"),
    (["--weights-section", "a b"], "`a b` is not the name of a section", ".qspi"),
    (["--weights-address", "0x90000000"], "`--weights-address` needs a board", "intaglio boards"),
    (["--board", "rp2040", "--weights-address", "5"], "`--weights-address 5` is not an address", "0x08080000"),
    (["--board", "rp2040", "--weights-address", "0x20000000"], "is outside of every flash of the board `rp2040`", "0x10000100 to"),
    (["--board", "rp2040", "--weights-address", "0x10000101"], "is not a multiple of 64", "0x10000100"),
    (["--board", "rp2040", "--weights-address", "0x10100000", "--weights-section", ".x"], "cannot be combined", "choose one"),
    (["--board", "rp2040", "--cc", "no-such-gcc"], "there is no C compiler `no-such-gcc`", "omit `--cc`"),
]  # fmt: skip


@pytest.mark.parametrize(("words", "says", "hint"), WRONG, ids=[" ".join(w[0]) for w in WRONG])
def test_words_that_cannot_be(words: list[str], says: str, hint: str, intaglio: Intaglio, tmp_path: Path) -> None:
    code, said = compiled(intaglio, tmp_path, *words)
    assert code == 2
    assert says in said.split("\n\nhint: ")[0] and hint in said.split("\n\nhint: ")[1]


def test_a_compiler_for_another_machine_is_refused(intaglio: Intaglio, tmp_path: Path) -> None:
    code, said = compiled(intaglio, tmp_path, "--board", "rp2040", "--cc", "cc")
    assert code == 2 and "not for `cortex-m0+`" in said


def test_link_time_optimisation_is_refused(intaglio: Intaglio, tmp_path: Path) -> None:
    code, said = compiled(intaglio, tmp_path, "--board", "rp2040", "--cflags=-flto")
    assert code == 2 and "`--cflags -flto` does not work" in said


@pytest.mark.parametrize("part", ["src", "include", "firmware"])
def test_a_package_that_is_not_whole(part: str, intaglio: Intaglio, tmp_path: Path) -> None:
    assert compiled(intaglio, tmp_path, "--board", "rp2350", model=integer_model(tmp_path))[0] == 0
    shutil.rmtree(tmp_path / "out" / part)
    said = intaglio("profile", tmp_path / "out")
    assert said.code == 2 and f"the package is not complete: `{part}/` is missing" in said.err


def test_a_limit_that_is_no_limit_changes_nothing(intaglio: Intaglio, tmp_path: Path) -> None:
    """Kernels that are for little memory are used where it is little, not where somebody says how much there is."""
    path = tmp_path / "keywords.tflite"
    path.write_bytes(keywords())

    def kernels(*words: str) -> tuple[list[str], int]:
        folder = tmp_path / f"out{len(words)}{words[-1] if words else ''}"
        assert intaglio("compile", path, "--target", "cortex-m4f", *words, "--stop-after", "package", "-o", folder).code == 0
        manifest = read_manifest(folder)
        texts = [(folder / "src" / f.name).read_text() for f in sorted((folder / "src").glob("*kernels*.c"))]
        return texts, manifest.memory.arena_bytes

    plain = kernels()
    assert kernels("--ram", "64K") == plain
    assert kernels("--ram", str(plain[1] - 16))[0] != plain[0]


@pytest.mark.slow
@pytest.mark.usefixtures("one_board")
def test_layers_are_measured_where_ram_has_no_room_for_the_hook(intaglio: Intaglio, tmp_path: Path) -> None:
    """The least RAM that `fit` tells is enough for the firmware, and not for the build that tells layers apart."""
    said = intaglio("fit", DIGITS, "--target", "cortex-m4f", "--json")
    (least,) = (rung["ram_bytes"] for rung in said.json["ladder"] if rung["rung"] == "stripes")
    out = tmp_path / "out"
    assert intaglio("compile", DIGITS, "--target", "cortex-m4f", "--ram", least, "-o", out).code == 0
    assert len(intaglio("profile", out, "--json").json["layers"]) > 3
    assert intaglio("validate", out, "--layers").code == 0


def test_speed_on_a_board_with_wait_states_is_not_bought_with_reads_of_flash(intaglio: Intaglio, tmp_path: Path) -> None:
    path = tmp_path / "keywords.tflite"
    path.write_bytes(keywords())
    for words, wide in ((("--target", "cortex-m4f"), True), (("--board", "nucleo-l4r5zi"), False)):
        out = tmp_path / words[1]
        assert intaglio("compile", path, *words, "--optimize", "speed", "--stop-after", "package", "-o", out).code == 0
        assert any("wide" in layer.kernel for layer in read_manifest(out).layers) == wide
