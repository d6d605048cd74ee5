"""Did Intaglio write this folder or archive, all of it? `--force` replaces nothing else.

A package is known by the content of its `manifest.json`, which lists every file with its digest. Beside these there may be what
building and running a package leaves in it:

    build/            what make, CMake and the compiler write for the package's own Makefile or CMakeLists.txt, and no other file
    NAME.clbin*       programs of OpenCL devices, with the lock and the unfinished copies beside that file
    bin/, lib/        the files of the manifest, which another compiler may have built again
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import tarfile
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from intaglio.errors import UserError, quoted

MANIFEST = "manifest.json"
SIGNATURE = "signature.json"  # over all files but itself
MOST_MANIFEST_BYTES = 256 << 20
SHOWN_FILES = 4
_DIGEST = re.compile(r"[0-9a-f]{64}")
_BUILT = ("bin/", "lib/")
_BUILD_FILE = re.compile(  # of any name, below `build/`
    r"""(.*/)?(
        [^/]+\.(o|obj|o\.d|obj\.d|d)                              # objects, and what they depend on
        | CMakeFiles/.+ | CMakeCache\.txt | (cmake_install|CTestTestfile)\.cmake | compile_commands\.json | install_manifest\.txt
        | Makefile | build\.ninja | \.ninja_(deps|log|lock)
        | Testing/Temporary/([^/]+\.log | CTestCostData\.txt)
    )""",
    re.VERBOSE,
)
_OF_PACKAGE = r"(.*/)?((lib)?{name}(\.(a|so|dylib|dll|dll\.a|lib|exp|pdb|exe|elf|bin|hex|map)|\.elf\.map|\.so(\.[0-9]+)+)|{name})"


@dataclass(frozen=True, slots=True)
class Contents:
    """The files that a manifest knows, by their path in the package."""

    name: str
    files: Mapping[str, str]  # SHA-256 of each

    def knows(self, path: str) -> bool:
        cache = f"{self.name}.clbin"
        beside = tuple(cache + ending for ending in (".lock", ".tmp.", ".loading."))
        return path in self.files or path in (MANIFEST, SIGNATURE, cache) or path.startswith(beside) or self._is_built(path)

    def _is_built(self, path: str) -> bool:
        """Left by a build of this package in its folder `build`."""
        folder, _, below = path.partition("/")
        if folder != "build":
            return False
        return bool(_BUILD_FILE.fullmatch(below) or re.fullmatch(_OF_PACKAGE.format(name=re.escape(self.name)), below))

    def is_changed(self, path: str, file: Path) -> bool:
        """A text of ours that somebody has edited since."""
        known = self.files.get(path)
        if known is None or path.startswith(_BUILT) or path == f"{self.name}.clbin":
            return False
        return _seen_digest(file) != known


def file_digest(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


_SEEN: dict[tuple[str, int, int, int, int], str] = {}  # by path, file, size and times of the last change


def _seen_digest(path: Path) -> str:
    """The same, of files that are looked at when a compile starts and again before they are replaced: read once."""
    at = path.stat()
    key = str(path.absolute()), at.st_ino, at.st_size, at.st_mtime_ns, at.st_ctime_ns
    if key not in _SEEN:
        _SEEN[key] = file_digest(path)
    return _SEEN[key]


def file_digests(paths: Sequence[Path]) -> list[str]:
    """Of several files at once, the largest first: packages of large models have gigabytes."""
    order = sorted(paths, key=lambda path: -path.stat().st_size)
    with ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
        found = dict(zip(order, pool.map(file_digest, order), strict=True))
    return [found[path] for path in paths]


def changed_file(folder: Path) -> str | None:
    """The first file of a package that is not as its manifest says."""
    contents = contents_of((folder / MANIFEST).read_bytes())
    if contents is None:
        return MANIFEST
    inside = [path for path in contents.files if path != f"{contents.name}.clbin" and ".." not in Path(path).parts]
    return next((p for p in inside if not (folder / p).is_file() or _seen_digest(folder / p) != contents.files[p]), None)


def contents_of(manifest: bytes) -> Contents | None:
    """None where the text is no manifest of a package, or one without a list of files."""
    try:
        table = json.loads(manifest.decode("utf-8"))
    except (ValueError, RecursionError):
        return None
    if not isinstance(table, dict) or "format" not in table:
        return None
    ours = all(isinstance(table.get(key), str) for key in ("name", "target"))
    ours = ours and (isinstance(table.get("intaglio"), str) or isinstance(table.get("models"), list))
    files = table.get("files")
    if not ours or not isinstance(files, dict):
        return None
    if not all(isinstance(digest, str) and _DIGEST.fullmatch(digest) for digest in files.values()):
        return None
    return Contents(str(table["name"]), files)


def check_replaceable(folder: Path) -> None:
    """An error where the folder is not a package, or has files that are not the package's."""
    shown = quoted(str(folder), 200)
    manifest = folder / MANIFEST
    hint = "`--force` only replaces folders that Intaglio wrote; give another folder with `-o`"
    if not manifest.is_file():
        raise UserError("output-exists", f"the folder {shown} is not a package (it has no `{MANIFEST}`)", hint=hint)
    found = contents_of(manifest.read_bytes()) if manifest.stat().st_size <= MOST_MANIFEST_BYTES else None
    if found is None:
        what = f"the folder {shown} is not a package (its `{MANIFEST}` does not list the files of one)"
        raise UserError("output-exists", what, hint=hint)
    paths = sorted(paths_below(folder))
    unknown = [path for path in paths if not found.knows(path)]
    if unknown:
        hint = f"move {_them(unknown)} away, or give another folder with `-o`; nothing was deleted"
        raise UserError("output-exists", f"{shown} has {_unknown(unknown)}", hint=hint)
    changed = [path for path in paths if found.is_changed(path, folder / path)]
    if changed:
        them = _them(changed)
        hint = f"move {them} away if you need {them}, else remove the folder; nothing was deleted"
        what = f"{shown} has {_counted(changed)} edited since Intaglio wrote the package: {_some(changed)}"
        raise UserError("output-exists", what, hint=hint)


def check_replaceable_archive(path: Path, folder: str) -> None:
    """The same of an archive, whose members are `folder`/..."""
    try:
        members, manifest = _members(path, f"{folder}/{MANIFEST}")
    except (OSError, tarfile.TarError, zipfile.BadZipFile, EOFError, ValueError, NotImplementedError):
        members, manifest = [], None
    shown = quoted(str(path), 200)
    found = None if manifest is None else contents_of(manifest)
    if found is None:
        hint = "`--force` only replaces archives that Intaglio wrote; move it, or use another `-o`"
        raise UserError("output-exists", f"{shown} is not the archive of a package", hint=hint)
    unknown = [name for name in members if not found.knows(name.removeprefix(f"{folder}/"))]
    if unknown:
        hint = "move the archive away, or give another `-o`; nothing was deleted"
        raise UserError("output-exists", f"{shown} has {_unknown(unknown)}", hint=hint)


def _members(path: Path, manifest: str) -> tuple[list[str], bytes | None]:
    """Names of the files in an archive, and its manifest."""
    if path.suffix == ".zip":
        with zipfile.ZipFile(path) as archive:
            names = [info.filename for info in archive.infolist() if not info.is_dir()]
            if manifest not in names or archive.getinfo(manifest).file_size > MOST_MANIFEST_BYTES:
                return names, None
            return names, archive.read(manifest)
    with tarfile.open(path, "r:gz") as packed:
        members, found = [], None
        for member in packed:
            if member.isdir():
                continue
            members.append(member.name)
            if member.name == manifest and member.isfile() and member.size <= MOST_MANIFEST_BYTES:
                content = packed.extractfile(member)
                found = content.read() if content is not None else None
        return members, found


def paths_below(folder: Path) -> Iterator[str]:
    """Files and links below the folder; links are not followed."""
    for place, folders, files in os.walk(folder):
        links = [name for name in folders if os.path.islink(os.path.join(place, name))]
        for name in (*files, *links):
            yield Path(place, name).relative_to(folder).as_posix()


def _counted(paths: list[str]) -> str:
    return "1 file" if len(paths) == 1 else f"{len(paths):,} files"


def _them(paths: list[str]) -> str:
    return "it" if len(paths) == 1 else "them"


def _unknown(paths: list[str]) -> str:
    return f"{_counted(paths)} that Intaglio did not write: {_some(paths)}"


def _some(paths: list[str]) -> str:
    return ", ".join(quoted(path, 100) for path in paths[:SHOWN_FILES]) + (", ..." if len(paths) > SHOWN_FILES else "")
