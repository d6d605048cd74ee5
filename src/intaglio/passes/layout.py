"""Convolutions and poolings in the layout their kernels want, and the transposes that this costs moved out of the way."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from intaglio.ir.graph import Graph, Node, Value
from intaglio.ir.types import DType, Layout
from intaglio.ops.conv import Conv, ConvTranspose
from intaglio.ops.move import Pad, Reshape, Slice, Transpose
from intaglio.ops.pool import AveragePool, MaxPool
from intaglio.passes.context import Context
from intaglio.passes.rewriting import Editor, constant

_NARROW = (DType.I8, DType.U8, DType.I16)
_EDGE_LIMIT = 48  # written-out groups of taps at the borders of a convolution before padding is stored instead


def flatten_one_dimension(graph: Graph, context: Context) -> Graph:
    """Convolution and pooling over one axis are the two-dimensional ones over an image one pixel high.

        y = conv(x[1,6,119], w[8,6,3], pads=(1,1))
     ->
        a = reshape(x, shape=(1,6,1,119));  b = conv(a, w[8,6,1,3], pads=(0,1,0,1));  y = reshape(b, shape=(1,8,119))

    Skipped for weights that are computed."""
    edit = Editor(graph)
    for node in graph.nodes:
        edit.take(node)
        source = node.inputs[0] if node.inputs else None
        known = isinstance(node.op, (MaxPool, AveragePool)) or (
            isinstance(node.op, (Conv, ConvTranspose)) and node.inputs[1] is not None and node.inputs[1].data is not None
        )
        if not known or source is None or source.type.rank != 3:
            edit.keep(node)
            continue
        n, c, w = source.shape
        image = edit.emit(Reshape((n, c, 1, w)), [source], node)
        match node.op:
            case Conv() | ConvTranspose():
                weights = node.inputs[1]
                assert weights is not None and weights.data is not None
                wide = constant(graph, weights.name, weights.data[:, :, None, :], weights.dtype)
                inputs: list[Value | None] = [image, wide, *node.inputs[2:]]
                op = _widened(node.op)
            case MaxPool() | AveragePool():
                op, inputs = _widened(node.op), [image]
            case _:
                raise AssertionError(node.op)
        result = edit.emit(op, inputs, node)
        node.op, node.inputs = Reshape(node.output.shape), [result]
        edit.keep(node)
    return edit.finish()


Windowed = Conv | ConvTranspose | MaxPool | AveragePool


def _widened(op: Windowed) -> Windowed:
    """The same window with an axis of size 1 in front."""
    wide = replace(op, strides=(1, *op.strides), pads=(0, op.pads[0], 0, op.pads[1]), dilations=(1, *op.dilations))
    match wide:
        case ConvTranspose():
            return replace(wide, output_padding=(0, *wide.output_padding))
        case AveragePool():
            counted = (0, wide.counted_pads[0], 0, wide.counted_pads[1]) if wide.counted_pads else ()
            return replace(wide, kernel=(1, *wide.kernel), counted_pads=counted)
        case MaxPool():
            return replace(wide, kernel=(1, *wide.kernel))
    return wide


def choose_layout(graph: Graph, context: Context) -> Graph:
    """Two-dimensional convolutions and poolings of f32, and maximums of integers, read and write NHWC: channels fill the vectors.

        y = conv(x, w)     ->     a = transpose(x, perm=(0,2,3,1));  b = conv(a, w, layout=NHWC);  y = transpose(b, perm=(0,3,1,2))

    `move_transposes` cancels what stands between two of them. Skipped for weights that are computed, which the NHWC kernels
    could not have packed."""
    edit = Editor(graph)
    for node in graph.nodes:
        edit.take(node)
        op, source = node.op, node.inputs[0] if node.inputs else None
        fits = isinstance(op, (Conv, ConvTranspose, MaxPool, AveragePool)) and op.layout is not Layout.NHWC
        wanted = source is not None and (source.dtype is DType.F32 or (isinstance(op, MaxPool) and source.dtype in _NARROW))
        if not fits or source is None or source.type.rank != 4 or not wanted:
            edit.keep(node)
            continue
        assert isinstance(op, (Conv, ConvTranspose, MaxPool, AveragePool))
        computed = [v for v in node.inputs[1:3] if v is not None and v.data is None]
        if computed or (isinstance(op, Conv) and op.epilogue):
            edit.keep(node)
            continue
        turned = edit.emit(Transpose((0, 2, 3, 1)), [source], node)
        turned.type = replace(turned.type, layout=Layout.NHWC)
        result = edit.emit(replace(op, layout=Layout.NHWC), [turned, *node.inputs[1:]], node)
        result.origin = node.output.origin  # the same tensor of the model, in another order
        result.type = replace(result.type, layout=Layout.NHWC)
        node.op, node.inputs = Transpose((0, 3, 1, 2)), [result]
        edit.keep(node)
    return edit.finish()


def expand_conv_transpose(graph: Graph, context: Context) -> Graph:
    """A transposed convolution is a convolution of the image with zeros between its pixels, by the mirrored kernel.

        y = conv_transpose(x, w, strides=(1,2))
     ->
        a = reshape(x, ...);  b = pad(a, ...);  c = reshape(b, ...)     zeros between the pixels, where the stride is not 1
        y = conv(c, w mirrored and turned, pads=kernel-1-pads)

    NHWC only. Skipped for negative padding that results when pads exceed the kernel."""
    edit = Editor(graph)
    for node in graph.nodes:
        edit.take(node)
        op, weights = node.op, node.inputs[1] if len(node.inputs) > 1 else None
        if not isinstance(op, ConvTranspose) or op.layout is not Layout.NHWC or weights is None or weights.data is None:
            edit.keep(node)
            continue
        kernel = weights.shape[2:]
        reach = [(k - 1) * d for k, d in zip(kernel, op.dilations, strict=True)]
        begin = [r - p for r, p in zip(reach, op.pads[:2], strict=True)]
        end = [r - p + o for r, p, o in zip(reach, op.pads[2:], op.output_padding, strict=True)]
        source = node.inputs[0]
        assert source is not None
        if min(begin) < 0 or min(end) < 0:
            edit.keep(node)
            continue
        spread = _zeros_between(edit, node, source, op.strides[0], op.strides[1])
        group = op.group
        inputs, outputs = weights.shape[0] // group, weights.shape[1]
        parts = weights.data.reshape(group, inputs, outputs, *kernel)[..., ::-1, ::-1]
        turned = np.ascontiguousarray(parts.transpose(0, 2, 1, 3, 4)).reshape(group * outputs, inputs, *kernel)
        # what was inserted after the last pixel is part of the padding at the end
        end = [e - (s - 1) for e, s in zip(end, op.strides, strict=True)]
        if min(end) < 0:
            n, h, w, c = spread.shape
            keep = (n, h + min(end[0], 0), w + min(end[1], 0), c)
            spread = edit.emit(Slice((0, 0, 0, 0), (1, 1, 1, 1), keep), [spread], node)
            end = [max(e, 0) for e in end]
        node.op = Conv((1, 1), (*begin, *end), op.dilations, group, Layout.NHWC)
        node.inputs = [spread, constant(graph, weights.name, turned), *node.inputs[2:3]]
        edit.changed = True
        edit.keep(node)
    return edit.finish()


def _zeros_between(edit: Editor, node: Node, source: Value, high: int, wide: int) -> Value:
    """[N,H,W,C] -> [N,H*high,W*wide,C] with zeros after each pixel."""
    n, h, w, c = source.shape
    if (high, wide) == (1, 1):
        return source
    split = edit.emit(Reshape((n, h, 1, w, 1, c)), [source], node)
    padded = edit.emit(Pad((0, 0, 0, 0, 0, 0, 0, 0, high - 1, 0, wide - 1, 0)), [split], node)
    return edit.emit(Reshape((n, h * high, w * wide, c)), [padded], node)


def store_wide_padding(graph: Graph, context: Context) -> Graph:
    """Where a kernel is so wide that most tiles touch the border, the zeros are stored once.

        y = conv(x, w[8,16,3,39], pads=(1,19,1,19))     ->     a = pad(x, ...);  y = conv(a, w, pads=(0,0,0,0))

    NHWC only; `fold_pad` is its opposite and runs before."""
    edit = Editor(graph)
    for node in graph.nodes:
        edit.take(node)
        op, source = node.op, node.inputs[0] if node.inputs else None
        if isinstance(op, Conv) and op.layout is Layout.NHWC and source is not None and source.type.rank == 4 and any(op.pads):
            weights = node.inputs[1]
            assert weights is not None
            taps = weights.shape[3]
            touched = min(taps, op.pads[1]) + min(taps, op.pads[3])
            if touched * 2 > _EDGE_LIMIT // 2 or op.pads[1] > 12 or op.pads[3] > 12:
                top, left, bottom, right = op.pads
                padded = edit.emit(Pad((0, top, left, 0, 0, bottom, right, 0)), [source], node)
                node.op, node.inputs[0] = replace(op, pads=(0, 0, 0, 0)), padded
        edit.keep(node)
    return edit.finish()


def _turned(op: Conv | MaxPool | AveragePool) -> Conv | MaxPool | AveragePool:
    """The same window with its two axes swapped."""
    turned = replace(op, strides=op.strides[::-1], pads=(0, op.pads[0], 0, op.pads[2]), dilations=op.dilations[::-1])
    match turned:
        case AveragePool():
            counted = turned.counted_pads
            swapped = (counted[1], counted[0], counted[3], counted[2]) if counted else ()
            return replace(turned, kernel=turned.kernel[::-1], counted_pads=swapped)
        case MaxPool():
            return replace(turned, kernel=turned.kernel[::-1])
    return turned


def lay_flat(graph: Graph, context: Context) -> Graph:
    """An image one pixel wide is an image one pixel high: tiles run along the width.

        y = conv(x[1,512,1,256], w[512,256,5,1], layout=NHWC)
     ->
        a = reshape(x, shape=(1,1,512,256));  b = conv(a, w[512,256,1,5], layout=NHWC);  y = reshape(b, ...)

    NHWC only, where turning the image moves nothing."""
    edit = Editor(graph)
    for node in graph.nodes:
        edit.take(node)
        op, source = node.op, node.inputs[0] if node.inputs else None
        fits = isinstance(op, (Conv, MaxPool, AveragePool)) and op.layout is Layout.NHWC
        if not fits or source is None or source.type.rank != 4 or source.shape[2] != 1 or source.shape[1] == 1:
            edit.keep(node)
            continue
        assert isinstance(op, (Conv, MaxPool, AveragePool))
        weights = node.inputs[1] if isinstance(op, Conv) else None
        kernel = weights.shape[2:] if weights is not None else op.kernel if not isinstance(op, Conv) else (1, 1)
        computed = weights is not None and weights.data is None
        if kernel[1] != 1 or op.pads[1] or op.pads[3] or computed or (isinstance(op, Conv) and op.epilogue):
            edit.keep(node)
            continue
        n, h, _, c = source.shape
        image = edit.emit(Reshape((n, 1, h, c)), [source], node)
        inputs: list[Value | None] = [image]
        if weights is not None and weights.data is not None:
            turned = np.ascontiguousarray(weights.data.swapaxes(2, 3))
            inputs += [constant(graph, weights.name, turned, weights.dtype), *node.inputs[2:]]
        result = edit.emit(_turned(op), inputs, node)
        result.type = replace(result.type, layout=Layout.NHWC)
        node.op, node.inputs = Reshape(node.output.shape), [result]
        edit.keep(node)
    return edit.finish()
