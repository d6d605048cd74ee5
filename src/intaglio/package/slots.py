"""Weights that are replaced in the field: two slots of flash, each with an image that is signed and has a version.

An image, little endian. The signature (Ed25519, RFC 8032) covers all that follows it, in one piece:

    0     signature    64      Ed25519
    64    "IGSLOT"      8      with the format, 1, as last byte
    72    size          4      bytes of weights
    76    version       4
    80    CRC-32        4      of the weights as they stand here
    84    encrypted     4      0, or 1: AES-CTR
    88    CRC-32        4      of the weights in plain
    92    0             4
    96    layout       32      SHA-256 of the code that reads them, without comments
    128   counter      16      the first counter block, where they are encrypted
    144   0            48
    192   weights

A package has the image without signature and version, `weights/NAME_slot.bin`; `intaglio slot` completes it. Encryption comes
first, then the signature: a device checks before it decrypts.
"""

from __future__ import annotations

import hmac
import struct
import zlib
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

from intaglio.errors import ToolError, UserError, install_hint, quoted
from intaglio.fitting.weights import Weights
from intaglio.kernels.program import Constant
from intaglio.package.folder import check_kind, fresh_file
from intaglio.package.manifest import read_manifest
from intaglio.package.safety import layout_digest
from intaglio.package.weights import write_block

MAGIC = b"IGSLOT\0\1"
HEADER_BYTES = 192
SIGNATURE_BYTES = 64
MOST_VERSION = 2**32 - 1
_FIELDS = struct.Struct("<8sIIIIII32s16s")
KEY_HINT = "`openssl genpkey -algorithm ed25519 -out KEY.pem` makes a key"


@dataclass(frozen=True, slots=True)
class Image:
    """`weights` as they stand in the file."""

    version: int
    encrypted: bool
    layout: bytes
    plain_crc: int
    counter: bytes
    weights: bytes

    def message(self) -> bytes:
        """What is signed."""
        crc = zlib.crc32(self.weights)
        head = _FIELDS.pack(
            MAGIC, len(self.weights), self.version, crc, self.encrypted, self.plain_crc, 0, self.layout, self.counter
        )
        return head.ljust(HEADER_BYTES - SIGNATURE_BYTES, b"\0") + self.weights


def image_name(name: str) -> str:
    """In a package: the image without a signature."""
    return f"weights/{name}_slot.bin"


def write_slots(constants: list[Constant], weights: Weights, name: str, folder: Path) -> None:
    """The image of these weights, and what the code compares it with."""
    block = BytesIO()
    write_block(constants, weights, block)
    data = block.getvalue()
    layout = layout_digest(name, folder / "src")
    path = folder / image_name(name)
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(bytes(SIGNATURE_BYTES) + Image(0, False, layout, zlib.crc32(data), bytes(16), data).message())
    rows = ", ".join(f"0x{byte:02x}" for byte in layout)
    about = f"/* SHA-256 of the code that reads the weights of {name}, without comments. */"
    text = f"{about}\n#define {name.upper()}_LAYOUT {{{rows}}}\n"
    (folder / "src" / f"{name}_layout.h").write_text(text, encoding="ascii")


def read_image(data: bytes, shown: str) -> Image:
    hint = "`intaglio slot DIR -o F --version N --sign KEY.pem` writes one"
    if len(data) < HEADER_BYTES or data[SIGNATURE_BYTES : SIGNATURE_BYTES + 8] != MAGIC:
        raise UserError("not-an-image", f"{shown} is not an image of weights", hint=hint)
    _, size, version, crc, encrypted, plain, zero, layout, counter = _FIELDS.unpack_from(data, SIGNATURE_BYTES)
    weights = data[HEADER_BYTES:]
    if size != len(weights) or crc != zlib.crc32(weights) or encrypted not in (0, 1) or zero:
        raise UserError("damaged-image", f"the image {shown} is damaged", hint=hint)
    return Image(version, bool(encrypted), layout, plain, counter, weights)


def image_of_package(folder: Path) -> Image:
    manifest = read_manifest(folder)
    path = folder / image_name(manifest.name)
    if not path.is_file():
        hint = "compile the model with `--safety slots`"
        raise UserError("no-slots", f"the package {quoted(str(folder), 200)} has no slots of weights", hint=hint)
    return read_image(path.read_bytes(), quoted(str(path), 200))


def sign_image(image: Image, version: int, key: Path, secret: Path | None) -> tuple[bytes, bytes]:
    """The image as a device takes it, and the public key."""
    if not 0 < version <= MOST_VERSION:
        raise UserError("bad-option", f"`--version {version}` is not a version", hint=f"a number from 1 to {MOST_VERSION}")
    private = _private_key(key)
    counter, weights = image.counter, image.weights
    if secret is not None:
        key_bytes = _secret(secret)
        told = version.to_bytes(4, "little") + image.layout + weights
        counter = hmac.digest(key_bytes, told, "sha256")[:8] + bytes(8)  # other weights, another counter; the second half counts
        weights = _crypt(key_bytes, counter, weights)
    message = Image(version, secret is not None, image.layout, image.plain_crc, counter, weights).message()
    return private.sign(message) + message, private.public_key().public_bytes_raw()


def check_image(data: bytes, key: Path, shown: str) -> tuple[Image, bool]:
    """Is it whole (an error otherwise), and signed by this key?"""
    image = read_image(data, shown)
    public, invalid = _public_key(key)
    try:
        public.verify(data[:SIGNATURE_BYTES], data[SIGNATURE_BYTES:])
    except invalid:
        return image, False
    return image, True


def write_image(data: bytes, path: Path) -> None:
    check_kind(path, "an image of a slot", (MAGIC,), SIGNATURE_BYTES)
    with fresh_file(path) as fresh:
        fresh.write_bytes(data)


def _crypt(secret: bytes, counter: bytes, data: bytes) -> bytes:
    ciphers = _library("cryptography.hazmat.primitives.ciphers")
    modes = _library("cryptography.hazmat.primitives.ciphers.modes")
    algorithms = _library("cryptography.hazmat.primitives.ciphers.algorithms")
    stream = ciphers.Cipher(algorithms.AES(secret), modes.CTR(counter)).encryptor()
    return bytes(stream.update(data) + stream.finalize())


def _secret(path: Path) -> bytes:
    data = _read(path)
    if len(data) not in (16, 32):
        hint = "`openssl rand -out KEY.bin 16` makes one; 32 bytes for AES-256"
        raise UserError("bad-key", f"{quoted(str(path), 200)} is not a key of AES: it has {len(data)} bytes", hint=hint)
    return data


def _private_key(path: Path) -> Any:
    data = _read(path)
    serialization, ed25519 = _keys()
    try:
        key = serialization.load_pem_private_key(data, password=None)
    except (ValueError, TypeError) as error:
        raise UserError("bad-key", f"{quoted(str(path), 200)} is not a private key: {_first(error)}", hint=KEY_HINT) from None
    if not isinstance(key, ed25519.Ed25519PrivateKey):
        raise UserError("bad-key", f"{quoted(str(path), 200)} is not a key of Ed25519", hint=KEY_HINT)
    return key


def _public_key(path: Path) -> tuple[Any, type[Exception]]:
    data = _read(path)
    serialization, ed25519 = _keys()
    hint = "`openssl pkey -in KEY.pem -pubout -out PUBLIC.pem` writes the public key of a private one"
    try:
        key = serialization.load_pem_public_key(data)
    except (ValueError, TypeError) as error:
        raise UserError("bad-key", f"{quoted(str(path), 200)} is not a public key: {_first(error)}", hint=hint) from None
    if not isinstance(key, ed25519.Ed25519PublicKey):
        raise UserError("bad-key", f"{quoted(str(path), 200)} is not a key of Ed25519", hint=hint)
    return key, _library("cryptography.exceptions").InvalidSignature


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        raise UserError("no-file", f"there is no file {quoted(str(path), 200)}", hint="check the path") from None


def _keys() -> tuple[Any, Any]:
    asymmetric = _library("cryptography.hazmat.primitives.asymmetric.ed25519")
    return _library("cryptography.hazmat.primitives.serialization"), asymmetric


def _library(part: str) -> Any:
    import importlib

    try:
        return importlib.import_module(part)
    except ImportError as error:
        hint = f"{install_hint('sign')} installs it"
        raise ToolError("no-signing", f"images of weights need the package `cryptography`: {error}", hint=hint) from None


def _first(error: Exception) -> str:
    return (str(error).strip().splitlines() or [""])[0][:200]
