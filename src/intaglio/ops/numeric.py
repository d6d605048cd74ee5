"""For the type checker: numpy's stubs refuse to reduce or contract arrays of unknown element type, and that is what a
reference gets. `numeric` says "numbers of some kind" and does nothing; `int_range` replaces `np.iinfo`."""

from __future__ import annotations

from typing import cast

import numpy as np

from intaglio.ir.graph import Array
from intaglio.ir.types import DType

Numeric = np.ndarray[tuple[int, ...], np.dtype[np.float64]]


def numeric(array: Array) -> Numeric:
    return cast(Numeric, array)


def int_range(dtype: DType) -> tuple[int, int]:
    """The smallest and the largest number of an integer type."""
    bits = 8 * dtype.bytes
    return (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if dtype.is_signed else (0, (1 << bits) - 1)
