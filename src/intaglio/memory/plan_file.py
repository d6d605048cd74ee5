"""A memory plan as CSV, to read, to draw, to edit, and to compile with again.

    buffer,bytes,first,last,offset,pinned
    image_input,256,0,0,1024,0
    conv1,1024,0,1,0,1

A buffer is alive from layer `first` to layer `last`, both included; `offset` counts from the start of the arena. Reading keeps
every buffer that has an offset and plans the others around: rows may be left out, and so may offsets. `pinned` is 0 where an
offset came from the planner; that is for the reader, and kept as it is.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from types import MappingProxyType

from intaglio.errors import UserError, quoted
from intaglio.ir.placement import ARENA, Region
from intaglio.memory.lifetimes import Buffer

COLUMNS = ("buffer", "bytes", "first", "last", "offset", "pinned")
REGION = "region"  # one more column, where there are several arenas
PLAN_BEGINS = ",".join(COLUMNS[:2]).encode()
_FARTHEST = 1 << 31
_HINT = "`--export-plan` writes a plan of this model; a row without an offset is planned again"


@dataclass(frozen=True, slots=True)
class Row:
    """A line of the file; None where a cell is empty or the column is not there."""

    line: int
    buffer: str
    bytes: int | None
    first: int | None
    last: int | None
    offset: int | None
    pinned: bool = True
    region: Region = ARENA


@dataclass(frozen=True, slots=True)
class PlanFile:
    path: Path
    rows: tuple[Row, ...]

    @property
    def pinned(self) -> frozenset[str]:
        """Buffers whose place the user chose."""
        return frozenset(row.buffer for row in self.rows if row.offset is not None and row.pinned)

    def fault(self, row: Row | None, text: str) -> UserError:
        where = f"{self.path}, line {row.line}" if row else str(self.path)
        return UserError("bad-plan", text, where=where, hint=_HINT)


def plan_text(buffers: list[Buffer], pinned: frozenset[str] = frozenset()) -> str:
    """Rows in order of time, then of address."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    several = any(b.region != ARENA for b in buffers)
    writer.writerow((*COLUMNS, REGION) if several else COLUMNS)
    for b in sorted(buffers, key=lambda b: (b.first, str(b.region), b.offset, b.name)):
        row = [b.name, b.bytes, b.first, b.last, b.offset, int(b.name in pinned)]
        writer.writerow([*row, b.region] if several else row)
    return text.getvalue()


def read_plan(path: Path) -> PlanFile:
    plan = PlanFile(path, ())
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise plan.fault(None, f"cannot read the plan {quoted(str(path), 200)}: {reason}") from None
    reader = csv.DictReader(io.StringIO(text), restkey="")
    names = [n.strip() for n in reader.fieldnames or ()]
    reader.fieldnames = names
    if "buffer" not in names or "offset" not in names or not set(names) <= {*COLUMNS, REGION}:
        raise plan.fault(None, f"the first line of a plan names its columns: `{','.join(COLUMNS)}`")
    try:
        rows = tuple(_row(plan, cells, reader.line_num) for cells in reader)
    except csv.Error as error:
        raise plan.fault(None, f"{quoted(str(path), 200)} is not CSV: {error}") from None
    return PlanFile(path, rows)


def _row(plan: PlanFile, cells: dict[str, str | None], line: int) -> Row:
    row = Row(line, (cells["buffer"] or "").strip(), None, None, None, None)
    if "" in cells:
        raise plan.fault(row, "there are more cells than columns")
    numbers: dict[str, int | None] = {}
    for column in COLUMNS[1:]:
        text = (cells.get(column) or "").strip()
        if text and not (text.isascii() and text.isdigit() and len(text) < 16):
            raise plan.fault(row, f"the {column} {quoted(text)} of {quoted(row.buffer)} is not an integer from 0")
        numbers[column] = int(text) if text else None
    sizes = (numbers["bytes"], numbers["first"], numbers["last"], numbers["offset"])
    return Row(line, row.buffer, *sizes, numbers["pinned"] != 0, Region.of((cells.get(REGION) or "").strip() or "arena"))


def pin(
    buffers: list[Buffer], plan: PlanFile, base: int, alignment: int, regions: Sequence[Region] = (ARENA,),
    apart: Mapping[tuple[Buffer, Buffer], int] = MappingProxyType({}),
) -> None:  # fmt: skip
    """Give buffers the offsets of the plan. Raises UserError, with the line, for one that cannot work. `apart`: pairs that may
    overlap, (lower, upper), and how far they are apart at least."""
    known = {b.name: b for b in buffers}
    pinned: dict[str, tuple[Row, Buffer]] = {}
    for row in plan.rows:
        buffer = known.get(row.buffer)
        if buffer is None:
            raise plan.fault(row, f"unknown buffer {quoted(row.buffer)} in this model on this target")
        for what, given, right in (
            ("bytes", row.bytes, buffer.bytes), ("first", row.first, buffer.first), ("last", row.last, buffer.last),
        ):  # fmt: skip
            if given not in (None, right):
                raise plan.fault(row, f"`{what}` of {quoted(row.buffer)} is {right} in this model on this target, not {given}")
        if row.offset is None:
            continue
        if row.buffer in pinned:
            raise plan.fault(row, f"{quoted(row.buffer)} already has an offset in line {pinned[row.buffer][0].line}")
        if row.offset % alignment:
            raise plan.fault(row, f"{quoted(row.buffer)} cannot be at {row.offset}: offsets are multiples of {alignment}")
        if row.region not in regions:
            there = ", ".join(f"`{region}`" for region in regions)
            raise plan.fault(row, f"unknown region {quoted(str(row.region))} for {quoted(row.buffer)}; regions: {there}")
        start = base if row.region == ARENA else 0
        if row.offset < start:
            raise plan.fault(row, f"{quoted(row.buffer)} cannot be at {row.offset}: the state takes the first {base} bytes")
        if row.offset + buffer.bytes > _FARTHEST:
            raise plan.fault(row, f"{quoted(row.buffer)} cannot be at {row.offset}: an arena has less than {_FARTHEST} bytes")
        buffer.offset, buffer.pinned, buffer.region = row.offset - start, True, row.region
        pinned[row.buffer] = (row, buffer)
    for (above, a), (row, b) in combinations(pinned.values(), 2):
        below, above_it = apart.get((b, a), b.bytes), apart.get((a, b), a.bytes)
        if a.meets(b) and a.region == b.region and a.offset < b.offset + below and b.offset < a.offset + above_it:
            layer = max(a.first, b.first)
            text = f"{quoted(b.name)} cannot be at {row.offset}: {quoted(a.name)} of line {above.line} is there in layer {layer}"
            raise plan.fault(row, text)
