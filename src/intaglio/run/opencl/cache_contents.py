"""What the records of a program cache mean together: which of them count. Several caches as one; records dropped."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from intaglio.run.opencl.cache_file import CHECKED, DISTRUSTED, CacheFile, Mark, Program, Record, Tuning

STATES = {CHECKED: "checked", DISTRUSTED: "distrusted"}


@dataclass(frozen=True, slots=True)
class Entry:
    """A record, and what the others say about it."""

    record: Record
    state: str  # "superseded", "malformed"; of a program that counts "checked", "unchecked", "distrusted"; of a mark "earlier"
    reason: str = ""  # a mark's, or what is malformed

    @property
    def program(self) -> Program | None:
        return self.record.content if isinstance(self.record.content, Program) else None

    @property
    def tuning(self) -> Tuning | None:
        return self.record.content if isinstance(self.record.content, Tuning) else None

    @property
    def mark(self) -> Mark | None:
        return self.record.content if isinstance(self.record.content, Mark) else None

    @property
    def counts(self) -> bool:
        return self.state not in ("superseded", "malformed")


def entries(records: Sequence[Record]) -> tuple[Entry, ...]:
    """Of several records with one kind and key the last counts. A mark counts for the program records before it.

    A mark `distrusted` before a program is the memory that an earlier one of this key failed: a package lets a child process try
    the new one first. It is `earlier`."""
    programs = {record.key: n for n, record in enumerate(records) if isinstance(record.content, Program)}
    tunings = {record.key: n for n, record in enumerate(records) if isinstance(record.content, Tuning)}
    said = [(n, record) for n, record in enumerate(records) if isinstance(record.content, Mark)]
    marks = {record.key: n for n, record in said if n > programs.get(record.key, -1)}
    before = {record.key: n for n, record in said if n < programs.get(record.key, -1)}

    def state_of(n: int, record: Record) -> tuple[str, str]:
        match record.content:
            case Program() if programs[record.key] == n:
                mark = records[marks[record.key]].content if record.key in marks else None
                return (STATES.get(mark.what, "unchecked"), mark.reason) if isinstance(mark, Mark) else ("unchecked", "")
            case Tuning() if tunings[record.key] == n:
                return "", ""
            case Mark() if marks.get(record.key) == n:
                return "", ""
            case Mark() if before.get(record.key) == n and _distrusts(record):
                return "earlier", ""
            case None:
                return ("malformed", record.problem) if record.problem else ("", "")
        return "superseded", ""

    return tuple(Entry(record, *state_of(n, record)) for n, record in enumerate(records))


def _distrusts(record: Record) -> bool:
    return isinstance(record.content, Mark) and record.content.what == DISTRUSTED


def prune(cache: CacheFile, drop: Callable[[Entry], bool]) -> tuple[Record, ...]:
    """Without superseded, malformed and distrusted records, and without the programs and tunings that `drop` names.

    A mark `distrusted` stays when its program goes: the same binary may be in the cache that is shipped with the application."""
    kept: list[Entry] = []
    gone: set[bytes] = set()
    again: set[bytes] = set()  # distrusted, the latest too: one mark is enough
    for entry in entries(cache.records):
        if not entry.counts or (entry.tuning is not None and drop(entry)):
            continue
        if entry.program is not None and (entry.state == "distrusted" or drop(entry)):
            gone.add(entry.record.key)
            again |= {entry.record.key} if entry.state == "distrusted" else set()
        else:
            kept.append(entry)

    def stays(entry: Entry) -> bool:
        if entry.state == "earlier":
            return entry.record.key not in again
        return entry.mark is None or entry.mark.what == DISTRUSTED or entry.record.key not in gone

    return tuple(entry.record for entry in kept if stays(entry))


def merge(caches: Sequence[CacheFile]) -> tuple[Record, ...]:
    """One cache with every key of all of them. Where several have a key: a binary whose self-test passed goes before one without,
    that before a distrusted one; else the later cache's. What is distrusted in one cache, is so in the result."""
    seen = [[entry for entry in entries(cache.records) if entry.counts] for cache in caches]
    found = [entry for cache in seen for entry in cache]
    programs = [entry for entry in found if entry.program is not None]
    distrusted = {(entry.record.key, entry.record.body) for entry in programs if entry.state == "distrusted"}
    alone = {key for cache in seen for key in _distrusted_elsewhere(cache)}

    def rank(entry: Entry) -> int:
        if (entry.record.key, entry.record.body) in distrusted:
            return DISTRUSTED_RANK
        return CHECKED_RANK if entry.state == "checked" else DISTRUSTED_RANK if entry.record.key in alone else UNCHECKED_RANK

    best: dict[bytes, Entry] = {}
    for entry in programs:
        if entry.record.key not in best or rank(entry) >= rank(best[entry.record.key]):
            best[entry.record.key] = entry
    tunings = {entry.record.key: entry.record for entry in found if entry.tuning is not None}
    unknown = dict.fromkeys(entry.record for entry in found if entry.record.content is None)
    marks: dict[bytes, Record] = {}
    earlier = {entry.record.key: entry.record for entry in found if entry.state == "earlier"}
    earlier = {key: record for key, record in earlier.items() if rank(best[key]) != DISTRUSTED_RANK}
    for entry in found:
        key, mark = entry.record.key, entry.mark if entry.state != "earlier" else None
        wanted = MARK_OF_RANK.get(rank(best[key])) if key in best else None
        fits = mark is not None and (key not in best or mark.what == wanted)
        if fits and not (key in marks and _distrusts(marks[key])):
            marks[key] = entry.record
    return (*earlier.values(), *(entry.record for entry in best.values()), *tunings.values(), *unknown, *marks.values())


DISTRUSTED_RANK, UNCHECKED_RANK, CHECKED_RANK = range(3)
MARK_OF_RANK = {DISTRUSTED_RANK: DISTRUSTED, CHECKED_RANK: CHECKED}


def _distrusted_elsewhere(cache: Sequence[Entry]) -> set[bytes]:
    """Keys that a cache distrusts without having the program: a writable cache says so about the shipped one."""
    own = {entry.record.key for entry in cache if entry.program is not None}
    return {entry.record.key for entry in cache if _distrusts(entry.record) and entry.record.key not in own}
