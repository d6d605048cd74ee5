"""Where weights are: in a section of choice, or a binary at an address of their own."""

from __future__ import annotations

from pathlib import Path

import pytest
from elftools.elf.elffile import ELFFile

from intaglio.package.manifest import board_of
from intaglio.run.emulator.device import DEFAULT, start
from intaglio.run.emulator.image import Part, read_image
from intaglio.run.package import Package
from intaglio.targets.target import find_target
from support.commands import Intaglio
from support.firmware_running import firmware, integer_model, package_selftest

ADDRESS = 0x00200000


@pytest.fixture
def apart(tmp_path: Path) -> Package:
    return firmware(integer_model(tmp_path), tmp_path / "out", name="net", weights_address=ADDRESS)


def check(package: Package, binary: bytes) -> int:
    """What the device says of these bytes at the address."""
    manifest = package.manifest
    target = find_target(manifest.target)
    image = read_image(package.folder / "bin" / "net.elf", (Part(ADDRESS, binary),))
    core = start(image, board_of(manifest, target), target, DEFAULT)
    try:
        return core.call("net_weights_check", 1 << 32)
    finally:
        core.close()


def test_a_binary_of_its_own_is_found_at_its_address(apart: Package) -> None:
    info = apart.manifest.firmware
    assert info is not None and (info.weights_file, info.weights_address) == ("weights/net_weights.bin", ADDRESS)
    binary = (apart.folder / "weights" / "net_weights.bin").read_bytes()
    assert len(binary) == 64 + apart.manifest.memory.weight_bytes == 64 + info.weight_bytes
    assert check(apart, binary) == 0
    assert apart.validate().ok


def test_a_binary_that_is_damaged_or_missing_is_told(apart: Package) -> None:
    binary = bytearray((apart.folder / "weights" / "net_weights.bin").read_bytes())
    binary[-1] ^= 1
    assert check(apart, bytes(binary)) == 2
    assert check(apart, bytes([255] * len(binary))) == 1


def test_validate_tells_of_a_damaged_binary(apart: Package, intaglio: Intaglio) -> None:
    path = apart.folder / "weights" / "net_weights.bin"
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    said = intaglio("validate", apart.folder)
    assert said.code == 2 and "does not match its checksum" in said.err


def test_new_weights_need_no_new_code_and_other_code_needs_its_own(apart: Package, tmp_path: Path) -> None:
    words = {"name": "net", "weights_address": ADDRESS}
    retrained = firmware(integer_model(tmp_path, seed=1), tmp_path / "retrained", **words)
    other = firmware(integer_model(tmp_path, channels=9), tmp_path / "other", **words)
    binary = {p: (p.folder / "weights" / "net_weights.bin").read_bytes() for p in (retrained, other)}
    assert check(apart, binary[retrained]) == 0
    assert check(apart, binary[other]) == 1


def test_the_code_must_not_reach_the_weights(intaglio: Intaglio, tmp_path: Path) -> None:
    words = ("compile", integer_model(tmp_path), "--board", "mps2-an386", "-o", tmp_path / "out", "--name", "net")
    said = intaglio(*words, "--weights-address", "0x40")
    assert said.code == 1 and "over the weights at 0x40" in said.err and "a `--weights-address` from 0x" in said.err
    said = intaglio(*words, "--weights-address", "0x3fffc0")
    assert said.code == 1 and "beyond the end of `flash`" in said.err


def test_a_section_of_choice_holds_the_weights(tmp_path: Path) -> None:
    made = firmware(integer_model(tmp_path), tmp_path / "out", name="net", weights_section=".qspi")
    assert 'section(".qspi")' in (made.folder / "src" / "net_weights.c").read_text()
    assert package_selftest(made)[0] == 0
    with open(made.folder / "bin" / "net.elf", "rb") as file:
        found = ELFFile(file).get_section_by_name(".weights")
        assert found is not None and found["sh_size"] == made.manifest.memory.weight_bytes
