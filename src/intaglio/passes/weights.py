"""Weights stored small, arithmetic in f32: what `--quantize weights` and `--weights fp16` do.

    y = conv(x, w, b)                   weights:   a = conv(x, w: i8);  c = mul(a, scale);  y = add(c, b)
                                 ->     fp16:      y = conv(x, w: f16, b)

    y = lstm(x, w, r, b)                weights:   y = lstm(x, w: i8, r: i8, b, ..., w_scale, r_scale)
    y = gather(table, i)                weights:   a = gather(table: i8, i);  s = gather(scale, i);  y = mul(cast(a), s)
                                        fp16:      y = cast(gather(table: f16, i))

Integers are symmetric with one scale per output channel (convolutions), column (matrix products), gate and unit (recurrent layers)
or row (tables); `fuse_epilogue` takes the factor and the bias into the product's own loop.

What stays f32: biases and norms, small weights (where a scale per channel would eat the gain), weights that are no constant, that
are the left side of a product or that are read by another operator (einsum), and numbers that half precision cannot hold.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from intaglio.errors import quoted
from intaglio.ir.graph import Array, Graph, Node, Value
from intaglio.ir.types import DType, Layout, Shape
from intaglio.ops.binary import Add, Mul
from intaglio.ops.conv import Conv, ConvTranspose
from intaglio.ops.convert import Cast
from intaglio.ops.index import Gather
from intaglio.ops.matmul import MatMul
from intaglio.ops.recurrent import OPERANDS, Recurrent
from intaglio.passes.context import Context
from intaglio.passes.rewriting import Editor, constant

_SMALL = 64  # elements: below, a constant stays as it is
_SMALL_TABLE = 1024
_TOLD = 4096  # elements: larger constants that stay f32 are reported
_HALF_MAX = 65504.0
_INTEGERS = (DType.I8, DType.U8, DType.I16)


def narrow_weights(graph: Graph, context: Context) -> Graph:
    """Weights are stored as i8 or f16; arithmetic stays in f32.

        y = conv(x, w)        ->      a = conv(x, w: i8)
                                      y = mul(a, scale)

    Skipped for small weights, and for those that are no constant."""
    work = _Narrowing(graph, context.narrow, Editor(graph))
    for node in graph.nodes:
        work.take(node)
    graph = work.edit.finish()
    for text in work.notes_on(graph):
        context.report(text)
    return graph


@dataclass(slots=True)
class _Narrowing:
    graph: Graph
    scheme: str
    edit: Editor
    notes: list[str] = field(default_factory=list)
    halves: dict[Value, Value | None] = field(default_factory=dict)
    bytes_before: int = 0
    bytes_after: int = 0

    def take(self, node: Node) -> None:
        op = self.edit.take(node).op
        if node.output.dtype is DType.F32 and isinstance(op, (Conv, ConvTranspose, MatMul, Recurrent, Gather)):
            if self.scheme == "fp16":
                self._halve(node)
                return
            match op:
                case Gather():
                    self._integer_table(node, op)
                    return
                case Recurrent():
                    self._integer_recurrent(node)
                case Conv() | ConvTranspose() | MatMul() if not (isinstance(op, (Conv, MatMul)) and op.epilogue):
                    self._integer_product(node, op)
                    return
        self.edit.keep(node)

    # Half precision -----------------------------------------------------------------------------------------------------

    def _halve(self, node: Node) -> None:
        if isinstance(node.op, Gather):
            table = self._half(node.inputs[0], _SMALL_TABLE)
            if table is not None:
                taken = self.edit.emit(node.op, [table, node.inputs[1]], node)
                node.op, node.inputs = Cast(DType.F32), [taken]
        else:
            for n in (1, 2) if isinstance(node.op, Recurrent) else (1,):
                node.inputs[n] = self._half(node.inputs[n], _SMALL) or node.inputs[n]
        self.edit.keep(node)

    def _half(self, weights: Value | None, least: int) -> Value | None:
        """The same constant as f16, or None where it stays."""
        if weights is None or weights.data is None or weights.dtype is not DType.F32 or weights.data.size < least:
            return None
        if weights in self.halves:
            return self.halves[weights]
        made: Value | None = None
        if bool(np.all(np.abs(weights.data) <= _HALF_MAX)):  # not for NaN
            made = constant(self.graph, weights.name, weights.data.astype(np.float16))
            self._count(weights, made)
        else:
            self.notes.append(f"{quoted(weights.name)} stays f32: it has numbers outside half precision ({_HALF_MAX:.0f})")
        self.halves[weights] = made
        return made

    # Integers -----------------------------------------------------------------------------------------------------------

    def _integers(
        self, weights: Value | None, axes: Sequence[int], least: int = _SMALL, view: Shape | None = None
    ) -> tuple[Value, Array] | None:
        """The constant as i8 and its scales, one for all numbers along `axes` (of `view`), which stay, with size 1."""
        if weights is None or weights.data is None or weights.dtype is not DType.F32 or weights.data.size < least:
            return None
        data = weights.data.reshape(weights.shape if view is None else view)
        size = np.abs(data).max(axis=tuple(axes), keepdims=True, initial=0.0)
        if not np.all(np.isfinite(size)) or data.size < 2 * size.size:
            return None
        scale = (size.astype(np.float64) / 127.0).astype(np.float32)
        scale = np.where(scale < np.finfo(np.float32).tiny, np.float32(1.0), scale)
        steps = np.clip(np.rint(data.astype(np.float64) / scale), -127, 127)
        made = constant(self.graph, weights.name, steps.astype(np.int8).reshape(weights.shape))
        self._count(weights, made, scale.nbytes)
        return made, scale

    def _integer_product(self, node: Node, op: Conv | ConvTranspose | MatMul) -> None:
        x, weights, bias = [*node.inputs, None][:3]
        assert x is not None and weights is not None
        image = not isinstance(op, MatMul)
        found = None if x.is_const or (image and bias is not None and bias.data is None) else self._product_scales(weights, op)
        if found is None:
            self.edit.keep(node)
            return
        made, scale = found
        if not isinstance(op, MatMul):
            per_channel = (-1,) if op.layout is Layout.NHWC else (-1,) + (1,) * (node.output.type.rank - 2)
            scale = scale.reshape(per_channel)
            if bias is not None and bias.data is not None:
                bias = constant(self.graph, bias.name, bias.data.reshape(per_channel))
        product = self.edit.emit(op, [x, made], node)
        factor = constant(self.graph, f"{node.output.name}_scale", scale)
        if bias is None:
            node.op, node.inputs = Mul(), [product, factor]
        else:
            scaled = self.edit.emit(Mul(), [product, factor], node)
            node.op, node.inputs = Add(), [scaled, bias]
        self.edit.keep(node)

    def _product_scales(self, weights: Value, op: Conv | ConvTranspose | MatMul) -> tuple[Value, Array] | None:
        rank = weights.type.rank
        match op:
            case MatMul():
                found = self._integers(weights, [rank - 1 if op.transpose_b else rank - 2])
                if found is None:
                    return None
                scale = np.swapaxes(found[1], -1, -2) if op.transpose_b else found[1]  # [..., 1, N]
                return found[0], scale.reshape(-1) if math.prod(scale.shape[:-1]) == 1 else scale
            case Conv():
                return self._integers(weights, range(1, rank))
            case ConvTranspose():
                view = (op.group, weights.shape[0] // op.group, *weights.shape[1:])
                return self._integers(weights, [1, *range(3, rank + 1)], view=view)

    def _integer_recurrent(self, node: Node) -> None:
        """Both matrices are [D, gates * units, inputs], with a scale for each row."""
        given = [*node.inputs, *[None] * (OPERANDS - len(node.inputs))]
        found = [self._integers(given[n], [2]) for n in (1, 2)]
        for n, result in zip((1, 2), found, strict=True):
            if result is not None:
                given[n] = result[0]
                given[7 + n] = constant(self.graph, f"{node.output.name}_{'wr'[n - 1]}_scale", result[1][:, :, 0])
        while given[-1] is None:
            given.pop()
        node.inputs = given

    def _integer_table(self, node: Node, op: Gather) -> None:
        table, indices = node.inputs
        assert table is not None and indices is not None
        rank = table.type.rank
        found = self._integers(table, [a for a in range(rank) if a != op.axis % rank], _SMALL_TABLE) if rank else None
        if found is not None:
            taken = self.edit.emit(op, [found[0], indices], node)
            scale = self.edit.emit(op, [constant(self.graph, f"{node.output.name}_scale", found[1]), indices], node)
            node.op, node.inputs = Mul(), [self.edit.emit(Cast(DType.F32), [taken], node), scale]
        self.edit.keep(node)

    # What a person should know ------------------------------------------------------------------------------------------

    def _count(self, before: Value, after: Value, more: int = 0) -> None:
        self.bytes_before += before.type.bytes
        self.bytes_after += after.type.bytes + more

    def notes_on(self, graph: Graph) -> list[str]:
        kind = "f16" if self.scheme == "fp16" else "i8"
        if self.bytes_before:
            saved = f"weights are stored as {kind}: {self.bytes_after:,} bytes instead of {self.bytes_before:,}"
            return [saved, *self.notes, *_large_floats(graph)]
        if any(v.dtype in _INTEGERS and v.type.elements >= _SMALL for v in graph.constants()):
            return [*self.notes, "the weights of this model are already integers: they are not changed"]
        return [*self.notes, *_large_floats(graph), "no weights were stored smaller"]


def _large_floats(graph: Graph) -> list[str]:
    """One line about the large constants that stay f32, and who reads them."""
    found: dict[str, str] = {}
    for node in graph.nodes:
        for value in node.inputs:
            if value is not None and value.is_const and value.dtype is DType.F32 and value.type.elements >= _TOLD:
                found.setdefault(value.name, node.op.NAME)
    if not found:
        return []
    shown = ", ".join(f"{quoted(name)} of {quoted(op)}" for name, op in list(found.items())[:3])
    return [f"stays f32: {shown}" + (f" and {len(found) - 3} more" if len(found) > 3 else "")]


__all__ = ["narrow_weights"]
