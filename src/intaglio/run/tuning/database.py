"""Measured times by processor and layer, in a text file that can be read, compared, merged and shipped.

    intaglio-tuning 2

    processor AMD EPYC (family 25, model 1) | target x86-64-v3 | threads 1

    conv(f32[1,56,56,64], const f32[64,64,3,3], const f32[64], pads=(1,1,1,1), epilogue=[relu(0)])
          812.3 us  winograd(m=4,tile=4x3)
         1899.1 us  conv_nhwc(tile=6x2)

    end

Processors and layers are in alphabetical order, ways to compute a layer by their time. Who writes holds a lock, reads the file
again, and replaces it in one step: no record of another process is lost. A file that was cut short has no `end`. Version 1 had
none, and is read.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from intaglio.errors import ToolError, UserError, quoted
from intaglio.run.one_writer import locked, replace_file
from intaglio.targets.caches import cache_root, unsafe
from intaglio.targets.target import Target, processor_name

HEADER, FIRST_HEADER, END = "intaglio-tuning 2", "intaglio-tuning 1", "end"
FILE, VARIABLE = "tuning.txt", "INTAGLIO_TUNING"  # in the user's cache folder, or elsewhere
LARGEST_BYTES = 64 << 20
MOST_US = 1e9
_PLACE = re.compile(r"processor (?P<processor>\S.*) \| target (?P<target>\S+) \| threads (?P<threads>[1-9][0-9]{0,3})")
_LAYER = re.compile(r"[a-z][a-z0-9_]*\(.*\)")
_TIME = re.compile(r" +(?P<us>[0-9]{1,9}\.[0-9]+) us  (?P<using>[a-z][a-z0-9_]*(\([a-z0-9_=,]*\))?)")
Times = Mapping[str, float]  # microseconds, by `using`


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """Where something was measured."""

    processor: str
    target: str
    threads: int

    def __str__(self) -> str:
        return f"processor {self.processor} | target {self.target} | threads {self.threads}"


@dataclass(frozen=True, slots=True)
class Database:
    places: Mapping[Place, Mapping[str, Times]] = field(default_factory=dict)

    def times(self, place: Place, layer: str) -> Times:
        """Empty where it was not measured there."""
        return self.places.get(place, {}).get(layer, {})

    def elsewhere(self, place: Place, layer: str) -> Times:
        """Of another processor with the same target."""
        same = (p for p in sorted(self.places) if (p.target, p.threads) == (place.target, place.threads) and p != place)
        return next((found for p in same if (found := self.times(p, layer))), {})

    def with_times(self, place: Place, layer: str, times: Times) -> Database:
        """These instead of what is there of this layer."""
        return Database({**self.places, place: {**self.places.get(place, {}), layer: dict(times)}})

    @property
    def layers(self) -> int:
        return sum(map(len, self.places.values()))


def here(target: Target) -> Place:
    return Place(processor_name(), target.name, target.threads)


def merged(databases: Iterable[Database]) -> Database:
    """All records. What was measured more than once has the shortest time: noise only adds."""
    places: dict[Place, dict[str, dict[str, float]]] = {}
    for database in databases:
        for place, layers in database.places.items():
            for layer, times in layers.items():
                known = places.setdefault(place, {}).setdefault(layer, {})
                for using, time in times.items():
                    known[using] = min(time, known.get(using, time))
    return Database(places)


# As text ------------------------------------------------------------------------------------------------------------------


def print_database(database: Database) -> str:
    lines = [HEADER]
    for place, layers in sorted(database.places.items()):
        lines += ["", str(place)]
        for layer, times in sorted(layers.items()):
            lines += ["", layer]
            lines += [f"    {us:10.2f} us  {using}" for using, us in sorted(times.items(), key=lambda item: (item[1], item[0]))]
    return "\n".join([*lines, "", END]) + "\n"


def parse_database(text: str, file: str) -> Database:
    lines = text.splitlines()
    if not lines or lines[0] not in (HEADER, FIRST_HEADER):
        raise _not_one(file, f"starts with {quoted(lines[0], 40)}" if lines else "is empty")
    if lines[0] == HEADER:
        while lines[-1] == "" or lines[-1].startswith("#"):
            lines.pop()
        if lines.pop() != END:
            what = f"{quoted(file, 200)} is damaged: its end is missing (the last line is `{END}`)"
            raise UserError("bad-tuning", what, hint=_HINT)
    places: dict[Place, dict[str, dict[str, float]]] = {}
    layers: dict[str, dict[str, float]] | None = None
    times: dict[str, float] | None = None
    for number, line in enumerate(lines[1:], 2):
        if not line.strip() or line.startswith("#"):
            continue
        if match := _PLACE.fullmatch(line):
            layers, times = places.setdefault(Place(match["processor"], match["target"], int(match["threads"])), {}), None
        elif layers is not None and _LAYER.fullmatch(line):
            times = layers.setdefault(line, {})
        elif times is not None and (match := _TIME.fullmatch(line)) and 0 < float(match["us"]) < MOST_US:
            times[match["using"]] = min(float(match["us"]), times.get(match["using"], MOST_US))
        else:
            raise _damaged(file, number, line)
    return Database(places)


_HINT = "remove it and run `intaglio tune` again, or name another file with `--tuning`"


def _not_one(file: str, why: str) -> UserError:
    hint = f"such files start with `{HEADER}`; `intaglio tune MODEL --tuning FILE` writes one"
    return UserError("bad-tuning", f"{quoted(file, 200)} is not a tuning database of this version: it {why}", hint=hint)


def _damaged(file: str, number: int, line: str) -> UserError:
    what = f"{quoted(file, 200)} is damaged: {quoted(line.strip(), 60)} is neither a processor, a layer nor a time"
    return UserError("bad-tuning", what, where=f"{file}, line {number}", hint=_HINT)


# On disk ------------------------------------------------------------------------------------------------------------------


def default_file() -> Path:
    """INTAGLIO_TUNING names another one."""
    return Path(told) if (told := os.environ.get(VARIABLE)) else cache_root() / FILE


def read_database(path: Path) -> Database:
    shown = quoted(str(path), 200)
    try:
        if path.exists() and not path.is_file():
            raise UserError("bad-tuning", f"{shown} is not a file", hint="give a file that `intaglio tune` has written")
        if path.stat().st_size > LARGEST_BYTES:
            raise UserError("bad-tuning", f"{shown} is larger than {LARGEST_BYTES >> 20} MB, the limit of a tuning database")
        return parse_database(path.read_text(encoding="utf-8"), str(path))
    except UnicodeDecodeError:
        raise _not_one(str(path), "is not text") from None
    except FileNotFoundError:
        raise UserError("no-file", f"there is no {shown}", hint="`intaglio tune MODEL --tuning FILE` writes one") from None
    except OSError as error:
        raise UserError("cannot-read", f"{shown} cannot be read: {error.strerror}") from error


def read_default() -> tuple[Path, Database] | None:
    """What was measured on this machine; None where nothing was, or where others could have written it."""
    path = default_file()
    return (path, read_database(path)) if path.is_file() and not unsafe(path) else None


def read_if_there(path: Path) -> Database:
    return read_database(path) if os.path.lexists(path) else Database()


def make_room(path: Path) -> None:
    """The folder of a database, before anything is measured."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        what = f"cannot write the kernel times to {quoted(str(path), 200)}: {error.strerror}"
        raise ToolError("cannot-write", what, hint="name a file that can be written with `--tuning FILE`") from error


def add_records(path: Path, place: Place, layer: str, times: Times) -> None:
    """Under a lock, with what other processes have written meanwhile. A file that is not a database is never overwritten."""
    with locked(path):
        database = read_if_there(path)
        replace_file(path, print_database(database.with_times(place, layer, times)).encode())


def write_database(path: Path, database: Database) -> None:
    with locked(path):
        if os.path.lexists(path):
            read_database(path)  # nothing else is overwritten
        replace_file(path, print_database(database).encode())
