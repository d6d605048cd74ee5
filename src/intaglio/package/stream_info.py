"""A package that takes frames one after the other, in a manifest."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class StreamInfo:
    """A package that takes the next frames alone. Results are those of a window after its first `window / hop` steps."""

    axis: int  # of the input, in the model too
    hop: int  # frames in a step
    window: int  # frames
    outputs: tuple[int | None, ...]  # the axis of frames in each output, where it has one
    goes_on: bool = False  # it remembers more than a window


def stream_of_row(row: dict[str, Any]) -> StreamInfo:
    """As it stands in the file; whatever does not fit raises."""
    info = StreamInfo(**{**row, "outputs": tuple(row["outputs"])})
    assert all(type(n) is int and n >= 0 for n in (info.axis, info.hop, info.window)) and info.hop > 0
    return info
