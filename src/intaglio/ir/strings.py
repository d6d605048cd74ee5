"""Strings as bytes: each is a row of as many bytes as the longest may have, UTF-8, with zeros behind its end.

    ["cat", "mouse"]  with 8 bytes each:  u8[2, 8] TEXT

A tensor of strings is so an ordinary tensor of bytes with one axis more, which the layout `TEXT` marks.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from intaglio.ir.graph import Array

USUAL_BYTES = 64  # of a string, where nobody says more


class TooLong(ValueError):
    """A string has more bytes than there is room for."""


def is_text(array: Array) -> bool:
    """Does this array hold strings?"""
    return array.dtype.kind in "USO"


def encoded(array: Array, width: int) -> Array:
    """Strings as rows of bytes."""
    rows = [_bytes(one) for one in array.reshape(-1).tolist()]
    for row in rows:
        if len(row) > width:
            shown = row[:20].decode("utf-8", "replace")
            raise TooLong(f"the string `{shown}...` has {len(row)} bytes, at most {width} fit")
        if 0 in row:
            raise TooLong("a string has a byte 0, which ends strings here")
    return stacked(rows, width).reshape(*array.shape, width)


def stacked(rows: Iterable[bytes], width: int) -> Array:
    whole = b"".join(row.ljust(width, b"\0") for row in rows)
    return np.frombuffer(whole, np.uint8).reshape(-1, width) if width else np.zeros((0, 0), np.uint8)


def decoded(array: Array) -> Array:
    """Rows of bytes as an array of `str`; what is not UTF-8 is replaced."""
    flat = np.ascontiguousarray(array).reshape(-1, array.shape[-1])
    words = [bytes(row).split(b"\0", 1)[0].decode("utf-8", "replace") for row in flat]
    return np.array(words, str).reshape(array.shape[:-1])


def _bytes(one: Any) -> bytes:
    return bytes(one) if isinstance(one, bytes) else str(one).encode("utf-8")
