"""Fields of a file that the library with the schema (the package `tflite`) does not have, or reads otherwise than LiteRT."""

from __future__ import annotations

from typing import Any

_BUILTIN_CODE = 10  # of an OperatorCode


def whole_field(table: Any, offset: int) -> int:
    """A number of 32 bits in a table of a flatbuffer; 0 where it is not there."""
    from flatbuffers.number_types import Int32Flags

    at = table.Offset(offset)
    return int(table.Get(Int32Flags, at + table.Pos)) if at else 0


def operator_number(code: Any) -> int:
    """Which operator an `OperatorCode` means: the larger of two fields. The second came when there were more than 127 operators.
    New writers leave the first at 0, and there the library does not look at the second unless it is large."""
    return max(whole_field(code._tab, _BUILTIN_CODE), int(code.DeprecatedBuiltinCode()))
