"""`--max NAME=N`: names are checked first, so that a wrong one is not hidden by the error that it should prevent."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from difflib import get_close_matches

from intaglio.errors import ModelError, quoted


def check_most(most: Mapping[str, int], names: Collection[str], file: str, kind: str) -> None:
    """`--max` of something that is not there."""
    for name in most:
        if name not in names:
            near = get_close_matches(name, names, 1)
            hint = f"did you mean {quoted(near[0])}?" if near else f"use the name of a {kind}"
            what = f"`--max` names {quoted(name)}, which is no {kind.split(' ', 1)[0]} of the model"
            raise ModelError("unknown-input", what, where=file, hint=hint)


def unneeded(most: Mapping[str, int], used: Collection[str]) -> list[str]:
    """`--max` of something that does not need it."""
    return [f"`--max {name}={n}` is not needed: the size of that is known" for name, n in most.items() if name not in used]
