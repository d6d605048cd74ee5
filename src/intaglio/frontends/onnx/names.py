"""C identifiers for values. A name from a model never reaches C or a file name as it is."""

from __future__ import annotations

import re

from intaglio.ir.names import RESERVED

MAX_LENGTH = 48


def identifier(text: str, fallback: str = "v") -> str:
    """A clean identifier that resembles `text`: ASCII letters, digits and single underscores."""
    first = text[: 8 * MAX_LENGTH].split(";")[0] or text[: 8 * MAX_LENGTH]  # TFLite joins the names of what was fused
    parts = [p for part in first.split("/") if (p := re.sub(r"[^A-Za-z0-9]+", "_", part).strip("_"))]
    clean = ""
    for part in reversed(parts):  # the end of a path tells more than its start
        longer = f"{part}_{clean}" if clean else part
        if clean and len(longer) > MAX_LENGTH - 8:
            break
        clean = longer
    if len(clean) > MAX_LENGTH - 8:
        clean = clean[-(MAX_LENGTH - 8) :].lstrip("_")
    if not clean:
        clean = fallback
    if clean[0].isdigit():
        clean = f"{fallback}_{clean}"
    if clean.lower() in RESERVED:
        clean += "_"
    return clean


class Names:
    """Hands out identifiers that differ even when compared without case."""

    def __init__(self) -> None:
        self._used: dict[str, int] = {}

    def take(self, text: str, fallback: str = "v") -> str:
        stem = identifier(text, fallback)
        name = stem
        number = self._used.get(stem.lower(), 0)
        while name.lower() in self._used:
            number += 1
            name = f"{stem.rstrip('_')}_{number}"
        self._used[stem.lower()] = number
        self._used.setdefault(name.lower(), 0)
        return name
