"""Constants that JAX's bindings have no array of, from the text of their operation: bf16, and complex numbers.

    dense<1.5>   dense<[1.5, 0x7F80]>   dense<[(1.0,2.0), (0x7F800000,0.0)]>   dense<"0x...">, which are the bytes
"""

from __future__ import annotations

import re

import numpy as np

from intaglio.ir.graph import Array
from intaglio.ir.types import DType
from intaglio.ops.base import narrow

_BLOB = re.compile(r'dense<"0x([0-9A-Fa-f]*)">')
_PAIR = re.compile(r"\(([^,()]+),([^,()]+)\)")
_NUMBER = re.compile(r"0x[0-9A-Fa-f]+|[-+0-9.][-+0-9.eE]*")


def halves_of(text: str) -> Array:
    """The codes of bf16 numbers; one stands for all."""
    text = text[text.index("dense<") :]
    if (blob := _BLOB.match(text)) is not None:
        return np.frombuffer(bytes.fromhex(blob[1]), np.uint16)
    words = _NUMBER.findall(text[len("dense<") :].partition(" : ")[0])
    found = narrow(np.array([0.0 if "0x" in word else float(word) for word in words], np.float32), DType.BF16)
    codes = np.array([int(word, 16) if "0x" in word else 0 for word in words], np.uint16)  # infinities and NaN
    return np.where(["0x" in word for word in words], codes, found).astype(np.uint16)


def pairs_of(text: str, of: DType) -> Array:
    """Complex numbers; one stands for all. `of`: their parts."""
    text = text[text.index("dense<") :]
    if (blob := _BLOB.match(text)) is not None:
        return np.frombuffer(bytes.fromhex(blob[1]), np.complex64 if of is DType.F32 else np.complex128)
    return np.array([complex(_float(a, of), _float(b, of)) for a, b in _PAIR.findall(text.partition(" : ")[0])])


def spread(data: Array, shape: tuple[int, ...]) -> Array:
    return np.array(np.broadcast_to(data.reshape(()) if data.size == 1 else data.reshape(shape), shape))


def _float(text: str, of: DType) -> float:
    if "0x" not in text:
        return float(text)
    bits = np.array(int(text, 16), np.uint32 if of is DType.F32 else np.uint64)
    return float(bits.view(of.numpy))
