"""Operators on strings: rows of bytes with zeros behind their end (`ir/strings.py`). Results are such rows, or numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from intaglio.ir.graph import Array
from intaglio.ir.strings import stacked
from intaglio.ir.types import DType, Layout, TensorType, broadcast_shapes
from intaglio.ops.base import BadOperator, Op
from intaglio.ops.control import need
from intaglio.ops.found import COUNT

SPACES = b" \t\n\r\x0b\x0c"


def need_strings(name: str, *types: TensorType) -> None:
    for t in types:
        if t.dtype is not DType.U8 or t.rank < 1:
            raise BadOperator(f"`{name}` takes strings, rows of u8, got {t}")


def _rows(array: Array) -> list[bytes]:
    flat = np.ascontiguousarray(array).reshape(-1, array.shape[-1])
    return [bytes(row).split(b"\0", 1)[0] for row in flat]


@dataclass(frozen=True, slots=True)
class TextTrim(Op):
    """text_trim(x u8[..., w]): zeros behind the end of each string, whatever was there."""

    NAME: ClassVar[str] = "text_trim"

    def infer(self, *types: TensorType | None) -> tuple[TensorType, ...]:
        x = need(self.NAME, types, 1, 1)[0]
        need_strings(self.NAME, x)
        return (TensorType(DType.U8, x.shape, Layout.TEXT),)

    def reference(self, *arrays: Array | None) -> tuple[Array, ...]:
        assert arrays[0] is not None
        return (stacked(_rows(arrays[0]), arrays[0].shape[-1]).reshape(arrays[0].shape),)


@dataclass(frozen=True, slots=True)
class TextFind(Op):
    """text_find(x u8[..., w], keys u8[k, v]) -> i64[...]: which key each string is, -1 where it is none. Keys are sorted."""

    NAME: ClassVar[str] = "text_find"

    def infer(self, *types: TensorType | None) -> tuple[TensorType, ...]:
        x, keys = need(self.NAME, types, 2, 2)
        need_strings(self.NAME, x, keys)
        if keys.rank != 2:
            raise BadOperator(f"the keys of `text_find` are rows, got {keys}")
        return (TensorType(DType.I64, x.shape[:-1]),)

    def reference(self, *arrays: Array | None) -> tuple[Array, ...]:
        x, keys = arrays
        assert x is not None and keys is not None
        place = {key: n for n, key in reversed(list(enumerate(_rows(keys))))}
        return (np.array([place.get(row, -1) for row in _rows(x)], np.int64).reshape(x.shape[:-1]),)


@dataclass(frozen=True, slots=True)
class TextJoin(Op):
    """text_join(a u8[..., v], b u8[..., w]) -> u8[..., v + w]: one behind the other."""

    NAME: ClassVar[str] = "text_join"

    def infer(self, *types: TensorType | None) -> tuple[TensorType, ...]:
        a, b = need(self.NAME, types, 2, 2)
        need_strings(self.NAME, a, b)
        try:
            shape = broadcast_shapes(a.shape[:-1], b.shape[:-1])
        except ValueError as error:
            raise BadOperator(str(error)) from None
        return (TensorType(DType.U8, (*shape, a.shape[-1] + b.shape[-1]), Layout.TEXT),)

    def reference(self, *arrays: Array | None) -> tuple[Array, ...]:
        a, b = arrays
        assert a is not None and b is not None
        shape = broadcast_shapes(a.shape[:-1], b.shape[:-1])
        left, right = (_rows(np.broadcast_to(x, (*shape, x.shape[-1]))) for x in (a, b))
        width = a.shape[-1] + b.shape[-1]
        return (stacked([x + y for x, y in zip(left, right, strict=True)], width).reshape(*shape, width),)


@dataclass(frozen=True, slots=True)
class TextSplit(Op):
    """text_split(x u8[n, w]) -> u8[n, count, w], numbers i64[n], count: the pieces between delimiters.

    An empty `delimiter` means runs of white space, of which none is kept. `most`: delimiters that count; -1: all."""

    NAME: ClassVar[str] = "text_split"
    count: int = 0
    delimiter: tuple[int, ...] = ()  # bytes
    most: int = -1

    def infer(self, *types: TensorType | None) -> tuple[TensorType, ...]:
        x = need(self.NAME, types, 1, 1)[0]
        need_strings(self.NAME, x)
        if x.rank != 2:
            raise BadOperator(f"`text_split` takes rows, got {x}")
        n, width = x.shape
        return TensorType(DType.U8, (n, self.count, width), Layout.TEXT), TensorType(DType.I64, (n,)), COUNT

    def reference(self, *arrays: Array | None) -> tuple[Array, ...]:
        x = arrays[0]
        assert x is not None
        between = bytes(self.delimiter) or None
        parts = [row.split(between, self.most) for row in _rows(x)]
        count = max((len(p) for p in parts), default=0)
        pieces = [piece for p in parts for piece in [*p, *[b""] * (count - len(p))]]
        numbers = np.array([len(p) for p in parts], np.int64)
        return stacked(pieces, x.shape[1]).reshape(len(parts), count, x.shape[1]), numbers, np.asarray(count, np.int64)


@dataclass(frozen=True, slots=True)
class TextKeep(Op):
    """text_keep(x u8[n, w], keep bool[n]) -> u8[count, w], count: the strings that are kept; an empty one where none is."""

    NAME: ClassVar[str] = "text_keep"
    count: int = 0

    def infer(self, *types: TensorType | None) -> tuple[TensorType, ...]:
        x, keep = need(self.NAME, types, 2, 2)
        need_strings(self.NAME, x)
        if x.rank != 2 or keep.dtype is not DType.BOOL or keep.shape != x.shape[:1]:
            raise BadOperator(f"`text_keep` of {x} by {keep}")
        return TensorType(DType.U8, (self.count, x.shape[1]), Layout.TEXT), COUNT

    def reference(self, *arrays: Array | None) -> tuple[Array, ...]:
        x, keep = arrays
        assert x is not None and keep is not None
        kept = x[keep.astype(bool)] if keep.any() else np.zeros((1, x.shape[1]), np.uint8)
        return kept, np.asarray(len(kept), np.int64)


def case_table(upper: bool) -> Array:
    """u16[0x800]: the other case of every character of one or two bytes in UTF-8 whose other case has as many."""
    codes = np.arange(0x800, dtype=np.uint16)
    for code in range(0x800):
        other = chr(code).upper() if upper else chr(code).lower()
        if len(other) == 1 and len(other.encode()) == len(chr(code).encode()):
            codes[code] = ord(other)
    return codes


@dataclass(frozen=True, slots=True)
class TextCase(Op):
    """text_case(x u8[..., w], table u16[2048]): letters in the other case, by `case_table`."""

    NAME: ClassVar[str] = "text_case"

    def infer(self, *types: TensorType | None) -> tuple[TensorType, ...]:
        x, table = need(self.NAME, types, 2, 2)
        need_strings(self.NAME, x)
        if table.dtype is not DType.U16 or table.shape != (0x800,):
            raise BadOperator(f"the table of `text_case` is u16[2048], got {table}")
        return (TensorType(DType.U8, x.shape, Layout.TEXT),)

    def reference(self, *arrays: Array | None) -> tuple[Array, ...]:
        x, table = arrays
        assert x is not None and table is not None
        flat = x.reshape(-1, x.shape[-1]).copy()
        for row in flat:
            at = 0
            while at < len(row):
                lead = int(row[at])
                if lead < 0x80:
                    row[at] = int(table[lead])
                elif 0xC0 <= lead < 0xE0 and at + 1 < len(row):
                    other = int(table[(lead & 31) << 6 | int(row[at + 1]) & 63])
                    row[at], row[at + 1] = 0xC0 | other >> 6, 0x80 | other & 63
                    at += 1
                at += 1
        return (flat.reshape(x.shape),)


@dataclass(frozen=True, slots=True)
class TextMatch(Op):
    """text_match(x u8[..., w], classes u8[256], next u16[states, kinds], accepts u8[states]) -> bool[...]

    Is the whole string accepted by the automaton that starts in state 0? `classes` says of which kind a byte is."""

    NAME: ClassVar[str] = "text_match"

    def infer(self, *types: TensorType | None) -> tuple[TensorType, ...]:
        x, classes, after, accepts = need(self.NAME, types, 4, 4)
        need_strings(self.NAME, x)
        fits = classes.shape == (256,) and after.rank == 2 and accepts.shape == after.shape[:1]
        if not fits or [t.dtype for t in (classes, after, accepts)] != [DType.U8, DType.U16, DType.U8]:
            raise BadOperator(f"`text_match` by {classes}, {after}, {accepts}")
        return (TensorType(DType.BOOL, x.shape[:-1]),)

    def reference(self, *arrays: Array | None) -> tuple[Array, ...]:
        x, classes, after, accepts = arrays
        assert x is not None and classes is not None and after is not None and accepts is not None
        found = []
        for row in _rows(x):
            state = 0
            for byte in row:
                state = int(after[state, classes[byte]])
            found.append(bool(accepts[state]))
        return (np.array(found, bool).reshape(x.shape[:-1]),)


@dataclass(frozen=True, slots=True)
class NGrams(Op):
    """ngrams(x i64[n, c], pool i64[m, longest], lengths i64[m], places i64[m]) -> f32[n, size]

    How often each entry of the pool is in a row: its numbers one behind the other, or with up to `skips` left out between each
    two. An entry counts at its place."""

    NAME: ClassVar[str] = "ngrams"
    skips: int = 0
    size: int = 0

    def infer(self, *types: TensorType | None) -> tuple[TensorType, ...]:
        x, pool, lengths, places = need(self.NAME, types, 4, 4)
        fits = x.rank == 2 and pool.rank == 2 and lengths.shape == places.shape == pool.shape[:1]
        if not fits or {t.dtype for t in (x, pool, lengths, places)} != {DType.I64}:
            raise BadOperator(f"`ngrams` of {x} by {pool}")
        return (TensorType(DType.F32, (x.shape[0], self.size)),)

    def reference(self, *arrays: Array | None) -> tuple[Array, ...]:
        x, pool, lengths, places = arrays
        assert x is not None and pool is not None and lengths is not None and places is not None
        out = np.zeros((len(x), self.size), np.float32)
        for row, counts in zip(x, out, strict=True):
            for entry, length, place in zip(pool, lengths.tolist(), places.tolist(), strict=True):
                for step in range(1, (self.skips if length > 1 else 0) + 2):
                    for start in range(len(row) - (length - 1) * step):
                        counts[place] += bool((row[start : start + (length - 1) * step + 1 : step] == entry[:length]).all())
        return (out,)

    def macs(self, types: list[TensorType | None], out: TensorType) -> int:
        x, pool = types[0], types[1]
        return 0 if x is None or pool is None else x.elements * pool.elements * (self.skips + 1)
