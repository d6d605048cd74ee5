"""Tensors on the wire and in memory: datatypes of the protocol, numbers in JSON, raw bytes.

    JSON     {"name": "x", "shape": [1, 2], "datatype": "FP32", "data": [1.0, 2.0]}         data flat, or nested as the shape
    binary   {"name": "x", ..., "parameters": {"binary_data_size": 8}}, then 8 bytes after the JSON, little endian, row by row

A value that the datatype does not have (1.5 as INT8, 300 as UINT8, `true`, `null`) is refused, not rounded."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from intaglio.errors import UserError, quoted
from intaglio.ir.graph import Array
from intaglio.ir.types import MAX_RANK, DType
from intaglio.ops.base import f32_to_bf16
from intaglio.package.manifest import Manifest, TensorInfo
from intaglio.run.host import ordered_inputs
from intaglio.serve.refusals import Refused, refusal_of

DATATYPES = {
    DType.BOOL: "BOOL", DType.U8: "UINT8", DType.U16: "UINT16", DType.U32: "UINT32", DType.U64: "UINT64", DType.I8: "INT8",
    DType.I16: "INT16", DType.I32: "INT32", DType.I64: "INT64", DType.F16: "FP16", DType.F32: "FP32", DType.F64: "FP64",
    DType.BF16: "BF16",
}  # fmt: skip
DTYPES = {name: dtype for dtype, name in DATATYPES.items()}


@dataclass(frozen=True, slots=True)
class Port:
    """An input or an output as clients see it; -1 in `shape` is a size with a range. `exact`: the only possible shape."""

    name: str
    datatype: str
    shape: tuple[int, ...]
    exact: tuple[int, ...] | None
    dtype: np.dtype[Any]
    bytes: int

    @staticmethod
    def of(info: TensorInfo) -> Port:
        dtype = DType(info.dtype)
        free = tuple(int(t) if t.isdigit() else -1 for t in info.dims) if info.dims else info.shape
        return Port(info.name, DATATYPES[dtype], free, None if info.dims else info.shape, dtype.numpy, info.bytes)

    def as_json(self) -> dict[str, object]:
        return {"name": self.name, "datatype": self.datatype, "shape": list(self.shape)}


@dataclass(frozen=True, slots=True)
class Signature:
    """What a package takes and gives, made once."""

    manifest: Manifest
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    by_name: Mapping[str, Port]

    @staticmethod
    def of(manifest: Manifest) -> Signature:
        inputs, outputs = (tuple(Port.of(info) for info in infos) for infos in (manifest.inputs, manifest.outputs))
        return Signature(manifest, inputs, outputs, {port.name: port for port in inputs})

    def ordered(self, given: Mapping[str, Array]) -> list[Array]:
        """In the order of the package, checked. Usually everything is as it has to be already."""
        if len(given) == len(self.inputs) and all(
            port.name in given and given[port.name].shape == port.exact and given[port.name].dtype == port.dtype
            for port in self.inputs
        ):
            return [given[port.name] for port in self.inputs]
        try:
            return ordered_inputs(self.manifest, given)
        except UserError as error:
            raise refusal_of(error) from None

    def chosen(self, names: Sequence[str]) -> list[int]:
        """Positions of the outputs that are asked for; all, if none is."""
        if not names:
            return list(range(len(self.outputs)))
        known = {port.name: n for n, port in enumerate(self.outputs)}
        for name in names:
            if name not in known:
                raise Refused(400, f"unknown output {quoted(name)}; outputs: {', '.join(quoted(n) for n in known)}")
        return [known[name] for name in names]


def dtype_of(datatype: object, name: str) -> DType:
    found = DTYPES.get(datatype) if isinstance(datatype, str) else None
    if found is None:
        raise Refused(400, f"input {quoted(name)} has the datatype {quoted(str(datatype))}; known: {', '.join(DTYPES)}")
    return found


def shape_of(shape: object, name: str) -> tuple[int, ...]:
    if not isinstance(shape, (list, tuple)) or len(shape) > MAX_RANK:
        raise Refused(400, f"the shape of input {quoted(name)} is not a list of at most {MAX_RANK} numbers")
    if any(type(n) is not int or not 0 <= n < 1 << 40 for n in shape):
        raise Refused(400, f"the shape of input {quoted(name)} is not a list of whole numbers")
    return tuple(shape)


def from_bytes(raw: bytes | memoryview, dtype: DType, shape: tuple[int, ...], name: str) -> Array:
    wanted = math.prod(shape) * dtype.bytes
    if len(raw) != wanted:
        raise Refused(400, f"input {quoted(name)} has {len(raw)} bytes, its shape and datatype need {wanted}")
    array = np.frombuffer(raw, dtype.numpy).reshape(shape)
    if not array.flags.aligned:  # it starts anywhere in the body
        array = array.copy()
    if dtype is DType.BOOL and array.size and array.view(np.uint8).max() > 1:
        raise Refused(400, f"input {quoted(name)} is BOOL and has bytes other than 0 and 1")
    return array


def from_numbers(data: object, dtype: DType, shape: tuple[int, ...], name: str) -> Array:
    if not isinstance(data, list):
        raise Refused(400, f"input {quoted(name)} has no list of numbers `data`, and no `binary_data_size`")
    try:
        array = np.asarray(data)
    except (ValueError, OverflowError):  # rows of different lengths
        raise Refused(400, f"the data of input {quoted(name)} is not a tensor of numbers") from None
    kinds = "b" if dtype is DType.BOOL else "iuf" if dtype.is_float else "iu"
    if array.size and array.dtype.kind not in kinds:
        raise Refused(400, f"the data of input {quoted(name)} has other values than {DATATYPES[dtype]}")
    if array.size != math.prod(shape) or (array.ndim != 1 and array.shape != shape):
        found = f"{array.size} numbers" if array.ndim == 1 else f"the shape {list(array.shape)}"
        raise Refused(400, f"the data of input {quoted(name)} has {found}, and not the shape {list(shape)} of the request")
    if dtype is not DType.BOOL and _has_booleans(data):  # numpy takes them for 0 and 1
        raise Refused(400, f"the data of input {quoted(name)} has other values than {DATATYPES[dtype]}")
    return _as(array, dtype, name).reshape(shape)


def _has_booleans(data: list[Any]) -> bool:
    kinds = set(map(type, data))
    return bool in kinds or (list in kinds and any(_has_booleans(row) for row in data))


def _as(array: Array, dtype: DType, name: str) -> Array:
    if dtype is DType.BF16:
        return f32_to_bf16(array.astype(np.float32))
    if dtype.is_int and array.size:
        info = np.iinfo(dtype.numpy)
        if int(array.min()) < info.min or int(array.max()) > info.max:
            raise Refused(400, f"the data of input {quoted(name)} has other values than {DATATYPES[dtype]}")
    try:
        with np.errstate(over="raise"):
            return array.astype(dtype.numpy)
    except FloatingPointError:
        raise Refused(400, f"the data of input {quoted(name)} has values that {DATATYPES[dtype]} cannot hold") from None


def widened(array: Array, datatype: str) -> Array:
    """Numbers that JSON can hold; bf16 has no numpy type."""
    if datatype == "BF16":
        return (array.astype(np.uint32) << 16).view(np.float32)
    return array


__all__ = ["Port", "Signature", "dtype_of", "from_bytes", "from_numbers", "shape_of", "widened"]
