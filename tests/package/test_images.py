"""Images of weights without a compiler: their bytes are those of the document, and what is not whole or not signed is refused."""

from __future__ import annotations

import hmac
import struct
import zlib
from pathlib import Path

import pytest

from intaglio.errors import UserError
from intaglio.fitting.weights import Weights
from intaglio.package.safety import layout_digest
from intaglio.package.slots import (
    HEADER_BYTES,
    MOST_VERSION,
    Image,
    check_image,
    image_name,
    read_image,
    sign_image,
    write_image,
    write_slots,
)
from support.slots import write_keys

WEIGHTS = bytes(range(200))
IMAGE = Image(7, False, b"L" * 32, 0x12345678, bytes(16), WEIGHTS)


def whole(image: Image = IMAGE) -> bytes:
    return b"S" * 64 + image.message()


def test_the_bytes_are_those_of_the_document() -> None:
    """Written out by hand: devices in the field read them."""
    encrypted = Image(7, True, b"L" * 32, 0x12345678, b"C" * 16, WEIGHTS)
    head = b"IGSLOT\0\1" + struct.pack("<IIIIII", 200, 7, zlib.crc32(WEIGHTS), 1, 0x12345678, 0) + b"L" * 32 + b"C" * 16
    assert encrypted.message() == head + bytes(48) + WEIGHTS
    assert len(whole()) == 192 + 200 and whole()[192:] == WEIGHTS
    for image in (IMAGE, encrypted):
        assert read_image(whole(image), "F") == image


def test_an_image_may_have_no_weights() -> None:
    empty = Image(1, False, b"L" * 32, 0, bytes(16), b"")
    assert read_image(whole(empty), "F") == empty
    with pytest.raises(UserError, match="not an image"):
        read_image(whole(empty)[: HEADER_BYTES - 1], "F")


@pytest.mark.parametrize(
    ("at", "field"),
    [(72, "<I"), (80, "<I"), (92, "<I")],
    ids=["size", "CRC-32", "what has to be 0"],
)  # fmt: skip
def test_a_field_that_is_off_by_one_is_damage(at: int, field: str) -> None:
    data = bytearray(whole())
    struct.pack_into(field, data, at, struct.unpack_from(field, data, at)[0] + 1)
    with pytest.raises(UserError, match="is damaged"):
        read_image(bytes(data), "F")


@pytest.mark.parametrize("encrypted", [2, 3, 256])
def test_encrypted_is_yes_or_no(encrypted: int) -> None:
    data = bytearray(whole())
    struct.pack_into("<I", data, 84, encrypted)
    with pytest.raises(UserError, match="is damaged"):
        read_image(bytes(data), "F")


@pytest.mark.parametrize("data", [whole()[:-1], whole() + b"\0", whole()[:-1] + b"\0"], ids=["shorter", "longer", "changed"])
def test_weights_that_are_not_whole_are_damage(data: bytes) -> None:
    with pytest.raises(UserError, match="is damaged"):
        read_image(data, "F")


def test_versions_have_32_bits_and_none_is_0(tmp_path: Path) -> None:
    private, public = write_keys(tmp_path)
    for version in (1, 2**32 - 1):
        data, _ = sign_image(IMAGE, version, private, None)
        assert check_image(data, public, "F") == (Image(version, False, b"L" * 32, 0x12345678, bytes(16), WEIGHTS), True)
    for version in (-1, 0, 2**32):
        with pytest.raises(UserError, match=f"`--version {version}` is not a version") as told:
            sign_image(IMAGE, version, private, None)
        assert told.value.hint == f"a number from 1 to {MOST_VERSION}"


def test_a_signature_covers_everything(tmp_path: Path) -> None:
    private, public = write_keys(tmp_path)
    data, raw = sign_image(IMAGE, 3, private, None)
    assert len(raw) == 32
    for at in (0, 63, 76, 88, 96, 127, 128, 143, 144, 191):  # what the CRC-32 of the weights does not say
        changed = bytearray(data)
        changed[at] ^= 1
        assert check_image(bytes(changed), public, "F")[1] is False, at


@pytest.mark.parametrize("size", [0, 15, 16, 17, 24, 31, 32, 33, 64])
def test_keys_of_aes_have_16_or_32_bytes(size: int, tmp_path: Path) -> None:
    private, _ = write_keys(tmp_path)
    secret = tmp_path / "secret.bin"
    secret.write_bytes(bytes(range(size)))
    if size not in (16, 32):
        with pytest.raises(UserError, match=f"is not a key of AES: it has {size} bytes"):
            sign_image(IMAGE, 1, private, secret)
        return
    images = [read_image(sign_image(IMAGE, version, private, secret)[0], "F") for version in (1, 1, 2)]
    assert images[0] == images[1], "the same input gives the same bytes"
    assert images[0].encrypted and images[0].weights != WEIGHTS and images[0].plain_crc == IMAGE.plain_crc
    assert images[0].counter != images[2].counter and images[0].weights != images[2].weights, "another version, another counter"
    told = (2).to_bytes(4, "little") + IMAGE.layout + WEIGHTS
    first_half = hmac.digest(secret.read_bytes(), told, "sha256")[:8]
    assert images[2].counter == first_half + bytes(8), "its second half counts blocks"


def test_a_key_of_another_kind_is_refused(tmp_path: Path) -> None:
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

    private, public = write_keys(tmp_path)
    other = X25519PrivateKey.generate()
    data, _ = sign_image(IMAGE, 1, private, None)
    private.write_bytes(other.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    public.write_bytes(other.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
    with pytest.raises(UserError, match="is not a key of Ed25519"):
        sign_image(IMAGE, 1, private, None)
    with pytest.raises(UserError, match="is not a key of Ed25519"):
        check_image(data, public, "F")
    for path in (private, public):
        path.write_text("no key")
    with pytest.raises(UserError, match=r"is not a private key: [^\n]{10}"):
        sign_image(IMAGE, 1, private, None)
    with pytest.raises(UserError, match=r"is not a public key: [^\n]{10}"):
        check_image(data, public, "F")


def test_an_image_replaces_an_image_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "image.bin"
    for data in (whole(), whole(Image(8, False, b"M" * 32, 1, bytes(16), b"other"))):
        write_image(data, path)
        assert path.read_bytes() == data
    path.write_bytes(b"a thesis")
    with pytest.raises(UserError, match="exists and is not an image of a slot"):
        write_image(whole(), path)
    assert path.read_bytes() == b"a thesis"


def test_the_image_of_a_package_waits_for_a_version(tmp_path: Path) -> None:
    """The folder of weights may be there already, with other files."""
    for _ in range(2):
        (tmp_path / "src").mkdir(exist_ok=True)
        (tmp_path / "src" / "net.c").write_text("int net; /* a comment */")
        write_slots([], Weights({}, 24), "net", tmp_path)
        data = (tmp_path / image_name("net")).read_bytes()
        assert data[:64] == bytes(64)
        layout = layout_digest("net", tmp_path / "src")
        assert read_image(data, "F") == Image(0, False, layout, zlib.crc32(bytes(24)), bytes(16), bytes(24))
        text = (tmp_path / "src" / "net_layout.h").read_text()
        assert f"#define NET_LAYOUT {{{', '.join(f'0x{byte:02x}' for byte in layout)}}}" in text


def test_the_layout_is_that_of_the_code_without_comments(tmp_path: Path) -> None:
    def digest(**files: str) -> bytes:
        for old in tmp_path.iterdir():
            old.unlink()
        for name, text in files.items():
            (tmp_path / name.replace("__", ".")).write_text(text)
        return layout_digest("net", tmp_path)

    plain = digest(net__c="int a;", net_kernels_0__c="int k;")
    assert digest(net__c="int a;/* one\ntwo */", net_kernels_0__c="int k;", other__c="int o;") == plain
    different = [digest(net__c="int b;", net_kernels_0__c="int k;"), digest(net__c="int a;"), digest(net__c="int a;int k;")]
    different += [
        digest(net__c="int a;", net_kernels_0__c="int k;", **{name: "int w;"}) for name in ("net_weights__h", "net_helpers__h")
    ]
    assert len({plain, *different}) == 6
