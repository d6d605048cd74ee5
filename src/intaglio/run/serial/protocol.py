"""Frames of the serial line. The other side is `package/templates/baremetal/src/NAME_serial.c.j2`.

    frame    "IG"   type   number   length   payload   CRC-32 of type to payload
    bytes    2      1      1        2        length    4                          little endian

An answer has the type of its request + 128, the same number, and a status as the first byte of its payload.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass
from enum import IntEnum

VERSION = 1
START = b"IG"
ANSWER = 128
MOST_BYTES = 0xFFFF  # of a payload
_HEAD = struct.Struct("<BBH")
_CRC = struct.Struct("<I")


class Request(IntEnum):
    INFO = 1
    TENSOR = 2
    SELFTEST = 3
    RESET = 4
    WRITE = 5
    RUN = 6
    READ = 7
    PROFILE = 8
    BEGIN = 9
    PUSH = 10


class Status(IntEnum):
    OK = 0
    DAMAGED = 1
    UNKNOWN = 2
    LENGTH = 3
    RANGE = 4
    ABSENT = 5


@dataclass(frozen=True, slots=True)
class Frame:
    type: int
    number: int
    payload: bytes = b""

    def packed(self) -> bytes:
        body = _HEAD.pack(self.type, self.number, len(self.payload)) + self.payload
        return START + body + _CRC.pack(zlib.crc32(body))


class Frames:
    """Whole frames out of bytes as they come. What is no frame is skipped, and counted."""

    def __init__(self) -> None:
        self._bytes = bytearray()
        self.skipped = 0

    def add(self, data: bytes) -> None:
        self._bytes += data

    def clear(self) -> None:
        self._skip(len(self._bytes))

    def next(self) -> Frame | None:
        """None: there is none yet."""
        while True:
            start = self._bytes.find(START)
            if start < 0:
                self._skip(len(self._bytes) - self._bytes.endswith(START[:1]))
                return None
            self._skip(start)
            found = self._bytes[len(START) :]
            if len(found) < _HEAD.size:
                return None
            type_, number, length = _HEAD.unpack_from(found)
            end = _HEAD.size + length
            if len(found) < end + _CRC.size:
                return None
            if zlib.crc32(found[:end]) == _CRC.unpack_from(found, end)[0]:
                del self._bytes[: len(START) + end + _CRC.size]
                return Frame(type_, number, bytes(found[_HEAD.size : end]))
            self._skip(1)  # the real start may be inside of it

    def _skip(self, count: int) -> None:
        del self._bytes[:count]
        self.skipped += count


@dataclass(frozen=True, slots=True)
class Info:
    """What firmware says of itself."""

    hooked: bool  # it knows the cycles of each layer
    emulated: bool  # on an emulated core, whose cycles are estimates
    chunk: int  # bytes of a tensor in one frame
    inputs: int
    outputs: int
    layers: int
    clock_hz: int  # 0: not known
    rows: int  # of an input that comes row by row; 0: none does
    build: str
    name: str


_INFO = struct.Struct("<BBHHHIII64s")
INFO_BYTES = _INFO.size


def info_of(data: bytes) -> tuple[int, Info]:
    """The version of the protocol, and what a version like ours says. ValueError: it is too short, or not text."""
    if len(data) < _INFO.size:
        raise ValueError("too short")
    version, flags, chunk, inputs, outputs, layers, clock, rows, build = _INFO.unpack_from(data)
    name = data[_INFO.size :].decode("ascii")
    return version, Info(
        bool(flags & 1), bool(flags & 2), chunk, inputs, outputs, layers, clock, rows, build.decode("ascii"), name
    )
