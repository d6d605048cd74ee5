"""NAME.clbin, the program cache: bytes to records and back (docs/reference/program-cache.md). Package code in C reads the same.

    header    "IGCLBIN\\0", format, 0                                                   16 bytes
    record    "IGRC", kind, size of the body, key, SHA-256 of the body, time, 0,
              SHA-256 of all that                                                     128 bytes
              body, with zeros up to a multiple of 16
    record    ...

Reading never fails on bytes, whatever they are: what is damaged is skipped and counted, what follows it is found again. Nothing of
a body is believed before its digest is right.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

MAGIC = b"IGCLBIN\0"
FORMAT = 1
START = struct.Struct("<8sII")
RECORD_MAGIC = b"IGRC"
HEADER = struct.Struct("<4sIQ32s32sqQ32s")
ALIGN = 16

PROGRAM, TUNING, MARK, WRONG = 1, 2, 3, 4  # wrong: a program that was built from source and computes a layer wrong; kept as it is
CHECKED, DISTRUSTED = 1, 2

FIELDS = (
    "source", "options", "platform name", "platform version", "device name", "device vendor", "device version",
    "driver version", "address bits",
)  # fmt: skip
TUNING_FIELDS = ("tables", "platform name", "device name", "device vendor")


class Malformed(Exception):
    """A body that says something else than its kind may say."""


@dataclass(frozen=True, slots=True)
class Program:
    """`fields` in the order of FIELDS. Texts are the driver's bytes; what is no UTF-8 is kept as surrogates."""

    fields: tuple[str, ...]
    report: str
    self_tests: tuple[tuple[str, bytes], ...]
    binary: bytes

    def field(self, name: str) -> str:
        return self.fields[FIELDS.index(name)]


@dataclass(frozen=True, slots=True)
class TunedLaunch:
    local: tuple[int, int, int]
    nanoseconds: int


@dataclass(frozen=True, slots=True)
class Tuning:
    """For each layer the variant, and the work-group size of each of its launches. `fields` in the order of TUNING_FIELDS."""

    fields: tuple[str, ...]
    layers: tuple[tuple[int, tuple[TunedLaunch, ...]], ...]

    def field(self, name: str) -> str:
        return self.fields[TUNING_FIELDS.index(name)]


@dataclass(frozen=True, slots=True)
class Mark:
    what: int  # CHECKED or DISTRUSTED
    reason: str


Content: TypeAlias = Program | Tuning | Mark


@dataclass(frozen=True)
class Record:
    """Header and body digest are right. `content` is None for a kind that is not known here: such records are kept as they are."""

    kind: int
    key: bytes
    body: bytes
    written: int  # seconds since 1970, information alone

    @cached_property
    def _decoded(self) -> tuple[Content | None, str]:
        try:
            return _decode(self.kind, self.key, self.body), ""
        except Malformed as problem:
            return None, str(problem)

    @property
    def content(self) -> Content | None:
        return self._decoded[0]

    @property
    def problem(self) -> str:
        """Why the body, whose digest is right, is not usable all the same."""
        return self._decoded[1]


@dataclass(frozen=True, slots=True)
class Damage:
    offset: int
    size_bytes: int
    reason: str


@dataclass(frozen=True, slots=True)
class CacheFile:
    """`problem`: it is not a program cache of this format, and there are no records. `foreign`: it is nothing of ours."""

    records: tuple[Record, ...] = ()
    damage: tuple[Damage, ...] = ()
    problem: str = ""
    foreign: bool = False

    @property
    def sound(self) -> bool:
        return not self.damage and not self.problem and not any(record.problem for record in self.records)


def parse(data: bytes, ours: bool = False) -> CacheFile:
    """`ours`: by its name it is a program cache; where its first bytes are wrong they are damaged, and records are looked for."""
    if not data:
        return CacheFile(problem="it is empty")
    if MAGIC.startswith(data) or (data.startswith(MAGIC) and len(data) < START.size):
        return CacheFile(problem="it is cut short")  # nothing in it but a part of our first bytes
    records: list[Record] = []
    damage: list[Damage] = []
    at, bad_from, reason = START.size, -1, ""
    if not data.startswith(MAGIC):
        if not ours:
            return CacheFile(problem=NO_MAGIC, foreign=True)
        at, bad_from, reason = _next_header(data, 0), 0, NO_MAGIC
    elif (version := START.unpack_from(data)[1]) != FORMAT:
        return CacheFile(problem=f"it has format {version}, this version of Intaglio reads {FORMAT}")
    while at < len(data):
        found, size_bytes, why = _record(data, at)
        if why:
            if bad_from < 0 or why != NO_HEADER:
                if bad_from >= 0:
                    damage.append(Damage(bad_from, at - bad_from, reason))
                bad_from, reason = at, why
            at = _next_header(data, at + (size_bytes or ALIGN))
            continue
        if bad_from >= 0:
            damage.append(Damage(bad_from, at - bad_from, reason))
            bad_from = -1
        assert found is not None
        records.append(found)
        at += size_bytes
    if bad_from >= 0:
        damage.append(Damage(bad_from, len(data) - bad_from, reason))
    return CacheFile(tuple(records), tuple(damage))


NO_HEADER = "no valid record header"
NO_MAGIC = "it does not begin like a program cache"


def _record(data: bytes, at: int) -> tuple[Record | None, int, str]:
    """The record there, its size with padding, and what is wrong with it. A body with a wrong digest is passed over as a whole: to
    look for records in it would take quadratic time in a file made for that."""
    head = data[at : at + HEADER.size]
    if len(head) < HEADER.size or not head.startswith(RECORD_MAGIC):
        return None, 0, NO_HEADER
    _, kind, length, key, digest, written, _, own = HEADER.unpack(head)
    if hashlib.sha256(head[:96]).digest() != own:
        return None, 0, NO_HEADER
    start = at + HEADER.size
    if length > len(data) - start:
        return None, 0, "the file ends within this record"
    body = data[start : start + length]
    if hashlib.sha256(body).digest() != digest:
        return None, HEADER.size + _padded(length), "the digest of the record's bytes is wrong"
    return Record(kind, key, body, written), HEADER.size + _padded(length), ""


def _next_header(data: bytes, at: int) -> int:
    """Where a record may start, at or after a multiple of 16."""
    while at < len(data):
        found = data.find(RECORD_MAGIC, at)
        if found < 0:
            return len(data)
        if found % ALIGN == 0:
            return found
        at = found + 1
    return len(data)


def _padded(size: int) -> int:
    return -(-size // ALIGN) * ALIGN


def dump(records: Iterable[Record]) -> bytes:
    parts = [START.pack(MAGIC, FORMAT, 0)]
    for record in records:
        digest = hashlib.sha256(record.body).digest()
        head = HEADER.pack(RECORD_MAGIC, record.kind, len(record.body), record.key, digest, record.written, 0, b"")[:96]
        parts += [head, hashlib.sha256(head).digest(), record.body, bytes(_padded(len(record.body)) - len(record.body))]
    return b"".join(parts)


# Bodies


def program_key(fields: Sequence[str]) -> bytes:
    return _key("intaglio-program", fields)


def tuning_key(fields: Sequence[str]) -> bytes:
    return _key("intaglio-tuning", fields)


def _key(what: str, fields: Sequence[str]) -> bytes:
    return hashlib.sha256(b"".join(_text(field) for field in (what, str(FORMAT), *fields))).digest()


def program_record(program: Program, written: int = 0) -> Record:
    parts = [struct.pack("<I", len(program.fields)), *map(_text, program.fields), _text(program.report)]
    parts.append(struct.pack("<I", len(program.self_tests)))
    parts += [_text(name) + digest for name, digest in program.self_tests]
    parts += [struct.pack("<Q", len(program.binary)), hashlib.sha256(program.binary).digest(), program.binary]
    return Record(PROGRAM, program_key(program.fields), b"".join(parts), written)


def tuning_record(tuning: Tuning, written: int = 0) -> Record:
    parts = [struct.pack("<I", len(tuning.fields)), *map(_text, tuning.fields), struct.pack("<I", len(tuning.layers))]
    for variant, launches in tuning.layers:
        parts.append(struct.pack("<II", variant, len(launches)))
        parts += [struct.pack("<IIIQ", *launch.local, launch.nanoseconds) for launch in launches]
    return Record(TUNING, tuning_key(tuning.fields), b"".join(parts), written)


def mark_record(key: bytes, mark: Mark, written: int = 0) -> Record:
    return Record(MARK, key, struct.pack("<I", mark.what) + _text(mark.reason), written)


def _text(text: str) -> bytes:
    encoded = text.encode("utf-8", "surrogateescape")
    return struct.pack("<I", len(encoded)) + encoded


def _decode(kind: int, key: bytes, body: bytes) -> Content | None:
    reader = _Reader(body)
    content: Content
    if kind == PROGRAM:
        fields = reader.fields(FIELDS)
        report = reader.text()
        tests = tuple((reader.text(), reader.take(32)) for _ in range(reader.number("<I")))
        size = reader.number("<Q")
        digest, binary = reader.take(32), reader.take(size)
        if hashlib.sha256(binary).digest() != digest:
            raise Malformed("the digest of the binary is wrong")
        if not binary:
            raise Malformed("it has no binary")
        content, right = Program(fields, report, tests, binary), program_key(fields)
    elif kind == TUNING:
        fields = reader.fields(TUNING_FIELDS)
        content, right = Tuning(fields, tuple(reader.layer() for _ in range(reader.number("<I")))), tuning_key(fields)
    elif kind == MARK:
        content, right = Mark(reader.number("<I"), reader.text()), key
    else:
        return None
    if key != right:
        raise Malformed("its key is not that of its fields")
    if reader.at != len(body):
        raise Malformed("it has bytes after its end")
    return content


class _Reader:
    def __init__(self, body: bytes) -> None:
        self.body = body
        self.at = 0

    def take(self, size: int) -> bytes:
        if size > len(self.body) - self.at:
            raise Malformed("it ends too early")
        self.at += size
        return self.body[self.at - size : self.at]

    def number(self, code: str) -> int:
        return int(struct.unpack(code, self.take(struct.calcsize(code)))[0])

    def text(self) -> str:
        taken = self.take(self.number("<I"))
        if 0 in taken:
            raise Malformed("a text has a NUL")
        return taken.decode("utf-8", "surrogateescape")

    def fields(self, names: Sequence[str]) -> tuple[str, ...]:
        if (count := self.number("<I")) != len(names):
            raise Malformed(f"it has {count} fields, not {len(names)}")
        return tuple(self.text() for _ in names)

    def layer(self) -> tuple[int, tuple[TunedLaunch, ...]]:
        variant, launches = self.number("<I"), self.number("<I")
        return variant, tuple(self._launch() for _ in range(launches))

    def _launch(self) -> TunedLaunch:
        x, y, z, nanoseconds = struct.unpack("<IIIQ", self.take(20))
        return TunedLaunch((x, y, z), nanoseconds)
