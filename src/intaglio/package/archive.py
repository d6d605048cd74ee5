"""The package as one file, the same bytes for the same package: sorted, without times, owners or machine names."""

from __future__ import annotations

import gzip
import os
import tarfile
import zipfile
from collections.abc import Mapping
from pathlib import Path

from intaglio.errors import UserError, quoted
from intaglio.package.folder import fresh_file, writing
from intaglio.package.ownership import check_replaceable_archive

FORMATS = ("tar.gz", "zip")
_EPOCH = (1980, 1, 1, 0, 0, 0)


def archive_path(folder: Path, format: str) -> Path:
    return folder.with_name(f"{folder.name}.{format}")


def check_archive(folder: Path, format: str, *, force: bool) -> None:
    """May the archive be written? Asked before any work is done."""
    if format not in FORMATS:
        raise UserError("bad-option", f"unknown archive format {quoted(format)}", hint="`tar.gz` or `zip`")
    target = archive_path(folder, format)
    shown = quoted(str(target), 200)
    if target.is_dir():
        raise UserError("output-exists", f"the archive {shown} is a folder", hint="move it, or use another `-o`")
    if not force and (target.exists() or target.is_symlink()):
        raise UserError("output-exists", f"the archive {shown} exists", hint="use `--force` to replace it, or another `-o`")
    if target.exists() or target.is_symlink():
        check_replaceable_archive(target, folder.name)


def write_archive(folder: Path, format: str) -> Path:
    """`out/` becomes `out.tar.gz` (or `.zip`) beside it; members start with the folder's name."""
    return archive_to(folder, format, archive_path(folder, format), folder.name)


def archive_to(folder: Path, format: str, target: Path, inside: str, other: Mapping[str, Path] | None = None) -> Path:
    """All files of the folder, in a folder named `inside`. `other`: files that take the place of some, by path in the folder."""
    files = sorted(p for p in folder.rglob("*") if p.is_file() and not p.is_symlink())
    by_name = {path.relative_to(folder).as_posix(): path for path in files} | dict(other or {})
    members = [(f"{inside}/{name}", path) for name, path in by_name.items()]
    with fresh_file(target) as partial:
        if format == "zip":
            _write_zip(members, partial)
        else:
            _write_tar(members, partial)
    return target


def write_zip_of(files: Mapping[str, bytes], path: Path) -> None:
    """Files by their names, for formats that are zip files: wheels and packs."""
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
    with fresh_file(path) as partial, zipfile.ZipFile(partial, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            member = zipfile.ZipInfo(name, _EPOCH)
            member.external_attr, member.compress_type = 0o644 << 16, zipfile.ZIP_DEFLATED
            archive.writestr(member, data)


def _mode(path: Path) -> int:
    return 0o755 if os.access(path, os.X_OK) else 0o644


def _write_tar(members: list[tuple[str, Path]], target: Path) -> None:
    with (
        open(target, "wb") as raw,
        gzip.GzipFile(filename="", mode="wb", fileobj=raw, mtime=0, compresslevel=6) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.GNU_FORMAT) as archive,
    ):
        for name, path in members:
            member = tarfile.TarInfo(name)
            member.size = path.stat().st_size
            member.mode = _mode(path)
            with open(path, "rb") as content:
                archive.addfile(member, content)


def _write_zip(members: list[tuple[str, Path]], target: Path) -> None:
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, path in members:
            member = zipfile.ZipInfo(name, _EPOCH)
            member.compress_type = zipfile.ZIP_DEFLATED
            member.create_system = 3
            member.external_attr = (0o100000 | _mode(path)) << 16
            with open(path, "rb") as content, archive.open(member, "w", force_zip64=True) as packed:
                while chunk := content.read(1 << 20):
                    packed.write(chunk)
