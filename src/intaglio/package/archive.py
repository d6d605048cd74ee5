"""The package as one file, the same bytes for the same package: sorted, without times, owners or machine names."""

from __future__ import annotations

import gzip
import os
import tarfile
import zipfile
from pathlib import Path

from intaglio.package.folder import writing

FORMATS = ("tar.gz", "zip")


def write_archive(folder: Path, format: str) -> Path:
    """`out/` becomes `out.tar.gz` (or `.zip`) beside it; members start with the folder's name."""
    target = folder.with_name(f"{folder.name}.{format}")
    partial = target.with_name(f".{target.name}.part")
    files = sorted(p for p in folder.rglob("*") if p.is_file() and not p.is_symlink())
    try:
        with writing(target):
            if format == "zip":
                _write_zip(folder, files, partial)
            else:
                _write_tar(folder, files, partial)
            os.replace(partial, target)
    finally:
        partial.unlink(missing_ok=True)
    return target


def _mode(path: Path) -> int:
    return 0o755 if os.access(path, os.X_OK) else 0o644


def _write_tar(folder: Path, files: list[Path], target: Path) -> None:
    with (
        open(target, "wb") as raw,
        gzip.GzipFile(filename="", mode="wb", fileobj=raw, mtime=0, compresslevel=6) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.USTAR_FORMAT) as archive,
    ):
        for path in files:
            member = tarfile.TarInfo(f"{folder.name}/{path.relative_to(folder).as_posix()}")
            member.size = path.stat().st_size
            member.mode = _mode(path)
            with open(path, "rb") as content:
                archive.addfile(member, content)


def _write_zip(folder: Path, files: list[Path], target: Path) -> None:
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in files:
            member = zipfile.ZipInfo(f"{folder.name}/{path.relative_to(folder).as_posix()}", (1980, 1, 1, 0, 0, 0))
            member.compress_type = zipfile.ZIP_DEFLATED
            member.create_system = 3
            member.external_attr = (0o100000 | _mode(path)) << 16
            with open(path, "rb") as content, archive.open(member, "w", force_zip64=True) as packed:
                while chunk := content.read(1 << 20):
                    packed.write(chunk)
