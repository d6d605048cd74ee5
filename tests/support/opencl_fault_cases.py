"""The fault table: files that are not what a program cache should be, and places that are no place for one.

What is expected of a damaged file is not written down case by case: our other reader, in Python, says which records are good.
"""

from __future__ import annotations

import hashlib
import random
import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

from intaglio.run.opencl.cache_contents import entries
from intaglio.run.opencl.cache_file import (
    ALIGN,
    DISTRUSTED,
    FIELDS,
    HEADER,
    MAGIC,
    MARK,
    NO_HEADER,
    NO_MAGIC,
    PROGRAM,
    START,
    TUNING,
    CacheFile,
    Mark,
    Program,
    Record,
    dump,
    mark_record,
    parse,
    program_record,
)
from support.opencl_faults import PROGRAMS, Bench, World, digests

DAMAGED = "is damaged or of another version"
ENTRY = "an entry of the writable cache is damaged"
LIES = "an entry of the writable cache is not what its key says"
FOREIGN = "it is another kind of file and is not changed: remove it, or name another"
REFUSED = "the driver refused it"
DIED = "a process ended while it was loaded"
DIFFERS = "it does not compute what it computed when it was stored"


@dataclass(frozen=True, slots=True)
class Case:
    name: str
    check: Callable[[Bench], None]
    quick: bool = False


Bytes = Callable[[World], bytes]
Records = Callable[[World], Sequence[Record]]


# Files whose bytes are wrong


def check_file(bench: Bench, data: bytes) -> None:
    world, before = bench.world, parse(data, ours=True)
    bench.cache.write_bytes(data)
    first = bench.start()
    assert first.right, first
    assert set(first.handed) <= world.binaries, "something else than our programs went to the driver"
    good = usable(before) & world.keys
    assert first.counts["writable"] == len(good) and first.counts["source"] == PROGRAMS - len(good), first
    expected = told_about(before, data, world)
    assert [sum(text in line for line in first.told) for text in expected] == [1] * len(expected), (expected, first.told)
    assert len(first.told) == len(expected), (expected, first.told)
    bodies = [damage for damage in before.damage if damage.reason not in (NO_HEADER, NO_MAGIC)]
    if bodies and good == world.keys:  # nobody had to look at them: they go when something is added
        assert bench.start(variables={"DRIVER": "9.9"}).right
    bench.heals()
    bench.has_ours()
    bench.kept(before)


def usable(cache: CacheFile) -> frozenset[bytes]:
    """The last record with a right digest counts, also where it says something that no program says."""
    last = {record.key: record for record in cache.records if record.kind == PROGRAM}
    good = {entry.record.key for entry in entries(cache.records) if entry.state in ("checked", "unchecked")}
    return frozenset(key for key, record in last.items() if key in good and not record.problem)


def told_about(cache: CacheFile, data: bytes, world: World) -> list[str]:
    """The whole file, where headers are damaged; our own entries by themselves. Others' bodies are nobody's business."""
    if cache.problem:
        return [DAMAGED] if data else []
    lost = [damage for damage in cache.damage if damage.reason.startswith((NO_HEADER, NO_MAGIC, "the file ends"))]
    wrong = [damage.offset for damage in cache.damage if damage not in lost]
    kinds = [HEADER.unpack_from(data, at)[1:4:2] for at in wrong]
    entry = [ENTRY] * any(kind == PROGRAM and key in world.keys and not _good(cache, key) for kind, key in kinds)
    last = {record.key: record.problem for record in cache.records if record.kind == PROGRAM}
    lies = [LIES] * any(last.get(key) for key in world.keys)
    return [DAMAGED] * bool(lost) + entry + lies


def _good(cache: CacheFile, key: bytes) -> bool:
    return any(record.kind == PROGRAM and record.key == key and not record.problem for record in cache.records)


def offsets(records: Sequence[Record]) -> list[int]:
    found, at = [], START.size
    for record in records:
        found.append(at)
        at += HEADER.size + -(-len(record.body) // ALIGN) * ALIGN
    return [*found, at]


HEAD = {"magic": 0, "kind": 4, "size": 8, "key": 16, "body-digest": 48, "time": 80, "reserved": 88, "header-digest": 96}
IN_FILE = {"file-magic": 0, "file-format": 8, "file-reserved": 12}
IN_BODY = (
    "field-count", *FIELDS, "report", "test-count", "test-name", "test-digest", "binary-size", "binary-digest",
    "binary-start", "binary-middle", "binary-end", "padding",
)  # fmt: skip


def places(record: Record) -> dict[str, int]:
    """Where the parts of a program's body are, in it."""
    content = record.content
    assert isinstance(content, Program)
    found, at = {"field-count": 0}, 4
    for name, text in zip((*FIELDS, "report"), (*content.fields, content.report), strict=True):
        found[name] = at + 4
        at += 4 + len(text.encode())
    start = len(record.body) - len(content.binary)
    found |= {"test-count": at, "test-name": at + 8, "test-digest": at + 8 + len(content.self_tests[0][0])}
    found |= {"binary-size": start - 40, "binary-digest": start - 32}
    found |= {"binary-start": start, "binary-middle": (start + len(record.body)) // 2, "binary-end": len(record.body) - 1}
    return found | {"padding": len(record.body)}


def flipped(data: bytes, at: int, seed: str) -> bytes:
    bit = 1 << random.Random(seed).randrange(8)
    return data[:at] + bytes([data[at] ^ bit]) + data[at + 1 :]


def flip(number: int, part: str) -> Bytes:
    def make(world: World) -> bytes:
        record, at = world.records[number], offsets(world.records)[number]
        inside = HEAD[part] if part in HEAD else HEADER.size + places(record)[part]
        assert part != "padding" or len(record.body) % ALIGN
        return flipped(dump(world.records), at + inside, f"{number} {part}")

    return make


def flip_anywhere(seed: int) -> Bytes:
    def make(world: World) -> bytes:
        data = dump(world.records)
        return flipped(data, random.Random(seed).randrange(START.size, len(data)), str(seed))

    return make


def cut(number: int, where: str) -> Bytes:
    def make(world: World) -> bytes:
        at, body = offsets(world.records)[number], len(world.records[number].body)
        middle = at + HEADER.size + body // 2
        ends = {"start": at, "magic": at + 4, "header": at + 64, "body": at + HEADER.size, "middle": middle}
        ends["end"] = at + HEADER.size + body - 1
        return dump(world.records)[: ends[where]]

    return make


OURS = {"first": 2, "second": 4}  # places in World.records
MOST = (1 << 64) - 1
NAMES = ("mali", "mali-mark", "first", "first-mark", "second", "second-mark", "earlier-driver", "mali-tuning", "unknown-kind")


def damaged_files() -> Iterator[tuple[str, Bytes]]:
    for part, at in IN_FILE.items():
        yield f"flip {part}", partial(_flip_at, at)
    for name, number in OURS.items():
        for part in (*HEAD, *IN_BODY[: -1 if name == "second" else None]):
            yield f"flip {name} {part}", flip(number, part)
    for number in (0, 1, 3, 6, 7, 8):
        for part in HEAD:
            yield f"flip {NAMES[number]} {part}", flip(number, part)
    for seed in range(20):
        yield f"flip anywhere {seed}", flip_anywhere(seed)
    for size in (0, 1, 4, 7, 8, 11, 12, 15, 16, 17):
        yield f"cut to {size} bytes", partial(_cut_to, size)
    for number, name in enumerate(NAMES):
        for where in ("start", "magic", "header", "body", "middle", "end"):
            yield f"cut in {name} at {where}", cut(number, where)
    for seed in range(10):
        yield f"cut anywhere {seed}", partial(_cut_anywhere, seed)
    yield "garbage", lambda world: random.Random(1).randbytes(5000)
    yield "zeros", lambda world: bytes(4096)
    yield "text", lambda world: b"What is this?\n" * 40
    yield "another magic", lambda world: b"IGCLBOX\0" + dump(world.records)[8:]
    yield "zeros before the records", lambda world: bytes(16) + dump(world.records)[16:]
    yield "no first bytes", lambda world: dump(world.records)[16:]
    yield "a first page of zeros", lambda world: bytes(4096) + dump(world.records)[4096:]
    for name, version in {"another": 2, "no": 0, "the largest": 0xFFFFFFFF}.items():
        yield f"{name} version", partial(_version, version)
    yield "garbage after the end", lambda world: dump(world.records) + random.Random(2).randbytes(999)
    yield "zeros after the end", lambda world: dump(world.records) + bytes(64)
    yield "one byte after the end", lambda world: dump(world.records) + b"x"
    yield "a header without a body after the end", lambda world: dump(world.records) + dump(world.records[:1])[16:144]
    yield "garbage before the records", lambda world: dump(()) + random.Random(3).randbytes(160) + dump(world.records)[16:]
    yield "shifted by a byte", lambda world: dump(()) + b"x" + dump(world.records)[16:]
    yield "a damaged program after a good one", _worse_later
    yield "a hole of zeros", lambda world: _hole(dump(world.records))
    yield "the halves exchanged", lambda world: _exchanged(dump(world.records))
    for name, size in {"beyond the file": 1 << 20, "negative": MOST, "that overflows": MOST - 127, "of 2^63": 1 << 63}.items():
        yield f"a body {name}", partial(_sized, size)
    yield "a body that swallows the next record", lambda world: _sized(_swallowing(world), world)


def _flip_at(at: int, world: World) -> bytes:
    return flipped(dump(world.records), at, str(at))


def _cut_to(size: int, world: World) -> bytes:
    return dump(world.records)[:size]


def _cut_anywhere(seed: int, world: World) -> bytes:
    data = dump(world.records)
    return data[: random.Random(1000 + seed).randrange(16, len(data))]


def _version(version: int, world: World) -> bytes:
    return MAGIC + struct.pack("<I", version) + dump(world.records)[12:]


def _worse_later(world: World) -> bytes:
    return dump(world.records) + flipped(dump(world.records[2:3]), 4000, "late")[START.size :]


def _hole(data: bytes) -> bytes:
    return data[:4096] + bytes(4096) + data[8192:]


def _exchanged(data: bytes) -> bytes:
    middle = 16 * (len(data) // 32)
    return data[:16] + data[middle:] + data[16:middle]


def _swallowing(world: World) -> int:
    at = offsets(world.records)
    return at[4] - at[2] - HEADER.size


def _sized(size: int, world: World) -> bytes:
    """The header of our first program says another size, and its digest is right."""
    data, at = dump(world.records), offsets(world.records)[OURS["first"]]
    head = data[at : at + 8] + struct.pack("<Q", size) + data[at + 16 : at + 96]
    return data[:at] + head + hashlib.sha256(head).digest() + data[at + HEADER.size :]


# Records with right digests that say something wrong


def changed(world: World, number: int, body: bytes, key: bytes | None = None) -> list[Record]:
    records = list(world.records)
    records[number] = replace(records[number], body=body, key=key or records[number].key)
    return records


def _edited(edit: Callable[[Record], bytes], world: World) -> list[Record]:
    return changed(world, OURS["first"], edit(world.records[OURS["first"]]))


def _marked(what: int, world: World) -> list[Record]:
    return changed(world, OURS["first"] + 1, struct.pack("<II", what, 0))


def our(world: World, name: str = "first") -> Program:
    content = world.records[OURS[name]].content
    assert isinstance(content, Program)
    return content


def with_field(name: str, way: str, honest: bool, world: World) -> list[Record]:
    """A binary that nobody may ever see, under fields of which one is another machine's. Its key is that of the fields, or ours."""
    mine, number = our(world), FIELDS.index(name)
    fields = (*mine.fields[:number], other(mine.field(name), way), *mine.fields[number + 1 :])
    record = program_record(replace(mine, fields=fields, binary=b"poison"))
    return changed(world, OURS["first"], record.body, record.key if honest else None)


def other(text: str, way: str) -> str:
    return {"other": text[:-1] + chr(ord(text[-1]) ^ 1), "longer": text + " ", "shorter": text[:-1], "empty": ""}[way]


def wrong_records() -> Iterator[tuple[str, Records]]:
    for name in FIELDS:
        for way in ("other", "longer", "shorter", "empty"):
            yield f"{way} {name} under our key", partial(with_field, name, way, False)
        yield f"another {name} under its own key", partial(with_field, name, "other", True)
    for name, edit in BODIES.items():
        yield f"{name}, with right digests", partial(_edited, edit)
    for what in (0, 3, 0xFFFFFFFF):
        yield f"a mark that says {what}", partial(_marked, what)
    yield "a mark of a key that nobody has", lambda world: [*world.records, mark_record(b"k" * 32, Mark(DISTRUSTED, "?"))]
    yield "no marks", lambda world: [record for record in world.records if record.kind != MARK]
    yield "records twice", lambda world: [*world.records, *world.records]
    yield "records in another order", lambda world: list(reversed(world.records))
    yield "a program ten times", lambda world: [*world.records, *[world.records[2]] * 10]
    yield "a cut program after a good one", lambda world: [*world.records, _edited(lambda record: record.body[:-1], world)[2]]
    yield "a lying program after a good one", lambda world: [*world.records, with_field("options", "longer", False, world)[2]]
    yield "times in the future", lambda world: [replace(record, written=1 << 40) for record in world.records]
    yield "times before 1970", lambda world: [replace(record, written=-(1 << 40)) for record in world.records]
    yield "no records", lambda world: []
    yield "only records of others", lambda world: world.others
    yield "a thousand records of others", lambda world: [*world.records, *_many(world.others[4])]
    yield "an unknown kind under our key", lambda world: [replace(world.records[2], kind=99), *world.records]
    yield "our program as tuning", lambda world: [replace(world.records[2], kind=TUNING), *world.records[3:]]


def _many(record: Record) -> list[Record]:
    return [replace(record, key=struct.pack("<I28x", n)) for n in range(1000)]


def _put(record: Record, part: str, data: bytes) -> bytes:
    at = places(record)[part]
    return record.body[:at] + data + record.body[at + len(data) :]


BODIES: dict[str, Callable[[Record], bytes]] = {
    "no body": lambda record: b"",
    "three bytes of body": lambda record: record.body[:3],
    "no fields": lambda record: _put(record, "field-count", struct.pack("<I", 0)),
    "eight fields": lambda record: _put(record, "field-count", struct.pack("<I", 8)),
    "4294967295 fields": lambda record: _put(record, "field-count", struct.pack("<I", 0xFFFFFFFF)),
    "a field beyond the body": lambda record: record.body[:4] + struct.pack("<I", 0xFFFFFFFF) + record.body[8:],
    "a report beyond the body": lambda record: _report(record, 0xFFFFFFF0),
    "4294967295 self-tests": lambda record: _put(record, "test-count", struct.pack("<I", 0xFFFFFFFF)),
    "no self-tests in the count": lambda record: _put(record, "test-count", struct.pack("<I", 0)),
    "a binary of no bytes": lambda record: record.body[: places(record)["binary-size"]] + bytes(8) + hashlib.sha256(b"").digest(),
    "a binary one byte longer than it is": lambda record: _resized(record, 1),
    "a binary one byte shorter than it is": lambda record: _resized(record, -1),
    "a binary of 2^64 - 1 bytes": lambda record: _put(record, "binary-size", b"\xff" * 8),
    "a wrong digest of the binary": lambda record: _put(record, "binary-digest", bytes(32)),
    "a binary with a wrong byte": lambda record: _put(record, "binary-middle", b"\x55\xaa\x55\xaa"),
    "bytes after the binary": lambda record: record.body + b"more",
    "half a body": lambda record: record.body[: len(record.body) // 2],
    "garbage for a body": lambda record: random.Random(5).randbytes(500),
}


def _report(record: Record, size: int) -> bytes:
    at = places(record)["report"] - 4
    return record.body[:at] + struct.pack("<I", size) + record.body[at + 4 :]


def _resized(record: Record, by: int) -> bytes:
    content = record.content
    assert isinstance(content, Program)
    return _put(record, "binary-size", struct.pack("<Q", len(content.binary) + by))


# Entries that match in every field and digest, and are bad all the same


def untried(world: World, program: Program) -> list[Record]:
    """Instead of our first program; nobody has tried it yet: there is no mark."""
    return [*world.records[:2], program_record(program), *world.records[4:]]


def with_binary(world: World, binary: bytes) -> list[Record]:
    return untried(world, replace(our(world), binary=binary))


BINARIES: dict[str, Callable[[bytes], bytes]] = {
    "garbage": lambda good: random.Random(6).randbytes(3000),
    "one byte": lambda good: b"\0",
    "zeros": lambda good: bytes(len(good)),
    "text": lambda good: b"__kernel void k() {}",
    "half of it": lambda good: good[: len(good) // 2],
    "its first 64 bytes": lambda good: good[:64],
    "all but its last byte": lambda good: good[:-1],
    "a head that is not the driver's": lambda good: b"\x7fELF" + good[4:],
    "a hole in its first kilobyte": lambda good: good[:256] + bytes(512) + good[768:],
    "another head": lambda good: flipped(good, 9, "head"),
}


def check_binary(name: str, child: bool, bench: Bench) -> None:
    """The driver may crash on it once, and never where a child process tries it first."""
    world = bench.world
    records = with_binary(world, BINARIES[name](our(world).binary))
    bench.write(*records)
    kernels = bench.own_kernels()
    first = bench.start(*["--cache-child"] * child, variables={"POCL_CACHE_DIR": kernels})
    if first.counts.get("writable") == PROGRAMS:  # the driver does not need what is missing, and the self-test passed
        assert first.right and not first.told and (child or first.counts["self-tests"] > 0), first
        return
    if child or first.code >= 0:
        assert first.right, first
        assert first.counts["source"] == 1 and len(first.told) == 1 and "is not used again" in first.told[0], first
    else:
        second = bench.start(variables={"POCL_CACHE_DIR": kernels})
        assert second.right and second.counts["source"] == 1 and len(second.told) == 1 and DIED in second.told[0], second
    assert set(digests(bench.read().records)).isdisjoint(set(digests(tuple(records[2:3]))))
    bench.heals({"POCL_CACHE_DIR": kernels})
    bench.kept(parse(dump(world.others)))


def check_self_test(bench: Bench) -> None:
    """What the entry says that its kernel wrote is not what it writes."""
    world, mine = bench.world, our(bench.world)
    tests = ((mine.self_tests[0][0], bytes(32)), *mine.self_tests[1:])
    bench.write(*untried(world, replace(mine, self_tests=tests)))
    assert bench.start("--cache-check", "never").counts["writable"] == PROGRAMS
    first = bench.start()
    assert first.right and first.counts["source"] == 1 and len(first.told) == 1 and DIFFERS in first.told[0], first
    bench.heals()
    bench.kept(parse(dump(world.others)))


def check_self_test_of_others(bench: Bench) -> None:
    """Taken with other weights: it says nothing, and the program is built again."""
    world, mine = bench.world, our(bench.world)
    tests = tuple((f"{name}#", digest) for name, digest in mine.self_tests)
    bench.write(*untried(world, replace(mine, self_tests=tests)))
    first = bench.start()
    assert first.right and first.counts["source"] == 1 and not first.told, first
    bench.heals()
    bench.kept(parse(dump(world.others)))


def check_distrusted(bench: Bench) -> None:
    world = bench.world
    bench.write(*world.records, mark_record(world.records[2].key, Mark(DISTRUSTED, "it looked at me")))
    first = bench.start()
    assert first.right and first.counts["source"] == 1 and len(first.handed) == 1, first
    bench.heals()
    bench.kept(parse(dump(world.others)))


def _check_bytes(data: Bytes, bench: Bench) -> None:
    check_file(bench, data(bench.world))


def _check_records(records: Records, bench: Bench) -> None:
    check_file(bench, dump(records(bench.world)))


def files() -> Iterator[Case]:
    for name, data in damaged_files():
        yield Case(name, partial(_check_bytes, data), name in QUICK)
    for name, records in wrong_records():
        yield Case(name, partial(_check_records, records), name in QUICK)
    for name in BINARIES:
        for child in (False, True):
            text = f"a binary that is {name}" + ", tried by a child" * child
            yield Case(text, partial(check_binary, name, child), text in QUICK)
    yield Case("a wrong self-test", check_self_test, True)
    yield Case("a self-test of other weights", check_self_test_of_others)
    yield Case("a mark that says distrusted", check_distrusted, True)


QUICK = {
    "zeros", "zeros before the records",
    "flip file-magic", "flip first key", "flip first header-digest", "flip second binary-middle", "flip first binary-size",
    "flip mali size", "flip earlier-driver header-digest", "cut to 0 bytes", "cut to 12 bytes", "cut in second at middle",
    "garbage", "another version", "garbage after the end", "a body that overflows", "other driver version under our key",
    "another driver version under its own key", "4294967295 self-tests, with right digests", "records in another order",
    "times in the future", "a binary that is garbage", "a binary that is garbage, tried by a child",
}  # fmt: skip
