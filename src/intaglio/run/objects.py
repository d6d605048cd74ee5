"""Compiled objects, kept by content: the same source, headers, flags and compiler give the object of the last time.

    FOLDER/a/abcdef...     one entry: a digest, what it was made from outside of the project, the object, its stack usage

FOLDER is `objects` in the user's cache folder. INTAGLIO_OBJECT_CACHE names another one, or is `off`;
INTAGLIO_OBJECT_CACHE_SIZE limits its size (512M). Sixteen subfolders share the limit: in each, the entries that were used least
recently are removed. Nothing is locked: entries are written beside and renamed. An entry that is damaged is removed and made again.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from intaglio.errors import UserError, quoted
from intaglio.run.toolchains import Toolchain
from intaglio.targets.caches import cache_root, unsafe

FOLDER, SIZE = "INTAGLIO_OBJECT_CACHE", "INTAGLIO_OBJECT_CACHE_SIZE"
DEFAULT_BYTES = 512 << 20
SHARDS = "0123456789abcdef"
MAGIC = b"intaglio-object 1\n"
UNFINISHED = "unfinished-"
OLD_SECONDS = 3600
_SIZE = re.compile(r"(\d{1,12})([KMG]?)", re.IGNORECASE)
_INCLUDE = re.compile(r"^[ \t]*#[ \t]*include\b[ \t]*(.*)$", re.MULTILINE)
_NAME = re.compile(r"""["<]([^">]+)[">]""")
_WORD = re.compile(r"(?:\\.|[^\s\\])+")
# Flags whose object is decided by the words of the command. Others may read files, write some, or name the folder of the build.
_PLAIN = re.compile(r"-(D|U|O|W(?![alp],)|m|std=|pedantic|g0$|f(?!profile|plugin|test-|sanitize-.*list|auto|dump|lto|record))")
_SWITCH = re.compile(r"-D([A-Z]\w*_(?:HOOK|SERIAL))")  # NAME_HOOK: calls around every layer; NAME_SERIAL: a serial line
_READ_BY_COMPILERS = ("COMPILER_PATH", "GCC_EXEC_PREFIX", "SDKROOT", "MACOSX_DEPLOYMENT_TARGET")


@dataclass(frozen=True, slots=True)
class Inputs:
    """What an object is made from: the files of the project that it reads, and the digest of them, of flags and compiler."""

    key: str
    files: frozenset[str]


def inputs_of(folder: Path, source: str, toolchain: Toolchain, flags: tuple[str, ...], given: tuple[str, ...]) -> Inputs | None:
    """`source` is relative to the project's `folder`; `given` are the user's flags among `flags`. None where the object depends on
    more than can be seen here."""
    if toolchain.kind == "cc" or not all(_PLAIN.match(flag) and "native" not in flag for flag in given):
        return None
    places = [flag[2:] for flag in flags if flag.startswith("-I")]
    places += [after for flag, after in pairwise(flags) if flag == "-isystem"]
    texts = _texts(folder, source, [place for place in places if not os.path.isabs(place)])
    if texts is None:
        return None
    digest = hashlib.sha256()
    environment = [f"{name}={os.environ.get(name, '')}" for name in _READ_BY_COMPILERS]
    for part in (MAGIC.decode(), source, *_that_count(flags, texts), "", *_identity(toolchain), *environment):
        digest.update(part.encode() + b"\0")
    for path, text in sorted(texts.items()):
        digest.update(path.encode() + b"\0" + hashlib.sha256(text).digest())
    return Inputs(digest.hexdigest(), frozenset(texts))


def _that_count(flags: tuple[str, ...], texts: Mapping[str, bytes]) -> Iterator[str]:
    """Without folders of the project in which nothing was found, and without switches of ours that the texts do not name: what
    several packages have in common is compiled once."""
    for flag in flags:
        if flag.startswith("-I") and not os.path.isabs(flag[2:]):
            if any(path.startswith(f"{os.path.normpath(flag[2:])}/") for path in texts):
                yield flag
        elif (switch := _SWITCH.fullmatch(flag)) is None or any(switch[1].encode() in text for text in texts.values()):
            yield flag


def _texts(folder: Path, source: str, places: list[str]) -> dict[str, bytes] | None:
    """The source and the headers of the project that it includes, directly or not. None where something else is read."""
    found: dict[str, bytes] = {}
    waiting = [source]
    while waiting:
        path = waiting.pop()
        if path in found:
            continue
        found[path] = text = (folder / path).read_bytes()
        if b".incbin" in text:
            return None
        for included in _INCLUDE.findall(text.decode("utf-8", "replace")):
            if (name := _NAME.match(included)) is None:
                return None  # named by a macro
            tried = (os.path.normpath(os.path.join(place, name[1])) for place in (os.path.dirname(path), *places))
            waiting += [t for t in dict.fromkeys(tried) if not os.path.isabs(t) and (folder / t).is_file()]
    return found


def _identity(toolchain: Toolchain) -> Iterator[str]:
    yield toolchain.kind
    yield toolchain.version
    for word in toolchain.compiler:
        if os.path.isabs(word):
            with contextlib.suppress(OSError):
                status = os.stat(word)
                yield f"{status.st_size} {status.st_mtime_ns}"
        else:
            yield word


@dataclass(frozen=True, slots=True)
class ObjectCache:
    folder: Path
    limit_bytes: int

    def fetch(self, key: str, made: Path) -> bool:
        """Write the object to `made`, where there is one."""
        path = self._path(key)
        try:
            content = path.read_bytes()
        except OSError:
            return False
        parts = _opened(content)
        if parts is None:
            path.unlink(missing_ok=True)
            return False
        outside, bodies = parts
        if not all(_stamp(name) == stamp for name, stamp in outside.items()):
            return False  # the system's headers are others now: the new object replaces this one
        for ending, body in bodies.items():
            made.with_suffix(ending).write_bytes(body)
        with contextlib.suppress(OSError):
            os.utime(path)
        return True

    def store(self, inputs: Inputs, made: Path, listed: Path) -> None:
        """Keep `made`. `listed` is the compiler's list of what it has read; without room, or without the right to write, nothing is
        kept."""
        try:
            outside = _outside(listed.read_text(encoding="utf-8"), inputs.files)
            bodies = {p.suffix: p.read_bytes() for p in (made, made.with_suffix(".su")) if p.is_file()}
            content = None if outside is None else _sealed(outside, bodies)
            path = self._path(inputs.key)
            if content is None or len(content) > self.limit_bytes // len(SHARDS) // 2:
                return
            path.parent.mkdir(parents=True, exist_ok=True)
            if unsafe(path.parent):
                return
            handle, beside = tempfile.mkstemp(prefix=UNFINISHED, dir=path.parent)
            try:
                with os.fdopen(handle, "wb") as file:
                    file.write(content)
                os.replace(beside, path)
            finally:
                Path(beside).unlink(missing_ok=True)
            _prune(path.parent, self.limit_bytes // len(SHARDS))
        except (OSError, ValueError):
            return

    def entries(self) -> Iterator[Path]:
        for shard in SHARDS:
            if (self.folder / shard).is_dir():
                yield from (path for path in (self.folder / shard).iterdir() if not path.name.startswith(UNFINISHED))

    def sizes(self) -> list[int]:
        """In bytes, of every entry. Other processes may remove some meanwhile."""
        found = []
        for path in self.entries():
            with contextlib.suppress(OSError):
                found.append(path.stat().st_size)
        return found

    def clear(self) -> None:
        for path in list(self.entries()):
            path.unlink(missing_ok=True)

    def _path(self, key: str) -> Path:
        return self.folder / key[0] / key


def object_cache() -> ObjectCache | None:
    """None where it is switched off, or others may write into it."""
    told = os.environ.get(FOLDER, "")
    if told == "off":
        return None
    folder = Path(told) if told else cache_root() / "objects"
    limit = _limit(os.environ.get(SIZE, ""))
    if limit == 0 or (folder.exists() and unsafe(folder)):
        return None
    return ObjectCache(folder.absolute(), limit)


def _limit(told: str) -> int:
    if not told:
        return DEFAULT_BYTES
    found = _SIZE.fullmatch(told)
    if found is None:
        hint = "for example `512M` or `2G`; `0` keeps no objects"
        raise UserError("bad-option", f"`{SIZE}` is {quoted(told)}, which is not a size", hint=hint)
    return int(found[1]) << {"": 0, "K": 10, "M": 20, "G": 30}[found[2].upper()]


def _sealed(outside: Mapping[str, str], bodies: Mapping[str, bytes]) -> bytes:
    about = {"outside": dict(outside), "parts": {ending: len(body) for ending, body in bodies.items()}}
    rest = json.dumps(about).encode() + b"\n" + b"".join(bodies.values())
    return MAGIC + hashlib.sha256(rest).hexdigest().encode() + b"\n" + rest


def _opened(content: bytes) -> tuple[dict[str, str], dict[str, bytes]] | None:
    """None where a byte differs from what was written."""
    start = len(MAGIC) + 65
    rest = content[start:]
    if content[:start] != MAGIC + hashlib.sha256(rest).hexdigest().encode() + b"\n":
        return None
    head, _, data = rest.partition(b"\n")
    about = json.loads(head)
    bodies, at = {}, 0
    for ending, size in about["parts"].items():
        bodies[ending] = data[at : at + size]
        at += size
    return about["outside"], bodies


def _outside(listed: str, files: frozenset[str]) -> dict[str, str] | None:
    """Headers of the system by path, with size and time. None where the compiler has read a file of the project that we have not
    seen."""
    _, _, after = listed.replace("\\\n", " ").partition(": ")
    names = [re.sub(r"\\(.)", r"\1", word).replace("$$", "$") for word in _WORD.findall(after)]
    if any(not os.path.isabs(name) and os.path.normpath(name) not in files for name in names):
        return None
    stamps = {name: _stamp(name) for name in names if os.path.isabs(name)}
    return stamps if all(stamps.values()) else None


def _stamp(path: str) -> str:
    try:
        status = os.stat(path)
    except OSError:
        return ""
    return f"{status.st_size} {status.st_mtime_ns}"


def _prune(folder: Path, limit_bytes: int) -> None:
    """Remove what was used least recently, until the rest is within the limit; and what a process that died has left."""
    found = []
    for entry in os.scandir(folder):
        with contextlib.suppress(OSError):
            status = entry.stat()
            if entry.name.startswith(UNFINISHED) and time.time() - status.st_mtime > OLD_SECONDS:
                os.unlink(entry.path)
            elif not entry.name.startswith(UNFINISHED):
                found.append((status.st_mtime_ns, status.st_size, entry.path))
    total = sum(size for _, size, _ in found)
    for _, size, path in sorted(found):
        if total <= limit_bytes:
            break
        with contextlib.suppress(OSError):
            os.unlink(path)
        total -= size
