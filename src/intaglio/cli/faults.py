"""Errors that are not ours by type: mistyped commands, and bugs."""

from __future__ import annotations

import platform
import sys
import tempfile
import traceback

from intaglio.errors import IntaglioError, OurFault, UserError
from intaglio.ir.sizes import Undecided
from intaglio.version import __version__

_PLAINER = {
    "Input should be a valid integer, unable to parse string as an integer": "this is not a whole number",
    "Input should be a valid number, unable to parse string as a number": "this is not a number",
}


def usage_error(error: Exception) -> str | UserError | None:
    """What click says about a command line, in our form. None when it is something else."""
    shown = getattr(error, "format_message", None)
    if shown is None:
        return None
    context = getattr(error, "ctx", None)
    if type(error).__name__ == "NoArgsIsHelpError":
        return str(shown())  # the page itself, as it is
    path = context.command_path if context is not None else "intaglio"
    said = str(shown()).replace("\n", " ")
    for theirs, ours in _PLAINER.items():
        said = said.replace(theirs, ours)
    return UserError("usage", said, hint=f"see `{path} --help`")


def write_report(error: Exception) -> IntaglioError:
    """The traceback goes to a file, for whoever repairs it. A question that a size of the caller decides is refused, no bug."""
    if isinstance(error, Undecided):
        return UserError("size-decides", str(error), hint=error.hint)
    with tempfile.NamedTemporaryFile("w", prefix="intaglio-bug-", suffix=".txt", delete=False, encoding="utf-8") as file:
        file.write(f"intaglio {__version__}, Python {platform.python_version()}, {platform.platform()}\n")
        file.write(" ".join(sys.argv) + "\n\n")
        file.write("".join(traceback.format_exception(error)))
    hint = "please send that file with a bug report, and the model if possible"
    return OurFault("internal", f"a bug in Intaglio: {type(error).__name__}: {error}", where=file.name, hint=hint)
