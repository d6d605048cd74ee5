"""A plug-in or driver that takes the process down is named: what calls it runs in a child, and the parent says how it ended."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from intaglio.errors import ToolError, quoted
from intaglio.targets import black_box

FATAL = {signal.SIGSEGV, signal.SIGABRT, signal.SIGFPE, signal.SIGILL} | ({signal.SIGBUS} if hasattr(signal, "SIGBUS") else set())

RUNNING = ("run", "validate", "profile")  # commands that call a package, and write nothing that could be left half done
GRACE_SECONDS = 2.0


def end_in_c(words: Sequence[str], heard: Callable[[], bool]) -> None:
    """A package whose loop never ends keeps Python's signal handlers from being called. A thread sees the signal, and ends the
    process if the handlers have not `heard` it by then."""
    if not words or words[0] not in RUNNING or sys.stdout is not sys.__stdout__ or not hasattr(os, "fork"):
        return
    near, far = socket.socketpair()
    far.setblocking(False)
    signal.set_wakeup_fd(far.fileno(), warn_on_full_buffer=False)
    os.register_at_fork(after_in_child=lambda: signal.set_wakeup_fd(-1))

    def watch() -> None:
        with far:  # kept as long as the thread
            while (signum := near.recv(1)[0]) not in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
                pass
            time.sleep(GRACE_SECONDS)
            if not heard():
                print("stopped", file=sys.stderr, flush=True)
                os._exit(128 + signum)

    threading.Thread(target=watch, daemon=True).start()


def calls_plugins(words: Sequence[str]) -> bool:
    """May this command call a plug-in?"""
    if any(word.startswith("--accelerator") for word in words) or list(words[:2]) == ["accelerators", "test"]:
        return True
    if words[:1] == ["compile"] and any(word.endswith(".ig") for word in words):
        return True
    runs = words[:1] in (["run"], ["validate"], ["profile"], ["emulate"])
    return runs and any(_has_accelerators(Path(word)) for word in words[1:])


def _has_accelerators(folder: Path) -> bool:
    try:
        return bool(re.search(r'"accelerator": "\w', (folder / "manifest.json").read_text(encoding="utf-8")))
    except (OSError, ValueError):
        return False


def _on_opencl(folder: Path) -> bool:
    try:
        return '"accelerator": "opencl"' in (folder / "manifest.json").read_text(encoding="utf-8")
    except (OSError, ValueError):
        return False


def in_child(words: Sequence[str]) -> int | None:
    """None in the child, which goes on; in the parent, the exit code. There is no child where there is no need for one, or output
    goes elsewhere than to that of the process (in tests)."""
    if not hasattr(os, "fork") or sys.stdout is not sys.__stdout__ or not calls_plugins(words):
        return None
    page = black_box.open_page()
    child = os.fork()
    if child == 0:
        return None
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the terminal tells both of us
    signal.signal(signal.SIGTERM, lambda *_: os.kill(child, signal.SIGTERM))
    _, status = os.waitpid(child, 0)
    if os.WIFEXITED(status):
        return os.WEXITSTATUS(status)
    ended = signal.Signals(os.WTERMSIG(status))
    who, what, folder = black_box.found(page)
    if folder:
        shutil.rmtree(folder, ignore_errors=True)
    if who and ended in FATAL:
        text = f"the accelerator {quoted(who)} crashed the process in {what} ({ended.name})"
        hint = "look for a wrong pointer or a failed assertion in its C; no partial output was left"
        print(ToolError("plugin-crashed", text, hint=hint), file=sys.stderr)
        return 2
    if ended in FATAL and any(_on_opencl(Path(word)) for word in words[1:]):
        text = f"the OpenCL driver crashed the process ({ended.name})"
        hint = "run it again (the cached programs in use are no longer trusted), or use `--no-cache` or another `--device`"
        print(ToolError("opencl-crashed", text, hint=hint), file=sys.stderr)
        return 2
    return 128 + ended
