"""Weights with a scale for each block of numbers along the last axis (LiteRT's BlockwiseQuantization) become floats.

    w: i4[128,256], blocks of 32, scales: f16[128,8]      ->      w: f32[128,256] = stored * scale of its block

Scales, and zero points where there are any, are tensors of the same subgraph.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from intaglio.frontends.tflite.fields import whole_field
from intaglio.ir.types import DType

if TYPE_CHECKING:
    from intaglio.frontends.tflite.container import Tensor

BLOCKWISE = 2  # QuantizationDetails.BlockwiseQuantization, which the library with the schema does not have yet
_SCALES, _ZEROS, _BLOCK = 4, 6, 8  # offsets of its fields
FLOAT32 = 0  # TensorType


class BadBlocks(Exception):
    """Its text says what does not fit."""


def in_floats(tensor: Tensor, details: Any, tensors: Sequence[Tensor]) -> Tensor:
    """The tensor with its numbers as floats."""
    scales, zeros, block = (whole_field(details, offset) for offset in (_SCALES, _ZEROS, _BLOCK))
    if tensor.data is None or tensor.dtype is not DType.I8 or not tensor.shape:
        raise BadBlocks("only constants of 4 and 8 bits are supported")
    if block < 1 or tensor.shape[-1] % block:
        raise BadBlocks(f"blocks of {block} do not divide its last axis of {tensor.shape[-1]}")
    count = math.prod(tensor.shape) // block
    stored = tensor.data.reshape(count, block).astype(np.float32)
    if zeros > 0:
        stored = stored - _numbers(tensors, zeros, count, "zero points")
    made = stored * _numbers(tensors, scales, count, "scales")
    if not np.isfinite(made).all():
        raise BadBlocks("a scale is not a finite number")
    return replace(tensor, kind=FLOAT32, dtype=DType.F32, quant=None, data=made.reshape(tensor.shape))


def _numbers(tensors: Sequence[Tensor], index: int, count: int, what: str) -> np.ndarray[Any, np.dtype[np.float32]]:
    data = tensors[index].data if 0 <= index < len(tensors) else None
    if data is None or data.size != count:
        found = "nothing" if data is None else f"{data.size} numbers"
        raise BadBlocks(f"its {what} are tensor {index}, which has {found} for {count} blocks")
    return data.reshape(count, 1).astype(np.float32)
