"""The messages of an HDF5 object header: what a group or a dataset is (section IV of the format)."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

ATTRIBUTE = 0x0C
_MOST_MESSAGES = 1_000_000
_FILTERS = {1: "deflate", 2: "shuffle", 3: "checksum"}
_FLOATS = {(2, 5, 10): "f2", (4, 8, 23): "f4", (8, 11, 52): "f8"}
Piece = Callable[[int, int], bytes]


class Damage(Exception):
    """The bytes make no sense."""


class Refused(Exception):
    """They make sense, and lead outside of the file."""


@dataclass(frozen=True, slots=True)
class Message:
    kind: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Space:
    dims: tuple[int, ...] | None


@dataclass(frozen=True, slots=True)
class Type:
    size: int
    about: str
    numpy: np.dtype[Any] | None = None


@dataclass(frozen=True, slots=True)
class Layout:
    kind: str  # compact, contiguous or chunked
    address: int = 0
    size: int = 0
    data: bytes = b""
    chunk: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Attribute:
    name: str
    type: Type
    space: Space
    data: bytes


def messages(piece: Piece, address: int) -> list[Message]:
    """All messages of the header at an address, of version 1 or 2, with its continuations (IV.A.1)."""
    head = piece(address, 16)
    found: list[Message] = []
    if head[:4] == b"OHDR":
        flags = head[5]
        at = 6 + (16 if flags & 0x20 else 0) + (4 if flags & 0x10 else 0)
        width = 1 << (flags & 3)
        size = int.from_bytes(piece(address + at, width), "little")
        blocks = [(address + at + width, size)]
        step = 6 if flags & 4 else 4
    else:
        if head[0] != 1:
            raise Damage("an object has no header")
        blocks = [(address + 16, struct.unpack_from("<I", head, 8)[0])]
        step = 8
    seen = set()
    while blocks:
        start, size = blocks.pop(0)
        if start in seen:
            raise Damage("a header continues in itself")
        seen.add(start)
        body = piece(start, size)
        at = 0
        while at + step <= len(body):
            if step == 8:
                kind, length, flags = struct.unpack_from("<HHB", body, at)
            else:
                kind, length, flags = struct.unpack_from("<BHB", body, at)
            data = body[at + step : at + step + length]
            if len(data) < length:
                raise Damage("a message is longer than its header")
            at += step + length
            if kind == 0x10:
                place, room = struct.unpack_from("<QQ", data)
                blocks.append((place, room) if step == 8 else (place + 4, room - 8))  # without signature and checksum
            elif flags & 2 and kind in (0x01, 0x03, 0x08, 0x0B, ATTRIBUTE):
                raise Damage("a message is shared with another object")
            else:
                found.append(Message(kind, data))
            if len(found) > _MOST_MESSAGES:
                raise Damage("too many messages")
    return found


def read_space(data: bytes) -> Space:
    version, rank = data[0], data[1]
    if version not in (1, 2) or rank > 32:
        raise Damage(f"a dataspace of version {version} and rank {rank}")
    if version == 2 and data[3] == 2:
        return Space(None)
    return Space(struct.unpack_from(f"<{rank}Q", data, 8 if version == 1 else 4))


def read_type(data: bytes) -> Type:
    """Numbers have a numpy type; of the others only strings are read (IV.A.2.d)."""
    kind, bits = data[0] & 15, data[1:4]
    size = struct.unpack_from("<I", data, 4)[0]
    order = ">" if bits[0] & 1 else "<"
    match kind:
        case 0 if size in (1, 2, 4, 8):
            return Type(size, "integer", np.dtype(f"{order}{'i' if bits[0] & 8 else 'u'}{size}"))
        case 1:
            _, _, _, exponent, _, mantissa = struct.unpack_from("<HHBBBB", data, 8)
            name = _FLOATS.get((size, exponent, mantissa))
            if name is not None and not bits[0] & 0x40:
                return Type(size, "float", np.dtype(f"{order}{name}"))
            if (size, exponent, mantissa) == (2, 8, 7):
                return Type(size, "bfloat16", np.dtype(f"{order}u2"))
        case 3:
            return Type(size, "string")
        case 8 if size == 1:  # h5py's bool
            return Type(size, "bool", np.dtype("u1"))
        case 9 if bits[0] & 15 == 1:
            return Type(size, "strings")
    return Type(size, f"HDF5 class {kind} of {size} bytes")


def read_layout(data: bytes) -> Layout:
    version, kind = data[0], data[1]
    if version in (1, 2):  # before HDF5 1.6
        rank, kind = data[1], data[2]
        if kind != 1:
            raise Damage("a layout of an old version that is not in one piece")
        dims = struct.unpack_from(f"<{rank}I", data, 16)
        size = 1
        for dim in dims:
            size *= dim
        return Layout("contiguous", struct.unpack_from("<Q", data, 8)[0], size)
    if version not in (3, 4):
        raise Damage(f"a layout of version {version}")
    match kind:
        case 0:
            size = struct.unpack_from("<H", data, 2)[0]
            return Layout("compact", data=data[4 : 4 + size])
        case 1:
            address, size = struct.unpack_from("<QQ", data, 2)
            return Layout("contiguous", address, 0 if address == 2**64 - 1 else size)
        case 2 if version == 3:
            rank = data[2]
            address = struct.unpack_from("<Q", data, 3)[0]
            return Layout("chunked", address, chunk=struct.unpack_from(f"<{rank}I", data, 11))
        case 3:
            raise Refused("an array is put together from other files")
    raise Damage("arrays are stored in a newer format than Keras writes")


def read_filters(data: bytes) -> list[int]:
    version, count = data[0], data[1]
    if version not in (1, 2):
        raise Damage(f"a filter pipeline of version {version}")
    at, found = (8 if version == 1 else 2), []
    for _ in range(count):
        kind = struct.unpack_from("<H", data, at)[0]
        if kind not in _FILTERS:
            raise Refused(f"an array is compressed by the filter {kind}, which is not supported")
        named = version == 1 or kind >= 256
        length = struct.unpack_from("<H", data, at + 2)[0] if named else 0
        values = struct.unpack_from("<H", data, at + (6 if named else 4))[0]
        at += (8 if named else 6) + length + 4 * values + (4 if version == 1 and values % 2 else 0)
        found.append(kind)
    return found


def read_attribute(data: bytes) -> Attribute:
    version = data[0]
    if version not in (1, 2, 3):
        raise Damage(f"an attribute of version {version}")
    sizes = struct.unpack_from("<HHH", data, 2)
    at = 9 if version == 3 else 8
    parts = []
    for size in sizes:
        if at + size > len(data):
            raise Damage("an attribute is longer than its message")
        parts.append(data[at : at + size])
        at += (size + 7) // 8 * 8 if version == 1 else size
    if len(parts[1]) < 8 or len(parts[2]) < 3:
        raise Damage("an attribute has no type")
    name = parts[0].split(b"\0")[0].decode("utf-8", "replace")
    return Attribute(name, read_type(parts[1]), read_space(parts[2]), data[at:])


def read_link(data: bytes) -> tuple[str, int | None]:
    """The name of a link and where it leads; None: to another place."""
    version, flags = data[0], data[1]
    if version != 1:
        raise Damage(f"a link of version {version}")
    at, kind = 2, 0
    if flags & 8:
        kind, at = data[at], at + 1
    at += (8 if flags & 4 else 0) + (1 if flags & 0x10 else 0)
    width = 1 << (flags & 3)
    length = int.from_bytes(data[at : at + width], "little")
    at += width
    name = data[at : at + length]
    if len(name) < length:
        raise Damage("a link is longer than its message")
    target = struct.unpack_from("<Q", data, at + length)[0] if kind == 0 else None
    return name.decode("utf-8", "replace"), target
