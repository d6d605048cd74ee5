"""Progress of a compile in a notebook: one line that is rewritten, gone at the end."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from html import escape
from typing import Any

Progress = Callable[[str, int, int], None]


def in_notebook() -> bool:
    """IPython with a front end that shows rich output, and not a terminal."""
    shell = getattr(builtins, "get_ipython", None)
    return shell is not None and type(shell()).__name__ == "ZMQInteractiveShell"


@contextmanager
def notebook_progress() -> Iterator[Progress | None]:
    """None outside notebooks."""
    if not in_notebook():
        yield None
        return
    from IPython.display import HTML, display

    handle: Any = display(HTML(""), display_id=True)

    def show(what: str, done: int, total: int) -> None:
        handle.update(HTML(f"<progress value='{done}' max='{total}'></progress> {escape(what)} {done}/{total}"))

    try:
        yield show
    finally:
        handle.update(HTML(""))
