"""Kernels of strings: rows of bytes that end at their first zero, or at the end of the row."""

from __future__ import annotations

import math

from intaglio.ir.sizes import Size, most
from intaglio.ir.types import strides_of
from intaglio.kernels.builder import Builder
from intaglio.kernels.elementwise import offset_of
from intaglio.kernels.job import Job, Lowered
from intaglio.kernels.loop import IDX, SIZE_OUT_OF_BOUNDS, Buffer, Expr, Load, Num, Type, Var, both, cast, either, idx, select
from intaglio.ops.strings import SPACES, NGrams, TextCase, TextFind, TextJoin, TextKeep, TextMatch, TextSplit, TextTrim

F32, I64, U8, BOOL = Type("f32"), Type("i64"), Type("u8"), Type("bool")
ZERO = Num(0, U8)


def _byte(buffer: Buffer, at: Expr) -> Expr:
    return Load(buffer, at, U8)


def _about(job: Job) -> str:
    shapes = " ".join(f"{v.dtype.value}{list(v.shape)}" for v in job.node.inputs if v is not None)
    return f"{job.node.op.NAME}\n{shapes} -> {job.node.output.dtype.value}{list(job.node.output.shape)}"


def text_trim(job: Job) -> Lowered:
    k = job.k
    assert isinstance(job.node.op, TextTrim)
    x, y = job.operand(0, "x"), job.writes()
    *shape, width = job.type(0).shape
    with k.loop("i", 0, math.prod(shape)) as i:
        inside = k.var("inside", 1)
        with k.loop("w", 0, width) as w:
            byte = k.let("byte", _byte(x, i * width + w))
            with k.when(byte.compare("eq", ZERO)):
                k.assign(inside, 0)
            k.store(y, i * width + w, select(inside.compare("ne", 0), byte, ZERO))
    return job.done("text_trim", _about(job))


def text_find(job: Job) -> Lowered:
    """By halves: the keys are sorted."""
    k = job.k
    assert isinstance(job.node.op, TextFind)
    x, keys, y = job.operand(0, "x"), job.operand(1, "keys"), job.writes()
    *shape, width = job.type(0).shape
    count, other = job.type(1).shape
    with k.loop("i", 0, math.prod(shape)) as i:
        low, high, found = k.var("low", 0), k.var("high", count), k.var("found", Num(-1, IDX))
        with k.during(low.compare("lt", high)):
            middle = k.let("middle", (low + high) // 2)
            order = _order(k, x, i * width, width, keys, middle * other, other)
            with k.when(order.compare("eq", 0)):
                k.assign(found, middle)
            with k.when(order.compare("gt", 0)):
                k.assign(low, middle + 1)
            with k.otherwise():
                k.assign(high, middle)
        k.store(y, i, cast(found, I64))
    return job.done("text_find", _about(job))


def _order(k: Builder, a: Buffer, a_at: Expr, a_width: int, b: Buffer, b_at: Expr, b_width: int) -> Var:
    """Below, at or above 0: how two strings compare, byte by byte."""
    order, at = k.var("order", 0), k.var("at", 0)
    wide, narrow = max(a_width, b_width), min(a_width, b_width)
    with k.during(both(order.compare("eq", 0), at.compare("lt", wide))):
        left, right = k.var("left", Num(0, U8), U8), k.var("right", Num(0, U8), U8)
        for byte, buffer, start, width in ((left, a, a_at, a_width), (right, b, b_at, b_width)):
            if width == narrow < wide:
                with k.when(at.compare("lt", width)):
                    k.assign(byte, _byte(buffer, start + at))
            else:
                k.assign(byte, _byte(buffer, start + at))
        k.assign(order, cast(left, IDX) - cast(right, IDX))
        k.assign(at, at + 1)
    return order


def text_join(job: Job) -> Lowered:
    k = job.k
    assert isinstance(job.node.op, TextJoin)
    a, b, y = job.operand(0, "a"), job.operand(1, "b"), job.writes()
    *shape, width = job.node.output.shape
    with k.loops([f"i{n}" for n in range(len(shape))], list(shape)) as at:
        start = k.let("start", offset_of(at, list(strides_of(tuple(shape)))) * width)
        to = k.var("to", 0)
        for n, buffer in enumerate((a, b)):
            *own, bytes_ = job.type(n).shape
            steps = [0 if size == 1 else step for size, step in zip(own, strides_of(tuple(own)), strict=True)]
            row = k.let("row", offset_of(at[len(at) - len(own) :], steps) * bytes_)
            with k.loop("w", 0, bytes_) as w:
                byte = k.let("byte", _byte(buffer, row + w))
                with k.when(byte.compare("ne", ZERO)):
                    k.store(y, start + to, byte)
                    k.assign(to, to + 1)
        with k.loop("w", to, width) as w:
            k.store(y, start + w, ZERO)
    return job.done("text_join", _about(job))


def text_split(job: Job) -> Lowered:
    """Counts first: how far rows are apart is known then."""
    op, k = job.node.op, job.k
    assert isinstance(op, TextSplit)
    n, width = job.type(0).shape
    x, y, numbers, count = job.operand(0, "x"), job.writes(0), job.writes(1, "numbers"), job.writes(2, "count")
    widest = k.var("widest", 0)
    with k.loop("i", 0, n) as i:
        pieces = k.var("pieces", 0)
        _pieces(k, op, x, i * width, width, pieces, None)
        k.store(numbers, i, cast(pieces, I64))
        with k.when(pieces.compare("gt", widest)):
            k.assign(widest, pieces)
    if isinstance(op.count, Size):
        with k.when(widest.compare("gt", most(op.count))):
            k.fail(SIZE_OUT_OF_BOUNDS)
    k.store(count, 0, cast(widest, I64))
    with k.loop("i", 0, n) as i:
        start = k.let("start", i * widest * width)
        with k.loop("w", 0, widest * width) as w:
            k.store(y, start + w, ZERO)
        _pieces(k, op, x, i * width, width, k.var("pieces", 0), (y, start))
    return job.done("text_split", _about(job))


def _pieces(k: Builder, op: TextSplit, x: Buffer, row: Expr, width: int, pieces: Var, into: tuple[Buffer, Expr] | None) -> None:
    """Walk along a string; `pieces` becomes their number, which are written where `into` says."""
    at, to, going = k.var("at", 0), k.var("to", 0), k.var("going", 1)
    inside = k.var("inside", 0)
    if op.delimiter:
        k.assign(pieces, 1)
    with k.during(both(going.compare("ne", 0), at.compare("lt", width))):
        byte = k.let("byte", _byte(x, row + at))
        with k.when(byte.compare("eq", ZERO)):
            k.assign(going, 0)
        with k.otherwise():
            ends = _delimits(k, op, x, row, width, at, byte)
            if op.most >= 0:
                room = pieces.compare("le", op.most)
                ends = both(ends, room if op.delimiter else either(inside.compare("eq", 0), room))
            with k.when(ends):
                k.assign(inside, 0)
                if op.delimiter:
                    k.assign(pieces, pieces + 1)
                    k.assign(to, 0)
                k.assign(at, at + max(len(op.delimiter), 1))
            with k.otherwise():
                if not op.delimiter:
                    with k.when(inside.compare("eq", 0)):
                        k.assign(pieces, pieces + 1)
                        k.assign(to, 0)
                k.assign(inside, 1)
                if into is not None:
                    k.store(into[0], into[1] + (pieces - 1) * width + to, byte)
                k.assign(to, to + 1)
                k.assign(at, at + 1)


def _delimits(k: Builder, op: TextSplit, x: Buffer, row: Expr, width: int, at: Var, byte: Expr) -> Expr:
    """Is here white space, or does the delimiter start here?"""
    if not op.delimiter:
        spaces = [byte.compare("eq", Num(code, U8)) for code in SPACES]
        found = spaces[0]
        for test in spaces[1:]:
            found = either(found, test)
        return found
    same = k.var("same", 1)
    with k.when(byte.compare("ne", Num(op.delimiter[0], U8))):
        k.assign(same, 0)
    for n, code in enumerate(op.delimiter[1:], 1):
        with k.when((at + n).compare("ge", width)):
            k.assign(same, 0)
        with k.otherwise(), k.when(_byte(x, row + at + n).compare("ne", Num(code, U8))):
            k.assign(same, 0)
    return same.compare("ne", 0)


def text_keep(job: Job) -> Lowered:
    op, k = job.node.op, job.k
    assert isinstance(op, TextKeep)
    n, width = job.type(0).shape
    x, keep, y, count = job.operand(0, "x"), job.operand(1, "keep"), job.writes(0), job.writes(1, "count")
    rows = k.var("rows", 0)
    with k.loop("i", 0, n) as i, k.when(Load(keep, i, BOOL)):
        k.copy(y, rows * width, x, i * width, width)
        k.assign(rows, rows + 1)
    with k.when(rows.compare("eq", 0)):
        with k.loop("w", 0, width) as w:
            k.store(y, w, ZERO)
        k.assign(rows, 1)
    k.store(count, 0, cast(rows, I64))
    return job.done("text_keep", _about(job))


def text_case(job: Job) -> Lowered:
    """Characters of one and of two bytes; longer ones have no case here."""
    k = job.k
    assert isinstance(job.node.op, TextCase)
    x, table, y = job.operand(0, "x"), job.operand(1, "table"), job.writes()
    *shape, width = job.type(0).shape
    with k.loop("i", 0, math.prod(shape)) as i:
        at = k.var("at", 0)
        with k.during(at.compare("lt", width)):
            lead = k.let("lead", cast(_byte(x, i * width + at), IDX))
            with k.when(lead.compare("lt", 0x80)):
                k.store(y, i * width + at, cast(Load(table, lead, Type("u16")), U8))
            with k.otherwise():
                two = both(both(lead.compare("ge", 0xC0), lead.compare("lt", 0xE0)), (at + 1).compare("lt", width))
                with k.when(two):
                    _two_bytes(k, x, table, y, i * width + at, lead)
                    k.assign(at, at + 1)
                with k.otherwise():
                    k.store(y, i * width + at, cast(lead, U8))
            k.assign(at, at + 1)
    return job.done("text_case", _about(job))


def _two_bytes(k: Builder, x: Buffer, table: Buffer, y: Buffer, at: Expr, lead: Expr) -> None:
    """110aaaaa 10bbbbbb. The second may be any byte: its lowest bits count."""
    code = k.let("code", (lead - 0xC0) * 64 + cast(_byte(x, at + 1), IDX) % 64)
    other = k.let("other", cast(Load(table, code, Type("u16")), IDX))
    k.store(y, at, cast(other // 64 + 0xC0, U8))
    k.store(y, at + 1, cast(other % 64 + 0x80, U8))


def text_match(job: Job) -> Lowered:
    k = job.k
    assert isinstance(job.node.op, TextMatch)
    x, classes, after, accepts = (job.operand(n, name) for n, name in enumerate(("x", "classes", "next_state", "accepts")))
    y = job.writes()
    *shape, width = job.type(0).shape
    kinds = job.type(2).shape[1]
    with k.loop("i", 0, math.prod(shape)) as i:
        state = k.var("state", 0)
        with k.loop("w", 0, width) as w:
            byte = k.let("byte", _byte(x, i * width + w))
            with k.when(byte.compare("ne", ZERO)):
                kind = k.let("kind", cast(_byte(classes, cast(byte, IDX)), IDX))
                k.assign(state, cast(Load(after, state * kinds + kind, Type("u16")), IDX))
        k.store(y, i, _byte(accepts, state).compare("ne", ZERO))
    return job.done("text_match", _about(job) + f", {job.type(2).shape[0]} states")


def ngrams(job: Job) -> Lowered:
    op, k = job.node.op, job.k
    assert isinstance(op, NGrams)
    x, pool, lengths, places = (job.operand(n, name) for n, name in enumerate(("x", "pool", "lengths", "places")))
    y = job.writes()
    rows, columns = job.type(0).shape
    entries, longest = job.type(1).shape
    with k.loop("i", 0, rows * op.size) as i:
        k.store(y, i, Num(0.0, F32))
    with k.loop("i", 0, rows) as i, k.loop("e", 0, entries) as e:
        length = k.let("length", cast(Load(lengths, e, I64), IDX))
        place = k.let("place", i * op.size + cast(Load(places, e, I64), IDX))
        steps = k.let("steps", select(length.compare("gt", 1), idx(op.skips + 2), idx(2)))
        with k.loop("step", 1, steps) as step, k.loop("start", 0, columns - (length - 1) * step) as start:
            same, n = k.var("same", 1), k.var("n", 0)
            with k.during(both(same.compare("ne", 0), n.compare("lt", length))):
                left = Load(x, i * columns + start + n * step, I64)
                with k.when(left.compare("ne", Load(pool, e * longest + n, I64))):
                    k.assign(same, 0)
                k.assign(n, n + 1)
            with k.when(same.compare("ne", 0)):
                k.store(y, place, Load(y, place, F32) + Num(1.0, F32))
    return job.done("ngrams", _about(job) + f", up to {op.skips} skipped")
