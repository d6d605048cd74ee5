"""The fault table, third part: drivers that crash, refuse or compute wrong; caches that are shipped; tuning."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from intaglio.run.opencl.cache_file import DISTRUSTED, MARK, TUNING, WRONG, Mark, Program, Record, dump, mark_record, parse
from support.opencl_fault_cases import DAMAGED, DIFFERS, REFUSED, Case, flipped, offsets, with_binary
from support.opencl_faults import PROGRAMS, Bench

Check = Callable[[Bench], None]
SHIPPED = "the cache that came with the application is damaged, empty or of another version"
SHIPPED_ENTRY = "an entry of the shipped cache is damaged"


# Drivers


def unchecked(bench: Bench) -> list[Record]:
    return [record for record in bench.world.records if record.kind != MARK or record.key not in bench.world.keys]


def crashes(fault: str, *, child: bool, checked: bool) -> Check:
    """Once; and never where a child process tries it first. The driver stays as it is."""

    def check(bench: Bench) -> None:
        bench.write(*(bench.world.records if checked else unchecked(bench)))
        if child:
            first = bench.start("--cache-child", variables={"FAULT": fault})
            assert first.right and first.counts["source"] == PROGRAMS and len(first.told) == PROGRAMS, first
        else:
            assert bench.start(variables={"FAULT": fault}).code < 0
        for _ in range(4):
            assert bench.start(variables={"FAULT": fault}).right
        bench.is_whole()
        assert bench.start().right
        bench.heals()
        bench.kept(parse(dump(bench.world.others)))

    return check


def fails(fault: str, said: str, *words: str) -> Check:
    def check(bench: Bench) -> None:
        bench.write(*(bench.world.records if words else unchecked(bench)))
        first = bench.start(*words, variables={"FAULT": fault})
        assert first.right and first.counts["source"] == PROGRAMS and len(first.told) == PROGRAMS, first
        assert all(said in line for line in first.told), first
        assert bench.start(variables={"FAULT": fault}).right
        assert bench.start().right
        bench.heals()
        bench.kept(parse(dump(bench.world.others)))

    return check


def no_binaries(bench: Bench) -> None:
    bench.write(*bench.world.others)
    first = bench.start(variables={"FAULT": "nobinary"})
    assert first.right and first.counts["saved"] == 0 and len(first.told) == PROGRAMS, first
    assert all("does not hand out the binary" in line for line in first.told)
    bench.kept(parse(dump(bench.world.others)))
    bench.start()
    bench.heals()


def driver_update(bench: Bench) -> None:
    """And back: each finds its own programs."""
    bench.write(*bench.world.records)
    updated = bench.start(variables={"DRIVER": "9.9"})
    assert updated.right and updated.counts["source"] == PROGRAMS and not updated.handed and not updated.told, updated
    bench.heals()
    bench.heals({"DRIVER": "9.9"})
    bench.kept(parse(dump(bench.world.records)))
    drivers = {r.content.field("driver version") for r in bench.read().records if isinstance(r.content, Program)}
    assert {"9.9", "0.1"} < drivers and len([r for r in bench.read().records if isinstance(r.content, Program)]) == 2 + 2 * PROGRAMS


# What is built from source


def options_in(bench: Bench) -> set[bool]:
    """Of the programs of this driver: is any built without optimisations?"""
    programs = [r.content for r in bench.read().records if isinstance(r.content, Program) and r.key not in bench.world.others_keys]
    return {"-cl-opt-disable" in program.field("options") for program in programs}


def wrong_with_optimisations(bench: Bench) -> None:
    """The next start knows, is silent and builds nothing; another version of the driver is tried anew."""
    broken = {"FAULT": "optimised"}
    bench.write(*bench.world.others)
    first = bench.start(variables=broken)
    assert first.right and len(first.told) == PROGRAMS and all("without optimisations" in line for line in first.told), first
    assert options_in(bench) == {True} and len([r for r in bench.read().records if r.kind == WRONG]) == PROGRAMS
    for variables in (broken, {}):
        again = bench.start(variables=variables)
        assert again.right and not again.told and again.counts["writable"] == PROGRAMS and again.counts["source"] == 0, again
    updated = bench.start(variables={"DRIVER": "9.9"})
    assert updated.right and not updated.told and updated.counts["source"] == PROGRAMS, updated
    assert options_in(bench) == {True, False}
    bench.kept(parse(dump(bench.world.others)))


def wrong_in_a_variant(bench: Bench) -> None:
    """Another variant is used, optimised as before."""
    broken = {"FAULT": "optimised", "KERNELS": "_6x4c"}
    first = bench.start(variables=broken)
    assert first.right and len(first.told) == 1 and "with variant `6x4c`; another variant is used" in first.told[0], first
    assert options_in(bench) == {False}
    again = bench.start(variables=broken)
    assert again.right and not again.told and again.counts["writable"] == PROGRAMS and again.counts["source"] == 0, again


def wrong_in_every_way(bench: Bench) -> None:
    """An error and no result; every start tries again."""
    for _ in range(2):
        start = bench.start(variables={"FAULT": "always"})
        assert start.code == 2 and start.output is None and "wrong, also without optimisations" in start.told[-1], start
    assert not bench.cache.exists()
    assert bench.start().right
    bench.heals()


def wrong_on_a_gpu(bench: Bench) -> None:
    """A CPU takes over, unless the GPU was asked for."""
    broken = {"FAULT": "always", "GPU": "1", "POCL_DEVICES": "basic basic"}
    free = Bench(bench.world, bench.folder, any_device=True)
    for _ in range(2):
        start = free.start(variables=broken)
        assert start.right and "wrong, also without optimisations; `basic" in start.told[-1], start
    asked = free.start("--device", "gpu", variables=broken)
    assert asked.code == 2 and asked.output is None, asked


def wrong_and_unchecked(bench: Bench) -> None:
    """Who switches the check off gets what the driver computes."""
    start = bench.start("--cache-check", "never", variables={"FAULT": "optimised"})
    assert start.code == 0 and not start.right and not start.told, start


# The shipped cache


def shipped(bench: Bench, data: bytes) -> Path:
    path = bench.folder.with_name("shipped.clbin")
    path.write_bytes(data)
    return path


def shipped_alone(make: Callable[[bytes], bytes], found: int, *texts: str) -> Check:
    """Without a writable cache; `found` programs come from it."""

    def check(bench: Bench) -> None:
        path = shipped(bench, make(dump(bench.world.records)))
        first = bench.start(cache=Path("none"), shipped=path)
        assert first.right and first.counts["shipped"] == found and first.counts["source"] == PROGRAMS - found, first
        assert set(first.handed) <= bench.world.binaries
        assert len(first.told) == len(texts) and all(text in line for text, line in zip(texts, first.told, strict=True)), first.told
        second = bench.start(shipped=path)  # with a writable one, which has what is lost from then on
        assert second.right and second.counts["saved"] == PROGRAMS - found, second
        third = bench.start(shipped=path)
        assert third.right and third.counts["writable"] == PROGRAMS - found and third.counts["shipped"] == found, third

    return check


def writable_damaged_shipped_good(bench: Bench) -> None:
    at = offsets(bench.world.records)
    bench.cache.write_bytes(dump(bench.world.records)[: at[4] + 1000])
    first = bench.start(shipped=shipped(bench, dump(bench.world.records)))
    assert first.right and (first.counts["writable"], first.counts["shipped"]) == (1, 1), first
    assert len(first.told) == 1 and DAMAGED in first.told[0]
    again = bench.start(shipped=bench.folder.with_name("shipped.clbin"))
    assert again.right and not again.told and again.counts["source"] == 0
    bench.is_whole()
    bench.kept(parse(dump(bench.world.others[:2])))


def shipped_and_distrusted(bench: Bench) -> None:
    """What was found out about it is in the writable cache: the shipped one cannot be changed."""
    key = bench.world.programs[0].key
    bench.write(mark_record(key, Mark(DISTRUSTED, "?")))
    path = shipped(bench, dump(bench.world.records))
    first = bench.start(shipped=path)
    assert first.right and (first.counts["shipped"], first.counts["source"]) == (1, 1), first
    assert bench.start(shipped=path).counts["source"] == 0


def shipped_binary_is_bad(*, child: bool) -> Check:
    def check(bench: Bench) -> None:
        path = shipped(bench, dump(with_binary(bench.world, bytes(3000))))
        kernels = bench.own_kernels()
        first = bench.start(*["--cache-child"] * child, shipped=path, variables={"POCL_CACHE_DIR": kernels})
        assert first.right or (not child and first.code < 0), first
        for _ in range(2):
            again = bench.start(shipped=path, variables={"POCL_CACHE_DIR": kernels})
            assert again.right, again
        assert again.counts["source"] == 0 and not again.told and again.counts["writable"] == 1, again

    return check


# Tuning


def tuning_of(bench: Bench) -> int:
    return next(n for n, record in enumerate(bench.world.tuned) if record.kind == TUNING)


def tuning_body(edit: Callable[[bytes, int], bytes]) -> Check:
    """Its digests are right, what it says is not; then the usual sizes are used, from programs of their own."""

    def check(bench: Bench) -> None:
        records, n = list(bench.world.tuned), tuning_of(bench)
        content = records[n].content
        assert content is not None and not isinstance(content, (Program, Mark))
        start = 4 + sum(4 + len(text.encode()) for text in content.fields)  # of the number of layers
        records[n] = replace(records[n], body=edit(records[n].body, start))
        bench.write(*bench.world.others, *records)
        first = bench.start()
        assert first.right and first.counts["tuned"] == 0 and not first.told, first
        again = bench.start()
        assert again.right and again.counts["writable"] == PROGRAMS and not again.told, again
        bench.kept(parse(dump((*bench.world.others, *(r for r in records if r.kind != TUNING)))))

    return check


def tuning_damaged(inside: int, said: str) -> Check:
    def check(bench: Bench) -> None:
        data = dump(bench.world.tuned)
        at = offsets(bench.world.tuned)[tuning_of(bench)]
        bench.cache.write_bytes(flipped(data, at + inside, str(inside)))
        first = bench.start()
        assert first.right and first.counts["tuned"] == 0 and len(first.told) == 1 and said in first.told[0], first
        bench.heals()

    return check


def tuning_of_other_tables(bench: Bench) -> None:
    records, n = list(bench.world.tuned), tuning_of(bench)
    records[n] = replace(records[n], key=b"t" * 32)
    bench.write(*records)
    first = bench.start()
    assert first.right and first.counts["tuned"] == 0 and not first.told, first


def tuning_is_used(bench: Bench) -> None:
    bench.write(*bench.world.tuned)
    first = bench.start()
    assert first.right and first.counts["tuned"] == 1 and first.counts["writable"] == PROGRAMS, first


def numbers(at: int, *values: int) -> Callable[[bytes, int], bytes]:
    """Put 32-bit numbers at a place, counted from the number of layers: then variant, launches, three sizes of the first layer."""
    return lambda body, start: body[: start + at] + struct.pack(f"<{len(values)}I", *values) + body[start + at + 4 * len(values) :]


MOST = 0xFFFFFFFF
TUNINGS: dict[str, Callable[[bytes, int], bytes]] = {
    "no layers": numbers(0, 0),
    "4294967295 layers": numbers(0, MOST),
    "a variant that is not there": numbers(4, 77),
    "the variant 4294967295": numbers(4, MOST),
    "no launches": numbers(8, 0),
    "4294967295 launches": numbers(8, MOST),
    "a size of 0": numbers(12, 0),
    "a size of 4294967295": numbers(12, MOST),
    "sizes whose product overflows": numbers(12, 1 << 16, 1 << 16, 1 << 16),
    "half of a body": lambda body, start: body[: (start + len(body)) // 2],
    "no body": lambda body, start: b"",
    "other fields": lambda body, start: body[:8] + b"0" * 64 + body[72:],
}

TABLE: Sequence[tuple[str, Check]] = (
    ("a driver that crashes", crashes("crash", child=False, checked=False)),
    ("a driver that crashes on what was checked", crashes("crash", child=False, checked=True)),
    ("a driver that crashes in a child", crashes("crash", child=True, checked=False)),
    ("a driver that crashes in the first run", crashes("crashrun", child=False, checked=True)),
    ("a driver that crashes in the self-test", crashes("crashrun", child=False, checked=False)),
    ("a driver that crashes in the self-test of a child", crashes("crashrun", child=True, checked=False)),
    ("a driver that refuses", fails("refuse", REFUSED)),
    ("a driver that takes it and fails to build", fails("buildfail", REFUSED)),
    ("a driver that computes wrong", fails("wrong", DIFFERS)),
    ("a driver that computes wrong what was checked", fails("wrong", DIFFERS, "--cache-check", "always")),
    ("a driver that computes wrong with optimisations", wrong_with_optimisations),
    ("a driver that computes one variant wrong", wrong_in_a_variant),
    ("a driver that always computes wrong", wrong_in_every_way),
    ("a GPU that always computes wrong", wrong_on_a_gpu),
    ("a driver that computes wrong, and no check", wrong_and_unchecked),
    ("a driver without binaries", no_binaries),
    ("a driver update", driver_update),
    ("shipped", shipped_alone(lambda data: data, 2)),
    ("shipped and empty", shipped_alone(lambda data: b"", 0)),
    ("shipped garbage", shipped_alone(lambda data: b"garbage" * 100, 0, SHIPPED)),
    ("shipped, of another version", shipped_alone(lambda data: data[:8] + b"\2" + data[9:], 0, SHIPPED)),
    ("shipped, cut in the second program", shipped_alone(lambda data: data[:140_000], 1, SHIPPED)),
    ("shipped, cut in the first program", shipped_alone(lambda data: data[:20_000], 0, SHIPPED)),
    ("shipped, a bit flipped in a binary", shipped_alone(lambda data: flipped(data, 60_000, "s"), 1, SHIPPED_ENTRY)),
    ("shipped, with garbage at the end", shipped_alone(lambda data: data + b"garbage", 2, SHIPPED)),
    ("shipped and good, beside a damaged one", writable_damaged_shipped_good),
    ("shipped and distrusted", shipped_and_distrusted),
    ("shipped, a binary of zeros", shipped_binary_is_bad(child=False)),
    ("shipped, a binary of zeros, tried by a child", shipped_binary_is_bad(child=True)),
    ("tuned", tuning_is_used),
    ("tuned for other tables", tuning_of_other_tables),
    ("tuning with a damaged body", tuning_damaged(160, "the tuning in the writable cache is damaged")),
    ("tuning with a damaged header", tuning_damaged(20, DAMAGED)),
    *((f"tuning with {name}", tuning_body(edit)) for name, edit in TUNINGS.items()),
)
QUICK = {
    "a driver that crashes", "a driver that computes wrong", "a driver that computes wrong with optimisations", "a driver update",
    "shipped, a bit flipped in a binary",
}  # fmt: skip


def drivers() -> Iterator[Case]:
    for name, check in TABLE:
        yield Case(name, check, name in QUICK)
