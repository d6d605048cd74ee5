"""Fourier transforms as products with constant matrices: lengths are static, so the twiddle factors are too."""

from __future__ import annotations

import numpy as np

from intaglio.frontends.building import cast, padded, part, reshape, transpose
from intaglio.frontends.onnx.call import Answer, OnnxCall, importer
from intaglio.frontends.onnx.faults import Fault, unsupported
from intaglio.frontends.onnx.tensors import dtype_of
from intaglio.ir.graph import Value
from intaglio.ir.sizes import is_size
from intaglio.ir.types import DType
from intaglio.ops.base import narrow
from intaglio.ops.binary import Add, Mul
from intaglio.ops.index import Gather
from intaglio.ops.matmul import MatMul
from intaglio.ops.sizes import Iota

MAX_LENGTH = 8192


def dft_matrix(length: int, bins: int, parts: int, inverse: bool) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    """[length * parts, bins * 2]: what each real or imaginary sample adds to each real or imaginary bin."""
    if length > MAX_LENGTH:
        raise unsupported(f"a Fourier transform of {length} samples is not supported", f"at most {MAX_LENGTH} are supported")
    turns = np.outer(np.arange(length), np.arange(bins)) % length
    angle = 2 * np.pi * turns / length * (1 if inverse else -1)
    cos, sin = np.cos(angle), np.sin(angle)
    matrix = np.zeros((length, parts, bins, 2))
    matrix[:, 0, :, 0], matrix[:, 0, :, 1] = cos, sin
    if parts == 2:
        matrix[:, 1, :, 0], matrix[:, 1, :, 1] = -sin, cos
    if inverse:
        matrix /= length
    return matrix.reshape(length * parts, bins * 2)


def by_matrix(call: OnnxCall, x: Value, matrix: np.ndarray[tuple[int, ...], np.dtype[np.float64]]) -> Value:
    return call.emit(MatMul(), x, call.constant(narrow(matrix, x.dtype), x.dtype))


@importer("DFT")
def dft(call: OnnxCall) -> Answer:
    x = call.value(0)
    rank = len(x.shape)
    if rank < 2 or x.shape[-1] not in (1, 2):
        raise Fault("shape-mismatch", f"`DFT` of {list(x.shape)}; the last axis must be 1 or 2")
    if call.version >= 20:
        given = call.maybe_numbers(2, "axis")
        axis = call.checked_axis(-2 if given is None else int(given.reshape(-1)[0]), rank)
    else:
        axis = call.axis(rank, 1)
    if axis == rank - 1:
        raise Fault("bad-attribute", "`DFT` along the axis of real and imaginary parts is not valid")
    inverse, onesided = bool(call.integer("inverse")), bool(call.integer("onesided"))
    wanted = call.maybe_numbers(1, "length")
    length = x.shape[axis] if wanted is None else int(wanted.reshape(-1)[0])
    if length < 1:
        raise Fault("bad-attribute", f"`DFT` of length {length} is not valid")
    if onesided and inverse:
        return real_inverse(call, x, axis, 2 * (x.shape[axis] - 1) if wanted is None else length)
    perm = [i for i in range(rank - 1) if i != axis] + [axis, rank - 1]
    y = _fit(call, transpose(call, x, perm), rank - 2, length)
    bins = length // 2 + 1 if onesided else length
    parts = y.shape[-1]
    flat = reshape(call, y, (*y.shape[:-2], length * parts) if rank > 2 else (1, length * parts))
    flat = flat if len(flat.shape) > 1 else reshape(call, flat, (1, *flat.shape))
    z = by_matrix(call, flat, dft_matrix(length, bins, parts, inverse))
    z = reshape(call, z, (*y.shape[:-2], bins, 2))
    return transpose(call, z, [perm.index(i) for i in range(rank)])


def _fit(call: OnnxCall, x: Value, axis: int, length: int) -> Value:
    size = x.shape[axis]
    if size >= length:
        return part(call, x, axis, 0, length)
    pads = [0] * (2 * len(x.shape))
    pads[axis + len(x.shape)] = length - size
    return padded(call, x, pads)


def real_inverse(call: OnnxCall, x: Value, axis: int, length: int) -> Value:
    """The inverse of a one-sided transform: real samples from half of the bins."""
    rank, bins = len(x.shape), length // 2 + 1
    perm = [i for i in range(rank - 1) if i != axis] + [axis, rank - 1]
    if x.shape[-1] != 2:
        raise unsupported("the inverse of a one-sided `DFT` of real numbers is not supported")
    y = _fit(call, transpose(call, x, perm), rank - 2, bins)
    weight = np.full(bins, 2.0)
    weight[0] = 1.0
    if length % 2 == 0:
        weight[-1] = 1.0
    angle = 2 * np.pi * (np.outer(np.arange(bins), np.arange(length)) % length) / length
    matrix = np.stack([np.cos(angle), -np.sin(angle)], axis=1) * weight[:, None, None] / length
    flat = reshape(call, y, (*y.shape[:-2], bins * 2) if rank > 2 else (1, bins * 2))
    z = by_matrix(call, flat, matrix.reshape(bins * 2, length))
    z = reshape(call, z, (*y.shape[:-2], length, 1))
    return transpose(call, z, [perm.index(i) for i in range(rank)])


def _places(call: OnnxCall, frames: int, step: int, length: int) -> Value:
    """[frames, length]: where the samples of each frame are."""
    if is_size(frames):
        first = reshape(call, call.emit(Iota(frames, 0, step)), (frames, 1))
        return call.emit(Add(), first, call.constant(np.arange(length, dtype=np.int64)[None]))
    return call.constant((np.arange(frames)[:, None] * step + np.arange(length)[None, :]).astype(np.int64))


@importer("STFT")
def stft(call: OnnxCall) -> Answer:
    x = call.value(0)
    if len(x.shape) == 2:
        x = reshape(call, x, (*x.shape, 1))
    if len(x.shape) != 3 or x.shape[-1] not in (1, 2):
        raise Fault("shape-mismatch", f"`STFT` of {list(x.shape)} is not valid")
    step = int(call.numbers(1, "frame step").reshape(-1)[0])
    window = call.maybe(2)
    given = call.maybe_numbers(3, "frame length")
    length = int(given.reshape(-1)[0]) if given is not None else window.shape[0] if window is not None else 0
    if step < 1 or not 1 <= length <= x.shape[1]:
        raise Fault("bad-attribute", f"`STFT` with frames of {length} every {step} out of {x.shape[1]} samples is not valid")
    frames = (x.shape[1] - length) // step + 1
    cut = call.emit(Gather(1), x, _places(call, frames, step, length))
    if window is not None:
        cut = call.emit(Mul(), cut, reshape(call, window, (length, 1)))
    bins = length // 2 + 1 if call.integer("onesided", 1) else length
    flat = reshape(call, cut, (x.shape[0], frames, length * x.shape[2]))
    z = by_matrix(call, flat, dft_matrix(length, bins, x.shape[2], False))
    return reshape(call, z, (x.shape[0], frames, bins, 2))


@importer("MelWeightMatrix")
def mel_weight_matrix(call: OnnxCall) -> Answer:
    """As the specification computes it: triangles between centres that are equally spaced in mel."""
    mels, length, rate = (int(call.numbers(i, "parameters").reshape(-1)[0]) for i in range(3))
    low, high = (float(call.numbers(i, "parameters").reshape(-1)[0]) for i in (3, 4))
    dtype = dtype_of(call.integer("output_datatype", 1), "the result of `MelWeightMatrix`")
    if not (0 < mels < 2**16 and 0 < length < 2**20 and rate > 0 and 0 <= low < high):
        raise Fault("bad-attribute", "`MelWeightMatrix` has parameters out of range")
    spectrum = length // 2 + 1
    low_mel, high_mel = (2595 * np.log10(1 + f / 700) for f in (low, high))
    edges = np.arange(mels + 2) * ((high_mel - low_mel) / (mels + 2)) + low_mel
    hertz = 700 * (np.power(10, edges / 2595) - 1)
    bins = ((length + 1) * hertz // rate).astype(np.int64)
    out = np.zeros((spectrum, mels))
    for i in range(mels):
        left, centre, right = bins[i : i + 3]
        if centre == left:
            out[centre, i] = 1
        else:
            for j in range(left, centre + 1):
                out[j, i] = (j - left) / (centre - left)
        for j in range(centre, right):
            out[j, i] = (right - j) / (right - centre)
    return cast(call, call.constant(out, DType.F64), dtype)
