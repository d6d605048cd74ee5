"""`--max NAME=N`: names are checked first, so that a wrong one is not hidden by the error that it should prevent."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from difflib import get_close_matches

from intaglio.errors import ModelError, quoted
from intaglio.ir.spans import Room

_AXIS = re.compile(r"_(count|(axis|size|part)_[0-9]+)$")  # one size of a tensor: `crop_axis_2`, `boxes_count`


def check_most(most: Mapping[str, int], names: Collection[str], file: str, kind: str) -> None:
    """`--max` of something that is not there."""
    from intaglio.frontends.onnx.names import identifier

    for name in most:
        if name not in names and _AXIS.sub("", name) not in {*names, *map(identifier, names)}:
            near = get_close_matches(name, names, 1)
            hint = f"did you mean {quoted(near[0])}?" if near else f"use the name of a {kind}"
            what = f"`--max` names {quoted(name)}, which is no {kind.split(' ', 1)[0]} of the model"
            raise ModelError("unknown-input", what, where=file, hint=hint)


def unneeded(
    most: Mapping[str, int], used: Collection[str], possible: Mapping[str, int], depends: Callable[[str], str] = lambda _: ""
) -> list[str]:
    """Notes about `--max` of something that does not need it, or that is more than there can be (`possible`). `depends`: the size
    found in data that a tensor has, if any."""
    notes = []
    for name, n in most.items():
        if name not in used and (size := depends(name)):
            tensor = size.removesuffix("_count")
            notes.append(f"`--max {name}={n}` is ignored: {quoted(name)} has the size of `{tensor}`; give `--max {tensor}={n}`")
        elif name not in used:
            notes.append(f"`--max {name}={n}` is not needed: the size of that is known")
    above = [name for name in most if name in possible and int(most[name]) > possible[name]]
    notes += [f"`--max {name}={most[name]}` has no effect above {possible[name]}, the largest possible size" for name in above]
    return notes


def narrowed(
    most: Mapping[str, int], used: set[str], possible: dict[str, int], names: Sequence[str], low: int, high: int
) -> tuple[int, int]:
    """The bounds of a size, within what `--max` says for the first of its names that has a word."""
    from intaglio.frontends.onnx.faults import Fault

    for name in names:
        if name in most:
            used.add(name)
            possible[name] = max(possible.get(name, 0), high)
            given = most[name]
            least = given.least if isinstance(given, Room) else 0
            if least > high or given < low:
                what = f"`--max {name}={given}`: the size is within {low}..{high}"
                raise Fault("bad-request", what, "give a range that has some of these sizes")
            return max(low, least), min(high, int(given))
    return low, high
