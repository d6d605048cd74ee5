"""Integer operators: what TFLite's reference kernels compute, with every number spelled out.

Scales are gone by the time a model is in the IR: a front end turns them into multipliers and shifts (`fixed_point.py`), zero
points into fields. Multipliers per output channel are operands (i32 constants), so they are weights like others.
Images are NHWC.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from intaglio.ir.graph import Array
from intaglio.ir.types import DType, Layout, TensorType, broadcast_shapes
from intaglio.ops.base import BadOperator, Elementwise, Op, Step, apply_steps
from intaglio.ops.control import need
from intaglio.ops.conv import after_epilogue, window_output
from intaglio.ops.fixed_point import clamp, quantize_multiplier, scale32, scale64, scale_float, scale_once


@dataclass(frozen=True, slots=True)
class QConv(Op):
    """qconv(x, w, b?, multiplier, shift?, *extra): NHWC convolution of x - x_zero with w - w_zero, plus bias, scaled, plus y_zero.

    w is [O, I/group, kh, kw]; a depthwise convolution has group = I. 8-bit sums are 32 bits wide and scaled as `scaling` says
    (see `rescale`); with 16-bit activations and a 64-bit bias they are 64 bits wide and scaled in one rounding. The epilogue sees
    the result as operand 0, then `extra`."""

    NAME: ClassVar[str] = "qconv"
    strides: tuple[int, ...] = (1, 1)
    pads: tuple[int, ...] = (0, 0, 0, 0)
    dilations: tuple[int, ...] = (1, 1)
    group: int = 1
    x_zero: int = 0
    w_zero: int = 0
    y_zero: int = 0
    low: int = -128
    high: int = 127
    to: DType = DType.I8
    scaling: str = "twice"
    epilogue: tuple[Step, ...] = ()

    def infer(self, *types: TensorType | None) -> tuple[TensorType, ...]:
        types, extra = types[:5], types[5:]
        x, w = types[0], types[1]
        check_scaling(self.NAME, self, types)
        if len(types) != 5 or x is None or w is None or x.rank != 4 or w.rank != 4:
            raise BadOperator("`qconv` takes an NHWC image, weights, bias, multipliers and shifts")
        n, h, width, c = x.shape
        if w.shape[1] * self.group != c or w.shape[0] % self.group:
            raise BadOperator(f"`qconv` of {list(x.shape)} with weights {list(w.shape)} in {self.group} groups")
        spatial = window_output(self.NAME, (h, width), w.shape[2:], self.strides, self.pads, self.dilations)
        for each in types[2:]:
            if each is not None and each.shape != (w.shape[0],):
                raise BadOperator(f"`qconv` has {list(each.shape)} numbers for {w.shape[0]} channels")
        return (after_epilogue(self.epilogue, TensorType(self.to, (n, *spatial, w.shape[0]), Layout.NHWC), extra),)

    def reference(self, *arrays: Array | None) -> tuple[Array, ...]:
        x, w, b, multiplier, shift = arrays[:5]
        assert x is not None and w is not None
        acc = self.sums(x.astype(np.int64) - self.x_zero, w.astype(np.int64) - self.w_zero)
        scaled = rescale(acc, b, multiplier, shift, wide_scaling(self.scaling, x, b))
        result = clamp(scaled + self.y_zero, self.low, self.high, self.to.numpy)
        return (apply_steps(self.epilogue, [result, *[a for a in arrays[5:] if a is not None]]),)

    def sums(self, x: Array, w: Array) -> Array:
        n, h, width, c = x.shape
        top, left, bottom, right = self.pads
        padded = np.pad(x, ((0, 0), (top, bottom), (left, right), (0, 0)))
        kh, kw = w.shape[2:]
        oh, ow = window_output(self.NAME, (h, width), (kh, kw), self.strides, self.pads, self.dilations)
        outs, depth = w.shape[0] // self.group, c // self.group
        acc = np.zeros((n, oh, ow, self.group, outs), np.int64)
        weights = w.reshape(self.group, outs, depth, kh, kw)
        for i in range(kh):
            for j in range(kw):
                rows = slice(i * self.dilations[0], i * self.dilations[0] + (oh - 1) * self.strides[0] + 1, self.strides[0])
                cols = slice(j * self.dilations[1], j * self.dilations[1] + (ow - 1) * self.strides[1] + 1, self.strides[1])
                part = padded[:, rows, cols].reshape(n, oh, ow, self.group, depth)
                # 8- and 16-bit products sum up exactly in float64, which has a fast matrix product
                left_side = np.moveaxis(part, 3, 0).reshape(self.group, -1, depth).astype(np.float64)
                product = left_side @ weights[..., i, j].transpose(0, 2, 1).astype(np.float64)
                acc += np.moveaxis(product.reshape(self.group, n, oh, ow, outs), 0, 3).astype(np.int64)
        return acc.reshape(n, oh, ow, -1)

    def macs(self, types: list[TensorType | None], out: TensorType) -> int:
        return out.elements * math.prod(types[1].shape[1:]) if types[1] is not None else 0


SCALINGS = ("twice", "once", "float", "none")


def check_scaling(name: str, op: QConv | QMatMul, types: tuple[TensorType | None, ...]) -> None:
    if op.scaling not in SCALINGS:
        raise BadOperator(f"`{name}` has no scaling `{op.scaling}`: it is one of {', '.join(SCALINGS)}")
    if len(types) != 5:
        return
    bias, multiplier, shift = types[2:]
    wanted = {"float": DType.F32, "none": None}.get(op.scaling, DType.I32)
    if (None if multiplier is None else multiplier.dtype) is not wanted or (shift is not None) != (wanted is DType.I32):
        raise BadOperator(f"`{name}` has multipliers or shifts that do not fit its scaling `{op.scaling}`")
    if (op.scaling == "none") != (op.to is DType.I32):
        raise BadOperator(f"`{name}` gives sums of i32 with scaling `none`, and only then")
    if bias is not None and bias.dtype.is_float and op.scaling != "float":
        raise BadOperator(f"`{name}` adds a bias of {bias.dtype.value} with scaling `float` only")


def rescale(acc: Array, bias: Array | None, multiplier: Array | None, shift: Array | None, scaling: str) -> Array:
    """A sum in steps of the result. `twice` and `once`: fixed point, as TFLite's convolutions and its fully connected layers
    round; `float`: times a float, rounded half to even, as ONNX Runtime does, and a bias of floats is added before rounding;
    `wide`: sums of 64 bits; `none`: the sum itself."""
    real = bias is not None and bias.dtype == np.float32
    if bias is not None and not real:
        acc = acc + bias.astype(np.int64)
    if multiplier is None:
        return acc
    if scaling == "float":
        return scale_float(acc, multiplier, bias if real else None)
    assert shift is not None
    return {"twice": scale32, "once": scale_once, "wide": scale64}[scaling](acc, multiplier, shift)


def wide_scaling(scaling: str, x: Array, b: Array | None) -> str:
    """How sums are scaled: in fixed point, 64-bit ones have a way of their own."""
    return "wide" if scaling in ("twice", "once") and wide_sums(x, b) else scaling


def wide_sums(x: Array, b: Array | None) -> bool:
    """16-bit activations with a 64-bit bias, or with none, sum up in 64 bits."""
    return x.dtype == np.int16 and (b is None or b.dtype == np.int64)


@dataclass(frozen=True, slots=True)
class QMatMul(Op):
    """qmatmul(a, b, bias?, multiplier, shift?): a [..., M, K] times b, scaled per column (or by one number for all)."""

    NAME: ClassVar[str] = "qmatmul"
    transpose_b: bool = False
    a_zero: int = 0
    b_zero: int = 0
    y_zero: int = 0
    low: int = -128
    high: int = 127
    to: DType = DType.I8
    scaling: str = "twice"

    def infer(self, *types: TensorType | None) -> tuple[TensorType, ...]:
        check_scaling(self.NAME, self, types)
        a, b = types[0], types[1]
        if len(types) != 5 or a is None or b is None or a.rank < 2 or b.rank < 2:
            raise BadOperator("`qmatmul` takes two matrices, bias, multipliers and shifts")
        k, n = (b.shape[-1], b.shape[-2]) if self.transpose_b else b.shape[-2:]
        if a.shape[-1] != k:
            raise BadOperator(f"`qmatmul` of {list(a.shape)} and {list(b.shape)}")
        try:
            batch = broadcast_shapes(a.shape[:-2], b.shape[:-2])
        except ValueError as error:
            raise BadOperator(str(error)) from None
        return (TensorType(self.to, (*batch, a.shape[-2], n)),)

    def reference(self, *arrays: Array | None) -> tuple[Array, ...]:
        a, b, bias, multiplier, shift = arrays
        assert a is not None and b is not None
        right = b.astype(np.int64) - self.b_zero
        right = right.swapaxes(-1, -2) if self.transpose_b else right
        acc = ((a.astype(np.int64) - self.a_zero).astype(np.float64) @ right.astype(np.float64)).astype(np.int64)
        scaled = rescale(acc, bias, multiplier, shift, wide_scaling(self.scaling, a, bias))
        return (clamp(scaled + self.y_zero, self.low, self.high, self.to.numpy),)

    def macs(self, types: list[TensorType | None], out: TensorType) -> int:
        return out.elements * types[0].shape[-1] if types[0] is not None else 0


@dataclass(frozen=True, slots=True)
class Requantize(Elementwise):
    """scale(x - x_zero) + y_zero, clamped: from one quantisation to another."""

    NAME: ClassVar[str] = "requantize"
    x_zero: int = 0
    multiplier: int = 0
    shift: int = 0
    y_zero: int = 0
    low: int = -128
    high: int = 127
    to: DType = DType.I8

    def result(self, *dtypes: DType) -> DType:
        return self.to

    def compute(self, *arrays: Array) -> Array:
        scaled = scale32(arrays[0].astype(np.int64) - self.x_zero, np.asarray(self.multiplier), np.asarray(self.shift))
        return clamp(scaled + self.y_zero, self.low, self.high, self.to.numpy)


@dataclass(frozen=True, slots=True)
class QAdd(Elementwise):
    """Both sides lifted by `lift` bits, scaled to a common step, added (or subtracted), scaled to the result's."""

    NAME: ClassVar[str] = "qadd"
    ARITY: ClassVar[int] = 2
    a_zero: int = 0
    a_multiplier: int = 0
    a_shift: int = 0
    b_zero: int = 0
    b_multiplier: int = 0
    b_shift: int = 0
    lift: int = 20
    subtract: bool = False
    multiplier: int = 0
    shift: int = 0
    y_zero: int = 0
    low: int = -128
    high: int = 127
    to: DType = DType.I8

    def result(self, *dtypes: DType) -> DType:
        return self.to

    def compute(self, *arrays: Array) -> Array:
        a = (arrays[0].astype(np.int64) - self.a_zero) << self.lift
        b = (arrays[1].astype(np.int64) - self.b_zero) << self.lift
        left = scale32(a, np.asarray(self.a_multiplier), np.asarray(self.a_shift))
        right = scale32(b, np.asarray(self.b_multiplier), np.asarray(self.b_shift))
        total = left - right if self.subtract else left + right
        scaled = scale32(total, np.asarray(self.multiplier), np.asarray(self.shift))
        return clamp(scaled + self.y_zero, self.low, self.high, self.to.numpy)


Factor = tuple[int, int]  # multiplier and shift


def sum_factors(a_scale: float, b_scale: float, y_scale: float, to: DType) -> tuple[Factor, Factor, int, Factor]:
    """What a `qadd` has from its scales: the factors of both sides, the bits they are lifted by, and the factor of the sum."""
    lift = 15 if to is DType.I16 else 20
    twice = 2.0 * max(a_scale, b_scale)
    whole = quantize_multiplier(twice / ((1 << lift) * y_scale))
    return quantize_multiplier(a_scale / twice), quantize_multiplier(b_scale / twice), lift, whole


@dataclass(frozen=True, slots=True)
class QMul(Elementwise):
    """scale((a - a_zero) * (b - b_zero)) + y_zero, clamped."""

    NAME: ClassVar[str] = "qmul"
    ARITY: ClassVar[int] = 2
    a_zero: int = 0
    b_zero: int = 0
    multiplier: int = 0
    shift: int = 0
    y_zero: int = 0
    low: int = -128
    high: int = 127
    to: DType = DType.I8

    def result(self, *dtypes: DType) -> DType:
        return self.to

    def compute(self, *arrays: Array) -> Array:
        product = (arrays[0].astype(np.int64) - self.a_zero) * (arrays[1].astype(np.int64) - self.b_zero)
        scaled = scale32(product, np.asarray(self.multiplier), np.asarray(self.shift))
        return clamp(scaled + self.y_zero, self.low, self.high, self.to.numpy)


@dataclass(frozen=True, slots=True)
class Lookup(Op):
    """lookup(x, table): an 8-bit function of one 8-bit number is 256 numbers; entry 0 belongs to the lowest x."""

    NAME: ClassVar[str] = "lookup"

    def infer(self, *types: TensorType | None) -> tuple[TensorType, ...]:
        x, table = need(self.NAME, types, 2, 2)
        if x.dtype not in (DType.I8, DType.U8) or table.shape != (256,):
            raise BadOperator(f"`lookup` takes 8-bit numbers and a table of 256, got {x} and {table}")
        return (TensorType(table.dtype, x.shape, x.layout),)

    def reference(self, *arrays: Array | None) -> tuple[Array, ...]:
        x, table = arrays
        assert x is not None and table is not None
        return (table[x.astype(np.int64) - int(np.iinfo(x.dtype).min)],)
