"""The user's cache folder: things that can be made again, used only where nobody else can write to them."""

from __future__ import annotations

import os
import stat
from pathlib import Path


def cache_root() -> Path:
    """Where things are kept that can be made again. INTAGLIO_CACHE_DIR moves it."""
    if told := os.environ.get("INTAGLIO_CACHE_DIR"):
        return Path(told)
    if told := os.environ.get("XDG_CACHE_HOME"):
        return Path(told) / "intaglio"
    return Path.home() / ".cache" / "intaglio"


def unsafe(path: Path) -> str:
    """Why a file is not used: others could have written into it. Empty where all is well."""
    if not hasattr(os, "geteuid"):
        return ""
    for place, what in ((path, "the file"), (path.parent if str(path.parent) else Path("."), "its folder")):
        try:
            status = place.stat()
        except OSError as error:
            return f"{what} cannot be inspected: {error.strerror}"
        if status.st_uid not in (0, os.geteuid()):
            return f"{what} belongs to another user"
        if stat.S_ISDIR(status.st_mode) and status.st_mode & stat.S_ISVTX:
            continue  # such as /tmp: there one can only remove what is one's own
        if status.st_mode & stat.S_IWOTH:
            return f"{what} is writable by everybody"
        if status.st_mode & stat.S_IWGRP and status.st_gid not in (0, os.getegid()):
            return f"{what} is writable by another group"
    return ""
