"""The output folder: either all of it, or none of it.

A package is written into a sibling folder and renamed when it is complete, so that a full disk, a failed compiler or
Ctrl-C leaves nothing half-written, and the package that `--force` replaces stays whole until then.
"""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from intaglio.errors import ToolError, UserError, quoted
from intaglio.package.ownership import MANIFEST, changed_file, check_replaceable
from intaglio.package.staging import old_folder, remove_left, staging_folder
from intaglio.targets import black_box

Later = Callable[[Callable[[], None]], object]  # calls what it is given: at once, or beside other work

# What a system says when it does not let us write; anything else is a bug of ours.
_REFUSALS = frozenset([
    errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.ENAMETOOLONG, errno.EISDIR, errno.EEXIST, errno.ELOOP, errno.EIO,
    errno.EINVAL, errno.EBUSY, errno.ETXTBSY, errno.EMFILE, errno.ENFILE, errno.EILSEQ,
])  # fmt: skip


def at_once(do: Callable[[], None]) -> None:
    do()


@contextmanager
def fresh_folder(output: Path, *, force: bool) -> Iterator[Path]:
    """A folder to write into, which becomes `output` at the end of the `with` block."""
    remove_left(output)
    check_output(output, force=force)
    with ExitStack() as stack:
        with writing(output):
            output.parent.mkdir(parents=True, exist_ok=True)
            try:
                staging = stack.enter_context(staging_folder(output))
            except FileNotFoundError:  # a folder that takes no folders, such as /proc
                hint = "use an output in an ordinary folder, with `-o`"
                what = f"cannot create a folder in {quoted(str(output.parent), 200)}"
                raise ToolError("cannot-write", what, hint=hint) from None
        black_box.writing_to(str(staging.resolve()))
        stack.callback(black_box.writing_to, "")
        with writing(output):
            staging.chmod(0o777 & ~_umask())
            yield staging
            _even_modes(staging)
            _swap(staging, output, force=force)


@contextmanager
def fresh_file(path: Path) -> Iterator[Path]:
    """A file to write, which becomes `path` at the end of the `with` block."""
    if not path.parent.is_dir():
        hint = "create the folder, or use another output"
        raise UserError("cannot-write", f"there is no folder {quoted(str(path.parent), 200)}", hint=hint)
    if path.exists() and not path.is_file() and not path.is_dir():  # it would be replaced by a file: /dev/null, for root
        what = f"{quoted(str(path), 200)} is a device or a pipe, which is not replaced"
        raise UserError("cannot-write", what, hint="use the name of a file")
    with writing(path):
        handle, name = tempfile.mkstemp(prefix=f".{path.name[:40]}-", dir=path.parent)
        os.close(handle)
    staging = Path(name)
    try:
        with writing(path):
            yield staging
            staging.chmod(0o666 & ~_umask())
            os.replace(staging, path)
    finally:
        staging.unlink(missing_ok=True)


OTHER_REQUEST = "; it was made with other options, another model, compiler or version, or other kernel times"


def check_output(output: Path, *, force: bool) -> None:
    """May `output` become a package? Asked before any work is done."""
    with writing(output):
        _check_output(output, force=force)


def _check_output(output: Path, *, force: bool) -> None:
    shown = quoted(str(output), 200)
    _first_parent(output, "use a folder that can be created, with `-o`")
    if output.is_symlink():
        hint = "use the folder itself, with `-o`"
        raise UserError("output-exists", f"the output {shown} is a symbolic link, which is not followed", hint=hint)
    if not output.exists():
        return
    if not output.is_dir():
        raise UserError("output-exists", f"the output {shown} exists and is not a folder", hint="give another `-o`")
    if not any(output.iterdir()):
        return
    if not force:
        hint = "use `--force` to replace a package, or another folder with `-o`"
        if (output / MANIFEST).is_file():
            changed = changed_file(output)
            hint += f"; its file {quoted(changed)} is missing or was changed" if changed else OTHER_REQUEST
        raise UserError("output-exists", f"the output folder {shown} exists and is not empty", hint=hint)
    check_replaceable(output)


def check_parents(path: Path, hint: str) -> None:
    """Can a file be made there, with the folders that lead to it? Asked before hours of work whose result goes there."""
    with writing(path):
        parent = _first_parent(path, hint)
        if not os.access(parent, os.W_OK | os.X_OK):
            raise UserError("cannot-write", f"the folder {quoted(str(parent), 200)} cannot be written", hint=hint)


def _first_parent(path: Path, hint: str) -> Path:
    """The nearest folder above that is there."""
    for parent in path.absolute().parents:
        if parent.exists():
            if not parent.is_dir():
                raise UserError("cannot-write", f"{quoted(str(parent), 200)} is a file, not a folder", hint=hint)
            return parent
    return Path("/")


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn what the system says about a full disk or a forbidden folder into an error of ours."""
    try:
        yield
    except OSError as error:
        shown = quoted(str(path), 200)
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            hint = "free some space, or use an output on another disk with `-o`; no partial output was left"
            raise ToolError("disk-full", f"the disk is full while writing {shown}", hint=hint) from error
        if error.errno in _REFUSALS:
            reason = os.strerror(error.errno).lower()
            hint = "use an output that can be written, with `-o`"
            raise ToolError("cannot-write", f"cannot write {shown}: {reason}", hint=hint) from error
        raise


def check_kind(path: Path, kind: str, begins: tuple[bytes, ...], within: int = 0) -> None:
    """Outputs of one file replace a file of their own kind and no other, whatever the user gave by mistake: a model, a thesis.
    `begins`: how such files begin, up to `within` bytes behind their start. An empty file is nobody's."""
    if path.is_file():
        with writing(path), open(path, "rb") as file:
            start = file.read(within + max(map(len, begins)))
        if start and not any(text in start if within else start.startswith(text) for text in begins):
            what = f"{quoted(str(path), 200)} exists and is not {kind}"
            raise UserError("output-exists", what, hint="move it, or use another output")


def write_text(path: Path, text: str) -> None:
    """A file beside the package, and the folders that lead to it. Whole, or as it was before; pipes and devices are written to."""
    with writing(path):
        place = Path(os.path.realpath(path))
        if path.exists() and not place.is_file():
            path.write_text(text, encoding="utf-8")
            return
        try:
            place.parent.mkdir(parents=True, exist_ok=True)
        except FileNotFoundError:  # a folder that takes no folders, such as /proc
            what = f"cannot create the folder {quoted(str(path.parent), 200)}"
            raise ToolError("cannot-write", what, hint="use a file in an ordinary folder") from None
    with fresh_file(place) as fresh:
        fresh.write_text(text, encoding="utf-8")


def _swap(staging: Path, output: Path, *, force: bool) -> None:
    """Other processes may do the same at this moment. With `--force` the last one replaces the folder; without it, it reports an
    error."""
    for _ in range(100):
        try:
            os.rename(staging, output)  # also when there is an empty folder
            return
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
        _check_output(output, force=force)
        old = old_folder(staging)
        try:
            os.rename(output, old / "package")
            _put(staging, output, old / "package")
            if not staging.exists():
                return
        except FileNotFoundError:
            continue  # somebody else has moved it away
        finally:
            shutil.rmtree(old, ignore_errors=True)
    raise UserError("output-exists", f"{quoted(str(output), 200)} keeps changing", hint="does another process write there?")


def _put(staging: Path, output: Path, old: Path) -> None:
    try:
        os.rename(staging, output)
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            os.rename(old, output)
            raise


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
