"""The program cache's file: whatever its bytes are, reading ends well, and no damaged record is taken for a good one."""

from __future__ import annotations

import hashlib
import multiprocessing
import os
import struct
import threading
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from intaglio.errors import ToolError, UserError
from intaglio.run.one_writer import locked
from intaglio.run.opencl.cache_contents import entries, merge, prune
from intaglio.run.opencl.cache_file import (
    HEADER,
    MAGIC,
    PROGRAM,
    START,
    WRONG,
    CacheFile,
    Mark,
    Program,
    Record,
    Tuning,
    dump,
    mark_record,
    parse,
    program_record,
    tuning_record,
)
from intaglio.run.opencl.cache_store import read_cache, sentinel, update_cache
from intaglio.targets.caches import unsafe
from support.program_caches import checked, distrusted, program, tuning, unknown, written

KEPT = (program("conv"), program("pool", b"b"), tuning(), checked(program("conv")), unknown())
FILE = dump(KEPT)


def states(*records: Record) -> list[str]:
    return [entry.state for entry in entries(records)]


# The format


def test_a_program_without_a_binary_is_none() -> None:
    (record,) = parse(dump([program("pool", b"")])).records
    assert record.content is None and record.problem == "it has no binary"


def test_what_is_written_is_read() -> None:
    found = parse(FILE)
    assert found.records == KEPT and found.sound
    for record in found.records:
        match record.content:
            case Program() as content:
                assert program_record(content, record.written) == record
            case Tuning() as content:
                assert tuning_record(content, record.written) == record


def test_the_bytes_are_those_of_the_document() -> None:
    """Written out by hand from docs/reference/program-cache.md: what the C code reads must not change with ours."""

    def text(value: str) -> bytes:
        return struct.pack("<I", len(value.encode())) + value.encode()

    fields = ["5" * 64, "-cl-std=CL1.2", "P", "1.2", "D", "V", "OpenCL 1.2", "9.1", "64"]
    binary = b"\x01\x02\x03"
    key = hashlib.sha256(b"".join(map(text, ["intaglio-program", "1", *fields]))).digest()
    body = struct.pack("<I", 9) + b"".join(map(text, fields)) + text("memory: 1 GB\n")
    body += struct.pack("<I", 1) + text("k") + b"\x07" * 32
    body += struct.pack("<Q", 3) + hashlib.sha256(binary).digest() + binary
    head = b"IGRC" + struct.pack("<IQ", 1, len(body)) + key + hashlib.sha256(body).digest() + struct.pack("<qQ", 12, 0)
    data = b"IGCLBIN\0" + struct.pack("<II", 1, 0) + head + hashlib.sha256(head).digest() + body + bytes(-len(body) % 16)
    made = program_record(Program(tuple(fields), "memory: 1 GB\n", (("k", b"\x07" * 32),), binary), 12)
    assert dump([made]) == data
    assert parse(data).records == (made,)


def test_text_of_a_driver_that_is_no_utf8_survives() -> None:
    odd = program(device_name=b"M\xe4li".decode("utf-8", "surrogateescape"))
    assert parse(dump([odd])).records == (odd,)


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_no_damaged_record_is_accepted(data: st.DataObject) -> None:
    """Bits flipped, bytes taken away, moved, repeated: what is found is what was written."""
    damaged = bytearray(FILE)
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, max(0, len(damaged) - 1)))
        size = data.draw(st.sampled_from([0, 1, 16, 100, 256]))
        match data.draw(st.sampled_from(["flip", "cut", "remove", "repeat", "zero", "noise"])):
            case "flip" if damaged:
                damaged[at] ^= 1 << data.draw(st.integers(0, 7))
            case "cut":
                del damaged[at:]
            case "remove":
                del damaged[at : at + size]
            case "repeat":
                damaged[at:at] = damaged[at : at + size]
            case "zero":
                damaged[at : at + size] = bytes(len(damaged[at : at + size]))
            case "noise":
                damaged[at:at] = data.draw(st.binary(max_size=40))
    found = parse(bytes(damaged))
    assert set(found.records) <= set(KEPT)
    entries(found.records)


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=300), st.sampled_from([b"", MAGIC, START.pack(MAGIC, 1, 0)]))
def test_reading_ends_well_whatever_the_bytes_are(noise: bytes, start: bytes) -> None:
    assert parse(start + noise).records == ()


@settings(max_examples=100, deadline=None)
@given(st.sampled_from([1, 2, 3, 4]), st.binary(max_size=200))
def test_a_body_of_noise_with_right_digests_is_malformed(kind: int, body: bytes) -> None:
    """Somebody computed the digests for it: nothing of it is a program all the same."""
    found = parse(dump([Record(kind, b"k" * 32, body, 0)]))
    assert len(found.records) == 1
    assert not isinstance(found.records[0].content, Program | Tuning)


def test_a_program_under_a_key_that_is_not_its_own_is_malformed() -> None:
    good = program()
    swapped = Record(PROGRAM, program("other").key, good.body, 0)
    assert swapped.content is None and "key" in swapped.problem
    assert states(swapped) == ["malformed"]


@pytest.mark.parametrize("gone", range(len(KEPT)))
def test_what_follows_a_damaged_record_is_found(gone: int) -> None:
    before = len(dump(KEPT[:gone]))
    for at in (before, before + 90, before + HEADER.size):  # its name, its header, its body
        found = parse(FILE[:at] + bytes([FILE[at] ^ 4]) + FILE[at + 1 :])
        assert found.records == KEPT[:gone] + KEPT[gone + 1 :]
        assert len(found.damage) == 1 and found.damage[0].offset == before


def test_damage_says_from_where_to_where() -> None:
    """Headers that are no more, side by side and apart, and bodies with another digest; behind them, a file that is cut short."""
    starts = [len(dump(KEPT[:n])) for n in range(len(KEPT) + 1)]
    for gone, spans in (([0], [(0, 1)]), ([1, 2], [(1, 3)]), ([0, 2], [(0, 1), (2, 3)]), ([4], [(4, 5)])):
        data = bytearray(FILE)
        for n in gone:
            data[starts[n]] ^= 4
        found = parse(bytes(data)).damage
        assert [(d.offset, d.offset + d.size_bytes) for d in found] == [(starts[a], starts[b]) for a, b in spans]
        assert {d.reason for d in found} == {"no valid record header"}
    data = bytearray(FILE)
    for n in (1, 2):
        data[starts[n] + HEADER.size] ^= 4
    reasons = ["the digest of the record's bytes is wrong"] * 2
    assert [(d.offset, d.size_bytes, d.reason) for d in parse(bytes(data)).damage] == [
        (starts[n], starts[n + 1] - starts[n], why) for n, why in zip((1, 2), reasons, strict=True)
    ]
    cut = parse(FILE[: starts[4] + HEADER.size + 1]).damage
    assert [(d.offset, d.size_bytes) for d in cut] == [(starts[4], HEADER.size + 1)] and "ends within" in cut[0].reason


@pytest.mark.parametrize(("start", "size"), [(b"", 0), (bytes(16), 16), (bytes(4096), 4096)])
def test_damage_of_the_first_bytes_says_how_much(start: bytes, size: int) -> None:
    (damage,) = parse(start + FILE[16:], ours=True).damage
    assert (damage.offset, damage.size_bytes) == (0, size) and "does not begin" in damage.reason


def test_the_numbers_of_kinds_are_those_that_packages_in_the_field_write() -> None:
    assert [program().kind, tuning().kind, checked(program()).kind] == [1, 2, 3] and WRONG == 4
    assert [struct.unpack_from("<I", mark(program()).body)[0] for mark in (checked, distrusted)] == [1, 2]


def test_a_file_above_the_limit_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "m.clbin"
    with path.open("wb") as file:
        file.truncate((1 << 30) + 1)  # a hole: it takes no room
    with pytest.raises(UserError, match="larger than 1024 MB"):
        read_cache(path)


def test_a_sentinel_that_is_a_link_does_not_count(tmp_path: Path) -> None:
    path, key = written(tmp_path / "m.clbin", program()), program().key
    (tmp_path / "elsewhere").write_text("D")
    (tmp_path / f"m.clbin.loading.{key.hex()[:16]}").symlink_to(tmp_path / "elsewhere")
    assert sentinel(path, key) == ""


def test_records_that_claim_each_other_are_read_in_linear_time() -> None:
    """Headers with right digests whose bodies reach to the end of the file, with wrong ones."""
    count = 20_000  # 25 GB to hash, if each were believed
    data = bytearray(START.pack(MAGIC, 1, 0))
    for n in range(count):
        head = HEADER.pack(b"IGRC", 1, (count - n - 1) * 128, bytes(32), bytes(32), 0, 0, b"")[:96]
        data += head + hashlib.sha256(head).digest()
    start = time.perf_counter()
    assert not parse(bytes(data)).records
    assert time.perf_counter() - start < 5


@pytest.mark.parametrize(
    ("data", "foreign", "said"),
    [
        (b"", False, "empty"),
        (MAGIC[:5], False, "cut short"),
        (MAGIC, False, "cut short"),
        (START.pack(MAGIC, 2, 0) + FILE[16:], False, "format 2"),
        (b"\x89PNG", True, "does not begin"),
    ],
)
def test_what_is_no_cache_says_why(data: bytes, foreign: bool, said: str) -> None:
    found = parse(data)
    assert said in found.problem and found.foreign is foreign and not found.records


@pytest.mark.parametrize("start", [b"", bytes(16), b"IGCLBOX\0" + FILE[8:16], bytes(4096)])
def test_records_are_found_where_only_the_first_bytes_are_damaged(start: bytes) -> None:
    found = parse(start + FILE[16:], ours=True)
    assert found.records == parse(FILE).records and not found.foreign and not found.sound and len(found.damage) == 1


def test_a_damaged_file_with_the_name_of_a_cache_is_written_anew(tmp_path: Path) -> None:
    path = tmp_path / "m.clbin"
    path.write_bytes(bytes(16) + FILE[16:])
    update_cache(path, lambda old: old.records)
    assert path.read_bytes() == FILE
    path.write_bytes(b"What is this?")
    update_cache(path, lambda old: old.records)
    assert read_cache(path).sound


def test_another_kind_of_file_stays_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "diary.txt"
    path.write_text("my diary")
    with pytest.raises(UserError, match="another kind of file and is not changed"):
        update_cache(path, lambda old: old.records)
    assert path.read_text() == "my diary"


# Which records count


def test_the_last_program_of_a_key_counts_and_marks_only_for_those_before() -> None:
    old, new = program(binary=b"old"), program(binary=b"new")
    assert states(old, new) == ["superseded", "unchecked"]
    assert states(new, checked(new)) == ["checked", ""]
    assert states(old, checked(old), distrusted(old)) == ["distrusted", "superseded", ""]
    assert states(old, distrusted(old), checked(old)) == ["checked", "superseded", ""]
    assert states(old, distrusted(old), new, checked(new)) == ["superseded", "earlier", "checked", ""]
    assert states(tuning(variant=0), tuning(variant=1)) == ["superseded", ""]


def test_prune_keeps_what_any_device_can_use_and_every_warning() -> None:
    good, other, bad = program("a"), program("a", device_name="Adreno 740"), program("b")
    stale = program("a", b"old")
    cache = CacheFile((stale, good, other, bad, tuning(), checked(good), distrusted(bad), unknown()))
    kept = prune(cache, lambda entry: False)
    assert kept == (good, other, tuning(), checked(good), distrusted(bad), unknown())
    assert prune(CacheFile(kept), lambda entry: False) == kept


def test_prune_takes_the_checked_mark_with_its_program() -> None:
    good, other = program("a"), program("b")
    cache = CacheFile((good, other, checked(good), checked(other)))
    assert prune(cache, lambda entry: entry.record.key == good.key) == (other, checked(other))


def test_it_is_remembered_that_an_earlier_binary_failed() -> None:
    """A package lets a child process try the next one: prune and merge must not forget it."""
    old, new = program(binary=b"old"), program(binary=b"new")
    cache = CacheFile((old, distrusted(old), new, checked(new)))
    kept = (distrusted(old), new, checked(new))
    assert prune(cache, lambda entry: False) == kept
    assert merge([cache, CacheFile((tuning(),))]) == (distrusted(old), new, tuning(), checked(new))
    assert prune(CacheFile((*kept, distrusted(new, "again"))), lambda entry: False) == (distrusted(new, "again"),)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.lists(st.sampled_from([program("a"), program("a", b"new"), program("b"), tuning(), tuning("G1"), unknown()]))))
def test_merge_loses_nothing(files: list[list[Record]]) -> None:
    merged = merge([CacheFile(tuple(records)) for records in files])
    wanted = {(record.kind, record.key) for records in files for record in records}
    assert {(record.kind, record.key) for record in merged} == wanted
    assert len(merged) == len(wanted) and merge([CacheFile(merged)]) == merged


def test_merge_takes_a_checked_binary_and_never_trusts_what_another_cache_distrusts() -> None:
    old, new = program(binary=b"old"), program(binary=b"new")

    def merged(*caches: tuple[Record, ...]) -> tuple[Record, ...]:
        return merge([CacheFile(records) for records in caches])

    assert merged((new, checked(new)), (old,)) == (new, checked(new))
    assert merged((old,), (new,)) == (new,)
    assert merged((old, distrusted(old)), (old, checked(old))) == (old, distrusted(old))
    assert merged((old, distrusted(old)), (new,)) == (new,)
    assert merged((new,), (old, distrusted(old))) == (new,)
    assert merged((distrusted(old),), (old,)) == (old, distrusted(old))  # a writable cache about the shipped one
    assert merged((distrusted(old),), ()) == (distrusted(old),)


# On disk


def test_a_change_replaces_the_file_and_cleans_up(tmp_path: Path) -> None:
    path = written(tmp_path / "m.clbin", program("a"))
    (tmp_path / "m.clbin.tmp.99999").write_bytes(b"of a process that died")
    update_cache(path, lambda old: [*old.records, program("b")])
    assert read_cache(path).records == (program("a"), program("b"))
    assert sorted(p.name for p in tmp_path.iterdir()) == ["m.clbin", "m.clbin.lock"]


def test_what_cannot_be_written_leaves_all_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = written(tmp_path / "m.clbin", program("a"))

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(ToolError, match="No space left on device"):
        update_cache(path, lambda old: [])
    assert read_cache(path).records == (program("a"),)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["m.clbin", "m.clbin.lock"]


def test_what_cannot_be_read_is_said(tmp_path: Path) -> None:
    for path, said in ((tmp_path, "is a folder"), (tmp_path / "none", "there is no")):
        with pytest.raises(UserError, match=said):
            read_cache(path)
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(UserError, match="not a file"):
        read_cache(tmp_path / "fifo")


def test_a_lock_that_is_held_is_waited_for_and_then_reported(tmp_path: Path) -> None:
    path = tmp_path / "m.clbin"
    with locked(path), pytest.raises(ToolError, match=r"error\[cache-busy\]"), locked(path, seconds=0.05):
        pass


def test_two_processes_at_once_lose_nothing(tmp_path: Path) -> None:
    path = tmp_path / "m.clbin"
    both = [multiprocessing.get_context("fork").Process(target=_add_ten, args=(path, name)) for name in ("one", "two")]
    for process in both:
        process.start()
    for process in both:
        process.join()
    wanted = {program(f"{name} {n}").key for name in ("one", "two") for n in range(10)}
    assert {record.key for record in read_cache(path).records} == wanted


def _add_ten(path: Path, name: str) -> None:
    for n in range(10):
        update_cache(path, lambda old, n=n: [*old.records, program(f"{name} {n}")])  # type: ignore[misc]


def test_files_that_others_may_write_to_are_unsafe(tmp_path: Path) -> None:
    path = written(tmp_path / "m.clbin", program())
    tmp_path.chmod(0o755)
    assert unsafe(path) == ""
    path.chmod(0o666)
    assert "the file is writable by everybody" in unsafe(path)
    path.chmod(0o644)
    tmp_path.chmod(0o777)
    assert "its folder is writable by everybody" in unsafe(path)
    tmp_path.chmod(0o1777)
    assert unsafe(path) == ""


def test_a_sentinel_tells_the_living_from_the_dead(tmp_path: Path) -> None:
    import fcntl

    path, key = written(tmp_path / "m.clbin", program()), program().key
    assert sentinel(path, key) == ""
    with (tmp_path / f"m.clbin.loading.{key.hex()[:16]}").open("w", buffering=1) as held:
        assert sentinel(path, key) == ""
        print("L", file=held)
        assert sentinel(path, key) == "died"
        fcntl.flock(held, fcntl.LOCK_EX)
        assert sentinel(path, key) == "loading"


def test_a_sentinel_that_is_a_pipe_does_not_hold_us(tmp_path: Path) -> None:
    path, key = written(tmp_path / "m.clbin", program()), program().key
    pipe = tmp_path / f"m.clbin.loading.{key.hex()[:16]}"
    os.mkfifo(pipe)
    said: list[str] = []
    asking = threading.Thread(target=lambda: said.append(sentinel(path, key)), daemon=True)
    asking.start()
    asking.join(10)
    if asking.is_alive():
        os.close(os.open(pipe, os.O_RDWR))  # it may go on
    assert said == [""]


def test_a_record_has_no_time_where_none_is_given() -> None:
    fields = ("f",) * 9
    records = [
        program_record(Program(fields, "", (), b"b")),
        tuning_record(Tuning(fields[:4], ())),
        mark_record(b"k" * 32, Mark(1, "")),
    ]
    assert [record.written for record in records] == [0, 0, 0]


def test_damage_that_reaches_from_the_first_byte_is_told_with_its_end() -> None:
    assert [(d.offset, d.size_bytes) for d in parse(bytes(64), ours=True).damage] == [(0, 64)]
    start = START.size
    data = bytearray(bytes(start) + FILE[start:])
    data[start + HEADER.size] ^= 1
    first, second = parse(bytes(data), ours=True).damage
    assert (first.offset, first.size_bytes, second.offset) == (0, start, start)
    assert "does not begin" in first.reason and "digest" in second.reason


def test_a_sentinel_is_read_where_the_system_has_no_such_flags(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, key = written(tmp_path / "m.clbin", program()), program().key
    (tmp_path / f"m.clbin.loading.{key.hex()[:16]}").write_text("D")
    for flag in ("O_NONBLOCK", "O_NOFOLLOW"):
        monkeypatch.delattr(os, flag)
    assert sentinel(path, key) == "died"


def test_a_sentinel_whose_owner_died_stays_dead_while_somebody_holds_it(tmp_path: Path) -> None:
    import fcntl

    path, key = written(tmp_path / "m.clbin", program()), program().key
    with (tmp_path / f"m.clbin.loading.{key.hex()[:16]}").open("w", buffering=1) as held:
        print("D", file=held)
        fcntl.flock(held, fcntl.LOCK_EX)
        assert sentinel(path, key) == "died"
