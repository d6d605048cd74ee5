"""Integer signal processing of TFLite Micro (its `signal` library): what audio models are fed with."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from intaglio.ir.graph import Array
from intaglio.ir.types import DType, TensorType
from intaglio.ops.base import BadOperator, Op
from intaglio.ops.control import need

FULL = 32767  # 1.0 in 15 bits


@dataclass(frozen=True, slots=True)
class AutoScale(Op):
    """auto_scale(x i16[n]) -> i16[n], bits i32[]: shifted left as far as the largest magnitude allows.

    The magnitude of -32768 is -32768, as in the library: it is forgotten with the next element."""

    NAME: ClassVar[str] = "auto_scale"

    def infer(self, *types: TensorType | None) -> tuple[TensorType, ...]:
        x = need(self.NAME, types, 1, 1)[0]
        if x.dtype is not DType.I16 or x.rank != 1:
            raise BadOperator(f"`auto_scale` takes a list of i16, got {x}")
        return TensorType(DType.I16, x.shape), TensorType(DType.I32, ())

    def reference(self, *arrays: Array | None) -> tuple[Array, ...]:
        x = arrays[0]
        assert x is not None
        top = 0
        for value in x.tolist():
            magnitude = value if value > top else -value
            if magnitude > top:
                top = magnitude if magnitude < 1 << 15 else -magnitude
        bits = max(0, 15 - top.bit_length()) if top > 0 else 0
        return (x.astype(np.int32) << bits).astype(np.int16), np.asarray(bits, np.int32)


@dataclass(frozen=True, slots=True)
class RoundedRoot(Op):
    """rounded_root(x u64) -> u32: the nearest whole number to the square root; below 2**32, 65535 at most."""

    NAME: ClassVar[str] = "rounded_root"

    def infer(self, *types: TensorType | None) -> tuple[TensorType, ...]:
        x = need(self.NAME, types, 1, 1)[0]
        if x.dtype is not DType.U64:
            raise BadOperator(f"`rounded_root` takes u64, got {x.dtype.value}")
        return (TensorType(DType.U32, x.shape),)

    def reference(self, *arrays: Array | None) -> tuple[Array, ...]:
        x = arrays[0]
        assert x is not None
        return (np.array([_rounded_root(int(v)) for v in x.reshape(-1)], np.uint32).reshape(x.shape),)


def _rounded_root(x: int) -> int:
    root = math.isqrt(x)
    return root + (x - root * root > root and root != (0xFFFF if x < 1 << 32 else 0xFFFFFFFF))


def radices(points: int) -> list[int]:
    """4 as often as possible, then 2."""
    found: list[int] = []
    while points > 1:
        found.append(4 if points % 4 == 0 else 2)
        points //= found[-1]
    return found


def stages(points: int) -> list[tuple[int, int, int]]:
    """(radix, distance of its legs, number of blocks), from the innermost on."""
    found, blocks, left = [], 1, points
    for radix in radices(points):
        left //= radix
        found.append((radix, left, blocks))
        blocks *= radix
    return found[::-1]


def input_order(points: int) -> Array:
    """Which element of the input stands where, before the first stage."""
    order = np.zeros(points, np.int64)
    for radix, legs, blocks in stages(points):
        order += np.arange(points) // legs % radix * blocks
    return order.astype(np.int16)


def _turns(angles: Array) -> Array:
    pairs = np.stack([np.cos(angles), np.sin(angles)], -1)
    return np.floor(0.5 + FULL * pairs).astype(np.int16)


def twiddles(points: int) -> Array:
    return _turns(-2.0 * math.pi * np.arange(points) / points)


def split_twiddles(points: int) -> Array:
    """For the real transform of twice as many points."""
    return _turns(-math.pi * ((np.arange(points // 2) + 1) / points + 0.5))


def _short(x: Array) -> Array:
    return x.astype(np.int16).astype(np.int32)


def _scaled(x: Array, by: int) -> Array:
    return _short((x * np.int32(FULL // by) + 16384) >> 15)


def _turned(a: Array, w: Array) -> Array:
    """Complex products, rounded to 15 bits."""
    w = w.astype(np.int32)
    real = a[..., 0] * w[..., 0] - a[..., 1] * w[..., 1]
    imaginary = a[..., 0] * w[..., 1] + a[..., 1] * w[..., 0]
    return _short((np.stack([real, imaginary], -1) + 16384) >> 15)


@dataclass(frozen=True, slots=True)
class FixedRfft(Op):
    """fixed_rfft(x i16[..., n], order i16[m], twiddles i16[m,2], split i16[m/2,2]) -> i16[..., 4 * m / 2 + 2], m = points / 2.

    kissfft's real transform in 15 bits: x, with zeros behind it, as m complex numbers, halved by every radix 2 and quartered by
    every radix 4; then split into the bins 0 to m, pairs of real and imaginary parts."""

    NAME: ClassVar[str] = "fixed_rfft"
    points: int = 4

    def infer(self, *types: TensorType | None) -> tuple[TensorType, ...]:
        x, *tables = need(self.NAME, types, 4, 4)
        half = self.points // 2
        if self.points < 4 or self.points & (self.points - 1) or self.points > 1 << 15:
            raise BadOperator(f"`fixed_rfft` of {self.points} points: a power of two from 4 to 32768 is needed")
        if any(t.dtype is not DType.I16 for t in (x, *tables)) or not x.rank or not 1 <= x.shape[-1] <= self.points:
            raise BadOperator(f"`fixed_rfft` of {x} in {self.points} points")
        if [t.shape for t in tables] != [(half,), (half, 2), (half // 2, 2)]:
            raise BadOperator("the tables of `fixed_rfft` have other sizes")
        return (TensorType(DType.I16, (*x.shape[:-1], self.points + 2)),)

    def reference(self, *arrays: Array | None) -> tuple[Array, ...]:
        x, order, turns, split = arrays
        assert x is not None and order is not None and turns is not None and split is not None
        half = self.points // 2
        padded = np.zeros((math.prod(x.shape[:-1]), self.points), np.int32)
        padded[:, : x.shape[-1]] = x.reshape(-1, x.shape[-1])
        work = padded.reshape(-1, half, 2)[:, order]
        for radix, legs, blocks in stages(half):
            work = _stage(work.reshape(-1, blocks, radix, legs, 2), turns, radix, legs, blocks).reshape(-1, half, 2)
        made = np.zeros((len(work), half + 1, 2), np.int32)
        first = _scaled(work[:, 0], 2)
        made[:, 0, 0], made[:, half, 0] = first[:, 0] + first[:, 1], first[:, 0] - first[:, 1]
        for k in range(1, half // 2 + 1):
            near, far = _scaled(work[:, k], 2), _scaled(_short(work[:, half - k] * np.array([1, -1], np.int32)), 2)
            both, turned = _short(near + far), _turned(_short(near - far), split[k - 1])
            made[:, k] = (both + turned) >> 1
            made[:, half - k] = np.stack([both[:, 0] - turned[:, 0], turned[:, 1] - both[:, 1]], -1) >> 1
        return (made.astype(np.int16).reshape(*x.shape[:-1], self.points + 2),)


def _stage(work: Array, turns: Array, radix: int, legs: int, blocks: int) -> Array:
    """[rows, blocks, radix, legs, 2]: butterflies across the third axis."""
    scaled = _scaled(work, radix)
    steps = np.arange(legs) * blocks
    first, *others = (scaled[:, :, n] for n in range(radix))
    a = [_turned(leg, turns[steps * (n + 1)]) for n, leg in enumerate(others)]
    if radix == 2:
        return np.stack([_short(first + a[0]), _short(first - a[0])], 2)
    less, more = _short(first - a[1]), _short(first + a[1])
    total, apart = _short(a[0] + a[2]), _short(a[0] - a[2])
    across = np.stack([apart[..., 1], -apart[..., 0]], -1)
    return np.stack([_short(more + total), _short(less + across), _short(more - total), _short(less - across)], 2)
