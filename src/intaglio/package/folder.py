"""The output folder: either all of it, or none of it.

A package is written into a sibling folder and renamed when it is complete, so that a full disk, a failed compiler or
Ctrl-C leaves nothing half-written, and the package that `--force` replaces stays whole until then.
"""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from intaglio.errors import ToolError, UserError, quoted

MANIFEST = "manifest.json"


@contextmanager
def fresh_folder(output: Path, *, force: bool) -> Iterator[Path]:
    """A folder to write into, which becomes `output` at the end of the `with` block."""
    check_output(output, force=force)
    parent = output.parent
    with writing(output):
        parent.mkdir(parents=True, exist_ok=True)
        staging = Path(tempfile.mkdtemp(prefix=f".{output.name[:40]}-", dir=parent))
    try:
        with writing(output):
            staging.chmod(0o777 & ~_umask())
            yield staging
            _even_modes(staging)
            _swap(staging, output)
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def check_output(output: Path, *, force: bool) -> None:
    """May `output` become a package? Asked before any work is done."""
    shown = quoted(str(output), 200)
    for parent in output.parents:
        if parent.exists():
            if not parent.is_dir():
                hint = "give a folder that can be created, with `-o`"
                raise UserError("cannot-write", f"{quoted(str(parent), 200)} is a file, not a folder", hint=hint)
            break
    if output.is_symlink():
        hint = "give the folder itself, with `-o`"
        raise UserError("output-exists", f"the output {shown} is a symbolic link and is not followed", hint=hint)
    if not output.exists():
        return
    if not output.is_dir():
        raise UserError("output-exists", f"the output {shown} exists and is not a folder", hint="give another `-o`")
    with writing(output):
        empty = not any(output.iterdir())
    if empty:
        return
    if not force:
        hint = "`--force` replaces a package, or give another folder with `-o`"
        raise UserError("output-exists", f"the output folder {shown} exists and is not empty", hint=hint)
    if not (output / MANIFEST).is_file():
        hint = "`--force` only replaces folders that Intaglio wrote; give another folder with `-o`"
        raise UserError("output-exists", f"the folder {shown} is not a package (it has no `{MANIFEST}`)", hint=hint)


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn what the system says about a full disk or a forbidden folder into an error of ours."""
    try:
        yield
    except OSError as error:
        shown = quoted(str(path), 200)
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            hint = "make room, or give an output on another disk with `-o`; nothing was left behind"
            raise ToolError("disk-full", f"the disk is full while writing {shown}", hint=hint) from error
        if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.ENAMETOOLONG, errno.EISDIR):
            reason = os.strerror(error.errno).lower()
            hint = "give an output that can be written, with `-o`"
            raise ToolError("cannot-write", f"cannot write {shown}: {reason}", hint=hint) from error
        raise


def _swap(staging: Path, output: Path) -> None:
    if not output.exists():
        os.rename(staging, output)
        return
    old = Path(tempfile.mkdtemp(prefix=f".{output.name[:40]}-old-", dir=output.parent))
    os.rename(output, old / "package")
    try:
        os.rename(staging, output)
    except OSError:
        os.rename(old / "package", output)
        raise
    finally:
        shutil.rmtree(old, ignore_errors=True)


def _even_modes(folder: Path) -> None:
    """Readable as the user's umask says, whatever library wrote the file; programs stay programs."""
    mask = _umask()
    for path in folder.rglob("*"):
        if path.is_file() and not path.is_symlink():
            runs = path.stat().st_mode & 0o100
            path.chmod((0o777 if runs else 0o666) & ~mask)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
