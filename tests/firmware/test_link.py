"""Several networks in one firmware."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from intaglio.package.manifest import read_manifest
from intaglio.run.firmware_tools import compile_flags, find_firmware_toolchain, link_command, runtime
from intaglio.targets.target import find_target
from support.commands import DIGITS, Intaglio
from support.firmware_running import booted, firmware, integer_model, selftest


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("packages")
    first = firmware(DIGITS, folder / "digits", arena="caller")
    second = firmware(integer_model(folder), folder / "dense", arena="caller", name="dense")
    return first.folder, second.folder


def test_networks_share_one_arena_and_do_not_meet(packages: tuple[Path, Path], intaglio: Intaglio, tmp_path: Path) -> None:
    told = intaglio("link", *packages, "-o", tmp_path / "both", "--json").json
    manifests = [read_manifest(p) for p in packages]
    arenas = [m.memory.arena_bytes for m in manifests]
    assert told["arena_bytes"] == max(arenas) and told["separate_arena_bytes"] == sum(arenas)
    assert told["ram_bytes"] < told["separate_arena_bytes"] + sum(m.firmware.ram_bytes for m in manifests if m.firmware)
    core = booted(tmp_path / "both", tmp_path / "both" / "bin" / "both.elf", manifests[0])
    try:
        for name in ("digits", "dense", "digits"):
            assert selftest(core, name)[0] == 0
    finally:
        core.close()


def test_state_is_not_shared(packages: tuple[Path, Path], intaglio: Intaglio, tmp_path: Path) -> None:
    from support.onnx_models import model, node, saved, value

    nodes, outputs = [node("Add", "x s", "y"), node("Identity", "y", "t")], [value("y", [1, 4]), value("t", [1, 4])]
    path = saved(model(nodes, inputs=[value("x", [1, 4]), value("s", [1, 4])], outputs=outputs), tmp_path)
    made = firmware(path, tmp_path / "sum", arena="caller", name="total", states={"s": "t"})
    said = intaglio("link", made.folder, packages[1], "-o", tmp_path / "both")
    assert said.code == 0
    text = (tmp_path / "both" / "firmware" / "main.c").read_text()
    assert "unsigned char total_arena[TOTAL_ARENA_BYTES]" in text and "unsigned char dense[DENSE_ARENA_BYTES]" in text


@pytest.mark.slow
def test_what_cannot_be_one_firmware(packages: tuple[Path, Path], intaglio: Intaglio, digits: Path, tmp_path: Path) -> None:
    first, second = packages
    static = firmware(integer_model(tmp_path), tmp_path / "static", name="other").folder
    board = firmware(integer_model(tmp_path), tmp_path / "board", name="third", board="rp2350", arena="caller").folder
    for folders, says in (
        ([first], "one package is already a firmware"),
        ([first, digits], "is not firmware: it is for"),
        ([first, static], "has its own arena"),
        ([first, board], "is for the board `rp2350`"),
        ([first, first], "two packages have the name `digits`"),
        ([first, tmp_path], "is not a package"),
    ):
        said = intaglio("link", *folders, "-o", tmp_path / "both")
        assert said.code == 2 and says in said.err and "hint: " in said.err
        assert not (tmp_path / "both").exists()
    assert second.is_dir()


@pytest.mark.slow
def test_weights_at_addresses_of_their_own_are_named_and_do_not_overlap(intaglio: Intaglio, tmp_path: Path) -> None:
    def made(name: str, address: int) -> Path:
        return firmware(integer_model(tmp_path), tmp_path / name, name=name, arena="caller", weights_address=address).folder

    first, second, third = made("first", 0x200000), made("second", 0x200040), made("third", 0x300000)
    said = intaglio("link", first, second, "-o", tmp_path / "both")
    assert said.code == 2 and "`second` (from 0x200040) overlap" in said.err and "a `--weights-address` from 0x200" in said.err
    said = intaglio("link", third, first, "-o", tmp_path / "both")
    assert said.code == 0 and "weights/first_weights.bin" in said.err and "to be written to 0x300000" in said.err
    assert "| `weights/third_weights.bin` | `0x00300000` |" in (tmp_path / "both" / "README.md").read_text()


def test_a_firmware_is_not_a_package(packages: tuple[Path, Path], intaglio: Intaglio, tmp_path: Path) -> None:
    intaglio("link", *packages, "-o", tmp_path / "both")
    assert json.loads((tmp_path / "both" / "manifest.json").read_text())["models"] == ["digits", "dense"]
    said = intaglio("run", tmp_path / "both")
    assert said.code == 2 and "that `intaglio link` made of `digits`, `dense`" in said.err
    assert intaglio("link", *packages, "-o", tmp_path / "both").code == 2
    assert intaglio("link", *packages, "-o", tmp_path / "both", "--force").code == 0


@pytest.mark.slow
def test_static_libraries_of_two_packages_link_into_one_program(
    packages: tuple[Path, Path], intaglio: Intaglio, tmp_path: Path
) -> None:
    """As a project of the user's does it: no sources, only `lib` and `include`."""
    both = tmp_path / "both"
    intaglio("link", *packages, "-o", both)
    target = find_target("cortex-m4f")
    tools = find_firmware_toolchain(None, target)
    made = []
    for source in sorted([*(both / "firmware").glob("*.c"), *(both / "firmware" / "libc").glob("*.c")]):
        made.append(str(tmp_path / f"{source.name}.o"))
        words = ("-Iinclude", "-Ifirmware", "-c", str(source), "-o", made[-1])
        subprocess.run((*tools.compiler, *compile_flags(tools, target), *words), cwd=both, check=True)
    libraries = [str(p / "lib" / f"lib{read_manifest(p).name}.a") for p in packages]
    elf = tmp_path / "mine.elf"
    command = (*link_command(tools, target, "firmware/both.ld"), *made, *libraries, runtime(tools, target), "-o", str(elf))
    subprocess.run(command, cwd=both, check=True)
    core = booted(both, elf, read_manifest(packages[0]))
    try:
        assert [selftest(core, name)[0] for name in ("dense", "digits")] == [0, 0]
    finally:
        core.close()
