"""Weights beside the text: one safetensors file, read lazily, the digest of each array in the text.

safetensors has no bool and bf16 in numpy: these are stored as their bytes (uint8, uint16) and viewed back by the type.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np

from intaglio.errors import ModelError, quoted
from intaglio.ir.graph import Array, Graph

INLINE_ELEMENTS = 8  # constants up to this size are written into the text


def digest(array: Array) -> str:
    """Names the contents; the first 16 hex digits of SHA-256 over the bytes in C order."""
    return hashlib.sha256(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data).hexdigest()[:16]


def save_weights(graph: Graph, path: Path) -> None:
    from safetensors.numpy import save_file

    arrays: dict[str, Array] = {}
    for value in graph.constants():
        assert value.data is not None
        if value.data.size > INLINE_ELEMENTS:
            stored = np.ascontiguousarray(value.data)
            arrays[value.name] = stored.view(np.uint8) if stored.dtype == np.bool_ else stored
    save_file(arrays, str(path))


class Weights(Mapping[str, Array]):
    """Arrays of a safetensors file by name, each read when it is asked for."""

    def __init__(self, path: Path) -> None:
        from safetensors import SafetensorError, safe_open

        if path.exists() and not path.is_file():  # a pipe would keep us waiting
            hint = "keep the .ig and its .safetensors together"
            raise ModelError("bad-weights", f"{quoted(path.name)} is not a regular file", hint=hint)
        try:
            self._file = safe_open(str(path), framework="numpy")
        except FileNotFoundError:
            raise ModelError(
                "missing-weights",
                f"the weights {quoted(path.name)} are not beside the IR file",
                hint="keep the .ig and its .safetensors together",
            ) from None
        except (SafetensorError, OSError, ValueError) as error:
            hint = "write the IR file again; its weights were damaged or edited"
            raise ModelError("bad-weights", f"{quoted(path.name)} is not a safetensors file: {error}", hint=hint) from None
        self._names: list[str] = list(self._file.keys())  # type: ignore[no-untyped-call]

    def __getitem__(self, name: str) -> Array:
        if name not in self._names:
            raise KeyError(name)
        array: Array = self._file.get_tensor(name)  # type: ignore[no-untyped-call]
        return array

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


def load_weights(path: Path) -> Mapping[str, Array]:
    return Weights(path)
