"""A first reading of a file of JAX, in a process of its own.

JAX reads its files with LLVM's parsers, which take some damaged files for valid ones: they never end, fill the memory or end the
process. So another process reads the file first, with limits. Files that this process wrote itself are not tried.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path

from intaglio.errors import quoted
from intaglio.frontends.jax.opening import deserialized, module_of, reason_of, unreadable

SECONDS = 8.0  # of processor time and by the clock, with those for a large file on top
BYTES_PER_SECOND = 20 << 20
ROOM_BYTES = 1 << 30  # of memory, beside that for the file
TIMES = 12  # the file, as text, as bytes of numbers, lowered, ...
_own: set[bytes] = set()  # digests
_CHILD = """import sys
sys.path[:] = {path!r}
from pathlib import Path
from intaglio.frontends.jax.trial import read
sys.exit(read(Path(sys.argv[1]), {seconds}))
"""


def wrote(path: Path) -> None:
    _own.add(hashlib.sha256(path.read_bytes()).digest())


def tried(path: Path) -> None:
    data = path.read_bytes()
    if hashlib.sha256(data).digest() in _own:
        return
    seconds = SECONDS + len(data) / BYTES_PER_SECOND
    words = [sys.executable, "-c", _CHILD.format(path=sys.path, seconds=int(seconds)), os.fspath(path.resolve())]
    try:
        done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, check=False, timeout=2 * seconds)
    except subprocess.TimeoutExpired:
        reason = f"it was not read after {2 * seconds:.0f} s"
    else:
        if done.returncode == 0:
            return
        said = done.stdout.decode(errors="replace").strip().splitlines()
        reason = quoted(said[-1][:200]) if done.returncode == 1 and said else "its reader ended, or needs too much time or memory"
    raise unreadable(path, reason)


# The child ------------------------------------------------------------------------------------------------------------


def read(path: Path, seconds: int) -> int:
    """1: the last line of the output says what is wrong."""
    _limit(seconds, path.stat().st_size)
    try:
        module_of(deserialized(path))
    except ImportError:  # no JAX: the parent says so
        return 0
    except Exception as error:
        print(reason_of(error))
        return 1
    return 0


def _limit(seconds: int, size_bytes: int) -> None:
    try:
        import resource
    except ImportError:
        return
    for which, most in ((resource.RLIMIT_CPU, seconds), (resource.RLIMIT_DATA, ROOM_BYTES + TIMES * size_bytes)):
        _, hard = resource.getrlimit(which)
        resource.setrlimit(which, (most if hard == resource.RLIM_INFINITY else min(most, hard), hard))
