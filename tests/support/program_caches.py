"""Program caches to test with: small, of made-up devices."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path

from intaglio.run.opencl.cache_file import (
    CHECKED,
    DISTRUSTED,
    FIELDS,
    Mark,
    Program,
    Record,
    TunedLaunch,
    Tuning,
    dump,
    mark_record,
    program_record,
    tuning_record,
)

SOURCE = hashlib.sha256(b"__kernel void k() {}").hexdigest()
MALI = ("Arm Platform", "OpenCL 3.0 v1.r32", "Mali-G78", "Arm", "OpenCL 3.0", "3.0 r32p1", "64")
NOVEMBER = 1_793_500_000


def program(name: str = "k", binary: bytes = b"\x7fELF binary", of: Iterable[str] = MALI, **changed: str) -> Record:
    source = hashlib.sha256(name.encode()).hexdigest()
    fields = dict(zip(FIELDS, (source, "-cl-std=CL1.2", *of), strict=True)) | {k.replace("_", " "): v for k, v in changed.items()}
    tests = ((name, hashlib.sha256(binary).digest()),)
    return program_record(Program(tuple(fields.values()), "memory: 8 GB\n", tests, binary), NOVEMBER)


def tuning(device: str = "Mali-G78", variant: int = 1) -> Record:
    launches = (TunedLaunch((8, 8, 1), 125_000), TunedLaunch((64, 1, 1), 7_000))
    return tuning_record(Tuning((SOURCE, "Arm Platform", device, "Arm"), ((variant, launches), (0, ()))), NOVEMBER)


def checked(of: Record) -> Record:
    return mark_record(of.key, Mark(CHECKED, ""), NOVEMBER)


def distrusted(of: Record, reason: str = "the self-test of `k` gave something else") -> Record:
    return mark_record(of.key, Mark(DISTRUSTED, reason), NOVEMBER)


def unknown(body: bytes = b"of a later version") -> Record:
    return Record(77, bytes(32), body, NOVEMBER)


def written(path: Path, *records: Record) -> Path:
    path.write_bytes(dump(records))
    return path


