"""HDF5 files, read with distrust: only what is stored in the file itself, never more than it stores, no plug-ins.

A file can point elsewhere in several ways (soft and external links, external storage, virtual datasets) and can name filters
that the library would load from a folder; all of these are refused before anything is read.
"""

from __future__ import annotations

import io
import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from intaglio.errors import ModelError, ToolError, quoted
from intaglio.frontends.onnx.faults import Fault
from intaglio.ir.graph import Array

_FILTERS = {1, 2, 3}  # gzip, shuffle, checksum: inside of the library
_MOST_EXPANSION = 1100  # deflate cannot do better
_MOST_ELEMENTS = 2**31 - 1
MOST_NAMES = 200_000
_AGAIN = "the file is damaged; save the model again"
_DAMAGE = (OSError, RuntimeError, LookupError, ValueError, TypeError, AttributeError, OverflowError, MemoryError, SystemError)


@contextmanager
def reading(file: str) -> Iterator[None]:
    """What h5py says of a damaged file, as an error about the file."""
    try:
        yield
    except _DAMAGE as error:
        lines = str(error).strip().splitlines()
        reason = lines[0][:200] if lines else type(error).__name__
        hint = "the file is damaged; save the model again"
        raise ModelError("not-a-model", f"the HDF5 part cannot be read: {reason}", where=file, hint=hint) from None


class Hdf5:
    """An open HDF5 file. Paths are followed link by link."""

    def __init__(self, source: Path | bytes, file: str) -> None:
        try:
            import h5py
        except ImportError:
            hint = "`pip install 'intaglio[keras]'`"
            raise ToolError("no-reader", "h5py is not installed: it reads the weights of Keras models", hint=hint) from None
        self._h5py: Any = h5py
        self.file = file
        with reading(file):
            self._root: Any = h5py.File(io.BytesIO(source) if isinstance(source, bytes) else str(source), "r")

    def close(self) -> None:
        with reading(self.file):
            self._root.close()

    def find(self, path: str) -> Any | None:
        """The group or dataset at a path; None where there is none."""
        here = self._root
        with reading(self.file):
            for part in [p for p in path.split("/") if p]:
                if not isinstance(here, self._h5py.Group):
                    return None
                link = here.get(part, getlink=True)
                if link is None:
                    return None
                if not isinstance(link, self._h5py.HardLink):
                    raise ModelError(
                        "bad-file",
                        f"{quoted(path)} is a link to another place ({type(link).__name__})",
                        where=self.file,
                        hint="save the model again: Keras writes everything into the file",
                    )
                here = here.get(part)
            return here

    def names(self, path: str) -> list[str]:
        group = self.find(path)
        with reading(self.file):
            return [] if not isinstance(group, self._h5py.Group) else [str(n) for n in list(group)[:MOST_NAMES]]

    def text(self, path: str, attribute: str) -> str | None:
        """A string attribute."""
        group = self.find(path)
        if group is None:
            return None
        with reading(self.file):
            value = group.attrs.get(attribute)
            if isinstance(value, np.ndarray) and value.size == 1:
                value = value.reshape(-1)[0]
            if isinstance(value, bytes):
                return bytes(value).decode("utf-8", "replace")
            return value if value is None or isinstance(value, str) else str(value)

    def texts(self, path: str, attribute: str) -> list[str] | None:
        """A list of strings; Keras cuts a long one into `weight_names0`, `weight_names1`, ..."""
        group = self.find(path)
        if group is None:
            return None
        with reading(self.file):
            if attribute in group.attrs:
                parts = [group.attrs[attribute]]
            else:
                parts = []
                while f"{attribute}{len(parts)}" in group.attrs and len(parts) < MOST_NAMES:
                    parts.append(group.attrs[f"{attribute}{len(parts)}"])
                if not parts:
                    return None
            found = [item for part in parts for item in np.asarray(part).reshape(-1).tolist()]
            return [item.decode("utf-8", "replace") if isinstance(item, bytes) else str(item) for item in found]

    def shape(self, path: str) -> tuple[int, ...] | None:
        item = self.find(path)
        with reading(self.file):
            return tuple(int(n) for n in item.shape) if isinstance(item, self._h5py.Dataset) and item.shape is not None else None

    def array(self, path: str) -> Array:
        """The numbers of a dataset. bf16 is stored as its bits, with the attribute `dtype`: it comes out as f32."""
        item = self.find(path)
        with reading(self.file):
            if not isinstance(item, self._h5py.Dataset) or item.shape is None:
                raise Fault("bad-tensor", f"the weights {quoted(path)} are missing from the file", "save the model again")
            self._check(item, path)
            array: Array = np.asarray(item[()])
            if item.attrs.get("dtype") in ("bfloat16", b"bfloat16") and array.dtype == np.uint16:
                return (array.astype(np.uint32) << 16).view(np.float32)
            return array.astype(array.dtype.newbyteorder("="), copy=False)

    def _check(self, item: Any, path: str) -> None:
        what = f"the weights {quoted(path)}"
        if item.external is not None or item.is_virtual:
            hint = "save the model again: Keras writes everything into the file"
            raise Fault("bad-file", f"{what} are stored in another file", hint)
        if item.dtype.kind not in "fiub" or item.dtype.itemsize > 8:
            raise Fault("unsupported-type", f"{what} are of the type {quoted(str(item.dtype))}", "save the model in float32")
        if math.prod(item.shape) > _MOST_ELEMENTS:
            raise Fault("too-large", f"{what} have the shape {list(item.shape)}")
        settings = item.id.get_create_plist()
        filters = {settings.get_filter(n)[0] for n in range(settings.get_nfilters())}
        if filters - _FILTERS:
            hint = "save it without compression, or with gzip"
            raise Fault("bad-file", f"{what} are compressed by a filter that is not read (number {max(filters)})", hint)
        declared, stored = math.prod(item.shape) * item.dtype.itemsize, item.id.get_storage_size()
        if declared > stored * (_MOST_EXPANSION if filters else 1):
            raise Fault("bad-tensor", f"{what} declare {declared} bytes and store {stored}", _AGAIN)
