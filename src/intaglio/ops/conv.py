"""Convolution and transposed convolution in 1 to 3 spatial dimensions.

Weights are always [O, I/group, k...] (transposed: [I, O/group, k...]). With `layout` NHWC the activations are
[N, spatial..., C]; the meaning is the same, only the order of axes differs. Weights of f32 activations may be stored as i8 or f16
(`product_dtype`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from intaglio.ir.graph import Array
from intaglio.ir.types import Layout, Shape, TensorType, broadcast_shapes
from intaglio.ops.base import BadOperator, Op, Step, apply_steps, product_dtype
from intaglio.ops.numeric import numeric


def channels_first(shape: Shape, layout: Layout) -> Shape:
    """A shape in [N, C, spatial...] order, whatever the layout."""
    return shape if layout is not Layout.NHWC else (shape[0], shape[-1], *shape[1:-1])


def from_channels_first(shape: Shape, layout: Layout) -> Shape:
    return shape if layout is not Layout.NHWC else (shape[0], *shape[2:], shape[1])


def to_first(x: Array, layout: Layout) -> Array:
    return x if layout is not Layout.NHWC else np.moveaxis(x, -1, 1)


def from_first(x: Array, layout: Layout) -> Array:
    return x if layout is not Layout.NHWC else np.moveaxis(x, 1, -1)


def window_output(name: str, spatial: Shape, kernel: Shape, strides: Shape, pads: Shape, dilations: Shape) -> Shape:
    """The number of window positions along each spatial axis."""
    rank = len(spatial)
    if not (len(kernel) == len(strides) == len(dilations) == rank and len(pads) == 2 * rank):
        raise BadOperator(f"`{name}` has {rank} spatial axes but attributes for another number")
    out = []
    for i, (size, k, s, d) in enumerate(zip(spatial, kernel, strides, dilations, strict=True)):
        if k < 1 or s < 1 or d < 1:
            raise BadOperator(f"`{name}` needs a kernel, strides and dilations of at least 1, got {k}, {s} and {d}")
        if pads[i] < 0 or pads[i + rank] < 0:
            raise BadOperator(f"`{name}` has negative padding {pads[i]}, {pads[i + rank]}")
        extent = (k - 1) * d + 1
        padded = size + pads[i] + pads[i + rank]
        if extent > padded:
            raise BadOperator(f"the kernel of `{name}` spans {extent} elements, its padded input has {padded}")
        out.append((padded - extent) // s + 1)
    return tuple(out)


def windows(x: Array, kernel: Shape, strides: Shape, dilations: Shape, out: Shape) -> Array:
    """A view [N, C, out..., k...] of a padded array."""
    step = x.strides[2:]
    strided = tuple(b * s for b, s in zip(step, strides, strict=True))
    dilated = tuple(b * d for b, d in zip(step, dilations, strict=True))
    return np.lib.stride_tricks.as_strided(x, x.shape[:2] + out + kernel, x.strides[:2] + strided + dilated, writeable=False)


def pad_spatial(x: Array, pads: Shape, value: float = 0) -> Array:
    rank = x.ndim - 2
    if not any(pads):
        return np.ascontiguousarray(x)
    widths = [(0, 0), (0, 0)] + [(pads[i], pads[i + rank]) for i in range(rank)]
    return np.pad(x, widths, constant_values=value)


@dataclass(frozen=True, slots=True)
class Conv(Op):
    """conv(x, w, b?, *extra). The epilogue sees the accumulator (bias added) as operand 0, then `extra`."""

    NAME: ClassVar[str] = "conv"
    strides: tuple[int, ...] = (1, 1)
    pads: tuple[int, ...] = (0, 0, 0, 0)
    dilations: tuple[int, ...] = (1, 1)
    group: int = 1
    layout: Layout = Layout.NCHW
    epilogue: tuple[Step, ...] = ()

    def infer(self, *types: TensorType | None) -> tuple[TensorType, ...]:
        if len(types) < 2 or types[0] is None or types[1] is None:
            raise BadOperator("`conv` needs an input and weights")
        x, w = types[0], types[1]
        bias = types[2] if len(types) > 2 else None
        dtype = product_dtype(self.NAME, x.dtype, w.dtype, *[bias.dtype] if bias is not None else [])
        if not 3 <= x.rank <= 5 or w.rank != x.rank:
            raise BadOperator(f"`conv` is for 1 to 3 spatial axes, got ranks {x.rank} and {w.rank}")
        n, c, *spatial = channels_first(x.shape, self.layout)
        if self.group < 1 or w.shape[0] % self.group or c != w.shape[1] * self.group:
            raise BadOperator(f"weights {list(w.shape)} with group {self.group} do not fit an input of {c} channels")
        if bias is not None and bias.shape != (w.shape[0],):
            raise BadOperator(f"the bias has shape {list(bias.shape)}, expected [{w.shape[0]}]")
        out = window_output(self.NAME, tuple(spatial), w.shape[2:], self.strides, self.pads, self.dilations)
        shape = from_channels_first((n, w.shape[0], *out), self.layout)
        return (after_epilogue(self.epilogue, TensorType(dtype, shape, x.layout), types[3:]),)

    def reference(self, *arrays: Array | None) -> tuple[Array, ...]:
        x, w = arrays[0], arrays[1]
        bias = arrays[2] if len(arrays) > 2 else None
        assert x is not None
        assert w is not None
        y = convolve(to_first(x, self.layout), w.astype(x.dtype, copy=False), self.strides, self.pads, self.dilations, self.group)
        if bias is not None:
            y = np.add(y, bias.reshape((1, -1) + (1,) * (y.ndim - 2)))
        y = from_first(y, self.layout)
        return (apply_steps(self.epilogue, [y, *[a for a in arrays[3:] if a is not None]]),)

    def macs(self, types: list[TensorType | None], out: TensorType) -> int:
        w = types[1]
        return 0 if w is None else out.elements * math.prod(w.shape[1:])


def after_epilogue(steps: tuple[Step, ...], out: TensorType, extra: tuple[TensorType | None, ...]) -> TensorType:
    """The type after the fused steps. They may change the element type, never the shape."""
    known = [out, *[t for t in extra if t is not None]]
    for step in steps:
        known.append(step.op.infer(*[known[i] for i in step.args])[0])
    try:
        shape = broadcast_shapes(*[t.shape for t in known])
    except ValueError as error:
        raise BadOperator(str(error)) from None
    if shape != out.shape:
        raise BadOperator(f"an epilogue changes the shape from {list(out.shape)} to {list(shape)}")
    return TensorType(known[-1].dtype, out.shape, out.layout)


def convolve(x: Array, w: Array, strides: Shape, pads: Shape, dilations: Shape, group: int) -> Array:
    """[N, C, spatial...] by windows and one matrix product per group."""
    kernel = w.shape[2:]
    out = window_output("conv", x.shape[2:], kernel, strides, pads, dilations)
    padded = pad_spatial(x, pads)
    each, made = w.shape[1], w.shape[0] // group
    y = np.empty((x.shape[0], w.shape[0], *out), x.dtype)
    rank = len(kernel)
    if each == 1 and made == 1:  # depthwise: a sum of shifted copies, no matrix
        y[...] = 0
        for place in np.ndindex(*kernel):
            cut = [slice(None), slice(None)]
            for i, k in enumerate(place):
                first = k * dilations[i]
                cut.append(slice(first, first + (out[i] - 1) * strides[i] + 1, strides[i]))
            part = padded[tuple(cut)]
            np.add(y, np.multiply(part, w[(slice(None), 0, *place)].reshape((1, -1) + (1,) * rank)), out=numeric(y))
        return y
    view = windows(padded, kernel, strides, dilations, out)
    contracted = tuple(range(2 + rank, 2 + 2 * rank))
    for g in range(group):
        some, kernels = numeric(view[:, g * each : (g + 1) * each]), numeric(w[g * made : (g + 1) * made])
        product = np.tensordot(some, kernels, axes=((1, *contracted), tuple(range(1, 2 + rank))))
        y[:, g * made : (g + 1) * made] = np.moveaxis(product, -1, 1)
    return y


@dataclass(frozen=True, slots=True)
class ConvTranspose(Op):
    """conv_transpose(x, w, b?): each input element adds a scaled kernel to the output.

    Output size: (in - 1) * stride + (k - 1) * dilation + 1 + output_padding - pads."""

    NAME: ClassVar[str] = "conv_transpose"
    strides: tuple[int, ...] = (1, 1)
    pads: tuple[int, ...] = (0, 0, 0, 0)
    dilations: tuple[int, ...] = (1, 1)
    group: int = 1
    output_padding: tuple[int, ...] = (0, 0)
    layout: Layout = Layout.NCHW

    def spatial_output(self, spatial: Shape, kernel: Shape) -> Shape:
        rank = len(spatial)
        lengths = {len(kernel), len(self.strides), len(self.dilations), len(self.output_padding)}
        if lengths != {rank} or len(self.pads) != 2 * rank:
            raise BadOperator(f"`conv_transpose` has {rank} spatial axes but attributes for another number")
        if min(self.strides + self.dilations + kernel) < 1 or any(n < 0 for n in self.output_padding):
            raise BadOperator("`conv_transpose` needs a kernel, strides and dilations of at least 1")
        out = []
        for i in range(rank):
            full = (spatial[i] - 1) * self.strides[i] + (kernel[i] - 1) * self.dilations[i] + 1
            out.append(full + self.output_padding[i] - self.pads[i] - self.pads[i + rank])
        if any(n < 1 for n in out):
            raise BadOperator(f"`conv_transpose` would have an output of {out}")
        return tuple(out)

    def infer(self, *types: TensorType | None) -> tuple[TensorType, ...]:
        if len(types) < 2 or types[0] is None or types[1] is None:
            raise BadOperator("`conv_transpose` needs an input and weights")
        x, w = types[0], types[1]
        bias = types[2] if len(types) > 2 else None
        dtype = product_dtype(self.NAME, x.dtype, w.dtype, *[bias.dtype] if bias is not None else [])
        if not 3 <= x.rank <= 5 or w.rank != x.rank:
            raise BadOperator(f"`conv_transpose` is for 1 to 3 spatial axes, got ranks {x.rank} and {w.rank}")
        n, c, *spatial = channels_first(x.shape, self.layout)
        if self.group < 1 or c != w.shape[0] or c % self.group:
            raise BadOperator(f"weights {list(w.shape)} with group {self.group} do not fit an input of {c} channels")
        made = w.shape[1] * self.group
        if bias is not None and bias.shape != (made,):
            raise BadOperator(f"the bias has shape {list(bias.shape)}, expected [{made}]")
        out = self.spatial_output(tuple(spatial), w.shape[2:])
        return (TensorType(dtype, from_channels_first((n, made, *out), self.layout), x.layout),)

    def reference(self, *arrays: Array | None) -> tuple[Array, ...]:
        x, w = arrays[0], arrays[1]
        bias = arrays[2] if len(arrays) > 2 else None
        assert x is not None
        assert w is not None
        x, w = to_first(x, self.layout), w.astype(x.dtype, copy=False)
        rank = x.ndim - 2
        kernel = w.shape[2:]
        out = self.spatial_output(x.shape[2:], kernel)
        n, c = x.shape[:2]
        each, made = c // self.group, w.shape[1]
        full = [o + self.pads[i] + self.pads[i + rank] for i, o in enumerate(out)]
        y = np.zeros((n, made * self.group, *full), x.dtype)
        for g in range(self.group):
            part, kernels = numeric(x[:, g * each : (g + 1) * each]), numeric(w[g * each : (g + 1) * each])
            product = np.tensordot(part, kernels, axes=((1,), (0,)))  # [N, in..., O, k...]
            product = np.moveaxis(product, 1 + rank, 1)
            for place in np.ndindex(*kernel):
                cut: list[slice] = [slice(None), slice(g * made, (g + 1) * made)]
                for i, k in enumerate(place):
                    first = k * self.dilations[i]
                    cut.append(slice(first, first + (x.shape[2 + i] - 1) * self.strides[i] + 1, self.strides[i]))
                y[tuple(cut)] = np.add(y[tuple(cut)], product[(..., *place)])
        crop = [slice(None), slice(None)] + [slice(self.pads[i], self.pads[i] + o) for i, o in enumerate(out)]
        y = y[tuple(crop)]
        if bias is not None:
            y = np.add(y, bias.reshape((1, -1) + (1,) * rank))
        return (from_first(y, self.layout),)

    def macs(self, types: list[TensorType | None], out: TensorType) -> int:
        x, w = types[0], types[1]
        return 0 if x is None or w is None else x.elements * math.prod(w.shape[1:])
