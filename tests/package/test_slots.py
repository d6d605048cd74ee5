"""Slots of weights: images are signed, updates survive a loss of power at any byte, old versions do not come back."""

from __future__ import annotations

import json
import random
from pathlib import Path

import numpy as np
import pytest

import intaglio as api
from intaglio.ir.graph import Array
from intaglio.run.package import Package
from support.commands import DIGITS, Intaglio
from support.slots import Device, write_keys

OK, NO_WEIGHTS, BAD_IMAGE, OLD_VERSION, FLASH_FAILED = 0, 26, 27, 28, 29
SECRET = bytes(range(16))


class Maker:
    """A network in two versions: the second has other weights."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.package = api.compile(DIGITS, output=folder / "p", safety=("crc", "slots", "encrypted"))
        self.key, self.public = write_keys(folder)
        (folder / "secret.bin").write_bytes(SECRET)
        self.size = (self.package.folder / "weights" / "digits_slot.bin").stat().st_size

    def image(self, intaglio: Intaglio, version: int, *words: str | Path) -> bytes:
        path = self.folder / "image.bin"
        said = intaglio("slot", self.package.folder, "-o", path, "--version", str(version), "--sign", self.key, "--json", *words)
        assert said.code == 0, said.err
        self.raw = bytes.fromhex(said.json["public_key"])
        return path.read_bytes()

    def device(self, secret: bytes = b"", seed: int = 0) -> Device:
        return Device(self.package.folder / "lib" / "libdigits.so", "digits", self.raw, self.size, secret, seed)


@pytest.fixture(scope="module")
def maker(tmp_path_factory: pytest.TempPathFactory) -> Maker:
    return Maker(tmp_path_factory.mktemp("slots"))


def test_weights_are_replaced_without_new_code(maker: Maker, intaglio: Intaglio) -> None:
    first, second = (maker.image(intaglio, version) for version in (1, 2))
    device = maker.device()
    assert device.open() == NO_WEIGHTS
    assert device.call("slot") == -1
    assert device.call("check") == OK  # those that were linked
    assert device.update(first) == OK
    assert device.open() == OK
    assert (device.call("slot"), device.call("slot_version")) == (0, 1)
    assert device.weights()[: len(first) - 192] == first[192:]
    assert device.update(second, part=7) == OK
    assert device.call("slot_version") == 1  # until it is opened
    assert device.open() == OK
    assert (device.call("slot"), device.call("slot_version")) == (1, 2)
    assert device.call("check") == OK


def test_old_versions_do_not_come_back(maker: Maker, intaglio: Intaglio) -> None:
    images = [maker.image(intaglio, version) for version in (1, 2, 3)]
    device = maker.device()
    device.open()
    assert device.update(images[1]) == OK
    assert device.open() == OK
    before = device.contents(0), device.contents(1)
    assert device.update(images[0]) == OLD_VERSION
    assert device.update(images[1]) == OLD_VERSION
    assert (device.contents(0), device.contents(1)) == before  # refused before anything is erased
    assert device.update(images[2]) == OK
    assert device.open() == OK
    assert device.call("slot_confirm") == OK
    assert device.counter == 3
    assert device.call("slot_reject") == NO_WEIGHTS  # the other is too old by now
    assert device.call("slot_version") == 3


def test_a_version_that_fails_is_rolled_back(maker: Maker, intaglio: Intaglio) -> None:
    images = [maker.image(intaglio, version) for version in (1, 2)]
    device = maker.device()
    device.open()
    for image in images:
        assert device.update(image) == OK
        assert device.open() == OK
    assert device.call("slot_version") == 2
    assert device.call("slot_reject") == OK
    assert device.call("slot_version") == 1
    assert device.open() == OK
    assert device.call("slot_version") == 1


def test_no_changed_bit_is_accepted(maker: Maker, intaglio: Intaglio) -> None:
    """All of the header and the signature, and a sample of the weights."""
    image = maker.image(intaglio, 5)
    device = maker.device()
    bits = [*range(192 * 8), *random.Random(2).sample(range(192 * 8, len(image) * 8), 500)]
    device.put(0, image)
    assert device.open() == OK
    for bit in bits:
        changed = bytearray(image)
        changed[bit // 8] ^= 1 << bit % 8
        device.put(0, bytes(changed))
        assert device.open() == NO_WEIGHTS, bit


def test_an_image_of_another_key_or_other_code_is_refused(maker: Maker, intaglio: Intaglio, tmp_path: Path) -> None:
    maker.image(intaglio, 1)
    device = maker.device()
    device.open()
    other, _ = write_keys(tmp_path)
    said = intaglio("slot", maker.package.folder, "-o", tmp_path / "f", "--version", "2", "--sign", other)
    assert said.code == 0
    assert device.update((tmp_path / "f").read_bytes()) == BAD_IMAGE
    assert device.open() == NO_WEIGHTS
    image = bytearray(maker.image(intaglio, 3))
    image[96] ^= 1
    assert device.update(bytes(image)) == BAD_IMAGE
    whole = maker.image(intaglio, 4)
    assert device.update(whole[:-1]) == BAD_IMAGE
    assert device.update(whole + b"\0") == BAD_IMAGE
    assert device.open() == NO_WEIGHTS


def test_encrypted_weights_are_decrypted_by_the_device(maker: Maker, intaglio: Intaglio) -> None:
    plain = maker.image(intaglio, 1)
    image = maker.image(intaglio, 1, "--encrypt", maker.folder / "secret.bin")
    assert image == maker.image(intaglio, 1, "--encrypt", maker.folder / "secret.bin")  # the same input, the same bytes
    assert plain[192:300] not in image
    device = maker.device(SECRET)
    device.open()
    assert device.update(image) == OK
    assert device.open() == OK
    assert device.weights()[: len(plain) - 192] == plain[192:]
    assert device.call("check") == OK
    wrong = maker.device(bytes(16))
    wrong.put(0, image)
    assert wrong.open() == NO_WEIGHTS
    without = maker.device()
    without.put(0, image)
    assert without.open() == NO_WEIGHTS


def cut(maker: Maker, intaglio: Intaglio, cuts: int) -> dict[str, int]:
    """Updates, confirmations and returns to the version before, each with a loss of power at any byte that is written."""
    images = [maker.image(intaglio, version) for version in range(1, 41)]
    seen = {"old": 0, "new": 0}
    source = random.Random(7)
    for number in range(cuts):
        if number % 19 == 0:
            device, version = maker.device(seed=number), 1
            device.open()
            assert device.update(images[0]) == OK
            assert device.open() == OK
        before = version
        writes = 2 * device.size
        device.left = source.randrange(writes) if number % 4 else source.randrange(max(1, writes - 200), writes + 200)
        action = "reject" if number % 7 == 6 else "update"
        if action == "update":
            device.update(images[before], part=source.choice([64, 200, 4096]))
        else:
            device.call("slot_reject")
        device.left = None  # it starts again
        assert device.open() == OK, (number, action)
        version = device.call("slot_version")
        assert version in ({before, before + 1} if action == "update" else set(range(1, before + 1)))
        assert device.weights()[: maker.size - 192] == images[version - 1][192:]
        seen["new" if version > before else "old"] += 1
    return seen


def test_power_may_go_at_any_byte(maker: Maker, intaglio: Intaglio) -> None:
    seen = cut(maker, intaglio, 400)
    assert min(seen.values()) > 10


@pytest.mark.slow
def test_power_may_go_ten_thousand_times(maker: Maker, intaglio: Intaglio) -> None:
    seen = cut(maker, intaglio, 10_000)
    assert sum(seen.values()) == 10_000
    assert min(seen.values()) > 250


def test_a_retrained_network_fits_the_same_code(maker: Maker, intaglio: Intaglio, tmp_path: Path) -> None:
    import onnx
    from onnx import numpy_helper

    model = onnx.load(DIGITS)
    for tensor in model.graph.initializer:
        array = numpy_helper.to_array(tensor)
        if array.dtype == np.float32:
            tensor.CopyFrom(numpy_helper.from_array(array * np.float32(0.9), tensor.name))
    onnx.save(model, tmp_path / "digits.onnx")
    later = api.compile(tmp_path / "digits.onnx", output=tmp_path / "later", safety=("crc", "slots", "encrypted"))
    said = intaglio(
        "slot", later.folder, "-o", tmp_path / "f", "--version", "9", "--sign", maker.key, "--for", maker.package.folder
    )
    assert said.code == 0, said.err
    maker.image(intaglio, 1)
    device = maker.device()
    assert device.open() == NO_WEIGHTS
    image = np.random.default_rng(1).random((1, 1, 8, 8), np.float32)
    before = run_one(device, image)
    assert device.update((tmp_path / "f").read_bytes()) == OK
    assert device.open() == OK
    assert not np.array_equal(run_one(device, image), before)
    assert np.array_equal(run_one(device, image), later.run({"image": image})["probabilities"].reshape(-1))


def run_one(device: Device, image: Array) -> Array:
    import ctypes

    given, made = np.ascontiguousarray(image), np.zeros(10, np.float32)
    assert device.call("run_one", ctypes.c_void_p(given.ctypes.data), ctypes.c_void_p(made.ctypes.data)) == OK
    return made


def test_other_code_is_refused_on_the_host(maker: Maker, intaglio: Intaglio, tmp_path: Path) -> None:
    other = api.compile(DIGITS, output=tmp_path / "p", safety=("slots",), optimize="size", target="generic")
    said = intaglio(
        "slot", other.folder, "-o", tmp_path / "f", "--version", "1", "--sign", maker.key, "--for", maker.package.folder
    )
    assert said.code == 1
    assert "cannot use the weights" in said.err
    assert not (tmp_path / "f").exists()


def test_images_are_checked_on_the_host(maker: Maker, intaglio: Intaglio, tmp_path: Path) -> None:
    path = tmp_path / "image.bin"
    path.write_bytes(maker.image(intaglio, 3))
    said = intaglio("slot", path, "--check", maker.public, "--json")
    assert said.code == 0
    assert json.loads(said.out)["version"] == 3
    _, other = write_keys(tmp_path)
    assert intaglio("slot", path, "--check", other).code == 1
    path.write_bytes(path.read_bytes()[:-1])
    assert "is damaged" in intaglio("slot", path, "--check", maker.public).err
    path.write_bytes(b"x" * 300)
    assert "is not an image" in intaglio("slot", path, "--check", maker.public).err


def test_mistakes_are_told(maker: Maker, digits: Path, intaglio: Intaglio, tmp_path: Path) -> None:
    folder, out = maker.package.folder, tmp_path / "f"
    bad = tmp_path / "bad.pem"
    bad.write_text("no key")
    cases: tuple[tuple[list[str | Path], str], ...] = (
        ([folder, "-o", out], "needs `--sign`"),
        ([folder, "-o", out, "--sign", maker.key], "needs `--version`"),
        ([folder, "-o", out, "--sign", maker.key, "--version", "0"], "needs `--version`, a number from 1"),
        ([folder, "-o", out, "--sign", maker.key, "--version", "-1"], "is not a version"),
        ([folder, "-o", out, "--sign", bad, "--version", "1"], "is not a private key"),
        ([folder, "-o", out, "--sign", tmp_path / "none", "--version", "1"], "there is no file"),
        ([folder, "-o", out, "--sign", maker.key, "--version", "1", "--encrypt", bad], "not a key of AES"),
        ([digits, "-o", out, "--sign", maker.key, "--version", "1"], "has no slots of weights"),
        ([tmp_path, "-o", out, "--sign", maker.key, "--version", "1"], "is not a package"),
    )
    for words, told in cases:
        said = intaglio("slot", *words)
        assert said.code == 2, words
        assert told in said.err
        assert not out.exists()


def test_encryption_needs_code_that_decrypts(maker: Maker, intaglio: Intaglio, tmp_path: Path) -> None:
    plain = api.compile(DIGITS, output=tmp_path / "p", safety=("slots",))
    (tmp_path / "key.bin").write_bytes(bytes(16))
    words: list[str | Path] = ["-o", tmp_path / "f", "--version", "1", "--sign", maker.key, "--encrypt", tmp_path / "key.bin"]
    for given in ([plain.folder], [maker.package.folder, "--for", plain.folder]):
        said = intaglio("slot", *given, *words)
        assert said.code in (1, 2) and ("cannot decrypt" in said.err or "cannot use" in said.err)
        assert not (tmp_path / "f").exists()
    assert "cannot decrypt" in intaglio("slot", plain.folder, *words).err


def test_a_device_finds_its_weights_with_slots(tmp_path: Path) -> None:
    pytest.importorskip("unicorn")
    package: Package = api.compile(DIGITS, output=tmp_path / "p", target="cortex-m4f", safety=("crc", "slots"))
    assert package.validate().ok
    firmware = package.manifest.firmware
    assert firmware is not None
    assert firmware.weight_bytes == package.manifest.memory.weight_bytes
    assert firmware.code_bytes < 8192
