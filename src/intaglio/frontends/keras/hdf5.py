"""HDF5 files as Keras writes them, read in Python with every offset checked.

The library for HDF5 is not used: a file with a few bytes changed can make it write outside of its memory (400 changed files were
enough to crash HDF5 2.0), and a model is not trusted. What Keras writes needs little of the format: groups by symbol tables or
links, attributes, arrays in one piece or in chunks. Everything that points outside the file (external and soft links,
external storage, virtual datasets) and filters that are not simple are refused.

Numbers in comments are sections of the HDF5 File Format Specification, version 3.0.
"""

from __future__ import annotations

import math
import mmap
import struct
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from intaglio.errors import ModelError, quoted
from intaglio.frontends.keras.hdf5_messages import (
    ATTRIBUTE,
    Attribute,
    Damage,
    Layout,
    Message,
    Refused,
    Space,
    Type,
    messages,
    read_attribute,
    read_filters,
    read_layout,
    read_link,
    read_space,
    read_type,
)
from intaglio.frontends.onnx.faults import Fault
from intaglio.ir.graph import Array

_AGAIN = "the file is damaged; save the model again"
_HERE = "save the model again: Keras writes everything into the file"
_MOST_NAMES = 1_000_000
_MOST_EXPANSION = 1100  # deflate cannot do better
_MOST_ELEMENTS = 2**31 - 1
_DAMAGE = (Damage, struct.error, ValueError, LookupError, TypeError, OverflowError, MemoryError, zlib.error, OSError)


@contextmanager
def _reading(file: str) -> Iterator[None]:
    try:
        yield
    except Refused as error:
        raise ModelError("bad-file", str(error), where=file, hint=_HERE) from None
    except _DAMAGE as error:
        reason = f"the HDF5 part cannot be read ({str(error)[:200]})"
        raise ModelError("not-a-model", reason, where=file, hint=_AGAIN) from None


@dataclass(slots=True)
class _Object:
    """A group or a dataset: the messages of its header."""

    messages: list[Message]
    attributes: dict[str, Attribute] = field(default_factory=dict)
    links: dict[str, int | None] | None = None  # None: to another place

    def first(self, kind: int) -> Message | None:
        return next((m for m in self.messages if m.kind == kind), None)


class Hdf5:
    """An open file. Paths are followed link by link."""

    def __init__(self, source: Path | bytes, file: str) -> None:
        self.file = file
        self._map: mmap.mmap | None = None
        self._objects: dict[int, _Object] = {}
        with _reading(file):
            if isinstance(source, bytes):
                self._data: bytes | mmap.mmap = source
            else:
                with open(source, "rb") as opened:
                    self._data = self._map = mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ)
            self.size = len(self._data)
            self._root = self._superblock()

    def close(self) -> None:
        if self._map is not None:
            self._map.close()
            self._map = None

    # What is asked of it ------------------------------------------------------------------------------------------------

    def names(self, path: str) -> list[str]:
        with _reading(self.file):
            found = self._find(path)
            return [] if found is None else list(self._links(found))

    def text(self, path: str, attribute: str) -> str | None:
        """A string attribute."""
        found = self.texts(path, attribute)
        return None if not found else found[0]

    def texts(self, path: str, attribute: str) -> list[str] | None:
        """A list of strings; Keras cuts a long one into `weight_names0`, `weight_names1`, ..."""
        with _reading(self.file):
            found = self._find(path)
            if found is None:
                return None
            if attribute in found.attributes:
                return self._strings(found.attributes[attribute])
            parts: list[str] = []
            number = 0
            while f"{attribute}{number}" in found.attributes:
                parts += self._strings(found.attributes[f"{attribute}{number}"])
                number += 1
            return parts if number else None

    def shape(self, path: str) -> tuple[int, ...] | None:
        with _reading(self.file):
            found = self._find(path)
            space = None if found is None else found.first(0x01)
            return None if space is None else read_space(space.data).dims

    def array(self, path: str) -> Array:
        """The numbers of a dataset. bf16 is stored as its bits, with the attribute `dtype`: it comes out as f32."""
        what = f"the weights {quoted(path)}"
        with _reading(self.file):
            found = self._find(path)
            space_message, type_message, layout_message = (None if found is None else found.first(k) for k in (0x01, 0x03, 0x08))
            if found is None or space_message is None or type_message is None or layout_message is None:
                raise Fault("bad-tensor", f"{what} are missing from the file", "save the model again")
            if found.first(0x07) is not None:
                raise Fault("bad-file", f"{what} are stored in another file", _HERE)
            space, kind, layout = read_space(space_message.data), read_type(type_message.data), read_layout(layout_message.data)
            if kind.numpy is None:
                raise Fault("unsupported-type", f"{what} are of the type {quoted(kind.about)}", "save the model in float32")
            if math.prod(space.dims or ()) > _MOST_ELEMENTS or space.dims is None:
                raise Fault("too-large", f"{what} have the shape {space.dims}")
            pipeline = found.first(0x0B)
            raw = self._raw(space, kind, layout, [] if pipeline is None else read_filters(pipeline.data), what)
            array: Array = np.frombuffer(raw, kind.numpy).reshape(space.dims)
            told = found.attributes.get("dtype")
            half = kind.about == "bfloat16" or (told is not None and self._strings(told) == ["bfloat16"])
            if half and kind.numpy.itemsize == 2:
                return (array.view(np.uint16).astype(np.uint32) << 16).view(np.float32)
            return array.astype(array.dtype.newbyteorder("="))

    # Objects ------------------------------------------------------------------------------------------------------------

    def _piece(self, start: int, size: int) -> bytes:
        if start < 0 or size < 0 or start + size > len(self._data):
            raise Damage(f"{size} bytes at {start} are outside the file")
        return bytes(self._data[start : start + size])

    def _superblock(self) -> int:
        """Where the header of the root group is (II.A)."""
        head = self._piece(0, min(96, len(self._data)))
        if head[:8] != b"\x89HDF\r\n\x1a\n":
            raise Damage("the signature is missing")
        version = head[8]
        if version in (0, 1):
            sizes, at = head[13:15], 24 if version == 0 else 28
            base, root = struct.unpack_from("<Q", head, at)[0], struct.unpack_from("<Q", head, at + 40)[0]
        elif version in (2, 3):
            sizes = head[9:11]
            base, _, _, root = struct.unpack_from("<4Q", head, 12)
        else:
            raise Damage(f"version {version} of the file format is not known")
        if sizes != b"\x08\x08" or base != 0:
            raise Damage("offsets are not of 8 bytes, or do not start at 0")
        return int(root)

    def _object(self, address: int) -> _Object:
        if address not in self._objects:
            if len(self._objects) > _MOST_NAMES:
                raise Damage("too many objects")
            made = _Object(messages(self._piece, address))
            for message in made.messages:
                if message.kind == ATTRIBUTE:
                    attribute = read_attribute(message.data)
                    made.attributes.setdefault(attribute.name, attribute)
            self._objects[address] = made
        return self._objects[address]

    def _find(self, path: str) -> _Object | None:
        here = self._object(self._root)
        for part in [p for p in path.split("/") if p and p != "."]:
            links = self._links(here)
            if part not in links:
                return None
            address = links[part]
            if address is None:
                raise Refused(f"{quoted(path)} is a link to another place")
            here = self._object(address)
        return here

    def _links(self, group: _Object) -> dict[str, int | None]:
        if group.links is None:
            group.links = {}
            for message in group.messages:
                if message.kind == 0x11:
                    tree, heap = struct.unpack_from("<QQ", message.data)
                    group.links.update(self._table(tree, heap))
                elif message.kind == 0x06:
                    name, target = read_link(message.data)
                    group.links[name] = target
                elif (
                    message.kind == 0x02
                    and struct.unpack_from("<Q", message.data, 10 if message.data[1] & 1 else 2)[0] != 2**64 - 1
                ):
                    raise Damage("groups are stored in a newer format than Keras writes")
        return group.links

    def _table(self, tree: int, heap: int) -> dict[str, int | None]:
        """An old-style group: a B-tree of symbol table nodes, names in a local heap (III.A.1, III.B, III.D)."""
        head = self._piece(heap, 32)
        if head[:4] != b"HEAP":
            raise Damage("the heap of a group is missing")
        size, _, start = struct.unpack_from("<QQQ", head, 8)
        names = self._piece(start, size)
        found: dict[str, int | None] = {}
        for node in self._leaves(tree, 0, 8):
            head = self._piece(node, 8)
            if head[:4] != b"SNOD":
                raise Damage("a symbol table is missing")
            count = struct.unpack_from("<H", head, 6)[0]
            entries = self._piece(node + 8, 40 * count)
            for n in range(count):
                at, address, cache = struct.unpack_from("<QQI", entries, 40 * n)
                end = names.find(b"\0", at)
                if end < 0 or at >= size:
                    raise Damage("a name is outside its heap")
                found[names[at:end].decode("utf-8", "replace")] = None if cache == 2 else address
                if len(found) > _MOST_NAMES:
                    raise Damage("too many names")
        return found

    def _leaves(self, tree: int, kind: int, key: int, keep: list[bytes] | None = None) -> Iterator[int]:
        """The children of the lowest level of a B-tree of version 1, with their keys on request."""
        waiting = [(tree, -1)]
        seen: set[int] = set()
        while waiting:
            address, above = waiting.pop()
            head = self._piece(address, 24)
            level, used = head[5], struct.unpack_from("<H", head, 6)[0]
            if (
                head[:4] != b"TREE"
                or head[4] != kind
                or address in seen
                or (above >= 0 and level != above - 1)
                or len(seen) > _MOST_NAMES
            ):
                raise Damage("a B-tree is malformed")
            seen.add(address)
            body = self._piece(address + 24, used * (key + 8))
            children = [struct.unpack_from("<Q", body, n * (key + 8) + key)[0] for n in range(used)]
            if level:
                waiting += [(child, level) for child in reversed(children)]
                continue
            for n, child in enumerate(children):
                if keep is not None:
                    keep.append(body[n * (key + 8) : n * (key + 8) + key])
                yield child

    # Data ---------------------------------------------------------------------------------------------------------------

    def _raw(self, space: Space, kind: Type, layout: Layout, filters: list[int], what: str) -> bytes:
        assert kind.numpy is not None
        size = math.prod(space.dims or ()) * kind.numpy.itemsize
        if layout.kind == "compact":
            stored = layout.data
        elif layout.kind == "contiguous":
            if size > layout.size:
                raise Fault("bad-tensor", f"{what} declare {size} bytes and store {layout.size}", _AGAIN)
            stored = self._piece(layout.address, size) if size else b""
        else:
            return self._chunks(space, kind.numpy, layout, filters, size, what)
        if len(stored) < size or filters:
            raise Fault("bad-tensor", f"{what} declare {size} bytes and store {len(stored)}", _AGAIN)
        return stored[:size]

    def _chunks(self, space: Space, dtype: np.dtype[Any], layout: Layout, filters: list[int], size: int, what: str) -> bytes:
        dims, chunk = space.dims or (), layout.chunk[:-1]
        if len(chunk) != len(dims) or min(chunk, default=0) < 1:
            raise Damage("chunks do not fit their array")
        one = math.prod(chunk) * dtype.itemsize
        if size > len(self._data) * _MOST_EXPANSION or one > max(size, 1) * 2**20:
            raise Fault("bad-tensor", f"{what} declare {size} bytes in a file of {len(self._data)}", _AGAIN)
        keys: list[bytes] = []
        addresses = [] if layout.address == 2**64 - 1 else list(self._leaves(layout.address, 1, 8 + 8 * (len(dims) + 1), keys))
        if len(addresses) != math.prod(-(-d // c) for d, c in zip(dims, chunk, strict=True)):
            raise Fault("bad-tensor", f"{what} are not all in the file", _AGAIN)
        whole = np.zeros(dims, dtype)
        for key, address in zip(keys, addresses, strict=True):
            length, mask = struct.unpack_from("<II", key)
            at = struct.unpack_from(f"<{len(dims)}Q", key, 8)
            if mask or any(a >= d or a % c for a, d, c in zip(at, dims, chunk, strict=True)):
                raise Damage("the position of a chunk is wrong")
            data = _unfiltered(self._piece(address, length), filters, dtype.itemsize, one)
            block = np.frombuffer(data, dtype).reshape(chunk)
            cut = tuple(slice(a, min(a + c, d)) for a, c, d in zip(at, chunk, dims, strict=True))
            whole[cut] = block[tuple(slice(0, s.stop - s.start) for s in cut)]
        return whole.tobytes()

    def _strings(self, attribute: Attribute) -> list[str]:
        """The strings of an attribute: of fixed length, or in a global heap (III.E)."""
        count = math.prod(attribute.space.dims or ())
        if attribute.type.about == "string":
            size = attribute.type.size
            if size < 1 or count * size > len(attribute.data):
                raise Damage("an attribute is shorter than declared")
            pieces = [attribute.data[n * size : (n + 1) * size].split(b"\0")[0] for n in range(count)]
        elif attribute.type.about == "strings":
            if count * 16 > len(attribute.data):
                raise Damage("an attribute is shorter than declared")
            pieces = [self._shared(*struct.unpack_from("<IQI", attribute.data, 16 * n)) for n in range(count)]
        else:
            raise Damage(f"the attribute {attribute.name[:80]!r} is not a text")
        return [piece.decode("utf-8", "replace") for piece in pieces]

    def _shared(self, length: int, collection: int, index: int) -> bytes:
        if length == 0:
            return b""
        head = self._piece(collection, 16)
        size = struct.unpack_from("<Q", head, 8)[0]
        if head[:4] != b"GCOL":
            raise Damage("a global heap is missing")
        at = 16
        while at + 16 <= size:
            number, _, _, bytes_here = struct.unpack("<HHIQ", self._piece(collection + at, 16))
            if number == index:
                return self._piece(collection + at + 16, min(length, bytes_here))
            if number == 0:
                break
            at += 16 + (bytes_here + 7) // 8 * 8
        raise Damage("a text is missing from its heap")


def _unfiltered(data: bytes, filters: list[int], width: int, size: int) -> bytes:
    """Filters were applied in order; they are undone from the last to the first (IV.A.2.l)."""
    for kind in reversed(filters):
        if kind == 3:
            data = data[:-4]  # a checksum
        elif kind == 1:
            unpacker = zlib.decompressobj()
            data = unpacker.decompress(data, size + 8)
        else:
            count = len(data) // width
            whole = np.frombuffer(data[: count * width], np.uint8).reshape(width, count).T.tobytes()
            data = whole + data[count * width :]
    if len(data) < size:
        raise Damage("a chunk is shorter than declared")
    return data[:size]
