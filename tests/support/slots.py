"""Two slots of weights in a flash that loses its power: a library with `--safety slots`, with callbacks in Python."""

from __future__ import annotations

import ctypes
import random
from pathlib import Path
from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import CTR
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

PAGE = 256
ALIGNMENT = 64
_ERASE = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_int)
_PROGRAM = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t, ctypes.POINTER(ctypes.c_ubyte), ctypes.c_size_t
)
_VERIFY = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)
_LEAST = ctypes.CFUNCTYPE(ctypes.c_uint32, ctypes.c_void_p)
_RAISE = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_uint32)
_DECRYPT = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)


class _Slots(ctypes.Structure):
    _fields_ = [
        ("slot", ctypes.c_void_p * 2), ("context", ctypes.c_void_p), ("erase", _ERASE), ("program", _PROGRAM), ("verify", _VERIFY),
        ("least_version", _LEAST), ("raise_least_version", _RAISE), ("decrypt", _DECRYPT), ("ram", ctypes.c_void_p),
    ]  # fmt: skip


def write_keys(folder: Path) -> tuple[Path, Path]:
    """A private and a public key."""
    key = Ed25519PrivateKey.generate()
    private, public = folder / "key.pem", folder / "public.pem"
    private.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    public.write_bytes(key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
    return private, public


class Device:
    """`left`: bytes that are written or erased before the power goes; then nothing changes any more."""

    def __init__(self, library: Path, name: str, public: bytes, size: int, secret: bytes = b"", seed: int = 0) -> None:
        self.library, self.name = ctypes.CDLL(str(library)), name
        self.size = -(-size // PAGE) * PAGE
        self._memory = ctypes.create_string_buffer(2 * self.size + ALIGNMENT)
        start = ctypes.addressof(self._memory)
        self.start = start + -start % ALIGNMENT
        self._ram = ctypes.create_string_buffer(size + ALIGNMENT)
        self._random, self._public, self._secret = random.Random(seed), Ed25519PublicKey.from_public_bytes(public), secret
        self.left: int | None = None
        self.counter = 0
        self.slots = _Slots()
        self.slots.slot[0], self.slots.slot[1] = self.start, self.start + self.size
        self.slots.erase, self.slots.program, self.slots.verify = (
            _ERASE(self._erase),
            _PROGRAM(self._program),
            _VERIFY(self._verify),
        )
        self.slots.least_version = _LEAST(lambda _: self.counter)
        self.slots.raise_least_version = _RAISE(self._raise)
        if secret:
            ram = ctypes.addressof(self._ram)
            self.slots.decrypt, self.slots.ram = _DECRYPT(self._decrypt), ram + -ram % ALIGNMENT
        for slot in range(2):
            self._erase(None, slot)

    def call(self, function: str, *words: Any) -> int:
        return int(getattr(self.library, f"{self.name}_{function}")(*words))

    def open(self) -> int:
        return self.call("slots_open", ctypes.byref(self.slots))

    def update(self, image: bytes, part: int = 1000) -> int:
        code = self.call("update_begin", image[:192])
        for at in range(192, len(image), part):
            code = code or self.call("update_write", image[at : at + part], len(image[at : at + part]))
        return code or self.call("update_finish")

    def contents(self, slot: int) -> bytes:
        return ctypes.string_at(self.start + slot * self.size, self.size)

    def put(self, slot: int, image: bytes) -> None:
        ctypes.memmove(self.start + slot * self.size, image, len(image))

    def weights(self) -> bytes:
        """In use."""
        at = ctypes.c_void_p.in_dll(self.library, f"{self.name}_current_weights").value
        assert at is not None
        return ctypes.string_at(at, self.size - 192)

    def _spend(self, wanted: int) -> int:
        """How many of these bytes are changed before the power goes."""
        if self.left is None:
            return wanted
        done = min(wanted, self.left)
        self.left -= done
        return done

    def _garble(self, at: int, count: int) -> None:
        """What was under way has any bits."""
        ctypes.memmove(at, self._random.randbytes(count), count)

    def _erase(self, _: object, slot: int) -> int:
        base = self.start + slot * self.size
        for at in range(0, self.size, PAGE):
            done = self._spend(PAGE)
            if done == PAGE:
                ctypes.memset(base + at, 0xFF, PAGE)
            elif done:
                self._garble(base + at, PAGE)
            if done < PAGE:
                return 1
        return 0

    def _program(self, _: object, slot: int, offset: int, data: Any, count: int) -> int:
        at = self.start + slot * self.size + offset
        assert offset + count <= self.size
        done = self._spend(count)
        old, new = ctypes.string_at(at, done), bytes(data[:done])
        ctypes.memmove(at, bytes(a & b for a, b in zip(old, new, strict=True)), done)  # flash turns ones into zeros alone
        if done < count:
            if self.left == 0 and done:
                self._garble(at + done - 1, min(8, count - done + 1))
                self.left = -1
            return 1
        return 0

    def _verify(self, _: object, signature: int, message: int, count: int) -> int:
        try:
            self._public.verify(ctypes.string_at(signature, 64), ctypes.string_at(message, count))
        except InvalidSignature:
            return 1
        return 0

    def _raise(self, _: object, version: int) -> int:
        if self._spend(4) == 4:
            self.counter = max(self.counter, version)
            return 0
        return 1

    def _decrypt(self, _: object, counter: int, source: int, to: int, count: int) -> int:
        stream = Cipher(AES(self._secret), CTR(ctypes.string_at(counter, 16))).decryptor()
        ctypes.memmove(to, stream.update(ctypes.string_at(source, count)), count)
        return 0
