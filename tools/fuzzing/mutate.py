"""Mutations that know the structure of what they change, so that mutants get past the first check of a reader.

Each takes a random generator and returns bytes. A file of a format we cannot take apart any more (it was mutated before) is changed
as plain bytes.
"""

from __future__ import annotations

import io
import json
import random
import re
import struct
import zipfile
from collections.abc import Callable
from copy import deepcopy

Mutator = Callable[[random.Random, bytes], bytes]

NUMBERS = (0, 1, -1, 2, 3, 7, 8, 127, 128, 255, 256, 32767, 32768, 65535, 65536, 2**31 - 1, 2**31, -(2**31), 2**32 - 1, 2**32,
           2**62, 2**63 - 1, -(2**63), 2**64 - 1)  # fmt: skip
WORDS = ("", " ", "a" * 300, "../../escape", "/etc/passwd", "C:\\x", "a\x00b", "*/ int main(void) {", "\\u0000", "\ud800",
         "é\u202e", "$(touch x)", "{{ 7 * 7 }}", "%n%s", "NaN", "int", "con", "1e999", "-", "'", '"', "\n", "true")  # fmt: skip


def plain(rng: random.Random, data: bytes) -> bytes:
    """Bits, numbers of every width, pieces lost, doubled, moved or cut off."""
    out = bytearray(data or b"\0")
    for _ in range(rng.choice((1, 1, 1, 2, 3, 8))):
        at = rng.randrange(len(out)) if out else 0
        match rng.randrange(8):
            case 0 if out:
                out[at] ^= 1 << rng.randrange(8)
            case 1 if out:
                out[at] = rng.randrange(256)
            case 2 | 3:
                width = rng.choice((1, 2, 4, 4, 8))
                at = at // width * width
                out[at : at + width] = (rng.choice(NUMBERS) % (1 << 8 * width)).to_bytes(width, "little")
            case 4:
                del out[at : at + rng.choice((1, 2, 4, 16, 64))]
            case 5:
                piece = out[at : at + rng.choice((1, 4, 16, 64))]
                where = rng.randrange(len(out) + 1)
                out[where:where] = piece
            case 6:
                out[at:at] = rng.randbytes(rng.choice((1, 2, 8)))
            case 7 if rng.random() < 0.3:
                del out[at:]
    return bytes(out)


# Protocol buffers ----------------------------------------------------------------------------------------------------------

Field = list[object]  # number, wire type, value: a number, bytes, or a list of fields


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
        shift += 7
        if shift > 63:
            raise ValueError


def fields_of(data: bytes, depth: int = 0) -> list[Field]:
    """A message as a tree; bytes that look like a message are taken for one."""
    out: list[Field] = []
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        number, wire = key >> 3, key & 7
        if number == 0 or number > 4096:
            raise ValueError
        value: object
        match wire:
            case 0:
                value, at = _varint(data, at)
            case 1 | 5:
                size = 8 if wire == 1 else 4
                value, at = data[at : at + size], at + size
            case 2:
                size, at = _varint(data, at)
                if at + size > len(data):
                    raise ValueError
                value, at = _nested(data[at : at + size], depth), at + size
            case _:
                raise ValueError
        out.append([number, wire, value])
    return out


def _nested(data: bytes, depth: int) -> object:
    if len(data) < 2 or depth > 12 or (data.isascii() and data.decode().isprintable()):
        return data
    try:
        return fields_of(data, depth + 1)
    except (ValueError, IndexError):
        return data


def _put(value: int) -> bytes:
    value %= 1 << 64
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])


def message(fields: list[Field]) -> bytes:
    out = bytearray()
    for number, wire, value in fields:
        assert isinstance(number, int) and isinstance(wire, int)
        body = message(value) if isinstance(value, list) else value
        out += _put(number << 3 | wire)
        out += _put(body) if isinstance(body, int) else (_put(len(body)) + body if wire == 2 else body)  # type: ignore[arg-type,operator]
    return bytes(out)


def _all(fields: list[Field]) -> list[tuple[list[Field], int]]:
    found = [(fields, n) for n in range(len(fields))]
    for _, _, value in fields:
        if isinstance(value, list):
            found += _all(value)
    return found


def protobuf(rng: random.Random, data: bytes) -> bytes:
    """Fields of any depth get other numbers, bytes or names, are left out, doubled, moved; lengths stay right."""
    try:
        tree = fields_of(data)
    except (ValueError, IndexError):
        return plain(rng, data)
    for _ in range(rng.choice((1, 1, 2, 4))):
        places = _all(tree)
        if not places:
            break
        owner, at = rng.choice(places)
        other, there = rng.choice(places)
        match rng.randrange(9):
            case 0:
                del owner[at]
            case 1:
                owner.insert(rng.randrange(len(owner) + 1), deepcopy(owner[at]))
            case 2:
                owner[at] = deepcopy(other[there])
            case 3:
                owner[at][2] = deepcopy(other[there][2]) if owner[at][1] == other[there][1] else owner[at][2]
            case 4:
                owner[at][0] = rng.choice((1, 2, 3, 4, 5, 7, 8, 9, 11, 12, 20, 21))
            case _:
                owner[at] = _other_value(rng, owner[at])
    return message(tree)


def _other_value(rng: random.Random, field: Field) -> Field:
    number, wire, value = field
    if isinstance(value, int):
        return [number, wire, rng.choice(NUMBERS) if rng.random() < 0.7 else value + rng.choice((-1, 1))]
    if isinstance(value, bytes) and wire == 2:
        new = rng.choice(WORDS).encode("utf-8", "replace") if value.isascii() and rng.random() < 0.5 else plain(rng, value)
        return [number, wire, new]
    if isinstance(value, bytes):
        return [number, wire, plain(rng, value)[: len(value)].ljust(len(value), b"\0")]
    return [number, wire, b"" if rng.random() < 0.5 else plain(rng, message(value))]  # type: ignore[arg-type]


# Texts ---------------------------------------------------------------------------------------------------------------------

_TOKEN = re.compile(r"-?\d+(?:\.\d+)?(?:[eE]-?\d+)?|\w+|\s+|.", re.DOTALL)


def text(rng: random.Random, data: bytes) -> bytes:
    """Numbers, words and lines are changed, doubled, swapped and left out."""
    try:
        parts = _TOKEN.findall(data.decode())
    except UnicodeDecodeError:
        return plain(rng, data)
    if not parts or rng.random() < 0.1:
        return plain(rng, data)
    for _ in range(rng.choice((1, 1, 2, 4))):
        at, other = rng.randrange(len(parts)), rng.randrange(len(parts))
        match rng.randrange(7):
            case 0:
                numbers = [n for n, part in enumerate(parts) if part.lstrip("-")[:1].isdigit()] or [at]
                parts[rng.choice(numbers)] = (
                    str(rng.choice(NUMBERS)) if rng.random() < 0.8 else rng.choice(("1e400", "-0.0", "0x1", "nan"))
                )
            case 1:
                parts[at] = rng.choice(WORDS)
            case 2:
                parts[at], parts[other] = parts[other], parts[at]
            case 3:
                parts[at] = ""
            case 4:
                parts.insert(other, parts[at])
            case 5 | 6:
                parts = _lines(rng, "".join(parts))
    return "".join(parts).encode("utf-8", "surrogatepass")


def _lines(rng: random.Random, whole: str) -> list[str]:
    lines = whole.splitlines(keepends=True) or [""]
    at, other = rng.randrange(len(lines)), rng.randrange(len(lines))
    match rng.randrange(4):
        case 0:
            del lines[at]
        case 1:
            lines.insert(other, lines[at])
        case 2:
            lines[at], lines[other] = lines[other], lines[at]
        case 3:
            lines = lines[:at]
    return _TOKEN.findall("".join(lines)) or [""]


def json_text(rng: random.Random, data: bytes) -> bytes:
    """Values anywhere in the tree become others: of another type, extreme, of another place, or missing."""
    try:
        tree: object = json.loads(data)
    except (ValueError, RecursionError):
        return text(rng, data)
    if rng.random() < 0.1:
        return text(rng, data)
    for _ in range(rng.choice((1, 1, 2, 3))):
        tree = _json_once(rng, tree)
    return json.dumps(tree).encode()


def _json_once(rng: random.Random, tree: object) -> object:
    places: list[tuple[dict[str, object] | list[object], str | int]] = []

    def walk(value: object) -> None:
        if isinstance(value, dict):
            places.extend((value, key) for key in value)
            for inner in list(value.values()):
                walk(inner)
        elif isinstance(value, list):
            places.extend((value, n) for n in range(len(value)))
            for inner in value:
                walk(inner)

    walk(tree)
    if not places:
        return rng.choice((None, [], {}, 0))
    owner, key = rng.choice(places)
    match rng.randrange(5):
        case 0:
            del owner[key]  # type: ignore[arg-type]
        case 1:
            holder, there = rng.choice(places)
            owner[key] = json.loads(json.dumps(holder[there]))  # type: ignore[index]
        case 2 if isinstance(owner, dict):
            owner[rng.choice(WORDS)] = owner.pop(str(key), None)
        case _:
            owner[key] = rng.choice((*NUMBERS, *WORDS, None, True, [], {}, 1.5, 1e308, [[]], {"": 0}))  # type: ignore[index]
    return tree


# Containers ----------------------------------------------------------------------------------------------------------------


def zipped(inner: Mutator) -> Mutator:
    """One member changed by what fits its name, or left out, renamed, doubled; now and then the container itself."""

    def mutate(rng: random.Random, data: bytes) -> bytes:
        if rng.random() < 0.2:
            return plain(rng, data)
        try:
            with zipfile.ZipFile(io.BytesIO(data)) as archive:
                members = [(info.filename, archive.read(info)) for info in archive.infolist()]
        except Exception:
            return plain(rng, data)
        at = rng.randrange(len(members)) if members else 0
        if members:
            name, body = members[at]
            match rng.randrange(8):
                case 0:
                    del members[at]
                case 1:
                    members[at] = (name.replace(name.split("/")[-1], rng.choice(WORDS)) or "x", body)
                case 2:
                    members[at] = (name, rng.choice(members)[1])
                case _:
                    how = json_text if name.endswith((".json", "byteorder", "version")) else inner
                    members[at] = (name, how(rng, body))
        out = io.BytesIO()
        with zipfile.ZipFile(out, "w", rng.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED))) as archive:
            for name, body in members:
                whole = name.replace("\0", "").encode("utf-8", "replace").decode()
                archive.writestr(zipfile.ZipInfo(whole or "x", (1980, 1, 1, 0, 0, 0)), body)
        return out.getvalue()

    return mutate


def safetensors(rng: random.Random, data: bytes) -> bytes:
    """The header as JSON, its length, or the numbers."""
    if len(data) < 8 or rng.random() < 0.3:
        return plain(rng, data)
    size = struct.unpack("<Q", data[:8])[0]
    header = json_text(rng, data[8 : 8 + size])
    return struct.pack("<Q", max(0, len(header) + rng.choice((0, 0, 0, 1, -1)))) + header + data[8 + size :]


def npy(rng: random.Random, data: bytes) -> bytes:
    """The header as text, its length, or anything."""
    if data[:6] != b"\x93NUMPY" or rng.random() < 0.3:
        return plain(rng, data)
    size = struct.unpack("<H", data[8:10])[0]
    header = text(rng, data[10 : 10 + size]).replace(b"\n", b" ")
    return data[:8] + struct.pack("<H", (len(header) + rng.choice((0, 0, 0, 5))) % 65536) + header + data[10 + size :]


def tflite(rng: random.Random, data: bytes) -> bytes:
    """Fields of any table of the model, by its schema; offsets stay right."""
    if rng.random() < 0.5:
        return plain(rng, data)
    import flatbuffers
    import numpy as np
    from ai_edge_litert import schema_py_generated as schema

    try:
        model = schema.ModelT.InitFromObj(schema.Model.GetRootAs(data, 0))
        places: list[tuple[object, str]] = []

        def walk(thing: object) -> None:
            for name, value in vars(thing).items():
                places.append((thing, name))
                for inner in value if isinstance(value, list) else [value]:
                    if hasattr(inner, "__dict__"):
                        walk(inner)

        walk(model)
        for _ in range(rng.choice((1, 1, 2, 3))):
            owner, name = rng.choice(places)
            value = getattr(owner, name)
            if isinstance(value, (int, np.integer)):
                setattr(owner, name, rng.choice(NUMBERS))
            elif isinstance(value, (float, np.floating)):
                setattr(owner, name, rng.choice((0.0, -1.0, float("nan"), float("inf"), 1e-40, 1e38)))
            elif isinstance(value, np.ndarray) and value.size:
                kept = value.copy()
                kept[rng.randrange(kept.size)] = rng.choice((0, 1, -1, 2, 100)) % 128
                setattr(owner, name, kept if rng.random() < 0.7 else kept[:-1])
            elif isinstance(value, list) and value:
                setattr(owner, name, value[:-1] if rng.random() < 0.5 else [*value, rng.choice(value)])
            else:
                setattr(owner, name, None)
        builder = flatbuffers.Builder(1024)
        builder.Finish(model.Pack(builder), b"TFL3")
        return bytes(builder.Output())
    except Exception:  # a number that the builder does not write, a file that is none any more
        return plain(rng, data)
