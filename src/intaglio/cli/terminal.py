"""What the terminal shows: notes and progress on stderr, tables and JSON on stdout."""

from __future__ import annotations

import json
import shutil
import sys
import textwrap
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, is_dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from rich.console import Console

PAGE = 80  # columns of text, and of tables that go into a file or a pipe: people paste them into mails and issues
WIDEST = 140  # of tables on a terminal
SHORT = 14  # cells up to this length are never split


class Progress(Protocol):
    def __call__(self, what: str, done: int, total: int) -> None: ...


def note(text: str) -> None:
    """On a terminal within its width; in a file or a pipe, a note is a line."""
    if sys.stderr.isatty() and "\n" not in text:
        start = text[: len(text) - len(text.lstrip())]
        width = max(PAGE, shutil.get_terminal_size((PAGE, 24)).columns)
        text = textwrap.fill(text, width, subsequent_indent=f"{start}  ", break_long_words=False, break_on_hyphens=False)
    print(text, file=sys.stderr)


def on_terminal(text: str) -> None:
    """A note that says where it is, for who waits."""
    if sys.stderr.isatty():
        note(text)


def say(text: str, width: int = PAGE) -> None:
    """A sentence of the answer, within the page: long ones go on in the next line."""
    print(textwrap.fill(text, width, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False))


_printed: list[bool] = []  # has this process printed its object?


def json_was_printed() -> bool:
    return bool(_printed)


def print_json(value: object) -> None:
    """One object. NaN and infinity have no JSON spelling and become null."""
    _printed.append(True)
    told = asdict(value) if is_dataclass(value) and not isinstance(value, type) else value
    print(json.dumps(_plain(told), indent=2, allow_nan=False))


def _plain(value: object) -> object:
    if isinstance(value, dict):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(v) for v in value]
    if isinstance(value, float) and value - value != 0:
        return None
    return value


def console(*, stderr: bool = False) -> Console:
    from rich.console import Console

    made = Console(stderr=stderr, highlight=False, emoji=False, markup=False)
    made.width = columns_here()
    return made


def columns_here() -> int:
    """Of a table: as many as the terminal has, within reason; those of a page where there is none."""
    if not sys.stdout.isatty():
        return PAGE
    return max(PAGE, min(WIDEST, shutil.get_terminal_size((PAGE, 24)).columns))


def print_table(columns: Sequence[str], rows: Sequence[Sequence[str]], *, stderr: bool = False, title: str = "") -> None:
    """Columns whose name starts with `>` are numbers, to the right. Long text goes on in the next line."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, title=title or None, title_justify="left", pad_edge=False, show_edge=False)
    for n, name in enumerate(columns):
        right = name.startswith(">")
        # The first column is a name that one may have to type; long ones are cut by whoever makes the rows.
        widest = max((len(row[n]) for row in rows), default=0)
        whole = right or n == 0 or widest <= SHORT
        table.add_column(
            name.removeprefix(">"),
            justify="right" if right else "left",
            no_wrap=whole,
            overflow="ellipsis",
            min_width=widest if whole else None,
        )
    for row in rows:
        table.add_row(*[Text(cell) for cell in row])
    console(stderr=stderr).print(table)


@contextmanager
def progress_bar(what: str = "compiling") -> Iterator[Progress | None]:
    """A bar while C compiles or a package runs, on a terminal only."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bar

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Bar(*columns, console=console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=None)

        def advance(what: str, done: int, total: int) -> None:
            bar.update(task, description=what, completed=done, total=total)

        yield advance


def bytes_text(size: int) -> str:
    if size < 1024:
        return f"{size} B"
    if size < 1 << 20:
        return f"{size / 1024:.1f} KB"
    return f"{size / (1 << 20):.1f} MB"


def proven_text(size: int, bound: int) -> str:
    """`24,576 bytes, proven optimal`, or `... at most 1.3 % above the lower bound`."""
    proof = "proven optimal" if size == bound else f"at most {100 * (size - bound) / bound:.1f} % above the lower bound"
    return f"{size:,} bytes, {proof}" if size else "0 bytes"


def count_text(count: int) -> str:
    for limit, unit in ((10**9, "G"), (10**6, "M"), (10**3, "k")):
        if count >= limit:
            return f"{count / limit:.1f} {unit}"
    return str(count)


def ms_text(ms: float) -> str:
    """The same everywhere: times are compared."""
    return f"{ms:.3f}" if ms < 100 else f"{ms:,.1f}"


def us_text(us: float) -> str:
    """With two digits at least, also below a microsecond."""
    return f"{us:.2f}" if us < 10 else f"{us:.1f}" if us < 1000 else f"{us:,.0f}"


def ending(name: str, width: int) -> str:
    """The last characters of a name: the end of a path tells more than its start."""
    return name if len(name) <= width else f"…{name[1 - width :]}"


def beginning(name: str, width: int) -> str:
    return name if len(name) <= width else f"{name[: width - 1]}…"


def within_page(columns: Sequence[str], rows: Sequence[Sequence[str]], first_to_go: Sequence[str]) -> None:
    """A table whose columns all fit: names are shortened to 16 characters, then columns are left out in this order."""
    shown = list(range(len(columns)))

    def width() -> int:
        cells = [max(map(len, (columns[n].removeprefix(">"), *(row[n] for row in rows)))) for n in shown[1:]]
        return min(16, max((len(row[0]) for row in rows), default=0)) + sum(cells) + 3 * len(cells)

    for name in first_to_go:
        if width() > columns_here() and name in columns:
            shown.remove(columns.index(name))
    chosen = [columns[n] for n in shown]
    print_table(chosen, fitted(chosen, [[row[n] for n in shown] for row in rows], 16))


def fitted(columns: Sequence[str], rows: Sequence[Sequence[str]], least: int = 10) -> list[list[str]]:
    """Rows whose first cells, names, are shortened so that the table has at most 80 columns."""
    widths = [max(map(len, (columns[n].removeprefix(">"), *(row[n] for row in rows)))) for n in range(1, len(columns))]
    room = max(least, columns_here() - sum(widths) - 3 * len(widths))
    return [[name, *row[1:]] for name, row in zip(shortened([row[0] for row in rows], room), rows, strict=True)]


def shortened(names: Sequence[str], width: int) -> list[str]:
    """Names that fit this width. Those that do not lose what they have in common at the start and the end, and then all but their
    ends."""
    long = {name for name in names if len(name) > width}
    start = _shared(long)
    end = _shared({name[start:][::-1] for name in long})
    marks = ("…" if start else "", "…" if end else "")
    return [ending(f"{marks[0]}{n[start : len(n) - end]}{marks[1]}", width) if n in long else n for n in names]


def _shared(names: Collection[str]) -> int:
    """Characters that all names begin with, up to the end of a part (`block1/`, `net.`, `stage_`); 0 where that is hardly any."""
    if len(names) < 2:
        return 0
    first, last = min(names), max(names)  # all names begin with what these two have in common
    same = next((n for n, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), min(len(first), len(last)))
    length = max(first[:same].rfind(mark) + 1 for mark in "/._:;")
    return length if length >= 3 else 0


def note_loops(operators: Iterable[str]) -> None:
    """Of figures that one run gave: data may ask for more turns of a loop."""
    if "loop_end" in operators:
        figures = "Figures are those of one run, estimates those of one turn"
        note(f"note: the model has a loop. {figures}; other inputs may need more turns")
