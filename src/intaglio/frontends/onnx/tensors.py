"""TensorProto to numpy, with every length checked. External data stays on disk (mapped), inside the model's folder."""

from __future__ import annotations

import math
import mmap
import os
import stat
from pathlib import Path
from typing import Any

import numpy as np

from intaglio.frontends.onnx.faults import Fault
from intaglio.ir.graph import Array
from intaglio.ir.sizes import largest, whole
from intaglio.ir.types import MAX_RANK, DType, Shape

MAX_ELEMENTS = 2**31 - 1  # of one tensor: beyond this no target has the memory
Bytes = np.ndarray[tuple[int], np.dtype[np.uint8]]
DTYPES = {
    1: DType.F32, 2: DType.U8, 3: DType.I8, 4: DType.U16, 5: DType.I16, 6: DType.I32, 7: DType.I64, 9: DType.BOOL,
    10: DType.F16, 11: DType.F64, 12: DType.U32, 13: DType.U64, 16: DType.BF16,
}  # fmt: skip
# Types smaller than a byte are unpacked into one, as constants only: (stored as, bits, signed).
PACKED = {21: (DType.U8, 4), 22: (DType.I8, 4), 25: (DType.U8, 2), 26: (DType.I8, 2)}
# Floats of a byte and less are stored as their codes: the format, and its bits.
SMALL = {17: "f8e4m3fn", 18: "f8e4m3fnuz", 19: "f8e5m2", 20: "f8e5m2fnuz", 23: "f4e2m1", 24: "f8e8m0"}
STRING = 8
TYPE_NAMES = {
    0: "UNDEFINED", 8: "STRING", 14: "COMPLEX64", 15: "COMPLEX128", 17: "FLOAT8E4M3FN", 18: "FLOAT8E4M3FNUZ",
    19: "FLOAT8E5M2", 20: "FLOAT8E5M2FNUZ", 21: "UINT4", 22: "INT4", 23: "FLOAT4E2M1", 24: "FLOAT8E8M0",
    25: "UINT2", 26: "INT2",
}  # fmt: skip
_EXTERNAL_KEYS = {"location", "offset", "length", "checksum"}


def stored_as(code: int) -> DType | None:
    """What holds an element: of types that are smaller than a byte, a byte."""
    return PACKED[code][0] if code in PACKED else DType.U8 if code in SMALL else DTYPES.get(code)


def dtype_of(code: int, what: str) -> DType:
    if code in DTYPES:
        return DTYPES[code]
    raise Fault(
        "unsupported-type", f"{what} has the element type {TYPE_NAMES.get(code, str(code))}",
        "supported are float, double, float16, bfloat16, the integers of 8 to 64 bits and bool",
    )  # fmt: skip


def check_shape(dims: Any, what: str) -> Shape:
    shape = tuple(whole(d) for d in dims)
    if len(shape) > MAX_RANK:
        raise Fault("bad-tensor", f"{what} has rank {len(shape)}; at most {MAX_RANK} is supported",
                    "merge axes by a Reshape before exporting")  # fmt: skip
    if any(d < 0 for d in shape):
        raise Fault("bad-tensor", f"{what} has a negative dimension: {list(shape)}", "export the model again")
    if math.prod(largest(shape)) > MAX_ELEMENTS or math.prod(d for d in largest(shape) if d) > MAX_ELEMENTS:
        raise Fault("too-large", f"{what} has the shape {list(shape)}, which has too many elements",
                    f"at most {MAX_ELEMENTS} elements are possible; choose smaller dimensions")  # fmt: skip
    return shape


def tensor_value(tensor: Any, folder: Path | None, what: str) -> tuple[Array, DType]:
    """The array and its element type (which the array alone does not say for bf16)."""
    shape = check_shape(tensor.dims, what)
    count = math.prod(shape)
    code = tensor.data_type
    if code in PACKED:
        dtype, bits = PACKED[code]
        packed = _bytes(tensor, folder, what, (count * bits + 7) // 8)
        if packed is None:
            packed = np.array(tensor.int32_data, np.int64).astype(np.uint8)
            _need_count(what, packed.size, (count * bits + 7) // 8)
        return _unpack(packed, bits, count, dtype).reshape(shape), dtype
    if code in SMALL:
        return _codes(tensor, folder, what, count, 4 if code == 23 else 8).reshape(shape), DType.U8
    dtype = dtype_of(code, what)
    raw = _bytes(tensor, folder, what, count * dtype.bytes)
    if raw is not None:
        if dtype is DType.BOOL:
            return np.not_equal(raw, 0).reshape(shape), dtype
        return raw.view(dtype.numpy.newbyteorder("<")).reshape(shape), dtype
    return _typed(tensor, dtype, count, what).reshape(shape), dtype


def _typed(tensor: Any, dtype: DType, count: int, what: str) -> Array:
    match dtype:
        case DType.F32:
            field = tensor.float_data
        case DType.F64:
            field = tensor.double_data
        case DType.I64:
            field = tensor.int64_data
        case DType.U32 | DType.U64:
            field = tensor.uint64_data
        case _:
            field = tensor.int32_data
    _need_count(what, len(field), count)
    try:
        if dtype is DType.F16:
            return np.array(field, np.int64).astype(np.uint16).view(np.float16)
        if dtype is DType.BF16:
            return np.array(field, np.int64).astype(np.uint16)
        if dtype is DType.BOOL:
            return np.not_equal(np.array(field, np.int64), 0)
        return np.array(field, dtype.numpy)
    except (OverflowError, ValueError):
        raise Fault("bad-tensor", f"{what} has a value out of the range of {dtype.value}") from None


def _need_count(what: str, got: int, expected: int) -> None:
    if got != expected:
        raise Fault("bad-tensor", f"{what} has {got} values, its shape asks for {expected}", "export the model again")


def _codes(tensor: Any, folder: Path | None, what: str, count: int, bits: int) -> Array:
    size = (count * bits + 7) // 8
    codes = _bytes(tensor, folder, what, size)
    if codes is None:
        codes = np.array(tensor.int32_data, np.int64).astype(np.uint8)
        _need_count(what, codes.size, size)
    return codes if bits == 8 else _unpack(codes, bits, count, DType.U8)


def _unpack(packed: Array, bits: int, count: int, dtype: DType) -> Array:
    """Low bits first; the last byte may be half empty."""
    per = 8 // bits
    wide = packed.astype(np.uint8).reshape(-1, 1) >> (np.arange(per, dtype=np.uint8) * bits)
    values = (wide & ((1 << bits) - 1)).reshape(-1)[:count]
    if dtype is DType.I8:
        values = ((values.astype(np.int8) ^ (1 << (bits - 1))) - (1 << (bits - 1))).astype(np.int8)
    return values


def _bytes(tensor: Any, folder: Path | None, what: str, expected: int) -> Bytes | None:
    """The raw bytes, or None when the values are in a typed field."""
    if tensor.data_location == 1:
        return _external(tensor, folder, what, expected)
    if not tensor.HasField("raw_data"):
        return None
    if tensor.float_data or tensor.int32_data or tensor.int64_data or tensor.double_data or tensor.uint64_data:
        raise Fault("bad-tensor", f"{what} has two sets of values", "export the model again")
    raw = np.frombuffer(tensor.raw_data, np.uint8)
    if raw.size != expected:
        raise Fault(
            "bad-tensor", f"{what} has {raw.size} bytes of data, its shape asks for {expected}",
            "the file is damaged or was edited; export the model again",
        )  # fmt: skip
    return raw


def _external(tensor: Any, folder: Path | None, what: str, expected: int) -> Bytes:
    keys: dict[str, str] = {}
    for entry in tensor.external_data:
        if entry.key not in _EXTERNAL_KEYS or entry.key in keys:
            raise Fault("external-data", f"{what} has the external-data key `{entry.key}`, unknown or given twice")
        keys[entry.key] = entry.value
    location = keys.get("location", "")
    if folder is None or not location:
        raise Fault("external-data", f"{what} has external data without a location")
    try:
        offset = int(keys.get("offset", "0"))
        length = int(keys.get("length", str(expected)))
    except ValueError:
        raise Fault("external-data", f"{what} has an external offset or length that is not a number") from None
    if length != expected:
        raise Fault("external-data", f"{what} has {length} external bytes, its shape asks for {expected}")
    path = _inside(folder, location, what)
    return _mapped(path, offset, length, what, location)


def _inside(folder: Path, location: str, what: str) -> Path:
    """The path of a file below the model's folder, without links on the way."""
    parts = location.replace("\\", "/").split("/")
    if location.startswith(("/", "\\")) or ":" in parts[0] or ".." in parts or "\0" in location:
        raise Fault(
            "external-data", f"{what} lies in `{location}`, which is outside the model's folder",
            "external data must be in the folder of the model or below",
        )  # fmt: skip
    path = folder
    for part in parts:
        if part in ("", "."):
            continue
        path = path / part
        try:
            info = os.lstat(path)
        except (OSError, ValueError):
            raise Fault(
                "external-data", f"the external data `{location}` of {what} is missing",
                f"put `{location}` next to the model file",
            ) from None  # fmt: skip
        if stat.S_ISLNK(info.st_mode):
            raise Fault("external-data", f"the external data `{location}` of {what} is a link; links are not followed")
    if path == folder or not stat.S_ISREG(os.lstat(path).st_mode):
        raise Fault("external-data", f"the external data `{location}` of {what} is not a regular file")
    if os.lstat(path).st_nlink > 1:  # it may be any file of the disk
        raise Fault(
            "external-data", f"the external data `{location}` of {what} is a hard link; links are not followed",
            "put a copy of the file in its place",
        )  # fmt: skip
    return path


def _mapped(path: Path, offset: int, length: int, what: str, location: str) -> Bytes:
    try:
        handle = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))
    except OSError as error:
        reason = error.strerror or "unknown"
        raise Fault("external-data", f"cannot open the external data `{location}` of {what}: {reason}") from None
    try:
        info = os.fstat(handle)
        if not stat.S_ISREG(info.st_mode):
            raise Fault("external-data", f"the external data `{location}` of {what} is not a regular file")
        if offset < 0 or length < 0 or offset + length > info.st_size:
            raise Fault(
                "external-data",
                f"{what} asks for bytes {offset} to {offset + length} of `{location}`, which has {info.st_size}",
                "the data file does not belong to this model, or is cut short",
            )
        if length == 0:
            return np.zeros(0, np.uint8)
        view = mmap.mmap(handle, 0, access=mmap.ACCESS_READ)
        return np.frombuffer(view, np.uint8, length, offset)
    finally:
        os.close(handle)
